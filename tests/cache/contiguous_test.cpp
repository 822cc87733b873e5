// SPDX-License-Identifier: MIT
// What a ContiguousCache promises beyond every cache (cache_test.cpp).
#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/model/cache_bytes.hpp>

#include <doctest/doctest.h>

#include <iterator>
#include <vector>

namespace {

using kvdecode::BF16;
using kvdecode::ContiguousCache;
using kvdecode::Error;
using kvdecode::F16;
using kvdecode::F32;
using kvdecode::Index;
using kvdecode::KvShape;
using kvdecode::RowsView;

const KvShape kShape{{{2, 4, 4, {}, 0}, {2, 4, 4, {}, 1}}};

void step(ContiguousCache<F32>& cache, Index n) {
  const std::vector<float> rows(static_cast<std::size_t>(8 * n), 1.0f);
  const RowsView<const float> view{rows.data(), n, 8, 8};
  cache.reserve(n);
  cache.append(0, view, view);
  cache.append(1, view, view);
  cache.commit();
}

TEST_CASE("contiguous cache: its capacity is checked") {
  CHECK_THROWS_WITH_AS(ContiguousCache<>(kShape, 0),
                       "KV cache: the capacity must be at least 1 position, got 0", Error);
  CHECK_THROWS_WITH_AS(ContiguousCache<>(kShape, -5),
                       "KV cache: the capacity must be at least 1 position, got -5", Error);
}

TEST_CASE("contiguous cache: all its bytes are there from the start, and are those of a full sequence") {
  const ContiguousCache<F32> f32(kShape, 10);
  CHECK(f32.bytes() == 2 * 2 * 2 * 10 * 4 * 4);  // K and V, layers, heads, positions, numbers, bytes
  CHECK(f32.bytes() == kvdecode::payload_bytes<F32>(kShape, 10));
  const ContiguousCache<F16, BF16> halves(kShape, 10);
  CHECK(2 * halves.bytes() == f32.bytes());
}

TEST_CASE("contiguous cache: position p is in slot p of one run a head, which never moves") {
  ContiguousCache<F32> cache(kShape, 10);
  step(cache, 1);
  const std::byte* const keys = (*cache.keys(1, 1).begin()).data;
  CHECK((*cache.keys(1, 1).begin()).row_stride == 16);
  for (int i = 0; i < 3; ++i) {
    step(cache, 3);
    const auto runs = cache.keys(1, 1);
    CHECK(std::distance(runs.begin(), runs.end()) == 1);
    CHECK((*runs.begin()).data == keys);
    CHECK((*runs.begin()).length == cache.kv_len());
  }
  CHECK((*cache.keys(0, 0).begin()).data + 10 * 16 == (*cache.keys(0, 1).begin()).data);
}

TEST_CASE("contiguous cache: allocates nothing after it was made") {
  ContiguousCache<F32> cache(kShape, 64);
  kvdecode::AllocationHook hook;
  const kvdecode::ScopedAllocationHook scope(hook);
  for (int i = 0; i < 10; ++i) step(cache, 6);
  cache.truncate(3);
  step(cache, 61);
  cache.clear();
  CHECK(hook.n_allocations == 0);
}

}  // namespace

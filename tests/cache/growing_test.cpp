// SPDX-License-Identifier: MIT
// What a GrowingCache promises beyond every cache (cache_test.cpp).
#include <support/allocation.hpp>

#include <kvdecode/cache/growing.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/memory.hpp>

#include <doctest/doctest.h>

#include <new>
#include <vector>

namespace {

using kvdecode::AllocationHook;
using kvdecode::Error;
using kvdecode::F32;
using kvdecode::GrowingCache;
using kvdecode::Index;
using kvdecode::KvShape;
using kvdecode::RowsView;
using kvdecode::ScopedAllocationHook;

const KvShape kShape{{{1, 2, 2, {}, 0}}};
constexpr Index kSlotBytes = 16;

void step(GrowingCache<F32>& cache, Index n) {
  std::vector<float> rows;
  for (Index i = 0; i < 2 * n; ++i) rows.push_back(static_cast<float>(2 * cache.kv_len() + i));
  const RowsView<const float> view{rows.data(), n, 2, 2};
  cache.reserve(n);
  cache.append(0, view, view);
  cache.commit();
}
bool holds_its_rows(const GrowingCache<F32>& cache) {
  for (const auto& run : cache.keys(0, 0))
    for (Index i = 0; i < run.length; ++i)
      for (Index c = 0; c < 2; ++c)
        if (F32::decode<float>(run.data + i * run.row_stride, c) != static_cast<float>(2 * i + c))
          return false;
  return true;
}

TEST_CASE("growing cache: its sizes are checked") {
  CHECK_THROWS_WITH_AS(GrowingCache<>(kShape, 0),
                       "KV cache: capacity and initial_positions must be at least 1, got 0 and 64", Error);
  CHECK_THROWS_WITH_AS(GrowingCache<>(kShape, 7, {.initial_positions = 0}),
                       "KV cache: capacity and initial_positions must be at least 1, got 7 and 0", Error);
}

TEST_CASE("growing cache: holds nothing at first, then doublings of its first size up to its capacity") {
  GrowingCache<F32> cache(kShape, 300);
  CHECK(cache.bytes() == 0);
  const auto slots_at = [&](Index kv_len) {
    step(cache, kv_len - cache.kv_len());
    CHECK(holds_its_rows(cache));
    return cache.bytes() / kSlotBytes;
  };
  CHECK(slots_at(1) == 64);
  CHECK(slots_at(64) == 64);
  CHECK(slots_at(65) == 128);
  CHECK(slots_at(128) == 128);
  CHECK(slots_at(129) == 256);
  CHECK(slots_at(257) == 300);
  CHECK(slots_at(300) == 300);
  CHECK_THROWS_WITH_AS(cache.reserve(1), "KV cache full: max_seq_len 300, kv_len 300, n_new 1", Error);
}

TEST_CASE("growing cache: doubles as often as needed at once") {
  GrowingCache<F32> cache(kShape, 1000, {.initial_positions = 3});
  step(cache, 1);
  CHECK(cache.bytes() == 3 * kSlotBytes);
  step(cache, 49);
  CHECK(cache.bytes() == 96 * kSlotBytes);
  CHECK(holds_its_rows(cache));
  GrowingCache<F32> small(kShape, 10);
  step(small, 1);
  CHECK(small.bytes() == 10 * kSlotBytes);
}

TEST_CASE("growing cache: truncating and clearing keep its memory; a fork has what its own content needs") {
  GrowingCache<F32> cache(kShape, 1000);
  step(cache, 200);
  cache.truncate(10);
  CHECK(cache.bytes() == 256 * kSlotBytes);
  CHECK(holds_its_rows(cache));
  CHECK(cache.fork().bytes() == 64 * kSlotBytes);
  cache.clear();
  CHECK(cache.bytes() == 256 * kSlotBytes);
  CHECK(cache.fork().bytes() == 0);
}

TEST_CASE("growing cache: after reserve_capacity no step allocates before its end") {
  GrowingCache<F32> cache(kShape, 1000);
  step(cache, 5);
  cache.reserve_capacity(500);
  CHECK(cache.kv_len() == 5);
  CHECK(holds_its_rows(cache));
  AllocationHook hook;
  {
    const ScopedAllocationHook scope(hook);
    while (cache.kv_len() < 500) step(cache, 5);
  }
  CHECK(hook.n_allocations == 0);
  CHECK(holds_its_rows(cache));
  cache.reserve_capacity(3);  // less than it has: nothing
  CHECK(cache.bytes() == 512 * kSlotBytes);
  CHECK_THROWS_WITH_AS(cache.reserve_capacity(1001),
                       "KV cache: cannot make room for 1001 positions, max_seq_len 1000", Error);
}

TEST_CASE("growing cache: a reserve that cannot grow leaves rows, length and bytes") {
  GrowingCache<F32> cache(kShape, 1000);
  step(cache, 64);
  for (Index which = 0; which < 2; ++which) {
    kvdecode_test::FailingAllocation failing(which);
    CHECK_THROWS_AS(cache.reserve(1), std::bad_alloc);
    CHECK(cache.kv_len() == 64);
    CHECK(cache.bytes() == 64 * kSlotBytes);
    CHECK(holds_its_rows(cache));
  }
  step(cache, 1);
  CHECK(holds_its_rows(cache));
}

}  // namespace

// SPDX-License-Identifier: MIT
// What a SinkCache promises beyond a SlidingWindowCache (sliding_window_test.cpp).
#include <kvdecode/cache/sink.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/memory.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <utility>
#include <vector>

namespace {

using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::F32;
using kvdecode::Index;
using kvdecode::KvShape;
using kvdecode::RowsView;
using kvdecode::SinkCache;

const KvShape kShape{{{1, 2, 1, {.window = 6, .n_sink = 3}, 0}, {1, 2, 1, {.window = 4}, 1}}};
constexpr Index kEndless = Index{1} << 60;

void step(SinkCache<>& cache, Index n) {
  const Index begin = cache.kv_len();
  std::vector<float> k, v;
  for (Index i = 0; i < n; ++i) {
    k.insert(k.end(), 2, static_cast<float>(begin + i));
    v.push_back(static_cast<float>(begin + i));
  }
  cache.reserve(n);
  for (const Index layer : {0, 1})
    cache.append(layer, RowsView<const float>{k.data(), n, 2, 2}, RowsView<const float>{v.data(), n, 1, 1});
  cache.commit();
}
/// What the values of a layer say, which is their position.
std::vector<Index> held(const SinkCache<>& cache, Index layer) {
  std::vector<Index> positions;
  for (const auto& run : cache.values(layer, 0))
    for (Index i = 0; i < run.length; ++i) {
      float number = 0.0f;
      std::memcpy(&number, run.data + i * run.row_stride, sizeof number);
      CHECK(number == static_cast<float>(run.position + i));
      positions.push_back(run.position + i);
    }
  return positions;
}

TEST_CASE("sink cache: a layer that sees all positions is refused by its number") {
  const char* const text =
      "KV cache: layer 1 sees all positions, and a SinkCache keeps only sinks and windows; with_streaming() "
      "gives every "
      "layer both";
  KvShape shape = kShape;
  CHECK(SinkCache<>::can_hold(shape));
  shape.layers[1].span = {};
  CHECK(!SinkCache<>::can_hold(shape));
  CHECK_THROWS_WITH_AS(SinkCache<>(shape, 10), text, Error);
  CHECK_THROWS_WITH_AS(SinkCache<>::required_bytes(shape, 10), text, Error);
  shape.layers[1].store = 0;  // and where it sees another layer's
  CHECK_THROWS_WITH_AS(SinkCache<>(shape, 10),
                       "KV cache: layer 0 sees all positions, and a SinkCache keeps only sinks "
                       "and windows; with_streaming() gives every layer both",
                       Error);
  try {
    SinkCache<> cache(shape, 10);
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kUnsupported);
  }
  shape.layers[1] = kShape.layers[1];
  shape.layers[1].span = {.chunk = 5};
  CHECK(SinkCache<>::can_hold(shape));
}

TEST_CASE("sink cache: keeps the first positions and the last ones of a sequence without end") {
  const SinkCache<>::Options options{.slack = 1, .max_append = 2};
  SinkCache<> cache(kShape, kEndless, options);
  const Index bytes = cache.bytes();
  CHECK(bytes == (3 + 6 - 1 + 3 + 4 - 1 + 3) * 12);
  CHECK(SinkCache<>::required_bytes(kShape, kEndless, options) == bytes);
  CHECK(cache.capacity() == kEndless);
  CHECK(cache.max_append() == 2);
  for (Index n = 0; n < 3000; n = cache.kv_len()) {
    std::vector<Index> expected;
    for (Index p = 0; p < n; ++p)
      if (p < 3 || n - p <= 8) expected.push_back(p);
    CHECK(held(cache, 0) == expected);
    step(cache, 1 + n % 2);
  }
  CHECK(cache.bytes() == bytes);
  SinkCache<> fork = cache.fork();
  CHECK(fork.capacity() == kEndless);
  step(fork, 2);
  CHECK(held(fork, 1).back() == cache.kv_len() + 1);
  CHECK(held(cache, 1).back() == cache.kv_len() - 1);
  fork.clear();
  step(fork, 2);
  CHECK(held(fork, 0) == std::vector<Index>{0, 1});
}

TEST_CASE("sink cache: allocates nothing after it was made") {
  SinkCache<> cache(kShape, kEndless);
  const std::vector<float> row(2, 1.0f);
  kvdecode::AllocationHook hook;
  {
    const kvdecode::ScopedAllocationHook scope(hook);
    for (int i = 0; i < 1000; ++i) {
      cache.reserve(1);
      for (const Index layer : {0, 1})
        cache.append(layer, RowsView<const float>{row.data(), 1, 2, 2},
                     RowsView<const float>{row.data(), 1, 1, 1});
      cache.commit();
    }
    cache.reserve(100000);
    cache.abandon();
  }
  CHECK(hook.n_allocations == 0);
}

}  // namespace

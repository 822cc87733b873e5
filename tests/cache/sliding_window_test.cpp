// SPDX-License-Identifier: MIT
// What a SlidingWindowCache promises beyond every cache (cache_test.cpp).
#include <support/allocation.hpp>

#include <kvdecode/cache/sliding_window.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/memory.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <new>
#include <utility>
#include <vector>

namespace {

using kvdecode::AttentionSpan;
using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::F16;
using kvdecode::F32;
using kvdecode::Index;
using kvdecode::KvShape;
using kvdecode::RowsView;
using kvdecode::SlidingWindowCache;
using Cache = SlidingWindowCache<F32>;

KvShape shape_of(const std::vector<AttentionSpan>& spans) {
  KvShape shape;
  for (const AttentionSpan& span : spans) shape.layers.push_back({2, 3, 1, span, shape.n_layers()});
  return shape;
}
constexpr Index kRowBytes = 2 * (3 + 1) * 4;  // heads, numbers of K and V, bytes

/// Appends n positions to a layer; the numbers of position p are p, and p + 1000 in the second head.
void append(Cache& cache, Index layer, Index begin, Index n, float extra = 0.0f) {
  std::vector<float> k, v;
  for (Index i = 0; i < n; ++i)
    for (const float head : {0.0f, 1000.0f}) {
      const float number = static_cast<float>(begin + i) + head + extra;
      k.insert(k.end(), 3, number);
      v.push_back(number);
    }
  cache.append(layer, RowsView<const float>{k.data(), n, 6, 6}, RowsView<const float>{v.data(), n, 2, 2});
}
void step(Cache& cache, Index n, float extra = 0.0f) {
  cache.reserve(n);
  const Index begin = cache.kv_len();
  for (Index layer = 0; layer < cache.shape().n_layers(); ++layer) append(cache, layer, begin, n, extra);
  cache.commit();
}
/// Positions that a layer holds, each with its own numbers.
std::vector<Index> held(const Cache& cache, Index layer) {
  std::vector<Index> positions;
  const auto keys = cache.keys(layer, 1);
  const auto values = cache.values(layer, 1);
  REQUIRE(std::distance(keys.begin(), keys.end()) == std::distance(values.begin(), values.end()));
  auto value_run = values.begin();
  for (const auto& run : keys) {
    CHECK(run.length > 0);
    CHECK(value_run->position == run.position);
    CHECK(value_run->length == run.length);
    for (Index i = 0; i < run.length; ++i) {
      float k[3], v = 0.0f;
      std::memcpy(k, run.data + i * run.row_stride, sizeof k);
      std::memcpy(&v, value_run->data + i * value_run->row_stride, sizeof v);
      for (const float number : {k[0], k[1], k[2], v})
        CHECK(number == static_cast<float>(run.position + i) + 1000.0f);
      positions.push_back(run.position + i);
    }
    ++value_run;
  }
  return positions;
}
std::vector<Index> range(Index begin, Index end) {
  std::vector<Index> positions;
  for (Index p = begin; p < end; ++p) positions.push_back(p);
  return positions;
}
std::vector<Index> operator+(std::vector<Index> a, const std::vector<Index>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_CASE("sliding window cache: its sizes are checked") {
  const KvShape shape = shape_of({{.window = 4}});
  const auto text = [](const char* numbers) {
    return "KV cache: capacity and max_append must be at least 1 and slack not negative, got " +
           std::string(numbers);
  };
  CHECK_THROWS_WITH_AS(Cache(shape, 0), text("0, 128 and 32").c_str(), Error);
  CHECK_THROWS_WITH_AS(Cache(shape, 9, {.slack = -1}), text("9, 128 and -1").c_str(), Error);
  CHECK_THROWS_WITH_AS(Cache(shape, 9, {.max_append = 0}), text("9, 0 and 32").c_str(), Error);
}

TEST_CASE("sliding window cache: layers keep what their span needs, in the rows that it says") {
  const KvShape shape =
      shape_of({{.window = 5}, {}, {.window = 3, .n_sink = 2}, {.chunk = 4}, {.window = 1}});
  const Cache::Options options{.slack = 2, .max_append = 3};
  // window - 1 + slack + max_append, behind n_sink rows; the full layer grows to the capacity.
  const Index rows = 9 + (2 + 7) + 8 + 5;
  CHECK(Cache::required_bytes(shape, 100, options) == (rows + 100) * kRowBytes);
  Cache cache(shape, 100, options);
  CHECK(cache.max_append() == 3);
  CHECK(cache.bytes() == rows * kRowBytes);
  for (Index n = 0; n <= 60; ++n) {
    CAPTURE(n);
    CHECK(cache.kv_len() == n);
    CHECK(held(cache, 0) == range(std::max<Index>(0, n - 9), n));
    CHECK(held(cache, 1) == range(0, n));
    CHECK(held(cache, 2) ==
          range(0, std::min<Index>(n, 2)) + range(std::max<Index>(2, n - 7), std::max<Index>(2, n)));
    CHECK(held(cache, 3) == range(std::max<Index>(0, n - 8), n));
    CHECK(held(cache, 4) == range(std::max<Index>(0, n - 5), n));
    CHECK(cache.first_position(0) == std::max<Index>(0, n - 9));
    CHECK(cache.first_position(1) == 0);
    CHECK(cache.first_position(2) == (n - 7 <= 2 ? 0 : n - 7));
    step(cache, 1);
  }
  step(cache, 3);
  CHECK(held(cache, 0) == range(55, 64));
  cache.reserve(36);
  CHECK(cache.bytes() == Cache::required_bytes(shape, 100, options));
}

TEST_CASE("sliding window cache: at most two runs, and one of sinks; never more rows than positions") {
  Cache cache(shape_of({{.window = 4}, {.window = 4, .n_sink = 3}}), 50, {.slack = 1, .max_append = 2});
  Index most = 0, most_with_sinks = 0;
  while (cache.kv_len() < 50) {
    step(cache, 1);
    const auto keys = cache.keys(0, 0), with_sinks = cache.keys(1, 0);
    most = std::max<Index>(most, std::distance(keys.begin(), keys.end()));
    most_with_sinks = std::max<Index>(most_with_sinks, std::distance(with_sinks.begin(), with_sinks.end()));
  }
  CHECK(most == 2);
  CHECK(most_with_sinks == 3);
  constexpr Index kHuge = std::numeric_limits<Index>::max();
  for (const AttentionSpan& span :
       {AttentionSpan{.window = kHuge}, AttentionSpan{.window = 9, .n_sink = kHuge},
        AttentionSpan{.chunk = kHuge}, AttentionSpan{.window = 50}}) {
    Cache small(shape_of({span}), 10, {.slack = kHuge / 2, .max_append = kHuge / 2});
    CHECK(small.bytes() == 10 * kRowBytes);
    CHECK(small.max_append() == 10);
    step(small, 10);
    CHECK(held(small, 0) == range(0, 10));
  }
}

TEST_CASE("sliding window cache: capacity 4 with 5 pushed") {
  Cache cache(shape_of({{.window = 2}, {}}), 4, {.slack = 0, .max_append = 1});
  for (int i = 0; i < 4; ++i) step(cache, 1);
  CHECK_THROWS_WITH_AS(cache.reserve(1), "KV cache full: max_seq_len 4, kv_len 4, n_new 1", Error);
  CHECK(held(cache, 0) == range(2, 4));
  CHECK(held(cache, 1) == range(0, 4));
  cache.truncate(3);
  CHECK_THROWS_AS(cache.reserve(2), Error);
  step(cache, 1);
  CHECK(held(cache, 1) == range(0, 4));
}

TEST_CASE("sliding window cache: positions within the slack can be taken back, those beyond are refused") {
  for (const Index slack : {0, 1, 4})
    for (const Index max_append : {1, 3}) {
      CAPTURE(slack);
      CAPTURE(max_append);
      const Cache::Options options{.slack = slack, .max_append = max_append};
      Cache cache(shape_of({{}, {.window = 6}, {.window = 6, .n_sink = 3}}), 100, options);
      while (cache.kv_len() + max_append <= 60) step(cache, max_append);
      const Index n = cache.kv_len();
      // As many as the slack whatever the steps were; the room of a step that is not in progress is slack too.
      for (Index back = 0; back <= slack + max_append; ++back) CHECK(cache.can_truncate(n - back));
      for (Index back = slack + max_append + 1; back < n - 3; ++back) CHECK(!cache.can_truncate(n - back));
      CHECK(cache.can_truncate(0));
      CHECK(!cache.can_truncate(-1));
      CHECK(!cache.can_truncate(n + 1));
      const std::vector<Index> window = held(cache, 1), sinks = held(cache, 2);
      const Index beyond = n - slack - max_append - 1;
      CHECK_THROWS_WITH_AS(
          cache.truncate(beyond),
          ("KV cache: cannot truncate to " + std::to_string(beyond) + " positions, kv_len " +
           std::to_string(n) + ": a ring has overwritten positions that a query there sees; slack " +
           std::to_string(slack))
              .c_str(),
          Error);
      CHECK_THROWS_WITH_AS(cache.truncate(n + 1),
                           ("KV cache: cannot truncate to " + std::to_string(n + 1) + " positions, kv_len " +
                            std::to_string(n))
                               .c_str(),
                           Error);
      CHECK(cache.kv_len() == n);
      CHECK(held(cache, 1) == window);
      CHECK(held(cache, 2) == sinks);
      // Going back does not bring back what is gone: the mark stays.
      cache.truncate(n - slack);
      CHECK(held(cache, 1) == range(window.front(), n - slack));
      CHECK(cache.can_truncate(n - slack - max_append));
      CHECK(!cache.can_truncate(n - slack - max_append - 1));
      step(cache, 1);
      CHECK(held(cache, 1) ==
            range(std::max(window.front(), n - slack + 1 - (5 + slack + max_append)), n - slack + 1));
    }
}

TEST_CASE("sliding window cache: a step that is given up takes nothing that a query sees") {
  for (const Index window : {1, 2, 5}) {
    CAPTURE(window);
    Cache cache(shape_of({{.window = window}, {.chunk = window}}), 100, {.slack = 2, .max_append = 4});
    for (int i = 0; i < 40; ++i) {
      const Index n = cache.kv_len();
      cache.reserve(4);
      append(cache, 0, n, 4, 0.5f);
      append(cache, 1, n, 3, 0.5f);
      cache.abandon();
      for (const Index layer : {0, 1}) {
        const std::vector<Index> positions = held(cache, layer);  // and they have their own numbers
        CHECK(positions == range(cache.first_position(layer), n));
        CHECK(cache.first_position(layer) <= cache.shape()[layer].span.first_visible(n));
      }
      for (Index back = 0; back <= std::min<Index>(n, 2); ++back) CHECK(cache.can_truncate(n - back));
      step(cache, 1 + i % 4);
      if (cache.kv_len() > 90) cache.clear();
    }
  }
}

TEST_CASE("sliding window cache: where no query sees the past, all can be taken back") {
  Cache cache(shape_of({{.window = 1}}), 100, {.slack = 0, .max_append = 1});
  for (int i = 0; i < 20; ++i) step(cache, 1);
  CHECK(cache.can_truncate(7));
  cache.truncate(7);
  CHECK(held(cache, 0).empty());
  CHECK(cache.first_position(0) == 7);
  step(cache, 1);
  CHECK(held(cache, 0) == range(7, 8));
  Cache chunked(shape_of({{.chunk = 4}}), 100, {.slack = 0, .max_append = 1});
  for (int i = 0; i < 21; ++i) step(chunked, 1);
  for (const Index n : {0, 4, 8, 12, 16, 20}) CHECK(chunked.can_truncate(n));
  for (const Index n : {3, 7, 11, 15}) CHECK(!chunked.can_truncate(n));
  chunked.truncate(8);
  step(chunked, 1);
  CHECK(held(chunked, 0) == range(8, 9));
}

TEST_CASE("sliding window cache: a store keeps what any layer that reads it sees") {
  KvShape shape = shape_of({{.window = 3}, {.window = 7, .n_sink = 1}, {.window = 4}, {}});
  shape.layers[1].store = 0;
  shape.layers[3].store = 2;
  Cache cache(shape, 64, {.slack = 0, .max_append = 1});
  for (Index n = 0; n < 40; ++n) {
    cache.reserve(1);
    append(cache, 0, n, 1);
    append(cache, 2, n, 1);
    cache.commit();
  }
  CHECK(held(cache, 1) == range(0, 1) + range(33, 40));
  CHECK(held(cache, 0) == held(cache, 1));
  CHECK(held(cache, 3) == range(0, 40));
  CHECK(cache.bytes() == (8 + 64) * kRowBytes);
}

TEST_CASE("sliding window cache: a fork has the same marks and rows, and goes its own way") {
  Cache cache(shape_of({{.window = 4, .n_sink = 2}, {}}), 200, {.slack = 2, .max_append = 3});
  for (int i = 0; i < 30; ++i) step(cache, 1);
  cache.reserve(3);
  append(cache, 0, 30, 3, 0.5f);
  Cache fork = cache.fork();
  CHECK(fork.max_append() == 3);
  CHECK(held(fork, 0) == range(0, 2) + range(cache.first_position(0), 30));
  CHECK(held(fork, 1) == range(0, 30));
  for (int i = 0; i < 70; ++i) step(fork, 1);
  cache.abandon();
  CHECK(held(cache, 0) == range(0, 2) + range(25, 30));
  CHECK(held(cache, 1) == range(0, 30));
  CHECK(held(fork, 0) == range(0, 2) + range(92, 100));
}

TEST_CASE("sliding window cache: shift is refused and says why") {
  Cache cache(shape_of({{.window = 4}}), 20);
  step(cache, 10);
  CHECK(!cache.can_shift(8, -2));
  try {
    cache.shift(8, -2);
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(std::string(error.what()) ==
          "KV cache: cannot shift positions from 8 by -2: a ring finds rows by their positions, and needs no "
          "room for "
          "more of them");
  }
  CHECK(cache.kv_len() == 10);
}

TEST_CASE("sliding window cache: rings never allocate; full layers do when they double") {
  Cache rings(shape_of({{.window = 4}, {.chunk = 5}}), 1000, {.slack = 2, .max_append = 3});
  Cache mixed(shape_of({{.window = 4}, {}}), 1000, {.slack = 2, .max_append = 3});
  const auto n_allocations = [](Cache& cache, Index n) {
    const std::vector<float> row(6, 1.0f);
    const RowsView<const float> k{row.data(), 1, 6, 6}, v{row.data(), 1, 2, 2};
    kvdecode::AllocationHook hook;
    const kvdecode::ScopedAllocationHook scope(hook);
    for (Index i = 0; i < n; ++i) {
      cache.reserve(1);
      for (const Index layer : {0, 1}) cache.append(layer, k, v);
      cache.commit();
    }
    return hook.n_allocations;
  };
  CHECK(n_allocations(rings, 500) == 0);
  CHECK(n_allocations(mixed, 500) > 0);
  mixed.reserve_capacity(1000);
  CHECK(n_allocations(mixed, 500) == 0);
  CHECK_THROWS_WITH_AS(mixed.reserve_capacity(1001),
                       "KV cache: cannot make room for 1001 positions, max_seq_len 1000", Error);
}

TEST_CASE("sliding window cache: an allocation that fails, in any place, changes nothing") {
  const KvShape shape = shape_of({{.window = 4}, {}});
  bool has_failed = true;
  for (Index which = 0; has_failed; ++which) {
    REQUIRE(which < 100);
    Cache cache(shape, 500, {.slack = 2, .max_append = 3});
    while (cache.kv_len() < 60) step(cache, 3);
    cache.reserve(2);
    append(cache, 1, 60, 2);
    bool was_refused = false;
    {
      kvdecode_test::FailingAllocation failing(which);
      try {
        cache.reserve(200);
      } catch (const std::bad_alloc&) {
        was_refused = true;
      }
      has_failed = failing.has_failed();
    }
    CHECK(held(cache, 1) == range(0, was_refused ? 62 : 60));
    CHECK(held(cache, 0) == range(52, 60));
    {
      kvdecode_test::FailingAllocation failing(which);
      try {
        const Cache fork = cache.fork();
        CHECK(held(fork, 1) == range(0, 60));
      } catch (const std::bad_alloc&) {
      }
      has_failed = has_failed || failing.has_failed();
    }
    cache.truncate(60);
    while (cache.kv_len() < 300) step(cache, 3);
    CHECK(held(cache, 1) == range(0, 300));
  }
}

}  // namespace

// SPDX-License-Identifier: MIT
// What a PagedCache promises beyond every cache (cache_test.cpp).
#include <support/allocation.hpp>

#include <kvdecode/cache/paged.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/memory.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <iterator>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace {

using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::F16;
using kvdecode::F32;
using kvdecode::Index;
using kvdecode::KvShape;
using kvdecode::PagedCache;
using kvdecode::PagePool;
using kvdecode::RowsView;

const KvShape kShape{{{2, 4, 4, {}, 0}, {2, 4, 4, {}, 1}}};
constexpr Index kRowBytes = 2 * 2 * 2 * 4 * 4;  // K and V, layers, heads, numbers, bytes

/// Rows of one number.
template <class Cache>
void append(Cache& cache, Index layer, Index n, float number) {
  const std::vector<float> rows(static_cast<std::size_t>(8 * n), number);
  const RowsView<const float> view{rows.data(), n, 8, 8};
  cache.append(layer, view, view);
}
template <class Cache>
void step(Cache& cache, Index n, float number = 1.0f) {
  cache.reserve(n);
  append(cache, 0, n, number);
  append(cache, 1, n, number);
  cache.commit();
}
/// The numbers of all positions, as one head of a layer holds them.
template <class Cache>
std::vector<float> numbers(const Cache& cache, Index layer = 1) {
  std::vector<float> result;
  for (const auto& run : cache.values(layer, 1))
    for (Index i = 0; i < run.length; ++i) {
      float number = 0.0f;
      std::memcpy(&number, run.data + i * run.row_stride, sizeof number);
      result.push_back(number);
    }
  return result;
}
std::vector<float> joined(std::initializer_list<std::pair<Index, float>> parts) {
  std::vector<float> result;
  for (const auto& [n, number] : parts) result.insert(result.end(), static_cast<std::size_t>(n), number);
  return result;
}

TEST_CASE("paged cache: its capacity and its pool are checked") {
  CHECK_THROWS_WITH_AS(PagedCache<>(kShape, 0), "KV cache: the capacity must be at least 1 position, got 0",
                       Error);
  PagePool pool(PagedCache<16>::page_bytes(kShape));
  CHECK(pool.page_bytes() == 16 * kRowBytes);
  CHECK_NOTHROW(PagedCache<16>(kShape, 10, {.pool = &pool}));
  CHECK_THROWS_WITH_AS(PagedCache<8>(kShape, 10, {.pool = &pool}),
                       "KV cache: a page of 8 positions has 1024 bytes, the pool's have 2048", Error);
}

TEST_CASE("paged cache: a run a page, and pages only for positions that there are") {
  PagedCache<3> cache(kShape, 20);
  CHECK(cache.bytes() == 0);
  for (Index n = 1; n <= 20; ++n) {
    step(cache, 1);
    const auto runs = cache.keys(1, 1);
    CHECK(std::distance(runs.begin(), runs.end()) == (n + 2) / 3);
    CHECK(cache.pool().pages_in_use() == (n + 2) / 3);
    CHECK(cache.bytes() == (n + 2) / 3 * 3 * kRowBytes);
  }
  CHECK(cache.pool().bytes() == PagedCache<3>::required_bytes(kShape, 20));
  for (Index n = 20; n >= 0; --n) {
    cache.truncate(n);
    CHECK(cache.pool().pages_in_use() == (n + 2) / 3);
  }
}

TEST_CASE("paged cache: reserved pages go back when the step is abandoned, replaced or cleared") {
  PagedCache<3> cache(kShape, 30);
  step(cache, 4);
  CHECK(cache.pool().pages_in_use() == 2);
  cache.reserve(26);
  CHECK(cache.pool().pages_in_use() == 10);
  cache.reserve(3);
  CHECK(cache.pool().pages_in_use() == 3);
  cache.reserve(0);
  CHECK(cache.pool().pages_in_use() == 2);
  cache.reserve(20);
  cache.abandon();
  CHECK(cache.pool().pages_in_use() == 2);
  cache.reserve(20);
  const PagedCache<3> fork = cache.fork();  // has no part in the reservation
  CHECK(fork.bytes() == 2 * cache.pool().page_bytes());
  cache.abandon();
  CHECK(cache.pool().pages_in_use() == 2);
  cache.reserve(20);
  cache.clear();
  CHECK(cache.pool().pages_in_use() == 2);
}

TEST_CASE(
    "paged cache: a fork refers to the pages of its original, and the last one is copied when it is "
    "written") {
  PagePool pool(PagedCache<4>::page_bytes(kShape));
  PagedCache<4> cache(kShape, 40, {.pool = &pool});
  step(cache, 10, 1.0f);
  CHECK(pool.pages_in_use() == 3);
  PagedCache<4> fork = cache.fork();
  CHECK(&fork.pool() == &pool);
  CHECK(pool.pages_in_use() == 3);
  CHECK((*fork.keys(0, 0).begin()).data == (*cache.keys(0, 0).begin()).data);
  step(fork, 1, 2.0f);
  CHECK(pool.pages_in_use() == 4);
  step(cache, 1, 3.0f);  // nobody else's by now
  CHECK(pool.pages_in_use() == 4);
  step(fork, 5, 4.0f);
  CHECK(numbers(cache) == joined({{10, 1.0f}, {1, 3.0f}}));
  CHECK(numbers(fork) == joined({{10, 1.0f}, {1, 2.0f}, {5, 4.0f}}));
  CHECK(pool.pages_in_use() == 5);
  // A page that is full is never copied.
  cache.truncate(8);
  PagedCache<4> second = cache.fork();
  step(second, 1);
  step(cache, 1);
  CHECK(pool.pages_in_use() == 6);
  second = std::move(fork);
  CHECK(pool.pages_in_use() == 5);
}

TEST_CASE("paged cache: all pages come back, whatever becomes of the caches") {
  PagePool pool(PagedCache<4>::page_bytes(kShape));
  {
    PagedCache<4> cache(kShape, 40, {.pool = &pool});
    step(cache, 9);
    std::vector<PagedCache<4>> beams;
    for (int i = 0; i < 5; ++i) beams.push_back(cache.fork());
    for (auto& beam : beams) step(beam, 3);
    CHECK(pool.pages_in_use() == 3 + 5);
    beams.erase(beams.begin() + 1, beams.begin() + 3);
    CHECK(pool.pages_in_use() == 3 + 3);
    cache.shift(6, -3);
    step(beams[0], 20);
    beams[1].reserve(9);
    PagedCache<4> moved(std::move(cache));
    CHECK(numbers(moved).size() == 6);
  }
  CHECK(pool.pages_in_use() == 0);
}

TEST_CASE("paged cache: a fork in the middle of a step sees the committed rows only") {
  PagedCache<8> cache(kShape, 16);
  step(cache, 3, 1.0f);
  cache.reserve(4);
  append(cache, 0, 2, 2.0f);
  PagedCache<8> fork = cache.fork();
  append(cache, 0, 2, 2.0f);
  step(fork, 4, 5.0f);
  append(cache, 1, 4, 3.0f);
  cache.commit();
  CHECK(numbers(cache, 0) == joined({{3, 1.0f}, {4, 2.0f}}));
  CHECK(numbers(cache, 1) == joined({{3, 1.0f}, {4, 3.0f}}));
  CHECK(numbers(fork, 0) == joined({{3, 1.0f}, {4, 5.0f}}));
}

TEST_CASE("paged cache: its own pool outlives it as long as a fork is there") {
  PagedCache<4> fork(kShape, 20);
  {
    PagedCache<4> cache(kShape, 20);
    step(cache, 6, 7.0f);
    fork = cache.fork();
  }
  CHECK(numbers(fork) == joined({{6, 7.0f}}));
  step(fork, 6, 8.0f);
  CHECK(fork.pool().pages_in_use() == 3);
}

TEST_CASE("paged cache: a pool that is full is kCacheFull, and the step goes on") {
  PagePool pool(PagedCache<4>::page_bytes(kShape), {.max_pages = 5});
  PagedCache<4> first(kShape, 40, {.pool = &pool}), second(kShape, 40, {.pool = &pool});
  step(first, 12);
  step(second, 5);
  first.reserve(0);
  second.reserve(3);
  append(second, 0, 2, 9.0f);
  CHECK_THROWS_WITH_AS(second.reserve(4), "page pool full: max_pages 5, in use 5, n_new 1", Error);
  try {
    first.reserve(1);
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kCacheFull);
  }
  // A page that must be copied counts.
  PagedCache<4> fork = second.fork();
  CHECK_THROWS_AS(fork.reserve(1), Error);
  CHECK(fork.kv_len() == 5);
  append(second, 0, 1, 9.0f);
  append(second, 1, 3, 9.0f);
  second.commit();
  CHECK(numbers(second) == joined({{5, 1.0f}, {3, 9.0f}}));
  first.truncate(3);
  fork.reserve(1);
  CHECK(pool.pages_in_use() == 4);
}

TEST_CASE("paged cache: a copy that cannot be allocated leaves both sequences") {
  bool has_failed = true;
  for (Index which = 0; has_failed; ++which) {
    REQUIRE(which < 100);
    PagePool pool(PagedCache<4>::page_bytes(kShape));
    PagedCache<4> cache(kShape, 40, {.pool = &pool});
    step(cache, 10, 1.0f);
    PagedCache<4> fork = cache.fork();
    {
      kvdecode_test::FailingAllocation failing(which);
      try {
        fork.reserve(9);
      } catch (const std::bad_alloc&) {
        CHECK(pool.pages_in_use() == 3);
        CHECK(pool.bytes() == 3 * pool.page_bytes());
      }
      has_failed = failing.has_failed();
    }
    CHECK(numbers(fork) == joined({{10, 1.0f}}));
    step(fork, 9, 2.0f);
    CHECK(numbers(fork) == joined({{10, 1.0f}, {9, 2.0f}}));
    CHECK(numbers(cache) == joined({{10, 1.0f}}));
  }
}

TEST_CASE("paged cache: shift gives back whole pages and copies nothing") {
  PagePool pool(PagedCache<4>::page_bytes(kShape));
  PagedCache<4> cache(kShape, 40, {.pool = &pool});
  for (Index i = 0; i < 20; ++i) step(cache, 1, static_cast<float>(i));
  const PagedCache<4> fork = cache.fork();
  const Index bytes = pool.bytes();
  cache.shift(14, -8);  // pages 1 and 3 stay in part, page 2 goes
  CHECK(pool.bytes() == bytes);
  CHECK(cache.bytes() == 4 * pool.page_bytes());
  CHECK(numbers(cache) == std::vector<float>{0, 1, 2, 3, 4, 5, 14, 15, 16, 17, 18, 19});
  CHECK(numbers(fork).size() == 20);
  cache.shift(11, -1);  // two parts of the last page
  CHECK(cache.bytes() == 4 * pool.page_bytes());
  CHECK(numbers(cache) == std::vector<float>{0, 1, 2, 3, 4, 5, 14, 15, 16, 17, 19});
  step(cache, 2, 30.0f);
  CHECK(cache.bytes() == 5 * pool.page_bytes());
  CHECK(numbers(cache) == std::vector<float>{0, 1, 2, 3, 4, 5, 14, 15, 16, 17, 19, 30, 30});
  CHECK(numbers(fork)[18] == 18.0f);
  cache.clear();
  CHECK(pool.pages_in_use() == 5);
  step(cache, 20);
  CHECK(pool.pages_in_use() == 10);
  cache.shift(13, -9);  // pages 1 and 2 go, 3 stays in part
  CHECK(pool.pages_in_use() == 8);
}

TEST_CASE("paged cache: after reserve_capacity no step allocates") {
  PagedCache<3> cache(kShape, 50);
  cache.reserve_capacity(50);
  CHECK(cache.pool().bytes() == PagedCache<3>::required_bytes(kShape, 50));
  CHECK(cache.pool().pages_in_use() == 0);
  CHECK_THROWS_WITH_AS(cache.reserve_capacity(51),
                       "KV cache: cannot make room for 51 positions, max_seq_len 50", Error);
  const std::vector<float> row(8, 1.0f);
  const RowsView<const float> view{row.data(), 1, 8, 8};
  kvdecode::AllocationHook hook;
  {
    const kvdecode::ScopedAllocationHook scope(hook);
    for (int i = 0; i < 50; ++i) {
      cache.reserve(1);
      cache.append(0, view, view);
      cache.append(1, view, view);
      cache.commit();
    }
    cache.truncate(20);
    cache.reserve(30);
    cache.abandon();
  }
  CHECK(hook.n_allocations == 0);
}

TEST_CASE("paged cache: reserve_capacity makes room for what shifts and forks have left, too") {
  const std::vector<float> row(8, 1.0f);
  const RowsView<const float> view{row.data(), 1, 8, 8};
  const auto n_allocations_to = [&](PagedCache<4>& cache, Index end) {
    cache.reserve_capacity(end);
    kvdecode::AllocationHook hook;
    const kvdecode::ScopedAllocationHook scope(hook);
    while (cache.kv_len() < end) {
      cache.reserve(1);
      cache.append(0, view, view);
      cache.append(1, view, view);
      cache.commit();
    }
    return hook.n_allocations;
  };
  for (Index first = 1; first <= 11; ++first)
    for (Index delta = -first; delta < 0; ++delta) {
      CAPTURE(first);
      CAPTURE(delta);
      PagedCache<4> cache(kShape, 60);
      step(cache, 11);
      cache.shift(first, delta);  // parts of pages, and no room behind the last
      CHECK(n_allocations_to(cache, 33) == 0);
    }
  for (const Index n : {7, 8}) {  // the last page is copied, or full
    PagePool pool(PagedCache<4>::page_bytes(kShape));
    PagedCache<4> cache(kShape, 60, {.pool = &pool});
    step(cache, n);
    PagedCache<4> fork = cache.fork();
    CHECK(n_allocations_to(fork, 21) == 0);
    CHECK(n_allocations_to(cache, 22) == 0);
    CHECK(pool.pages_in_use() == (n == 7 ? 1 + 2 * 5 : 2 + 4 + 4));
  }
}

TEST_CASE("paged cache: two threads fork, append and read caches of one pool") {
  PagePool pool(PagedCache<4>::page_bytes(kShape));
  PagedCache<4> prompt(kShape, 100, {.pool = &pool});
  step(prompt, 10, 1.0f);
  std::vector<PagedCache<4>> starts;
  for (int i = 0; i < 2; ++i) starts.push_back(prompt.fork());
  std::vector<int> wrong(2, 0);
  const auto work = [&](std::size_t t) {
    const float mine = static_cast<float>(10 + t);
    for (int round = 0; round < 100; ++round) {
      PagedCache<4> fork = starts[t].fork();
      step(fork, 3, mine);
      PagedCache<4> next = fork.fork();
      step(next, 2, -mine);
      wrong[t] += numbers(next) == joined({{10, 1.0f}, {3, mine}, {2, -mine}}) ? 0 : 1;
      wrong[t] += numbers(fork) == joined({{10, 1.0f}, {3, mine}}) ? 0 : 1;
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  CHECK(wrong == std::vector<int>{0, 0});
  starts.clear();
  CHECK(pool.pages_in_use() == 3);
}

}  // namespace

// SPDX-License-Identifier: MIT
// Memory before allocation: required_bytes() is what is then allocated, and capacity_within() its inverse.
#include <kvdecode/cache/capacity.hpp>
#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/cross_attention.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/sink.hpp>
#include <kvdecode/cache/sliding_window.hpp>
#include <kvdecode/core/cache_formats.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/memory.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

namespace {

using namespace kvdecode;

/// What a layout of few bits is for: heads of 32 numbers, a window, a layer that reads another's rows.
const KvShape kMixed{{{2, 32, 32, {}, 0}, {3, 64, 32, {.window = 30, .n_sink = 3}, 1}, {2, 32, 32, {}, 0}}};
const KvShape kBounded{{{2, 32, 32, {.window = 20, .n_sink = 4}, 0}, {1, 32, 32, {.chunk = 40}, 1}}};
constexpr Index kEndless = std::numeric_limits<Index>::max();

/// Bytes of the blocks that hold rows, each of kRowBlock bytes at least, that making and filling a cache allocates.
/// What it allocates beside them is smaller.
constexpr std::size_t kRowBlock = 4000;
struct RowBytes {
  Index total = 0;
  AllocationHook hook{.context = this, .refuse = [](void* self, std::size_t bytes) {
                        if (bytes >= kRowBlock)
                          static_cast<RowBytes*>(self)->total += static_cast<Index>(bytes);
                        return false;
                      }};
};
template <class Cache>
Index allocated_by_full(const KvShape& shape, Index capacity, const typename Cache::Options& options) {
  RowBytes rows;
  const ScopedAllocationHook scope(rows.hook);
  Cache cache(shape, capacity, options);
  if constexpr (requires { cache.reserve_capacity(capacity); }) cache.reserve_capacity(capacity);
  cache.reserve(capacity);
  return rows.total;
}

/// Budgets from one position to many, each byte around the steps.
template <class Cache>
void check_inverse(const KvShape& shape, const typename Cache::Options& options = {}) {
  const auto required = [&](Index capacity) { return Cache::required_bytes(shape, capacity, options); };
  for (const Index capacity : {1, 2, 15, 16, 17, 29, 30, 31, 32, 33, 63, 64, 65, 100, 1000, 12345}) {
    CAPTURE(capacity);
    for (const Index more : {0, 1, 700, 5000}) {
      const Index budget = required(capacity) + more;
      const Index within = capacity_within<Cache>(shape, budget, options);
      CHECK(within >= capacity);
      CHECK(required(within) <= budget);
      if (within < kEndless) CHECK(required(within + 1) > budget);
    }
    if (required(1) < required(capacity))
      CHECK(capacity_within<Cache>(shape, required(capacity) - 1, options) < capacity);
  }
  const Index one = required(1);
  CHECK_THROWS_WITH_AS(
      capacity_within<Cache>(shape, one - 1, options),
      ("KV cache: " + std::to_string(one - 1) + " bytes hold no position, one takes " + std::to_string(one))
          .c_str(),
      Error);
  CHECK_THROWS_AS(capacity_within<Cache>(shape, -1, options), Error);
}
template <class Cache>
void check_allocated(const KvShape& shape, const typename Cache::Options& options = {}) {
  for (const Index capacity : {64, 100, 129}) {
    CAPTURE(capacity);
    CHECK(allocated_by_full<Cache>(shape, capacity, options) ==
          Cache::required_bytes(shape, capacity, options));
  }
}

TEST_CASE("capacity: within a budget it is the largest one, for every layout") {
  check_inverse<ContiguousCache<>>(kMixed);
  check_inverse<GrowingCache<Int8, HadInt4>>(kMixed);
  check_inverse<PagedCache<1>>(kMixed);
  check_inverse<PagedCache<16, F16>>(kMixed);
  check_inverse<SlidingWindowCache<>>(kMixed);
  check_inverse<SlidingWindowCache<F16>>(kMixed, {.slack = 0, .max_append = 1});
  check_inverse<SinkCache<Int8>>(kBounded, {.slack = 2, .max_append = 8});
  check_inverse<CrossAttentionCache<Int8, HadInt4>>(kMixed);
}

TEST_CASE("capacity: required_bytes is what a full cache has allocated") {
  check_allocated<ContiguousCache<>>(kMixed);
  check_allocated<ContiguousCache<Int8, HadInt4>>(kMixed);
  check_allocated<GrowingCache<>>(kMixed);
  check_allocated<PagedCache<16>>(kMixed);
  check_allocated<PagedCache<7, F64, F32>>(kMixed);
  check_allocated<SlidingWindowCache<>>(kMixed);
  check_allocated<SlidingWindowCache<F64>>(kMixed, {.slack = 0, .max_append = 16});
  check_allocated<SinkCache<>>(kBounded);
  check_allocated<CrossAttentionCache<>>(kMixed);
  check_allocated<CrossAttentionCache<F16, Turbo3>>(kMixed);
}

TEST_CASE(
    "capacity: a sequence whose length costs nothing has no end; what cannot be addressed is beyond it") {
  const SinkCache<>::Options options{.slack = 0, .max_append = 4};
  const Index bytes = SinkCache<>::required_bytes(kBounded, kEndless, options);
  CHECK(capacity_within<SinkCache<>>(kBounded, bytes, options) == kEndless);
  CHECK(capacity_within<SinkCache<>>(kBounded, bytes - 1, options) == 42);  // the chunk's ring: 40 - 1 + 4
  const Index most = capacity_within<ContiguousCache<>>(kMixed, kEndless);
  CHECK(ContiguousCache<>::required_bytes(kMixed, most) > kEndless - 4096);
  CHECK_THROWS_AS(ContiguousCache<>::required_bytes(kMixed, most + 1), Error);
}

TEST_CASE("capacity: rows that a format does not take are refused as such") {
  const KvShape odd{{{1, 24, 24, {}, 0}}};
  try {
    capacity_within<ContiguousCache<HadInt4>>(odd, 1 << 20);
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kUnsupported);
  }
}

TEST_CASE("capacity: a pool's pages within a budget are what it then allocates at most") {
  using Cache = PagedCache<16, F16>;
  const Index page_bytes = Cache::page_bytes(kMixed), budget = 10 * page_bytes + 100;
  PagePool pool(page_bytes, {.max_pages = PagePool::pages_within(page_bytes, budget)});
  const Index capacity = capacity_within<Cache>(kMixed, budget);
  CHECK(capacity == 160);
  RowBytes rows;
  const ScopedAllocationHook scope(rows.hook);
  Cache cache(kMixed, 1000, {.pool = &pool});
  cache.reserve(capacity);
  CHECK(rows.total == pool.bytes());
  CHECK(rows.total == Cache::required_bytes(kMixed, capacity));
  CHECK_THROWS_AS(cache.reserve(capacity + 1), Error);
}

}  // namespace

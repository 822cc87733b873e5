// SPDX-License-Identifier: MIT
#include <support/allocation.hpp>
#include <support/random.hpp>

#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/prefix_store.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/memory.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <initializer_list>
#include <new>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::F16;
using kvdecode::Index;
using kvdecode::KvShape;
using kvdecode::PagedCache;
using kvdecode::PagePool;
using kvdecode::PrefixStore;
using kvdecode::RowsView;
using kvdecode::TokenId;
using Cache = PagedCache<4>;
using Store = PrefixStore<Cache>;
using Tokens = std::vector<TokenId>;

/// A layer that sees all, one with a window, one that reads the rows of the first.
const KvShape kShape{{{2, 3, 3, {}, 0}, {1, 2, 2, {.window = 3}, 1}, {2, 3, 3, {}, 0}}};
constexpr Index kCapacity = 60;
const Index kPageBytes = Cache::page_bytes(kShape);

Tokens counted(Index n, TokenId first = 0) {
  Tokens tokens(static_cast<std::size_t>(n));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}
Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
/// What a model would write for the last of these tokens: a number that depends on all of them.
float number_of(std::span<const TokenId> tokens) {
  std::uint32_t number = 1;
  for (const TokenId token : tokens) number = (number * 31 + static_cast<std::uint32_t>(token)) % 1000003;
  return static_cast<float>(number);
}
std::vector<float> numbers_of(std::span<const TokenId> tokens) {
  std::vector<float> numbers;
  for (std::size_t n = 1; n <= tokens.size(); ++n) numbers.push_back(number_of(tokens.first(n)));
  return numbers;
}
/// Runs what the cache has not seen of a sequence.
template <class Any>
void run(Any& cache, const Tokens& tokens) {
  const Index begin = cache.kv_len(), n = static_cast<Index>(tokens.size()) - begin;
  cache.reserve(n);
  for (const Index layer : {0, 1}) {
    const Index cols = kShape[layer].n_kv_heads * kShape[layer].k_dim;
    std::vector<float> rows;
    for (Index i = 0; i < n; ++i)
      rows.insert(rows.end(), static_cast<std::size_t>(cols),
                  number_of(std::span(tokens).first(static_cast<std::size_t>(begin + i + 1))));
    const RowsView<const float> view{rows.data(), n, cols, cols};
    cache.append(layer, view, view);
  }
  cache.commit();
}
/// The numbers of all positions, those of keys and values being the same; empty if they are not.
template <class Any>
std::vector<float> numbers(const Any& cache, Index layer) {
  std::vector<float> keys, values;
  const auto read = [](const auto& runs, std::vector<float>& result) {
    for (const auto& run : runs)
      for (Index i = 0; i < run.length; ++i) {
        float number = 0.0f;
        std::memcpy(&number, run.data + i * run.row_stride, sizeof number);
        result.push_back(number);
      }
  };
  read(cache.keys(layer, 0), keys);
  read(cache.values(layer, 0), values);
  return keys == values ? keys : std::vector<float>{};
}
template <class Any>
void check_holds(const Any& cache, std::span<const TokenId> tokens) {
  CHECK(cache.kv_len() == static_cast<Index>(tokens.size()));
  for (const Index layer : {0, 1, 2}) CHECK(numbers(cache, layer) == numbers_of(tokens));
}
template <class F>
std::optional<ErrorCode> code_of(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}

/// A pool, a store and sequences that were run and left there.
struct Fixture {
  explicit Fixture(Index max_pages_kept = 0, Index max_pages = 0)
      : pool(kPageBytes, {.max_pages = max_pages}),
        store(pool, kShape, {.max_bytes = max_pages_kept * kPageBytes}) {}

  Cache cache() { return Cache(kShape, kCapacity, {.pool = &pool}); }
  /// The positions that the store then holds of them.
  Index leave(const Tokens& tokens) {
    Cache sequence = cache();
    run(sequence, tokens);
    return store.insert(tokens, sequence);
  }

  PagePool pool;
  Store store;
};

TEST_CASE("prefix store: full pages are taken over, the last token never, and nothing is copied") {
  for (const Index n : {1, 3, 4, 5, 7, 8, 9, 20, 23}) {
    CAPTURE(n);
    Fixture f;
    const Tokens tokens = counted(n);
    Cache first = f.cache();
    run(first, tokens);
    CHECK(f.store.insert(tokens, first) == n / 4 * 4);
    CHECK(f.store.match(tokens) == n / 4 * 4);
    CHECK(f.store.bytes() == n / 4 * kPageBytes);
    const Index in_use = f.pool.pages_in_use();
    Cache second = f.cache();
    CHECK(f.store.adopt(tokens, second) == (n - 1) / 4 * 4);
    CHECK(f.pool.pages_in_use() == in_use);
    check_holds(second, std::span(tokens).first(static_cast<std::size_t>((n - 1) / 4 * 4)));
    if (n > 4) CHECK(second.place(0, 3) == first.place(0, 3));
    run(second, tokens + counted(9, 100));
    check_holds(second, tokens + counted(9, 100));
    check_holds(first, tokens);
  }
}

TEST_CASE("prefix store: a sequence takes over its longest beginning, of whatever sequence it was") {
  Fixture f;
  const Tokens start = counted(8), a = start + counted(8, 100), b = start + counted(9, 200);
  CHECK(f.leave(a) == 16);
  CHECK(f.leave(b) == 16);
  CHECK(f.store.bytes() == (2 + 2 + 2) * kPageBytes);
  CHECK(f.pool.pages_in_use() == 6);
  const auto gained = [&](const Tokens& tokens) {
    Cache cache = f.cache();
    const Index n = f.store.adopt(tokens, cache);
    check_holds(cache, std::span(tokens).first(static_cast<std::size_t>(n)));
    return n;
  };
  CHECK(gained(a) == 12);
  CHECK(gained(a + Tokens{5}) == 16);
  CHECK(gained(b) == 16);
  CHECK(gained(b + counted(30)) == 16);
  CHECK(gained(start + counted(4, 100) + counted(4, 204)) == 12);  // a's third page, and then b's fourth
  CHECK(gained(start + counted(3, 100) + counted(9, 203)) == 8);
  CHECK(gained(counted(8, 1)) == 0);
  CHECK(gained({}) == 0);
  CHECK(gained(counted(8, 100)) == 0);  // a page that is there, after others
  CHECK(f.store.match({}) == 0);
}

TEST_CASE("prefix store: a cache that has a part of it gains the rest; one that has more keeps what it has") {
  Fixture f;
  const Tokens tokens = counted(20);
  f.leave(tokens);
  Cache cache = f.cache();
  run(cache, counted(6));
  CHECK(f.store.adopt(tokens, cache) == 10);
  check_holds(cache, counted(16));
  CHECK(f.store.adopt(tokens, cache) == 0);
  run(cache, counted(18));
  CHECK(f.store.adopt(tokens, cache) == 0);
  check_holds(cache, counted(18));
  Cache small(kShape, 11, {.pool = &f.pool});  // its capacity has room for two pages
  CHECK(f.store.adopt(tokens, small) == 8);
  check_holds(small, counted(8));
  // A step in progress ends.
  Cache in_step = f.cache();
  run(in_step, counted(3));
  in_step.reserve(30);
  const std::vector<float> rows(2 * 6, 1.0f);
  in_step.append(0, RowsView<const float>{rows.data(), 2, 6, 6}, RowsView<const float>{rows.data(), 2, 6, 6});
  CHECK(f.store.adopt(tokens, in_step) == 13);
  CHECK(in_step.bytes() == 4 * kPageBytes);
  check_holds(in_step, counted(16));
  CHECK(f.pool.pages_in_use() == 5 + 1);  // the page of cache that it has to itself
}

TEST_CASE("prefix store: what two sequences have computed alike is kept once") {
  Fixture f;
  CHECK(f.leave(counted(12)) == 12);
  CHECK(f.leave(counted(14)) == 12);
  CHECK(f.leave(counted(17)) == 16);
  CHECK(f.store.bytes() == 4 * kPageBytes);
  CHECK(f.pool.pages_in_use() == 4);
}

TEST_CASE("prefix store: a page that it holds is copied before a cache writes to it") {
  Fixture f;
  const Tokens tokens = counted(12), other = counted(6) + counted(6, 50);
  Cache cache = f.cache();
  run(cache, tokens);
  f.store.insert(tokens, cache);
  cache.truncate(6);
  run(cache, other);
  check_holds(cache, other);
  Cache second = f.cache();
  CHECK(f.store.adopt(tokens, second) == 8);
  check_holds(second, counted(8));
  CHECK(f.store.insert(other, cache) == 12);
  CHECK(f.store.bytes() == 5 * kPageBytes);
}

TEST_CASE(
    "prefix store: within its budget what was not used for longest goes first, ends before beginnings") {
  Fixture f(5);
  CHECK(f.store.max_bytes() == 5 * kPageBytes);
  const Tokens a = counted(8), b = counted(4, 100) + counted(4, 200), c = counted(8, 300);
  f.leave(a);
  f.leave(b);
  f.leave(c);
  CHECK(f.store.bytes() == 5 * kPageBytes);
  CHECK(f.store.match(a) == 4);
  CHECK(f.store.match(b) == 8);
  CHECK(f.store.match(c) == 8);
  // Used: by adopt and by insert, not by match.
  Cache cache = f.cache();
  CHECK(f.store.adopt(a, cache) == 4);
  CHECK(f.leave(counted(4, 400)) == 4);
  CHECK(f.store.match(a) == 4);
  CHECK(f.store.match(b) == 4);
  f.leave(b);
  CHECK(f.store.match(c) == 4);
  CHECK(f.store.match(a) == 4);
  CHECK(f.store.match(b) == 8);
  CHECK(f.leave(c) == 8);
  CHECK(f.store.match(a) == 0);
  CHECK(f.store.match(counted(4, 400)) == 4);
}

TEST_CASE("prefix store: of a sequence beyond the budget the beginning stays") {
  Fixture f(3);
  CHECK(f.leave(counted(40)) == 12);
  CHECK(f.store.match(counted(40)) == 12);
  CHECK(f.leave(counted(8) + counted(20, 70)) == 12);
  CHECK(f.store.match(counted(40)) == 8);
  CHECK(f.store.bytes() == 3 * kPageBytes);
  CHECK(f.pool.pages_in_use() == 3);
}

TEST_CASE("prefix store: pages that caches refer to count whole, and outlive their eviction") {
  Fixture f(2);
  Cache cache = f.cache();
  run(cache, counted(8));
  f.store.insert(counted(8), cache);
  CHECK(f.store.bytes() == 2 * kPageBytes);
  CHECK(f.leave(counted(8, 50)) == 8);
  CHECK(f.store.match(counted(8)) == 0);
  CHECK(f.pool.pages_in_use() == 4);
  check_holds(cache, counted(8));
  f.store.trim(kPageBytes + 1);
  CHECK(f.store.match(counted(8, 50)) == 4);
  CHECK(f.pool.pages_in_use() == 3);
  f.store.clear();
  CHECK(f.store.bytes() == 0);
  CHECK(f.pool.pages_in_use() == 2);
  check_holds(cache, counted(8));
  CHECK(f.leave(counted(8)) == 8);
}

TEST_CASE("prefix store: rows of another rotary epoch are neither kept nor replaced") {
  Fixture f;
  f.leave(counted(12));
  Cache cache = f.cache();
  cache.clear(1);
  CHECK(f.store.adopt(counted(12), cache) == 0);
  run(cache, counted(9, 50));
  CHECK(f.store.insert(counted(9, 50), cache) == 0);
  CHECK(f.store.match(counted(9, 50)) == 0);
  CHECK(f.store.adopt(counted(9, 50) + counted(9), cache) == 0);
  CHECK(cache.epoch() == 1);
}

TEST_CASE("prefix store: what a shift has moved, and what follows it, is neither kept nor replaced") {
  Fixture f;
  Cache cache = f.cache();
  run(cache, counted(20));
  cache.shift(14, -4);  // [0, 10) stand where they were written
  const Tokens left = counted(10) + counted(6, 14);
  CHECK(f.store.insert(left, cache) == 8);
  CHECK(f.store.match(left) == 8);
  const Tokens fresh = left + counted(9), other = left + counted(9, 300);
  f.leave(fresh);  // computed without the tokens that were dropped
  const std::vector<float> before = numbers(cache, 0);
  CHECK(f.store.adopt(fresh, cache) == 0);
  CHECK(numbers(cache, 0) == before);
  run(cache, other);
  CHECK(f.store.insert(other, cache) == 8);
  CHECK(f.store.match(other) == 16);
  // Without them it is a sequence like any other.
  cache.truncate(10);
  CHECK(f.store.adopt(fresh, cache) == 14);
  check_holds(cache, std::span(fresh).first(24));
  cache.truncate(16);
  cache.shift(16, -3);  // moves nothing
  CHECK(f.store.insert(counted(10) + counted(3, 14), cache) == 12);
}

TEST_CASE("prefix store: it is for one type of cache, one pool and one shape") {
  PagePool pool(kPageBytes), other_pool(kPageBytes);
  CHECK_THROWS_WITH_AS(PrefixStore<PagedCache<2>>(pool, kShape),
                       "prefix store: a page of 2 positions has 128 bytes, the pool's have 256", Error);
  CHECK_THROWS_WITH_AS(Store(pool, kShape, {.max_bytes = kPageBytes - 1}),
                       "page pool: 255 bytes hold no page of 256", Error);
  Store store(pool, kShape);
  CHECK(&store.pool() == &pool);
  CHECK(store.shape() == kShape);
  const Tokens tokens = counted(12);
  const auto check_refused = [&](Cache& cache, const char* text) {
    CHECK_THROWS_WITH_AS(store.insert(tokens, cache), text, Error);
    CHECK_THROWS_WITH_AS(store.adopt(tokens, cache), text, Error);
    CHECK(code_of([&] { store.require_same(cache); }) == ErrorCode::kMismatch);
    CHECK(store.bytes() == 0);
  };
  Cache of_other_pool(kShape, kCapacity, {.pool = &other_pool});
  check_refused(of_other_pool, "prefix store: the cache's pages are of another pool than the store's");
  KvShape wider = kShape;
  wider.layers[1].span.window = 4;  // pages of the same size
  Cache of_other_shape(wider, kCapacity, {.pool = &pool});
  check_refused(of_other_shape, "prefix store: the cache was made for another KvShape than the store");
}

TEST_CASE(
    "prefix store: a pool that would be full gets back what no cache refers to, and no more than it lacks") {
  Fixture f(0, 10);
  f.leave(counted(16));
  f.leave(counted(8, 100));
  CHECK(f.pool.pages_in_use() == 6);
  Cache user = f.cache();
  CHECK(f.store.adopt(counted(16), user) == 12);
  Cache cache = f.cache();
  run(cache, counted(16, 200));
  CHECK(f.pool.pages_in_use() == 10);
  CHECK(f.store.match(counted(8, 100)) == 8);
  run(cache, counted(17, 200));
  CHECK(f.store.match(counted(16)) == 12);  // the fourth page, which was used first
  run(cache, counted(24, 200));
  CHECK(f.store.match(counted(8, 100)) == 4);
  CHECK(f.pool.pages_in_use() == 10);
  // What no pool of this size could give is not asked for.
  Cache long_one = f.cache();
  CHECK_THROWS_WITH_AS(long_one.reserve(41), "page pool full: max_pages 10, in use 10, n_new 11", Error);
  CHECK(f.store.match(counted(8, 100)) == 4);
  run(cache, counted(28, 200));
  CHECK(f.store.match(counted(8, 100)) == 0);
  CHECK_THROWS_WITH_AS(cache.reserve(1), "page pool full: max_pages 10, in use 10, n_new 1", Error);
  check_holds(cache, counted(28, 200));
  CHECK(f.store.match(counted(16)) == 12);
  user.clear();
  cache.reserve(1);
  CHECK(f.store.match(counted(16)) == 8);
  f.pool.reserve_free(2);
  CHECK(f.store.bytes() == 0);
  CHECK(f.pool.pages_in_use() == 8);
}

TEST_CASE("prefix store: a page stays while a cache refers to one that follows it") {
  Fixture f(0, 6);
  f.leave(counted(4));
  Cache live = f.cache(), other = f.cache();
  run(live, counted(8));
  CHECK(f.store.insert(counted(8), live) == 8);  // after a page that only the store refers to
  CHECK(f.pool.pages_in_use() == 3);
  CHECK_THROWS_AS(other.reserve(16), Error);
  CHECK(f.store.match(counted(8)) == 8);
  live.clear();
  other.reserve(16);
  CHECK(f.store.match(counted(8)) == 8);
  other.reserve(24);
  CHECK(f.store.bytes() == 0);
}

TEST_CASE("prefix store: several stores over one pool are all asked, one that is gone is not") {
  PagePool pool(kPageBytes, {.max_pages = 6}), other_pool(kPageBytes);
  Store first(pool, kShape);
  std::optional<Store> second(std::in_place, pool, kShape);
  Store third(pool, kShape);
  const auto leave = [](Store& store, const Tokens& tokens) {
    Cache cache(kShape, kCapacity, {.pool = &store.pool()});
    run(cache, tokens);
    store.insert(tokens, cache);
  };
  leave(first, counted(8));
  leave(*second, counted(8));
  leave(third, counted(8));
  CHECK(pool.pages_in_use() == 6);
  Cache cache(kShape, kCapacity, {.pool = &pool});
  run(cache, counted(20, 100));
  CHECK(first.bytes() + second->bytes() + third.bytes() == kPageBytes);
  second.emplace(other_pool, kShape);  // where the one that is gone was
  leave(*second, counted(8));
  cache.reserve(4);
  CHECK_THROWS_AS(cache.reserve(5), Error);
  CHECK(first.bytes() + third.bytes() == 0);
  CHECK(second->bytes() == 2 * kPageBytes);
  CHECK(pool.pages_in_use() == 6);
}

TEST_CASE("prefix store: thousands of sequences are all found") {
  Fixture f;
  Cache cache = f.cache();
  for (TokenId i = 0; i < 3000; ++i) {
    const Tokens tokens = counted(4, 7) + counted(4, i);
    cache.truncate(0);
    run(cache, tokens);
    f.store.insert(tokens, cache);
  }
  CHECK(f.store.bytes() == 3001 * kPageBytes);
  for (TokenId i = 0; i < 3000; ++i) {
    Cache found = f.cache();
    const Tokens tokens = counted(4, 7) + counted(4, i) + Tokens{1};
    REQUIRE(f.store.adopt(tokens, found) == 8);
    REQUIRE(numbers(found, 1) == numbers_of(std::span(tokens).first(8)));
  }
}

TEST_CASE("prefix store: sequences whose hashes are the same are told apart") {
  using SmallPages = PagedCache<3>;
  PagePool pool(SmallPages::page_bytes(kShape));
  PrefixStore<SmallPages> store(pool, kShape);
  const auto cache = [&] { return SmallPages(kShape, kCapacity, {.pool = &pool}); };
  // Found by trying: the store's hash of one is that of the other.
  const Tokens a{12368405, 14402477, 0}, b{12224472, 15353921, 2086005954}, rest = counted(4);
  SmallPages first = cache(), second = cache();
  run(first, a + rest);
  run(second, b + rest);
  CHECK(store.insert(a + rest, first) == 6);
  CHECK(store.match(b) == 0);
  CHECK(store.insert(b, second) == 3);
  CHECK(store.match(b + rest) == 3);  // the next page is there, after a
  CHECK(store.insert(b + rest, second) == 6);
  SmallPages third = cache();
  CHECK(store.adopt(b + rest, third) == 6);
  check_holds(third, b + counted(3));
  // Either goes without the other.
  store.trim(3 * pool.page_bytes());
  CHECK(store.match(a + rest) == 3);
  CHECK(store.match(b + rest) == 6);
}

TEST_CASE("prefix store: an allocation that fails, in any place, changes nothing") {
  Index n_failures = 0;
  bool has_failed = true;
  for (Index which = 0; has_failed; ++which) {
    REQUIRE(which < 1000);
    Fixture f(8);
    f.leave(counted(12));
    f.leave(counted(20, 100));  // the budget is full
    Cache cache = f.cache();
    const Tokens tokens = counted(4) + counted(20, 50);
    run(cache, tokens);
    const Index in_use = f.pool.pages_in_use();
    try {
      const kvdecode_test::FailingAllocation failing(which);
      f.store.insert(tokens, cache);
      has_failed = failing.has_failed();
    } catch (const std::bad_alloc&) {
      ++n_failures;
      CHECK(f.store.match(tokens) == 4);
      CHECK(f.store.match(counted(12)) == 12);
      CHECK(f.store.match(counted(20, 100)) == 20);
      CHECK(f.pool.pages_in_use() == in_use);
    }
    check_holds(cache, tokens);
    CHECK(f.store.insert(tokens, cache) == 24);
    CHECK(f.store.match(tokens) == 24);
    CHECK(f.store.bytes() == 8 * kPageBytes);
  }
  CHECK(n_failures >= 6);  // five pages at least
  has_failed = true;
  for (Index which = 0; has_failed; ++which) {
    REQUIRE(which < 100);
    Fixture f;
    f.leave(counted(20));
    Cache cache = f.cache();
    run(cache, counted(6));
    const Index in_use = f.pool.pages_in_use();
    try {
      const kvdecode_test::FailingAllocation failing(which);
      f.store.adopt(counted(20), cache);
      has_failed = failing.has_failed();
    } catch (const std::bad_alloc&) {
      ++n_failures;
      check_holds(cache, counted(6));
      CHECK(f.pool.pages_in_use() == in_use);
      CHECK(f.store.adopt(counted(20), cache) == 10);
    }
    check_holds(cache, counted(16));
  }
  CHECK(n_failures >= 7);
}

TEST_CASE("prefix store: a store with many pages grows where it can, and fails where it cannot") {
  // More pages than buckets, so that the table of buckets is among what cannot be allocated.
  bool has_failed = true;
  for (Index which = 0; has_failed; ++which) {
    REQUIRE(which < 1000);
    PagePool pool(PagedCache<1>::page_bytes(kShape));
    PrefixStore<PagedCache<1>> store(pool, kShape);
    PagedCache<1> cache(kShape, 200, {.pool = &pool});
    const std::vector<float> rows(6 * 200, 1.0f);
    const auto fill = [&](Index n) {
      cache.reserve(n);
      cache.append(0, RowsView<const float>{rows.data(), n, 6, 6},
                   RowsView<const float>{rows.data(), n, 6, 6});
      cache.append(1, RowsView<const float>{rows.data(), n, 2, 2},
                   RowsView<const float>{rows.data(), n, 2, 2});
      cache.commit();
    };
    fill(60);
    CHECK(store.insert(counted(60), cache) == 60);
    fill(10);
    try {
      const kvdecode_test::FailingAllocation failing(which);
      store.insert(counted(70), cache);
      has_failed = failing.has_failed();
    } catch (const std::bad_alloc&) {
      CHECK(store.match(counted(70)) == 60);
    }
    CHECK(store.insert(counted(70), cache) == 70);
    CHECK(store.match(counted(70)) == 70);
  }
}

TEST_CASE("prefix store: all pages come back, whatever goes first") {
  PagePool pool(kPageBytes);
  std::optional<Store> store(std::in_place, pool, kShape);
  std::optional<Cache> first(std::in_place, kShape, kCapacity, Cache::Options{&pool});
  Cache second(kShape, kCapacity, {.pool = &pool});
  run(*first, counted(10));
  store->insert(counted(10), *first);
  first.reset();
  CHECK(pool.pages_in_use() == 2);
  CHECK(store->adopt(counted(10), second) == 8);
  store.reset();
  CHECK(pool.pages_in_use() == 2);
  check_holds(second, counted(8));
  second.clear();
  CHECK(pool.pages_in_use() == 0);
}

TEST_CASE("prefix store: threads insert, adopt and evict in one store over a pool that is often full") {
  constexpr Index kThreads = 2, kRounds = 2000;
  Fixture f(12, 24);
  std::atomic<Index> n_ready{0};  // all begin together
  std::vector<Index> wrong(kThreads, 0), n_gained(kThreads, 0);
  const auto round_of = [&f](kvdecode_test::SplitMix64& random, TokenId own, Index& mistakes, Index& gained) {
    // Few beginnings, so that the threads meet.
    const Tokens tokens = counted(4 + random.below(9), static_cast<TokenId>(random.below(2))) +
                          counted(1 + random.below(12), static_cast<TokenId>(random.below(3)));
    Cache cache = f.cache();
    gained += f.store.adopt(tokens, cache);
    run(cache, tokens);
    mistakes += numbers(cache, 0) == numbers_of(tokens) ? 0 : 1;
    f.store.insert(tokens, cache);
    cache.truncate(random.below(cache.kv_len()));
    const Tokens other =
        Tokens(tokens.begin(), tokens.begin() + cache.kv_len()) + counted(1 + random.below(6), own);
    run(cache, other);
    mistakes += numbers(cache, 1) == numbers_of(other) ? 0 : 1;
    if (random.below(8) == 0) f.store.trim(random.below(6) * kPageBytes);
    if (random.below(4) != 0) return;
    Cache many = f.cache();
    many.reserve(44);  // what the store keeps must go then
  };
  std::vector<std::thread> threads;
  for (Index t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      kvdecode_test::SplitMix64 random(static_cast<std::uint64_t>(t));
      const auto i = static_cast<std::size_t>(t);
      for (++n_ready; n_ready < kThreads;) std::this_thread::yield();
      for (Index round = 0; round < kRounds; ++round) {
        try {
          round_of(random, static_cast<TokenId>(100 + t), wrong[i], n_gained[i]);
        } catch (const Error& error) {  // the other thread has what is missing
          wrong[i] += error.code() == ErrorCode::kCacheFull ? 0 : 1;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<Index>(kThreads, 0));
  for (const Index n : n_gained) CHECK(n > kRounds / 10);
  CHECK(f.store.bytes() <= 12 * kPageBytes);
  CHECK(f.pool.pages_in_use() * kPageBytes == f.store.bytes());
  f.store.clear();
  CHECK(f.pool.pages_in_use() == 0);
}

}  // namespace

// SPDX-License-Identifier: MIT
// What the fixed cache of cross-attention promises beyond what every cache does: filled, sealed, shared. Its rows as any
// cache's are tested beside those of the others.
#include <support/allocation.hpp>
#include <support/cache_formats.hpp>
#include <support/random.hpp>
#include <support/refusal.hpp>

#include <kvdecode/cache/batch.hpp>
#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/cross_attention.hpp>
#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/picture.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/memory.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace kvdecode;
using kvdecode_test::check_refused;
using kvdecode_test::FailingAllocation;

/// Two layers of unlike heads, and one that reads the rows of the first.
const KvShape kShape{{{2, 32, 64, {}, 0}, {1, 64, 32, {}, 1}, {2, 32, 64, {}, 0}}};
constexpr Index kOwners[] = {0, 1};

/// Appends n positions to all layers, numbers by position and seed.
template <class Cache>
void append(Cache& cache, Index n, std::uint64_t seed) {
  cache.reserve(n);
  for (const Index layer : kOwners) {
    const LayerKvShape& dims = cache.shape()[layer];
    for (Index i = 0; i < n; ++i) {
      const auto position = static_cast<std::uint64_t>(10 * (cache.kv_len() + i) + layer);
      const Index k_cols = dims.n_kv_heads * dims.k_dim, v_cols = dims.n_kv_heads * dims.v_dim;
      const auto k = kvdecode_test::draws<float>(k_cols, 1000 * seed + position);
      const auto v = kvdecode_test::draws<float>(v_cols, 1000 * seed + position + 5);
      cache.append(layer, RowsView<const float>{k.data(), 1, k_cols, k_cols},
                   RowsView<const float>{v.data(), 1, v_cols, v_cols});
    }
  }
  cache.commit();
}

/// All that a cache holds.
template <class Cache>
std::vector<std::byte> held(const Cache& cache) {
  const CacheRecord record = record_of(cache);
  std::vector<std::byte> bytes;
  for (const StoreRecord& store : record.stores)
    for (const auto& rows : {store.keys, store.values}) bytes.insert(bytes.end(), rows.begin(), rows.end());
  return bytes;
}
template <class Cache>
std::vector<std::byte> held_after(Index n, std::uint64_t seed) {
  Cache cache(kShape, 50);
  append(cache, n, seed);
  return held(cache);
}
template <class Cache>
const std::byte* first_key(const Cache& cache) {
  return (*cache.keys(0, 0).begin()).data;
}
template <class Cache>
Cache sealed(Index n, std::uint64_t seed) {
  Cache cache(kShape, 50);
  append(cache, n, seed);
  cache.seal();
  return cache;
}

TEST_CASE("cross-attention cache: what would change sealed rows is refused, by name, and changes nothing") {
  using Cache = CrossAttentionCache<>;
  Cache cache(kShape, 50);
  check_refused(ErrorCode::kBadArgument,
                "KV cache: cannot seal encoder outputs before there are any: kv_len is 0",
                [&] { cache.seal(); });
  CHECK(!cache.is_sealed());
  append(cache, 4, 1);
  append(cache, 3, 1);
  CHECK(!cache.is_sealed());
  cache.seal();
  CHECK(cache.is_sealed());
  cache.seal();
  check_refused(ErrorCode::kUnsupported,
                "KV cache: cannot append 2 positions to the encoder outputs of cross-attention, which were "
                "sealed at kv_len 7; clear() makes room for others",
                [&] { cache.reserve(2); });
  check_refused(ErrorCode::kBadArgument, "KV cache: cannot reserve -1 positions", [&] { cache.reserve(-1); });
  cache.reserve(0);
  cache.commit();
  cache.abandon();
  for (const Index new_len : {0, 6}) {
    CHECK(!cache.can_truncate(new_len));
    check_refused(ErrorCode::kBadArgument,
                  "KV cache: cannot truncate to " + std::to_string(new_len) +
                      " positions, kv_len 7: encoder outputs of cross-attention stay as they were sealed",
                  [&] { cache.truncate(new_len); });
  }
  for (const Index new_len : {-1, 8}) {
    CHECK(!cache.can_truncate(new_len));
    check_refused(ErrorCode::kBadArgument,
                  "KV cache: cannot truncate to " + std::to_string(new_len) + " positions, kv_len 7",
                  [&] { cache.truncate(new_len); });
  }
  CHECK(cache.can_truncate(7));
  cache.truncate(7);
  CHECK(cache.is_sealed());
  CHECK(!cache.can_shift(3, -1));
  check_refused(
      ErrorCode::kUnsupported,
      "KV cache: cannot shift positions from 3 by -1: encoder outputs of cross-attention stay where "
      "they are, whatever becomes of the text",
      [&] { cache.shift(3, -1); });
  CHECK(cache.kv_len() == 7);
  CHECK(held(cache) == held_after<Cache>(7, 1));
}

TEST_CASE(
    "cross-attention cache: seal ends a step in progress; truncate and shift before it are as they say") {
  using Cache = CrossAttentionCache<F16, F32>;
  Cache cache(kShape, 50);
  append(cache, 9, 1);
  CHECK(!cache.can_shift(3, -1));
  CHECK_THROWS_AS(cache.shift(3, -1), Error);
  CHECK(cache.can_truncate(5));
  cache.truncate(5);
  cache.reserve(3);
  const std::vector<float> row(128, 9.0f);
  cache.append(0, RowsView<const float>{row.data(), 1, 64, 64},
               RowsView<const float>{row.data(), 1, 128, 128});
  cache.seal();
  cache.commit();
  CHECK(cache.kv_len() == 5);
  CHECK((*cache.keys(0, 0).begin()).length == 5);
  CHECK(held(cache) == held_after<Cache>(5, 1));
}

TEST_CASE("cross-attention cache: forks of a sealed one refer to its rows, those of another have their own") {
  using Cache = CrossAttentionCache<>;
  Cache original = sealed<Cache>(20, 1);
  const Index row_bytes = original.bytes();
  CHECK(row_bytes == Cache::required_bytes(kShape, 50));
  std::vector<Cache> beams;
  {
    AllocationHook hook;
    const ScopedAllocationHook scope(hook);
    beams.push_back(original.fork());
    repeat(beams, 8);
    reorder(beams, std::vector<Index>{0, 0, 3, 3, 3, 7, 6, 0});
    CHECK(hook.n_bytes < row_bytes / 10);  // no row is copied
  }
  std::vector<Cache> more;
  more.push_back(beams[2].fork());
  merge(beams, std::move(more));
  CHECK(beams.size() == 9);
  for (const Cache& beam : beams) {
    CHECK(beam.is_sealed());
    CHECK(beam.kv_len() == 20);
    CHECK(beam.bytes() == row_bytes);
    for (const Index layer : {0, 1, 2})
      CHECK((*beam.values(layer, 0).begin()).data == (*original.values(layer, 0).begin()).data);
    CHECK(first_key(beam) == first_key(original));
    CHECK_THROWS_AS(beams[3].reserve(1), Error);
  }

  Cache open(kShape, 50);
  append(open, 5, 1);
  Cache fork = open.fork();
  CHECK(!fork.is_sealed());
  CHECK(first_key(fork) != first_key(open));
  append(open, 3, 2);
  append(fork, 6, 1);
  fork.seal();
  CHECK(held(fork) == held_after<Cache>(11, 1));
  append(open, 1, 2);
  CHECK(open.kv_len() == 9);
  CHECK(held(fork) == held_after<Cache>(11, 1));
}

TEST_CASE("cross-attention cache: clear gives a sealed one's rows up, and others can be filled in") {
  using Cache = CrossAttentionCache<BF16>;
  Cache cache(kShape, 50);
  CHECK(cache.bytes() == 0);
  append(cache, 30, 1);
  cache.clear();  // nobody else has the memory
  CHECK(cache.bytes() == Cache::required_bytes(kShape, 50));
  append(cache, 8, 2);
  cache.seal();
  Cache fork = cache.fork();
  cache.clear(3);
  CHECK(!cache.is_sealed());
  CHECK(cache.kv_len() == 0);
  CHECK(cache.epoch() == 3);
  CHECK(cache.bytes() == 0);
  CHECK(!(cache.keys(0, 0).begin() != cache.keys(0, 0).end()));
  CHECK(!(cache.values(1, 0).begin() != cache.values(1, 0).end()));
  append(cache, 50, 3);
  CHECK(cache.bytes() == Cache::required_bytes(kShape, 50));
  CHECK(held(cache) == held_after<Cache>(50, 3));
  CHECK(held(fork) == held_after<Cache>(8, 2));  // and whoever shares the old ones keeps them
  CHECK(fork.is_sealed());
  CHECK_THROWS_AS(append(cache, 1, 3), Error);
}

TEST_CASE("cross-attention cache: a record is taken in before it is sealed, and leaves the forks alone") {
  using Cache = CrossAttentionCache<F16, BF16>;
  Cache cache = sealed<Cache>(12, 1);
  const Cache fork = cache.fork();
  const CacheRecord twelve = record_of(cache);
  ContiguousCache<F16, BF16> other(kShape, 40);
  append(other, 7, 2);
  cache.restore(record_of(other));
  CHECK(!cache.is_sealed());
  CHECK(held(cache) == held_after<Cache>(7, 2));
  CHECK(held(fork) == held_after<Cache>(12, 1));
  append(cache, 2, 2);  // a session may have been saved before the encoder was done
  CHECK(held(cache) == held_after<Cache>(9, 2));
  cache.seal();
  CHECK_THROWS_AS(cache.reserve(1), Error);
  other.restore(twelve);
  CHECK(held(other) == held_after<Cache>(12, 1));
  other.shift(4, -2);
  const CacheRecord shifted = record_of(other);
  check_refused(ErrorCode::kUnsupported,
                "cache record: has rotation shifts, which encoder outputs do not have",
                [&] { cache.restore(shifted); });
  CHECK(cache.is_sealed());
  CHECK(held(cache) == held_after<Cache>(9, 2));
}

TEST_CASE("cross-attention cache: an allocation that fails changes nothing, of sealed rows neither") {
  using Cache = CrossAttentionCache<>;
  ContiguousCache<> five(kShape, 50);
  append(five, 5, 3);
  const CacheRecord record = record_of(five);
  int n_operations = 0, n_refused = 0;
  const auto check = [&](auto&& operation, auto&& done) {
    ++n_operations;
    bool has_failed = true;
    for (Index which = 0; has_failed; ++which) {
      REQUIRE(which < 100);
      std::vector<Cache> caches;
      caches.push_back(sealed<Cache>(20, 1));
      caches.push_back(caches[0].fork());
      caches.emplace_back(kShape, 50);
      bool was_refused = false;
      {
        const FailingAllocation failing(which);
        try {
          operation(caches);
        } catch (const std::bad_alloc&) {
          was_refused = true;
        }
        has_failed = failing.has_failed();
      }
      CHECK(was_refused == has_failed);
      n_refused += was_refused;
      if (!was_refused) {
        done(caches);
        continue;
      }
      REQUIRE(caches.size() == 3);
      CHECK(caches[0].is_sealed());
      CHECK(caches[0].kv_len() == 20);
      CHECK(held(caches[0]) == held_after<Cache>(20, 1));
      CHECK(caches[2].bytes() == 0);
    }
  };
  check([](std::vector<Cache>& c) { c[2].reserve(3); },
        [](std::vector<Cache>& c) { CHECK(c[2].bytes() == Cache::required_bytes(kShape, 50)); });
  check([](std::vector<Cache>& c) { c[2] = c[0].fork(); },
        [](std::vector<Cache>& c) { CHECK(first_key(c[2]) == first_key(c[0])); });
  check([&](std::vector<Cache>& c) { c[0].restore(record); },
        [](std::vector<Cache>& c) {
          CHECK(held(c[0]) == held_after<Cache>(5, 3));
          CHECK(held(c[1]) == held_after<Cache>(20, 1));
        });
  check(
      [](std::vector<Cache>& c) {
        reorder(c, std::vector<Index>{1, 0, 0, 1});
      },
      [](std::vector<Cache>& c) { CHECK(c.size() == 4); });
  CHECK(n_refused >= 2 * n_operations);
  // Rows that others have cannot be written; so where there is no memory for new ones, nothing is there.
  Cache cache = sealed<Cache>(20, 1);
  const Cache fork = cache.fork();
  cache.clear();
  {
    const FailingAllocation failing(0);
    CHECK_THROWS_AS(cache.reserve(2), std::bad_alloc);
  }
  CHECK(cache.kv_len() == 0);
  append(cache, 2, 4);
  CHECK(held(cache) == held_after<Cache>(2, 4));
  CHECK(held(fork) == held_after<Cache>(20, 1));
}

TEST_CASE("cross-attention cache: forks are read, forked and destroyed on several threads") {
  using Cache = CrossAttentionCache<F16>;
  std::optional<Cache> original(sealed<Cache>(30, 1));
  const std::vector<std::byte> expected = held(*original);
  for (int round = 0; round < 20; ++round) {
    std::vector<Cache> forks;
    for (int i = 0; i < 3; ++i) forks.push_back(original->fork());
    int n_right[3] = {};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 3; ++i)
      threads.emplace_back([mine = std::move(forks[i]), &expected, &right = n_right[i]]() mutable {
        for (int turn = 0; turn < 5; ++turn) {
          Cache other = mine.fork();
          right += held(other) == expected;
          mine = std::move(other);
        }
        mine.clear();
        append(mine, 3, 2);  // rows of its own
      });
    if (round == 19) original.reset();  // the threads have the last references
    for (std::thread& thread : threads) thread.join();
    for (const int n : n_right) CHECK(n == 5);
  }
}

TEST_CASE_TEMPLATE("cross-attention cache: rows are those of a contiguous cache, in every format", F, F64,
                   F32, F16, BF16, KVDECODE_TEST_CACHE_FORMATS) {
  ContiguousCache<F> contiguous(kShape, 50);
  append(contiguous, 50, 7);
  CrossAttentionCache<F> cache(kShape, 50);
  for (const Index n : {1, 30, 19}) append(cache, n, 7);
  cache.seal();
  CHECK(held(cache.fork()) == held(contiguous));
  CHECK(cache.bytes() == contiguous.bytes());
  ContiguousCache<F, Int8> mixed(kShape, 50);
  append(mixed, 9, 8);
  CrossAttentionCache<F, Int8> cross_mixed(kShape, 9);
  append(cross_mixed, 9, 8);
  CHECK(held(cross_mixed) == held(mixed));
}

TEST_CASE("cross-attention cache: rows that a format does not take are refused when it is made") {
  check_refused(
      ErrorCode::kUnsupported,
      "KV cache: layer 0 has values of 24 numbers, but a row of format had_int4 must have a power of "
      "two of at most 1024 numbers",
      [] {
        CrossAttentionCache<Int8, HadInt4>(KvShape{{{1, 32, 24, {}, 0}}}, 4);
      });
  check_refused(ErrorCode::kBadArgument, "KV cache: the capacity must be at least 1 position, got 0",
                [] { CrossAttentionCache<>(kShape, 0); });
}

TEST_CASE("cross-attention cache: a picture") {
  CrossAttentionCache<F32, F16> cache(kShape, 50);
  append(cache, 12, 1);
  cache.seal();
  CHECK(to_string(describe(cache.fork())) ==
        "keys f32, values f16, 12 of 50 positions, steps of 50, epoch 0, " + std::to_string(cache.bytes()) +
            " bytes\n"
            "layer 0\n"
            "  [0, 12) slot 0\n"
            "layer 1\n"
            "  [0, 12) slot 0\n");
}

}  // namespace

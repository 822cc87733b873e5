// SPDX-License-Identifier: MIT
// Every operation of every cache, with the heap ending at each of its allocations in turn, whoever makes them: what throws
// has changed nothing, and what is tried again does as if it had never failed.
#include <support/peak_heap.hpp>

#include <kvdecode/cache/batch.hpp>
#include <kvdecode/cache/capacity.hpp>
#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/picture.hpp>
#include <kvdecode/cache/prefix_store.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/sink.hpp>
#include <kvdecode/cache/sliding_window.hpp>
#include <kvdecode/core/cache_formats.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace kvdecode;

constexpr Index kCapacity = 300, kLength = 30, kShifted = 18, kRecorded = 80;

const KvShape kMixed{{{2, 16, 8, {}, 0}, {1, 16, 16, {.window = 5, .n_sink = 2}, 1}, {2, 16, 8, {}, 0}}};
const KvShape kBounded{{{2, 16, 8, {.window = 9}, 0}, {1, 16, 16, {.window = 5, .n_sink = 2}, 1}}};

/// Appends n rows to a layer; the numbers of a position are its own.
template <class Cache>
void append(Cache& cache, Index layer, Index first, Index n) {
  const LayerKvShape& dims = cache.shape()[layer];
  const Index k_cols = dims.n_kv_heads * dims.k_dim, v_cols = dims.n_kv_heads * dims.v_dim;
  std::vector<float> k, v;
  for (Index p = first; p < first + n; ++p) {
    for (Index i = 0; i < k_cols; ++i) k.push_back(static_cast<float>(p + i % 7));
    for (Index i = 0; i < v_cols; ++i) v.push_back(static_cast<float>(p - i % 5));
  }
  cache.append(layer, RowsView<const float>{k.data(), n, k_cols, k_cols},
               RowsView<const float>{v.data(), n, v_cols, v_cols});
}
template <class Cache>
void step(Cache& cache, Index n) {
  for (; n > 0; --n) {
    cache.reserve(1);
    for (Index layer = 0; layer < cache.shape().n_layers(); ++layer)
      if (cache.shape().owns_store(layer)) append(cache, layer, cache.kv_len(), 1);
    cache.commit();
  }
}

/// Two sequences, the first shifted from a position on, if it can be, and in the middle of a step, the second a fork of it
/// that has gone on; and a longer one that is put away.
template <class Cache>
struct Subject {
  explicit Subject(const KvShape& shape, typename Cache::Options given) : options(given) {
    if constexpr (SharesPages<Cache>) {
      pool = std::make_unique<PagePool>(Cache::page_bytes(shape));
      options.pool = pool.get();
    }
    Cache other(shape, kCapacity, options);
    step(other, kRecorded);
    record = record_of(other);
    caches.emplace_back(shape, kCapacity, options);
    step(caches[0], kLength);
    if (caches[0].can_shift(kShifted + 2, -2)) {
      caches[0].shift(kShifted + 2, -2);
      step(caches[0], 2);
    }
    caches.push_back(caches[0].fork());
    step(caches[1], 2);
    caches[0].reserve(3);
    append(caches[0], 0, kLength, 2);
  }

  /// All that can be seen of it, bytes and places.
  std::string seen() const {
    std::string text;
    for (const Cache& cache : caches) {
      text += to_string(describe(cache));
      const CacheRecord content = record_of(cache);
      for (const StoreRecord& store : content.stores)
        for (const auto& rows : {store.keys, store.values})
          text.append(reinterpret_cast<const char*>(rows.data()), rows.size());
    }
    if (pool != nullptr) text += std::to_string(pool->pages_in_use()) + " pages";
    return text + extra;
  }

  typename Cache::Options options;
  std::unique_ptr<PagePool> pool;
  std::vector<Cache> caches;
  CacheRecord record;
  std::string extra;  // what an operation has given
};

/// What is done to a subject of one cache, by name.
template <class Cache>
struct Operation {
  const char* name;
  void (*run)(Subject<Cache>&);
  bool allocates = true;
};
template <class Cache>
std::vector<Operation<Cache>> operations() {
  using It = Subject<Cache>;
  constexpr bool kGrows =
      !std::is_same_v<Cache, ContiguousCache<typename Cache::KeyFormat, typename Cache::ValueFormat>> &&
      !std::is_same_v<Cache, SinkCache<typename Cache::KeyFormat, typename Cache::ValueFormat>>;
  std::vector<Operation<Cache>> all{
      {"a new one", [](It& it) { it.caches.emplace_back(it.caches[0].shape(), 100, it.options); }},
      {"reserve", [](It& it) { it.caches[0].reserve(200); }, kGrows},
      {"fork", [](It& it) { it.caches.push_back(it.caches[0].fork()); }},
      {"restore", [](It& it) { it.caches[0].restore(it.record); }, kGrows},
      {"record_of", [](It& it) { it.extra = std::to_string(record_of(it.caches[0]).stores.size()); }},
      {"describe", [](It& it) { it.extra = to_string(describe(it.caches[0])); }},
      {"reorder",
       [](It& it) {
         reorder(it.caches, std::vector<Index>{1, 0, 1, 0, 0});
       }},
      {"repeat", [](It& it) { repeat(it.caches, 3); }},
      {"merge",
       [](It& it) {
         std::vector<Cache> others;
         others.push_back(it.caches[1].fork());
         merge(it.caches, std::move(others));
       }},
      {"truncate", [](It& it) { it.caches[0].truncate(kLength - 1); }, false},
      {"clear", [](It& it) { it.caches[0].clear(3); }, false},
      {"abandon", [](It& it) { it.caches[0].abandon(); }, false},
  };
  if constexpr (requires(Cache & cache) { cache.reserve_capacity(kCapacity); })
    all.push_back({"reserve_capacity", [](It& it) { it.caches[0].reserve_capacity(kCapacity); }, kGrows});
  return all;
}

template <class Cache>
void check_operation(const KvShape& shape, const typename Cache::Options& options,
                     const Operation<Cache>& operation) {
  const std::string name = operation.name;
  CAPTURE(name);
  std::string expected;
  {
    Subject<Cache> subject(shape, options);
    operation.run(subject);
    expected = subject.seen();
  }
  long n_failed = 0;
  for (bool has_failed = true; has_failed; ++n_failed) {
    REQUIRE(n_failed < 1000);
    Subject<Cache> subject(shape, options);
    const std::string before = subject.seen();
    bool threw = false;
    {
      const kvdecode_test::FailingHeap failing(n_failed);
      try {
        operation.run(subject);
      } catch (const std::bad_alloc&) {
        threw = true;
      }
      has_failed = failing.has_failed();
    }
    CHECK(threw == has_failed);
    if (threw) {
      const bool is_unchanged = subject.seen() == before;
      CHECK_MESSAGE(is_unchanged, "allocation ", n_failed);
      operation.run(subject);
    }
    const bool is_done = subject.seen() == expected;
    CHECK_MESSAGE(is_done, "allocation ", n_failed);
    for (Cache& cache : subject.caches) {
      cache.abandon();
      step(cache, 1);
    }
    subject.caches.clear();
    if (subject.pool != nullptr) CHECK(subject.pool->pages_in_use() == 0);
  }
  CHECK((n_failed > 1) == operation.allocates);
}

template <class Cache>
void check_operations(const KvShape& shape, const typename Cache::Options& options = {}) {
  for (const Operation<Cache>& operation : operations<Cache>())
    check_operation<Cache>(shape, options, operation);
  if (Subject<Cache>(shape, options).caches[0].can_shift(12, -5))
    check_operation<Cache>(shape, options, {"shift", [](Subject<Cache>& it) { it.caches[0].shift(12, -5); }});
}

template <class K, class V>
void check_formats() {
  check_operations<ContiguousCache<K, V>>(kMixed);
  check_operations<GrowingCache<K, V>>(kMixed, {.initial_positions = 4});
  check_operations<PagedCache<1, K, V>>(kMixed);
  check_operations<PagedCache<4, K, V>>(kMixed);
  check_operations<SlidingWindowCache<K, V>>(kMixed, {.slack = 2, .max_append = 3});
  check_operations<SinkCache<K, V>>(kBounded, {.slack = 2, .max_append = 3});
}

TEST_CASE("allocations: each that fails, in any operation of any cache, changes nothing") {
  check_formats<F32, F32>();
  check_formats<Int8, HadInt4>();
}

TEST_CASE("allocations: each that fails, while prefixes are kept and taken over, changes nothing") {
  using Cache = PagedCache<4>;
  std::vector<TokenId> tokens(kLength);
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto check = [&](Index expected, const auto& operation) {
    long n_failed = 0;
    for (bool has_failed = true; has_failed; ++n_failed) {
      REQUIRE(n_failed < 1000);
      Subject<Cache> subject(kMixed, {});
      PrefixStore<Cache> store(*subject.pool, kMixed);
      store.insert(std::span(tokens).first(9), subject.caches[1]);
      subject.caches[1].truncate(3);
      const std::string before = subject.seen();
      const Index bytes = store.bytes();
      bool threw = false;
      Index gained = 0;
      {
        const kvdecode_test::FailingHeap failing(n_failed);
        try {
          gained = operation(store, subject.caches);
        } catch (const std::bad_alloc&) {
          threw = true;
        }
        has_failed = failing.has_failed();
      }
      CHECK(threw == has_failed);
      if (threw) {
        const bool is_unchanged = subject.seen() == before && store.bytes() == bytes;
        CHECK_MESSAGE(is_unchanged, "allocation ", n_failed);
        gained = operation(store, subject.caches);
      }
      CHECK(gained == expected);
    }
    CHECK(n_failed > 1);
  };
  check(kShifted / 4 * 4, [&](PrefixStore<Cache>& store, std::vector<Cache>& caches) {
    return store.insert(tokens, caches[0]);
  });
  check(8 - 3, [&](PrefixStore<Cache>& store, std::vector<Cache>& caches) {
    return store.adopt(tokens, caches[1]);
  });
}

}  // namespace

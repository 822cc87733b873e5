// SPDX-License-Identifier: MIT
// What every KvCache promises (cache/concepts.hpp), for every cache, in several formats of keys and values.
// What a cache promises beyond that is in its own test.
#include <support/allocation.hpp>
#include <support/compare.hpp>
#include <support/random.hpp>

#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/cross_attention.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/sliding_window.hpp>
#include <kvdecode/core/cache_formats.hpp>
#include <kvdecode/core/counting.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/model/cache_bytes.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>
#include <vector>

namespace {

using kvdecode::Asym4;
using kvdecode::BF16;
using kvdecode::ContiguousCache;
using kvdecode::Counting;
using kvdecode::CrossAttentionCache;
using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::F16;
using kvdecode::F32;
using kvdecode::F64;
using kvdecode::GrowingCache;
using kvdecode::Index;
using kvdecode::Int3;
using kvdecode::Int4;
using kvdecode::Int8;
using kvdecode::KvShape;
using kvdecode::PagedCache;
using kvdecode::Raw;
using kvdecode::RowsView;
using kvdecode::SlidingWindowCache;
using kvdecode_test::check_same_bits;
using kvdecode_test::FailingAllocation;
using kvdecode_test::SplitMix64;

/// A cache and the scalars that it is given.
template <class C, class S>
struct On {
  using Cache = C;
  using Scalar = S;
};

}  // namespace

#define KVDECODE_TEST_SHIFTABLE_CACHES                                                                    \
  On<ContiguousCache<F32>, float>, On<ContiguousCache<F64>, double>, On<ContiguousCache<F16>, float>,     \
      On<ContiguousCache<BF16, F16>, double>, On<ContiguousCache<Raw<Counting<float>>>, Counting<float>>, \
      On<GrowingCache<F32>, float>, On<GrowingCache<F64, F16>, double>,                                   \
      On<GrowingCache<Raw<Counting<float>>>, Counting<float>>, On<PagedCache<1>, float>,                  \
      On<PagedCache<3, BF16>, float>, On<PagedCache<16, F64, F16>, double>,                               \
      On<PagedCache<7, Raw<Counting<float>>>, Counting<float>>, On<PagedCache<3, Int8, Int4>, float>
#define KVDECODE_TEST_CACHES                                                            \
  KVDECODE_TEST_SHIFTABLE_CACHES, On<SlidingWindowCache<F32>, float>,                   \
      On<SlidingWindowCache<BF16, F64>, double>,                                        \
      On<SlidingWindowCache<Raw<Counting<float>>>, Counting<float>>,                    \
      On<SlidingWindowCache<Int3, Asym4>, double>, On<CrossAttentionCache<F32>, float>, \
      On<CrossAttentionCache<F64, F16>, double>,                                        \
      On<CrossAttentionCache<Raw<Counting<float>>>, Counting<float>>

TYPE_TO_STRING_AS("contiguous f32", On<ContiguousCache<F32>, float>);
TYPE_TO_STRING_AS("contiguous f64", On<ContiguousCache<F64>, double>);
TYPE_TO_STRING_AS("contiguous f16", On<ContiguousCache<F16>, float>);
TYPE_TO_STRING_AS("contiguous bf16, f16", On<ContiguousCache<BF16, F16>, double>);
TYPE_TO_STRING_AS("contiguous raw", On<ContiguousCache<Raw<Counting<float>>>, Counting<float>>);
TYPE_TO_STRING_AS("growing f32", On<GrowingCache<F32>, float>);
TYPE_TO_STRING_AS("growing f64, f16", On<GrowingCache<F64, F16>, double>);
TYPE_TO_STRING_AS("growing raw", On<GrowingCache<Raw<Counting<float>>>, Counting<float>>);
TYPE_TO_STRING_AS("paged 1 f32", On<PagedCache<1>, float>);
TYPE_TO_STRING_AS("paged 3 bf16", On<PagedCache<3, BF16>, float>);
TYPE_TO_STRING_AS("paged 16 f64, f16", On<PagedCache<16, F64, F16>, double>);
TYPE_TO_STRING_AS("sliding window f32", On<SlidingWindowCache<F32>, float>);
TYPE_TO_STRING_AS("sliding window bf16, f64", On<SlidingWindowCache<BF16, F64>, double>);
TYPE_TO_STRING_AS("sliding window raw", On<SlidingWindowCache<Raw<Counting<float>>>, Counting<float>>);
TYPE_TO_STRING_AS("cross-attention f32", On<CrossAttentionCache<F32>, float>);
TYPE_TO_STRING_AS("cross-attention f64, f16", On<CrossAttentionCache<F64, F16>, double>);
TYPE_TO_STRING_AS("cross-attention raw", On<CrossAttentionCache<Raw<Counting<float>>>, Counting<float>>);
TYPE_TO_STRING_AS("sliding window int3, asym4", On<SlidingWindowCache<Int3, Asym4>, double>);
TYPE_TO_STRING_AS("paged 3 int8, int4", On<PagedCache<3, Int8, Int4>, float>);
TYPE_TO_STRING_AS("paged 7 raw", On<PagedCache<7, Raw<Counting<float>>>, Counting<float>>);

namespace {

/// Three layers of unlike heads, the last of which reads the rows of the first.
KvShape three_layers() { return {{{2, 5, 3, {}, 0}, {1, 8, 8, {.window = 4}, 1}, {2, 5, 3, {}, 0}}}; }
constexpr Index kOwners[] = {0, 1};  // layers with rows of their own

/// The numbers of one position, told apart by layer, position and `salt`: all heads side by side.
template <class S>
std::vector<S> numbers(Index layer, Index position, Index n, int salt) {
  SplitMix64 random(static_cast<std::uint64_t>(1000 * position + 10 * layer + salt));
  std::vector<S> result;
  for (Index i = 0; i < n; ++i) result.push_back(S(random.normal()));
  return result;
}
constexpr int kKeys = 1, kValues = 2;

/// Appends positions [begin, end) to a layer, from rows with a gap between them.
template <class S, class Cache>
void append(Cache& cache, Index layer, Index begin, Index end, int salt = 0) {
  const auto& shape = cache.shape()[layer];
  const Index k_cols = shape.n_kv_heads * shape.k_dim, v_cols = shape.n_kv_heads * shape.v_dim;
  std::vector<S> k, v;
  for (Index position = begin; position < end; ++position) {
    for (const S x : numbers<S>(layer, position, k_cols, salt + kKeys)) k.push_back(x);
    k.push_back(S(777.0f));
    for (const S x : numbers<S>(layer, position, v_cols, salt + kValues)) v.push_back(x);
    v.push_back(S(777.0f));
  }
  cache.append(layer, RowsView<const S>{k.data(), end - begin, k_cols, k_cols + 1},
               RowsView<const S>{v.data(), end - begin, v_cols, v_cols + 1});
}

/// Positions [kv_len, kv_len + n), reserved together and committed by as many as the cache takes.
template <class S, class Cache>
void step(Cache& cache, Index n, int salt = 0) {
  const Index end = cache.kv_len() + n;
  cache.reserve(n);
  for (Index begin = cache.kv_len(); begin < end; begin = cache.kv_len()) {
    const Index stop = std::min(end, begin + cache.max_append());
    for (const Index layer : kOwners) append<S>(cache, layer, begin, stop, salt);
    cache.commit();
  }
}

/// Position `position` as the runs hold it.
template <class F, class Runs>
std::vector<std::byte> stored(const Runs& runs, Index dim, Index position) {
  for (const auto& run : runs)
    if (run.position <= position && position < run.position + run.length) {
      const std::byte* row = run.data + (position - run.position) * run.row_stride;
      return std::vector<std::byte>(row, row + F::row_bytes(dim));
    }
  return {};
}
template <class F, class S>
std::vector<std::byte> encoded(const std::vector<S>& row, Index head, Index dim) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(F::row_bytes(dim)));
  F::encode(row.data() + head * dim, dim, bytes.data());
  return bytes;
}

/// What a position of a sequence holds: the numbers of the position that it was appended at.
struct Origin {
  Index position;
  int salt = 0;
  Index rotation_shift = 0;
};
std::vector<Origin> origins(Index length, Index from = 1 << 20, int salt = 0) {
  std::vector<Origin> rows;
  for (Index position = 0; position < length; ++position)
    rows.push_back({position, position >= from ? salt : 0, 0});
  return rows;
}

/// Checks the runs of one layer: all positions from first_position() on, each once, in order, cut alike for keys and
/// values, each row as its format encodes it.
template <class S, class Cache>
void check_rows(const Cache& cache, Index layer, const std::vector<Origin>& rows) {
  using K = typename Cache::KeyFormat;
  using V = typename Cache::ValueFormat;
  CAPTURE(layer);
  const Index store = cache.shape()[layer].store;
  const auto& shape = cache.shape()[store];
  const Index length = static_cast<Index>(rows.size()), first = cache.first_position(layer);
  CHECK(first <= shape.span.first_visible(cache.kv_len()));
  for (Index head = 0; head < shape.n_kv_heads; ++head) {
    const auto keys = cache.keys(layer, head);
    const auto values = cache.values(layer, head);
    Index end = first;
    auto value_run = values.begin();
    for (const auto& run : keys) {
      CHECK(run.position == end);
      CHECK(run.length > 0);
      REQUIRE(value_run != values.end());
      CHECK((*value_run).position == run.position);
      CHECK((*value_run).length == run.length);
      for (Index position = run.position; position < std::min(length, run.position + run.length); ++position)
        CHECK(run.rotation_shift == rows[static_cast<std::size_t>(position)].rotation_shift);
      end += run.length;
      ++value_run;
    }
    CHECK(value_run == values.end());
    CHECK(end == std::max(first, length));
    for (Index position = first; position < length; ++position) {
      CAPTURE(position);
      const Origin& origin = rows[static_cast<std::size_t>(position)];
      const auto k = numbers<S>(store, origin.position, shape.n_kv_heads * shape.k_dim, origin.salt + kKeys);
      const auto v =
          numbers<S>(store, origin.position, shape.n_kv_heads * shape.v_dim, origin.salt + kValues);
      CHECK(stored<K>(keys, shape.k_dim, position) == encoded<K>(k, head, shape.k_dim));
      CHECK(stored<V>(values, shape.v_dim, position) == encoded<V>(v, head, shape.v_dim));
    }
  }
}
/// Likewise for positions 0 … length-1, from position `from` on with the salt.
template <class S, class Cache>
void check_layer(const Cache& cache, Index layer, Index length, Index from = 1 << 20, int salt = 0) {
  check_rows<S>(cache, layer, origins(length, from, salt));
}
template <class S, class Cache>
void check_all(const Cache& cache, Index kv_len, Index from = 1 << 20, int salt = 0) {
  CHECK(cache.kv_len() == kv_len);
  for (Index layer = 0; layer < cache.shape().n_layers(); ++layer)
    check_layer<S>(cache, layer, kv_len, from, salt);
}

/// The positions that a cache makes room for when it is asked for so many.
template <class Cache>
Index whole_pages(Index n) {
  if constexpr (requires { Cache::kPageSize; })
    return (n + Cache::kPageSize - 1) / Cache::kPageSize * Cache::kPageSize;
  else
    return n;
}

ErrorCode code_of(auto&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.code();
  }
  FAIL("nothing was thrown");
  return {};
}

TEST_CASE_TEMPLATE("cache: a new one is empty", T, KVDECODE_TEST_CACHES) {
  const typename T::Cache cache(three_layers(), 20);
  CHECK(cache.shape() == three_layers());
  CHECK(cache.capacity() == 20);
  CHECK(cache.max_append() == 20);
  CHECK(cache.epoch() == 0);
  CHECK(cache.first_position(0) == 0);
  CHECK(cache.can_truncate(0));
  check_all<typename T::Scalar>(cache, 0);
}

TEST_CASE_TEMPLATE("cache: a step adds rows that read back as their format stores them", T,
                   KVDECODE_TEST_CACHES) {
  using S = typename T::Scalar;
  typename T::Cache cache(three_layers(), 20);
  step<S>(cache, 1);
  check_all<S>(cache, 1);
  step<S>(cache, 7);
  check_all<S>(cache, 8);
  step<S>(cache, 0);
  check_all<S>(cache, 8);
  step<S>(cache, 12);
  check_all<S>(cache, 20);
}

TEST_CASE_TEMPLATE("cache: rows may be appended in any split and are there at once", T,
                   KVDECODE_TEST_CACHES) {
  using S = typename T::Scalar;
  typename T::Cache cache(three_layers(), 20);
  step<S>(cache, 3);
  cache.reserve(6);
  append<S>(cache, 0, 3, 5);
  CHECK(cache.kv_len() == 3);
  check_layer<S>(cache, 0, 5);
  check_layer<S>(cache, 1, 3);
  check_layer<S>(cache, 2, 5);  // reads layer 0
  append<S>(cache, 0, 5, 6);
  append<S>(cache, 1, 3, 4);
  append<S>(cache, 0, 6, 6);
  append<S>(cache, 0, 6, 9);
  append<S>(cache, 1, 4, 9);
  check_layer<S>(cache, 0, 9);
  cache.commit();
  check_all<S>(cache, 9);
}

TEST_CASE_TEMPLATE("cache: commit takes what all layers were given; the rest stays reserved", T,
                   KVDECODE_TEST_CACHES) {
  using S = typename T::Scalar;
  typename T::Cache cache(three_layers(), 20);
  cache.reserve(20);
  append<S>(cache, 0, 0, 5);
  append<S>(cache, 1, 0, 3);
  cache.commit();
  CHECK(cache.kv_len() == 3);
  check_layer<S>(cache, 0, 5);
  check_layer<S>(cache, 1, 3);
  append<S>(cache, 1, 3, 8);
  append<S>(cache, 0, 5, 8);
  cache.commit();
  check_all<S>(cache, 8);
  cache.commit();
  check_all<S>(cache, 8);
  append<S>(cache, 0, 8, 20);
  append<S>(cache, 1, 8, 20);
  cache.commit();
  check_all<S>(cache, 20);
}

TEST_CASE_TEMPLATE("cache: abandoned rows never happened", T, KVDECODE_TEST_CACHES) {
  using S = typename T::Scalar;
  typename T::Cache cache(three_layers(), 20);
  step<S>(cache, 4);
  cache.reserve(16);
  append<S>(cache, 0, 4, 20, 50);
  append<S>(cache, 1, 4, 9, 50);
  cache.abandon();
  check_all<S>(cache, 4);
  cache.commit();
  check_all<S>(cache, 4);
  step<S>(cache, 16);
  check_all<S>(cache, 20);
}

TEST_CASE_TEMPLATE("cache: a second reserve replaces the first", T, KVDECODE_TEST_CACHES) {
  using S = typename T::Scalar;
  typename T::Cache cache(three_layers(), 20);
  step<S>(cache, 2);
  cache.reserve(18);
  append<S>(cache, 0, 2, 5, 50);
  cache.reserve(2);
  check_all<S>(cache, 2);
  for (const Index layer : kOwners) append<S>(cache, layer, 2, 4);
  cache.commit();
  check_all<S>(cache, 4);
  cache.reserve(16);  // the first one's positions are free again
  cache.reserve(0);
  check_all<S>(cache, 4);
}

TEST_CASE_TEMPLATE("cache: a reserve that fails changes nothing, not even the step in progress", T,
                   KVDECODE_TEST_CACHES) {
  using S = typename T::Scalar;
  typename T::Cache cache(three_layers(), 20);
  step<S>(cache, 4);
  cache.reserve(3);
  append<S>(cache, 0, 4, 6);
  CHECK_THROWS_WITH_AS(cache.reserve(17), "KV cache full: max_seq_len 20, kv_len 4, n_new 17", Error);
  CHECK(code_of([&] { cache.reserve(17); }) == ErrorCode::kCacheFull);
  CHECK_THROWS_WITH_AS(cache.reserve(std::numeric_limits<Index>::max()),
                       "KV cache full: max_seq_len 20, kv_len 4, n_new 9223372036854775807", Error);
  CHECK_THROWS_WITH_AS(cache.reserve(-1), "KV cache: cannot reserve -1 positions", Error);
  CHECK(code_of([&] { cache.reserve(-1); }) == ErrorCode::kBadArgument);
  check_layer<S>(cache, 0, 6);
  append<S>(cache, 0, 6, 7);
  append<S>(cache, 1, 4, 7);
  cache.commit();
  check_all<S>(cache, 7);
}

TEST_CASE_TEMPLATE("cache: truncate forgets the end, and what is appended then is as if it had always been",
                   T, KVDECODE_TEST_CACHES) {
  using S = typename T::Scalar;
  for (Index new_len = 0; new_len <= 12; ++new_len) {
    CAPTURE(new_len);
    typename T::Cache cache(three_layers(), 20);
    step<S>(cache, 12, 50);
    CHECK(cache.can_truncate(new_len));
    cache.truncate(new_len);
    check_all<S>(cache, new_len, 0, 50);
    step<S>(cache, 20 - new_len, 90);
    CHECK(cache.kv_len() == 20);
    typename T::Cache fresh(three_layers(), 20);
    step<S>(fresh, new_len, 50);
    step<S>(fresh, 20 - new_len, 90);
    for (Index layer = 0; layer < 3; ++layer)
      for (Index position = 0; position < 20; ++position)
        CHECK(stored<typename T::Cache::KeyFormat>(cache.keys(layer, 0), 5, position) ==
              stored<typename T::Cache::KeyFormat>(fresh.keys(layer, 0), 5, position));
  }
}

TEST_CASE_TEMPLATE("cache: truncate ends a step in progress and refuses what cannot be", T,
                   KVDECODE_TEST_CACHES) {
  using S = typename T::Scalar;
  typename T::Cache cache(three_layers(), 20);
  step<S>(cache, 5);
  CHECK(!cache.can_truncate(6));
  CHECK(!cache.can_truncate(-1));
  CHECK_THROWS_WITH_AS(cache.truncate(6), "KV cache: cannot truncate to 6 positions, kv_len 5", Error);
  CHECK_THROWS_WITH_AS(cache.truncate(-1), "KV cache: cannot truncate to -1 positions, kv_len 5", Error);
  CHECK(code_of([&] { cache.truncate(6); }) == ErrorCode::kBadArgument);
  check_all<S>(cache, 5);
  cache.reserve(4);
  append<S>(cache, 0, 5, 8, 50);
  cache.truncate(5);
  check_all<S>(cache, 5);
}

TEST_CASE_TEMPLATE("cache: forks go their own ways", T, KVDECODE_TEST_CACHES) {
  using S = typename T::Scalar;
  typename T::Cache cache(three_layers(), 20);
  cache.clear(7);
  step<S>(cache, 5);
  cache.reserve(3);
  append<S>(cache, 0, 5, 7, 50);  // a step in progress stays with the original
  typename T::Cache fork = cache.fork();
  CHECK(fork.epoch() == 7);
  CHECK(fork.capacity() == 20);
  CHECK(fork.shape() == cache.shape());
  check_all<S>(fork, 5);
  append<S>(cache, 0, 7, 8, 50);
  append<S>(cache, 1, 5, 8, 50);
  cache.commit();
  step<S>(fork, 15, 90);
  check_all<S>(cache, 8, 5, 50);
  check_all<S>(fork, 20, 5, 90);
  fork.truncate(2);
  fork.clear(1);
  check_all<S>(cache, 8, 5, 50);
  CHECK(cache.epoch() == 7);
  check_all<S>(typename T::Cache(three_layers(), 20).fork(), 0);
}

TEST_CASE_TEMPLATE("cache: clear forgets everything and sets the epoch", T, KVDECODE_TEST_CACHES) {
  using S = typename T::Scalar;
  typename T::Cache cache(three_layers(), 20);
  step<S>(cache, 5, 50);
  cache.reserve(2);
  append<S>(cache, 1, 5, 7, 50);
  cache.clear(3);
  CHECK(cache.epoch() == 3);
  check_all<S>(cache, 0);
  step<S>(cache, 20);
  check_all<S>(cache, 20);
  cache.truncate(4);
  CHECK(cache.epoch() == 3);
  cache.clear();
  CHECK(cache.epoch() == 0);
  CHECK(cache.kv_len() == 0);
}

TEST_CASE_TEMPLATE("cache: moves with its rows", T, KVDECODE_TEST_CACHES) {
  using S = typename T::Scalar;
  typename T::Cache cache(three_layers(), 20);
  step<S>(cache, 5);
  cache.reserve(2);
  append<S>(cache, 0, 5, 6);
  typename T::Cache moved(std::move(cache));
  check_layer<S>(moved, 0, 6);
  append<S>(moved, 0, 6, 7);
  append<S>(moved, 1, 5, 7);
  moved.commit();
  typename T::Cache assigned(three_layers(), 3);
  assigned = std::move(moved);
  check_all<S>(assigned, 7);
  CHECK(assigned.capacity() == 20);
}

/// What a shift does to a sequence.
std::vector<Origin> shifted(std::vector<Origin> rows, Index first, Index delta) {
  for (Index p = first; p < static_cast<Index>(rows.size()); ++p)
    rows[static_cast<std::size_t>(p)].rotation_shift += delta;
  rows.erase(rows.begin() + first + delta, rows.begin() + first);
  return rows;
}
template <class S, class Cache>
void check_all_rows(const Cache& cache, const std::vector<Origin>& rows) {
  CHECK(cache.kv_len() == static_cast<Index>(rows.size()));
  for (Index layer = 0; layer < cache.shape().n_layers(); ++layer) check_rows<S>(cache, layer, rows);
}

TEST_CASE_TEMPLATE("cache: shift drops positions; those behind take their places and keep their bytes", T,
                   KVDECODE_TEST_SHIFTABLE_CACHES) {
  using S = typename T::Scalar;
  using Cache = typename T::Cache;
  for (Index first = 1; first <= 12; ++first)
    for (Index delta = -first; delta < 0; ++delta) {
      CAPTURE(first);
      CAPTURE(delta);
      Cache cache(three_layers(), 20);
      step<S>(cache, 12);
      cache.reserve(4);
      append<S>(cache, 0, 12, 14, 50);  // a step in progress ends
      CHECK(cache.can_shift(first, delta));
      cache.shift(first, delta);
      std::vector<Origin> rows = shifted(origins(12), first, delta);
      check_all_rows<S>(cache, rows);
      // What comes behind is rotated where it stands.
      const auto go_on = [&](Cache& it, Index n, int salt) {
        for (Index i = 0; i < n; ++i) rows.push_back({it.kv_len() + i, salt});
        step<S>(it, n, salt);
        check_all_rows<S>(it, rows);
      };
      go_on(cache, 3, 70);
      Cache fork = cache.fork();
      const std::vector<Origin> at_fork = rows;
      // Shifts compose, also across one another's edges.
      for (const auto& [f, d] :
           {std::pair<Index, Index>{cache.kv_len(), -1}, {cache.kv_len() / 2, -1}, {2, -2}}) {
        if (!cache.can_shift(f, d)) continue;
        cache.shift(f, d);
        rows = shifted(rows, f, d);
        check_all_rows<S>(cache, rows);
        go_on(cache, 1, 90);
      }
      rows = at_fork;
      check_all_rows<S>(fork, rows);
      for (Index new_len = fork.kv_len(); new_len >= 0; new_len -= 2) {
        fork.truncate(new_len);
        rows.resize(static_cast<std::size_t>(new_len));
        check_all_rows<S>(fork, rows);
        go_on(fork, 1, 110);
      }
      fork.clear();
      step<S>(fork, 20);
      check_all<S>(fork, 20);
    }
}

TEST_CASE_TEMPLATE("cache: a shift in two parts is one shift", T, KVDECODE_TEST_SHIFTABLE_CACHES) {
  using S = typename T::Scalar;
  for (const Index first : {5, 9, 12})
    for (const Index a : {1, 2, 4})
      for (Index b = 1; a + b <= first; ++b) {
        typename T::Cache once(three_layers(), 20), twice(three_layers(), 20);
        step<S>(once, 12);
        step<S>(twice, 12);
        once.shift(first, -a - b);
        twice.shift(first, -a);
        twice.shift(first - a, -b);
        check_all_rows<S>(once, shifted(origins(12), first, -a - b));
        check_all_rows<S>(twice, shifted(origins(12), first, -a - b));
      }
}

TEST_CASE_TEMPLATE("cache: shifts that cannot be are refused", T, KVDECODE_TEST_SHIFTABLE_CACHES) {
  using S = typename T::Scalar;
  typename T::Cache cache(three_layers(), 20);
  step<S>(cache, 6);
  constexpr Index kLeast = std::numeric_limits<Index>::min(), kMost = std::numeric_limits<Index>::max();
  for (const auto& [first, delta] : {std::pair<Index, Index>{3, 0},
                                     {3, 1},
                                     {3, -4},
                                     {7, -1},
                                     {-1, -1},
                                     {3, kLeast},
                                     {kLeast, kLeast},
                                     {kLeast, -1},
                                     {kMost, -1},
                                     {kMost, kLeast}}) {
    CHECK(!cache.can_shift(first, delta));
    // Not the bindings themselves: clang 14 does not let a lambda have them.
    CHECK(code_of([&cache, f = first, d = delta] { cache.shift(f, d); }) == ErrorCode::kBadArgument);
  }
  CHECK_THROWS_WITH_AS(
      cache.shift(7, -1),
      "KV cache: cannot shift positions from 7 by -1, which must be negative and lead to a position "
      "of the sequence, kv_len 6",
      Error);
  check_all<S>(cache, 6);
  cache.clear(2);
  step<S>(cache, 6);
  CHECK(!cache.can_shift(3, -1));
  CHECK_THROWS_WITH_AS(
      cache.shift(3, -1),
      "KV cache: cannot shift keys of rotary epoch 2, their angles belong to the length of the "
      "sequence",
      Error);
  CHECK(code_of([&] { cache.shift(3, -1); }) == ErrorCode::kUnsupported);
  check_all<S>(cache, 6);
}

TEST_CASE_TEMPLATE("cache: an allocation that fails, in any place, changes nothing", T,
                   KVDECODE_TEST_CACHES) {
  using S = typename T::Scalar;
  using Cache = typename T::Cache;
  bool has_failed = true;
  for (Index which = 0; has_failed; ++which) {
    CAPTURE(which);
    REQUIRE(which < 300);
    const KvShape shape = three_layers();
    {
      FailingAllocation failing(which);
      try {
        Cache cache(shape, 200);
      } catch (const std::bad_alloc&) {
      }
      has_failed = failing.has_failed();
    }
    Cache cache(shape, 200);
    step<S>(cache, 60);
    cache.reserve(3);
    append<S>(cache, 0, 60, 62);
    const Index bytes = cache.bytes();
    bool was_refused = false;
    {
      FailingAllocation failing(which);
      try {
        cache.reserve(100);
      } catch (const std::bad_alloc&) {
        was_refused = true;
      }
      has_failed = has_failed || failing.has_failed();
    }
    if (was_refused) {
      CHECK(cache.bytes() == bytes);
      check_layer<S>(cache, 0, 62);
      append<S>(cache, 0, 62, 63);
      append<S>(cache, 1, 60, 63);
      cache.commit();
      check_all<S>(cache, 63);
    } else {
      check_all<S>(cache, 60);
    }
    {
      FailingAllocation failing(which);
      try {
        const Cache fork = cache.fork();
      } catch (const std::bad_alloc&) {
      }
      has_failed = has_failed || failing.has_failed();
    }
    check_all<S>(cache, was_refused ? 63 : 60);
    cache.truncate(60);
    {
      FailingAllocation failing(which);
      try {
        Cache copy = cache.fork();
        if (!copy.can_shift(40, -7)) throw std::bad_alloc();
        try {
          copy.shift(40, -7);
        } catch (const std::bad_alloc&) {
          check_all<S>(copy, 60);
          throw;
        }
        check_all_rows<S>(copy, shifted(origins(60), 40, -7));
      } catch (const std::bad_alloc&) {
      }
      has_failed = has_failed || failing.has_failed();
    }
    step<S>(cache, 140);
    check_all<S>(cache, 200);
  }
}

TEST_CASE_TEMPLATE("cache: a full one holds its required bytes", T, KVDECODE_TEST_CACHES) {
  using Cache = typename T::Cache;
  for (const Index capacity : {1, 20, 100}) {
    CAPTURE(capacity);
    Cache cache(three_layers(), capacity);
    step<typename T::Scalar>(cache, capacity);
    // Rows of the two stores: the last layer has none. No window is given up by these caches, of these sizes.
    using K = typename Cache::KeyFormat;
    using V = typename Cache::ValueFormat;
    const Index expected = whole_pages<Cache>(capacity) *
                           (2 * (K::row_bytes(5) + V::row_bytes(3)) + K::row_bytes(8) + V::row_bytes(8));
    CHECK(cache.bytes() == expected);
    CHECK(Cache::required_bytes(three_layers(), capacity) == expected);
  }
}

TEST_CASE_TEMPLATE("cache: a capacity beyond the address space is refused", T, KVDECODE_TEST_CACHES) {
  const Index huge = std::numeric_limits<Index>::max() / 4;
  CHECK_THROWS_WITH_AS(T::Cache::required_bytes(three_layers(), huge),
                       "KV cache: 2305843009213693951 positions of this model exceed the address space",
                       Error);
  CHECK(code_of([&] {
          typename T::Cache cache(three_layers(), huge);
          cache.reserve(huge);
        }) == ErrorCode::kBadArgument);
}

}  // namespace

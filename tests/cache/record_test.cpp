// SPDX-License-Identifier: MIT
// What a cache holds, taken out and given to any other layout: generated for every two layouts, in several formats.
#include <support/allocation.hpp>
#include <support/random.hpp>

#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/cross_attention.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/sink.hpp>
#include <kvdecode/cache/sliding_window.hpp>
#include <kvdecode/core/cache_formats.hpp>
#include <kvdecode/core/error.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using namespace kvdecode;
using kvdecode_test::is_refused;

/// Layers that see all, a window, a window and sinks, and a chunk, and one that reads the rows of the first.
const KvShape kShape{{{2, 32, 16, {}, 0},
                      {1, 16, 16, {.window = 5}, 1},
                      {1, 16, 32, {.window = 4, .n_sink = 3}, 2},
                      {2, 32, 16, {}, 0},
                      {1, 32, 16, {.chunk = 6}, 4}}};
const KvShape kBounded{{{2, 32, 16, {.window = 5}, 0}, {1, 16, 16, {.window = 1, .n_sink = 3}, 1}}};
/// The same with values that are in the keys.
const KvShape kLatent{
    {{1, 40, 32, {}, 0, true}, {1, 40, 32, {}, 0, true}, {2, 33, 32, {.window = 5}, 2, true}}};
const KvShape kBoundedLatent{{{1, 40, 32, {.window = 4, .n_sink = 3}, 0, true}}};

/// Appends n positions to all layers, numbers by seed, in steps as the cache takes them.
template <class Cache>
void append(Cache& cache, Index n, std::uint64_t seed) {
  cache.reserve(n);
  for (Index done = 0; done < n;) {
    const Index step = std::min(n - done, cache.max_append());
    for (Index layer = 0; layer < cache.shape().n_layers(); ++layer) {
      if (!cache.shape().owns_store(layer)) continue;
      const LayerKvShape& dims = cache.shape()[layer];
      const Index k_cols = dims.n_kv_heads * dims.k_dim, v_cols = dims.n_kv_heads * dims.v_dim;
      std::vector<float> k, v;
      for (Index i = 0; i < step; ++i) {
        const auto of = [&](Index cols, Index what) {
          return kvdecode_test::draws<float>(
              cols, seed + 1000u * static_cast<std::uint64_t>(10 * (done + i) + 2 * layer + what));
        };
        for (const float x : of(k_cols, 0)) k.push_back(x);
        for (const float x : of(v_cols, 1)) v.push_back(x);
      }
      cache.append(layer, RowsView<const float>{k.data(), step, k_cols, k_cols},
                   RowsView<const float>{v.data(), step, v_cols, v_cols});
    }
    cache.commit();
    done += step;
  }
}

template <class F, class Runs>
std::optional<std::string> row_of(const Runs& runs, Index dim, Index position, Index& rotation_shift) {
  for (const auto& run : runs)
    if (run.position <= position && position < run.position + run.length) {
      rotation_shift = run.rotation_shift;
      return std::string(reinterpret_cast<const char*>(run.data + (position - run.position) * run.row_stride),
                         static_cast<std::size_t>(F::row_bytes(dim)));
    }
  return std::nullopt;
}

/// The first difference: what the next query sees must be there, and so must what the restored cache claims to have;
/// all that both have must be the same.
template <class A, class B>
std::string difference(const A& restored, const B& original) {
  if (restored.kv_len() != original.kv_len() || restored.epoch() != original.epoch())
    return "kv_len " + std::to_string(restored.kv_len()) + ", epoch " + std::to_string(restored.epoch());
  const KvShape& shape = original.shape();
  for (Index layer = 0; layer < shape.n_layers(); ++layer)
    for (Index head = 0; head < shape[layer].n_kv_heads; ++head)
      for (Index p = 0; p < original.kv_len(); ++p) {
        const std::string at = "layer " + std::to_string(layer) + ", head " + std::to_string(head) +
                               ", position " + std::to_string(p) + ": ";
        Index shift_a = 0, shift_b = 0, unused = 0;
        const LayerKvShape& dims = shape[layer];
        const auto k = row_of<typename A::KeyFormat>(restored.keys(layer, head), dims.k_dim, p, shift_a);
        const auto v = row_of<typename A::ValueFormat>(restored.values(layer, head), dims.v_dim, p, unused);
        if (!k || !v) {
          if (shape[layer].span.sees(original.kv_len(), p) || p >= restored.first_position(layer))
            return at + "is missing";
          continue;
        }
        const auto k_there =
            row_of<typename B::KeyFormat>(original.keys(layer, head), dims.k_dim, p, shift_b);
        if (!k_there) continue;  // a smaller ring
        if (k != k_there) return at + "has another key";
        if (v != row_of<typename B::ValueFormat>(original.values(layer, head), dims.v_dim, p, unused))
          return at + "has another value";
        if (shift_a != shift_b) return at + "has another rotation shift";
      }
  return {};
}

/// Whether two records say the same.
bool same(const CacheRecord& a, const CacheRecord& b) {
  return a.k_format == b.k_format && a.v_format == b.v_format && a.kv_len == b.kv_len && a.epoch == b.epoch &&
         a.rotation == b.rotation &&
         std::equal(a.stores.begin(), a.stores.end(), b.stores.begin(), b.stores.end(),
                    [](const StoreRecord& x, const StoreRecord& y) {
                      return x.layer == y.layer && x.n_sink == y.n_sink && x.first == y.first &&
                             std::equal(x.keys.begin(), x.keys.end(), y.keys.begin(), y.keys.end()) &&
                             std::equal(x.values.begin(), x.values.end(), y.values.begin(), y.values.end());
                    });
}

/// The code of the Error that f() throws.
template <class F>
std::optional<ErrorCode> code_of(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    CHECK_MESSAGE(std::string(error.what()).size() < 250, error.what());
    return error.code();
  }
  return std::nullopt;
}

template <class Cache>
typename Cache::Options options_of(Index turn) {
  if constexpr (requires(typename Cache::Options options) { options.slack; })
    return {.slack = 2 * turn, .max_append = 3 + turn};
  else if constexpr (requires(typename Cache::Options options) { options.initial_positions; })
    return {.initial_positions = 1 + 4 * turn};
  else
    return {};
}

/// Calls f with each layout for a shape, as a std::type_identity.
template <class K, class V, class F>
void for_each_layout(bool is_bounded, const F& f) {
  f(std::type_identity<ContiguousCache<K, V>>{});
  f(std::type_identity<GrowingCache<K, V>>{});
  f(std::type_identity<PagedCache<1, K, V>>{});
  f(std::type_identity<PagedCache<4, K, V>>{});
  f(std::type_identity<SlidingWindowCache<K, V>>{});
  if (!is_bounded) return;
  f(std::type_identity<SinkCache<K, V>>{});
  f(std::type_identity<CrossAttentionCache<K, V>>{});  // of any shape, but pairs are many
}

template <class From, class To>
void check_pair(const KvShape& shape, Index n, bool is_shifted, Index turn) {
  constexpr bool kRingTo = requires(typename To::Options options) { options.slack; };
  constexpr bool kTakesShifts = !kRingTo && !requires(To cache) { cache.seal(); };
  From original(shape, 60, options_of<From>(turn));
  const Index epoch = is_shifted ? 0 : turn;
  original.clear(epoch);
  append(original, n, 1);
  if (original.can_truncate(n - 2)) original.truncate(n - 2);
  if (is_shifted) {
    if (!original.can_shift(0, 0) && !original.can_shift(2, -1)) return;
    original.shift(4, -2);
    append(original, 3, 2);
    original.shift(8, -1);
  }
  const CacheRecord record = record_of(original);
  CHECK(record.kv_len == original.kv_len());

  To restored(shape, 70, options_of<To>(1 - turn));
  append(restored, 9, 3);
  const CacheRecord before = record_of(restored);
  bool has_all = true;
  for (const StoreRecord& store : record.stores) has_all = has_all && store.first == 0;
  if ((!kRingTo && !has_all) || (!kTakesShifts && is_shifted)) {
    CHECK(code_of([&] { restored.restore(record); }) ==
          (is_shifted ? ErrorCode::kUnsupported : ErrorCode::kMismatch));
    CHECK(same(record_of(restored), before));
    return;
  }
  restored.restore(record);
  CHECK(difference(restored, original) == "");
  if constexpr (!kRingTo) CHECK(same(record_of(restored), record));
  // It goes on as the original does.
  for (const Index more : {1, 4, 9}) {
    append(original, more, 4);
    append(restored, more, 4);
    CHECK(difference(restored, original) == "");
  }
  const Index back = restored.kv_len() - 1;
  if (original.can_truncate(back) && restored.can_truncate(back)) {
    original.truncate(back);
    restored.truncate(back);
    append(original, 2, 5);
    append(restored, 2, 5);
    CHECK(difference(restored, original) == "");
  }
  restored.clear();
  restored.restore(before);
  if constexpr (!kRingTo) CHECK(same(record_of(restored), before));
}

template <class K, class V>
void check_all_pairs(const KvShape& shape = kShape, const KvShape& bounded = kBounded) {
  for (const bool is_bounded : {false, true})
    for_each_layout<K, V>(is_bounded, [&]<class From>(std::type_identity<From>) {
      for_each_layout<K, V>(is_bounded, [&]<class To>(std::type_identity<To>) {
        for (const Index n : {3, 5, 6, 7, 18, 40})
          for (const Index turn : {0, 1}) check_pair<From, To>(is_bounded ? bounded : shape, n, false, turn);
        for (const Index n : {12, 40}) check_pair<From, To>(is_bounded ? bounded : shape, n, true, 0);
      });
    });
}

TEST_CASE("record: every layout goes on with what any other held, byte for byte") {
  check_all_pairs<F32, F32>();
  check_all_pairs<F16, BF16>();
  check_all_pairs<Int8, HadInt4>();
  check_all_pairs<Turbo3, Asym4>();
  check_all_pairs<F32, F32>(kLatent, kBoundedLatent);
  check_all_pairs<Int8, Int8>(kLatent, kBoundedLatent);
}

TEST_CASE("record: a ring gives what it keeps, and a smaller one takes the last of it") {
  using Ring = SlidingWindowCache<>;
  const KvShape shape{{{1, 2, 2, {.window = 4, .n_sink = 2}, 0}}};
  Ring large(shape, 100, {.slack = 10, .max_append = 5});
  append(large, 50, 1);
  const CacheRecord record = record_of(large);
  REQUIRE(record.stores.size() == 1);
  CHECK(record.stores[0].n_sink == 2);
  CHECK(record.stores[0].first == large.first_position(0));
  CHECK(record.stores[0].keys.size() == static_cast<std::size_t>((2 + 50 - large.first_position(0)) * 8));

  Ring small(shape, 60, {.slack = 1, .max_append = 2});
  small.restore(record);
  CHECK(small.first_position(0) == 50 - (3 + 1 + 2));
  CHECK(small.can_truncate(49));
  CHECK_FALSE(small.can_truncate(46));
  CHECK(large.can_truncate(46));
  CHECK(difference(small, large) == "");

  // And back: what the small one has not kept is not there, and not claimed to be.
  large.restore(record_of(small));
  CHECK(large.first_position(0) == small.first_position(0));
  CHECK_FALSE(large.can_truncate(46));
  append(large, 20, 2);
  append(small, 10, 2);
  CHECK(large.first_position(0) == 70 - (3 + 10 + 5));
}

TEST_CASE("record: pages are as many as the positions need, and all come back") {
  using Cache = PagedCache<4>;
  PagePool pool(Cache::page_bytes(kShape));
  {
    Cache original(kShape, 60, {.pool = &pool});
    append(original, 21, 1);
    original.shift(6, -3);
    original.shift(9, -1);
    const Cache fork = original.fork();
    const CacheRecord record = record_of(original);
    CHECK(record.rotation == Vector<RotationPiece>{{0, 0}, {3, -3}, {8, -4}});
    original.restore(record);
    CHECK(difference(original, fork) == "");
    CHECK(original.bytes() == 5 * pool.page_bytes());  // 17 positions
    CHECK(pool.pages_in_use() == 5 + fork.bytes() / pool.page_bytes());
    append(original, 3, 2);
    CHECK(original.bytes() == 6 * pool.page_bytes());  // behind what was shifted a page begins
    original.truncate(2);
    CHECK(original.bytes() == pool.page_bytes());
    original.restore(record_of(fork));
    CHECK(difference(original, fork) == "");
  }
  CHECK(pool.pages_in_use() == 0);

  PagePool tight(Cache::page_bytes(kShape), {.max_pages = 6});
  Cache cache(kShape, 60, {.pool = &tight});
  append(cache, 14, 1);
  const CacheRecord record = record_of(cache);
  CHECK(code_of([&] { cache.restore(record); }) == ErrorCode::kCacheFull);
  CHECK(same(record_of(cache), record));
  cache.clear();
  cache.restore(record);
  CHECK(same(record_of(cache), record));
}

TEST_CASE("record: a step in progress is not in it, and ends when one is restored") {
  for_each_layout<F32, F32>(true, []<class Cache>(std::type_identity<Cache>) {
    Cache cache(kBounded, 60, options_of<Cache>(0));
    append(cache, 5, 1);
    const CacheRecord five = record_of(cache);
    const std::vector<float> row(64, 1.0f);
    cache.reserve(2);
    for (Index layer = 0; layer < kBounded.n_layers(); ++layer) {
      const LayerKvShape& dims = kBounded[layer];
      const Index k_cols = dims.n_kv_heads * dims.k_dim, v_cols = dims.n_kv_heads * dims.v_dim;
      cache.append(layer, RowsView<const float>{row.data(), 1, k_cols, k_cols},
                   RowsView<const float>{row.data(), 1, v_cols, v_cols});
    }
    CHECK(same(record_of(cache), five));
    cache.restore(five);
    cache.commit();
    CHECK(same(record_of(cache), five));
  });
}

template <class Cache>
void check_failures(const KvShape& shape, bool is_shifted) {
  ContiguousCache<> original(shape, 300);
  append(original, 100, 1);
  if (is_shifted) original.shift(50, -7);
  const CacheRecord record = record_of(original);
  Index n_failed = 0;
  for (bool threw = true; threw;) {
    Cache cache(shape, 300, options_of<Cache>(1));
    append(cache, 6, 2);
    const CacheRecord before = record_of(cache);
    threw = is_refused(n_failed, [&] { cache.restore(record); });
    if (threw) {
      CHECK(same(record_of(cache), before));
      ++n_failed;
      cache.restore(record);
    }
    CHECK(difference(cache, original) == "");
  }
  CAPTURE(n_failed);
  const bool allocates = !std::is_same_v<Cache, ContiguousCache<>> && !std::is_same_v<Cache, SinkCache<>> &&
                         !std::is_same_v<Cache, CrossAttentionCache<>>;
  CHECK((n_failed > 0) == (allocates || is_shifted));
}

TEST_CASE("record: an allocation that fails, in any place, changes nothing") {
  for (const bool is_shifted : {false, true}) {
    check_failures<ContiguousCache<>>(kShape, is_shifted);
    check_failures<GrowingCache<>>(kShape, is_shifted);
    check_failures<PagedCache<4>>(kShape, is_shifted);
    if (!is_shifted) check_failures<CrossAttentionCache<>>(kShape, false);
  }
  check_failures<SlidingWindowCache<>>(KvShape{{kShape.layers[0], kShape.layers[1]}}, false);
  check_failures<SinkCache<>>(kBounded, false);
}

/// A record that says something else is refused, by every layout, and changes nothing.
template <class Lie>
void check_refused(ErrorCode code, const Lie& lie) {
  for_each_layout<F32, F32>(true, [&]<class Cache>(std::type_identity<Cache>) {
    ContiguousCache<> original(kBounded, 30);
    append(original, 20, 1);
    CacheRecord record = record_of(original);
    Cache cache(kBounded, 40, options_of<Cache>(1));
    append(cache, 6, 2);
    const CacheRecord before = record_of(cache);
    lie(record);
    CHECK(code_of([&] { cache.restore(record); }) == code);
    CHECK(same(record_of(cache), before));
  });
}

TEST_CASE("record: what contradicts itself or the cache is refused") {
  constexpr Index kMost = std::numeric_limits<Index>::max(), kLeast = std::numeric_limits<Index>::min();
  check_refused(ErrorCode::kMismatch, [](CacheRecord& r) { r.k_format = "f16"; });
  check_refused(ErrorCode::kMismatch, [](CacheRecord& r) { r.v_format = "a name\nof an \x80 enemy"; });
  check_refused(ErrorCode::kBadArgument, [](CacheRecord& r) { r.epoch = -1; });
  check_refused(ErrorCode::kMismatch, [](CacheRecord& r) { r.stores.pop_back(); });
  check_refused(ErrorCode::kMismatch, [](CacheRecord& r) { r.stores.push_back(r.stores[0]); });
  check_refused(ErrorCode::kMismatch, [](CacheRecord& r) { r.stores.clear(); });
  check_refused(ErrorCode::kMismatch, [](CacheRecord& r) { std::swap(r.stores[0], r.stores[1]); });
  check_refused(ErrorCode::kMismatch, [](CacheRecord& r) { r.stores[1].layer = kLeast; });
  for (const Index kv_len : {kLeast, Index{-1}})
    check_refused(ErrorCode::kBadArgument, [&](CacheRecord& r) { r.kv_len = kv_len; });
  for (const Index kv_len : {Index{0}, Index{19}, Index{21}, Index{40}})
    check_refused(ErrorCode::kMismatch, [&](CacheRecord& r) { r.kv_len = kv_len; });
  for (const Index kv_len : {Index{41}, kMost})
    check_refused(ErrorCode::kCacheFull, [&](CacheRecord& r) { r.kv_len = kv_len; });
  for (const auto& [n_sink, first] : std::vector<std::pair<Index, Index>>{
           {1, 0}, {-1, 0}, {-1, 5}, {5, 5}, {6, 5}, {kMost, kMost}, {0, 21}, {0, -1}, {kLeast, kLeast}})
    check_refused(ErrorCode::kBadArgument, [n = n_sink, f = first](CacheRecord& r) {
      r.stores[1].n_sink = n;
      r.stores[1].first = f;
    });
  // Positions that are missing; for bytes that fit, so that nothing else is wrong.
  const auto without = [](Index store, Index n_sink, Index first) {
    return [=](CacheRecord& r) {
      StoreRecord& s = r.stores[static_cast<std::size_t>(store)];
      s.n_sink = n_sink;
      s.first = first;
      const auto n = static_cast<std::size_t>(s.n_rows(20));
      s.keys = s.keys.first(s.keys.size() / 20 * n);
      s.values = s.values.first(s.values.size() / 20 * n);
    };
  };
  check_refused(ErrorCode::kMismatch, without(0, 0, 17));  // of the window
  check_refused(ErrorCode::kMismatch, without(1, 0, 1));   // of the sinks
  check_refused(ErrorCode::kMismatch, without(1, 2, 3));
  check_refused(ErrorCode::kMismatch, [](CacheRecord& r) { r.stores[0].keys = r.stores[0].keys.subspan(1); });
  check_refused(ErrorCode::kMismatch, [](CacheRecord& r) { r.stores[1].values = {}; });
  using Rotation = Vector<RotationPiece>;
  for (const Rotation& rotation :
       {Rotation{{1, -1}}, Rotation{{0, 1}}, Rotation{{0, kLeast}}, Rotation{{0, 0}, {0, -1}},
        Rotation{{0, 0}, {5, -1}, {4, -2}}, Rotation{{0, 0}, {20, -1}}, Rotation{{0, 0}, {kMost, -1}},
        Rotation{{kLeast, 0}}})
    check_refused(ErrorCode::kBadArgument, [&](CacheRecord& r) { r.rotation = rotation; });
  check_refused(ErrorCode::kBadArgument, [](CacheRecord& r) {
    r.rotation = {{0, -1}};
    r.epoch = 1;
  });
}

TEST_CASE("record: what must be there and no more is enough for a ring") {
  ContiguousCache<> original(kBounded, 30);
  append(original, 20, 1);
  CacheRecord record = record_of(original);
  SinkCache<> ring(kBounded, 30, {.slack = 0, .max_append = 1});
  ring.restore(record);
  record = record_of(ring);
  CHECK(record.stores[0].n_sink == 0);
  CHECK(record.stores[0].first == 15);  // window 5, and the one that the next step overwrites
  CHECK(record.stores[1].n_sink == 3);
  CHECK(record.stores[1].first == 19);
  SinkCache<> other(kBounded, 30, {.slack = 9, .max_append = 9});
  other.restore(record);
  CHECK(difference(other, original) == "");
  CHECK(other.can_truncate(19));
  CHECK_FALSE(other.can_truncate(18));
}

}  // namespace

// SPDX-License-Identifier: MIT
// What caches cost without any attention: each operation, in each layout, beside what the plainest caches pay for it
// (plain_caches.hpp: `loop`, `eigen`); to append in each format; to take over a prefix that a store holds; and the memory
// of many continuations of one long prompt.
#include "plain_caches.hpp"
#include "rates.hpp"

#include <kvdecode/kvdecode.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace kvdecode;
using bench::EigenCache;
using bench::LoopCache;
using bench::rate;

constexpr Index kHeadDim = 64;
constexpr Index kPage = 16;  // positions

/// 4 layers, 4 KV heads of 64 numbers: 8 KiB a position as F32.
KvShape small_shape() {
  KvShape shape;
  for (Index layer = 0; layer < 4; ++layer) shape.layers.push_back({4, kHeadDim, kHeadDim, {}, layer});
  return shape;
}

/// The first n rows of a layer, keys or values, other ones for each `salt`; made once.
RowsView<const float> random_rows(Index n, std::uint64_t salt) {
  constexpr Index kCols = 4 * kHeadDim, kMost = 1088;
  static std::map<std::uint64_t, std::vector<float>> known;
  std::vector<float>& rows = known[salt];
  if (rows.empty()) {
    detail::SplitMix64 random(salt);
    rows.resize(static_cast<std::size_t>(kMost * kCols));
    for (float& number : rows) number = static_cast<float>(random.normal());
  }
  return {rows.data(), std::min(n, kMost), kCols, kCols};
}
RowsView<const float> part(RowsView<const float> all, Index begin, Index end) {
  return {all.row(begin), end - begin, all.cols, all.stride};
}
/// A step of all layers.
template <class Cache>
void append(Cache& cache, RowsView<const float> k, RowsView<const float> v) {
  cache.reserve(k.rows);
  for (Index layer = 0; layer < cache.shape().n_layers(); ++layer) cache.append(layer, k, v);
  cache.commit();
}
/// Calls f(layer, head) for the keys and the values of every head, in the order of the next two.
template <class F>
void for_each_head(const KvShape& shape, const F& f) {
  for (Index layer = 0; layer < shape.n_layers(); ++layer)
    for (Index head = 0; head < shape[layer].n_kv_heads; ++head) f(layer, head);
}
/// All rows that a cache holds.
template <class Cache>
std::vector<std::byte> content(const Cache& cache) {
  std::vector<std::byte> bytes;
  const auto read = [&bytes](const auto& runs, Index row_bytes) {
    for (const auto& run : runs)
      for (Index i = 0; i < run.length; ++i)
        bytes.insert(bytes.end(), run.data + i * run.row_stride, run.data + i * run.row_stride + row_bytes);
  };
  for_each_head(cache.shape(), [&](Index layer, Index head) {
    read(cache.keys(layer, head), Cache::KeyFormat::row_bytes(kHeadDim));
    read(cache.values(layer, head), Cache::ValueFormat::row_bytes(kHeadDim));
  });
  return bytes;
}
/// The same of rows that every layer was given, encoded one by one.
template <class K, class V>
std::vector<std::byte> encoded(const KvShape& shape, RowsView<const float> k, RowsView<const float> v) {
  std::vector<std::byte> bytes;
  const auto encode = [&bytes]<class F>(std::type_identity<F>, RowsView<const float> rows, Index head) {
    for (Index i = 0; i < rows.rows; ++i) {
      bytes.resize(bytes.size() + static_cast<std::size_t>(F::row_bytes(kHeadDim)));
      F::encode(rows.row(i) + head * kHeadDim, kHeadDim,
                bytes.data() + bytes.size() - F::row_bytes(kHeadDim));
    }
  };
  for_each_head(shape, [&](Index, Index head) {
    encode(std::type_identity<K>{}, k, head);
    encode(std::type_identity<V>{}, v, head);
  });
  return bytes;
}

// ---- append -----------------------------------------------------------------------------------------------

/// Appends n_new rows to all layers of a cache that holds 256, and takes them back.
template <class Cache>
void append_rows(benchmark::State& state) {
  using K = typename Cache::KeyFormat;
  using V = typename Cache::ValueFormat;
  constexpr Index kHeld = 256;
  const Index n_new = state.range(0);
  const KvShape shape = small_shape();
  const RowsView<const float> all_k = random_rows(kHeld + n_new, 1), all_v = random_rows(kHeld + n_new, 2);
  Cache cache(shape, kHeld + n_new);
  append(cache, part(all_k, 0, kHeld), part(all_v, 0, kHeld));
  const auto append_new = [&] {
    append(cache, part(all_k, kHeld, kHeld + n_new), part(all_v, kHeld, kHeld + n_new));
  };
  append_new();
  if (content(cache) != encoded<K, V>(shape, all_k, all_v))
    return state.SkipWithError("a cache does not hold the rows that it was given");
  for (auto _ : state) {
    cache.truncate(kHeld);
    append_new();
    benchmark::ClobberMemory();
  }
  state.counters["positions/s"] = rate(static_cast<double>(n_new));
  state.counters["bytes/s"] = rate(static_cast<double>(payload_bytes<K, V>(shape, n_new)));
}
template <class K, class V>
std::string name_of() {
  std::string name(K::kName);
  if (!std::is_same_v<K, V>) name += "+" + std::string(V::kName);
  return name;
}
template <class Cache>
void register_append(const std::string& layout = "contiguous") {
  const std::string format = name_of<typename Cache::KeyFormat, typename Cache::ValueFormat>();
  benchmark::RegisterBenchmark(("cache/append_" + layout + "/" + format).c_str(), append_rows<Cache>)
      ->ArgName("n_new")
      ->Arg(1)
      ->Arg(128)
      ->Unit(benchmark::kMicrosecond);
}

// ---- fork -------------------------------------------------------------------------------------------------

template <class Cache>
Cache prompt_of(Index n_tokens, const typename Cache::Options& options = {}) {
  const KvShape shape = small_shape();
  Cache cache(shape, n_tokens + 64, options);
  const RowsView<const float> k = random_rows(n_tokens, 1), v = random_rows(n_tokens, 2);
  append(cache, k, v);
  return cache;
}

/// A fork that appends one position: contiguous rows are copied then, of pages the last one.
template <class Cache>
void fork(benchmark::State& state) {
  const Index kv_len = state.range(0);
  const Cache cache = prompt_of<Cache>(kv_len);
  const KvShape shape = small_shape();
  const RowsView<const float> k = random_rows(1, 3), v = random_rows(1, 4);
  {
    Cache copy = cache.fork();
    append(copy, k, v);
    copy.truncate(kv_len);
    if (content(copy) != content(cache)) return state.SkipWithError("a fork has other rows");
  }
  for (auto _ : state) {
    Cache copy = cache.fork();
    append(copy, k, v);
    benchmark::DoNotOptimize(copy.kv_len());
  }
  state.SetComplexityN(kv_len);
}

/// n_forks continuations of a prompt of 1,024 positions, 32 each: what they hold together, the prompt included.
template <class Cache>
void forks(benchmark::State& state) {
  constexpr Index kPrompt = 1024, kNew = 32;
  const Index n_forks = state.range(0);
  const KvShape shape = small_shape();
  const RowsView<const float> k = random_rows(kNew, 3), v = random_rows(kNew, 4);
  AllocationHook hook;
  const auto run = [&](const Cache& prompt) {
    std::vector<Cache> sequences;
    for (Index i = 0; i < n_forks; ++i) {
      sequences.push_back(prompt.fork());
      append(sequences.back(), k, v);
    }
    return sequences;
  };
  {
    // Nothing but lists that grow is freed before all is there: what was allocated is what is held at the peak.
    const ScopedAllocationHook scope(hook);
    const Cache prompt = prompt_of<Cache>(kPrompt);
    const std::vector<Cache> sequences = run(prompt);
    for (const Cache& sequence : sequences)
      if (content(sequence) != content(sequences.front())) return state.SkipWithError("forks differ");
  }
  const Cache prompt = prompt_of<Cache>(kPrompt);
  for (auto _ : state) {
    const std::vector<Cache> sequences = run(prompt);
    benchmark::DoNotOptimize(sequences.data());
  }
  state.counters["peak_bytes"] = static_cast<double>(hook.n_bytes);
  state.counters["payload_bytes"] = static_cast<double>(payload_bytes<F32>(shape, kPrompt + n_forks * kNew));
}

// ---- the other operations ---------------------------------------------------------------------------------

constexpr Index kHeld = 1024;  // positions

/// A stream that has filled its room: the oldest 16 positions but the first 4 are dropped, and 16 come.
template <class Cache>
void shift(benchmark::State& state) {
  constexpr Index kFirst = 20, kNew = 16;
  const KvShape shape = small_shape();
  const RowsView<const float> k = random_rows(kHeld, 1), v = random_rows(kHeld, 2);
  const RowsView<const float> new_k = random_rows(kNew, 3), new_v = random_rows(kNew, 4);
  Cache cache = prompt_of<Cache>(kHeld);
  const auto step = [&] {
    cache.shift(kFirst, -kNew);
    append(cache, new_k, new_v);
  };
  step();
  // Its rows, encoded as if they had been appended without the ones that were dropped.
  Cache expected(shape, kHeld + kNew);
  append(expected, part(k, 0, kFirst - kNew), part(v, 0, kFirst - kNew));
  append(expected, part(k, kFirst, kHeld), part(v, kFirst, kHeld));
  append(expected, new_k, new_v);
  if (content(cache) != content(expected)) return state.SkipWithError("a shift left other rows");
  for (auto _ : state) {
    step();
    benchmark::ClobberMemory();
  }
}

/// Four beams, of which two go on twice; each is given a position.
template <class Cache>
void reorder_beams(benchmark::State& state) {
  constexpr std::array<Index, 4> kParents{0, 0, 2, 2};
  const KvShape shape = small_shape();
  std::vector<Cache> beams;
  for (std::uint64_t i = 0; i < kParents.size(); ++i) {
    beams.push_back(prompt_of<Cache>(kHeld));
    const RowsView<const float> k = random_rows(1, 10 + i), v = random_rows(1, 20 + i);
    append(beams.back(), k, v);
  }
  const auto choose = [&] {
    if constexpr (KvCache<Cache>) {
      reorder(beams, kParents);
    } else {
      std::vector<Cache> chosen;
      for (const Index parent : kParents) chosen.push_back(beams[static_cast<std::size_t>(parent)].fork());
      beams = std::move(chosen);
    }
  };
  std::vector<std::vector<std::byte>> expected;
  for (const Index parent : kParents) expected.push_back(content(beams[static_cast<std::size_t>(parent)]));
  choose();
  for (std::size_t i = 0; i < beams.size(); ++i)
    if (content(beams[i]) != expected[i]) return state.SkipWithError("a beam has the rows of another parent");
  const RowsView<const float> k = random_rows(1, 3), v = random_rows(1, 4);
  for (auto _ : state) {
    choose();
    for (Cache& beam : beams) {
      beam.truncate(kHeld);
      append(beam, k, v);
    }
  }
}

/// All is forgotten, and as much is appended at once.
template <class Cache>
void clear(benchmark::State& state) {
  const KvShape shape = small_shape();
  const RowsView<const float> k = random_rows(kHeld, 1), v = random_rows(kHeld, 2);
  const RowsView<const float> other_k = random_rows(kHeld, 3), other_v = random_rows(kHeld, 4);
  Cache cache(shape, kHeld);
  append(cache, other_k, other_v);
  const auto step = [&] {
    cache.clear();
    append(cache, k, v);
  };
  step();
  if (content(cache) != encoded<F32, F32>(shape, k, v))
    return state.SkipWithError("a cache that was cleared has other rows");
  for (auto _ : state) {
    step();
    benchmark::ClobberMemory();
  }
  state.counters["bytes/s"] = rate(static_cast<double>(payload_bytes<F32>(shape, kHeld)));
}

template <class Cache>
auto recorded(const Cache& cache) {
  if constexpr (KvCache<Cache>) {
    return record_of(cache);
  } else {
    return cache.record();
  }
}
template <class Cache>
void record(benchmark::State& state) {
  const Cache cache = prompt_of<Cache>(kHeld);
  Cache other = prompt_of<Cache>(kHeld);
  other.clear();
  other.restore(recorded(cache));
  if (content(other) != content(cache)) return state.SkipWithError("a record lost rows");
  for (auto _ : state) benchmark::DoNotOptimize(recorded(cache));
  state.counters["bytes/s"] = rate(static_cast<double>(payload_bytes<F32>(small_shape(), kHeld)));
}
template <class Cache>
void restore(benchmark::State& state) {
  const Cache cache = prompt_of<Cache>(kHeld);
  const auto record = recorded(cache);
  Cache other = prompt_of<Cache>(kHeld);
  other.clear();
  other.restore(record);
  if (content(other) != content(cache))
    return state.SkipWithError("a cache does not hold what its record does");
  for (auto _ : state) {
    other.restore(record);
    benchmark::ClobberMemory();
  }
  state.counters["bytes/s"] = rate(static_cast<double>(payload_bytes<F32>(small_shape(), kHeld)));
}

void register_operation(const std::string& operation, const std::string& layout,
                        void (*run)(benchmark::State&)) {
  benchmark::RegisterBenchmark(("cache/" + operation + "_" + layout + "/f32").c_str(), run)
      ->Unit(benchmark::kMicrosecond);
}
template <class Cache>
void register_operations(const std::string& layout) {
  register_operation("reorder", layout, reorder_beams<Cache>);
  register_operation("clear", layout, clear<Cache>);
  register_operation("record", layout, record<Cache>);
  register_operation("restore", layout, restore<Cache>);
}

// ---- prefixes ---------------------------------------------------------------------------------------------

struct StoredPrefix {
  using Cache = PagedCache<kPage>;

  explicit StoredPrefix(Index n_tokens) : tokens(static_cast<std::size_t>(n_tokens)) {
    std::iota(tokens.begin(), tokens.end(), 0);
    store.insert(tokens, cache);
    tokens.push_back(0);  // that is to be run
  }

  PagePool pool{Cache::page_bytes(small_shape())};
  PrefixStore<Cache> store{pool, small_shape()};
  std::vector<TokenId> tokens;
  Cache cache = prompt_of<Cache>(static_cast<Index>(tokens.size()), {.pool = &pool});
};

void prefix_adopt(benchmark::State& state) {
  const Index n_tokens = state.range(0);
  StoredPrefix prefix(n_tokens);
  StoredPrefix::Cache cache(small_shape(), n_tokens + 64, {.pool = &prefix.pool});
  if (prefix.store.adopt(prefix.tokens, cache) != n_tokens || content(cache) != content(prefix.cache))
    return state.SkipWithError("a prefix that is taken over has other rows");
  for (auto _ : state) {
    cache.clear();
    benchmark::DoNotOptimize(prefix.store.adopt(prefix.tokens, cache));
  }
  state.counters["positions/s"] = rate(static_cast<double>(n_tokens));
  state.SetComplexityN(n_tokens);
}
void prefix_insert(benchmark::State& state) {
  const Index n_tokens = state.range(0);
  StoredPrefix prefix(n_tokens);
  if (prefix.store.match(prefix.tokens) != n_tokens) return state.SkipWithError("a prefix was not kept");
  for (auto _ : state) {
    prefix.store.clear();
    benchmark::DoNotOptimize(prefix.store.insert(prefix.tokens, prefix.cache));
  }
  state.counters["positions/s"] = rate(static_cast<double>(n_tokens));
  state.SetComplexityN(n_tokens);
}

const bool kRegistered = [] {
  register_append<ContiguousCache<F32>>();
  register_append<ContiguousCache<F16>>();
  register_append<ContiguousCache<BF16>>();
  register_append<ContiguousCache<Int8>>();
  register_append<ContiguousCache<Int8, HadInt4>>();
  register_append<ContiguousCache<Int8, Turbo3>>();
  register_append<ContiguousCache<Int4>>();
  register_append<ContiguousCache<Int3>>();
  register_append<ContiguousCache<Asym4>>();
  register_append<ContiguousCache<HadInt4>>();
  register_append<ContiguousCache<HadInt3>>();
  register_append<ContiguousCache<Turbo4>>();
  register_append<ContiguousCache<Turbo3>>();
  register_append<ContiguousCache<Turbo2>>();
  register_append<GrowingCache<>>("growing");
  register_append<PagedCache<kPage>>("paged");
  register_append<SlidingWindowCache<>>("sliding");
  register_append<LoopCache>("loop");
  register_append<EigenCache>("eigen");
  register_operation("shift", "contiguous", shift<ContiguousCache<>>);
  register_operation("shift", "growing", shift<GrowingCache<>>);
  register_operation("shift", "paged", shift<PagedCache<kPage>>);
  register_operation("shift", "loop", shift<LoopCache>);
  register_operation("shift", "eigen", shift<EigenCache>);
  register_operations<ContiguousCache<>>("contiguous");
  register_operations<GrowingCache<>>("growing");
  register_operations<PagedCache<kPage>>("paged");
  register_operations<SlidingWindowCache<>>("sliding");
  register_operations<LoopCache>("loop");
  register_operations<EigenCache>("eigen");
  const auto growing_with_n = [](const char* name, const char* argument, void (*run)(benchmark::State&)) {
    benchmark::RegisterBenchmark(name, run)
        ->ArgName(argument)
        ->RangeMultiplier(2)
        ->Range(64, 1024)
        ->Unit(benchmark::kMicrosecond)
        ->Complexity(benchmark::oN);
  };
  growing_with_n("cache/fork_contiguous/f32", "kv_len", fork<ContiguousCache<>>);
  growing_with_n("cache/fork_paged/f32", "kv_len", fork<PagedCache<kPage>>);
  growing_with_n("cache/fork_loop/f32", "kv_len", fork<LoopCache>);
  growing_with_n("cache/fork_eigen/f32", "kv_len", fork<EigenCache>);
  growing_with_n("cache/prefix_adopt/f32", "n_tokens", prefix_adopt);
  growing_with_n("cache/prefix_insert/f32", "n_tokens", prefix_insert);
  const auto fork_1024 = [](const char* name, void (*run)(benchmark::State&)) {
    benchmark::RegisterBenchmark(name, run)->ArgName("kv_len")->Arg(1024)->Unit(benchmark::kMicrosecond);
  };
  fork_1024("cache/fork_growing/f32", fork<GrowingCache<>>);
  fork_1024("cache/fork_sliding/f32", fork<SlidingWindowCache<>>);
  const auto of_forks = [](const char* name, void (*run)(benchmark::State&)) {
    benchmark::RegisterBenchmark(name, run)->ArgName("n_forks")->Arg(1)->Arg(4)->Arg(16)->Unit(
        benchmark::kMillisecond);
  };
  of_forks("cache/forks_contiguous/f32", forks<ContiguousCache<>>);
  of_forks("cache/forks_paged/f32", forks<PagedCache<kPage>>);
  return true;
}();

}  // namespace

// SPDX-License-Identifier: MIT
// What caches cost without any attention: to append in each layout and format, to fork, and to take over a prefix that
// a store holds; and the memory of many continuations of one long prompt.
#include <kvdecode/kvdecode.hpp>

#include <benchmark/benchmark.h>

#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace kvdecode;

constexpr Index kHeadDim = 64;
constexpr Index kPage = 16;  // positions

/// 4 layers, 4 KV heads of 64 numbers: 8 KiB a position as F32.
KvShape small_shape() {
  KvShape shape;
  for (Index layer = 0; layer < 4; ++layer) shape.layers.push_back({4, kHeadDim, kHeadDim, {}, layer});
  return shape;
}

/// n rows of a layer, keys or values, other ones for each `salt`.
std::vector<float> random_rows(const LayerKvShape& layer, Index n, std::uint64_t salt) {
  detail::SplitMix64 random(salt);
  std::vector<float> rows(static_cast<std::size_t>(n * layer.n_kv_heads * kHeadDim));
  for (float& number : rows) number = static_cast<float>(random.normal());
  return rows;
}
RowsView<const float> view_of(const std::vector<float>& rows) {
  constexpr Index kCols = 4 * kHeadDim;
  return {rows.data(), static_cast<Index>(rows.size()) / kCols, kCols, kCols};
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

benchmark::Counter rate(double amount) {
  return benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
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
  const std::vector<float> k = random_rows(shape[0], kHeld + n_new, 1),
                           v = random_rows(shape[0], kHeld + n_new, 2);
  const RowsView<const float> all_k = view_of(k), all_v = view_of(v);
  const auto part = [](RowsView<const float> all, Index begin, Index n) {
    return RowsView<const float>{all.row(begin), n, all.cols, all.stride};
  };
  Cache cache(shape, kHeld + n_new);
  append(cache, part(all_k, 0, kHeld), part(all_v, 0, kHeld));
  const auto append_new = [&] { append(cache, part(all_k, kHeld, n_new), part(all_v, kHeld, n_new)); };
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
  const std::vector<float> k = random_rows(shape[0], n_tokens, 1), v = random_rows(shape[0], n_tokens, 2);
  append(cache, view_of(k), view_of(v));
  return cache;
}

/// A fork that appends one position: contiguous rows are copied then, of pages the last one.
template <class Cache>
void fork(benchmark::State& state) {
  const Index kv_len = state.range(0);
  const Cache cache = prompt_of<Cache>(kv_len);
  const KvShape shape = small_shape();
  const std::vector<float> k = random_rows(shape[0], 1, 3), v = random_rows(shape[0], 1, 4);
  {
    Cache copy = cache.fork();
    append(copy, view_of(k), view_of(v));
    copy.truncate(kv_len);
    if (content(copy) != content(cache)) return state.SkipWithError("a fork has other rows");
  }
  for (auto _ : state) {
    Cache copy = cache.fork();
    append(copy, view_of(k), view_of(v));
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
  const std::vector<float> k = random_rows(shape[0], kNew, 3), v = random_rows(shape[0], kNew, 4);
  AllocationHook hook;
  const auto run = [&](const Cache& prompt) {
    std::vector<Cache> sequences;
    for (Index i = 0; i < n_forks; ++i) {
      sequences.push_back(prompt.fork());
      append(sequences.back(), view_of(k), view_of(v));
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
  growing_with_n("cache/prefix_adopt/f32", "n_tokens", prefix_adopt);
  growing_with_n("cache/prefix_insert/f32", "n_tokens", prefix_insert);
  const auto of_forks = [](const char* name, void (*run)(benchmark::State&)) {
    benchmark::RegisterBenchmark(name, run)->ArgName("n_forks")->Arg(1)->Arg(4)->Arg(16)->Unit(
        benchmark::kMillisecond);
  };
  of_forks("cache/forks_contiguous/f32", forks<ContiguousCache<>>);
  of_forks("cache/forks_paged/f32", forks<PagedCache<kPage>>);
  return true;
}();

}  // namespace

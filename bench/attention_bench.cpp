// SPDX-License-Identifier: MIT
// Attention alone, for a sequence that grows to n_tokens one token at a time: recomputing every row at every
// step against computing the new one. One KV head of 64 numbers, no projections: what is left is the O(T^3)
// and the O(T^2). And how fast attention reads keys and values in each format of caches.
#include <kvdecode/kvdecode.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using kvdecode::F32;
using kvdecode::Index;
using kvdecode::KvShape;
using Cache = kvdecode::ContiguousCache<F32>;

constexpr Index kHeadDim = 64;

/// Queries, keys and values of n_tokens positions, [n_tokens, kHeadDim] each.
struct Sequence {
  explicit Sequence(Index n_tokens) : q(size(n_tokens)), k(size(n_tokens)), v(size(n_tokens)) {
    kvdecode::detail::SplitMix64 random(1);
    for (std::vector<float>* rows : {&q, &k, &v})
      for (float& value : *rows) value = static_cast<float>(random.normal());
  }
  static std::size_t size(Index n_tokens) { return static_cast<std::size_t>(n_tokens * kHeadDim); }

  std::vector<float> q, k, v;
};

/// The output of the query at `position` over all keys up to it.
void attend(const Sequence& s, Index position, std::vector<float>& scratch, float* out) {
  float maximum = 0.0f, sum = 0.0f;
  kvdecode::kernels::AttentionState<float> state{1, kHeadDim, &maximum, &sum, out, true};
  const auto row_bytes = F32::row_bytes(kHeadDim);
  for (Index first = 0; first <= position; first += kvdecode::kernels::kTilePositions) {
    const Index n = std::min(kvdecode::kernels::kTilePositions, position + 1 - first);
    const kvdecode::kernels::AttentionPiece piece{
        first,
        n,
        reinterpret_cast<const std::byte*>(s.k.data() + first * kHeadDim),
        row_bytes,
        reinterpret_cast<const std::byte*>(s.v.data() + first * kHeadDim),
        row_bytes,
        0};
    kvdecode::kernels::attend_tile<F32, F32>(std::span(&piece, 1), s.q.data() + position * kHeadDim, 0,
                                             kHeadDim, 0.125f, state, scratch.data());
  }
  kvdecode::kernels::finish_attention(state, out);
}

template <bool recompute>
void decode(const Sequence& s, Index n_tokens, std::vector<float>& scratch, std::vector<float>& out) {
  for (Index t = 0; t < n_tokens; ++t)
    for (Index row = recompute ? 0 : t; row <= t; ++row) attend(s, row, scratch, out.data() + row * kHeadDim);
}

template <bool recompute>
void attention(benchmark::State& state) {
  const Index n_tokens = state.range(0);
  const Sequence s(n_tokens);
  std::vector<float> scratch(static_cast<std::size_t>(kvdecode::kernels::attention_scratch(1, kHeadDim)));
  std::vector<float> naive(s.q.size()), cached(s.q.size());
  decode<true>(s, n_tokens, scratch, naive);
  decode<false>(s, n_tokens, scratch, cached);
  if (std::memcmp(naive.data(), cached.data(), naive.size() * sizeof(float)) != 0)
    return state.SkipWithError("recomputed and cached attention differ");
  for (auto _ : state) {
    decode<recompute>(s, n_tokens, scratch, recompute ? naive : cached);
    benchmark::ClobberMemory();
  }
  // Sum over steps t of the rows computed, each over its own positions; two multiply-adds a number and
  // position.
  const double T = static_cast<double>(n_tokens);
  const double pairs = recompute ? T * (T + 1) * (T + 2) / 6 : T * (T + 1) / 2;
  state.counters["multiply_adds"] = pairs * 2 * kHeadDim;
  state.counters["flops"] =
      benchmark::Counter(pairs * 4 * kHeadDim, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["tokens/s"] = benchmark::Counter(T, benchmark::Counter::kIsIterationInvariantRate);
  state.SetComplexityN(n_tokens);
}

void attention_recompute(benchmark::State& state) { attention<true>(state); }
void attention_cached(benchmark::State& state) { attention<false>(state); }

/// One query of each head of a group over all keys and values in their formats, beside the same over the numbers that
/// those decode to.
template <class K, class V>
void attention_read(benchmark::State& state) {
  const Index n_tokens = state.range(0), group_size = state.range(1);
  const Sequence s(n_tokens);
  const auto encoded = [&]<class F>(std::type_identity<F>, const std::vector<float>& numbers) {
    std::vector<std::byte> rows(static_cast<std::size_t>(n_tokens * F::row_bytes(kHeadDim)));
    for (Index i = 0; i < n_tokens; ++i)
      F::encode(numbers.data() + i * kHeadDim, kHeadDim, rows.data() + i * F::row_bytes(kHeadDim));
    return rows;
  };
  const auto decoded = [&]<class F>(std::type_identity<F>, const std::vector<std::byte>& rows) {
    std::vector<float> numbers;
    for (Index i = 0; i < n_tokens; ++i)
      for (Index c = 0; c < kHeadDim; ++c)
        numbers.push_back(
            kvdecode::decode_number<F, float>(rows.data() + i * F::row_bytes(kHeadDim), c, kHeadDim));
    return encoded(std::type_identity<F32>{}, numbers);
  };
  std::vector<float> scratch(
      static_cast<std::size_t>(kvdecode::kernels::attention_scratch(group_size, kHeadDim)));
  std::vector<float> maximum(static_cast<std::size_t>(group_size)), sum(maximum.size());
  const auto attend_all = [&]<class KF, class VF>(std::type_identity<KF>, std::type_identity<VF>,
                                                  const std::vector<std::byte>& keys,
                                                  const std::vector<std::byte>& values,
                                                  std::vector<float>& out) {
    kvdecode::kernels::AttentionState<float> all{group_size, kHeadDim,   maximum.data(),
                                                 sum.data(), out.data(), true};
    for (Index first = 0; first < n_tokens; first += kvdecode::kernels::kTilePositions) {
      const kvdecode::kernels::AttentionPiece piece{
          first,
          std::min(kvdecode::kernels::kTilePositions, n_tokens - first),
          keys.data() + first * KF::row_bytes(kHeadDim),
          KF::row_bytes(kHeadDim),
          values.data() + first * VF::row_bytes(kHeadDim),
          VF::row_bytes(kHeadDim),
          0};
      kvdecode::kernels::attend_tile<KF, VF>(std::span(&piece, 1), s.q.data(), 0, kHeadDim, 0.125f, all,
                                             scratch.data());
    }
    kvdecode::kernels::finish_attention(all, out.data());
  };
  constexpr std::type_identity<K> k_format{};
  constexpr std::type_identity<V> v_format{};
  constexpr std::type_identity<F32> plain{};
  const std::vector<std::byte> keys = encoded(k_format, s.k), values = encoded(v_format, s.v);
  std::vector<float> out(static_cast<std::size_t>(group_size * kHeadDim)), expected(out.size());
  attend_all(k_format, v_format, keys, values, out);
  attend_all(plain, plain, decoded(k_format, keys), decoded(v_format, values), expected);
  if (std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) != 0)
    return state.SkipWithError("attention over a format is not that over its numbers");
  for (auto _ : state) {
    attend_all(k_format, v_format, keys, values, out);
    benchmark::ClobberMemory();
  }
  const auto rate = [&](double amount) {
    return benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["bytes/s"] = rate(static_cast<double>(keys.size() + values.size()));
  state.counters["positions/s"] = rate(static_cast<double>(n_tokens));
}

/// 65,536 positions, 32 MiB as F32, read by one query head and by a group of four.
template <class K, class V = K>
void register_read() {
  std::string name(K::kName);
  if (!std::is_same_v<K, V>) name += "+" + std::string(V::kName);
  benchmark::RegisterBenchmark(("attention/read/" + name).c_str(), attention_read<K, V>)
      ->ArgNames({"n_tokens", "group_size"})
      ->ArgsProduct({{1 << 16}, {1, 4}})
      ->Unit(benchmark::kMillisecond);
}
const bool kReadsRegistered = [] {
  register_read<F32>();
  register_read<kvdecode::F16>();
  register_read<kvdecode::BF16>();
  register_read<kvdecode::Int8>();
  register_read<kvdecode::Int8, kvdecode::HadInt4>();
  register_read<kvdecode::Int8, kvdecode::Turbo3>();
  register_read<kvdecode::Int4>();
  register_read<kvdecode::Int3>();
  register_read<kvdecode::Asym4>();
  register_read<kvdecode::HadInt4>();
  register_read<kvdecode::HadInt3>();
  register_read<kvdecode::Turbo4>();
  register_read<kvdecode::Turbo3>();
  register_read<kvdecode::Turbo2>();
  return true;
}();

BENCHMARK(attention_recompute)
    ->Name("attention/recompute/f32")
    ->ArgName("n_tokens")
    ->RangeMultiplier(2)
    ->Range(32, 512)
    ->Unit(benchmark::kMillisecond)
    ->Complexity();
BENCHMARK(attention_cached)
    ->Name("attention/cached/f32")
    ->ArgName("n_tokens")
    ->RangeMultiplier(2)
    ->Range(32, 2048)
    ->Unit(benchmark::kMillisecond)
    ->Complexity();

}  // namespace

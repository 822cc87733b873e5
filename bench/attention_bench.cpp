// SPDX-License-Identifier: MIT
// Attention alone, for a sequence that grows to n_tokens one token at a time: recomputing every row at every
// step against computing the new one. One KV head of 64 numbers, no projections: what is left is the O(T^3)
// and the O(T^2).
#include <kvdecode/kvdecode.hpp>

#include <benchmark/benchmark.h>

#include <cstring>
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

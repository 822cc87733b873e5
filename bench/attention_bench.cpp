// SPDX-License-Identifier: MIT
// Attention alone, for a sequence that grows to n_tokens one token at a time: recomputing every row at every
// step against computing the new one. One KV head of 64 numbers, no projections: what is left is the O(T^3)
// and the O(T^2). And how fast attention reads keys and values in each format of caches, beside Eigen's products and a
// textbook loop.
#include "rates.hpp"

#include <kvdecode/kvdecode.hpp>

#include <benchmark/benchmark.h>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using kvdecode::F32;
using kvdecode::Index;

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
  std::vector<float> out(s.q.size()), expected(s.q.size());
  // Equality first: the last naive step computes every row again, the cached ones left them one by one.
  decode<false>(s, n_tokens, scratch, out);
  for (Index row = 0; row < n_tokens; ++row) attend(s, row, scratch, expected.data() + row * kHeadDim);
  if (std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) != 0)
    return state.SkipWithError("recomputed and cached attention differ");
  for (auto _ : state) {
    decode<recompute>(s, n_tokens, scratch, out);
    benchmark::ClobberMemory();
  }
  // A model of this one head: its scores and values are all that is computed here.
  kvdecode::ModelConfig config;
  config.n_layers = config.n_heads = config.n_kv_heads = 1;
  config.d_model = config.head_dim = kHeadDim;
  config.d_ff = config.vocab_size = 1;
  config.max_seq_len = n_tokens;
  const auto kind = recompute ? kvdecode::StrategyKind::kRecompute : kvdecode::StrategyKind::kCached;
  const double multiply_adds =
      kvdecode::model_cost(config).total(kind, 1, n_tokens).multiply_adds.attention();
  state.counters["multiply_adds"] = multiply_adds;
  state.counters["attention_multiply_adds"] = multiply_adds;
  bench::set_rates(state, 0.0, 2.0 * multiply_adds);
  state.counters["tokens/s"] = bench::rate(static_cast<double>(n_tokens));
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
  bench::set_rates(state, static_cast<double>(keys.size() + values.size()),
                   4.0 * static_cast<double>(n_tokens * group_size * kHeadDim));
  state.counters["positions/s"] = bench::rate(static_cast<double>(n_tokens));
}

// ---- The same without kvdecode --------------------------------------------------------------------------------

using RowMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// softmax(scale Q K^T) V as Eigen writes it. @param out  [group_size, kHeadDim]
void attend_eigen(const Sequence& s, Index n_tokens, Index group_size, RowMatrix& scores, float* out) {
  const Eigen::Map<const RowMatrix> q(s.q.data(), group_size, kHeadDim), k(s.k.data(), n_tokens, kHeadDim),
      v(s.v.data(), n_tokens, kHeadDim);
  scores.noalias() = 0.125f * (q * k.transpose());
  Eigen::Map<RowMatrix> result(out, group_size, kHeadDim);
  for (Index g = 0; g < group_size; ++g) {
    scores.row(g) = (scores.row(g).array() - scores.row(g).maxCoeff()).exp();
    scores.row(g) /= scores.row(g).sum();
  }
  result.noalias() = scores * v;
}

/// The same as textbooks write it.
void attend_loop(const Sequence& s, Index n_tokens, Index group_size, RowMatrix& scores, float* out) {
  for (Index g = 0; g < group_size; ++g) {
    float* const p = scores.data() + g * n_tokens;
    float maximum = -INFINITY, sum = 0.0f;
    for (Index j = 0; j < n_tokens; ++j) {
      p[j] = 0.0f;
      for (Index e = 0; e < kHeadDim; ++e)
        p[j] +=
            s.q[static_cast<std::size_t>(g * kHeadDim + e)] * s.k[static_cast<std::size_t>(j * kHeadDim + e)];
      p[j] *= 0.125f;
      maximum = std::max(maximum, p[j]);
    }
    for (Index j = 0; j < n_tokens; ++j) sum += p[j] = std::exp(p[j] - maximum);
    for (Index e = 0; e < kHeadDim; ++e) out[g * kHeadDim + e] = 0.0f;
    for (Index j = 0; j < n_tokens; ++j)
      for (Index e = 0; e < kHeadDim; ++e)
        out[g * kHeadDim + e] += p[j] / sum * s.v[static_cast<std::size_t>(j * kHeadDim + e)];
  }
}

template <auto attend_all>
void attention_baseline(benchmark::State& state) {
  const Index n_tokens = state.range(0), group_size = state.range(1);
  const Sequence s(n_tokens);
  RowMatrix scores(group_size, n_tokens);
  std::vector<float> out(static_cast<std::size_t>(group_size * kHeadDim)), expected(out.size());
  attend_all(s, n_tokens, group_size, scores, out.data());
  // Equality first, up to roundings: the order of the sums is another one.
  for (Index g = 0; g < group_size; ++g) {
    Sequence alone = s;  // queries g at the last position
    std::copy_n(s.q.data() + g * kHeadDim, kHeadDim, alone.q.data() + (n_tokens - 1) * kHeadDim);
    std::vector<float> scratch(static_cast<std::size_t>(kvdecode::kernels::attention_scratch(1, kHeadDim)));
    attend(alone, n_tokens - 1, scratch, expected.data() + g * kHeadDim);
  }
  for (std::size_t i = 0; i < out.size(); ++i)
    if (!(std::abs(out[i] - expected[i]) < 1e-4f))
      return state.SkipWithError("the baseline computes something else");
  for (auto _ : state) {
    attend_all(s, n_tokens, group_size, scores, out.data());
    benchmark::ClobberMemory();
  }
  bench::set_rates(state, static_cast<double>(2 * n_tokens * kHeadDim * 4),
                   4.0 * static_cast<double>(n_tokens * group_size * kHeadDim));
  state.counters["positions/s"] = bench::rate(static_cast<double>(n_tokens));
}

/// 65,536 positions, 32 MiB as F32, read by one query head and by a group of four.
void positions_and_groups(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"n_tokens", "group_size"})
      ->ArgsProduct({{1 << 16}, {1, 4}})
      ->Unit(benchmark::kMillisecond);
}

template <class K, class V = K>
void register_read() {
  std::string name(K::kName);
  if (!std::is_same_v<K, V>) name += "+" + std::string(V::kName);
  benchmark::RegisterBenchmark(("attention/read/" + name).c_str(), attention_read<K, V>)
      ->Apply(positions_and_groups);
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

BENCHMARK(attention_baseline<attend_eigen>)->Name("attention/eigen/f32")->Apply(positions_and_groups);
BENCHMARK(attention_baseline<attend_loop>)->Name("attention/loop/f32")->Apply(positions_and_groups);
BENCHMARK(attention_recompute)
    ->Name("attention/recompute/f32")
    ->ArgName("n_tokens")
    ->RangeMultiplier(2)
    ->Range(32, 1024)
    ->Unit(benchmark::kMillisecond)
    ->Complexity();
BENCHMARK(attention_cached)
    ->Name("attention/cached/f32")
    ->ArgName("n_tokens")
    ->RangeMultiplier(2)
    ->Range(32, 4096)
    ->Unit(benchmark::kMillisecond)
    ->Complexity();

}  // namespace

// SPDX-License-Identifier: MIT
// A whole model writing n_new tokens greedily, by both strategies. What the naive one pays for is every old
// token's way through every layer, at every step.
#include <kvdecode/kvdecode.hpp>

#include <benchmark/benchmark.h>

#include <array>
#include <vector>

namespace {

using kvdecode::Index;
using kvdecode::TokenId;

/// A small Llama: 2 layers, d_model 64, so that attention is seen beside the projections.
kvdecode::ModelConfig small_config() {
  kvdecode::ModelConfig config;
  config.n_layers = 2;
  config.d_model = 64;
  config.n_heads = 4;
  config.n_kv_heads = 2;
  config.head_dim = 16;
  config.d_ff = 160;
  config.vocab_size = 256;
  config.max_seq_len = 4096;
  return config;
}

template <class Strategy>
std::vector<TokenId> write(const kvdecode::Transformer<float>& transformer, Strategy strategy, Index n_new) {
  kvdecode::Decoder decoder(transformer, strategy);
  constexpr std::array<TokenId, 1> prompt{1};
  return kvdecode::generate(decoder, prompt, kvdecode::Greedy{}, {.max_new_tokens = n_new}).tokens;
}

template <class Strategy>
void decode(benchmark::State& state, Strategy strategy) {
  const Index n_new = state.range(0);
  const kvdecode::ModelConfig config = small_config();
  const kvdecode::Transformer<float> transformer(config, kvdecode::random_weights(config));
  if (write(transformer, kvdecode::Recompute<>{}, n_new) != write(transformer, kvdecode::Cached<>{}, n_new))
    return state.SkipWithError("recomputed and cached decoding give different tokens");
  for (auto _ : state) {
    auto tokens = write(transformer, strategy, n_new);
    benchmark::DoNotOptimize(tokens.data());
  }
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(n_new), benchmark::Counter::kIsIterationInvariantRate);
  state.counters["kv_bytes"] =
      Strategy::kKeepsCache
          ? static_cast<double>(kvdecode::payload_bytes<kvdecode::F32>(transformer.kv_shape(), n_new))
          : 0.0;
  state.SetComplexityN(n_new);
}

void decode_recompute(benchmark::State& state) { decode(state, kvdecode::Recompute<>{}); }
void decode_cached(benchmark::State& state) { decode(state, kvdecode::Cached<>{}); }

BENCHMARK(decode_recompute)
    ->Name("decode/recompute/f32")
    ->ArgName("n_new")
    ->RangeMultiplier(2)
    ->Range(32, 512)
    ->Unit(benchmark::kMillisecond)
    ->Complexity();
BENCHMARK(decode_cached)
    ->Name("decode/cached/f32")
    ->ArgName("n_new")
    ->RangeMultiplier(2)
    ->Range(32, 2048)
    ->Unit(benchmark::kMillisecond)
    ->Complexity();

}  // namespace

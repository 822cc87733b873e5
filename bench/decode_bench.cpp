// SPDX-License-Identifier: MIT
// A whole model writing n_new tokens greedily, by both strategies. What the naive one pays for is every old
// token's way through every layer, at every step. And reading a prompt of n_tokens whose pages a store of prefixes has, or
// has not.
#include <kvdecode/kvdecode.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstddef>
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

/// The logits after a prompt that begins as one before did (hit), or otherwise (miss).
void decode_prompt(benchmark::State& state, bool is_hit) {
  using Cache = kvdecode::PagedCache<>;
  const Index n_tokens = state.range(0);
  const kvdecode::ModelConfig config = small_config();
  const kvdecode::Transformer<float> transformer(config, kvdecode::random_weights(config));
  std::vector<TokenId> prompt(static_cast<std::size_t>(n_tokens));
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(i * i % 251);
  kvdecode::PagePool pool(Cache::page_bytes(transformer.kv_shape()));
  kvdecode::PrefixStore<Cache> store(pool, transformer.kv_shape());
  kvdecode::Decoder alone(transformer, kvdecode::Cached<>{});
  kvdecode::Decoder decoder(transformer, kvdecode::Cached<Cache>{.prefixes = &store});
  const auto expected = alone.append(prompt);
  for (int round = 0; round < 2; ++round) {  // a miss and a hit
    decoder.clear();
    const auto logits = decoder.append(prompt);
    if (!std::equal(logits.begin(), logits.end(), expected.begin()))
      return state.SkipWithError("a prefix from the store gives other logits");
  }
  const Index before = decoder.statistics().n_tokens_run;
  for (auto _ : state) {
    decoder.clear();
    if (!is_hit) store.clear();
    auto logits = decoder.append(prompt);
    benchmark::DoNotOptimize(logits.data());
  }
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(n_tokens), benchmark::Counter::kIsIterationInvariantRate);
  state.counters["tokens_run"] = benchmark::Counter(
      static_cast<double>(decoder.statistics().n_tokens_run - before), benchmark::Counter::kAvgIterations);
  state.SetComplexityN(n_tokens);
}

void decode_prefix_hit(benchmark::State& state) { decode_prompt(state, true); }
void decode_prefix_miss(benchmark::State& state) { decode_prompt(state, false); }
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
BENCHMARK(decode_prefix_miss)
    ->Name("decode/prefix_miss/f32")
    ->ArgName("n_tokens")
    ->RangeMultiplier(4)
    ->Range(64, 1024)
    ->Unit(benchmark::kMillisecond)
    ->Complexity();
BENCHMARK(decode_prefix_hit)
    ->Name("decode/prefix_hit/f32")
    ->ArgName("n_tokens")
    ->RangeMultiplier(4)
    ->Range(64, 1024)
    ->Unit(benchmark::kMillisecond)
    ->Complexity();

}  // namespace

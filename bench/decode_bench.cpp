// SPDX-License-Identifier: MIT
// A whole model that writes n_tokens one by one, by both strategies, and single steps of it at some position. What the
// naive one pays for is every old token's way through every layer, at every step. And reading a prompt of n_tokens whose
// pages a store of prefixes has, or has not.
#include "rates.hpp"

#include <kvdecode/kvdecode.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <vector>

namespace {

using kvdecode::Index;
using kvdecode::Recompute;
using kvdecode::StrategyKind;
using kvdecode::TokenId;
using Transformer = kvdecode::Transformer<float>;

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

const Transformer& small_model() {
  static const Transformer model(small_config(), kvdecode::random_weights(small_config()));
  return model;
}

constexpr std::size_t kPrompt = 1;

/// The text that a model writes: each token the likeliest behind those before it, from token 1 on.
template <class Strategy>
std::vector<TokenId> write(Strategy strategy, Index n_tokens) {
  kvdecode::Decoder decoder(small_model(), strategy);
  std::vector<TokenId> text(kPrompt, 1);
  kvdecode::Greedy choose;
  while (static_cast<Index>(text.size()) <= n_tokens) text.push_back(choose(decoder.step(text.back())));
  return text;
}

/// Both strategies give the same logits behind n_tokens, to the bit; up to 256 tokens they also write the same text.
bool strategies_agree(Index n_tokens) {
  static std::set<Index> checked;  // that they do
  if (checked.count(n_tokens) != 0) return true;
  const std::vector<TokenId> text = write(kvdecode::Cached<>{}, n_tokens);
  if (n_tokens <= 256 && write(Recompute<>{}, n_tokens) != text) return false;
  const std::span<const TokenId> seen = std::span(text).first(static_cast<std::size_t>(n_tokens));
  kvdecode::Decoder naive(small_model(), Recompute<>{});
  kvdecode::Decoder cached(small_model(), kvdecode::Cached<>{});
  const std::span<const float> expected = naive.append(seen);
  std::span<const float> actual;
  for (const TokenId token : seen) actual = cached.step(token);
  if (std::memcmp(actual.data(), expected.data(), expected.size_bytes()) != 0) return false;
  checked.insert(n_tokens);
  return true;
}

template <class Strategy>
constexpr StrategyKind kKindOf = Strategy::kKeepsCache ? StrategyKind::kCached : StrategyKind::kRecompute;

void set_work(benchmark::State& state, const kvdecode::Cost& cost) {
  const kvdecode::MultiplyAdds& work = cost.multiply_adds;
  state.counters["multiply_adds"] = work.total();
  state.counters["attention_multiply_adds"] = work.attention();
  bench::set_rates(state, 0.0, 2.0 * work.total());
}

template <class Strategy>
void decode(benchmark::State& state) {
  const Index n_tokens = state.range(0);
  if (!strategies_agree(n_tokens))
    return state.SkipWithError("recomputed and cached decoding give different logits");
  for (auto _ : state) {
    auto text = write(Strategy{}, n_tokens);
    benchmark::DoNotOptimize(text.data());
  }
  set_work(state, kvdecode::model_cost(small_config()).total(kKindOf<Strategy>, 1, n_tokens));
  state.counters["tokens/s"] = bench::rate(static_cast<double>(n_tokens));
  state.counters["kv_bytes"] =
      Strategy::kKeepsCache
          ? static_cast<double>(kvdecode::payload_bytes<kvdecode::F32>(small_model().kv_shape(), n_tokens))
          : 0.0;
  state.SetComplexityN(n_tokens);
}

/// One step: the logits of the token at `position`, with all others before it.
template <class Strategy>
void step(benchmark::State& state) {
  const Index position = state.range(0);
  if (!strategies_agree(position + 1))
    return state.SkipWithError("recomputed and cached decoding give different logits");
  kvdecode::Decoder decoder(small_model(), Strategy{});
  const std::vector<TokenId> before(static_cast<std::size_t>(position), 7);
  if (position > 0) decoder.append(before);
  for (auto _ : state) {
    benchmark::DoNotOptimize(decoder.step(1).data());
    decoder.truncate(position);
  }
  set_work(state, kvdecode::model_cost(small_config()).step(kKindOf<Strategy>, position + 1));
}

template <Index longest>
void text_lengths(benchmark::internal::Benchmark* bench) {
  bench->ArgName("n_tokens")->RangeMultiplier(2)->Range(32, longest);
  bench->Unit(benchmark::kMillisecond)->Complexity();
}
void positions(benchmark::internal::Benchmark* bench) {
  bench->ArgName("position")->Unit(benchmark::kMicrosecond)->Arg(0);
  for (Index position = 255; position < 2048; position += 256) bench->Arg(position);
}

BENCHMARK(decode<Recompute<>>)->Name("decode/recompute/f32")->Apply(text_lengths<1024>);
BENCHMARK(decode<kvdecode::Cached<>>)->Name("decode/cached/f32")->Apply(text_lengths<4096>);
BENCHMARK(step<Recompute<>>)->Name("step/recompute/f32")->Apply(positions);
BENCHMARK(step<kvdecode::Cached<>>)->Name("step/cached/f32")->Apply(positions);

/// The logits after a prompt that begins as one before did (hit), or otherwise (miss).
void decode_prompt(benchmark::State& state, bool is_hit) {
  using Cache = kvdecode::PagedCache<>;
  const Index n_tokens = state.range(0);
  const Transformer& transformer = small_model();
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
  state.counters["tokens/s"] = bench::rate(static_cast<double>(n_tokens));
  state.counters["tokens_run"] = benchmark::Counter(
      static_cast<double>(decoder.statistics().n_tokens_run - before), benchmark::Counter::kAvgIterations);
  state.SetComplexityN(n_tokens);
}

void decode_prefix_hit(benchmark::State& state) { decode_prompt(state, true); }
void decode_prefix_miss(benchmark::State& state) { decode_prompt(state, false); }

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

// SPDX-License-Identifier: MIT
// The memory of caches of real models against the length of the text: what the rows take by the closed form, and what a
// cache allocates where that is not too much for a bench. Time is that of making it.
#include <kvdecode/kvdecode.hpp>

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

namespace {

using kvdecode::AttentionSpan;
using kvdecode::F16;
using kvdecode::Index;
using kvdecode::KvShape;

constexpr double kMostAllocated = 1.0 * (1 << 30);  // bytes

KvShape uniform(Index n_layers, Index n_kv_heads, Index k_dim, Index v_dim, AttentionSpan span = {}) {
  KvShape shape;
  for (Index layer = 0; layer < n_layers; ++layer)
    shape.layers.push_back({n_kv_heads, k_dim, v_dim, span, layer});
  return shape;
}

/// Rows of a latent that is the values, and of the part of the keys that turns.
KvShape latents(Index n_layers, Index kv_lora_rank, Index qk_rope_head_dim) {
  KvShape shape = uniform(n_layers, 1, kv_lora_rank + qk_rope_head_dim, kv_lora_rank);
  for (kvdecode::LayerKvShape& layer : shape.layers) layer.values_in_keys = true;
  return shape;
}

template <class Cache>
void memory(benchmark::State& state, const KvShape& shape) {
  using K = typename Cache::KeyFormat;
  using V = typename Cache::ValueFormat;
  const Index n_tokens = state.range(0);
  const Index payload = kvdecode::payload_bytes<K, V>(shape, n_tokens);
  const Index required = Cache::required_bytes(shape, n_tokens);
  const bool fits = static_cast<double>(required) <= kMostAllocated;
  // Equality first: what is allocated is what was promised, and no less than the rows.
  if (fits && (Cache(shape, n_tokens).bytes() != required || required < payload))
    return state.SkipWithError("the cache allocates other than required_bytes");
  for (auto _ : state) {
    if (fits) {
      Cache cache(shape, n_tokens);
      benchmark::DoNotOptimize(cache.bytes());
    }
  }
  state.counters["payload_bytes"] = static_cast<double>(payload);
  state.counters["required_bytes"] = static_cast<double>(required);
  state.counters["allocated_bytes"] = fits ? static_cast<double>(required) : 0.0;
}

/// @tparam Cache  a ring where a window forgets  @param longest  positions that the model has
template <class Cache>
void add(const std::string& name, KvShape shape, Index longest = 131072) {
  auto* const bench = benchmark::RegisterBenchmark(
      ("memory/" + name).c_str(), [shape](benchmark::State& state) { memory<Cache>(state, shape); });
  bench->ArgName("n_tokens")->Iterations(1)->Unit(benchmark::kMicrosecond);
  for (const Index n_tokens : {256, 1024, 4096, 8192, 32768, 131072})
    if (n_tokens <= longest) bench->Arg(n_tokens);
}

[[maybe_unused]] const bool kIsAdded = [] {
  using Half = kvdecode::ContiguousCache<F16>;
  add<Half>("gpt2-124m/f16", uniform(12, 12, 64, 64), 1024);
  add<Half>("llama-3-8b-without-gqa/f16", uniform(32, 32, 128, 128));
  add<Half>("llama-3-8b/f16", uniform(32, 8, 128, 128));
  add<kvdecode::ContiguousCache<kvdecode::Int4>>("llama-3-8b/int4", uniform(32, 8, 128, 128));
  add<Half>("qwen3-8b/f16", uniform(36, 8, 128, 128));
  // One latent of 512 numbers that keys and values of all heads are made of, and 64 that turn (DeepSeek-AI 2024).
  add<Half>("deepseek-v3-mla/f16", latents(61, 512, 64));
  add<kvdecode::SlidingWindowCache<F16>>("mistral-7b-window-4096/f16",
                                         uniform(32, 8, 128, 128, {.window = 4096}));
  return true;
}();

}  // namespace

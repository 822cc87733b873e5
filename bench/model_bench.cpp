// SPDX-License-Identifier: MIT
// Whole models of known sizes with random weights, in every format that files have: how fast a step of some sequences is
// behind some tokens, and a prompt of 512, beside what the machine reads and computes, measured in the same run. What a
// format cannot hold, as rows that are no multiple of its block, is in q8_0. Keys and values are stored as f16.
//
// They take their time, and TinyLlama up to 9 GB: bench_main.cpp leaves them out unless a filter asks for them.
// Run: build/bench/kvdecode_bench --benchmark_filter='^model/decode/smollm2-135m/q8_0/exact/'
#include "random_blocks.hpp"
#include "rates.hpp"

#include <kvdecode/kvdecode.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using kvdecode::FormatId;
using kvdecode::GgufFormats;
using kvdecode::Index;
using kvdecode::ModelConfig;
using kvdecode::TokenId;
using Cache = kvdecode::ContiguousCache<kvdecode::F16>;
using Segment = kvdecode::Segment<Cache>;

constexpr Index kPrompt = 512;      // tokens of a prefill
constexpr Index kMaxSeqLen = 8192;  // positions before a step

// ---- Models ---------------------------------------------------------------------------------------------------

struct Shape {
  std::string_view name;
  Index n_layers, d_model, n_heads, n_kv_heads, d_ff, vocab_size;
  bool tied_head;
};
constexpr Shape kShapes[] = {{"smollm2-135m", 30, 576, 9, 3, 1536, 49152, true},
                             {"tinyllama-1.1b", 22, 2048, 32, 4, 5632, 32000, false}};

ModelConfig config_of(const Shape& shape) {
  ModelConfig config;
  config.n_layers = shape.n_layers;
  config.d_model = shape.d_model;
  config.n_heads = shape.n_heads;
  config.n_kv_heads = shape.n_kv_heads;
  config.head_dim = shape.d_model / shape.n_heads;
  config.d_ff = shape.d_ff;
  config.vocab_size = shape.vocab_size;
  config.tied_head = shape.tied_head;
  config.max_seq_len = kMaxSeqLen + kPrompt;
  return config;
}

kvdecode::Weights block_weights(const ModelConfig& config, FormatId format) {
  const auto blocks = std::make_unique<bench::RandomBlocks>(format);
  kvdecode::Weights weights;
  const Index d = config.d_model, q_dim = config.n_heads * config.head_dim,
              kv_dim = config.n_kv_heads * config.head_dim;
  auto ones = std::make_shared<std::vector<float>>(static_cast<std::size_t>(d), 1.0f);
  const kvdecode::VectorView norm{FormatId::kF32, reinterpret_cast<const std::byte*>(ones->data()), d};
  weights.owners.push_back(ones);
  weights.token_embedding = blocks->matrix(weights, config.vocab_size, d);
  for (Index i = 0; i < config.n_layers; ++i) {
    kvdecode::LayerWeights layer;
    layer.attention_norm.weight = layer.feed_forward_norm.weight = norm;
    layer.w_q.matrix = blocks->matrix(weights, q_dim, d);
    layer.w_k.matrix = blocks->matrix(weights, kv_dim, d);
    layer.w_v.matrix = blocks->matrix(weights, kv_dim, d);
    layer.w_o.matrix = blocks->matrix(weights, d, q_dim);
    layer.w_gate.matrix = blocks->matrix(weights, config.d_ff, d);
    layer.w_up.matrix = blocks->matrix(weights, config.d_ff, d);
    layer.w_down.matrix = blocks->matrix(weights, d, config.d_ff);
    weights.layers.push_back(std::move(layer));
  }
  weights.final_norm.weight = norm;
  if (!config.tied_head) weights.head.matrix = blocks->matrix(weights, config.vocab_size, d);
  return weights;
}

struct Model {
  ModelConfig config;
  kvdecode::Weights weights;
  kvdecode::ModelCost cost;
};

/// The model that a benchmark is about. The last one is kept: benchmarks of one model follow one another.
const Model& model_of(const Shape& shape, FormatId format) {
  static std::unique_ptr<Model> model;
  static std::pair<std::string_view, FormatId> which;
  if (model == nullptr || which != std::pair(shape.name, format)) {
    model.reset();
    const ModelConfig config = config_of(shape);
    kvdecode::Weights weights = block_weights(config, format);
    const auto cost =
        kvdecode::model_cost<Cache::KeyFormat, Cache::ValueFormat, GgufFormats>(config, weights);
    model = std::make_unique<Model>(Model{config, std::move(weights), cost});
    which = {shape.name, format};
  }
  return *model;
}

// ---- Measuring ------------------------------------------------------------------------------------------------

/// Puts random keys and values behind which a step then stands: what they are does not change its cost.
void fill(Cache& cache, Index depth) {
  kvdecode::detail::SplitMix64 random(3);
  cache.reserve(depth);
  for (Index layer = 0; layer < cache.shape().n_layers(); ++layer) {
    const kvdecode::LayerKvShape& shape = cache.shape()[layer];
    const Index cols = shape.n_kv_heads * shape.k_dim;
    std::vector<float> rows(static_cast<std::size_t>(64 * cols));
    for (float& number : rows) number = static_cast<float>(random.normal());
    for (Index done = 0; done < depth; done += 64) {
      const kvdecode::RowsView<const float> some{rows.data(), std::min<Index>(64, depth - done), cols, cols};
      cache.append(layer, some, some);
    }
  }
  cache.commit();
}

void report(benchmark::State& state, double n_tokens, double bytes, double flops, Index n_threads) {
  state.counters["tokens/s"] = bench::rate(n_tokens);
  bench::set_rates(state, bytes, flops, n_threads);
}

template <class Activations>
void decode(benchmark::State& state, const Shape& shape, FormatId format) {
  const Index depth = state.range(0), batch = state.range(1), n_threads = state.range(2);
  const Model& model = model_of(shape, format);
  const kvdecode::Transformer<float, Activations, GgufFormats> transformer(model.config, model.weights);
  std::vector<Cache> caches;
  caches.emplace_back(transformer.kv_shape(), depth + 1);
  fill(caches.front(), depth);
  for (Index i = 1; i < batch; ++i) caches.push_back(caches.front().fork());
  std::vector<TokenId> tokens;
  for (Index i = 0; i < batch; ++i) tokens.push_back(static_cast<TokenId>(1 + 997 * i));
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < caches.size(); ++i) segments.push_back({&caches[i], {&tokens[i], 1}});
  kvdecode::ThreadTeam team(n_threads);
  kvdecode::Workspace<float> workspace, workspace_alone;
  const auto step = [&] { return transformer.forward(workspace, team, std::span<const Segment>(segments)); };
  const auto forget = [&] {
    for (Cache& cache : caches) cache.truncate(depth);
  };

  // Equality first: the last sequence's logits are those it has alone on one thread.
  const auto together = step();
  std::vector<float> last(together.row(batch - 1), together.row(batch - 1) + together.cols);
  forget();
  const auto alone = transformer.forward(workspace_alone, {}, segments.back());
  forget();
  if (std::memcmp(alone.row(0), last.data(), last.size() * sizeof(float)) != 0)
    return state.SkipWithError("a sequence in company has other logits than alone on one thread");

  for (auto _ : state) {
    benchmark::DoNotOptimize(step().data);
    forget();
  }
  const double n = static_cast<double>(batch);
  const kvdecode::Cost alone_cost = model.cost.forward(depth, 1);
  report(state, n, model.cost.weight_bytes(batch, batch) + n * alone_cost.cache_bytes_read,
         2.0 * n * alone_cost.multiply_adds.total(), n_threads);
}

template <class Activations>
void prefill(benchmark::State& state, const Shape& shape, FormatId format) {
  const Index n_tokens = state.range(0), n_threads = state.range(1);
  const Model& model = model_of(shape, format);
  const kvdecode::Transformer<float, Activations, GgufFormats> transformer(model.config, model.weights);
  Cache cache(transformer.kv_shape(), n_tokens);
  std::vector<TokenId> tokens;
  for (Index i = 0; i < n_tokens; ++i)
    tokens.push_back(static_cast<TokenId>((1 + 997 * i) % model.config.vocab_size));
  kvdecode::ThreadTeam team(n_threads);
  kvdecode::Workspace<float> workspace;
  const auto run = [&](std::span<const TokenId> some) {
    return transformer.forward(workspace, team, Segment{&cache, some});
  };

  // Equality first: the last token's logits are those it has by itself behind the others.
  const auto whole = run(tokens);
  const std::vector<float> last(whole.row(0), whole.row(0) + whole.cols);
  cache.truncate(n_tokens - 1);
  if (std::memcmp(run(std::span(tokens).last(1)).row(0), last.data(), last.size() * sizeof(float)) != 0)
    return state.SkipWithError("a token at the end of a prompt has other logits than by itself");

  for (auto _ : state) {
    cache.clear();
    benchmark::DoNotOptimize(run(tokens).data);
  }
  const double flops = 2.0 * model.cost.forward(0, n_tokens).multiply_adds.total();
  report(state, static_cast<double>(n_tokens), 0.0, flops, n_threads);
}

// ---- The list -------------------------------------------------------------------------------------------------

template <class Activations>
void add(const Shape& shape, FormatId format) {
  const std::string name =
      std::string(shape.name) + '/' + std::string(to_string(format)) + '/' + std::string(Activations::kName);
  std::vector<Index> threads;
  for (Index n = 1; n <= std::max<Index>(1, std::thread::hardware_concurrency()); n *= 2)
    threads.push_back(n);
  auto* const steps = benchmark::RegisterBenchmark(
      ("model/decode/" + name).c_str(),
      [&shape, format](benchmark::State& state) { decode<Activations>(state, shape, format); });
  steps->ArgNames({"depth", "batch", "threads"})->Unit(benchmark::kMillisecond)->UseRealTime();
  for (const Index n_threads : threads)
    for (const Index depth : {0, 512, 2048, 4096, 8192})
      for (const Index batch : {1, 2, 4, 8, 16})
        if (depth == 0 || batch == 1 || batch == 4) steps->Args({depth, batch, n_threads});
  auto* const prompts = benchmark::RegisterBenchmark(
      ("model/prefill/" + name).c_str(),
      [&shape, format](benchmark::State& state) { prefill<Activations>(state, shape, format); });
  prompts->ArgNames({"n_tokens", "threads"})->Unit(benchmark::kMillisecond)->UseRealTime();
  for (const Index n_threads : threads)
    for (const Index n_tokens : {2, 3, 4, 7, 8, 15, 16, 17, 33, 128, 512})
      prompts->Args({n_tokens, n_threads});
}

template <kvdecode::Format... Fs>
bool add_all(kvdecode::FormatList<Fs...>) {
  for (const Shape& shape : kShapes) {
    const auto add_format = [&]<class F>() {
      add<kvdecode::ExactActivations>(shape, F::kId);
      if constexpr (kvdecode::kernels::IsMultipliedAsIntegers<F>)
        add<kvdecode::Int8Activations>(shape, F::kId);
    };
    (add_format.template operator()<Fs>(), ...);
  }
  return true;
}

[[maybe_unused]] const bool kIsAdded = add_all(GgufFormats{});

}  // namespace

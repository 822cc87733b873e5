// SPDX-License-Identifier: MIT
// What does the model think after each token? Writes the logits of a list of tokens to a safetensors file, to
// be compared with another implementation's.
//
// Run: build/examples/logits MODEL --tokens 1,2,3 [--strategy cached|recompute] [--chunk N] [--threads N]
//          [--scalar f32|f64] [--activations exact|int8] [--greedy N] --output FILE.safetensors
//
// Tensor `logits`, float32 [n_tokens, vocab_size]: row i is the last row of a fresh pass over tokens 0 … i,
// however it is computed. With --greedy N also `tokens`, int64 [n_tokens + N]: the prompt and N greedy
// tokens.
#include "program.hpp"

#include <kvdecode/io.hpp>
#include <kvdecode/kvdecode.hpp>
#include <kvdecode/pipeline/load_model.hpp>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace {

using kvdecode::Index;
using kvdecode::TokenId;

struct Arguments {
  std::string model;
  std::vector<TokenId> tokens;
  std::string strategy = "cached";
  std::string scalar = "f32";
  std::string activations = "exact";
  std::string output;
  Index chunk = 512;
  Index n_threads = 1;
  Index n_greedy = 0;
};

/// The rows by the cache: chunks of new tokens, all rows of each. Where the angles of positions depend on the
/// length of the sequence, rows of different epochs need different keys: then the tokens before them are run again.
template <class T>
std::vector<float> cached_rows(const T& transformer, const Arguments& a, kvdecode::ExecutorRef exec) {
  using S = typename T::scalar;
  using Cache = kvdecode::GrowingCache<kvdecode::Native<S>>;
  const kvdecode::ModelConfig& config = transformer.config();
  const Index n_tokens = static_cast<Index>(a.tokens.size());
  Cache cache(transformer.kv_shape(), std::max(n_tokens, config.max_seq_len));
  kvdecode::Workspace<S> workspace;
  const auto run = [&](Index n, kvdecode::Rows rows) {  // the next n tokens
    const auto tokens =
        std::span(a.tokens).subspan(static_cast<std::size_t>(cache.kv_len()), static_cast<std::size_t>(n));
    return transformer.forward(workspace, exec, kvdecode::Segment<Cache>{&cache, tokens, rows});
  };
  std::vector<float> rows;
  for (Index begin = 0, end = 0; begin < n_tokens; begin = end) {
    const Index epoch = config.rotary_epoch(begin + 1);
    for (end = begin + 1; end < std::min(begin + a.chunk, n_tokens); ++end)
      if (config.rotary_epoch(end + 1) != epoch) break;
    if (epoch != cache.epoch()) cache.clear(epoch);
    while (cache.kv_len() < begin) run(std::min(a.chunk, begin - cache.kv_len()), kvdecode::Rows::kNone);
    const auto logits = run(end - begin, kvdecode::Rows::kAll);
    for (Index i = 0; i < logits.rows; ++i)
      std::transform(logits.row(i), logits.row(i) + logits.cols, std::back_inserter(rows),
                     [](S value) { return static_cast<float>(value); });
  }
  return rows;
}

/// The rows by their definition: a fresh pass over each prefix.
template <class T>
std::vector<float> recomputed_rows(const T& transformer, const Arguments& a, kvdecode::ExecutorRef exec) {
  kvdecode::Decoder decoder(transformer, kvdecode::Recompute<>{.max_seq_len = longest(transformer, a)}, exec);
  std::vector<float> rows;
  for (const TokenId token : a.tokens)
    for (const auto value : decoder.step(token)) rows.push_back(static_cast<float>(value));
  return rows;
}

template <class T>
Index longest(const T& transformer, const Arguments& a) {
  return std::max(transformer.config().max_seq_len, static_cast<Index>(a.tokens.size()) + a.n_greedy);
}

template <class S, class Activations>
int write(const Arguments& a) {
  const kvdecode::LoadedModel model = kvdecode::load_model(a.model);
  const kvdecode::FileTransformer<S, Activations> transformer(model.config, model.weights);
  kvdecode::ThreadTeam team(a.n_threads);
  const bool recompute = a.strategy == "recompute";
  const std::vector<float> rows =
      recompute ? recomputed_rows(transformer, a, team) : cached_rows(transformer, a, team);

  std::vector<std::int64_t> tokens(a.tokens.begin(), a.tokens.end());
  if (a.n_greedy > 0) {
    kvdecode::DecodeOptions options;
    if (recompute) options.strategy = kvdecode::DecodeOptions::Strategy::kRecompute;
    options.max_seq_len = longest(transformer, a);
    options.prefill_chunk = a.chunk;
    auto decoder = kvdecode::make_decoder(transformer, options, team);
    const auto result =
        kvdecode::generate(decoder, a.tokens, kvdecode::Greedy{}, {.max_new_tokens = a.n_greedy});
    tokens.insert(tokens.end(), result.tokens.begin(), result.tokens.end());
  }
  std::vector<kvdecode::SafetensorsTensor> tensors{
      {"logits",
       kvdecode::SafetensorsDtype::kF32,
       {static_cast<Index>(a.tokens.size()), model.config.vocab_size},
       std::as_bytes(std::span(rows))}};
  if (a.n_greedy > 0)
    tensors.push_back({"tokens",
                       kvdecode::SafetensorsDtype::kI64,
                       {static_cast<Index>(tokens.size())},
                       std::as_bytes(std::span(tokens))});
  kvdecode::write_safetensors(a.output, tensors);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Writes the logits after each of some tokens to a safetensors file.", "logits"};
  Arguments a;
  app.add_option("MODEL", a.model, "a Hugging Face folder or a GGUF file")->required();
  app.add_option("--tokens", a.tokens, "token ids, separated by commas")
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false);  // what follows the list is not of it
  app.add_option("--strategy", a.strategy, "how to decode")
      ->check(CLI::IsMember({"cached", "recompute"}))
      ->capture_default_str();
  app.add_option("--chunk", a.chunk, "tokens a pass")->check(program::count_from(1))->capture_default_str();
  program::add_threads_option(app, a.n_threads);
  app.add_option("--scalar", a.scalar, "the number type to compute in")
      ->check(CLI::IsMember({"f32", "f64"}))
      ->capture_default_str();
  app.add_option("--greedy", a.n_greedy, "greedy tokens to append")
      ->check(program::count_from(0))
      ->capture_default_str();
  app.add_option("--output", a.output, "the safetensors file to write")->required();
  program::add_activations_option(app, a.activations);
  return program::run(app, argc, argv, [&] {
    return program::with_activations(a.activations, [&]<class Activations>() {
      return a.scalar == "f64" ? write<double, Activations>(a) : write<float, Activations>(a);
    });
  });
}

// SPDX-License-Identifier: MIT
// The host's floating-point environment leaves no trace, neither on the calling thread nor on those of its
// executor. With models whose every activation is subnormal or near it, so that flushing to zero would show.
#include <laws/axes.hpp>
#include <laws/laws.hpp>
#include <support/compare.hpp>

#include <kvdecode/core/simd/fp_env.hpp>
#include <kvdecode/decode/samplers.hpp>
#include <kvdecode/model/random_weights.hpp>

#include <doctest/doctest.h>

#include <cfenv>
#include <cmath>
#include <string>
#include <vector>

namespace {

using namespace kvdecode_laws;
using kvdecode::Cached;
using kvdecode::MatrixView;
using kvdecode::Native;
using kvdecode::Transformer;
using kvdecode::Weights;
using kvdecode_test::FpMode;
using kvdecode_test::RandomModel;
using kvdecode_test::ScopedFpMode;

/// W times 2^power, in the native format of S.
template <class S>
MatrixView scaled(Weights& weights, const MatrixView& w, int power) {
  const FormatId format = Native<S>::kId;
  const kvdecode_test::OffsetBytes bytes(w.rows * w.cols * static_cast<Index>(sizeof(S)), 0);
  weights.owners.push_back(bytes.owner());
  for (Index r = 0; r < w.rows; ++r)
    for (Index c = 0; c < w.cols; ++c)
      kvdecode_reference::store_bits(
          format, kvdecode_reference::encode(format, std::ldexp(kvdecode_reference::element(w, r, c), power)),
          bytes.data() + (r * w.cols + c) * static_cast<Index>(sizeof(S)));
  return {format, bytes.data(), w.rows, w.cols, w.cols * static_cast<Index>(sizeof(S)), false};
}

/// A model whose residual stream, and with it all it computes, is about 2^power.
template <class S>
RandomModel small_numbers(std::string_view words, int power) {
  kvdecode::ModelConfig config = kvdecode_test::config_of(words);
  config.norm_eps = 1.0;  // or norms would bring tiny numbers back to size
  RandomModel model(config, {.seed = 4, .format = Native<S>::kId});
  model.weights.token_embedding = scaled<S>(model.weights, model.weights.token_embedding, power);
  if (!model.weights.position_embedding.empty())
    model.weights.position_embedding = scaled<S>(model.weights, model.weights.position_embedding, power);
  return model;
}

template <class S>
constexpr int kSubnormalPower = sizeof(S) == 4 ? -131 : -1030;

const std::string kWords[] = {"gqa", "hd5 layer_norm gelu plain shared partial learned",
                              "mqa gelu_tanh interleaved mixed_sinks", "mha hd16 relu2 parallel sliding"};

TEST_CASE_TEMPLATE("environment: every law holds in every environment, with subnormal activations", S, float,
                   double) {
  using Cache = GrowingCache<Native<S>>;
  kvdecode::ThreadTeam team(2);
  for (const std::string& words : kWords) {
    const RandomModel model = small_numbers<S>(words, kSubnormalPower<S>);
    const Transformer<S> transformer(model.config, model.weights);
    const auto tokens = kvdecode_test::random_tokens(6, model.config.vocab_size, 9);
    Answers<S> answers;
    add_answers<Native<S>>(answers, transformer, tokens, lengths_up_to(6));
    Index n_subnormal = 0, n_zero = 0;
    for (const auto& [length, logits] : answers.rows())
      for (const S x : logits) {
        n_subnormal += std::fpclassify(x) == FP_SUBNORMAL ? 1 : 0;
        n_zero += x == S(0) ? 1 : 0;
      }
    CAPTURE(words);
    CHECK(n_subnormal > 0);  // or the law could not fail
    CHECK(n_zero < 20);
    for (const FpMode mode : kFpModes)
      for (const ExecutorRef exec : {ExecutorRef{}, ExecutorRef(team)}) {
        CAPTURE(std::string(to_string(mode)));
        CAPTURE(exec.concurrency());
        const Setting<Transformer<S>> setting{transformer, exec, tokens, answers, 2};
        std::vector<Violation> violations;
        {
          const ScopedFpMode scope(mode);
          violations = violated_by_strategy(setting, Cached<Cache>{.max_seq_len = 6});
          for (Violation& v : violated_by_cache<Cache>(setting)) violations.push_back(std::move(v));
        }
        CHECK(violations.empty());
        for (const Violation& v : violations) FAIL_CHECK(std::string(v.law) << ": " << v.difference);
      }
  }
}

/// Sets an environment on whatever thread runs a task.
template <class Base>
struct HostileExecutor {
  Base base;
  FpMode mode;

  Index concurrency() { return base.concurrency(); }
  void parallel_for(Index n, TaskRef task) {
    auto hostile = [&](Index i) noexcept {
      const ScopedFpMode scope(mode);
      task(i);
    };
    base.parallel_for(n, hostile);
  }
};

TEST_CASE_TEMPLATE("environment: that of an executor's threads leaves no trace", S, float, double) {
  using Cache = GrowingCache<Native<S>>;
  const RandomModel model = small_numbers<S>("gqa", kSubnormalPower<S>);
  const Transformer<S> transformer(model.config, model.weights);
  const auto tokens = kvdecode_test::random_tokens(6, model.config.vocab_size, 9);
  Answers<S> answers;
  add_answers<Native<S>>(answers, transformer, tokens, lengths_up_to(6));
  for (const FpMode mode : kFpModes) {
    CAPTURE(std::string(to_string(mode)));
    HostileExecutor<HostPair> executor{{}, mode};
    const Setting<Transformer<S>> setting{transformer, executor, tokens, answers, 2};
    for (const Violation& v : violated_by_strategy(setting, Cached<Cache>{.max_seq_len = 6}))
      FAIL_CHECK(std::string(v.law) << ": " << v.difference);
    for (const Violation& v : violated_by_cache<Cache>(setting))
      FAIL_CHECK(std::string(v.law) << ": " << v.difference);
  }
}

TEST_CASE("environment: models, tables and samplers are made and drawn in the default one") {
  using S = float;
  const RandomModel model("llama3 mixed_sinks layer_norm", {.seed = 4, .biases = true});
  const auto tokens = kvdecode_test::random_tokens(6, model.config.vocab_size, 9);
  const auto decode = [&] {
    kvdecode::Decoder decoder(Transformer<S>(model.config, model.weights), Cached<>{});
    const auto logits = decoder.append(tokens);
    return std::vector<S>(logits.begin(), logits.end());
  };
  const auto draw = [&](const std::vector<S>& logits) {
    kvdecode::Sampling<> sampling({.temperature = 1.7, .top_k = 20, .top_p = 0.9, .seed = 6});
    std::vector<TokenId> drawn;
    for (int i = 0; i < 50; ++i) drawn.push_back(sampling(std::span<const S>(logits)));
    return drawn;
  };
  const auto weights_bytes = [&] {
    const Weights weights = kvdecode::random_weights(model.config, {.seed = 2});
    const MatrixView& w = weights.layers[0].w_q.matrix;
    return std::vector<std::byte>(w.data, w.data + w.rows * w.stride);
  };
  const auto logits = decode();
  const auto drawn = draw(logits);
  const auto bytes = weights_bytes();
  for (const FpMode mode : kFpModes) {
    CAPTURE(std::string(to_string(mode)));
    std::vector<S> logits_here;
    std::vector<TokenId> drawn_here;
    std::vector<std::byte> bytes_here;
    {
      const ScopedFpMode scope(mode);
      logits_here = decode();
      drawn_here = draw(logits);
      bytes_here = weights_bytes();
    }
    kvdecode_test::check_same_bits(logits_here, logits);
    CHECK(drawn_here == drawn);
    CHECK(bytes_here == bytes);
  }
}

TEST_CASE("environment: the caller's is back after a call, also after one that throws") {
  const RandomModel model("gqa");
  kvdecode::Decoder decoder(Transformer<float>(model.config, model.weights), Cached<>{.max_seq_len = 2});
  const TokenId token = 3;
  const ScopedFpMode scope(FpMode::kUpward);
  decoder.step(token);
  CHECK(std::fegetround() == FE_UPWARD);
  kvdecode::Workspace<float> workspace;
  ContiguousCache<F32> cache(decoder.transformer().kv_shape(), 2);
  const TokenId bad[] = {99};
  CHECK_THROWS_AS(
      decoder.transformer().forward(workspace, {}, kvdecode::Segment<ContiguousCache<F32>>{&cache, bad}),
      kvdecode::Error);
  CHECK(std::fegetround() == FE_UPWARD);
}

}  // namespace

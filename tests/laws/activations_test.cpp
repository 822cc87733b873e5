// SPDX-License-Identifier: MIT
// The laws with quantized weights, under every policy of activations, on one to four threads.
#include <laws/laws.hpp>
#include <support/block_formats.hpp>
#include <support/block_weights.hpp>
#include <support/compare.hpp>
#include <support/executors.hpp>
#include <support/model.hpp>
#include <support/random.hpp>

#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/core/thread_team.hpp>
#include <kvdecode/decode/strategies.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

using namespace kvdecode_laws;
using kvdecode::ContiguousCache;
using kvdecode::ExactActivations;
using kvdecode::ExecutorRef;
using kvdecode::F16;
using kvdecode::F32;
using kvdecode::F64;
using kvdecode::GgufFormats;
using kvdecode::GrowingCache;
using kvdecode::Index;
using kvdecode::Int8Activations;
using kvdecode::TokenId;
using kvdecode::Transformer;
using kvdecode_test::for_each_block_format;

constexpr Index kLength = 11;

/// Rows of d_ff numbers have more than one block of every format.
kvdecode::ModelConfig config_of(Index number) {
  constexpr Index n = static_cast<Index>(std::size(kvdecode_test::kSmallConfigs));
  kvdecode::ModelConfig config = kvdecode_test::config_of(kvdecode_test::kSmallConfigs[number % n]);
  config.d_ff = 288;
  return config;
}

std::vector<TokenId> tokens() {
  return kvdecode_test::random_tokens(kLength, kvdecode_test::small_config().vocab_size, 5);
}

template <class Cache, class T>
void check_laws(const T& transformer, std::string_view what) {
  using S = typename T::scalar;
  if (transformer.config().rotary_epoch(kLength) != 0) return;  // laws of a cache run on through all lengths
  const std::vector<TokenId> sequence = tokens();
  Answers<S> answers;
  add_answers<typename Cache::KeyFormat, typename Cache::ValueFormat>(answers, transformer, sequence,
                                                                      lengths_up_to(kLength));
  kvdecode::ThreadTeam one(1), two(2);
  kvdecode_test::BackwardsExecutor three{3},
      four{4};  // the work of as many threads, without waiting for cores
  for (const ExecutorRef exec : {ExecutorRef(one), ExecutorRef(two), ExecutorRef(three), ExecutorRef(four)}) {
    const Index n_threads = exec.concurrency();
    const Setting<T> setting{transformer, exec, sequence, answers, 2 * n_threads + 1};
    std::vector<Violation> violations = violated_by_strategy(
        setting, kvdecode::Cached<Cache>{.max_seq_len = kLength, .prefill_chunk = 4 * n_threads});
    for (Violation& v : violated_by_cache<Cache>(setting)) violations.push_back(std::move(v));
    CHECK(violations.empty());
    for (const Violation& v : violations)
      FAIL_CHECK(std::string(v.law) << ", " << what << ", " << n_threads << " threads:\n  " << v.difference);
  }
}

TEST_CASE_TEMPLATE("laws: hold for every format of blocks", Activations, ExactActivations, Int8Activations) {
  for_each_block_format([]<class F>(Index number) {
    const kvdecode::ModelConfig config = config_of(number);
    const Transformer<float, Activations, GgufFormats> transformer(
        config, kvdecode_test::random_block_weights<F>(config, static_cast<std::uint64_t>(number)));
    if (number % 2 == 0)
      check_laws<GrowingCache<F32>>(transformer, F::kName);
    else
      check_laws<ContiguousCache<F16>>(transformer, F::kName);
  });
}

TEST_CASE_TEMPLATE("laws: hold for latent attention and for inputs of layers in blocks", Activations,
                   ExactActivations, Int8Activations) {
  for (const char* const words : {"mla_q interleaved best_groups", "borrowed own_head_dims layer_inputs"}) {
    kvdecode::ModelConfig config = kvdecode_test::config_of(words);
    config.d_ff = 288;
    if (config.d_layer_input > 0) config.d_layer_input = 33;
    const Transformer<float, Activations, GgufFormats> transformer(
        config, kvdecode_test::random_block_weights<kvdecode::Q4_0>(config, 7));
    check_laws<GrowingCache<F32>>(transformer, words);
  }
}

TEST_CASE("laws: hold in double for activations rounded to bytes") {
  for_each_block_format([]<class F>(Index number) {
    const kvdecode::ModelConfig config = config_of(number + 5);
    const Transformer<double, Int8Activations, GgufFormats> transformer(
        config, kvdecode_test::random_block_weights<F>(config, static_cast<std::uint64_t>(number)));
    check_laws<GrowingCache<F64>>(transformer, F::kName);
  });
}

template <class Activations>
std::vector<float> last_logits(const kvdecode::ModelConfig& config, const kvdecode::Weights& weights) {
  const Transformer<float, Activations, GgufFormats> transformer(config, weights);
  const std::vector<TokenId> sequence = tokens();
  Answers<float> answers;
  add_answers<F32>(answers, transformer, sequence, {kLength});
  return *answers.find(kLength);
}

TEST_CASE("laws: rounding activations changes quantized models, and no others") {
  const kvdecode::ModelConfig config = config_of(0);
  for (const kvdecode::FormatId format : {kvdecode::FormatId::kF32, kvdecode::FormatId::kF16,
                                          kvdecode::FormatId::kBF16, kvdecode::FormatId::kF64}) {
    const kvdecode::Weights plain = kvdecode_test::random_weights(config, {.seed = 3, .format = format});
    kvdecode_test::check_same_bits(last_logits<Int8Activations>(config, plain),
                                   last_logits<ExactActivations>(config, plain));
  }
  const kvdecode::Weights blocks = kvdecode_test::random_block_weights<kvdecode::Q8_0>(config, 3);
  CHECK(last_logits<Int8Activations>(config, blocks) != last_logits<ExactActivations>(config, blocks));
}

}  // namespace

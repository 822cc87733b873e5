// SPDX-License-Identifier: MIT
#include <reference/numbers.hpp>
#include <support/fp_mode.hpp>
#include <support/model.hpp>

#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/model/check_weights.hpp>
#include <kvdecode/model/random_weights.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string_view>

namespace {

using kvdecode::FormatId;
using kvdecode::Index;
using kvdecode::LinearWeights;
using kvdecode::MatrixView;
using kvdecode::ModelConfig;
using kvdecode::NormWeights;
using kvdecode::RandomWeightsOptions;
using kvdecode::VectorView;
using kvdecode::Weights;
using kvdecode_test::config_of;

/// FNV-1a over the bytes of all tensors.
class Digest {
 public:
  void add(const std::byte* data, Index n) {
    for (Index i = 0; i < n; ++i)
      value_ = (value_ ^ std::to_integer<std::uint64_t>(data[i])) * 0x100000001b3u;
  }
  void add(const MatrixView& w) {
    if (!w.empty()) add(w.data, w.rows * w.stride);
  }
  void add(const VectorView& v) {
    if (!v.empty()) add(v.data, v.size * 4);
  }
  void add(const LinearWeights& w) { add(w.matrix), add(w.bias); }
  void add(const NormWeights& w) { add(w.weight), add(w.bias); }

  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

std::uint64_t digest(const Weights& weights) {
  Digest d;
  d.add(weights.token_embedding);
  d.add(weights.position_embedding);
  for (const auto& layer : weights.layers) {
    d.add(layer.attention_norm);
    for (const LinearWeights* w : {&layer.w_q, &layer.w_k, &layer.w_v, &layer.w_o}) d.add(*w);
    d.add(layer.feed_forward_norm);
    for (const LinearWeights* w : {&layer.w_gate, &layer.w_up, &layer.w_down}) d.add(*w);
  }
  d.add(weights.final_norm);
  d.add(weights.head);
  return d.value();
}

constexpr std::string_view kWords = "layer_norm learned";

TEST_CASE("random weights: a seed means these numbers, on every machine and in every release") {
  CHECK(digest(kvdecode::random_weights(config_of(kWords), {.seed = 1, .biases = true})) ==
        0x4eafa5525a2dcd9cu);
  CHECK(digest(kvdecode::random_weights(config_of("gqa"), {.seed = 7, .format = FormatId::kBF16})) ==
        0x8053eaaae935c368u);
}

TEST_CASE("random weights: do not depend on the host's floating-point environment") {
  const std::uint64_t expected = digest(kvdecode::random_weights(config_of(kWords)));
  for (const kvdecode_test::FpMode mode : kvdecode_test::kFpModes) {
    const ModelConfig config = config_of(kWords);
    std::uint64_t actual = 0;
    {
      const kvdecode_test::ScopedFpMode scope(mode);
      actual = digest(kvdecode::random_weights(config));
    }
    CHECK(actual == expected);
  }
}

TEST_CASE("random weights: another seed, other numbers") {
  const ModelConfig config = config_of("gqa");
  CHECK(digest(kvdecode::random_weights(config, {.seed = 1})) == digest(kvdecode::random_weights(config)));
  CHECK(digest(kvdecode::random_weights(config, {.seed = 2})) != digest(kvdecode::random_weights(config)));
}

TEST_CASE("random weights: fit every small config in every format") {
  for (const std::string_view words : kvdecode_test::kSmallConfigs)
    for (const FormatId format : {FormatId::kF64, FormatId::kF32, FormatId::kF16, FormatId::kBF16}) {
      CAPTURE(words);
      const ModelConfig config = config_of(words);
      const Weights weights = kvdecode::random_weights(config, {.format = format, .biases = true});
      CHECK_NOTHROW(kvdecode::check_weights<kvdecode::CoreFormats>(config, weights));
      CHECK(weights.layers[1].w_o.matrix.format == format);
      CHECK(!weights.layers[1].w_o.bias.empty());
      CHECK(weights.head.matrix.empty() == config.tied_head);
    }
}

TEST_CASE("random weights: the formats hold the same numbers, rounded") {
  const ModelConfig config = config_of("gqa");
  const Weights exact = kvdecode::random_weights(config, {.format = FormatId::kF64});
  const auto expected = kvdecode_reference::read(exact.layers[1].w_down.matrix);
  for (const FormatId format : {FormatId::kF32, FormatId::kF16, FormatId::kBF16}) {
    const Weights weights = kvdecode::random_weights(config, {.format = format});
    const auto actual = kvdecode_reference::read(weights.layers[1].w_down.matrix);
    int n_wrong = 0;
    for (std::size_t r = 0; r < expected.size(); ++r)
      for (std::size_t c = 0; c < expected[r].size(); ++c)
        n_wrong += actual[r][c] !=
                   kvdecode_reference::decode(format, kvdecode_reference::encode(format, expected[r][c]));
    CHECK(n_wrong == 0);
  }
}

TEST_CASE("random weights: a matrix keeps the size of what it multiplies, norms are near one") {
  ModelConfig config = config_of("gqa");
  config.d_ff = 400;
  const Weights weights = kvdecode::random_weights(config);
  double squares = 0.0, sum = 0.0;
  for (const auto& row : kvdecode_reference::read(weights.layers[0].w_down.matrix))
    for (const double x : row) squares += x * x, sum += x;
  const double n = 32 * 400;
  CHECK(squares / n == doctest::Approx(1.0 / 400).epsilon(0.05));
  CHECK(std::abs(sum / n) < 0.002);
  for (const double x : kvdecode_reference::read(weights.final_norm.weight)) CHECK(std::abs(x - 1.0) < 0.5);
}

TEST_CASE("random weights: a config that cannot be run, and raw numbers, are refused") {
  ModelConfig config = config_of("gqa");
  config.d_ff = 0;
  CHECK_THROWS_WITH_AS(kvdecode::random_weights(config), "model config: d_ff must be positive, got 0",
                       kvdecode::Error);
  CHECK_THROWS_WITH_AS(kvdecode::random_weights(config_of("gqa"), {.format = FormatId::kRaw}),
                       "random weights are made in f64, f32, f16 or bf16", kvdecode::Error);
}

}  // namespace

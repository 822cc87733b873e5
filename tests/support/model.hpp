// SPDX-License-Identifier: MIT
// <support/model.hpp> - small models for tests: configs named by their switches, a list of them in which
// every two settings meet, and random weights for any config in any storage format.
#pragma once

#include <reference/numbers.hpp>
#include <support/random.hpp>

#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode_test {

using kvdecode::AttentionSpan;
using kvdecode::LayerWeights;
using kvdecode::LinearWeights;
using kvdecode::MatrixView;
using kvdecode::ModelConfig;
using kvdecode::NormWeights;
using kvdecode::VectorView;
using kvdecode::Weights;

/// A Llama in small, with sizes that are no multiple of one another: n_heads * head_dim != d_model, groups of
/// three heads, an odd vocabulary.
inline ModelConfig small_config() {
  ModelConfig config;
  config.n_layers = 2;
  config.d_model = 32;
  config.n_heads = 6;
  config.n_kv_heads = 2;
  config.head_dim = 8;
  config.d_ff = 44;
  config.vocab_size = 37;
  config.max_seq_len = 320;
  return config;
}

/// Changes one switch of small_config():
///
///   gqa mha mqa                                  heads 6/2, 4/4, 4/1
///   hd8 hd5 hd12 hd16                            head_dim; 5 needs partial, learned or no_positions
///   rms layer_norm
///   silu gelu gelu_tanh relu relu2
///   gated plain                                  feed-forward
///   sequential parallel shared                   residual; shared: one norm for both branches
///   rotary learned no_positions
///   halves interleaved                           rotary pairs
///   whole partial                                rotary dimension; partial: about half of head_dim
///   unscaled linear llama3                       rotary scaling
///   untied tied                                  head
///   full sliding sinks sinks_within chunk mixed mixed_sinks
///       spans: everything; window 5; window 6 and 2 sinks at their true distance, or within the window;
///       chunks of 4; the layers in turn {window 5, everything}, {everything, window 6 and 2 sinks within}
///   default_scale scale                          attention_scale 0 or 0.3
inline void set_switch(ModelConfig& config, std::string_view word) {
  using kvdecode::Activation;
  using kvdecode::NormKind;
  using kvdecode::PositionKind;
  using kvdecode::ResidualKind;
  using kvdecode::RotaryPairs;
  using kvdecode::RotaryScalingKind;
  using kvdecode::SinkRotation;

  const auto heads = [&](Index n_heads, Index n_kv_heads) {
    config.n_heads = n_heads;
    config.n_kv_heads = n_kv_heads;
  };
  const auto spans = [&](AttentionSpan even, AttentionSpan odd, SinkRotation rotation) {
    config.spans.clear();
    for (Index layer = 0; layer < config.n_layers; ++layer)
      config.spans.push_back(layer % 2 == 0 ? even : odd);
    config.sink_rotation = rotation;
  };
  constexpr AttentionSpan kFull{};
  constexpr AttentionSpan kSliding{.window = 5};
  constexpr AttentionSpan kSinks{.window = 6, .n_sink = 2};
  constexpr AttentionSpan kChunk{.chunk = 4};

  if (word == "gqa") return heads(6, 2);
  if (word == "mha") return heads(4, 4);
  if (word == "mqa") return heads(4, 1);
  if (word == "hd5") return void(config.head_dim = 5);
  if (word == "hd8") return void(config.head_dim = 8);
  if (word == "hd12") return void(config.head_dim = 12);
  if (word == "hd16") return void(config.head_dim = 16);
  if (word == "rms") return void(config.norm = NormKind::kRms);
  if (word == "layer_norm") return void(config.norm = NormKind::kLayer);
  if (word == "silu") return void(config.activation = Activation::kSilu);
  if (word == "gelu") return void(config.activation = Activation::kGelu);
  if (word == "gelu_tanh") return void(config.activation = Activation::kGeluTanh);
  if (word == "relu") return void(config.activation = Activation::kRelu);
  if (word == "relu2") return void(config.activation = Activation::kReluSquared);
  if (word == "gated") return void(config.gated_feed_forward = true);
  if (word == "plain") return void(config.gated_feed_forward = false);
  if (word == "sequential") return void(config.residual = ResidualKind::kSequential);
  if (word == "parallel") return void(config.residual = ResidualKind::kParallel);
  if (word == "shared") return void(config.residual = ResidualKind::kParallelSharedNorm);
  if (word == "rotary") return void(config.position = PositionKind::kRotary);
  if (word == "learned") return void(config.position = PositionKind::kLearned);
  if (word == "no_positions") return void(config.position = PositionKind::kNone);
  if (word == "halves") return void(config.rotary.pairs = RotaryPairs::kHalves);
  if (word == "interleaved") return void(config.rotary.pairs = RotaryPairs::kInterleaved);
  if (word == "whole") return void(config.rotary.dim = 0);
  if (word == "partial") return void(config.rotary.dim = 2 * ((config.head_dim + 2) / 4));
  if (word == "unscaled") return void(config.rotary.scaling = {});
  if (word == "linear")
    return void(config.rotary.scaling = {.kind = RotaryScalingKind::kLinear, .factor = 4.0});
  if (word == "llama3")  // of the pairs of head_dim 8, one is kept, one blended, two are divided
    return void(config.rotary.scaling = {.kind = RotaryScalingKind::kLlama3,
                                         .factor = 8.0,
                                         .low_freq_factor = 1.0,
                                         .high_freq_factor = 4.0,
                                         .original_max_seq_len = 96});
  if (word == "untied") return void(config.tied_head = false);
  if (word == "tied") return void(config.tied_head = true);
  if (word == "full") return spans(kFull, kFull, SinkRotation::kAbsolute);
  if (word == "sliding") return spans(kSliding, kSliding, SinkRotation::kAbsolute);
  if (word == "sinks") return spans(kSinks, kSinks, SinkRotation::kAbsolute);
  if (word == "sinks_within") return spans(kSinks, kSinks, SinkRotation::kWithinWindow);
  if (word == "chunk") return spans(kChunk, kChunk, SinkRotation::kAbsolute);
  if (word == "mixed") return spans(kSliding, kFull, SinkRotation::kAbsolute);
  if (word == "mixed_sinks") return spans(kFull, kSinks, SinkRotation::kWithinWindow);
  if (word == "default_scale") return void(config.attention_scale = 0.0);
  if (word == "scale") return void(config.attention_scale = 0.3);
  throw std::invalid_argument("no such switch: " + std::string(word));
}

/// small_config() with the switches of a list of words set in order, separated by single spaces.
inline ModelConfig config_of(std::string_view words) {
  ModelConfig config = small_config();
  while (!words.empty()) {
    const std::size_t end = words.find(' ');
    set_switch(config, words.substr(0, end));
    words = end == std::string_view::npos ? std::string_view{} : words.substr(end + 1);
  }
  return config;
}

/// Configs, as words for config_of(), in which every two settings of different switches occur together at
/// least once (unless they exclude each other). Settings of small_config() are left out.
inline constexpr std::string_view kSmallConfigs[] = {
    "gqa",
    "hd5 layer_norm gelu_tanh plain shared interleaved partial linear scale",
    "hd16 gelu parallel interleaved llama3 tied scale",
    "mqa plain parallel partial scale",
    "mha hd5 gelu plain parallel partial linear tied sliding",
    "hd12 relu parallel partial tied sliding",
    "mqa hd16 layer_norm relu2 interleaved llama3 tied sliding",
    "hd12 layer_norm relu2 plain shared linear tied sinks scale",
    "hd16 layer_norm gelu_tanh plain shared interleaved partial llama3 sinks",
    "mqa hd5 relu plain interleaved partial sinks",
    "mha gelu_tanh interleaved sinks_within",
    "hd5 plain partial linear sinks_within",
    "mqa hd12 layer_norm relu2 plain parallel partial llama3 sinks_within scale",
    "hd5 relu2 plain interleaved partial chunk scale",
    "shared interleaved llama3 tied chunk",
    "mqa hd12 layer_norm relu plain parallel linear chunk scale",
    "mha relu shared interleaved partial llama3 mixed",
    "relu2 plain shared interleaved partial linear mixed scale",
    "hd16 layer_norm plain mixed scale",
    "mha hd5 partial llama3 mixed_sinks scale",
    "mha hd16 layer_norm gelu_tanh parallel linear tied mixed_sinks scale",
    "mqa hd12 gelu shared interleaved partial tied mixed_sinks",
    "mqa hd12 layer_norm relu parallel learned tied",
    "layer_norm gelu plain shared learned sliding scale",
    "mqa hd12 layer_norm shared learned tied sliding scale",
    "mha gelu plain parallel learned sinks",
    "mha hd16 relu shared learned tied sinks_within scale",
    "hd16 layer_norm gelu_tanh parallel learned tied chunk",
    "mqa hd5 gelu_tanh parallel learned tied mixed",
    "layer_norm relu2 plain learned mixed_sinks",
    "mha hd12 relu2 no_positions tied",
    "mqa hd12 layer_norm gelu_tanh plain shared no_positions sliding scale",
    "mha layer_norm parallel no_positions sinks scale",
    "gelu no_positions tied sinks_within scale",
    "mha hd16 gelu plain no_positions chunk scale",
    "mha hd12 gelu no_positions tied mixed",
    "hd5 layer_norm relu plain shared no_positions tied mixed_sinks scale",
};

/// How random weights are stored, and what there is of them.
struct RandomWeightsOptions {
  std::uint64_t seed = 1;
  FormatId format = FormatId::kF32;
  bool biases = false;      // of all linear maps and LayerNorms
  bool transposed = false;  // all matrices but the embeddings
  Index offset = 0;         // bytes from alignment
  Index row_padding = 0;    // bytes between one stored row and the next
};

/// Makes vectors and matrices of random numbers, rounded to the format, and keeps them.
class RandomNumbers {
 public:
  explicit RandomNumbers(const RandomWeightsOptions& options) : options_(options), random_(options.seed) {}

  /// mean + deviation * normal, n times.
  VectorView vector(Index n, double mean, double deviation) {
    const Index element_bytes = kvdecode_reference::binary_format(options_.format).n_bytes();
    std::byte* data = allocate(n * element_bytes);
    for (Index i = 0; i < n; ++i) put(data + i * element_bytes, mean, deviation);
    return {options_.format, data, n};
  }

  /// deviation * normal for each element of W. [rows, cols]
  MatrixView matrix(Index rows, Index cols, double deviation, bool transposed) {
    MatrixView w{options_.format, nullptr, rows, cols, 0, transposed};
    const Index element_bytes = kvdecode_reference::binary_format(options_.format).n_bytes();
    const Index row_bytes = w.stored_cols() * element_bytes;
    w.stride = row_bytes + options_.row_padding;
    std::byte* data = allocate((w.stored_rows() - 1) * w.stride + row_bytes);
    // By (row, col) of W, so that a seed means the same W whether transposed or not.
    for (Index r = 0; r < rows; ++r)
      for (Index c = 0; c < cols; ++c)
        put(data + (transposed ? c : r) * w.stride + (transposed ? r : c) * element_bytes, 0.0, deviation);
    w.data = data;
    return w;
  }

  /// y = W x (+ b) with y of the magnitude of x.
  LinearWeights linear(Index d_out, Index d_in) {
    LinearWeights weights;
    weights.matrix = matrix(d_out, d_in, 1.0 / std::sqrt(static_cast<double>(d_in)), options_.transposed);
    if (options_.biases) weights.bias = vector(d_out, 0.0, 0.2);
    return weights;
  }

  NormWeights norm(kvdecode::NormKind kind, Index d_model) {
    NormWeights weights;
    weights.weight = vector(d_model, 1.0, 0.2);
    if (options_.biases && kind == kvdecode::NormKind::kLayer) weights.bias = vector(d_model, 0.0, 0.2);
    return weights;
  }

  /// What keeps all of it in memory.
  std::vector<std::shared_ptr<const void>> take_owners() { return std::move(owners_); }

 private:
  std::byte* allocate(Index n_bytes) {
    const OffsetBytes bytes(n_bytes, options_.offset);
    owners_.push_back(bytes.owner());
    return bytes.data();
  }
  void put(std::byte* data, double mean, double deviation) {
    const double value = mean + deviation * random_.normal();
    kvdecode_reference::store_bits(options_.format, kvdecode_reference::encode(options_.format, value), data);
  }

  RandomWeightsOptions options_;
  SplitMix64 random_;
  std::vector<std::shared_ptr<const void>> owners_;
};

/// Random numbers for every tensor that the config asks for, of magnitudes that keep activations around 1.
/// Equal seeds and sizes give equal numbers, but for rounding, in every format and storage.
inline Weights random_weights(const ModelConfig& config, const RandomWeightsOptions& options = {}) {
  RandomNumbers numbers(options);
  const Index d_q = config.n_heads * config.head_dim;
  const Index d_kv = config.n_kv_heads * config.head_dim;
  Weights weights;
  weights.token_embedding = numbers.matrix(config.vocab_size, config.d_model, 1.0, false);
  if (config.position == kvdecode::PositionKind::kLearned)
    weights.position_embedding = numbers.matrix(config.max_seq_len, config.d_model, 0.5, false);
  for (Index i = 0; i < config.n_layers; ++i) {
    LayerWeights layer;
    layer.attention_norm = numbers.norm(config.norm, config.d_model);
    layer.w_q = numbers.linear(d_q, config.d_model);
    layer.w_k = numbers.linear(d_kv, config.d_model);
    layer.w_v = numbers.linear(d_kv, config.d_model);
    layer.w_o = numbers.linear(config.d_model, d_q);
    if (config.residual != kvdecode::ResidualKind::kParallelSharedNorm)
      layer.feed_forward_norm = numbers.norm(config.norm, config.d_model);
    if (config.gated_feed_forward) layer.w_gate = numbers.linear(config.d_ff, config.d_model);
    layer.w_up = numbers.linear(config.d_ff, config.d_model);
    layer.w_down = numbers.linear(config.d_model, config.d_ff);
    weights.layers.push_back(layer);
  }
  weights.final_norm = numbers.norm(config.norm, config.d_model);
  if (!config.tied_head) weights.head = numbers.linear(config.vocab_size, config.d_model);
  weights.owners = numbers.take_owners();
  return weights;
}

/// A config with random weights, which it owns; copies share them.
struct RandomModel {
  ModelConfig config;
  Weights weights;

  explicit RandomModel(ModelConfig model_config, const RandomWeightsOptions& options = {})
      : config(std::move(model_config)), weights(random_weights(config, options)) {}
  explicit RandomModel(std::string_view words, const RandomWeightsOptions& options = {})
      : RandomModel(config_of(words), options) {}
};

}  // namespace kvdecode_test

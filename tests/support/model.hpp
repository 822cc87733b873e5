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
///   mla mla_q                                    latent attention of 5 heads of 7 + 6, queries as they are or behind a
///                                                norm of their own; after all words on heads, instead of hd…
///   hd8 hd5 hd12 hd16                            head_dim; 5 needs partial, learned or no_positions
///   rms layer_norm
///   silu gelu gelu_tanh relu relu2
///   gated plain                                  feed-forward
///   sequential parallel shared                   residual; shared: one norm for both branches
///   pre_norms post_norms both_norms              norms before and after the branches; the last two: sequential only
///   no_offset norm_offset                        norms are stored as they are, or less one
///   rotary learned no_positions
///   halves interleaved                           rotary pairs
///   whole partial                                rotary dimension; partial: about half of head_dim
///   unscaled linear llama3 yarn dynamic longrope divisors
///       rotary scaling, after all words on heads and rotary dimension; beyond 9 positions the angles of dynamic and
///       longrope depend on the length
///   alike own_angles half_turned
///       rotary positions of the layers, after all words on them: all alike; odd layers unscaled with another theta;
///       odd layers not turned at all
///   untied tied                                  head
///   full sliding sinks sinks_within chunk mixed mixed_sinks
///       spans: everything; window 5; window 6 and 2 sinks at their true distance, or within the window;
///       chunks of 4; the layers in turn {window 5, everything}, {everything, window 6 and 2 sinks within}
///   default_scale scale                          attention_scale 0 or 0.3
///   no_qk_norm head_norms whole_norms            norms of queries and keys: of each head, of all together
///   uncapped capped                              soft caps of scores and logits
///   plain_embedding scaled_embedding
///   own_stores borrowed                          borrowed: three layers, of which the last reads the first one's keys and values;
///                                                before all words on what layers differ in
///   one_head_dim own_head_dims                   own_head_dims: heads of odd layers are twice as long; after all words on heads
///   standing                                     rotary: one pair of a head does not turn; after all words on heads
///   plain_values value_norm
///   no_inputs layer_inputs                       layer_inputs: of six numbers
///   dense experts raw_experts some_experts
///       feed-forward; 2 of 5 experts; 3 of 4, their probabilities as they are; 2 of 5 in odd layers only
///   best_groups balanced_experts
///       as DeepSeek-V2 has them: 3 of 8 experts of the 2 best of 4 groups, their probabilities 1.5 times, beside one for
///       all tokens; as DeepSeek-V3 has them, in odd layers only: sigmoids, groups by their best two, normalized
inline void set_switch(ModelConfig& config, std::string_view word) {
  using kvdecode::Activation;
  using kvdecode::NormKind;
  using kvdecode::NormPlacement;
  using kvdecode::PositionKind;
  using kvdecode::QkNormKind;
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
  const auto factors = [&](double first, double ratio) {  // one a rotary pair
    std::vector<double> result;
    for (Index i = 0; i < config.rotary_dim() / 2; ++i)
      result.push_back(i == 0 ? first : ratio * result.back());
    return result;
  };
  const auto odd_layers_turn = [&](const kvdecode::RotaryConfig& odd) {
    config.layer_rotary.clear();
    for (Index layer = 0; layer < config.n_layers; ++layer)
      config.layer_rotary.push_back(layer % 2 == 0 ? config.rotary : odd);
  };
  const auto experts = [&](Index n, Index n_used, Index d_expert, bool normalize) {
    config.n_experts = n;
    config.n_experts_used = n_used;
    config.d_expert = d_expert;
    config.normalize_expert_weights = normalize;
    config.has_experts.clear();
  };
  constexpr AttentionSpan kFull{};
  constexpr AttentionSpan kSliding{.window = 5};
  constexpr AttentionSpan kSinks{.window = 6, .n_sink = 2};
  constexpr AttentionSpan kChunk{.chunk = 4};

  if (word == "gqa") return heads(6, 2);
  if (word == "mha") return heads(4, 4);
  if (word == "mqa") return heads(4, 1);
  if (word == "mla" || word == "mla_q") {
    heads(5, 1);
    config.head_dim = 13;
    config.qk_nope_head_dim = 7;
    config.kv_lora_rank = 18;
    config.v_head_dim = 9;
    config.q_lora_rank = word == "mla" ? 0 : 21;
    return;
  }
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
  if (word == "partial") return void(config.rotary.dim = 2 * ((config.qk_rope_head_dim() + 2) / 4));
  if (word == "unscaled") return void(config.rotary.scaling = {});
  if (word == "linear")
    return void(config.rotary.scaling = {.kind = RotaryScalingKind::kLinear, .factor = 4.0});
  if (word == "llama3")  // of the pairs of head_dim 8, one is kept, one blended, two are divided
    return void(config.rotary.scaling = {.kind = RotaryScalingKind::kLlama3,
                                         .factor = 8.0,
                                         .low_freq_factor = 1.0,
                                         .high_freq_factor = 4.0,
                                         .original_max_seq_len = 96});
  if (word == "yarn")
    return void(config.rotary.scaling = {.kind = RotaryScalingKind::kYarn,
                                         .factor = 4.0,
                                         .original_max_seq_len = 96,
                                         .beta_fast = 8.0,
                                         .magnitude = 1.25});
  if (word == "dynamic")
    return void(config.rotary.scaling = {
                    .kind = RotaryScalingKind::kDynamic, .factor = 2.0, .original_max_seq_len = 9});
  if (word == "longrope")
    return void(config.rotary.scaling = {.kind = RotaryScalingKind::kLongrope,
                                         .original_max_seq_len = 9,
                                         .magnitude = 1.125,
                                         .short_factors = factors(1.0, 1.25),
                                         .long_factors = factors(1.5, 2.0)});
  if (word == "divisors")
    return void(
        config.rotary.scaling = {.kind = RotaryScalingKind::kDivisors, .short_factors = factors(1.25, 3.0)});
  if (word == "alike") return config.layer_rotary.clear();
  if (word == "own_angles")
    return odd_layers_turn({.dim = config.rotary.dim, .theta = 50.0, .pairs = config.rotary.pairs});
  if (word == "half_turned") return odd_layers_turn({.enabled = false});
  if (word == "pre_norms") return void(config.norm_placement = NormPlacement::kPre);
  if (word == "post_norms") return void(config.norm_placement = NormPlacement::kPost);
  if (word == "both_norms") return void(config.norm_placement = NormPlacement::kBoth);
  if (word == "no_offset") return void(config.norm_weight_offset = 0.0);
  if (word == "norm_offset") return void(config.norm_weight_offset = 1.0);
  if (word == "no_qk_norm") return void(config.qk_norm = QkNormKind::kNone);
  if (word == "head_norms") return void(config.qk_norm = QkNormKind::kPerHead);
  if (word == "whole_norms") return void(config.qk_norm = QkNormKind::kWhole);
  if (word == "uncapped") return void(config.attention_soft_cap = config.logit_soft_cap = 0.0);
  if (word == "capped") {
    config.attention_soft_cap = 0.75;
    config.logit_soft_cap = 2.5;
    return;
  }
  if (word == "plain_embedding") return void(config.embedding_scale = 1.0);
  if (word == "scaled_embedding") return void(config.embedding_scale = 5.65);
  if (word == "own_stores") return config.kv_stores.clear();
  if (word == "borrowed") {
    config.n_layers = 3;
    config.kv_stores = {0, 1, 0};
    return;
  }
  if (word == "one_head_dim") return config.layer_head_dim.clear();
  if (word == "own_head_dims") {
    for (Index layer = 0; layer < config.n_layers; ++layer)
      config.layer_head_dim.push_back(layer % 2 == 0 ? config.head_dim : 2 * config.head_dim);
    return;
  }
  if (word == "standing")
    return void(config.rotary.scaling = {.kind = RotaryScalingKind::kProportional,
                                         .factor = 2.0,
                                         .n_turning = config.rotary_dim() / 2 - 1});
  if (word == "plain_values") return void(config.value_norm = false);
  if (word == "value_norm") return void(config.value_norm = true);
  if (word == "no_inputs") return void(config.d_layer_input = 0);
  if (word == "layer_inputs") {
    config.d_layer_input = 6;
    config.layer_embedding_scale = 1.5;
    return;
  }
  if (word == "dense") return experts(0, 0, 0, true);
  if (word == "experts") return experts(5, 2, 20, true);
  if (word == "raw_experts") return experts(4, 3, 60, false);
  if (word == "some_experts") {
    experts(5, 2, 28, true);
    for (Index layer = 0; layer < config.n_layers; ++layer) config.has_experts.push_back(layer % 2 != 0);
    return;
  }
  if (word == "best_groups" || word == "balanced_experts") {
    const bool is_balanced = word == "balanced_experts";
    experts(8, 3, 12, is_balanced);
    config.n_expert_groups = 4;
    config.n_expert_groups_used = 2;
    config.expert_weight_scale = 1.5;
    config.d_shared_expert = 26;
    if (!is_balanced) return;
    config.expert_score = kvdecode::ExpertScore::kSigmoid;
    config.expert_group_score = kvdecode::ExpertGroupScore::kTopTwo;
    for (Index layer = 0; layer < config.n_layers; ++layer) config.has_experts.push_back(layer % 2 != 0);
    return;
  }
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
/// least once (unless they exclude each other; linear and divisors count as one setting, so do llama3 and yarn, and
/// dynamic and longrope). Settings of small_config() are left out. The last ones are of latent attention, and of experts
/// in groups: those meet what they can.
inline constexpr std::string_view kSmallConfigs[] = {
    "gqa",
    "hd5 layer_norm gelu_tanh plain shared interleaved partial linear own_angles head_norms scale capped "
    "scaled_embedding norm_offset some_experts",
    "hd16 gelu parallel interleaved yarn half_turned whole_norms tied scale scaled_embedding norm_offset "
    "experts",
    "mqa plain parallel partial half_turned whole_norms scale capped raw_experts",
    "mha hd5 gelu plain parallel partial divisors own_angles tied sliding some_experts",
    "hd12 relu parallel partial head_norms tied sliding capped scaled_embedding norm_offset raw_experts",
    "mqa hd16 layer_norm relu2 both_norms interleaved yarn own_angles head_norms tied sliding capped",
    "hd12 layer_norm relu2 plain shared linear tied sinks scale norm_offset experts",
    "hd16 layer_norm gelu_tanh plain shared interleaved partial llama3 half_turned sinks capped "
    "scaled_embedding raw_experts",
    "mqa hd5 relu plain post_norms interleaved partial own_angles whole_norms sinks scaled_embedding experts",
    "mha gelu_tanh both_norms interleaved whole_norms sinks_within scaled_embedding norm_offset some_experts",
    "hd5 plain post_norms partial linear half_turned head_norms sinks_within capped scaled_embedding "
    "norm_offset",
    "mqa hd12 layer_norm relu2 plain parallel partial yarn half_turned whole_norms sinks_within scale capped "
    "scaled_embedding some_experts",
    "hd5 relu2 plain both_norms interleaved partial head_norms chunk scale norm_offset raw_experts",
    "shared interleaved yarn own_angles whole_norms tied chunk capped scaled_embedding experts",
    "mqa hd12 layer_norm relu plain parallel linear half_turned chunk scale capped norm_offset",
    "mha relu shared interleaved partial llama3 half_turned head_norms mixed capped norm_offset experts",
    "relu2 plain shared interleaved partial linear own_angles whole_norms mixed scale scaled_embedding",
    "hd16 layer_norm plain post_norms mixed scale capped some_experts",
    "mha hd5 post_norms partial llama3 head_norms mixed_sinks scale raw_experts",
    "mha hd16 layer_norm gelu_tanh parallel divisors own_angles whole_norms tied mixed_sinks scale capped "
    "scaled_embedding norm_offset",
    "mqa hd12 gelu shared interleaved partial head_norms tied mixed_sinks capped scaled_embedding",
    "mqa hd12 layer_norm relu parallel learned tied capped norm_offset some_experts",
    "layer_norm gelu plain shared learned whole_norms sliding scale scaled_embedding raw_experts",
    "mqa hd12 layer_norm shared learned head_norms tied sliding scale capped scaled_embedding experts",
    "mha gelu plain parallel learned head_norms sinks capped scaled_embedding",
    "mha hd16 relu shared learned tied sinks_within scale capped experts",
    "hd16 layer_norm gelu_tanh parallel learned whole_norms tied chunk capped norm_offset experts",
    "mqa hd5 gelu_tanh parallel learned tied mixed capped scaled_embedding norm_offset raw_experts",
    "layer_norm relu2 plain both_norms learned mixed_sinks capped scaled_embedding experts",
    "mha hd12 relu2 post_norms no_positions whole_norms tied capped norm_offset experts",
    "mqa hd12 layer_norm gelu_tanh plain shared no_positions sliding scale scaled_embedding raw_experts",
    "mha layer_norm parallel no_positions head_norms sinks scale capped scaled_embedding norm_offset "
    "some_experts",
    "gelu both_norms no_positions tied sinks_within scale scaled_embedding norm_offset raw_experts",
    "mha hd16 gelu plain post_norms no_positions whole_norms chunk scale capped some_experts",
    "mha hd12 gelu both_norms no_positions head_norms tied mixed capped scaled_embedding",
    "hd5 layer_norm relu plain shared no_positions whole_norms tied mixed_sinks scale scaled_embedding "
    "norm_offset some_experts",
    "hd5 both_norms partial longrope half_turned sinks scale capped scaled_embedding",
    "mha hd12 layer_norm relu plain parallel interleaved dynamic own_angles head_norms tied sinks_within "
    "norm_offset raw_experts",
    "mqa hd16 gelu_tanh plain post_norms interleaved longrope half_turned whole_norms sliding capped "
    "scaled_embedding norm_offset experts",
    "mqa relu2 shared partial dynamic half_turned tied mixed_sinks scale capped some_experts",
    "mqa gelu_tanh post_norms learned whole_norms tied sinks scale capped scaled_embedding norm_offset "
    "raw_experts",
    "mqa hd12 relu both_norms partial divisors capped scaled_embedding norm_offset raw_experts",
    "mqa gelu plain shared dynamic head_norms tied scale capped scaled_embedding norm_offset",
    "hd16 relu plain shared interleaved longrope half_turned head_norms tied chunk capped experts",
    "hd5 layer_norm gelu_tanh plain interleaved partial longrope half_turned whole_norms tied mixed scale "
    "scaled_embedding some_experts",
    // Latent attention, and the experts that come with it.
    "mla interleaved best_groups",
    "mla_q interleaved yarn scale balanced_experts",
    "mla_q mixed_sinks tied",
    "mla layer_norm gelu plain both_norms interleaved partial own_angles sinks_within scaled_embedding "
    "norm_offset balanced_experts",
    "mla_q parallel longrope chunk capped best_groups",
    "mla shared no_positions sliding experts",
    "gqa tied best_groups",
    // Layers that read another's keys and values, longer heads in some layers, and inputs of layers.
    "borrowed own_head_dims gelu_tanh both_norms standing own_angles tied mixed scale head_norms value_norm "
    "scaled_embedding layer_inputs",
    "borrowed mqa layer_norm plain interleaved partial chunk whole_norms layer_inputs some_experts",
    "borrowed mha hd16 own_head_dims interleaved sinks_within norm_offset value_norm",
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

  /// Matrices of each head whose rows are stored one head after another: rows [first, first + rows) of each `step`.
  std::vector<MatrixView> heads_of(const MatrixView& all, Index n_heads, Index first, Index rows,
                                   Index step) const {
    const Index element_bytes = kvdecode_reference::binary_format(options_.format).n_bytes();
    std::vector<MatrixView> result;
    for (Index h = 0; h < n_heads; ++h) {
      MatrixView w = all;
      w.data += (h * step + first) * (all.transposed ? element_bytes : all.stride);
      w.rows = rows;
      result.push_back(w);
    }
    return result;
  }

  /// Of a row of `size`, near one.
  NormWeights norm(const ModelConfig& config, Index size) {
    NormWeights weights;
    weights.weight = vector(size, 1.0 - config.norm_weight_offset, 0.2);
    if (options_.biases && config.norm == kvdecode::NormKind::kLayer) weights.bias = vector(size, 0.0, 0.2);
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
    const double value = std::fma(deviation, random_.normal(), mean);  // one rounding in every build
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
  Weights weights;
  weights.token_embedding = numbers.matrix(config.vocab_size, config.d_model, 1.0, false);
  if (config.position == kvdecode::PositionKind::kLearned)
    weights.position_embedding = numbers.matrix(config.max_seq_len, config.d_model, 0.5, false);
  const bool pre = config.norm_placement != kvdecode::NormPlacement::kPost;
  const bool post = config.norm_placement != kvdecode::NormPlacement::kPre;
  const auto feed_forward = [&](auto& w, Index d_ff) {
    if (config.gated_feed_forward) w.w_gate = numbers.linear(d_ff, config.d_model);
    w.w_up = numbers.linear(d_ff, config.d_model);
    w.w_down = numbers.linear(config.d_model, d_ff);
  };
  for (Index i = 0; i < config.n_layers; ++i) {
    LayerWeights layer;
    const Index head_dim = config.head_dim_of(i), d_q = config.n_heads * head_dim,
                d_kv = config.n_kv_heads * head_dim;
    if (pre) layer.attention_norm = numbers.norm(config, config.d_model);
    if (config.kv_lora_rank > 0) {
      const Index rank = config.kv_lora_rank, nope = config.qk_nope_head_dim, v = config.v_head_dim;
      if (config.q_lora_rank > 0) {
        layer.w_q_a = numbers.linear(config.q_lora_rank, config.d_model);
        layer.q_a_norm = numbers.norm(config, config.q_lora_rank);
      }
      layer.w_q = numbers.linear(d_q, config.q_lora_rank > 0 ? config.q_lora_rank : config.d_model);
      layer.w_kv_a = numbers.linear(rank + config.head_dim - nope, config.d_model);
      layer.kv_a_norm = numbers.norm(config, rank);
      const MatrixView kv_b = numbers.linear(config.n_heads * (nope + v), rank).matrix;
      layer.w_v_b = numbers.heads_of(kv_b, config.n_heads, nope, v, nope + v);
      for (MatrixView w : numbers.heads_of(kv_b, config.n_heads, 0, nope, nope + v)) {
        std::swap(w.rows, w.cols);
        w.transposed = !w.transposed;
        layer.w_k_b.push_back(w);
      }
    } else {
      layer.w_q = numbers.linear(d_q, config.d_model);
      if (config.owns_store(i)) layer.w_k = numbers.linear(d_kv, config.d_model);
      if (config.owns_store(i)) layer.w_v = numbers.linear(d_kv, config.d_model);
    }
    layer.w_o = numbers.linear(config.d_model, config.o_dim(head_dim));
    if (config.qk_norm != kvdecode::QkNormKind::kNone) {
      const bool whole = config.qk_norm == kvdecode::QkNormKind::kWhole;
      layer.q_norm = numbers.norm(config, whole ? d_q : head_dim);
      if (config.owns_store(i)) layer.k_norm = numbers.norm(config, whole ? d_kv : head_dim);
    }
    if (post) layer.attention_post_norm = numbers.norm(config, config.d_model);
    if (pre && config.residual != kvdecode::ResidualKind::kParallelSharedNorm)
      layer.feed_forward_norm = numbers.norm(config, config.d_model);
    if (post) layer.feed_forward_post_norm = numbers.norm(config, config.d_model);
    if (config.layer_has_experts(i)) {
      layer.router = numbers.linear(config.n_experts, config.d_model);
      layer.experts.resize(static_cast<std::size_t>(config.n_experts));
      for (kvdecode::ExpertWeights& expert : layer.experts) feed_forward(expert, config.d_expert);
      if (config.expert_score == kvdecode::ExpertScore::kSigmoid)
        layer.choice_bias = numbers.vector(config.n_experts, 0.0, 0.1);
      if (config.d_shared_expert > 0) feed_forward(layer.shared_expert, config.d_shared_expert);
    } else {
      feed_forward(layer, config.d_ff);
    }
    if (config.d_layer_input > 0) {
      layer.w_input_gate = numbers.linear(config.d_layer_input, config.d_model);
      layer.w_input_out = numbers.linear(config.d_model, config.d_layer_input);
      layer.input_post_norm = numbers.norm(config, config.d_model);
      layer.scale = i % 2 == 0 ? 0.75 : 1.0;
    }
    weights.layers.push_back(layer);
  }
  if (config.d_layer_input > 0) {
    const Index n_inputs = config.n_layers * config.d_layer_input;
    weights.layer_embedding = numbers.matrix(config.vocab_size, n_inputs, 1.0, false);
    weights.w_layer_inputs = numbers.linear(n_inputs, config.d_model);
    weights.w_layer_inputs.scale = 0.875;
    weights.layer_input_norm = numbers.norm(config, config.d_layer_input);
  }
  weights.final_norm = numbers.norm(config, config.d_model);
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

// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gguf_architecture.hpp> - what a family of GGUF models has to say about itself,
// and what many families have in common: sizes, rotary positions, windows, the tensors of a layer.
#pragma once

#include <kvdecode/io/architectures/common.hpp>
#include <kvdecode/io/architectures/gguf_fields.hpp>
#include <kvdecode/io/gguf_tensor_binder.hpp>

#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// One family. A key under its name that read_config() does not read, and that is not known as harmless here,
/// is refused by name: it might change the result. Some of what belongs to a config is a tensor.
struct GgufArchitecture {
  std::string_view name;                            // general.architecture
  std::span<const std::string_view> harmless_keys;  // without the name
  void (*read_config)(GgufFields& fields, GgufTensorBinder& tensors, ModelConfig& config);
  void (*bind_weights)(const ModelConfig& config, GgufTensorBinder& tensors, Weights& weights);
};

namespace detail {

// Whether the model was trained further in the scaling that it has.
inline constexpr std::string_view kGgufHarmlessKeys[] = {
    "rope.scaling.finetuned",
};

/// Layers, widths, heads, vocabulary, length; whether the token embedding serves as the head.
inline void read_gguf_sizes(GgufFields& fields, const GgufTensorBinder& tensors, ModelConfig& model) {
  model.n_layers = fields.positive_integer("block_count");
  model.max_seq_len = fields.positive_integer("context_length");
  model.d_model = fields.positive_integer("embedding_length");
  model.d_ff = fields.positive_integer("feed_forward_length");
  model.n_heads = fields.positive_integer("attention.head_count");
  model.n_kv_heads = fields.positive_integer("attention.head_count_kv", model.n_heads);
  model.head_dim = fields.positive_integer("attention.key_length", 0);
  if (model.head_dim == 0) {
    if (model.d_model % model.n_heads != 0) [[unlikely]]
      raise(ErrorCode::kBadFile, fields.source(), ": ", fields.name_of("embedding_length"), " ",
            model.d_model, " is not a multiple of ", fields.name_of("attention.head_count"), " ",
            model.n_heads, ", and there is no ", fields.name_of("attention.key_length"));
    model.head_dim = model.d_model / model.n_heads;
  }
  const Index value_dim = fields.positive_integer("attention.value_length", model.head_dim);
  if (value_dim != model.head_dim) [[unlikely]]
    raise(ErrorCode::kUnsupported, fields.source(), ": keys of ", model.head_dim, " and values of ",
          value_dim, " elements are not supported, only equal ones are");
  // Files of old have no key for it.
  const GgufTensor* const embedding = tensors.find("token_embd.weight");
  model.vocab_size = fields.positive_integer(
      "vocab_size", embedding != nullptr && embedding->rank == 2 ? embedding->extents[0] : 0);
  model.tied_head = !tensors.contains("output.weight");
}

/// Rotary positions: base, dimension, scaling. What frequencies are divided by may be tensors: rope_freqs.weight
/// or, beside each other, rope_factors_short.weight and rope_factors_long.weight (Ding 2024, LongRoPE).
/// @throws Error kUnsupported, naming what is not known
inline void read_gguf_rotary(GgufFields& fields, GgufTensorBinder& tensors, RotaryPairs pairs,
                             ModelConfig& model) {
  constexpr std::string_view kDivisors = "rope_freqs.weight", kShort = "rope_factors_short.weight",
                             kLong = "rope_factors_long.weight";
  constexpr std::string_view kOriginal = "rope.scaling.original_context_length";
  RotaryConfig& rotary = model.rotary;
  RotaryScaling& scaling = rotary.scaling;
  model.position = PositionKind::kRotary;
  rotary.pairs = pairs;
  rotary.theta = fields.positive_number("rope.freq_base", 10000.0);
  rotary.dim = fields.positive_integer("rope.dimension_count", model.head_dim);

  const std::optional<double> old_factor = fields.as_positive_number("rope.scale_linear");
  const std::optional<double> factor = fields.as_positive_number("rope.scaling.factor");
  const std::optional<Index> original = fields.as_positive_integer(kOriginal);
  // No key says so where the factors are tensors.
  const std::string_view type =
      fields.as_string("rope.scaling.type").value_or(tensors.contains(kShort) ? "longrope" : "linear");
  // The attention factor of the model itself, and one that the conversion adds.
  const std::optional<double> magnitude = fields.as_positive_number("rope.scaling.yarn_attn_factor");
  scaling.magnitude = fields.positive_number("rope.scaling.attn_factor", 1.0);
  if (type == "linear") {
    scaling.factor = factor ? *factor : old_factor.value_or(1.0);
    if (scaling.factor != 1.0) scaling.kind = RotaryScalingKind::kLinear;
  } else if (type == "yarn") {
    scaling.kind = RotaryScalingKind::kYarn;
    scaling.factor = fields.positive_number("rope.scaling.factor");
    scaling.original_max_seq_len = original.value_or(model.max_seq_len);
    scaling.beta_fast = fields.positive_number("rope.scaling.yarn_beta_fast", scaling.beta_fast);
    scaling.beta_slow = fields.positive_number("rope.scaling.yarn_beta_slow", scaling.beta_slow);
    // Peng 2023, Eq. 22: sqrt(1/t) = 0.1 ln(s) + 1.
    const double by_factor = scaling.factor > 1.0 ? mul(0.1, log(scaling.factor)) + 1.0 : 1.0;
    scaling.magnitude = mul(scaling.magnitude, magnitude.value_or(by_factor));
    if (fields.positive_number("rope.scaling.yarn_ext_factor", 1.0) != 1.0) [[unlikely]]
      raise(ErrorCode::kUnsupported, fields.source(), ": ", fields.name_of("rope.scaling.yarn_ext_factor"),
            " is supported as 1 only");
  } else if (type == "longrope") {
    scaling.kind = RotaryScalingKind::kLongrope;
    scaling.original_max_seq_len = fields.positive_integer(kOriginal);
    scaling.short_factors = tensors.values(kShort, rotary.dim / 2);
    scaling.long_factors = tensors.values(kLong, rotary.dim / 2);
  } else if (type != "none") {
    raise(ErrorCode::kUnsupported, fields.source(), ": ", fields.name_of("rope.scaling.type"), " ",
          in_quotes(type), " is not supported, only none, linear, yarn and longrope are");
  }
  if (tensors.contains(kDivisors)) {
    if (scaling.kind != RotaryScalingKind::kNone) [[unlikely]]
      raise(ErrorCode::kUnsupported, fields.source(), ": rotary scaling ", in_quotes(type),
            " beside divisors of the frequencies (", kDivisors, ") is not supported");
    scaling.kind = RotaryScalingKind::kDivisors;
    scaling.short_factors = tensors.values(kDivisors, rotary.dim / 2);
  }
}

/// What Llama and most families after it share, if `pairs` turn together: sizes, RMSNorm before both branches,
/// a SiLU gate, rotary positions.
inline void read_gguf_decoder(GgufFields& fields, GgufTensorBinder& tensors, RotaryPairs pairs,
                              ModelConfig& model) {
  read_gguf_sizes(fields, tensors, model);
  model.norm = NormKind::kRms;
  model.norm_eps = fields.positive_number("attention.layer_norm_rms_epsilon");
  model.activation = Activation::kSilu;
  model.gated_feed_forward = true;
  model.residual = ResidualKind::kSequential;
  read_gguf_rotary(fields, tensors, pairs, model);
}

/// Before anything with one entry a layer is made.
inline void require_few_gguf_layers(const GgufFields& fields, const ModelConfig& model) {
  if (model.n_layers > kMaxDifferingLayers) [[unlikely]]
    raise(ErrorCode::kBadFile, fields.source(), ": ", fields.name_of("block_count"), " ", model.n_layers,
          " is beyond any model whose layers differ (", kMaxDifferingLayers, ")");
}

/// The window attention.sliding_window, or `absent` of files that have no such key (0: none), and which layers see no
/// further: those that attention.sliding_window_pattern names, a boolean each, or all but every n-th, where n is
/// that key's value or, without it, `period`; 0: all of them.
/// @return whether each layer has the window; empty if there is none
inline std::vector<bool> read_gguf_windows(GgufFields& fields, Index absent, Index period,
                                           ModelConfig& model) {
  constexpr std::string_view kWindow = "attention.sliding_window",
                             kPattern = "attention.sliding_window_pattern";
  std::vector<bool> sliding;
  if (fields.is_array(kPattern)) {
    sliding = *fields.as_booleans(kPattern);
    if (static_cast<Index>(sliding.size()) != model.n_layers) [[unlikely]]
      raise(ErrorCode::kBadFile, fields.source(), ": ", fields.name_of(kPattern), " has ", sliding.size(),
            " entries for ", model.n_layers, " layers");
  } else {
    period = fields.positive_integer(kPattern, period);
  }
  const Index window = fields.as_natural(kWindow).value_or(absent);
  if (window == 0) return {};
  require_few_gguf_layers(fields, model);
  for (Index layer = static_cast<Index>(sliding.size()); layer < model.n_layers; ++layer)
    sliding.push_back(period == 0 || (layer + 1) % period != 0);
  set_spans(sliding, window, model);
  return sliding;
}

/// Layers with a window turn by rope.freq_base_swa, or `absent` of files without it, and are not scaled: that is
/// for those that see further.
inline void read_gguf_local_rotary(GgufFields& fields, const std::vector<bool>& sliding, double absent,
                                   ModelConfig& model) {
  RotaryConfig local = model.rotary;
  local.theta = fields.positive_number("rope.freq_base_swa", absent);
  local.scaling = {};
  if (local == model.rotary) return;
  // Each layer has a copy of its own: a list as long as the file, times thousands of layers, is more than memory.
  if (!sliding.empty() && !model.rotary.scaling.short_factors.empty()) [[unlikely]]
    raise(ErrorCode::kUnsupported, fields.source(),
          ": factors of the rotary frequencies beside layers with a window are not supported");
  for (const bool slides : sliding) model.layer_rotary.push_back(slides ? local : model.rotary);
}

/// Experts, if there are any.
inline void read_gguf_experts(GgufFields& fields, ModelConfig& model) {
  const std::optional<Index> n_experts = fields.as_positive_integer("expert_count");
  if (!n_experts) return;
  model.n_experts = *n_experts;
  model.n_experts_used = fields.positive_integer("expert_used_count");
  model.d_expert = fields.positive_integer("expert_feed_forward_length", model.d_ff);
}

/// The biases that the layers of a family have for certain. No key says which a model has: beyond them, those that
/// are there are used.
enum class GgufBiases {
  kNone,
  kQkv,  ///< of queries, keys and values
  kAll,
};

/// What the products of n matrices in one tensor `name`.weight are multiplied by: `name`.scale of [n], where there is one.
/// @throws Error kMismatch: of another shape; kBadFile: not finite
inline std::vector<double> gguf_scales(GgufTensorBinder& tensors, const std::string& name, Index n) {
  const std::string scale = name + ".scale";
  if (!tensors.contains(scale)) return std::vector<double>(static_cast<std::size_t>(n), 1.0);
  std::vector<double> scales = tensors.values(scale, n);
  for (const double s : scales)
    if (!std::isfinite(s)) [[unlikely]]
      raise(ErrorCode::kBadFile, tensors.source(), ": tensor ", in_quotes(scale), " has the value ", s,
            ", expected finite ones");
  return scales;
}

/// A layer and the scale that the file may have beside it.
inline LinearWeights gguf_scaled_linear(GgufTensorBinder& tensors, const std::string& name, Index d_out,
                                        Index d_in, bool has_bias) {
  LinearWeights w = tensors.linear(name, d_out, d_in, has_bias);
  w.scale = gguf_scales(tensors, name, 1).front();
  return w;
}
/// The same, with the bias that the file may have too.
inline LinearWeights gguf_linear(GgufTensorBinder& tensors, const std::string& name, Index d_out, Index d_in,
                                 bool must_have_bias = false) {
  return gguf_scaled_linear(tensors, name, d_out, d_in, must_have_bias || tensors.contains(name + ".bias"));
}

/// The norms of a layer, wherever the config has them.
inline void bind_gguf_norms(const ModelConfig& model, GgufTensorBinder& tensors, const std::string& layer,
                            LayerWeights& w) {
  const auto norm = [&](const char* name) {
    return tensors.norm(layer + name, model.d_model, model.norm == NormKind::kLayer);
  };
  if (model.norm_placement != NormPlacement::kPost) {
    w.attention_norm = norm("attn_norm");
    if (model.residual != ResidualKind::kParallelSharedNorm) w.feed_forward_norm = norm("ffn_norm");
  }
  if (model.norm_placement != NormPlacement::kPre) {
    w.attention_post_norm = norm("post_attention_norm");
    w.feed_forward_post_norm = norm("post_ffw_norm");
  }
}

/// Layer i, whose tensors' names begin with `layer`: queries, keys and values by one matrix each or, if there is attn_qkv,
/// by one for all of them. Files may have what makes keys and values also where they are another layer's.
inline void bind_gguf_attention(const ModelConfig& model, GgufTensorBinder& tensors, const std::string& layer,
                                Index i, GgufBiases biases, LayerWeights& w) {
  const bool is_biased = biases != GgufBiases::kNone;
  const Index head_dim = model.head_dim_of(i), d = model.d_model, d_q = model.n_heads * head_dim,
              d_kv = model.n_kv_heads * head_dim;
  const bool owns_store = model.owns_store(i);
  const std::string fused = layer + "attn_qkv";
  if (tensors.contains(fused + ".weight")) {
    const LinearWeights qkv = gguf_linear(tensors, fused, d_q + 2 * d_kv, d, is_biased);
    if (!qkv.bias.empty() && !has_format(CoreFormats{}, qkv.bias.format)) [[unlikely]]
      raise(ErrorCode::kUnsupported, tensors.source(), ": tensor ", in_quotes(fused + ".bias"),
            " is stored as ", to_string(qkv.bias.format), ", whose blocks cannot be divided");
    w.w_q = GgufTensorBinder::outputs_of(qkv, 0, d_q);
    w.w_k = GgufTensorBinder::outputs_of(qkv, d_q, d_kv);
    w.w_v = GgufTensorBinder::outputs_of(qkv, d_q + d_kv, d_kv);
  } else {
    w.w_q = gguf_linear(tensors, layer + "attn_q", d_q, d, is_biased);
    if (owns_store) w.w_k = gguf_linear(tensors, layer + "attn_k", d_kv, d, is_biased);
    if (owns_store) w.w_v = gguf_linear(tensors, layer + "attn_v", d_kv, d, is_biased);
  }
  w.w_o = gguf_linear(tensors, layer + "attn_output", d, d_q, biases == GgufBiases::kAll);
  if (!owns_store)
    for (const char* const name : {"attn_k.", "attn_v.", "attn_k_norm."})
      tensors.ignore_prefix(
          layer + name, "the layer reads the keys and values of layer " + std::to_string(model.store_of(i)));
  if (model.qk_norm == QkNormKind::kNone) return;
  const bool is_whole = model.qk_norm == QkNormKind::kWhole, has_bias = model.norm == NormKind::kLayer;
  w.q_norm = tensors.norm(layer + "attn_q_norm", is_whole ? d_q : head_dim, has_bias);
  if (owns_store) w.k_norm = tensors.norm(layer + "attn_k_norm", is_whole ? d_kv : head_dim, has_bias);
}

/// A router, and one tensor a projection that holds the matrices of all experts; gate and up may share one.
inline void bind_gguf_experts(const ModelConfig& model, GgufTensorBinder& tensors, const std::string& layer,
                              LayerWeights& w) {
  const Index n = model.n_experts, d = model.d_model, d_expert = model.d_expert;
  const std::string fused = layer + "ffn_gate_up_exps";
  const bool is_fused = tensors.contains(fused + ".weight");
  w.router = gguf_linear(tensors, layer + "ffn_gate_inp", n, d);
  w.experts.resize(static_cast<std::size_t>(n));
  const auto for_each_expert = [&](const std::string& name, Index rows, Index cols, auto&& put) {
    const std::vector<double> scales = gguf_scales(tensors, name, n);
    for (Index e = 0; e < n; ++e) {
      const auto i = static_cast<std::size_t>(e);
      put(w.experts[i], LinearWeights{tensors.matrix_of(name + ".weight", e, n, rows, cols), {}, scales[i]});
    }
  };
  if (is_fused) {
    for_each_expert(fused, 2 * d_expert, d, [&](ExpertWeights& expert, const LinearWeights& both) {
      expert.w_gate = GgufTensorBinder::outputs_of(both, 0, d_expert);
      expert.w_up = GgufTensorBinder::outputs_of(both, d_expert, d_expert);
    });
  } else {
    for_each_expert(layer + "ffn_gate_exps", d_expert, d,
                    [](ExpertWeights& expert, const LinearWeights& one) { expert.w_gate = one; });
    for_each_expert(layer + "ffn_up_exps", d_expert, d,
                    [](ExpertWeights& expert, const LinearWeights& one) { expert.w_up = one; });
  }
  for_each_expert(layer + "ffn_down_exps", d, d_expert,
                  [](ExpertWeights& expert, const LinearWeights& one) { expert.w_down = one; });
}

/// One matrix a projection or, if the model has experts, theirs.
inline void bind_gguf_feed_forward(const ModelConfig& model, GgufTensorBinder& tensors,
                                   const std::string& layer, GgufBiases biases, LayerWeights& w) {
  if (model.n_experts > 0) return bind_gguf_experts(model, tensors, layer, w);
  const bool is_biased = biases == GgufBiases::kAll;
  const Index d = model.d_model;
  if (model.gated_feed_forward) w.w_gate = gguf_linear(tensors, layer + "ffn_gate", model.d_ff, d, is_biased);
  w.w_up = gguf_linear(tensors, layer + "ffn_up", model.d_ff, d, is_biased);
  w.w_down = gguf_linear(tensors, layer + "ffn_down", d, model.d_ff, is_biased);
}

/// Embedding, layers, final norm, and the head unless it is tied. The norms of a layer come first, then
/// bind_layer(name, layer, weights) does the rest of it.
template <class BindLayer>
void bind_gguf_decoder(const ModelConfig& model, GgufTensorBinder& tensors, Weights& weights,
                       BindLayer&& bind_layer) {
  weights.token_embedding = tensors.matrix("token_embd.weight", model.vocab_size, model.d_model);
  for (Index i = 0; i < model.n_layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    LayerWeights& w = weights.layers.emplace_back();
    bind_gguf_norms(model, tensors, layer, w);
    bind_layer(layer, i, w);
  }
  weights.final_norm = tensors.norm("output_norm", model.d_model, model.norm == NormKind::kLayer);
  if (!model.tied_head) weights.head = gguf_linear(tensors, "output", model.vocab_size, model.d_model);
  tensors.ignore_suffix(".input_scale", "activations are not rounded to the weights' format");
}

/// A model of nothing but such layers.
template <GgufBiases kBiases = GgufBiases::kNone>
void bind_gguf_decoder_weights(const ModelConfig& model, GgufTensorBinder& tensors, Weights& weights) {
  bind_gguf_decoder(model, tensors, weights, [&](const std::string& layer, Index i, LayerWeights& w) {
    bind_gguf_attention(model, tensors, layer, i, kBiases, w);
    bind_gguf_feed_forward(model, tensors, layer, kBiases, w);
  });
}

}  // namespace detail
}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gguf_architecture.hpp> - what a family of GGUF models has to say about itself,
// and what many families have in common: sizes, rotary positions, the tensors of attention and feed-forward.
#pragma once

#include <kvdecode/io/architectures/gguf_fields.hpp>
#include <kvdecode/io/gguf_tensor_binder.hpp>

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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

/// Rotary positions: base, dimension, scaling. Divisors of the frequencies are a tensor, rope_freqs.weight.
/// @throws Error kUnsupported, naming what is not known
inline void read_gguf_rotary(GgufFields& fields, GgufTensorBinder& tensors, RotaryPairs pairs,
                             ModelConfig& model) {
  RotaryConfig& rotary = model.rotary;
  RotaryScaling& scaling = rotary.scaling;
  model.position = PositionKind::kRotary;
  rotary.pairs = pairs;
  rotary.theta = fields.positive_number("rope.freq_base", 10000.0);
  rotary.dim = fields.positive_integer("rope.dimension_count", model.head_dim);

  const std::optional<double> old_factor = fields.as_positive_number("rope.scale_linear");
  const std::optional<double> factor = fields.as_positive_number("rope.scaling.factor");
  const std::string_view type = fields.as_string("rope.scaling.type").value_or("linear");
  // The attention factor of the model itself, and one that the conversion adds.
  const std::optional<double> magnitude = fields.as_positive_number("rope.scaling.yarn_attn_factor");
  scaling.magnitude = fields.positive_number("rope.scaling.attn_factor", 1.0);
  if (type == "linear") {
    scaling.factor = factor ? *factor : old_factor.value_or(1.0);
    if (scaling.factor != 1.0) scaling.kind = RotaryScalingKind::kLinear;
  } else if (type == "yarn") {
    scaling.kind = RotaryScalingKind::kYarn;
    scaling.factor = fields.positive_number("rope.scaling.factor");
    scaling.original_max_seq_len =
        fields.positive_integer("rope.scaling.original_context_length", model.max_seq_len);
    scaling.beta_fast = fields.positive_number("rope.scaling.yarn_beta_fast", scaling.beta_fast);
    scaling.beta_slow = fields.positive_number("rope.scaling.yarn_beta_slow", scaling.beta_slow);
    // Peng 2023, Eq. 22: sqrt(1/t) = 0.1 ln(s) + 1.
    const double by_factor = scaling.factor > 1.0 ? mul(0.1, log(scaling.factor)) + 1.0 : 1.0;
    scaling.magnitude = mul(scaling.magnitude, magnitude.value_or(by_factor));
    if (fields.positive_number("rope.scaling.yarn_ext_factor", 1.0) != 1.0) [[unlikely]]
      raise(ErrorCode::kUnsupported, fields.source(), ": ", fields.name_of("rope.scaling.yarn_ext_factor"),
            " is supported as 1 only");
  } else if (type != "none") {
    raise(ErrorCode::kUnsupported, fields.source(), ": ", fields.name_of("rope.scaling.type"), " ",
          in_quotes(type), " is not supported, only none, linear and yarn are");
  }
  if (tensors.contains("rope_freqs.weight")) {
    if (scaling.kind != RotaryScalingKind::kNone) [[unlikely]]
      raise(ErrorCode::kUnsupported, fields.source(), ": rotary scaling ", in_quotes(type),
            " beside divisors of the frequencies (rope_freqs.weight) is not supported");
    scaling.kind = RotaryScalingKind::kDivisors;
    scaling.short_factors = tensors.values("rope_freqs.weight", rotary.dim / 2);
  }
}

/// Experts, if there are any.
inline void read_gguf_experts(GgufFields& fields, ModelConfig& model) {
  const std::optional<Index> n_experts = fields.as_positive_integer("expert_count");
  if (!n_experts) return;
  model.n_experts = *n_experts;
  model.n_experts_used = fields.positive_integer("expert_used_count");
  model.d_expert = fields.positive_integer("expert_feed_forward_length", model.d_ff);
}

inline std::string gguf_layer(Index layer) { return "blk." + std::to_string(layer) + "."; }

inline void bind_gguf_attention(const ModelConfig& model, GgufTensorBinder& tensors, const std::string& layer,
                                LayerWeights& w) {
  const Index d_q = model.n_heads * model.head_dim, d_kv = model.n_kv_heads * model.head_dim;
  w.w_q = tensors.linear(layer + "attn_q", d_q, model.d_model);
  w.w_k = tensors.linear(layer + "attn_k", d_kv, model.d_model);
  w.w_v = tensors.linear(layer + "attn_v", d_kv, model.d_model);
  w.w_o = tensors.linear(layer + "attn_output", model.d_model, d_q);
}

/// One matrix a projection or, with experts, a tensor of one matrix an expert.
inline void bind_gguf_feed_forward(const ModelConfig& model, GgufTensorBinder& tensors,
                                   const std::string& layer, LayerWeights& w) {
  if (model.n_experts == 0) {
    if (model.gated_feed_forward) w.w_gate = tensors.linear(layer + "ffn_gate", model.d_ff, model.d_model);
    w.w_up = tensors.linear(layer + "ffn_up", model.d_ff, model.d_model);
    w.w_down = tensors.linear(layer + "ffn_down", model.d_model, model.d_ff);
    return;
  }
  const Index n = model.n_experts, d_expert = model.d_expert;
  w.router = tensors.linear(layer + "ffn_gate_inp", n, model.d_model);
  const std::vector<MatrixView> gate =
      tensors.matrices(layer + "ffn_gate_exps.weight", n, d_expert, model.d_model);
  const std::vector<MatrixView> up =
      tensors.matrices(layer + "ffn_up_exps.weight", n, d_expert, model.d_model);
  const std::vector<MatrixView> down =
      tensors.matrices(layer + "ffn_down_exps.weight", n, model.d_model, d_expert);
  for (std::size_t i = 0; i < gate.size(); ++i)
    w.experts.push_back({{gate[i], {}}, {up[i], {}}, {down[i], {}}});
}

/// Token embedding, final norm, and the head unless it is tied.
inline void bind_gguf_ends(const ModelConfig& model, GgufTensorBinder& tensors, Weights& weights) {
  weights.token_embedding = tensors.matrix("token_embd.weight", model.vocab_size, model.d_model);
  weights.final_norm = tensors.norm("output_norm", model.d_model);
  if (!model.tied_head) weights.head = tensors.linear("output", model.vocab_size, model.d_model);
}

}  // namespace detail
}  // namespace kvdecode

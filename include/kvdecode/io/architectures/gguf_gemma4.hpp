// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gguf_gemma4.hpp> - Gemma 4 in GGUF, text only and dense: Gemma 3 whose last layers read the keys
// and values of earlier ones, whose layers without a window have heads of another length that turn in part, and whose layers
// have inputs and a scale of their own.
#pragma once

#include <kvdecode/io/architectures/common.hpp>
#include <kvdecode/io/architectures/gguf_architecture.hpp>
#include <kvdecode/io/architectures/gguf_gemma.hpp>

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/layers/residual.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// Divisors of the frequencies stand here for pairs that do not turn: 1 for those that do, then 1e30, which no position
/// gets over.
inline void set_gguf_turning_pairs(const GgufFields& fields, RotaryScaling& scaling) {
  if (scaling.kind != RotaryScalingKind::kDivisors) return;
  const std::vector<double>& divisors = scaling.short_factors;
  const auto turns = [](double divisor) { return divisor == 1.0; };
  const auto end = std::find_if_not(divisors.begin(), divisors.end(), turns);
  if (std::any_of(end, divisors.end(), [](double divisor) { return divisor < 1e29; })) [[unlikely]]
    raise(ErrorCode::kUnsupported, fields.source(),
          ": rope_freqs.weight: divisors of the rotary frequencies other than 1 and, behind them, 1e30 are "
          "not supported "
          "for this architecture");
  const Index n_turning = end - divisors.begin();
  scaling = {.kind = RotaryScalingKind::kProportional, .n_turning = n_turning};
}

/// Heads and rotary positions of the layers that slide, which have their own.
inline void read_gguf_local_heads(GgufFields& fields, const std::vector<bool>& sliding, ModelConfig& model) {
  const Index dim = fields.positive_integer("attention.key_length_swa", model.head_dim),
              value_dim = fields.positive_integer("attention.value_length_swa", dim);
  if (value_dim != dim) [[unlikely]]
    raise(ErrorCode::kUnsupported, fields.source(), ": keys of ", dim, " and values of ", value_dim,
          " elements are not supported, only equal ones are");
  RotaryConfig local;
  local.theta = fields.positive_number("rope.freq_base_swa", 10000.0);
  local.dim = fields.positive_integer("rope.dimension_count_swa", dim);
  for (const bool slides : sliding) {
    model.layer_rotary.push_back(slides ? local : model.rotary);
    model.layer_head_dim.push_back(slides ? dim : model.head_dim);
  }
}

inline void read_gguf_gemma4_config(GgufFields& fields, GgufTensorBinder& tensors, ModelConfig& model) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern",
                             kShared = "attention.shared_kv_layers",
                             kInputs = "embedding_length_per_layer_input";
  read_gguf_gemma_config(fields, tensors, model);
  model.norm_placement = NormPlacement::kBoth;
  model.qk_norm = QkNormKind::kPerHead;
  model.value_norm = true;
  model.attention_scale = 1.0;
  model.logit_soft_cap = fields.positive_number("final_logit_softcapping", 30.0);
  set_gguf_turning_pairs(fields, model.rotary.scaling);
  std::vector<bool> sliding = read_gguf_windows(fields, 0, 0, model);
  if (!sliding.empty() && !fields.contains(kPattern)) [[unlikely]]
    raise(ErrorCode::kBadFile, fields.source(), ": ", fields.name_of(kPattern),
          " is missing, expected a boolean for each layer");
  read_gguf_local_heads(fields, sliding, model);
  const Index n_shared = fields.as_natural(kShared).value_or(0);
  if (n_shared >= model.n_layers) [[unlikely]]
    raise(ErrorCode::kBadFile, fields.source(), ": ", fields.name_of(kShared), " ", n_shared, " of ",
          model.n_layers, " layers leaves none that has keys and values");
  if (n_shared > 0) {
    require_few_gguf_layers(fields, model);
    if (sliding.empty()) sliding.assign(static_cast<std::size_t>(model.n_layers), false);
    if (const Index layer = set_last_stores(sliding, n_shared, model); layer >= 0) [[unlikely]]
      raise(ErrorCode::kBadFile, fields.source(), ": ", fields.name_of(kShared), " ", n_shared,
            ": no layer of its kind has keys and values that layer ", layer, " could read");
  }
  model.d_layer_input = fields.as_natural(kInputs).value_or(0);
  if (model.d_layer_input > 0) model.layer_embedding_scale = sqrt(static_cast<double>(model.d_layer_input));
}

inline void bind_gguf_gemma4_weights(const ModelConfig& model, GgufTensorBinder& tensors, Weights& weights) {
  const Index d = model.d_model, d_input = model.d_layer_input;
  bind_gguf_decoder(model, tensors, weights, [&](const std::string& layer, Index i, LayerWeights& w) {
    bind_gguf_attention(model, tensors, layer, i, GgufBiases::kNone, w);
    bind_gguf_feed_forward(model, tensors, layer, GgufBiases::kNone, w);
    w.scale = tensors.values(layer + "layer_output_scale.weight", 1).front();
    if (d_input == 0) return;
    w.w_input_gate = gguf_linear(tensors, layer + "inp_gate", d_input, d);
    w.w_input_out = gguf_linear(tensors, layer + "proj", d, d_input);
    w.input_post_norm = tensors.norm(layer + "post_norm", d, false);
  });
  if (d_input == 0) return;
  const Index n_inputs = model.n_layers * d_input;
  weights.layer_embedding = tensors.matrix("per_layer_token_embd.weight", model.vocab_size, n_inputs);
  weights.w_layer_inputs = gguf_linear(tensors, "per_layer_model_proj", n_inputs, d);
  weights.w_layer_inputs.scale = mul(weights.w_layer_inputs.scale, 1.0 / sqrt(static_cast<double>(d)));
  weights.layer_input_norm = tensors.norm("per_layer_proj_norm", d_input, false);
}

}  // namespace detail

inline constexpr GgufArchitecture kGgufGemma4{
    .name = "gemma4",
    .harmless_keys = detail::kGgufHarmlessKeys,
    .read_config = &detail::read_gguf_gemma4_config,
    .bind_weights = &detail::bind_gguf_gemma4_weights,
};

}  // namespace kvdecode

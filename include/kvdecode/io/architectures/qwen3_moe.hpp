// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/qwen3_moe.hpp> - Qwen 3 with a mixture of experts in some or all layers
// (Yang 2025).
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/decoder_weights.hpp>
#include <kvdecode/io/architectures/fields.hpp>
#include <kvdecode/io/architectures/qwen2.hpp>
#include <kvdecode/io/architectures/rotary_fields.hpp>
#include <kvdecode/io/json_object.hpp>
#include <kvdecode/io/tensor_binder.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline constexpr std::string_view kQwen3MoeHarmlessFields[] = {
    "output_router_logits",
    "router_aux_loss_coef",
};

/// A layer has experts unless mlp_only_layers names it, and if decoder_sparse_step divides its number from 1.
inline void read_expert_layers(JsonObject& fields, ModelConfig& model) {
  const std::vector<Index> plain =
      fields.as_indices("mlp_only_layers", model.n_layers).value_or(std::vector<Index>{});
  const Index step = fields.positive_integer("decoder_sparse_step", 1);
  if (plain.empty() && step == 1) return;
  require_few_layers(fields, model);
  for (Index layer = 0; layer < model.n_layers; ++layer)
    model.has_experts.push_back((layer + 1) % step == 0 &&
                                std::find(plain.begin(), plain.end(), layer) == plain.end());
}

inline void read_qwen3_moe_config(JsonObject& fields, HuggingFaceConfig& config) {
  ModelConfig& model = config.model;
  read_decoder(fields, {.n_kv_heads = 4, .max_seq_len = 32768}, model);
  read_rotary(fields, {}, model);
  // Every layer has the window; there was a time when those below max_window_layers had none.
  const bool slides = fields.boolean("use_sliding_window", false);
  const Index first = fields.as_natural("max_window_layers").value_or(0);
  if (slides && first != 0) [[unlikely]]
    raise(ErrorCode::kUnsupported, fields.source(), ": max_window_layers ", first,
          " beside use_sliding_window is not supported for this architecture");
  if (slides)
    read_window(fields, 4096, model);
  else
    fields.as_positive_integer("sliding_window");
  model.qk_norm = QkNormKind::kPerHead;
  config.attention_bias = config.attention_output_bias = fields.boolean("attention_bias", false);
  const std::optional<Index> n_experts =
      same_of(fields, "num_experts", fields.as_positive_integer("num_experts"), "num_local_experts",
              fields.as_positive_integer("num_local_experts"));
  model.n_experts = n_experts ? *n_experts : fields.positive_integer("num_experts");
  model.n_experts_used = fields.positive_integer("num_experts_per_tok");
  model.d_expert = fields.positive_integer("moe_intermediate_size");
  model.normalize_expert_weights = fields.boolean("norm_topk_prob", false);
  read_expert_layers(fields, model);
}

inline void bind_qwen3_moe_weights(const HuggingFaceConfig& config, TensorBinder& tensors, Weights& weights) {
  bind_decoder(config, tensors, weights, [&](const std::string& layer, Index i, LayerWeights& w) {
    bind_attention(config, tensors, layer, i, w);
    if (config.model.layer_has_experts(i))
      bind_experts(config, tensors, layer, {"mlp.", "gate_proj", "up_proj", "down_proj"}, w);
    else
      bind_feed_forward(config, tensors, layer, w);
  });
}

}  // namespace detail

/// Qwen3MoeForCausalLM.
inline constexpr HuggingFaceArchitecture kQwen3MoeArchitecture{
    .name = "Qwen3MoeForCausalLM",
    .model_type = "qwen3_moe",
    .harmless_fields = detail::kQwen3MoeHarmlessFields,
    .neutral_fields = detail::kQwenNeutralFields,
    .default_bos_token_id = -1,
    .default_eos_token_id = -1,
    .read_config = &detail::read_qwen3_moe_config,
    .bind_weights = &detail::bind_qwen3_moe_weights,
};

}  // namespace kvdecode

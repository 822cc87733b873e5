// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/mixtral.hpp> - Mixtral (Jiang 2024): Mistral with a mixture of experts in every
// layer.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/decoder_weights.hpp>
#include <kvdecode/io/architectures/fields.hpp>
#include <kvdecode/io/architectures/rotary_fields.hpp>
#include <kvdecode/io/json_object.hpp>
#include <kvdecode/io/tensor_binder.hpp>

#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline constexpr std::string_view kMixtralHarmlessFields[] = {
    "output_router_logits",
    "router_aux_loss_coef",
    "router_jitter_noise",
};

inline void read_mixtral_config(JsonObject& fields, HuggingFaceConfig& config) {
  ModelConfig& model = config.model;
  read_decoder(fields, {.n_kv_heads = 8, .max_seq_len = 131072, .norm_eps = 1e-5}, model);
  read_rotary(fields, {.theta = 1e6}, model);
  read_window(fields, {}, model);
  model.n_experts = fields.positive_integer("num_local_experts");
  model.n_experts_used = fields.positive_integer("num_experts_per_tok");
  model.d_expert = model.d_ff;
  model.normalize_expert_weights = true;
}

inline void bind_mixtral_weights(const HuggingFaceConfig& config, TensorBinder& tensors, Weights& weights) {
  bind_decoder(config, tensors, weights, [&](const std::string& layer, Index i, LayerWeights& w) {
    bind_attention(config, tensors, layer, i, w);
    bind_experts(config, tensors, layer, {"block_sparse_moe.", "w1", "w3", "w2"}, w);
  });
}

}  // namespace detail

/// MixtralForCausalLM.
inline constexpr HuggingFaceArchitecture kMixtralArchitecture{
    .name = "MixtralForCausalLM",
    .model_type = "mixtral",
    .harmless_fields = detail::kMixtralHarmlessFields,
    .neutral_fields = detail::kWholeHeadFields,
    .default_bos_token_id = 1,
    .default_eos_token_id = 2,
    .read_config = &detail::read_mixtral_config,
    .bind_weights = &detail::bind_mixtral_weights,
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/deepseek_v3.hpp> - DeepSeek-V3 (DeepSeek-AI 2024): V2 whose experts are scored each by itself
// and chosen with a bias that balances them.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/deepseek_v2.hpp>
#include <kvdecode/io/json_object.hpp>
#include <kvdecode/io/tensor_binder.hpp>

#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <algorithm>
#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline constexpr std::string_view kDeepseekV3HarmlessFields[] = {
    "auto_map", "aux_loss_alpha", "ep_size", "output_router_logits", "pretraining_tp", "seq_aux",
};

inline constexpr NeutralField kDeepseekV3NeutralFields[] = {
    {"mlp_bias", "false"},
    {"partial_rotary_factor", "1.0"},
    {"scoring_func", "\"sigmoid\""},
    {"topk_method", "\"noaux_tc\""},
};

inline void read_deepseek_v3_config(JsonObject& fields, HuggingFaceConfig& config) {
  ModelConfig& model = config.model;
  const DeepseekDefaults defaults{.max_seq_len = 4096,
                                  .n_dense_layers = 3,
                                  .n_experts = 256,
                                  .n_experts_used = 8,
                                  .n_shared_experts = 1,
                                  .expert_weight_scale = 2.5};
  read_latent_attention(fields, defaults, config);
  config.n_further_layers = checked_size(fields, "num_nextn_predict_layers",
                                         fields.as_natural("num_nextn_predict_layers").value_or(0));
  if (!fields.boolean("rope_interleave", true)) model.rotary.pairs = RotaryPairs::kHalves;
  read_deepseek_experts(fields, defaults, model);
  model.normalize_expert_weights = fields.boolean("norm_topk_prob", true);
  model.expert_score = ExpertScore::kSigmoid;
  read_expert_groups(fields, 8, 4, ExpertGroupScore::kTopTwo, model);
}

inline void bind_deepseek_v3_weights(const HuggingFaceConfig& config, TensorBinder& tensors,
                                     Weights& weights) {
  bind_deepseek_weights(config, tensors, true, weights);
  for (Index i = 0; i < std::min(config.n_further_layers, kMaxDifferingLayers); ++i)
    tensors.ignore_prefix("model.layers." + std::to_string(config.model.n_layers + i) + ".",
                          "a layer behind the last one that guesses further tokens");
}

}  // namespace detail

/// DeepseekV3ForCausalLM.
inline constexpr HuggingFaceArchitecture kDeepseekV3Architecture{
    .name = "DeepseekV3ForCausalLM",
    .model_type = "deepseek_v3",
    .harmless_fields = detail::kDeepseekV3HarmlessFields,
    .neutral_fields = detail::kDeepseekV3NeutralFields,
    .default_bos_token_id = 0,
    .default_eos_token_id = 1,
    .read_config = &detail::read_deepseek_v3_config,
    .bind_weights = &detail::bind_deepseek_v3_weights,
};

}  // namespace kvdecode

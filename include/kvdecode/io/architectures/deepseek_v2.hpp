// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/deepseek_v2.hpp> - DeepSeek-V2 (DeepSeek-AI 2024): latent attention, and experts in groups
// beside shared ones. Also what DeepSeek-V3 has of it.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/decoder_weights.hpp>
#include <kvdecode/io/architectures/fields.hpp>
#include <kvdecode/io/architectures/rotary_fields.hpp>
#include <kvdecode/io/json_object.hpp>
#include <kvdecode/io/tensor_binder.hpp>

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// ep_size spreads experts over machines; the others are for training.
inline constexpr std::string_view kDeepseekV2HarmlessFields[] = {
    "auto_map", "aux_loss_alpha", "ep_size", "output_router_logits", "pretraining_tp", "seq_aux",
};

// DeepSeek's own code divides by the sum where norm_topk_prob is true, transformers does not: no model has it.
inline constexpr NeutralField kDeepseekV2NeutralFields[] = {
    {"norm_topk_prob", "false"},
    {"partial_rotary_factor", "1.0"},
    {"rope_interleave", "true"},
    {"scoring_func", "\"softmax\""},
};

/// What a family takes where its config is silent.
struct DeepseekDefaults {
  Index max_seq_len = 2048;
  Index n_dense_layers = 0;
  Index n_experts = 64;
  Index n_experts_used = 0;  // 0: has to be there, if there are experts
  Index n_shared_experts = 2;
  double expert_weight_scale = 1.0;
};

/// An integer that is 0 where the field is null and the fallback where it is absent.
inline Index read_or_none(JsonObject& fields, std::string_view name, Index fallback) {
  return fields.contains(name) ? fields.as_positive_integer(name).value_or(0) : fallback;
}

/// A number of a config that no check of the model sees as it is: one beyond any model is refused here.
inline Index checked_size(const JsonObject& fields, std::string_view name, Index size) {
  if (size > (Index{1} << 30)) [[unlikely]]
    raise(ErrorCode::kBadFile, fields.source(), ": ", name, " ", size, " is beyond any model (2^30)");
  return size;
}
inline Index read_size(JsonObject& fields, std::string_view name) {
  return checked_size(fields, name, fields.positive_integer(name));
}

/// A field that repeats what follows from others.
inline void require_same(JsonObject& fields, std::string_view name, Index expected) {
  const std::optional<Index> value = fields.as_positive_integer(name);
  if (value && *value != expected) [[unlikely]]
    raise(ErrorCode::kUnsupported, fields.source(), ": ", name, " ", *value, " is supported only if it is ",
          expected, ", which the other fields make of it");
}

/// Sizes, attention and rotary positions.
inline void read_latent_attention(JsonObject& fields, const DeepseekDefaults& defaults,
                                  HuggingFaceConfig& config) {
  ModelConfig& model = config.model;
  const Index rope_dim = read_size(fields, "qk_rope_head_dim");
  read_decoder(fields, {.head_dim = rope_dim, .max_seq_len = defaults.max_seq_len}, model);
  require_same(fields, "head_dim", rope_dim);
  require_same(fields, "num_key_value_heads", model.n_heads);
  model.kv_lora_rank = read_size(fields, "kv_lora_rank");
  model.q_lora_rank = read_or_none(fields, "q_lora_rank", 1536);
  model.qk_nope_head_dim = read_size(fields, "qk_nope_head_dim");
  model.v_head_dim = read_size(fields, "v_head_dim");
  model.latent_norm_eps = 1e-6;  // whatever that of the others is
  model.head_dim = model.qk_nope_head_dim + rope_dim;
  model.n_kv_heads = 1;
  require_same(fields, "qk_head_dim", model.head_dim);
  read_rotary(fields, {}, model);
  model.rotary.pairs = RotaryPairs::kInterleaved;
  if (model.rotary.scaling.kind == RotaryScalingKind::kYarn) {
    // YaRN also makes scores steeper, by the square of its magnitude for all dimensions: so DeepSeek's own code has it,
    // and transformers has it for V3.
    const RotaryObjects objects(fields);
    JsonObject rope = objects.parameters ? *objects.parameters : *objects.scaling;
    const double scale_all = rope.as_number("mscale_all_dim").value_or(0.0);
    const double magnitude = yarn_magnitude(model.rotary.scaling.factor, scale_all);
    model.attention_scale = mul(magnitude, magnitude) / sqrt(static_cast<double>(model.head_dim));
  }
  config.attention_bias = config.attention_output_bias = fields.boolean("attention_bias", false);
}

/// Which layers have experts, how many there are, and those for every token. How they are chosen differs.
inline void read_deepseek_experts(JsonObject& fields, const DeepseekDefaults& defaults, ModelConfig& model) {
  model.n_experts = read_or_none(fields, "n_routed_experts", defaults.n_experts);
  const Index n_dense =
      checked_size(fields, "first_k_dense_replace",
                   fields.as_natural("first_k_dense_replace").value_or(defaults.n_dense_layers));
  const Index step = fields.positive_integer("moe_layer_freq", 1);
  model.d_expert = fields.as_positive_integer("moe_intermediate_size").value_or(0);
  const Index n_shared = read_or_none(fields, "n_shared_experts", defaults.n_shared_experts);
  const std::optional<Index> n_used = fields.as_positive_integer("num_experts_per_tok");
  model.expert_weight_scale = fields.positive_number("routed_scaling_factor", defaults.expert_weight_scale);
  if (model.n_experts == 0) {
    model.d_expert = 0;
    model.expert_weight_scale = 1.0;
    return;
  }
  if (model.d_expert == 0) model.d_expert = fields.positive_integer("moe_intermediate_size");  // throws
  if (n_shared > (Index{1} << 30) / model.d_expert) [[unlikely]]
    raise(ErrorCode::kBadFile, fields.source(), ": n_shared_experts ", n_shared, " of ", model.d_expert,
          " is beyond any model");
  model.d_shared_expert = n_shared * model.d_expert;
  model.n_experts_used = n_used.value_or(defaults.n_experts_used);
  if (model.n_experts_used == 0) model.n_experts_used = fields.positive_integer("num_experts_per_tok");
  if (n_dense == 0 && step == 1) return;
  require_few_layers(fields, model);
  for (Index layer = 0; layer < model.n_layers; ++layer)
    model.has_experts.push_back(layer >= n_dense && layer % step == 0);
}

/// The groups that a token's experts are chosen from.
inline void read_expert_groups(JsonObject& fields, Index n_groups, Index n_groups_used,
                               ExpertGroupScore score, ModelConfig& model) {
  const Index all = fields.positive_integer("n_group", n_groups);
  const Index used = fields.positive_integer("topk_group", n_groups_used);
  if (model.n_experts == 0) return;
  model.n_expert_groups = all;
  model.n_expert_groups_used = used;
  model.expert_group_score = score;
}

inline void read_deepseek_v2_config(JsonObject& fields, HuggingFaceConfig& config) {
  ModelConfig& model = config.model;
  const DeepseekDefaults defaults;
  read_latent_attention(fields, defaults, config);
  config.feed_forward_bias = fields.boolean("mlp_bias", false);
  read_deepseek_experts(fields, defaults, model);
  model.normalize_expert_weights = false;
  const std::string method = fields.string("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    const Index n_groups = fields.positive_integer("n_group");
    read_expert_groups(fields, n_groups, fields.positive_integer("topk_group"), ExpertGroupScore::kMaximum,
                       model);
  } else if (method != "greedy") {
    raise(ErrorCode::kUnsupported, fields.source(), ": topk_method ", in_quotes(method),
          " is not supported for this architecture, only greedy and group_limited_greedy are");
  }
  // Where no groups are asked for, they say nothing.
  for (const char* const name : {"n_group", "topk_group"})
    checked_size(fields, name, fields.as_positive_integer(name).value_or(1));
}

inline void bind_latent_attention(const HuggingFaceConfig& config, TensorBinder& tensors,
                                  const std::string& layer, LayerWeights& w) {
  const ModelConfig& model = config.model;
  const std::string attention = layer + "self_attn.";
  const Index d_q = model.n_heads * model.head_dim, rank = model.kv_lora_rank;
  if (model.q_lora_rank > 0) {
    w.w_q_a = tensors.linear(attention + "q_a_proj", model.q_lora_rank, model.d_model, config.attention_bias);
    w.q_a_norm = tensors.norm(attention + "q_a_layernorm", model.q_lora_rank, false);
    w.w_q = tensors.linear(attention + "q_b_proj", d_q, model.q_lora_rank, false);
  } else {
    w.w_q = tensors.linear(attention + "q_proj", d_q, model.d_model, false);
  }
  w.w_kv_a =
      tensors.linear(attention + "kv_a_proj_with_mqa", model.k_dim(), model.d_model, config.attention_bias);
  w.kv_a_norm = tensors.norm(attention + "kv_a_layernorm", rank, false);
  set_kv_b(tensors.matrix(attention + "kv_b_proj.weight",
                          model.n_heads * (model.qk_nope_head_dim + model.v_head_dim), rank),
           model.n_heads, model.qk_nope_head_dim, model.v_head_dim, w);
  w.w_o = tensors.linear(attention + "o_proj", model.d_model, model.o_dim(), config.attention_output_bias);
}

/// @param has_choice_bias  experts are chosen by their scores and a bias
inline void bind_deepseek_weights(const HuggingFaceConfig& config, TensorBinder& tensors,
                                  bool has_choice_bias, Weights& weights) {
  const ModelConfig& model = config.model;
  bind_decoder(config, tensors, weights, [&](const std::string& layer, Index i, LayerWeights& w) {
    bind_latent_attention(config, tensors, layer, w);
    if (!model.layer_has_experts(i)) return bind_feed_forward(config, tensors, layer, w);
    bind_experts(config, tensors, layer, {"mlp.", "gate_proj", "up_proj", "down_proj"}, w);
    if (has_choice_bias)
      w.choice_bias = tensors.vector(layer + "mlp.gate.e_score_correction_bias", model.n_experts);
    if (model.d_shared_expert > 0)
      bind_gated(config, tensors, layer + "mlp.shared_experts.", model.d_shared_expert, w.shared_expert);
  });
}

inline void bind_deepseek_v2_weights(const HuggingFaceConfig& config, TensorBinder& tensors,
                                     Weights& weights) {
  bind_deepseek_weights(config, tensors, false, weights);
}

}  // namespace detail

/// DeepseekV2ForCausalLM.
inline constexpr HuggingFaceArchitecture kDeepseekV2Architecture{
    .name = "DeepseekV2ForCausalLM",
    .model_type = "deepseek_v2",
    .harmless_fields = detail::kDeepseekV2HarmlessFields,
    .neutral_fields = detail::kDeepseekV2NeutralFields,
    .default_bos_token_id = 1,
    .default_eos_token_id = 2,
    .read_config = &detail::read_deepseek_v2_config,
    .bind_weights = &detail::bind_deepseek_v2_weights,
};

}  // namespace kvdecode

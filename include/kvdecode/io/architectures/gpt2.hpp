// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gpt2.hpp> - GPT-2 (Radford 2019): LayerNorm, learned positions, plain feed-forward, a
// tied head. Its matrices are stored transposed, and one of them makes queries, keys and values.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/decoder_weights.hpp>
#include <kvdecode/io/architectures/fields.hpp>
#include <kvdecode/io/json_object.hpp>
#include <kvdecode/io/tensor_binder.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <algorithm>
#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// reorder_and_upcast_attn changes rounding, not the model; summary_*: of a head for other tasks.
inline constexpr std::string_view kGpt2HarmlessFields[] = {
    "_num_labels",
    "attn_pdrop",
    "embd_pdrop",
    "gradient_checkpointing",
    "n_ctx",
    "reorder_and_upcast_attn",
    "resid_pdrop",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
};

inline constexpr NeutralField kGpt2NeutralFields[] = {
    {"scale_attn_by_inverse_layer_idx", "false"},
};

inline void read_gpt2_config(JsonObject& fields, HuggingFaceConfig& config) {
  ModelConfig& model = config.model;
  model.vocab_size = fields.positive_integer("vocab_size");
  model.d_model = fields.positive_integer("n_embd");
  constexpr Index kLarge = Index{1} << 32;  // which validate() refuses
  model.d_ff = fields.positive_integer("n_inner", 4 * std::min(model.d_model, kLarge));
  model.n_layers = fields.positive_integer("n_layer");
  model.n_heads = model.n_kv_heads = fields.positive_integer("n_head");
  if (model.d_model % model.n_heads != 0) [[unlikely]]
    raise(ErrorCode::kBadFile, fields.source(), ": n_embd ", model.d_model, " is not a multiple of n_head ",
          model.n_heads);
  model.head_dim = model.d_model / model.n_heads;
  model.max_seq_len = fields.positive_integer("n_positions", 1024);
  model.norm = NormKind::kLayer;
  model.norm_eps = fields.positive_number("layer_norm_epsilon", 1e-5);
  model.activation = read_activation(fields, "activation_function", "gelu_new");
  model.gated_feed_forward = false;
  model.position = PositionKind::kLearned;
  if (!fields.boolean("scale_attn_weights", true)) model.attention_scale = 1.0;
  model.tied_head = fields.boolean("tie_word_embeddings", true);
}

inline void bind_gpt2_weights(const HuggingFaceConfig& config, TensorBinder& tensors, Weights& weights) {
  const ModelConfig& model = config.model;
  const Index d = model.d_model;
  // Files of the model without its head have no prefix.
  const std::string root = tensors.contains("wte.weight") ? "" : "transformer.";
  const auto conv1d = [&](const std::string& name, Index d_out, Index d_in) {
    return LinearWeights{tensors.transposed(name + ".weight", d_out, d_in),
                         tensors.vector(name + ".bias", d_out)};
  };
  weights.token_embedding = tensors.matrix(root + "wte.weight", model.vocab_size, d);
  weights.position_embedding = tensors.matrix(root + "wpe.weight", model.max_seq_len, d);
  for (Index i = 0; i < model.n_layers; ++i) {
    const std::string layer = root + "h." + std::to_string(i) + ".";
    LayerWeights& w = weights.layers.emplace_back();
    w.attention_norm = tensors.norm(layer + "ln_1", d, true);
    const LinearWeights qkv = conv1d(layer + "attn.c_attn", 3 * d, d);
    w.w_q = tensors.outputs_of(qkv, 0, d);
    w.w_k = tensors.outputs_of(qkv, d, d);
    w.w_v = tensors.outputs_of(qkv, 2 * d, d);
    w.w_o = conv1d(layer + "attn.c_proj", d, d);
    w.feed_forward_norm = tensors.norm(layer + "ln_2", d, true);
    w.w_up = conv1d(layer + "mlp.c_fc", model.d_ff, d);
    w.w_down = conv1d(layer + "mlp.c_proj", d, model.d_ff);
  }
  weights.final_norm = tensors.norm(root + "ln_f", d, true);
  if (model.tied_head)
    tensors.tied_head("lm_head.weight", root + "wte.weight");
  else
    weights.head = tensors.linear("lm_head", model.vocab_size, d, false);
  for (const std::string_view mask : {".attn.bias", ".attn.masked_bias"})
    tensors.ignore_suffix(mask, "a causal mask, not a weight");
}

}  // namespace detail

/// GPT2LMHeadModel.
inline constexpr HuggingFaceArchitecture kGpt2Architecture{
    .name = "GPT2LMHeadModel",
    .model_type = "gpt2",
    .harmless_fields = detail::kGpt2HarmlessFields,
    .neutral_fields = detail::kGpt2NeutralFields,
    .default_bos_token_id = 50256,
    .default_eos_token_id = 50256,
    .read_config = &detail::read_gpt2_config,
    .bind_weights = &detail::bind_gpt2_weights,
};

}  // namespace kvdecode

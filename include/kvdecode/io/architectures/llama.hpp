// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/llama.hpp> - Llama (Touvron 2023): RMSNorm before attention and feed-forward,
// rotary positions in halves, SiLU-gated feed-forward, grouped queries. Also what many others copy.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/fields.hpp>
#include <kvdecode/io/json_object.hpp>
#include <kvdecode/io/tensor_binder.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// pretraining_tp splits matrices into slices whose products are added up: it changes rounding, not the model.
inline constexpr std::string_view kLlamaHarmlessFields[] = {
    "is_llama_config",
    "max_sequence_length",
    "pretraining_tp",
};

inline constexpr NeutralField kLlamaNeutralFields[] = {
    {"partial_rotary_factor", "1.0"},
    {"rope_interleaved", "false"},
};

/// Where a field is absent, the family's own default stands, but sizes have to be there.
inline void read_llama_config(JsonObject& fields, HuggingFaceConfig& config) {
  ModelConfig& model = config.model;
  model.vocab_size = fields.positive_integer("vocab_size");
  model.d_model = fields.positive_integer("hidden_size");
  model.d_ff = fields.positive_integer("intermediate_size");
  model.n_layers = fields.positive_integer("num_hidden_layers");
  model.n_heads = fields.positive_integer("num_attention_heads");
  model.n_kv_heads = fields.positive_integer("num_key_value_heads", model.n_heads);
  model.head_dim = fields.positive_integer("head_dim", 0);
  if (model.head_dim == 0) {
    if (model.d_model % model.n_heads != 0) [[unlikely]]
      raise(ErrorCode::kBadFile, fields.source(), ": hidden_size ", model.d_model,
            " is not a multiple of num_attention_heads ", model.n_heads, ", and there is no head_dim");
    model.head_dim = model.d_model / model.n_heads;
  }
  model.max_seq_len = fields.positive_integer("max_position_embeddings", 2048);
  model.norm = NormKind::kRms;
  model.norm_eps = fields.positive_number("rms_norm_eps", 1e-6);
  model.activation = read_activation(fields, "hidden_act", "silu");
  model.gated_feed_forward = true;
  model.residual = ResidualKind::kSequential;
  model.position = PositionKind::kRotary;
  model.rotary.pairs = RotaryPairs::kHalves;
  read_rotary(fields, model.rotary);
  model.tied_head = fields.boolean("tie_word_embeddings", false);
  config.attention_bias = config.attention_output_bias = fields.boolean("attention_bias", false);
  config.feed_forward_bias = fields.boolean("mlp_bias", false);
}

inline void bind_llama_weights(const HuggingFaceConfig& config, TensorBinder& tensors, Weights& weights) {
  const ModelConfig& model = config.model;
  const Index d_q = model.n_heads * model.head_dim;
  const Index d_kv = model.n_kv_heads * model.head_dim;
  weights.token_embedding = tensors.matrix("model.embed_tokens.weight", model.vocab_size, model.d_model);
  for (Index i = 0; i < model.n_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    LayerWeights& w = weights.layers.emplace_back();
    w.attention_norm.weight = tensors.vector(layer + "input_layernorm.weight", model.d_model);
    w.w_q = tensors.linear(layer + "self_attn.q_proj", d_q, model.d_model, config.attention_bias);
    w.w_k = tensors.linear(layer + "self_attn.k_proj", d_kv, model.d_model, config.attention_bias);
    w.w_v = tensors.linear(layer + "self_attn.v_proj", d_kv, model.d_model, config.attention_bias);
    w.w_o = tensors.linear(layer + "self_attn.o_proj", model.d_model, d_q, config.attention_output_bias);
    w.feed_forward_norm.weight = tensors.vector(layer + "post_attention_layernorm.weight", model.d_model);
    w.w_gate = tensors.linear(layer + "mlp.gate_proj", model.d_ff, model.d_model, config.feed_forward_bias);
    w.w_up = tensors.linear(layer + "mlp.up_proj", model.d_ff, model.d_model, config.feed_forward_bias);
    w.w_down = tensors.linear(layer + "mlp.down_proj", model.d_model, model.d_ff, config.feed_forward_bias);
  }
  weights.final_norm.weight = tensors.vector("model.norm.weight", model.d_model);
  if (model.tied_head) {
    tensors.tied_head("lm_head.weight", "model.embed_tokens.weight");
  } else {
    weights.head = tensors.linear("lm_head", model.vocab_size, model.d_model, false);
  }
  tensors.ignore_suffix("rotary_emb.inv_freq", "rotary frequencies follow from the config");
}

}  // namespace detail

/// LlamaForCausalLM.
inline constexpr HuggingFaceArchitecture kLlamaArchitecture{
    .name = "LlamaForCausalLM",
    .model_type = "llama",
    .harmless_fields = detail::kLlamaHarmlessFields,
    .neutral_fields = detail::kLlamaNeutralFields,
    .default_bos_token_id = 1,
    .default_eos_token_id = 2,
    .read_config = &detail::read_llama_config,
    .bind_weights = &detail::bind_llama_weights,
};

}  // namespace kvdecode

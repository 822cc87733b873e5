// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/phi3.hpp> - Phi-3 (Abdin 2024): Llama whose queries, keys and values, and whose gate and
// up, are one matrix each; rotary positions by LongRoPE beyond the length trained on.
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

// full_attn_mod, interpolate_factor: leftovers of training. auto_map: names code that is part of transformers now.
inline constexpr std::string_view kPhi3HarmlessFields[] = {
    "auto_map",
    "embd_pdrop",
    "original_max_position_embeddings",
    "resid_pdrop",
};

inline constexpr NeutralField kPhi3NeutralFields[] = {
    {"attention_bias", "false"}, {"full_attn_mod", "1"}, {"interpolate_factor", "1"},
    {"lm_head_bias", "false"},   {"mlp_bias", "false"},
};

inline void read_phi3_config(JsonObject& fields, HuggingFaceConfig& config) {
  read_decoder(fields, {.max_seq_len = 4096, .norm_eps = 1e-5}, config.model);
  read_rotary(fields, {.partial = 1.0, .original_max_seq_len = 4096, .longrope_only = true}, config.model);
  read_window(fields, {}, config.model);
}

inline void bind_phi3_weights(const HuggingFaceConfig& config, TensorBinder& tensors, Weights& weights) {
  const ModelConfig& model = config.model;
  const Index d = model.d_model, d_q = model.n_heads * model.head_dim,
              d_kv = model.n_kv_heads * model.head_dim;
  bind_decoder(config, tensors, weights, [&](const std::string& layer, Index, LayerWeights& w) {
    const LinearWeights qkv = tensors.linear(layer + "self_attn.qkv_proj", d_q + 2 * d_kv, d, false);
    w.w_q = tensors.outputs_of(qkv, 0, d_q);
    w.w_k = tensors.outputs_of(qkv, d_q, d_kv);
    w.w_v = tensors.outputs_of(qkv, d_q + d_kv, d_kv);
    w.w_o = tensors.linear(layer + "self_attn.o_proj", d, d_q, false);
    const LinearWeights gate_up = tensors.linear(layer + "mlp.gate_up_proj", 2 * model.d_ff, d, false);
    w.w_gate = tensors.outputs_of(gate_up, 0, model.d_ff);
    w.w_up = tensors.outputs_of(gate_up, model.d_ff, model.d_ff);
    w.w_down = tensors.linear(layer + "mlp.down_proj", d, model.d_ff, false);
  });
}

}  // namespace detail

/// Phi3ForCausalLM.
inline constexpr HuggingFaceArchitecture kPhi3Architecture{
    .name = "Phi3ForCausalLM",
    .model_type = "phi3",
    .harmless_fields = detail::kPhi3HarmlessFields,
    .neutral_fields = detail::kPhi3NeutralFields,
    .default_bos_token_id = 1,
    .default_eos_token_id = 32000,
    .read_config = &detail::read_phi3_config,
    .bind_weights = &detail::bind_phi3_weights,
};

}  // namespace kvdecode

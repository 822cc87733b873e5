// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/stablelm.hpp> - StableLM (Bellagente 2024): Llama with LayerNorm, rotary positions for
// a part of each head and, on request, attention and feed-forward side by side.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/decoder_weights.hpp>
#include <kvdecode/io/architectures/fields.hpp>
#include <kvdecode/io/architectures/rotary_fields.hpp>
#include <kvdecode/io/json_object.hpp>

#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline constexpr NeutralField kStableLmNeutralFields[] = {
    {"qk_layernorm", "false"},
};

inline void read_stablelm_config(JsonObject& fields, HuggingFaceConfig& config) {
  ModelConfig& model = config.model;
  model.norm = NormKind::kLayer;
  read_decoder(fields,
               {.n_kv_heads = 32, .max_seq_len = 4096, .norm_eps_field = "layer_norm_eps", .norm_eps = 1e-5},
               model);
  read_rotary(fields, {.partial = 0.25}, model);
  if (fields.boolean("use_parallel_residual", false)) model.residual = ResidualKind::kParallelSharedNorm;
  config.attention_bias = fields.boolean("use_qkv_bias", false);
}

}  // namespace detail

/// StableLmForCausalLM.
inline constexpr HuggingFaceArchitecture kStableLmArchitecture{
    .name = "StableLmForCausalLM",
    .model_type = "stablelm",
    .harmless_fields = {},
    .neutral_fields = detail::kStableLmNeutralFields,
    .default_bos_token_id = 0,
    .default_eos_token_id = 0,
    .read_config = &detail::read_stablelm_config,
    .bind_weights = &detail::bind_decoder_weights,
};

}  // namespace kvdecode

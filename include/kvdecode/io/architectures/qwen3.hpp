// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/qwen3.hpp> - Qwen 3 (Yang 2025): Qwen 2 with a norm of each head's queries and keys
// in the place of their biases.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/decoder_weights.hpp>
#include <kvdecode/io/architectures/fields.hpp>
#include <kvdecode/io/architectures/qwen2.hpp>
#include <kvdecode/io/architectures/rotary_fields.hpp>
#include <kvdecode/io/json_object.hpp>

#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline void read_qwen3_config(JsonObject& fields, HuggingFaceConfig& config) {
  read_decoder(fields, {.n_kv_heads = 32, .head_dim = 128, .max_seq_len = 32768}, config.model);
  read_rotary(fields, {}, config.model);
  read_qwen_windows(fields, config.model);
  config.model.qk_norm = QkNormKind::kPerHead;
  config.attention_bias = config.attention_output_bias = fields.boolean("attention_bias", false);
}

}  // namespace detail

/// Qwen3ForCausalLM.
inline constexpr HuggingFaceArchitecture kQwen3Architecture{
    .name = "Qwen3ForCausalLM",
    .model_type = "qwen3",
    .harmless_fields = {},
    .neutral_fields = detail::kQwenNeutralFields,
    .default_bos_token_id = -1,
    .default_eos_token_id = -1,
    .read_config = &detail::read_qwen3_config,
    .bind_weights = &detail::bind_decoder_weights,
};

}  // namespace kvdecode

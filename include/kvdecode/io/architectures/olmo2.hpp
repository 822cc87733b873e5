// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/olmo2.hpp> - OLMo 2 (OLMo Team 2024): Llama with its norms after each branch, and a norm
// of all queries and all keys of a position.
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

inline void read_olmo2_config(JsonObject& fields, HuggingFaceConfig& config) {
  read_decoder(fields, {.norm_eps = 1e-5}, config.model);
  read_rotary(fields, {}, config.model);
  config.model.norm_placement = NormPlacement::kPost;
  config.model.qk_norm = QkNormKind::kWhole;
  config.attention_bias = config.attention_output_bias = fields.boolean("attention_bias", false);
}

}  // namespace detail

/// Olmo2ForCausalLM.
inline constexpr HuggingFaceArchitecture kOlmo2Architecture{
    .name = "Olmo2ForCausalLM",
    .model_type = "olmo2",
    .harmless_fields = {},
    .neutral_fields = detail::kWholeHeadFields,
    .default_bos_token_id = -1,
    .default_eos_token_id = 50279,
    .read_config = &detail::read_olmo2_config,
    .bind_weights = &detail::bind_decoder_weights,
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/llama.hpp> - Llama (Touvron 2023): RMSNorm before attention and feed-forward,
// rotary positions in halves, SiLU-gated feed-forward, grouped queries. Also what many others copy.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/decoder_weights.hpp>
#include <kvdecode/io/architectures/fields.hpp>
#include <kvdecode/io/architectures/rotary_fields.hpp>
#include <kvdecode/io/json_object.hpp>

#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>

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

inline void read_llama_config(JsonObject& fields, HuggingFaceConfig& config) {
  read_decoder(fields, {}, config.model);
  read_rotary(fields, {}, config.model);
  config.attention_bias = config.attention_output_bias = fields.boolean("attention_bias", false);
  config.feed_forward_bias = fields.boolean("mlp_bias", false);
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
    .bind_weights = &detail::bind_decoder_weights,
};

}  // namespace kvdecode

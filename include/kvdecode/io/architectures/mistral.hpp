// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/mistral.hpp> - Mistral (Jiang 2023): Llama whose layers see a window of the last
// positions.
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

inline void read_mistral_config(JsonObject& fields, HuggingFaceConfig& config) {
  read_decoder(fields, {.n_kv_heads = 8, .max_seq_len = 131072}, config.model);
  read_rotary(fields, {}, config.model);
  read_window(fields, 4096, config.model);
}

}  // namespace detail

/// MistralForCausalLM.
inline constexpr HuggingFaceArchitecture kMistralArchitecture{
    .name = "MistralForCausalLM",
    .model_type = "mistral",
    .harmless_fields = {},
    .neutral_fields = detail::kWholeHeadFields,
    .default_bos_token_id = 1,
    .default_eos_token_id = 2,
    .read_config = &detail::read_mistral_config,
    .bind_weights = &detail::bind_decoder_weights,
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/qwen2.hpp> - Qwen 2 (Yang 2024): Llama with biases on queries, keys and values and, on
// request, a window in the upper layers.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/decoder_weights.hpp>
#include <kvdecode/io/architectures/fields.hpp>
#include <kvdecode/io/architectures/rotary_fields.hpp>
#include <kvdecode/io/json_object.hpp>

#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>

#include <optional>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline constexpr NeutralField kQwenNeutralFields[] = {
    {"partial_rotary_factor", "1.0"},
    {"use_mrope", "false"},
};

/// sliding_window counts if use_sliding_window is true: in the layers that layer_types names, or else from
/// max_window_layers on.
inline void read_qwen_windows(JsonObject& fields, ModelConfig& model) {
  std::optional<Index> window = window_of(fields, 4096);
  if (!fields.boolean("use_sliding_window", false)) window.reset();
  const Index first = fields.as_natural("max_window_layers").value_or(28);
  set_spans(read_sliding_layers(fields, model, window,
                                [&](Index layer) { return window.has_value() && layer >= first; }),
            window, model);
}

inline void read_qwen2_config(JsonObject& fields, HuggingFaceConfig& config) {
  read_decoder(fields, {.n_kv_heads = 32, .max_seq_len = 32768}, config.model);
  read_rotary(fields, {}, config.model);
  read_qwen_windows(fields, config.model);
  config.attention_bias = true;
}

}  // namespace detail

/// Qwen2ForCausalLM.
inline constexpr HuggingFaceArchitecture kQwen2Architecture{
    .name = "Qwen2ForCausalLM",
    .model_type = "qwen2",
    .harmless_fields = {},
    .neutral_fields = detail::kQwenNeutralFields,
    .default_bos_token_id = -1,
    .default_eos_token_id = -1,
    .read_config = &detail::read_qwen2_config,
    .bind_weights = &detail::bind_decoder_weights,
};

}  // namespace kvdecode

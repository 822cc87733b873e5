// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gemma2.hpp> - Gemma 2 (Gemma Team 2024): Gemma with norms before and after each
// branch, soft caps on scores and logits, and a window in every second layer.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/decoder_weights.hpp>
#include <kvdecode/io/architectures/fields.hpp>
#include <kvdecode/io/architectures/gemma.hpp>
#include <kvdecode/io/architectures/rotary_fields.hpp>
#include <kvdecode/io/json_object.hpp>

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>

#include <optional>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline constexpr std::string_view kGemmaHarmlessFields[] = {
    "cache_implementation",
};

inline void read_gemma2_config(JsonObject& fields, HuggingFaceConfig& config) {
  ModelConfig& model = config.model;
  read_gemma_decoder(fields, {.n_kv_heads = 4, .max_seq_len = 8192}, config);
  model.activation = read_gemma_activation(fields, "hidden_activation", "hidden_act");
  read_rotary(fields, {}, model);
  model.norm_placement = NormPlacement::kBoth;
  model.attention_scale = 1.0 / sqrt(fields.positive_number("query_pre_attn_scalar", 256.0));
  const auto soft_cap = [&](std::string_view name, double absent) {
    return fields.contains(name) ? fields.positive_number(name, 0.0) : absent;
  };
  model.attention_soft_cap = soft_cap("attn_logit_softcapping", 50.0);
  model.logit_soft_cap = soft_cap("final_logit_softcapping", 30.0);
  const std::optional<Index> window = window_of(fields, 4096);
  set_spans(read_sliding_layers(fields, model, window, [](Index layer) { return layer % 2 == 0; }), window,
            model);
}

}  // namespace detail

/// Gemma2ForCausalLM.
inline constexpr HuggingFaceArchitecture kGemma2Architecture{
    .name = "Gemma2ForCausalLM",
    .model_type = "gemma2",
    .harmless_fields = detail::kGemmaHarmlessFields,
    .neutral_fields = detail::kWholeHeadFields,
    .default_bos_token_id = 2,
    .default_eos_token_id = 1,
    .read_config = &detail::read_gemma2_config,
    .bind_weights = &detail::bind_decoder_weights,
};

}  // namespace kvdecode

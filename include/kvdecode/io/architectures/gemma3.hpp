// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gemma3.hpp> - Gemma 3 (Gemma Team 2025), text only: norms before and after each branch
// and of queries and keys, five layers with a window to one without, rotary positions of their own for each kind.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/decoder_weights.hpp>
#include <kvdecode/io/architectures/fields.hpp>
#include <kvdecode/io/architectures/gemma.hpp>
#include <kvdecode/io/architectures/gemma2.hpp>
#include <kvdecode/io/architectures/rotary_fields.hpp>
#include <kvdecode/io/json_object.hpp>

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>

#include <optional>
#include <string>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// The rotary positions of layers without a window, which alone are scaled, and of those with one.
struct Gemma3Rotary {
  RotaryConfig global;
  RotaryConfig local;
};

/// transformers 4: rope_scaling, rope_theta and rope_local_base_freq; 5: rope_parameters by type of layer.
inline Gemma3Rotary read_gemma3_rotary(JsonObject& fields, const ModelConfig& model) {
  constexpr RotaryRules kGlobal{.theta = 1e6}, kLocal{.theta_field = "rope_local_base_freq"};
  Gemma3Rotary rotary;
  RotaryObjects objects(fields);
  std::optional<JsonObject> global = objects.scaling, local;
  if (objects.parameters) {
    global = objects.parameters->as_object("full_attention");
    local = objects.parameters->as_object("sliding_attention");
    if (const std::vector<std::string> unread = objects.parameters->unread(); !unread.empty()) [[unlikely]]
      raise(ErrorCode::kUnsupported, fields.source(), ": the field ",
            in_quotes(objects.parameters->name_of(unread.front())),
            " is not known, only full_attention and sliding_attention are");
  }
  read_rotary_parameters(fields, global ? &*global : nullptr, kGlobal, model, rotary.global);
  read_rotary_parameters(fields, local ? &*local : nullptr, kLocal, model, rotary.local);
  for (const RotaryConfig* config : {&rotary.global, &rotary.local})
    if (config->scaling.kind == RotaryScalingKind::kLongrope) [[unlikely]]
      raise(ErrorCode::kUnsupported, fields.source(),
            ": rotary scaling \"longrope\" is not supported for this architecture");
  return rotary;
}

inline void read_gemma3_config(JsonObject& fields, HuggingFaceConfig& config) {
  ModelConfig& model = config.model;
  read_gemma_decoder(fields, {.n_kv_heads = 4, .max_seq_len = 131072}, config);
  model.activation = read_gemma_activation(fields, "hidden_activation", "hidden_act");
  model.norm_placement = NormPlacement::kBoth;
  model.qk_norm = QkNormKind::kPerHead;
  model.attention_scale = 1.0 / sqrt(fields.positive_number("query_pre_attn_scalar", 256.0));
  model.logit_soft_cap = fields.positive_number("final_logit_softcapping", 0.0);

  const std::optional<Index> window = window_of(fields, 4096);
  const Index pattern =
      same_of(fields, "sliding_window_pattern", fields.as_positive_integer("sliding_window_pattern"),
              "_sliding_window_pattern", fields.as_positive_integer("_sliding_window_pattern"))
          .value_or(6);
  const std::vector<bool> sliding =
      read_sliding_layers(fields, model, window, [&](Index layer) { return (layer + 1) % pattern != 0; });
  set_spans(sliding, window, model);
  const Gemma3Rotary rotary = read_gemma3_rotary(fields, model);
  model.rotary = rotary.global;
  for (const bool slides : sliding) model.layer_rotary.push_back(slides ? rotary.local : rotary.global);
}

}  // namespace detail

/// Gemma3ForCausalLM.
inline constexpr HuggingFaceArchitecture kGemma3Architecture{
    .name = "Gemma3ForCausalLM",
    .model_type = "gemma3_text",
    .harmless_fields = detail::kGemmaHarmlessFields,
    .neutral_fields = detail::kWholeHeadFields,
    .default_bos_token_id = 2,
    .default_eos_token_id = 1,
    .read_config = &detail::read_gemma3_config,
    .bind_weights = &detail::bind_decoder_weights,
};

}  // namespace kvdecode

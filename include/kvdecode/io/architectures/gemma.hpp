// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gemma.hpp> - Gemma (Gemma Team 2024): Llama with scaled embeddings, norm weights stored
// less one, a tanh-gelu gate and a tied head.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/decoder_weights.hpp>
#include <kvdecode/io/architectures/fields.hpp>
#include <kvdecode/io/architectures/rotary_fields.hpp>
#include <kvdecode/io/json_object.hpp>

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>

#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// The activation by either of two names; the second one is there for other versions of transformers.
inline Activation read_gemma_activation(JsonObject& fields, std::string_view field, std::string_view other) {
  constexpr std::string_view kDefault = "gelu_pytorch_tanh";
  const Activation activation = read_activation(fields, field, kDefault);
  if (fields.find(other) != nullptr && read_activation(fields, other, kDefault) != activation) [[unlikely]]
    raise(ErrorCode::kUnsupported, fields.source(), ": ", field, " ",
          in_quotes(fields.string(field, kDefault)), " and ", other, " ",
          in_quotes(fields.string(other, kDefault)), " contradict one another");
  return activation;
}

/// What all of its generations share.
inline void read_gemma_decoder(JsonObject& fields, DecoderDefaults defaults, HuggingFaceConfig& config) {
  ModelConfig& model = config.model;
  defaults.head_dim = 256;
  defaults.activation = "gelu_pytorch_tanh";
  defaults.tied_head = true;
  read_decoder(fields, defaults, model);
  model.norm_weight_offset = 1.0;
  model.embedding_scale = sqrt(static_cast<double>(model.d_model));
  config.attention_bias = config.attention_output_bias = fields.boolean("attention_bias", false);
}

inline void read_gemma_config(JsonObject& fields, HuggingFaceConfig& config) {
  read_gemma_decoder(fields, {.n_kv_heads = 16, .max_seq_len = 8192}, config);
  config.model.activation = read_gemma_activation(fields, "hidden_act", "hidden_activation");
  read_rotary(fields, {}, config.model);
}

}  // namespace detail

/// GemmaForCausalLM.
inline constexpr HuggingFaceArchitecture kGemmaArchitecture{
    .name = "GemmaForCausalLM",
    .model_type = "gemma",
    .harmless_fields = {},
    .neutral_fields = detail::kWholeHeadFields,
    .default_bos_token_id = 2,
    .default_eos_token_id = 1,
    .read_config = &detail::read_gemma_config,
    .bind_weights = &detail::bind_decoder_weights,
};

}  // namespace kvdecode

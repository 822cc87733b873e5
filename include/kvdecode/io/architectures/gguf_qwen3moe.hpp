// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gguf_qwen3moe.hpp> - Qwen 3 with experts in GGUF: they have them in every layer, and
// normalise the weights of those used.
#pragma once

#include <kvdecode/io/architectures/gguf_architecture.hpp>
#include <kvdecode/io/architectures/gguf_qwen3.hpp>

#include <kvdecode/model/config.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline void read_gguf_qwen3moe_config(GgufFields& fields, GgufTensorBinder& tensors, ModelConfig& model) {
  read_gguf_qwen3_config(fields, tensors, model);
  fields.positive_integer("expert_count");
  read_gguf_experts(fields, model);
  model.normalize_expert_weights = true;
}

}  // namespace detail

inline constexpr GgufArchitecture kGgufQwen3Moe{
    .name = "qwen3moe",
    .harmless_keys = detail::kGgufHarmlessKeys,
    .read_config = &detail::read_gguf_qwen3moe_config,
    .bind_weights = &detail::bind_gguf_decoder_weights<>,
};

}  // namespace kvdecode

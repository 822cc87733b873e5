// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gguf_qwen3.hpp> - Qwen 3 in GGUF: Llama with a norm of each head's queries and keys.
#pragma once

#include <kvdecode/io/architectures/gguf_architecture.hpp>

#include <kvdecode/layers/residual.hpp>
#include <kvdecode/model/config.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline void read_gguf_qwen3_config(GgufFields& fields, GgufTensorBinder& tensors, ModelConfig& model) {
  read_gguf_decoder(fields, tensors, RotaryPairs::kHalves, model);
  model.qk_norm = QkNormKind::kPerHead;
}

}  // namespace detail

inline constexpr GgufArchitecture kGgufQwen3{
    .name = "qwen3",
    .harmless_keys = detail::kGgufHarmlessKeys,
    .read_config = &detail::read_gguf_qwen3_config,
    .bind_weights = &detail::bind_gguf_decoder_weights<>,
};

}  // namespace kvdecode

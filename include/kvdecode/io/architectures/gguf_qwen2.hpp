// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gguf_qwen2.hpp> - Qwen 2 in GGUF: Llama with biases on queries, keys and values. The
// windows of the upper layers, which few models use, are lost in conversion.
#pragma once

#include <kvdecode/io/architectures/gguf_architecture.hpp>

#include <kvdecode/model/config.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline void read_gguf_qwen2_config(GgufFields& fields, GgufTensorBinder& tensors, ModelConfig& model) {
  read_gguf_decoder(fields, tensors, RotaryPairs::kHalves, model);
}

}  // namespace detail

inline constexpr GgufArchitecture kGgufQwen2{
    .name = "qwen2",
    .harmless_keys = detail::kGgufHarmlessKeys,
    .read_config = &detail::read_gguf_qwen2_config,
    .bind_weights = &detail::bind_gguf_decoder_weights<detail::GgufBiases::kQkv>,
};

}  // namespace kvdecode

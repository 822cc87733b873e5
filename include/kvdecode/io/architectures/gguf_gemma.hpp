// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gguf_gemma.hpp> - Gemma in GGUF: Llama with scaled embeddings and a tanh-gelu gate. The
// conversion has added the 1 to the weights of its norms.
#pragma once

#include <kvdecode/io/architectures/gguf_architecture.hpp>

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/kernels/activation.hpp>
#include <kvdecode/model/config.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline void read_gguf_gemma_config(GgufFields& fields, GgufTensorBinder& tensors, ModelConfig& model) {
  read_gguf_decoder(fields, tensors, RotaryPairs::kHalves, model);
  model.activation = Activation::kGeluTanh;
  model.embedding_scale = sqrt(static_cast<double>(model.d_model));
}

}  // namespace detail

inline constexpr GgufArchitecture kGgufGemma{
    .name = "gemma",
    .harmless_keys = detail::kGgufHarmlessKeys,
    .read_config = &detail::read_gguf_gemma_config,
    .bind_weights = &detail::bind_gguf_decoder_weights<>,
};

}  // namespace kvdecode

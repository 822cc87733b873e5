// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gguf_llama.hpp> - Llama in GGUF, and what is converted to it: Mixtral, and Mistral, whose
// window is lost on the way. The rows of queries and keys are permuted so that neighbouring elements turn together.
#pragma once

#include <kvdecode/io/architectures/gguf_architecture.hpp>

#include <kvdecode/model/config.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline void read_gguf_llama_config(GgufFields& fields, GgufTensorBinder& tensors, ModelConfig& model) {
  read_gguf_decoder(fields, tensors, RotaryPairs::kInterleaved, model);
  read_gguf_experts(fields, model);
  model.normalize_expert_weights = true;
}

}  // namespace detail

inline constexpr GgufArchitecture kGgufLlama{
    .name = "llama",
    .harmless_keys = detail::kGgufHarmlessKeys,
    .read_config = &detail::read_gguf_llama_config,
    .bind_weights = &detail::bind_gguf_decoder_weights<>,
};

}  // namespace kvdecode

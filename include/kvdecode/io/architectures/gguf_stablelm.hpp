// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gguf_stablelm.hpp> - StableLM in GGUF: Llama with LayerNorm, rotary positions for a part
// of each head and, on request, attention and feed-forward side by side.
#pragma once

#include <kvdecode/io/architectures/gguf_architecture.hpp>

#include <kvdecode/kernels/norm.hpp>
#include <kvdecode/layers/residual.hpp>
#include <kvdecode/model/config.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline void read_gguf_stablelm_config(GgufFields& fields, GgufTensorBinder& tensors, ModelConfig& model) {
  read_gguf_sizes(fields, tensors, model);
  model.norm = NormKind::kLayer;
  model.norm_eps = fields.positive_number("attention.layer_norm_epsilon");
  read_gguf_rotary(fields, tensors, RotaryPairs::kHalves, model);
  if (fields.as_boolean("use_parallel_residual").value_or(false))
    model.residual = ResidualKind::kParallelSharedNorm;
}

}  // namespace detail

inline constexpr GgufArchitecture kGgufStableLm{
    .name = "stablelm",
    .harmless_keys = detail::kGgufHarmlessKeys,
    .read_config = &detail::read_gguf_stablelm_config,
    .bind_weights = &detail::bind_gguf_decoder_weights<>,
};

}  // namespace kvdecode

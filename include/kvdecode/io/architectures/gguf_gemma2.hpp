// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gguf_gemma2.hpp> - Gemma 2 in GGUF: Gemma with norms before and after each branch, soft
// caps on scores and logits, and a window in every second layer.
#pragma once

#include <kvdecode/io/architectures/gguf_architecture.hpp>
#include <kvdecode/io/architectures/gguf_gemma.hpp>

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/layers/residual.hpp>
#include <kvdecode/model/config.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// Scores are scaled by the size of a head; in the largest model of a generation, which only its number of layers
/// tells, by that of a head if d_model were divided among them.
inline void set_gguf_gemma_scale(Index n_layers_of_largest, ModelConfig& model) {
  const Index share = model.d_model / model.n_heads;
  if (model.n_layers == n_layers_of_largest) model.attention_scale = 1.0 / sqrt(static_cast<double>(share));
}

inline void read_gguf_gemma2_config(GgufFields& fields, GgufTensorBinder& tensors, ModelConfig& model) {
  read_gguf_gemma_config(fields, tensors, model);
  model.norm_placement = NormPlacement::kBoth;
  set_gguf_gemma_scale(46, model);
  model.attention_soft_cap = fields.positive_number("attn_logit_softcapping", 50.0);
  model.logit_soft_cap = fields.positive_number("final_logit_softcapping", 30.0);
  read_gguf_windows(fields, 4096, 2, model);
}

}  // namespace detail

inline constexpr GgufArchitecture kGgufGemma2{
    .name = "gemma2",
    .harmless_keys = detail::kGgufHarmlessKeys,
    .read_config = &detail::read_gguf_gemma2_config,
    .bind_weights = &detail::bind_gguf_decoder_weights<>,
};

}  // namespace kvdecode

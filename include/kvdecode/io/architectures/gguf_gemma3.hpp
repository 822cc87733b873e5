// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gguf_gemma3.hpp> - Gemma 3 in GGUF, text only: norms before and after each branch and of
// queries and keys, five layers with a window to one without, rotary positions of their own for each kind.
#pragma once

#include <kvdecode/io/architectures/gguf_architecture.hpp>
#include <kvdecode/io/architectures/gguf_gemma.hpp>
#include <kvdecode/io/architectures/gguf_gemma2.hpp>

#include <kvdecode/layers/residual.hpp>
#include <kvdecode/model/config.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline void read_gguf_gemma3_config(GgufFields& fields, GgufTensorBinder& tensors, ModelConfig& model) {
  read_gguf_gemma_config(fields, tensors, model);
  model.norm_placement = NormPlacement::kBoth;
  model.qk_norm = QkNormKind::kPerHead;
  set_gguf_gemma_scale(62, model);
  model.logit_soft_cap = fields.as_positive_number("final_logit_softcapping").value_or(0.0);
  read_gguf_local_rotary(fields, read_gguf_windows(fields, 0, 6, model), 10000.0, model);
}

}  // namespace detail

inline constexpr GgufArchitecture kGgufGemma3{
    .name = "gemma3",
    .harmless_keys = detail::kGgufHarmlessKeys,
    .read_config = &detail::read_gguf_gemma3_config,
    .bind_weights = &detail::bind_gguf_decoder_weights<>,
};

}  // namespace kvdecode

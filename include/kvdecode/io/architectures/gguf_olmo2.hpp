// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gguf_olmo2.hpp> - OLMo 2 in GGUF: Llama with its norms after each branch, and a norm of
// all queries and all keys of a position; and OLMo 3, which also has a window in three layers of four.
#pragma once

#include <kvdecode/io/architectures/gguf_architecture.hpp>

#include <kvdecode/layers/residual.hpp>
#include <kvdecode/model/config.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline void read_gguf_olmo2_config(GgufFields& fields, GgufTensorBinder& tensors, ModelConfig& model) {
  read_gguf_decoder(fields, tensors, RotaryPairs::kHalves, model);
  model.norm_placement = NormPlacement::kPost;
  model.qk_norm = QkNormKind::kWhole;
  // Conversions of OLMo 3 have written the whole of what YaRN multiplies by under this key.
  if (const auto magnitude = fields.as_positive_number("rope.scaling.attn_factor"); magnitude)
    model.rotary.scaling.magnitude = *magnitude;
  read_gguf_local_rotary(fields, read_gguf_windows(fields, 0, 4, model), model.rotary.theta, model);
}

}  // namespace detail

inline constexpr GgufArchitecture kGgufOlmo2{
    .name = "olmo2",
    .harmless_keys = detail::kGgufHarmlessKeys,
    .read_config = &detail::read_gguf_olmo2_config,
    .bind_weights = &detail::bind_gguf_decoder_weights<>,
};

}  // namespace kvdecode

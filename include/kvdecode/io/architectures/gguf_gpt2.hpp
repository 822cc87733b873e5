// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gguf_gpt2.hpp> - GPT-2 in GGUF: LayerNorm, learned positions, plain feed-forward, a tied
// head. The conversion has transposed its matrices.
#pragma once

#include <kvdecode/io/architectures/gguf_architecture.hpp>

#include <kvdecode/kernels/activation.hpp>
#include <kvdecode/kernels/norm.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline void read_gguf_gpt2_config(GgufFields& fields, GgufTensorBinder& tensors, ModelConfig& model) {
  read_gguf_sizes(fields, tensors, model);
  model.norm = NormKind::kLayer;
  model.norm_eps = fields.positive_number("attention.layer_norm_epsilon");
  model.activation = Activation::kGeluTanh;
  model.gated_feed_forward = false;
  model.position = PositionKind::kLearned;
}

inline void bind_gguf_gpt2_weights(const ModelConfig& model, GgufTensorBinder& tensors, Weights& weights) {
  bind_gguf_decoder_weights<GgufBiases::kAll>(model, tensors, weights);
  weights.position_embedding = tensors.matrix("position_embd.weight", model.max_seq_len, model.d_model);
}

}  // namespace detail

inline constexpr GgufArchitecture kGgufGpt2{
    .name = "gpt2",
    .harmless_keys = detail::kGgufHarmlessKeys,
    .read_config = &detail::read_gguf_gpt2_config,
    .bind_weights = &detail::bind_gguf_gpt2_weights,
};

}  // namespace kvdecode

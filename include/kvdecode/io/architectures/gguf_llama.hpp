// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gguf_llama.hpp> - Llama in GGUF, and what is converted to it: Mistral, Mixtral.
// The rows of queries and keys are permuted so that neighbouring elements turn together.
#pragma once

#include <kvdecode/io/architectures/gguf_architecture.hpp>

#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline constexpr std::string_view kGgufLlamaHarmlessKeys[] = {
    "rope.scaling.finetuned",
};

inline void read_gguf_llama_config(GgufFields& fields, GgufTensorBinder& tensors, ModelConfig& model) {
  read_gguf_sizes(fields, tensors, model);
  model.norm = NormKind::kRms;
  model.norm_eps = fields.positive_number("attention.layer_norm_rms_epsilon");
  model.activation = Activation::kSilu;
  model.gated_feed_forward = true;
  model.residual = ResidualKind::kSequential;
  read_gguf_rotary(fields, tensors, RotaryPairs::kInterleaved, model);
  read_gguf_experts(fields, model);
  model.normalize_expert_weights = true;
}

inline void bind_gguf_llama_weights(const ModelConfig& model, GgufTensorBinder& tensors, Weights& weights) {
  bind_gguf_ends(model, tensors, weights);
  for (Index i = 0; i < model.n_layers; ++i) {
    const std::string layer = gguf_layer(i);
    LayerWeights& w = weights.layers.emplace_back();
    w.attention_norm = tensors.norm(layer + "attn_norm", model.d_model);
    bind_gguf_attention(model, tensors, layer, w);
    w.feed_forward_norm = tensors.norm(layer + "ffn_norm", model.d_model);
    bind_gguf_feed_forward(model, tensors, layer, w);
  }
}

}  // namespace detail

inline constexpr GgufArchitecture kGgufLlama{
    .name = "llama",
    .harmless_keys = detail::kGgufLlamaHarmlessKeys,
    .read_config = &detail::read_gguf_llama_config,
    .bind_weights = &detail::bind_gguf_llama_weights,
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gguf_phi3.hpp> - Phi-3 in GGUF: Llama whose queries, keys and values, and whose gate and
// up, are one matrix each; rotary positions by LongRoPE beyond the length trained on.
#pragma once

#include <kvdecode/io/architectures/gguf_architecture.hpp>

#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <string>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline void read_gguf_phi3_config(GgufFields& fields, GgufTensorBinder& tensors, ModelConfig& model) {
  read_gguf_decoder(fields, tensors, RotaryPairs::kHalves, model);
  read_gguf_windows(fields, 0, 0, model);
}

inline void bind_gguf_phi3_weights(const ModelConfig& model, GgufTensorBinder& tensors, Weights& weights) {
  bind_gguf_decoder(model, tensors, weights, [&](const std::string& layer, Index i, LayerWeights& w) {
    bind_gguf_attention(model, tensors, layer, i, GgufBiases::kNone, w);
    const LinearWeights gate_up =
        gguf_scaled_linear(tensors, layer + "ffn_up", 2 * model.d_ff, model.d_model, false);
    w.w_gate = GgufTensorBinder::outputs_of(gate_up, 0, model.d_ff);
    w.w_up = GgufTensorBinder::outputs_of(gate_up, model.d_ff, model.d_ff);
    w.w_down = gguf_linear(tensors, layer + "ffn_down", model.d_model, model.d_ff);
  });
}

}  // namespace detail

inline constexpr GgufArchitecture kGgufPhi3{
    .name = "phi3",
    .harmless_keys = detail::kGgufHarmlessKeys,
    .read_config = &detail::read_gguf_phi3_config,
    .bind_weights = &detail::bind_gguf_phi3_weights,
};

}  // namespace kvdecode

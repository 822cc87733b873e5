// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/decoder_weights.hpp> - the tensors that Llama and most families after it have, by
// the names that transformers gives them. Which of them there are, the config says.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/tensor_binder.hpp>

#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// The norms of a layer, wherever the config has them.
inline void bind_norms(const HuggingFaceConfig& config, TensorBinder& tensors, const std::string& layer,
                       LayerWeights& w) {
  const ModelConfig& model = config.model;
  const auto norm = [&](const char* name) {
    return tensors.norm(layer + name, model.d_model, model.norm == NormKind::kLayer);
  };
  switch (model.norm_placement) {
    case NormPlacement::kPre:
      w.attention_norm = norm("input_layernorm");
      if (model.residual != ResidualKind::kParallelSharedNorm)
        w.feed_forward_norm = norm("post_attention_layernorm");
      break;
    case NormPlacement::kPost:
      w.attention_post_norm = norm("post_attention_layernorm");
      w.feed_forward_post_norm = norm("post_feedforward_layernorm");
      break;
    case NormPlacement::kBoth:
      w.attention_norm = norm("input_layernorm");
      w.attention_post_norm = norm("post_attention_layernorm");
      w.feed_forward_norm = norm("pre_feedforward_layernorm");
      w.feed_forward_post_norm = norm("post_feedforward_layernorm");
      break;
  }
}

/// Layer i, whose tensors' names begin with `layer`. Files may have what makes keys and values also where they are another
/// layer's.
inline void bind_attention(const HuggingFaceConfig& config, TensorBinder& tensors, const std::string& layer,
                           Index i, LayerWeights& w) {
  const ModelConfig& model = config.model;
  const std::string attention = layer + "self_attn.";
  const Index head_dim = model.head_dim_of(i), d_q = model.n_heads * head_dim,
              d_kv = model.n_kv_heads * head_dim;
  const bool has_norms = model.qk_norm != QkNormKind::kNone, has_bias = model.norm == NormKind::kLayer,
             whole = model.qk_norm == QkNormKind::kWhole;
  w.w_q = tensors.linear(attention + "q_proj", d_q, model.d_model, config.attention_bias);
  w.w_o = tensors.linear(attention + "o_proj", model.d_model, d_q, config.attention_output_bias);
  if (has_norms) w.q_norm = tensors.norm(attention + "q_norm", whole ? d_q : head_dim, has_bias);
  if (!model.owns_store(i)) {
    for (const char* const name : {"k_proj.", "v_proj.", "k_norm.", "v_norm."})
      tensors.ignore_prefix(attention + name, "the layer reads the keys and values of layer " +
                                                  std::to_string(model.store_of(i)));
    return;
  }
  w.w_k = tensors.linear(attention + "k_proj", d_kv, model.d_model, config.attention_bias);
  w.w_v = tensors.linear(attention + "v_proj", d_kv, model.d_model, config.attention_bias);
  if (has_norms) w.k_norm = tensors.norm(attention + "k_norm", whole ? d_kv : head_dim, has_bias);
}

/// Gate, up and down of a block, for a layer or for an expert.
template <class W>
void bind_gated(const HuggingFaceConfig& config, TensorBinder& tensors, const std::string& block, Index d_ff,
                W& w) {
  const Index d = config.model.d_model;
  w.w_gate = tensors.linear(block + "gate_proj", d_ff, d, config.feed_forward_bias);
  w.w_up = tensors.linear(block + "up_proj", d_ff, d, config.feed_forward_bias);
  w.w_down = tensors.linear(block + "down_proj", d, d_ff, config.feed_forward_bias);
}
inline void bind_feed_forward(const HuggingFaceConfig& config, TensorBinder& tensors,
                              const std::string& layer, LayerWeights& w) {
  bind_gated(config, tensors, layer + "mlp.", config.model.d_ff, w);
}

/// What a family calls a mixture of experts whose experts are stored one by one.
struct ExpertNames {
  std::string_view block;  // "mlp."
  std::string_view gate;   // "gate_proj"
  std::string_view up;
  std::string_view down;
};

/// A router and its experts: one by one, or all of them in two tensors, as transformers 5 holds them.
inline void bind_experts(const HuggingFaceConfig& config, TensorBinder& tensors, const std::string& layer,
                         const ExpertNames& names, LayerWeights& w) {
  const ModelConfig& model = config.model;
  const Index n = model.n_experts, d = model.d_model, d_expert = model.d_expert;
  const std::string gate_up = layer + "mlp.experts.gate_up_proj";
  const bool is_fused = tensors.contains(gate_up);
  const std::string block = layer + (is_fused ? "mlp." : std::string(names.block));
  w.router = tensors.linear(block + "gate", n, d, false);
  for (Index e = 0; e < n; ++e) {
    ExpertWeights expert;
    if (is_fused) {
      const LinearWeights both{tensors.matrix_of(gate_up, e, n, 2 * d_expert, d), {}};
      expert.w_gate = tensors.outputs_of(both, 0, d_expert);
      expert.w_up = tensors.outputs_of(both, d_expert, d_expert);
      expert.w_down.matrix = tensors.matrix_of(layer + "mlp.experts.down_proj", e, n, d, d_expert);
    } else {
      const std::string name = block + "experts." + std::to_string(e) + ".";
      expert.w_gate = tensors.linear(name + std::string(names.gate), d_expert, d, false);
      expert.w_up = tensors.linear(name + std::string(names.up), d_expert, d, false);
      expert.w_down = tensors.linear(name + std::string(names.down), d, d_expert, false);
    }
    w.experts.push_back(expert);
  }
}

/// Embedding, layers, final norm and head. The norms of a layer come first, then bind_layer(name, layer, weights)
/// does the rest of it.
template <class BindLayer>
void bind_decoder(const HuggingFaceConfig& config, TensorBinder& tensors, Weights& weights,
                  BindLayer&& bind_layer) {
  const ModelConfig& model = config.model;
  weights.token_embedding = tensors.matrix("model.embed_tokens.weight", model.vocab_size, model.d_model);
  for (Index i = 0; i < model.n_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    LayerWeights& w = weights.layers.emplace_back();
    bind_norms(config, tensors, layer, w);
    bind_layer(layer, i, w);
  }
  weights.final_norm = tensors.norm("model.norm", model.d_model, model.norm == NormKind::kLayer);
  if (model.tied_head)
    tensors.tied_head("lm_head.weight", "model.embed_tokens.weight");
  else
    weights.head = tensors.linear("lm_head", model.vocab_size, model.d_model, false);
  tensors.ignore_suffix("rotary_emb.inv_freq", "rotary frequencies follow from the config");
}

/// A model of nothing but such layers.
inline void bind_decoder_weights(const HuggingFaceConfig& config, TensorBinder& tensors, Weights& weights) {
  bind_decoder(config, tensors, weights, [&](const std::string& layer, Index i, LayerWeights& w) {
    bind_attention(config, tensors, layer, i, w);
    bind_feed_forward(config, tensors, layer, w);
  });
}

}  // namespace detail
}  // namespace kvdecode

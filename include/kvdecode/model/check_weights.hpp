// SPDX-License-Identifier: MIT
// <kvdecode/model/check_weights.hpp> - whether weights belong to a config: every matrix and vector by name
// and shape.
#pragma once

#include <kvdecode/core/format.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

namespace detail {

template <class Formats>
class WeightChecker {
 public:
  explicit WeightChecker(std::string where) : where_(std::move(where)) {}

  void matrix(const char* name, const MatrixView& w, Index rows, Index cols) const {
    if (w.empty()) [[unlikely]]
      raise(ErrorCode::kMismatch, "weights: ", where_, name, " is missing");
    if (w.rows != rows || w.cols != cols) [[unlikely]]
      raise(ErrorCode::kMismatch, "weights: ", where_, name, " is [", w.rows, ", ", w.cols, "], expected [",
            rows, ", ", cols, "]");
    format(name, w.format);
  }
  void vector(const char* name, const VectorView& v, Index size, bool required) const {
    if (v.empty()) {
      if (!required) return;
      raise(ErrorCode::kMismatch, "weights: ", where_, name, " is missing");
    }
    if (v.size != size) [[unlikely]]
      raise(ErrorCode::kMismatch, "weights: ", where_, name, " has ", v.size, " elements, expected ", size);
    format(name, v.format);
  }
  void linear(const char* name, const LinearWeights& w, Index rows, Index cols) const {
    matrix(name, w.matrix, rows, cols);
    vector((std::string(name) + " bias").c_str(), w.bias, rows, false);
    scale(name, w);
  }
  void scale(const char* name, const LinearWeights& w) const {
    if (!std::isfinite(w.scale)) [[unlikely]]
      raise(ErrorCode::kMismatch, "weights: ", where_, name, " scale is ", w.scale,
            ", expected a finite number");
  }
  void norm(const char* name, const NormWeights& w, NormKind kind, Index size) const {
    const std::string bias = std::string(name) + " bias";
    vector(name, w.weight, size, true);
    vector(bias.c_str(), w.bias, size, false);
    if (kind == NormKind::kRms && !w.bias.empty()) [[unlikely]]
      raise(ErrorCode::kMismatch, "weights: ", where_, bias, " is given, but RMSNorm has none");
  }

 private:
  void format(const char* name, FormatId id) const {
    if (!has_format(Formats{}, id)) [[unlikely]]
      raise(ErrorCode::kUnsupported, "weights: ", where_, name, " is stored as ", to_string(id),
            ", which is not in this transformer's list of formats");
  }

  std::string where_;
};

template <class Formats>
void check_latent_attention(const ModelConfig& config, const LayerWeights& layer, const std::string& where) {
  const WeightChecker<Formats> at(where);
  const Index rank = config.kv_lora_rank,
              q_input = config.q_lora_rank > 0 ? config.q_lora_rank : config.d_model;
  if (config.q_lora_rank > 0) {
    at.linear("w_q_a", layer.w_q_a, config.q_lora_rank, config.d_model);
    at.norm("q_a_norm", layer.q_a_norm, config.norm, config.q_lora_rank);
  }
  at.linear("w_q", layer.w_q, config.n_heads * config.head_dim, q_input);
  at.linear("w_kv_a", layer.w_kv_a, config.k_dim(), config.d_model);
  at.norm("kv_a_norm", layer.kv_a_norm, config.norm, rank);
  const auto heads = [&](const char* name, const std::vector<MatrixView>& matrices, Index rows, Index cols) {
    if (static_cast<Index>(matrices.size()) != config.n_heads) [[unlikely]]
      raise(ErrorCode::kMismatch, "weights: ", where, name, " has ", matrices.size(), " matrices, expected ",
            config.n_heads);
    for (std::size_t h = 0; h < matrices.size(); ++h)
      WeightChecker<Formats>(where + "head " + std::to_string(h) + " ").matrix(name, matrices[h], rows, cols);
  };
  heads("w_k_b", layer.w_k_b, rank, config.qk_nope_head_dim);
  heads("w_v_b", layer.w_v_b, config.v_head_dim, rank);
}

template <class Formats>
void check_expert(const ModelConfig& config, const ExpertWeights& expert, Index d_expert,
                  const std::string& where) {
  const WeightChecker<Formats> in(where);
  if (config.gated_feed_forward) in.linear("w_gate", expert.w_gate, d_expert, config.d_model);
  in.linear("w_up", expert.w_up, d_expert, config.d_model);
  in.linear("w_down", expert.w_down, config.d_model, d_expert);
}

}  // namespace detail

/// Throws Error (kMismatch, kUnsupported) that names the first matrix or vector that does not fit the config.
template <class Formats>
void check_weights(const ModelConfig& config, const Weights& weights) {
  const detail::WeightChecker<Formats> model("");
  model.matrix("token_embedding", weights.token_embedding, config.vocab_size, config.d_model);
  if (config.position == PositionKind::kLearned)
    model.matrix("position_embedding", weights.position_embedding, config.max_seq_len, config.d_model);
  if (config.d_layer_input > 0) {
    const Index n_inputs = config.n_layers * config.d_layer_input;
    model.matrix("layer_embedding", weights.layer_embedding, config.vocab_size, n_inputs);
    model.linear("w_layer_inputs", weights.w_layer_inputs, n_inputs, config.d_model);
    model.norm("layer_input_norm", weights.layer_input_norm, config.norm, config.d_layer_input);
  }
  model.norm("final_norm", weights.final_norm, config.norm, config.d_model);
  if (!config.tied_head) model.matrix("head", weights.head.matrix, config.vocab_size, config.d_model);
  model.vector("head bias", weights.head.bias, config.vocab_size, false);
  model.scale("head", weights.head);
  if (static_cast<Index>(weights.layers.size()) != config.n_layers) [[unlikely]]
    detail::raise(ErrorCode::kMismatch, "weights: ", weights.layers.size(), " layers, expected ",
                  config.n_layers);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerWeights& layer = weights.layers[i];
    const std::string where = "layer " + std::to_string(i) + " ";
    const detail::WeightChecker<Formats> at(where);
    const Index head_dim = config.head_dim_of(static_cast<Index>(i)), q_dim = config.n_heads * head_dim,
                kv_dim = config.n_kv_heads * head_dim;
    const bool owns_store = config.owns_store(static_cast<Index>(i));
    const bool pre = config.norm_placement != NormPlacement::kPost,
               post = config.norm_placement != NormPlacement::kPre;
    if (pre) at.norm("attention_norm", layer.attention_norm, config.norm, config.d_model);
    if (config.is_latent()) {
      detail::check_latent_attention<Formats>(config, layer, where);
    } else {
      at.linear("w_q", layer.w_q, q_dim, config.d_model);
      if (owns_store) {
        at.linear("w_k", layer.w_k, kv_dim, config.d_model);
        at.linear("w_v", layer.w_v, kv_dim, config.d_model);
      }
    }
    at.linear("w_o", layer.w_o, config.d_model, config.o_dim(head_dim));
    if (config.qk_norm != QkNormKind::kNone) {
      const bool whole = config.qk_norm == QkNormKind::kWhole;
      at.norm("q_norm", layer.q_norm, config.norm, whole ? q_dim : head_dim);
      if (owns_store) at.norm("k_norm", layer.k_norm, config.norm, whole ? kv_dim : head_dim);
    }
    if (post) at.norm("attention_post_norm", layer.attention_post_norm, config.norm, config.d_model);
    if (pre && config.residual != ResidualKind::kParallelSharedNorm)
      at.norm("feed_forward_norm", layer.feed_forward_norm, config.norm, config.d_model);
    if (post) at.norm("feed_forward_post_norm", layer.feed_forward_post_norm, config.norm, config.d_model);
    if (config.d_layer_input > 0) {
      at.linear("w_input_gate", layer.w_input_gate, config.d_layer_input, config.d_model);
      at.linear("w_input_out", layer.w_input_out, config.d_model, config.d_layer_input);
      at.norm("input_post_norm", layer.input_post_norm, config.norm, config.d_model);
    }
    if (!std::isfinite(layer.scale)) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, "weights: layer ", i, " scale is ", layer.scale,
                    ", expected a finite number");
    if (!config.layer_has_experts(static_cast<Index>(i))) {
      if (config.gated_feed_forward) at.linear("w_gate", layer.w_gate, config.d_ff, config.d_model);
      at.linear("w_up", layer.w_up, config.d_ff, config.d_model);
      at.linear("w_down", layer.w_down, config.d_model, config.d_ff);
      continue;
    }
    at.linear("router", layer.router, config.n_experts, config.d_model);
    if (static_cast<Index>(layer.experts.size()) != config.n_experts) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, "weights: layer ", i, " has ", layer.experts.size(),
                    " experts, expected ", config.n_experts);
    at.vector("choice_bias", layer.choice_bias, config.n_experts, false);
    for (std::size_t e = 0; e < layer.experts.size(); ++e)
      detail::check_expert<Formats>(config, layer.experts[e], config.d_expert,
                                    where + "expert " + std::to_string(e) + " ");
    if (config.d_shared_expert > 0)
      detail::check_expert<Formats>(config, layer.shared_expert, config.d_shared_expert,
                                    where + "shared expert ");
  }
}

}  // namespace kvdecode

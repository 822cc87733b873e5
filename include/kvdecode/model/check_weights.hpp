// SPDX-License-Identifier: MIT
// <kvdecode/model/check_weights.hpp> - whether weights belong to a config: every matrix and vector by name
// and shape.
#pragma once

#include <kvdecode/core/format.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <string>

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
  }
  void norm(const char* name, const NormWeights& w, Index size) const {
    vector(name, w.weight, size, true);
    vector((std::string(name) + " bias").c_str(), w.bias, size, false);
  }

 private:
  void format(const char* name, FormatId id) const {
    if (!has_format(Formats{}, id)) [[unlikely]]
      raise(ErrorCode::kUnsupported, "weights: ", where_, name, " is stored as ", to_string(id),
            ", which is not in this transformer's list of formats");
  }

  std::string where_;
};

}  // namespace detail

/// Throws Error (kMismatch, kUnsupported) that names the first matrix or vector that does not fit the config.
template <class Formats>
void check_weights(const ModelConfig& config, const Weights& weights) {
  const detail::WeightChecker<Formats> model("");
  const Index q_dim = config.n_heads * config.head_dim, kv_dim = config.n_kv_heads * config.head_dim;
  model.matrix("token_embedding", weights.token_embedding, config.vocab_size, config.d_model);
  if (config.position == PositionKind::kLearned)
    model.matrix("position_embedding", weights.position_embedding, config.max_seq_len, config.d_model);
  model.norm("final_norm", weights.final_norm, config.d_model);
  if (!config.tied_head) model.matrix("head", weights.head.matrix, config.vocab_size, config.d_model);
  model.vector("head bias", weights.head.bias, config.vocab_size, false);
  if (static_cast<Index>(weights.layers.size()) != config.n_layers) [[unlikely]]
    detail::raise(ErrorCode::kMismatch, "weights: ", weights.layers.size(), " layers, expected ",
                  config.n_layers);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerWeights& layer = weights.layers[i];
    const detail::WeightChecker<Formats> at("layer " + std::to_string(i) + " ");
    at.norm("attention_norm", layer.attention_norm, config.d_model);
    at.linear("w_q", layer.w_q, q_dim, config.d_model);
    at.linear("w_k", layer.w_k, kv_dim, config.d_model);
    at.linear("w_v", layer.w_v, kv_dim, config.d_model);
    at.linear("w_o", layer.w_o, config.d_model, q_dim);
    if (config.residual != ResidualKind::kParallelSharedNorm)
      at.norm("feed_forward_norm", layer.feed_forward_norm, config.d_model);
    if (config.gated_feed_forward) at.linear("w_gate", layer.w_gate, config.d_ff, config.d_model);
    at.linear("w_up", layer.w_up, config.d_ff, config.d_model);
    at.linear("w_down", layer.w_down, config.d_model, config.d_ff);
  }
}

}  // namespace kvdecode

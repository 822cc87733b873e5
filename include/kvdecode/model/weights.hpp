// SPDX-License-Identifier: MIT
// <kvdecode/model/weights.hpp> - a model's numbers as views: matrices and vectors where they lie, in their
// storage format, under the field's names, with what keeps them in memory.
#pragma once

#include <kvdecode/core/view.hpp>

#include <concepts>
#include <memory>
#include <type_traits>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// y = (W x) scale + b. The bias is empty where the model has none.
struct LinearWeights {
  MatrixView matrix;   // [d_out, d_in]
  VectorView bias;     // [d_out]
  double scale = 1.0;  // beside those of the matrix's format, where they alone do not reach far enough
};

/// The scale and, for LayerNorm, the shift of a norm. Both empty: the layer has no such norm.
struct NormWeights {
  VectorView weight;  // [d_model]
  VectorView bias;    // [d_model]
};

/// One expert of a mixture: a feed-forward layer.
struct ExpertWeights {
  LinearWeights w_gate;  // [d_expert, d_model]; empty if not gated
  LinearWeights w_up;    // [d_expert, d_model]
  LinearWeights w_down;  // [d_model, d_expert]
};

/// One decoder layer. What the config has no use for is empty.
struct LayerWeights {
  NormWeights attention_norm;
  LinearWeights w_q;                // [n_heads * head_dim, d_model]
  LinearWeights w_k;                // [n_kv_heads * head_dim, d_model]
  LinearWeights w_v;                // [n_kv_heads * head_dim, d_model]
  LinearWeights w_o;                // [d_model, n_heads * head_dim]
  NormWeights q_norm;               // [head_dim] or [n_heads * head_dim]
  NormWeights k_norm;               // [head_dim] or [n_kv_heads * head_dim]
  NormWeights attention_post_norm;  // [d_model]
  NormWeights feed_forward_norm;
  LinearWeights w_gate;                // [d_ff, d_model]; empty in a plain feed-forward
  LinearWeights w_up;                  // [d_ff, d_model]
  LinearWeights w_down;                // [d_model, d_ff]
  NormWeights feed_forward_post_norm;  // [d_model]
  LinearWeights router;                // [n_experts, d_model], instead of w_gate, w_up and w_down
  std::vector<ExpertWeights> experts;
};

/// The whole model. Copies share the numbers: `owners` keeps the mapped files or heap blocks alive.
struct Weights {
  MatrixView token_embedding;     // [vocab_size, d_model]
  MatrixView position_embedding;  // [max_seq_len, d_model]; empty without learned positions
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  LinearWeights head;  // [vocab_size, d_model]; an empty matrix: the token embedding serves (tied)
  std::vector<std::shared_ptr<const void>> owners;
};

/// Calls f(matrix) for every matrix that there is, embeddings first, then layer by layer, the head last.
/// @tparam W  Weights, const or not
template <class W, class F>
requires std::same_as<std::remove_const_t<W>, Weights>
void for_each_matrix(W& weights, F&& f) {
  const auto visit = [&](auto& matrix) {
    if (!matrix.empty()) f(matrix);
  };
  visit(weights.token_embedding);
  visit(weights.position_embedding);
  for (auto& layer : weights.layers) {
    for (auto* linear : {&layer.w_q, &layer.w_k, &layer.w_v, &layer.w_o, &layer.w_gate, &layer.w_up,
                         &layer.w_down, &layer.router})
      visit(linear->matrix);
    for (auto& expert : layer.experts)
      for (auto* linear : {&expert.w_gate, &expert.w_up, &expert.w_down}) visit(linear->matrix);
  }
  visit(weights.head.matrix);
}

}  // namespace kvdecode

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
  LinearWeights w_q;  // [n_heads * head_dim, d_model or q_lora_rank]
  LinearWeights
      w_k;  // [n_kv_heads * head_dim, d_model]; none of a layer that reads another's keys and values
  LinearWeights w_v;              // [n_kv_heads * head_dim, d_model]; as w_k
  LinearWeights w_o;              // [d_model, n_heads * head_dim or n_heads * v_head_dim]
  NormWeights q_norm;             // [head_dim] or [n_heads * head_dim]
  NormWeights k_norm;             // [head_dim] or [n_kv_heads * head_dim]; as w_k
  LinearWeights w_q_a;            // [q_lora_rank, d_model] of latent attention; empty: w_q reads d_model
  NormWeights q_a_norm;           // [q_lora_rank]
  LinearWeights w_kv_a;           // [kv_lora_rank + qk_rope_head_dim, d_model]
  NormWeights kv_a_norm;          // [kv_lora_rank]
  std::vector<MatrixView> w_k_b;  // [n_heads] of [kv_lora_rank, qk_nope_head_dim]: a head's keys, transposed
  std::vector<MatrixView> w_v_b;  // [n_heads] of [v_head_dim, kv_lora_rank]: a head's values
  NormWeights attention_post_norm;  // [d_model]
  NormWeights feed_forward_norm;
  LinearWeights w_gate;                // [d_ff, d_model]; empty in a plain feed-forward
  LinearWeights w_up;                  // [d_ff, d_model]
  LinearWeights w_down;                // [d_model, d_ff]
  NormWeights feed_forward_post_norm;  // [d_model]
  LinearWeights router;                // [n_experts, d_model], instead of w_gate, w_up and w_down
  VectorView choice_bias;              // [n_experts]; empty: experts are chosen by their scores as they are
  std::vector<ExpertWeights> experts;
  ExpertWeights shared_expert;  // of d_shared_expert; or empty
  LinearWeights w_input_gate;   // [d_layer_input, d_model]
  LinearWeights w_input_out;    // [d_model, d_layer_input]
  NormWeights input_post_norm;  // [d_model]
  double scale = 1.0;           // of the stream behind the layer
};

/// Gives a layer its w_k_b and w_v_b where one matrix has the rows of every head's keys and values in turn, in place.
/// @param kv_b  [n_heads * (qk_nope_head_dim + v_head_dim), kv_lora_rank]  @pre it is not transposed
inline void set_kv_b(const MatrixView& kv_b, Index n_heads, Index qk_nope_head_dim, Index v_head_dim,
                     LayerWeights& layer) {
  for (Index head = 0; head < n_heads; ++head) {
    MatrixView k = kv_b, v = kv_b;
    k.data += head * (qk_nope_head_dim + v_head_dim) * kv_b.stride;
    k.rows = kv_b.cols;
    k.cols = qk_nope_head_dim;
    k.transposed = true;
    v.data = k.data + qk_nope_head_dim * kv_b.stride;
    v.rows = v_head_dim;
    layer.w_k_b.push_back(k);
    layer.w_v_b.push_back(v);
  }
}

/// The whole model. Copies share the numbers: `owners` keeps the mapped files or heap blocks alive.
struct Weights {
  MatrixView token_embedding;     // [vocab_size, d_model]
  MatrixView position_embedding;  // [max_seq_len, d_model]; empty without learned positions
  MatrixView layer_embedding;     // [vocab_size, n_layers * d_layer_input]; empty if layers have no inputs
  LinearWeights w_layer_inputs;   // [n_layers * d_layer_input, d_model]; likewise
  NormWeights layer_input_norm;   // [d_layer_input]; likewise
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
  visit(weights.layer_embedding);
  visit(weights.w_layer_inputs.matrix);
  for (auto& layer : weights.layers) {
    for (auto* linear :
         {&layer.w_q, &layer.w_k, &layer.w_v, &layer.w_o, &layer.w_q_a, &layer.w_kv_a, &layer.w_gate,
          &layer.w_up, &layer.w_down, &layer.router, &layer.w_input_gate, &layer.w_input_out})
      visit(linear->matrix);
    for (auto* matrices : {&layer.w_k_b, &layer.w_v_b})
      for (auto& matrix : *matrices) visit(matrix);
    const auto visit_expert = [&](auto& expert) {
      for (auto* linear : {&expert.w_gate, &expert.w_up, &expert.w_down}) visit(linear->matrix);
    };
    for (auto& expert : layer.experts) visit_expert(expert);
    visit_expert(layer.shared_expert);
  }
  visit(weights.head.matrix);
}

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// What a pass of a model has to read and to compute, from its config and the formats of its weights: the figures that
// a measured time is divided into.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/core/format.hpp>
#include <kvdecode/core/kv_shape.hpp>
#include <kvdecode/core/view.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace bench {

using kvdecode::Index;

/// Bytes that the numbers of a matrix take where they lie.
inline double matrix_bytes(const kvdecode::MatrixView& matrix) {
  if (matrix.empty()) return 0.0;
  return kvdecode::visit_format(kvdecode::GgufFormats{}, matrix.format, [&]<class F>() {
    return static_cast<double>(matrix.stored_rows()) *
           static_cast<double>(F::row_bytes(matrix.stored_cols()));
  });
}

/// Some matrices together.
struct MatrixCost {
  double bytes = 0.0;
  double flops = 0.0;  // of the products with one vector

  void add(const kvdecode::MatrixView& matrix) {
    bytes += matrix_bytes(matrix);
    flops += 2.0 * static_cast<double>(matrix.rows) * static_cast<double>(matrix.cols);
  }
};

/// Positions that a query sees.
inline Index n_visible(const kvdecode::AttentionSpan& span, Index query) {
  const Index first = span.first_visible(query);
  return query - first + 1 + std::min(span.n_sink, first);
}

/// Norms, biases and what is written are left out: a few thousandths.
class ModelCosts {
 public:
  ModelCosts(const kvdecode::ModelConfig& config, const kvdecode::Weights& weights) : config_(config) {
    for (const kvdecode::LayerWeights& layer : weights.layers) {
      for (const kvdecode::LinearWeights* linear : {&layer.w_q, &layer.w_k, &layer.w_v, &layer.w_o,
                                                    &layer.w_gate, &layer.w_up, &layer.w_down, &layer.router})
        every_token_.add(linear->matrix);
      for (const kvdecode::ExpertWeights& expert : layer.experts)
        for (const kvdecode::LinearWeights* linear : {&expert.w_gate, &expert.w_up, &expert.w_down})
          experts_.add(linear->matrix);
    }
    head_.add(config.tied_head ? weights.token_embedding : weights.head.matrix);
    embedding_bytes_ =
        matrix_bytes(weights.token_embedding) / static_cast<double>(weights.token_embedding.rows);
  }

  /// Bytes of weights that a pass over n_tokens reads, each with a row of logits. Of the experts of a mixture, those
  /// that are used at all: an expectation, as if each token drew its own.
  double weight_bytes(Index n_tokens) const {
    const double unused = config_.n_experts > 0 ? std::pow(1.0 - expert_share(), n_tokens) : 1.0;
    return every_token_.bytes + (1.0 - unused) * experts_.bytes + head_.bytes +
           static_cast<double>(n_tokens) * embedding_bytes_;
  }
  /// Operations with weights that a token costs, two a multiply-add.
  double layer_flops() const { return every_token_.flops + expert_share() * experts_.flops; }
  /// The same for a row of logits.
  double head_flops() const { return head_.flops; }

  /// Operations of attention for the token at a position.
  double attention_flops(Index position) const {
    double total = 0.0;
    for (Index layer = 0; layer < config_.n_layers; ++layer)
      total += 4.0 * static_cast<double>(n_visible(config_.span(layer), position) * config_.n_heads *
                                         config_.head_dim);
    return total;
  }
  /// Bytes of keys and values that the token at a position sees, each row once.
  template <kvdecode::KvCache Cache>
  double cache_bytes(Index position) const {
    const Index row_bytes =
        Cache::KeyFormat::row_bytes(config_.head_dim) + Cache::ValueFormat::row_bytes(config_.head_dim);
    double total = 0.0;
    for (Index layer = 0; layer < config_.n_layers; ++layer)
      total += static_cast<double>(n_visible(config_.span(layer), position) * config_.n_kv_heads * row_bytes);
    return total;
  }

 private:
  /// The part of its experts that one token uses.
  double expert_share() const {
    return config_.n_experts == 0
               ? 0.0
               : static_cast<double>(config_.n_experts_used) / static_cast<double>(config_.n_experts);
  }

  kvdecode::ModelConfig config_;
  MatrixCost every_token_;  // all matrices of the layers but those of experts
  MatrixCost experts_;      // of all layers
  MatrixCost head_;
  double embedding_bytes_ = 0.0;  // of a row
};

}  // namespace bench

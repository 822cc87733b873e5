// SPDX-License-Identifier: MIT
// <support/block_weights.hpp> - random weights in formats of blocks: any bits, but for scales that keep activations
// around 1.
#pragma once

#include <support/model.hpp>
#include <support/random.hpp>

#include <kvdecode/core/block_formats.hpp>

#include <memory>
#include <vector>

namespace kvdecode_test {

/// The weights of a model with every matrix of its layers, embedding and head in format F.
template <class F>
kvdecode::Weights random_block_weights(const kvdecode::ModelConfig& config, std::uint64_t seed) {
  kvdecode::Weights weights = kvdecode_test::random_weights(config, {.seed = seed});
  SplitMix64 random(seed);
  const auto replace = [&](kvdecode::MatrixView& w) {
    if (w.data == nullptr) return;
    const kvdecode::Index stride = F::row_bytes(w.cols) + 1;
    const OffsetBytes bytes(w.rows * stride, 1);
    for (kvdecode::Index r = 0; r < w.rows; ++r)
      for (kvdecode::Index i = 0; i < F::row_bytes(w.cols); ++i) {
        // Without two bits of its exponent, a scale in half precision is less than 2^-7.
        auto byte = static_cast<std::byte>(random() & 0x9fu);
        if (F::kId == kvdecode::FormatId::kMXFP4 && i % F::kBlockBytes == 0)
          byte = static_cast<std::byte>(118 + random.below(8));
        bytes.data()[r * stride + i] = byte;
      }
    weights.owners.push_back(bytes.owner());
    w = {F::kId, bytes.data(), w.rows, w.cols, stride, false};
  };
  const auto feed_forward = [&](auto& w) {
    replace(w.w_gate.matrix);
    replace(w.w_up.matrix);
    replace(w.w_down.matrix);
  };
  replace(weights.token_embedding);
  replace(weights.head.matrix);
  replace(weights.layer_embedding);
  replace(weights.w_layer_inputs.matrix);
  for (kvdecode::LayerWeights& layer : weights.layers) {
    for (kvdecode::LinearWeights* w : {&layer.w_q, &layer.w_k, &layer.w_v, &layer.w_o, &layer.w_q_a,
                                       &layer.w_kv_a, &layer.w_input_gate, &layer.w_input_out})
      replace(w->matrix);
    for (auto* matrices : {&layer.w_k_b, &layer.w_v_b})
      for (kvdecode::MatrixView& w : *matrices) replace(w);
    feed_forward(layer);
    feed_forward(layer.shared_expert);
    for (kvdecode::ExpertWeights& expert : layer.experts) feed_forward(expert);
  }
  return weights;
}

}  // namespace kvdecode_test

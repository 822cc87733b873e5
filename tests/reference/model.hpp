// SPDX-License-Identifier: MIT
// <reference/model.hpp> - the whole model, recomputed from scratch for all positions, layer by layer, in
// double; and its greedy continuation.
#pragma once

#include <reference/activations.hpp>
#include <reference/attention.hpp>
#include <reference/linear.hpp>
#include <reference/norms.hpp>
#include <reference/numbers.hpp>
#include <reference/rotary.hpp>

#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

namespace kvdecode_reference {

using kvdecode::LayerWeights;
using kvdecode::LinearWeights;
using kvdecode::ModelConfig;
using kvdecode::NormKind;
using kvdecode::NormWeights;
using kvdecode::PositionKind;
using kvdecode::ResidualKind;
using kvdecode::TokenId;
using kvdecode::Weights;

/// y = W x + b for each row of x.
inline Rows linear(const LinearWeights& weights, const Rows& x) {
  return linear(read(weights.matrix), read(weights.bias), x);
}

/// The model's norm of each row of x; x itself where there is none.
inline Rows norm(const ModelConfig& config, const NormWeights& weights, const Rows& x) {
  const Vector weight = read(weights.weight);
  const Vector bias = read(weights.bias);
  if (weight.empty() && bias.empty()) return x;
  Rows y;
  for (const Vector& row : x)
    y.push_back(config.norm == NormKind::kRms ? rms_norm(row, weight, bias, config.norm_eps)
                                              : layer_norm(row, weight, bias, config.norm_eps));
  return y;
}

/// The token's row of the embedding, plus that of its position if positions are learned (Radford 2018).
/// [seq_len, d_model]
inline Rows embed(const ModelConfig& config, const Weights& weights, std::span<const TokenId> tokens) {
  Rows x;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto position = static_cast<Index>(i);
    if (tokens[i] < 0 || tokens[i] >= config.vocab_size)
      throw std::invalid_argument("reference: token outside the vocabulary");
    if (config.position == PositionKind::kLearned && position >= config.max_seq_len)
      throw std::invalid_argument("reference: more positions than were learned");
    Vector row;
    for (Index c = 0; c < config.d_model; ++c) {
      double value = element(weights.token_embedding, tokens[i], c);
      if (config.position == PositionKind::kLearned)
        value += element(weights.position_embedding, position, c);
      row.push_back(value);
    }
    x.push_back(row);
  }
  return x;
}

/// Head h of a row of heads side by side.
inline Vector head_of(const Vector& row, Index h, Index head_dim) {
  return Vector(row.begin() + h * head_dim, row.begin() + (h + 1) * head_dim);
}

/// A head as it stands at `position`: turned to it if positions are rotary.
inline Vector placed(const ModelConfig& config, const Vector& head, Index position) {
  return config.position == PositionKind::kRotary ? rotate(head, position, config.rotary) : head;
}

/// MultiHead(x) = concat(head_1, ..., head_n) W_o (Vaswani 2017, section 3.2.2); query head h reads key and
/// value head h / (n_heads / n_kv_heads) (Shazeer 2019, MQA; Ainslie 2023, GQA). x: [seq_len, d_model]
inline Rows attention_block(const ModelConfig& config, const LayerWeights& weights, const AttentionSpan& span,
                            const Rows& x) {
  const Rows q = linear(weights.w_q, x);  // [seq_len, n_heads * head_dim]
  const Rows k = linear(weights.w_k, x);  // [seq_len, n_kv_heads * head_dim]
  const Rows v = linear(weights.w_v, x);  // [seq_len, n_kv_heads * head_dim]
  const double scale = config.attention_scale > 0.0 ? config.attention_scale
                                                    : 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  Rows heads(x.size());  // [seq_len, n_heads * head_dim]
  for (Index h = 0; h < config.n_heads; ++h) {
    const Index kv_head = h / (config.n_heads / config.n_kv_heads);
    Rows keys;    // [seq_len, head_dim]
    Rows values;  // [seq_len, head_dim]
    for (std::size_t j = 0; j < x.size(); ++j) {
      keys.push_back(placed(config, head_of(k[j], kv_head, config.head_dim), static_cast<Index>(j)));
      values.push_back(head_of(v[j], kv_head, config.head_dim));
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto position = static_cast<Index>(i);
      const Vector query = head_of(q[i], h, config.head_dim);
      const Vector q_window = placed(config, query, position);
      const Vector q_sink = placed(config, query, sink_position(span, config.sink_rotation, position));
      const Vector head = attention(q_window, q_sink, keys, values, position, span, scale);
      heads[i].insert(heads[i].end(), head.begin(), head.end());
    }
  }
  return linear(weights.w_o, heads);
}

/// W_down (act(W_gate x) * (W_up x)) (Shazeer 2020, GLU variants), or without a gate W_down act(W_up x)
/// (Vaswani 2017, Eq. 2). x: [seq_len, d_model]
inline Rows feed_forward_block(const ModelConfig& config, const LayerWeights& weights, const Rows& x) {
  Rows hidden = linear(weights.w_up, x);  // [seq_len, d_ff]
  const Rows gate = config.gated_feed_forward ? linear(weights.w_gate, x) : Rows{};
  for (std::size_t i = 0; i < hidden.size(); ++i)
    for (std::size_t c = 0; c < hidden[i].size(); ++c)
      hidden[i][c] = config.gated_feed_forward ? activate(config.activation, gate[i][c]) * hidden[i][c]
                                               : activate(config.activation, hidden[i][c]);
  return linear(weights.w_down, hidden);
}

/// One layer: sequential with norms first (Xiong 2020), or attention and feed-forward side by side (Wang &
/// Komatsuzaki 2021), with a norm each or one for both. x: [seq_len, d_model]
inline Rows decoder_layer(const ModelConfig& config, const LayerWeights& weights, const AttentionSpan& span,
                          const Rows& x) {
  const Rows normed = norm(config, weights.attention_norm, x);
  const Rows attended = sum(x, attention_block(config, weights, span, normed));
  switch (config.residual) {
    case ResidualKind::kSequential:
      return sum(attended,
                 feed_forward_block(config, weights, norm(config, weights.feed_forward_norm, attended)));
    case ResidualKind::kParallel:
      return sum(attended, feed_forward_block(config, weights, norm(config, weights.feed_forward_norm, x)));
    case ResidualKind::kParallelSharedNorm: return sum(attended, feed_forward_block(config, weights, normed));
  }
  throw std::invalid_argument("reference: unknown residual kind");
}

/// The final norm and the head; a tied head is the token embedding (Press & Wolf 2017).
/// x: [n, d_model] -> [n, vocab_size]
inline Rows head_block(const ModelConfig& config, const Weights& weights, const Rows& x) {
  const bool tied = config.tied_head || weights.head.matrix.data == nullptr;
  const Rows matrix = read(tied ? weights.token_embedding : weights.head.matrix);
  return linear(matrix, read(weights.head.bias), norm(config, weights.final_norm, x));
}

/// What the last layer hands to the final norm, for every token. [seq_len, d_model]
inline Rows hidden_states(const ModelConfig& config, const Weights& weights,
                          std::span<const TokenId> tokens) {
  Rows x = embed(config, weights, tokens);
  for (std::size_t layer = 0; layer < weights.layers.size(); ++layer) {
    const AttentionSpan span = config.spans.empty() ? AttentionSpan{} : config.spans[layer];
    x = decoder_layer(config, weights.layers[layer], span, x);
  }
  return x;
}

/// The logits after every token. [seq_len, vocab_size]
inline std::vector<std::vector<double>> logits(const ModelConfig& config, const Weights& weights,
                                               std::span<const TokenId> tokens) {
  return head_block(config, weights, hidden_states(config, weights, tokens));
}

/// The n tokens that follow the prompt when each is the one with the largest logit, of equal ones the lowest.
inline std::vector<TokenId> greedy(const ModelConfig& config, const Weights& weights,
                                   std::span<const TokenId> prompt, Index n) {
  std::vector<TokenId> tokens(prompt.begin(), prompt.end());
  for (Index step = 0; step < n; ++step) {
    const Rows hidden = hidden_states(config, weights, tokens);
    const Vector last = head_block(config, weights, {hidden.back()})[0];  // [vocab_size]
    tokens.push_back(static_cast<TokenId>(std::max_element(last.begin(), last.end()) - last.begin()));
  }
  return std::vector<TokenId>(tokens.begin() + static_cast<Index>(prompt.size()), tokens.end());
}

}  // namespace kvdecode_reference

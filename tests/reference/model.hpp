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

using kvdecode::ExpertGroupScore;
using kvdecode::ExpertScore;
using kvdecode::LayerWeights;
using kvdecode::LinearWeights;
using kvdecode::ModelConfig;
using kvdecode::NormKind;
using kvdecode::NormWeights;
using kvdecode::PositionKind;
using kvdecode::QkNormKind;
using kvdecode::ResidualKind;
using kvdecode::TokenId;
using kvdecode::Weights;

/// y = (W x) scale + b for each row of x.
inline Rows linear(const LinearWeights& weights, const Rows& x) {
  Rows w = read(weights.matrix);
  for (Vector& row : w)
    for (double& element : row) element *= weights.scale;
  return linear(w, read(weights.bias), x);
}

/// One row by the model's norm, whose weights are stored less norm_weight_offset.
inline Vector norm(const ModelConfig& config, const NormWeights& weights, const Vector& x) {
  Vector weight = read(weights.weight);
  for (double& w : weight) w += config.norm_weight_offset;
  const Vector bias = read(weights.bias);
  return config.norm == NormKind::kRms ? rms_norm(x, weight, bias, config.norm_eps)
                                       : layer_norm(x, weight, bias, config.norm_eps);
}
inline Rows norm(const ModelConfig& config, const NormWeights& weights, const Rows& x) {
  Rows y;
  for (const Vector& row : x) y.push_back(norm(config, weights, row));
  return y;
}

/// The token's row of the embedding, scaled, plus that of its position if positions are learned (Radford 2018).
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
      double value = config.embedding_scale * element(weights.token_embedding, tokens[i], c);
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

/// The rotary positions of a layer.
inline const RotaryConfig& rotary_of(const ModelConfig& config, std::size_t layer) {
  return config.layer_rotary.empty() ? config.rotary : config.layer_rotary[layer];
}

/// What inv_freq() has to know of a sequence's length, in any layer.
inline Index epoch_of(const ModelConfig& config, Index seq_len) {
  if (config.position != PositionKind::kRotary) return 0;
  Index epoch = 0;
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(config.n_layers); ++layer)
    epoch = std::max(epoch, epoch_of(rotary_of(config, layer), seq_len));
  return epoch;
}

/// Queries or keys of a position, normed: each head by itself, or all of them as one row (Henry 2020).
inline Vector qk_normed(const ModelConfig& config, const NormWeights& weights, const Vector& row) {
  if (config.qk_norm == QkNormKind::kNone) return row;
  if (config.qk_norm == QkNormKind::kWhole) return norm(config, weights, row);
  Vector result;
  for (Index h = 0; h < static_cast<Index>(row.size()) / config.head_dim; ++h) {
    const Vector head = norm(config, weights, head_of(row, h, config.head_dim));
    result.insert(result.end(), head.begin(), head.end());
  }
  return result;
}

/// The keys and values of a layer, as other layers may read them. [seq_len, n_kv_heads * head_dim]
struct KeysAndValues {
  Rows k;
  Rows v;
};

/// Those that a layer makes of what it reads, keys before they are placed: x: [seq_len, d_model]
inline KeysAndValues keys_and_values(const ModelConfig& config, const LayerWeights& weights, const Rows& x) {
  KeysAndValues rows{linear(weights.w_k, x), linear(weights.w_v, x)};
  for (Vector& row : rows.k) row = qk_normed(config, weights.k_norm, row);
  if (!config.value_norm) return rows;
  for (Vector& row : rows.v) {
    Vector normed;
    for (Index h = 0; h < config.n_kv_heads; ++h) {
      const Vector ones(at(config.head_dim), 1.0);
      const Vector head = rms_norm(head_of(row, h, config.head_dim), ones, Vector{}, config.norm_eps);
      normed.insert(normed.end(), head.begin(), head.end());
    }
    row = normed;
  }
  return rows;
}

/// MultiHead(x) = concat(head_1, ..., head_n) W_o (Vaswani 2017, section 3.2.2); query head h reads key and
/// value head h / (n_heads / n_kv_heads) (Shazeer 2019, MQA; Ainslie 2023, GQA). x: [seq_len, d_model]
inline Rows attention_block(const ModelConfig& config, const LayerWeights& weights, const AttentionSpan& span,
                            const RotaryConfig& rotary, Index epoch, const Rows& x,
                            const KeysAndValues& rows) {
  const auto& [k, v] = rows;
  Rows q = linear(weights.w_q, x);  // [seq_len, n_heads * head_dim]
  for (Vector& row : q) row = qk_normed(config, weights.q_norm, row);
  const auto placed = [&](const Vector& head, Index position) {
    return config.position == PositionKind::kRotary ? rotate(head, position, rotary, epoch) : head;
  };
  const double scale = config.attention_scale > 0.0 ? config.attention_scale
                                                    : 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  Rows heads(x.size());  // [seq_len, n_heads * head_dim]
  for (Index h = 0; h < config.n_heads; ++h) {
    const Index kv_head = h / (config.n_heads / config.n_kv_heads);
    Rows keys;    // [seq_len, head_dim]
    Rows values;  // [seq_len, head_dim]
    for (std::size_t j = 0; j < x.size(); ++j) {
      keys.push_back(placed(head_of(k[j], kv_head, config.head_dim), static_cast<Index>(j)));
      values.push_back(head_of(v[j], kv_head, config.head_dim));
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto position = static_cast<Index>(i);
      const Vector query = head_of(q[i], h, config.head_dim);
      const Vector q_window = placed(query, position);
      const Vector q_sink = placed(query, sink_position(span, config.sink_rotation, position));
      const Vector head =
          attention(q_window, q_sink, keys, values, position, span, scale, config.attention_soft_cap);
      heads[i].insert(heads[i].end(), head.begin(), head.end());
    }
  }
  return linear(weights.w_o, heads);
}

/// Attention over a latent (DeepSeek-AI 2024, MLA, Eqs. 9-19) as it is defined: head h has keys [W_k_b,h c, k_rope] and
/// values W_v_b,h c, made of the latent c of their position. x: [seq_len, d_model]
inline Rows latent_attention_block(const ModelConfig& config, const LayerWeights& weights,
                                   const AttentionSpan& span, const RotaryConfig& rotary, Index epoch,
                                   const Rows& x) {
  ModelConfig latents = config;
  latents.norm_eps = config.latent_norm_eps;
  const Index rank = config.kv_lora_rank, nope = config.qk_nope_head_dim;
  const auto part = [](const Vector& row, Index begin, Index end) {
    return Vector(row.begin() + begin, row.begin() + end);
  };
  const auto placed = [&](const Vector& row, Index position) {
    return config.position == PositionKind::kRotary ? rotate(row, position, rotary, epoch) : row;
  };
  const auto joined = [](Vector a, const Vector& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  const Rows q = linear(
      weights.w_q, config.q_lora_rank > 0 ? norm(latents, weights.q_a_norm, linear(weights.w_q_a, x)) : x);
  Rows c, k_rope;  // [seq_len, kv_lora_rank], [seq_len, qk_rope_head_dim]
  for (const Vector& row : linear(weights.w_kv_a, x)) {
    c.push_back(norm(latents, weights.kv_a_norm, part(row, 0, rank)));
    k_rope.push_back(
        placed(part(row, rank, static_cast<Index>(row.size())), static_cast<Index>(k_rope.size())));
  }
  const double scale = config.attention_scale > 0.0 ? config.attention_scale
                                                    : 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  Rows heads(x.size());  // [seq_len, n_heads * v_head_dim]
  for (Index h = 0; h < config.n_heads; ++h) {
    const Rows w_k_transposed = read(weights.w_k_b[at(h)]);  // [kv_lora_rank, qk_nope_head_dim]
    Rows w_k(at(nope));
    for (const Vector& row : w_k_transposed)
      for (Index i = 0; i < nope; ++i) w_k[at(i)].push_back(row[at(i)]);
    const Rows k_nope = linear(w_k, Vector{}, c);
    const Rows values = linear(read(weights.w_v_b[at(h)]), Vector{}, c);
    Rows keys;  // [seq_len, head_dim]
    for (std::size_t j = 0; j < x.size(); ++j) keys.push_back(joined(k_nope[j], k_rope[j]));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto position = static_cast<Index>(i);
      const Vector query = head_of(q[i], h, config.head_dim);
      const auto query_at = [&](Index p) {
        return joined(part(query, 0, nope), placed(part(query, nope, config.head_dim), p));
      };
      heads[i] = joined(heads[i], attention(query_at(position),
                                            query_at(sink_position(span, config.sink_rotation, position)),
                                            keys, values, position, span, scale, config.attention_soft_cap));
    }
  }
  return linear(weights.w_o, heads);
}

/// W_down (act(W_gate x) * (W_up x)) (Shazeer 2020, GLU variants), or without a gate W_down act(W_up x)
/// (Vaswani 2017, Eq. 2), of a layer or an expert. x: [seq_len, d_model]
template <class FeedForward>
Rows feed_forward_block(const ModelConfig& config, const FeedForward& weights, const Rows& x) {
  Rows hidden = linear(weights.w_up, x);  // [seq_len, d_ff]
  const Rows gate = config.gated_feed_forward ? linear(weights.w_gate, x) : Rows{};
  for (std::size_t i = 0; i < hidden.size(); ++i)
    for (std::size_t c = 0; c < hidden[i].size(); ++c)
      hidden[i][c] = config.gated_feed_forward ? activate(config.activation, gate[i][c]) * hidden[i][c]
                                               : activate(config.activation, hidden[i][c]);
  return linear(weights.w_down, hidden);
}

/// The experts of a token by falling score, of equal ones the lower first, and only those of the groups that count: the
/// n_expert_groups_used with the best expert, or with the best sum of two experts (DeepSeek-AI 2024).
inline std::vector<std::size_t> expert_order(const ModelConfig& config, const Vector& scores) {
  const std::size_t size = scores.size() / at(config.n_expert_groups);
  const auto by_falling = [](const Vector& x) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < x.size(); ++i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
    return order;
  };
  Vector of_groups;
  for (std::size_t first = 0; first < scores.size(); first += size) {
    Vector group(scores.begin() + static_cast<Index>(first),
                 scores.begin() + static_cast<Index>(first + size));
    std::sort(group.rbegin(), group.rend());
    const bool is_sum = config.expert_group_score == ExpertGroupScore::kTopTwo && size > 1;
    of_groups.push_back(is_sum ? group[0] + group[1] : group[0]);
  }
  std::vector<std::size_t> groups = by_falling(of_groups);
  groups.resize(at(config.n_expert_groups_used));
  std::vector<std::size_t> result;
  for (const std::size_t e : by_falling(scores))
    if (std::find(groups.begin(), groups.end(), e / size) != groups.end()) result.push_back(e);
  return result;
}

/// sum over the n_experts_used best experts e of p_e expert_e(x), p = softmax(W_router x) (Fedus 2021, Eqs. 1-2, for
/// more than one) or sigmoid(W_router x) (DeepSeek-V3, Eqs. 12-16), or p divided by the sum of those used, then scaled.
/// They are chosen by p + choice_bias. A shared expert is added as it is.
inline Rows experts_block(const ModelConfig& config, const LayerWeights& weights, const Rows& x) {
  Rows result;
  for (const Vector& row : x) {
    const Vector z = linear(weights.router, Rows{row})[0];  // [n_experts]
    Vector p = softmax(z);
    if (config.expert_score == ExpertScore::kSigmoid)
      for (std::size_t e = 0; e < z.size(); ++e) p[e] = sigmoid(z[e]);
    const Vector bias = read(weights.choice_bias);
    std::vector<std::size_t> order = expert_order(config, bias.empty() ? p : sum(p, bias));
    order.resize(static_cast<std::size_t>(config.n_experts_used));
    double total = 0.0;
    for (const std::size_t e : order) total += p[e];
    Vector y(row.size(), 0.0);
    for (const std::size_t e : order) {
      const double weight =
          config.expert_weight_scale * (config.normalize_expert_weights ? p[e] / total : p[e]);
      const Vector expert = feed_forward_block(config, weights.experts[e], Rows{row})[0];
      for (std::size_t c = 0; c < y.size(); ++c) y[c] += weight * expert[c];
    }
    if (config.d_shared_expert > 0)
      y = sum(y, feed_forward_block(config, weights.shared_expert, Rows{row})[0]);
    result.push_back(y);
  }
  return result;
}

/// What each layer has of every token beside the stream (per-layer embeddings of Gemma 3n and 4), by layer, then token:
/// (norm(W x) + s e) / sqrt(2) for the token's row e of the second embedding, each layer with its part of both. x: the stream
/// before the first layer. [n_layers][seq_len, d_layer_input]
inline std::vector<Rows> layer_inputs(const ModelConfig& config, const Weights& weights,
                                      std::span<const TokenId> tokens, const Rows& x) {
  const Index d = config.d_layer_input;
  std::vector<Rows> inputs(at(config.n_layers));
  if (d == 0) return inputs;
  const Rows projected = linear(weights.w_layer_inputs, x);  // [seq_len, n_layers * d_layer_input]
  for (Index layer = 0; layer < config.n_layers; ++layer)
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      Vector input = norm(config, weights.layer_input_norm, head_of(projected[i], layer, d));
      for (Index c = 0; c < d; ++c) {
        const double e = element(weights.layer_embedding, tokens[i], layer * d + c);
        input[at(c)] = (input[at(c)] + config.layer_embedding_scale * e) / std::sqrt(2.0);
      }
      inputs[at(layer)].push_back(input);
    }
  return inputs;
}

/// W_out (act(W_gate x) * u), normed. x: [seq_len, d_model], u: [seq_len, d_layer_input]
inline Rows layer_input_block(const ModelConfig& config, const LayerWeights& weights, const Rows& x,
                              const Rows& u) {
  Rows hidden = linear(weights.w_input_gate, x);  // [seq_len, d_layer_input]
  for (std::size_t i = 0; i < hidden.size(); ++i)
    for (std::size_t c = 0; c < hidden[i].size(); ++c)
      hidden[i][c] = activate(config.activation, hidden[i][c]) * u[i][c];
  return norm(config, weights.input_post_norm, linear(weights.w_input_out, hidden));
}

/// The two branches of a layer: sequential with norms first (Xiong 2020), or attention and feed-forward side by side (Wang &
/// Komatsuzaki 2021), with a norm each or one for both. Norms may also, or only, stand behind each branch. Keys and values
/// are those of layer kv_stores[layer] (Brandon 2024), which `stores` then has. x: [seq_len, d_model]
inline Rows branches(const ModelConfig& config, const LayerWeights& weights, std::size_t layer, Index epoch,
                     const Rows& x, std::vector<KeysAndValues>& stores) {
  const bool norms_before = config.norm_placement != kvdecode::NormPlacement::kPost;
  const bool norms_after = config.norm_placement != kvdecode::NormPlacement::kPre;
  const auto before = [&](const NormWeights& w, const Rows& rows) {
    return norms_before ? norm(config, w, rows) : rows;
  };
  const auto after = [&](const NormWeights& w, const Rows& rows) {
    return norms_after ? norm(config, w, rows) : rows;
  };
  const AttentionSpan span = config.spans.empty() ? AttentionSpan{} : config.spans[layer];
  const bool has_experts = config.n_experts > 0 && (config.has_experts.empty() || config.has_experts[layer]);
  const auto feed_forward = [&](const Rows& rows) {
    return after(weights.feed_forward_post_norm, has_experts ? experts_block(config, weights, rows)
                                                             : feed_forward_block(config, weights, rows));
  };
  const Rows normed = before(weights.attention_norm, x);
  const std::size_t store = config.kv_stores.empty() ? layer : at(config.kv_stores[layer]);
  ModelConfig own = config;
  if (!config.layer_head_dim.empty()) own.head_dim = config.layer_head_dim[layer];
  const bool is_latent = config.kv_lora_rank > 0;
  if (!is_latent && store == layer) stores[layer] = keys_and_values(own, weights, normed);
  const Rows attention =
      is_latent ? latent_attention_block(own, weights, span, rotary_of(config, layer), epoch, normed)
                : attention_block(own, weights, span, rotary_of(config, layer), epoch, normed, stores[store]);
  const Rows attended = sum(x, after(weights.attention_post_norm, attention));
  switch (config.residual) {
    case ResidualKind::kSequential:
      return sum(attended, feed_forward(before(weights.feed_forward_norm, attended)));
    case ResidualKind::kParallel: return sum(attended, feed_forward(before(weights.feed_forward_norm, x)));
    case ResidualKind::kParallelSharedNorm: return sum(attended, feed_forward(normed));
  }
  throw std::invalid_argument("reference: unknown residual kind");
}

/// One layer: its branches, what it makes of its inputs, and its scale. x: [seq_len, d_model]
inline Rows decoder_layer(const ModelConfig& config, const LayerWeights& weights, std::size_t layer,
                          Index epoch, const Rows& x, const Rows& inputs,
                          std::vector<KeysAndValues>& stores) {
  Rows y = branches(config, weights, layer, epoch, x, stores);
  if (config.d_layer_input > 0) y = sum(y, layer_input_block(config, weights, y, inputs));
  for (Vector& row : y)
    for (double& element : row) element *= weights.scale;
  return y;
}

/// The final norm and the head; a tied head is the token embedding (Press & Wolf 2017). With a soft cap c > 0 each
/// logit z becomes c tanh(z / c) (Gemma Team 2024). x: [n, d_model] -> [n, vocab_size]
inline Rows head_block(const ModelConfig& config, const Weights& weights, const Rows& x) {
  const bool tied = config.tied_head || weights.head.matrix.data == nullptr;
  LinearWeights head = weights.head;
  if (tied) head.matrix = weights.token_embedding;
  Rows y = linear(head, norm(config, weights.final_norm, x));
  if (const double cap = config.logit_soft_cap; cap > 0.0)
    for (Vector& row : y)
      for (double& z : row) z = cap * std::tanh(z / cap);
  return y;
}

/// What the last layer hands to the final norm, for every token of a sequence of this length. [seq_len, d_model]
inline Rows hidden_states(const ModelConfig& config, const Weights& weights,
                          std::span<const TokenId> tokens) {
  const Index epoch = epoch_of(config, static_cast<Index>(tokens.size()));
  Rows x = embed(config, weights, tokens);
  const std::vector<Rows> inputs = layer_inputs(config, weights, tokens, x);
  std::vector<KeysAndValues> stores(weights.layers.size());
  for (std::size_t layer = 0; layer < weights.layers.size(); ++layer)
    x = decoder_layer(config, weights.layers[layer], layer, epoch, x, inputs[layer], stores);
  return x;
}

/// The logits after every token. Those after token i belong to the sequence that ends with it: where angles depend on
/// the length, it has a pass of its own. [seq_len, vocab_size]
inline std::vector<std::vector<double>> logits(const ModelConfig& config, const Weights& weights,
                                               std::span<const TokenId> tokens) {
  if (epoch_of(config, static_cast<Index>(tokens.size())) == 0)
    return head_block(config, weights, hidden_states(config, weights, tokens));
  Rows result;
  for (std::size_t n = 1; n <= tokens.size(); ++n)
    result.push_back(
        head_block(config, weights, {hidden_states(config, weights, tokens.first(n)).back()})[0]);
  return result;
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

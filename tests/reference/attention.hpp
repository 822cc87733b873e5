// SPDX-License-Identifier: MIT
// <reference/attention.hpp> - one head's attention of one query over all keys, with the mask of a span.
#pragma once

#include <reference/activations.hpp>
#include <reference/numbers.hpp>

#include <kvdecode/core/kv_shape.hpp>
#include <kvdecode/model/config.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace kvdecode_reference {

using kvdecode::AttentionSpan;
using kvdecode::SinkRotation;

/// Whether the query at position i sees the key at position j.
inline bool visible(const AttentionSpan& span, Index i, Index j) {
  if (j > i) return false;  // the future: never
  if (span.chunk > 0 && i / span.chunk != j / span.chunk) return false;
  if (span.window == 0) return true;
  return i - j < span.window || j < span.n_sink;
}

/// Where the query at position i stands for the keys of sinks. A cache of n_sink + window rows (Xiao 2023,
/// section 3.2) numbers them 0, 1, ..., and the query's own row is the last. Until it overflows, at
/// i = n_sink + window, that is i itself; so a sink still within the window is at its true distance.
inline Index sink_position(const AttentionSpan& span, SinkRotation rotation, Index i) {
  if (rotation == SinkRotation::kAbsolute) return i;
  return std::min(i, span.n_sink + span.window - 1);
}

/// softmax(scale * q K^T) V (Vaswani 2017, Eq. 1) over the visible keys. With a soft cap c > 0 each score s
/// becomes c tanh(s / c) (Gemma Team 2024).
///
/// @param q        [head_dim] the query as it meets the window's keys
/// @param q_sink   [head_dim] the query as it meets the sinks' keys: q, but for its rotation
/// @param keys     [seq_len, head_dim] of positions 0, 1, ...
/// @param values   [seq_len, v_dim]
/// @param position the query's
inline Vector attention(const Vector& q, const Vector& q_sink, const Rows& keys, const Rows& values,
                        Index position, const AttentionSpan& span, double scale, double soft_cap = 0.0) {
  Vector scores;            // [n_visible]
  std::vector<Index> seen;  // [n_visible] their positions
  for (Index j = 0; j < static_cast<Index>(keys.size()); ++j) {
    if (!visible(span, position, j)) continue;
    const Vector& query = j < span.n_sink ? q_sink : q;
    double dot = 0.0;
    for (std::size_t c = 0; c < query.size(); ++c) dot += query[c] * keys[at(j)][c];
    const double score = scale * dot;
    scores.push_back(soft_cap > 0.0 ? soft_cap * std::tanh(score / soft_cap) : score);
    seen.push_back(j);
  }
  const Vector probs = softmax(scores);
  Vector output(values[0].size(), 0.0);
  for (std::size_t n = 0; n < seen.size(); ++n)
    for (std::size_t c = 0; c < output.size(); ++c) output[c] += probs[n] * values[at(seen[n])][c];
  return output;
}

/// The same with one rotation for all keys.
inline Vector attention(const Vector& q, const Rows& keys, const Rows& values, Index position,
                        const AttentionSpan& span, double scale, double soft_cap = 0.0) {
  return attention(q, q, keys, values, position, span, scale, soft_cap);
}

}  // namespace kvdecode_reference

// SPDX-License-Identifier: MIT
// <kvdecode/model/fingerprint.hpp> - a model as one number: of every field of its config and every byte of its weights,
// so that what one model has computed is not taken for what another would. O(bytes of weights).
#pragma once

#include <kvdecode/core/format.hpp>
#include <kvdecode/core/hash64.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// Adds structs field by field. A field that is added to one of them breaks the binding that names all of them.
template <class Formats>
class ModelHash {
 public:
  void add(const ModelConfig& config) {
    const auto& [n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, vocab_size, max_seq_len, norm,
                 norm_eps, norm_weight_offset, norm_placement, qk_norm, value_norm, activation,
                 gated_feed_forward, residual, position, rotary, embedding_scale, attention_scale,
                 attention_soft_cap, logit_soft_cap, tied_head, kv_lora_rank, q_lora_rank, qk_nope_head_dim,
                 v_head_dim, latent_norm_eps, n_experts, n_experts_used, d_expert, normalize_expert_weights,
                 expert_weight_scale, expert_score, n_expert_groups, n_expert_groups_used, expert_group_score,
                 d_shared_expert, d_layer_input, layer_embedding_scale, spans, layer_rotary, has_experts,
                 layer_head_dim, kv_stores, sink_rotation] = config;
    add_all(n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, vocab_size, max_seq_len, norm, norm_eps,
            norm_weight_offset, norm_placement, qk_norm, value_norm, activation, gated_feed_forward, residual,
            position, rotary, embedding_scale, attention_scale, attention_soft_cap, logit_soft_cap, tied_head,
            kv_lora_rank, q_lora_rank, qk_nope_head_dim, v_head_dim, latent_norm_eps, n_experts,
            n_experts_used, d_expert, normalize_expert_weights, expert_weight_scale, expert_score,
            n_expert_groups, n_expert_groups_used, expert_group_score, d_shared_expert, d_layer_input,
            layer_embedding_scale, spans, layer_rotary, has_experts, layer_head_dim, kv_stores,
            sink_rotation);
  }
  void add(const Weights& weights) {
    const auto& [token_embedding, position_embedding, layer_embedding, w_layer_inputs, layer_input_norm,
                 layers, final_norm, head, owners] = weights;
    static_cast<void>(owners);
    add_all(token_embedding, position_embedding, layer_embedding, w_layer_inputs, layer_input_norm, layers,
            final_norm, head);
  }
  std::uint64_t value() const noexcept { return hash_.value(); }

 private:
  template <class... Ts>
  void add_all(const Ts&... fields) {
    (add(fields), ...);
  }
  template <class T>
  requires std::integral<T> || std::same_as<T, double>
  void add(T number) { hash_.add(number); }
  template <class T>
  requires std::is_enum_v<T>
  void add(T value) { hash_.add(static_cast<Index>(value)); }
  template <class T>
  void add(const std::vector<T>& items) {
    hash_.add(items.size());
    for (const T& item : items) add(item);
  }
  void add(const AttentionSpan& span) {
    const auto& [window, n_sink, chunk] = span;
    add_all(window, n_sink, chunk);
  }
  void add(const RotaryConfig& rotary) {
    const auto& [enabled, dim, theta, pairs, scaling] = rotary;
    add_all(enabled, dim, theta, pairs, scaling);
  }
  void add(const RotaryScaling& scaling) {
    const auto& [kind, factor, low_freq_factor, high_freq_factor, original_max_seq_len, beta_fast, beta_slow,
                 round_bounds, magnitude, short_factors, long_factors, n_turning] = scaling;
    add_all(kind, factor, low_freq_factor, high_freq_factor, original_max_seq_len, beta_fast, beta_slow,
            round_bounds, magnitude, short_factors, long_factors, n_turning);
  }
  void add(const LayerWeights& layer) {
    const auto& [attention_norm, w_q, w_k, w_v, w_o, q_norm, k_norm, w_q_a, q_a_norm, w_kv_a, kv_a_norm,
                 w_k_b, w_v_b, attention_post_norm, feed_forward_norm, w_gate, w_up, w_down,
                 feed_forward_post_norm, router, choice_bias, experts, shared_expert, w_input_gate,
                 w_input_out, input_post_norm, scale] = layer;
    add_all(attention_norm, w_q, w_k, w_v, w_o, q_norm, k_norm, w_q_a, q_a_norm, w_kv_a, kv_a_norm, w_k_b,
            w_v_b, attention_post_norm, feed_forward_norm, w_gate, w_up, w_down, feed_forward_post_norm,
            router, choice_bias, experts, shared_expert, w_input_gate, w_input_out, input_post_norm, scale);
  }
  void add(const ExpertWeights& expert) {
    const auto& [w_gate, w_up, w_down] = expert;
    add_all(w_gate, w_up, w_down);
  }
  void add(const LinearWeights& linear) {
    const auto& [matrix, bias, scale] = linear;
    add_all(matrix, bias, scale);
  }
  void add(const NormWeights& norm) {
    const auto& [weight, bias] = norm;
    add_all(weight, bias);
  }
  /// The numbers as they are stored, padding left out.
  void add(const MatrixView& matrix) {
    if (matrix.empty()) return hash_.add(false);
    hash_.add(to_string(matrix.format));
    add_all(matrix.rows, matrix.cols, matrix.transposed);
    const Index row_bytes = bytes_of(matrix.format, matrix.stored_cols());
    if (matrix.stride == row_bytes) return add_bytes(matrix.data, matrix.stored_rows() * row_bytes);
    for (Index row = 0; row < matrix.stored_rows(); ++row)
      add_bytes(matrix.data + row * matrix.stride, row_bytes);
  }
  void add(const VectorView& vector) {
    if (vector.empty()) return hash_.add(false);
    hash_.add(to_string(vector.format));
    hash_.add(vector.size);
    add_bytes(vector.data, bytes_of(vector.format, vector.size));
  }
  static Index bytes_of(FormatId format, Index n) {
    return visit_format(Formats{}, format, [n]<class F>() { return F::row_bytes(n); });
  }
  void add_bytes(const std::byte* bytes, Index n) noexcept {
    hash_.add(std::span<const std::byte>(bytes, static_cast<std::size_t>(n)));
  }

  Hash64 hash_;
};

}  // namespace detail

/// The same for the same config and weights, on every machine and wherever they lie in memory. Another format or
/// arrangement of the same numbers (a matrix that is stored transposed) is another model here. Never 0.
/// @pre all weights are of one of the Formats
template <class Formats>
std::uint64_t fingerprint(const ModelConfig& config, const Weights& weights) {
  detail::ModelHash<Formats> hash;
  hash.add(config);
  hash.add(weights);
  return hash.value() == 0 ? 1 : hash.value();
}

}  // namespace kvdecode

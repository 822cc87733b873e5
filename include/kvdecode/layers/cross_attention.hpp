// SPDX-License-Identifier: MIT
// <kvdecode/layers/cross_attention.hpp> - attention of decoder rows over an encoder's outputs: queries come from the
// decoder, keys and values from the encoder, once, and stay in a cache (Vaswani 2017, section 3.2.3).
//
//   k_j = W_k h_j,  v_j = W_v h_j            of each encoder output h_j: fill(), once
//   y_i = W_o attention(W_q x_i, K, V)       of each decoder row x_i, over all j: no mask, nothing turns
#pragma once

#include <kvdecode/layers/attention_heads.hpp>
#include <kvdecode/layers/linear.hpp>
#include <kvdecode/layers/norm.hpp>

#include <array>

namespace kvdecode::inline KVDECODE_ABI {

template <class S>
struct CrossAttentionLayer {
  AttentionHeads<S> heads;  // k_dim == v_dim == head_dim; not causal, without span and rotary pairs
  LinearLayer<S> w_q;       // [n_heads * head_dim, d_model]
  LinearLayer<S> w_k;       // [n_kv_heads * head_dim, d_encoder]
  LinearLayer<S> w_v;       // [n_kv_heads * head_dim, d_encoder]
  LinearLayer<S> w_o;       // [d_model, n_heads * head_dim]
  NormLayer<S> q_norm;      // of each head or of all together, by its size; or empty
  NormLayer<S> k_norm;

  /// Appends the keys and values of encoder outputs to the caches of the pass.
  /// @param x  [N, d_encoder]  @pre every cache has room for its rows
  template <class Products>
  void fill(const Pass<S>& pass, RowsView<const S> x) const noexcept {
    const RowsView<S> k = pass.buffers.keys;
    run_linear<Products>(pass, std::array{w_k.job(x, k), w_v.job(x, pass.buffers.values)});
    if (!k_norm.empty())
      for_each_row(pass.exec, k.rows, [&](Index row) { k_norm.apply_each(k.row(row), k.cols); });
    pass.kv.append(pass, heads.layer);
  }

  /// @param x, y  [N, d_model], apart  @pre the position of every segment is the last that its cache has
  template <class Products>
  void forward(const Pass<S>& pass, RowsView<const S> x, RowsView<S> y) const noexcept {
    const RowsView<S> q = pass.buffers.queries;
    run_linear<Products>(pass, std::array{w_q.job(x, q)});
    const RowTransform transform = pass.kv.key_transform;
    if (!q_norm.empty() || transform != RowTransform::kNone)
      for_each_row(pass.exec, q.rows, [&](Index row) {
        if (!q_norm.empty()) q_norm.apply_each(q.row(row), q.cols);
        heads.turn_heads(transform, q.row(row), heads.n_heads, heads.k_dim, turn_row<S>);
      });
    heads.attend(pass);
    run_linear<Products>(pass, std::array{w_o.job(pass.buffers.attention, y)});
  }
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/layers/latent_attention.hpp> - self-attention whose keys and values are all made of one latent a position
// (DeepSeek-AI 2024, MLA, section 2.1). The cache keeps nothing but that latent c and the rotated part of a key, which all
// heads share: one KV head, whose key row is [c, k_rope] and whose values are c.
//
//   k_h = W_k_b,h c,  v_h = W_v_b,h c          what heads mean by it, and what is never computed:
//   q_h . k_h = (W_k_b,h^T q_h) . c            queries go to the latent instead,
//   sum_j p_j v_h,j = W_v_b,h (sum_j p_j c_j)  and what they have seen of it becomes values at the end
//
// This absorbed form serves any number of tokens: were there another for many at once, its roundings would show how a
// sequence was cut into calls.
#pragma once

#include <kvdecode/layers/attention_heads.hpp>
#include <kvdecode/layers/linear.hpp>
#include <kvdecode/layers/norm.hpp>

#include <algorithm>
#include <array>

namespace kvdecode::inline KVDECODE_ABI {

template <class S>
struct LatentAttentionLayer {
  AttentionHeads<S> heads;     // of one KV head; v_dim: kv_lora_rank, k_dim: kv_lora_rank + qk_rope_head_dim
  Index qk_nope_head_dim = 0;  // numbers of a query that meet the latent; those behind it turn
  Index v_head_dim = 0;
  LinearLayer<S> w_q_a;      // [q_lora_rank, d_model]; empty: queries come straight from the stream
  NormLayer<S> q_a_norm;     // [q_lora_rank]
  LinearLayer<S> w_q;        // [n_heads * (qk_nope_head_dim + qk_rope_head_dim), q_lora_rank or d_model]
  LinearLayer<S> w_kv_a;     // [kv_lora_rank + qk_rope_head_dim, d_model]
  NormLayer<S> kv_a_norm;    // [kv_lora_rank]
  Vector<MatrixView> w_k_b;  // [n_heads], W_k_b,h^T: [kv_lora_rank, qk_nope_head_dim]
  Vector<MatrixView> w_v_b;  // [n_heads], [v_head_dim, kv_lora_rank]
  LinearLayer<S> w_o;        // [d_model, n_heads * v_head_dim]

  bool empty() const noexcept { return w_k_b.empty(); }

  /// @param x, y  [N, d_model], apart  @pre every cache has room for its rows
  template <class Products>
  void forward(const Pass<S>& pass, RowsView<S> x, RowsView<S> y) const noexcept {
    const PassBuffers<S>& buffers = pass.buffers;
    const RowsView<S> raw = rows_by_head(pass, qk_head_dim());  // queries as heads mean them
    if (w_q_a.w.empty()) {
      run_linear<Products>(pass, std::array{w_q.job(x, raw), w_kv_a.job(x, buffers.keys)});
    } else {
      const RowsView<S> latent = buffers.query_latents;
      run_linear<Products>(pass, std::array{w_q_a.job(x, latent), w_kv_a.job(x, buffers.keys)});
      q_a_norm.forward(pass.exec, latent, latent);
      run_linear<Products>(pass, std::array{w_q.job(latent, raw)});
    }
    run_heads<Products>(pass, w_k_b, raw, qk_head_dim(), buffers.queries, heads.k_dim);
    rotate(pass, raw);
    pass.kv.append(pass, heads.layer);
    heads.attend(pass);
    const RowsView<S> values = rows_by_head(pass, v_head_dim);
    run_heads<Products>(pass, w_v_b, buffers.attention, heads.v_dim, values, v_head_dim);
    run_linear<Products>(pass, std::array{w_o.job(values, y)});
  }

 private:
  Index qk_rope_head_dim() const noexcept { return heads.k_dim - heads.v_dim; }
  Index qk_head_dim() const noexcept { return qk_nope_head_dim + qk_rope_head_dim(); }

  /// Rows of `dim` numbers a head, [N, n_heads * dim]: the same memory for queries before, and values after attention.
  RowsView<S> rows_by_head(const Pass<S>& pass, Index dim) const noexcept {
    const Index cols = heads.n_heads * dim;
    return {pass.buffers.by_head, pass.n_rows(), cols, cols};
  }

  /// The product of each head's matrix and the first numbers of its part of x, to the first ones of its part of y; parts
  /// are x_dim and y_dim numbers apart.
  template <class Products>
  void run_heads(const Pass<S>& pass, const Vector<MatrixView>& matrices, RowsView<S> x, Index x_dim,
                 RowsView<S> y, Index y_dim) const noexcept {
    run_linear_each<Products>(pass, heads.n_heads, [&](Index head) {
      const MatrixView& w = matrices[static_cast<std::size_t>(head)];
      return kernels::LinearJob<S>{.w = w,
                                   .x = {x.data + head * x_dim, x.rows, w.cols, x.stride},
                                   .y = {y.data + head * y_dim, y.rows, w.rows, y.stride}};
    });
  }

  /// Norms the latent, rotates what of keys and queries has positions, and puts the latter beside what was absorbed.
  void rotate(const Pass<S>& pass, RowsView<S> raw) const noexcept {
    const PassBuffers<S>& buffers = pass.buffers;
    const Index n_rows = pass.n_rows(), rotations = heads.n_rotations(pass.stands),
                q_dim = buffers.queries.cols;
    const Index rank = heads.v_dim, rope_dim = qk_rope_head_dim();
    for_each_row(pass.exec, n_rows, [&](Index row) {
      S* const k = buffers.keys.row(row);
      kv_a_norm.apply(k, k);
      heads.rotate(pass, row, 0, rope_dim, k + rank, k + rank);
      S* const q = buffers.queries.row(row);
      for (Index r = 0; r < rotations; ++r) {
        S* const to = rotations == 1 ? q : buffers.rotated + (r * n_rows + row) * q_dim;
        for (Index head = 0; head < heads.n_heads; ++head) {
          const Index at = head * heads.k_dim;
          if (to != q) std::copy_n(q + at, rank, to + at);
          heads.rotate(pass, row, r, rope_dim, raw.row(row) + head * qk_head_dim() + qk_nope_head_dim,
                       to + at + rank);
        }
      }
    });
  }
};

}  // namespace kvdecode

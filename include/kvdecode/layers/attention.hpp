// SPDX-License-Identifier: MIT
// <kvdecode/layers/attention.hpp> - self-attention over a cache, heads having keys and values of their own or in groups:
// project, norm, rotate, append, attend, project. A layer that reads another's keys and values (Brandon 2024) makes and
// appends none: they are in the cache by then, also those of this very call.
#pragma once

#include <kvdecode/layers/attention_heads.hpp>
#include <kvdecode/layers/linear.hpp>
#include <kvdecode/layers/norm.hpp>

#include <array>

namespace kvdecode::inline KVDECODE_ABI {

template <class S>
struct AttentionLayer {
  AttentionHeads<S> heads;  // k_dim == v_dim == head_dim
  LinearLayer<S> w_q;       // [n_heads * head_dim, d_model]
  LinearLayer<S> w_k;       // [n_kv_heads * head_dim, d_model]; empty: keys and values are another layer's
  LinearLayer<S> w_v;       // [n_kv_heads * head_dim, d_model]; likewise
  LinearLayer<S> w_o;       // [d_model, n_heads * head_dim]
  NormLayer<S> q_norm;      // of each head or of all together, by its size; or empty
  NormLayer<S> k_norm;
  NormLayer<S> v_norm;  // of each head; or empty

  /// @param x, y  [N, d_model], apart  @pre every cache has room for its rows
  template <class Products>
  void forward(const Pass<S>& pass, RowsView<S> x, RowsView<S> y) const noexcept {
    const PassBuffers<S>& buffers = pass.buffers;
    const RowsView<S> queries = first_cols(buffers.queries, q_dim());
    if (owns_store())
      run_linear<Products>(pass,
                           std::array{w_q.job(x, queries), w_k.job(x, first_cols(buffers.keys, kv_dim())),
                                      w_v.job(x, first_cols(buffers.values, kv_dim()))});
    else
      run_linear<Products>(pass, std::array{w_q.job(x, queries)});
    rotate(pass);
    if (owns_store()) pass.kv.append(pass, heads.layer);
    heads.attend(pass);
    run_linear<Products>(pass, std::array{w_o.job(first_cols(buffers.attention, q_dim()), y)});
  }

 private:
  bool owns_store() const noexcept { return !w_k.w.empty(); }
  Index q_dim() const noexcept { return heads.n_heads * heads.k_dim; }
  Index kv_dim() const noexcept { return heads.n_kv_heads * heads.k_dim; }
  /// Rows of a layer whose heads are shorter than those that the buffers are made for.
  static RowsView<S> first_cols(const RowsView<S>& rows, Index cols) noexcept {
    return {rows.data, rows.rows, cols, rows.stride};
  }

  /// Norms queries, keys and values, rotates each row as its position says, and turns queries as keys are stored.
  void rotate(const Pass<S>& pass) const noexcept {
    const RowTransform transform = pass.kv.key_transform;
    if (heads.n_pairs == 0 && q_norm.empty() && k_norm.empty() && v_norm.empty() &&
        transform == RowTransform::kNone)
      return;
    const PassBuffers<S>& buffers = pass.buffers;
    const Index n_rows = pass.n_rows(), rotations = heads.n_rotations(pass.stands), dim = heads.k_dim;
    const auto rotate_by = [&](Index row, Index rotation, Index n_heads, const S* from, S* to) {
      for (Index head = 0; head < n_heads; ++head)
        heads.rotate(pass, row, rotation, dim, from + head * dim, to + head * dim);
    };
    for_each_row(pass.exec, n_rows, [&](Index row) {
      S* q = buffers.queries.row(row);
      S* k = buffers.keys.row(row);
      if (!q_norm.empty()) q_norm.apply_each(q, q_dim());
      if (!k_norm.empty()) k_norm.apply_each(k, kv_dim());
      if (!v_norm.empty()) v_norm.apply_each(buffers.values.row(row), kv_dim());
      if (heads.n_pairs != 0 && owns_store()) rotate_by(row, 0, heads.n_kv_heads, k, k);
      for (Index r = 0; r < rotations; ++r) {
        S* const rotated = rotations == 1 ? q : buffers.rotated + (r * n_rows + row) * buffers.queries.cols;
        if (heads.n_pairs != 0) rotate_by(row, r, heads.n_heads, q, rotated);
        heads.turn_heads(transform, rotated, heads.n_heads, dim, turn_row<S>);
      }
    });
  }
};

}  // namespace kvdecode

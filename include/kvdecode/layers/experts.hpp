// SPDX-License-Identifier: MIT
// <kvdecode/layers/experts.hpp> - a mixture of experts: a router sends each token to some of many feed-forward layers and
// weighs what they return (Shazeer 2017, Eqs. 1-3; Fedus 2021). Tokens of one expert are computed together; since a row
// of a product never depends on its company, that shows only in the time.
#pragma once

#include <kvdecode/kernels/attention.hpp>
#include <kvdecode/layers/feed_forward.hpp>

#include <algorithm>

namespace kvdecode::inline KVDECODE_ABI {

template <class S>
struct ExpertsLayer {
  Index n_used = 0;  // experts a token
  bool normalize = true;
  LinearLayer<S> router;                // [n_experts, d_model]
  Vector<FeedForwardLayer<S>> experts;  // [n_experts]

  bool empty() const noexcept { return experts.empty(); }

  /// @param x, y  [N, d_model], apart
  template <class Products>
  void forward(const Pass<S>& pass, RowsView<S> x, RowsView<S> y) const noexcept {
    const ExpertBuffers<S>& buffers = pass.buffers.experts;
    run_linear<Products>(pass, std::array{router.job(x, buffers.router)});
    for_each_row(pass.exec, x.rows, [&](Index row) { choose(buffers, row); });
    for (Index expert = 0; expert < static_cast<Index>(experts.size()); ++expert)
      run_expert<Products>(pass, x, expert);
    // Summed by rank: the order is the token's own, whatever the order the experts ran in.
    for_each_row(pass.exec, x.rows, [&](Index row) {
      S* out = y.row(row);
      std::fill_n(out, y.cols, S(0.0f));
      for (Index rank = 0; rank < n_used; ++rank)
        kernels::detail::merge_outputs<true>(buffers.weights[row * n_used + rank],
                                             buffers.by_rank + (row * n_used + rank) * y.cols, out, y.cols);
    });
  }

 private:
  /// Softmax over all experts, the n_used likeliest by falling probability; ties go to the lower number.
  void choose(const ExpertBuffers<S>& buffers, Index row) const noexcept {
    using kvdecode::exp;
    const Index n_experts = buffers.router.cols;
    S* p = buffers.router.row(row);
    S maximum = p[0];
    for (Index e = 1; e < n_experts; ++e) maximum = maximum < p[e] ? p[e] : maximum;
    for (Index e = 0; e < n_experts; ++e) p[e] = exp(p[e] - maximum);
    const S total = sum(p, n_experts);
    for (Index e = 0; e < n_experts; ++e) p[e] = p[e] / total;
    Index* ids = buffers.ids + row * n_used;
    S* weights = buffers.weights + row * n_used;
    for (Index rank = 0; rank < n_used; ++rank) {
      Index best = -1;
      for (Index e = 0; e < n_experts; ++e) {
        if (std::find(ids, ids + rank, e) != ids + rank) continue;
        if (best < 0 || p[best] < p[e]) best = e;
      }
      ids[rank] = best;
      weights[rank] = p[best];
    }
    if (!normalize) return;
    const S used = sum(weights, n_used);
    for (Index rank = 0; rank < n_used; ++rank) weights[rank] = weights[rank] / used;
  }

  /// Gathers the rows that chose the expert, runs them, and puts the results where their row and rank belong.
  template <class Products>
  void run_expert(const Pass<S>& pass, RowsView<S> x, Index expert) const noexcept {
    const ExpertBuffers<S>& buffers = pass.buffers.experts;
    const auto for_each_choice = [&](auto&& f) {
      Index n = 0;
      for (Index choice = 0; choice < x.rows * n_used; ++choice)
        if (buffers.ids[choice] == expert) f(choice, n++);
      return n;
    };
    const Index n = for_each_choice(
        [&](Index choice, Index i) { std::copy_n(x.row(choice / n_used), x.cols, buffers.inputs.row(i)); });
    if (n == 0) return;
    const RowsView<S> in{buffers.inputs.data, n, x.cols, x.cols},
        out{buffers.outputs.data, n, x.cols, x.cols};
    experts[static_cast<std::size_t>(expert)].template forward<Products>(pass, in, out);
    for_each_choice(
        [&](Index choice, Index i) { std::copy_n(out.row(i), x.cols, buffers.by_rank + choice * x.cols); });
  }
};

}  // namespace kvdecode

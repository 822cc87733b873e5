// SPDX-License-Identifier: MIT
// <kvdecode/layers/experts.hpp> - a mixture of experts: a router sends each token to some of many feed-forward layers and
// weighs what they return (Shazeer 2017, Eqs. 1-3; Fedus 2021); one more may be there for all tokens (Dai 2024). Tokens of
// one expert are computed together; since a row of a product never depends on its company, that shows only in the time.
#pragma once

#include <kvdecode/kernels/attention.hpp>
#include <kvdecode/layers/expert_score.hpp>
#include <kvdecode/layers/feed_forward.hpp>

#include <algorithm>
#include <limits>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {

template <class S>
struct ExpertsLayer {
  Index n_used = 0;  // experts a token
  bool normalize = true;
  ExpertScore score = ExpertScore::kSoftmax;
  Index n_groups = 1;       // of experts, all of one size, one after another
  Index n_groups_used = 1;  // those that a token's experts are chosen from
  ExpertGroupScore group_score = ExpertGroupScore::kMaximum;
  S scale{};  // of the weights
  bool is_scaled = false;
  LinearLayer<S> router;                // [n_experts, d_model]
  Vector<S> choice_bias;                // [n_experts] added to the scores for the choice alone; or empty
  Vector<FeedForwardLayer<S>> experts;  // [n_experts]
  FeedForwardLayer<S> shared;           // for every token, unweighted; or empty

  bool empty() const noexcept { return experts.empty(); }

  /// @param x, y  [N, d_model], apart
  template <class Products>
  void forward(const Pass<S>& pass, RowsView<S> x, RowsView<S> y) const noexcept {
    const ExpertBuffers<S>& buffers = pass.buffers.experts;
    run_linear<Products>(pass, std::array{router.job(x, buffers.router)});
    for_each_row(pass.exec, x.rows, [&](Index row) { choose(buffers, row); });
    for (Index expert = 0; expert < static_cast<Index>(experts.size()); ++expert)
      run_expert<Products>(pass, x, expert);
    const bool has_shared = !shared.w_up.w.empty();
    const RowsView<S> beside{buffers.outputs.data, x.rows, y.cols, y.cols};
    if (has_shared) shared.template forward<Products>(pass, x, beside);
    // Summed by rank: the order is the token's own, whatever the order the experts ran in.
    for_each_row(pass.exec, x.rows, [&](Index row) {
      S* out = y.row(row);
      std::fill_n(out, y.cols, S(0.0f));
      for (Index rank = 0; rank < n_used; ++rank)
        kernels::detail::merge_outputs<true>(buffers.weights[row * n_used + rank],
                                             buffers.by_rank + (row * n_used + rank) * y.cols, out, y.cols);
      if (!has_shared) return;
      const S* const more = beside.row(row);
      for (Index i = 0; i < y.cols; ++i) out[i] = out[i] + more[i];
    });
  }

 private:
  /// The n_used experts of a row that have the best scores, by falling score; ties go to the lower number.
  void choose(const ExpertBuffers<S>& buffers, Index row) const noexcept {
    const Index n_experts = buffers.router.cols;
    S* const scores = buffers.router.row(row);
    to_scores(scores, n_experts);
    const S* by = scores;
    if (n_groups > 1 || !choice_bias.empty())
      by = scores_for_choice(scores, n_experts, buffers.choice.row(row));
    Index* ids = buffers.ids + row * n_used;
    S* weights = buffers.weights + row * n_used;
    for (Index rank = 0; rank < n_used; ++rank) {
      Index best = -1;
      for (Index e = 0; e < n_experts; ++e) {
        if (std::find(ids, ids + rank, e) != ids + rank) continue;
        if (best < 0 || by[best] < by[e]) best = e;
      }
      ids[rank] = best;
      weights[rank] = scores[best];
    }
    if (normalize) {
      S used = sum(weights, n_used);
      if (score == ExpertScore::kSigmoid) used = used + S(1e-20);  // all of them may be 0
      for (Index rank = 0; rank < n_used; ++rank) weights[rank] = weights[rank] / used;
    }
    if (is_scaled)
      for (Index rank = 0; rank < n_used; ++rank) weights[rank] = mul(weights[rank], scale);
  }

  /// In place: logits to scores.
  void to_scores(S* p, Index n) const noexcept {
    using kvdecode::exp;
    const S one(1.0f);
    if (score == ExpertScore::kSigmoid) {
      for (Index e = 0; e < n; ++e) p[e] = one / (one + exp(S(0.0f) - p[e]));
      return;
    }
    S maximum = p[0];
    for (Index e = 1; e < n; ++e) maximum = maximum < p[e] ? p[e] : maximum;
    for (Index e = 0; e < n; ++e) p[e] = exp(p[e] - maximum);
    const S total = sum(p, n);
    for (Index e = 0; e < n; ++e) p[e] = p[e] / total;
  }

  /// Scores with their bias, those outside the groups that may be used below all others.
  /// @param choice  [n_experts + n_groups], what it returns is the front of it
  const S* scores_for_choice(const S* scores, Index n_experts, S* choice) const noexcept {
    for (Index e = 0; e < n_experts; ++e)
      choice[e] = choice_bias.empty() ? scores[e] : scores[e] + choice_bias[static_cast<std::size_t>(e)];
    if (n_groups_used == n_groups) return choice;
    const Index size = n_experts / n_groups;
    S* const of_groups = choice + n_experts;
    for (Index g = 0; g < n_groups; ++g) of_groups[g] = score_of_group(choice + g * size, size);
    for (Index g = 0; g < n_groups; ++g) {
      Index n_better = 0;
      for (Index other = 0; other < n_groups; ++other)
        if (of_groups[g] < of_groups[other] || (other < g && !(of_groups[other] < of_groups[g]))) ++n_better;
      if (n_better >= n_groups_used)
        std::fill_n(choice + g * size, size, S(-std::numeric_limits<float>::infinity()));
    }
    return choice;
  }
  S score_of_group(const S* scores, Index size) const noexcept {
    const bool is_sum = group_score == ExpertGroupScore::kTopTwo;
    S best = scores[0], second = scores[is_sum ? 1 : 0];
    if (is_sum && best < second) std::swap(best, second);
    for (Index e = is_sum ? 2 : 1; e < size; ++e) {
      if (best < scores[e]) {
        second = best;
        best = scores[e];
      } else if (second < scores[e]) {
        second = scores[e];
      }
    }
    return is_sum ? best + second : best;
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

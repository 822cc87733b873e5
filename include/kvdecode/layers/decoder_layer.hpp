// SPDX-License-Identifier: MIT
// <kvdecode/layers/decoder_layer.hpp> - one layer of the decoder: attention and feed-forward, each behind a
// norm, added to the residual stream one after the other or side by side; and behind them, in some models, what the layer
// makes of inputs of its own, and a scale.
#pragma once

#include <kvdecode/layers/attention.hpp>
#include <kvdecode/layers/experts.hpp>
#include <kvdecode/layers/feed_forward.hpp>
#include <kvdecode/layers/latent_attention.hpp>
#include <kvdecode/layers/layer_inputs.hpp>
#include <kvdecode/layers/norm.hpp>
#include <kvdecode/layers/residual.hpp>

namespace kvdecode::inline KVDECODE_ABI {

template <class S>
struct DecoderLayer {
  ResidualKind residual = ResidualKind::kSequential;
  NormLayer<S> attention_norm;  // empty: attention reads the stream as it is
  AttentionLayer<S> attention;
  LatentAttentionLayer<S> latent_attention;  // in its place, unless empty
  NormLayer<S> attention_post_norm;          // or empty
  NormLayer<S> feed_forward_norm;            // or empty; not with kParallelSharedNorm
  FeedForwardLayer<S> feed_forward;
  ExpertsLayer<S> experts;              // in its place, unless empty
  NormLayer<S> feed_forward_post_norm;  // or empty
  LayerInputBranch<S> inputs;           // or empty
  NormLayer<S> input_post_norm;         // as `inputs`
  S scale{};
  bool is_scaled = false;

  /// The residual stream, in place. Appends the rows' keys and values to their caches.
  template <class Products>
  void forward(const Pass<S>& pass) const noexcept {
    const RowsView<S> branch = pass.buffers.branch;
    const RowsView<S> input = normed(pass, attention_norm);
    if (latent_attention.empty())
      attention.template forward<Products>(pass, input, branch);
    else
      latent_attention.template forward<Products>(pass, input, branch);
    RowsView<S> second = input;
    // Side by side, the second branch reads the stream from before the first one is added to it.
    if (residual == ResidualKind::kParallel) second = normed(pass, feed_forward_norm);
    add_branch(pass, attention_post_norm);
    if (residual == ResidualKind::kSequential) second = normed(pass, feed_forward_norm);
    if (experts.empty())
      feed_forward.template forward<Products>(pass, second, branch);
    else
      experts.template forward<Products>(pass, second, branch);
    add_branch(pass, feed_forward_post_norm);
    if (!inputs.empty()) {
      inputs.template forward<Products>(pass, pass.buffers.hidden, branch);
      add_branch(pass, input_post_norm);
    }
    if (is_scaled) scale_stream(pass);
  }

 private:
  /// The stream behind a norm, or itself.
  static RowsView<S> normed(const Pass<S>& pass, const NormLayer<S>& norm) noexcept {
    if (norm.empty()) return pass.buffers.hidden;
    norm.forward(pass.exec, pass.buffers.hidden, pass.buffers.normed);
    return pass.buffers.normed;
  }
  /// Adds what a branch has made to the stream, behind a norm if there is one.
  static void add_branch(const Pass<S>& pass, const NormLayer<S>& norm) noexcept {
    const RowsView<S> x = pass.buffers.branch, y = pass.buffers.hidden;
    for_each_row(pass.exec, x.rows, [&](Index row) {
      S* from = x.row(row);
      S* to = y.row(row);
      if (!norm.empty()) norm.apply(from, from);
      for (Index i = 0; i < x.cols; ++i) to[i] = to[i] + from[i];
    });
  }
  void scale_stream(const Pass<S>& pass) const noexcept {
    const RowsView<S> stream = pass.buffers.hidden;
    for_each_row(pass.exec, stream.rows, [&](Index row) {
      S* const x = stream.row(row);
      for (Index i = 0; i < stream.cols; ++i) x[i] = mul(x[i], scale);
    });
  }
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/layers/decoder_layer.hpp> - one layer of the decoder: attention and feed-forward, each behind a
// norm, added to the residual stream one after the other or side by side.
#pragma once

#include <kvdecode/layers/attention.hpp>
#include <kvdecode/layers/feed_forward.hpp>
#include <kvdecode/layers/norm.hpp>
#include <kvdecode/layers/residual.hpp>

namespace kvdecode::inline KVDECODE_ABI {

template <class S>
struct DecoderLayer {
  ResidualKind residual = ResidualKind::kSequential;
  NormLayer<S> attention_norm;
  AttentionLayer<S> attention;
  NormLayer<S> feed_forward_norm;  // not with kParallelSharedNorm
  FeedForwardLayer<S> feed_forward;

  /// The residual stream, in place. Appends the rows' keys and values to their caches.
  template <class Formats, class Cache>
  void forward(const Pass<S, Cache>& pass) const noexcept {
    const RowsView<S> hidden = pass.buffers.hidden, normed = pass.buffers.normed,
                      branch = pass.buffers.branch;
    attention_norm.forward(pass.exec, hidden, normed);
    if (residual == ResidualKind::kSequential) {
      attention.template forward<Formats>(pass, normed, branch);
      add_rows(pass.exec, branch, hidden);
      feed_forward_norm.forward(pass.exec, hidden, normed);
      feed_forward.template forward<Formats>(pass, normed, branch);
    } else {
      // The second branch reads the stream from before the first one is added to it.
      attention.template forward<Formats>(pass, normed, branch);
      if (residual == ResidualKind::kParallel) feed_forward_norm.forward(pass.exec, hidden, normed);
      add_rows(pass.exec, branch, hidden);
      feed_forward.template forward<Formats>(pass, normed, branch);
    }
    add_rows(pass.exec, branch, hidden);
  }

 private:
  static void add_rows(ExecutorRef exec, RowsView<S> x, RowsView<S> y) noexcept {
    for_each_row(exec, x.rows, [&](Index row) {
      const S* from = x.row(row);
      S* to = y.row(row);
      for (Index i = 0; i < x.cols; ++i) to[i] = to[i] + from[i];
    });
  }
};

}  // namespace kvdecode

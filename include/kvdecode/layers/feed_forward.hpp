// SPDX-License-Identifier: MIT
// <kvdecode/layers/feed_forward.hpp> - the position-wise feed-forward layer, gated or plain.
//
//   gated: down(act(gate(x)) * up(x))   (Shazeer 2020)
//   plain: down(act(up(x)))             (Vaswani 2017, Eq. 2)
#pragma once

#include <kvdecode/kernels/activation.hpp>
#include <kvdecode/layers/linear.hpp>

namespace kvdecode::inline KVDECODE_ABI {

template <class S>
struct FeedForwardLayer {
  Activation activation = Activation::kSilu;
  bool gated = true;
  LinearLayer<S> w_gate;  // [d_ff, d_model]
  LinearLayer<S> w_up;    // [d_ff, d_model]
  LinearLayer<S> w_down;  // [d_model, d_ff]

  /// @param x, y  [N, d_model], apart; no more rows than the pass has
  template <class Products>
  void forward(const Pass<S>& pass, RowsView<S> x, RowsView<S> y) const noexcept {
    const Index d_ff = w_up.w.rows;
    const RowsView<S> gate{pass.buffers.gate, x.rows, d_ff, d_ff};  // [N, d_ff]
    const RowsView<S> up{pass.buffers.up, x.rows, d_ff, d_ff};      // [N, d_ff]
    if (gated) {
      run_linear<Products>(pass, std::array{w_gate.job(x, gate), w_up.job(x, up)});
      for_each_row(pass.exec, x.rows, [&](Index row) {
        kernels::activate(activation, gate.row(row), static_cast<const S*>(up.row(row)), up.cols,
                          up.row(row));
      });
    } else {
      run_linear<Products>(pass, std::array{w_up.job(x, up)});
      for_each_row(pass.exec, x.rows, [&](Index row) {
        kernels::activate(activation, up.row(row), static_cast<const S*>(nullptr), up.cols, up.row(row));
      });
    }
    run_linear<Products>(pass, std::array{w_down.job(up, y)});
  }
};

}  // namespace kvdecode

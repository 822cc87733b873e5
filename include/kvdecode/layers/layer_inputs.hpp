// SPDX-License-Identifier: MIT
// <kvdecode/layers/layer_inputs.hpp> - what layers have of a token beside the stream, and what they make of it: the
// per-layer embeddings of Gemma 3n and 4.
//
//   inputs of layer l      u_l = (norm((W x)_l) + scale * e_l) / sqrt 2      x: as the first layer finds the stream
//   at the layer's end     h + norm(W_out (act(W_gate h) * u_l))             e: the token's row of an embedding of its own
//
// They are made once a pass, before the first layer.
#pragma once

#include <kvdecode/kernels/activation.hpp>
#include <kvdecode/layers/embedding.hpp>
#include <kvdecode/layers/linear.hpp>
#include <kvdecode/layers/norm.hpp>

#include <array>

namespace kvdecode::inline KVDECODE_ABI {

/// The inputs of all layers.
template <class S>
struct LayerInputs {
  MatrixView embedding;  // [vocab_size, n_layers * d_layer_input]; empty: there are none
  S scale{};             // of the token's row
  LinearLayer<S> w;      // [n_layers * d_layer_input, d_model]
  NormLayer<S> norm;     // [d_layer_input] of each layer's part

  bool empty() const noexcept { return embedding.empty(); }

  /// From the stream to pass.buffers.layer_inputs, [N, n_layers * d_layer_input].
  template <class Products>
  void forward(const Pass<S>& pass) const noexcept {
    const RowsView<S> inputs = pass.buffers.layer_inputs;
    run_linear<Products>(pass, std::array{w.job(pass.buffers.hidden, inputs)});
    const S half_root = S(0x1.6a09e667f3bcdp-1);  // sqrt(1/2)
    for (const PassSegment& segment : pass.segments)
      for_each_row(pass.exec, segment.n_rows, [&](Index r) {
        S* const row = inputs.row(segment.first_row + r);
        norm.apply_each(row, inputs.cols);
        for_each_in_row<typename Products::Formats, S>(
            embedding, segment.tokens[static_cast<std::size_t>(segment.n_done + r)],
            [&](Index c, const S& number) { row[c] = mul(row[c] + mul(number, scale), half_root); });
      });
  }
};

/// What one layer makes of its inputs.
template <class S>
struct LayerInputBranch {
  Index layer = 0;  // its number
  Activation activation = Activation::kGeluTanh;
  LinearLayer<S> w_gate;  // [d_layer_input, d_model]; empty: the layer has no inputs
  LinearLayer<S> w_out;   // [d_model, d_layer_input]

  bool empty() const noexcept { return w_gate.w.empty(); }

  /// @param x, y  [N, d_model], apart
  template <class Products>
  void forward(const Pass<S>& pass, RowsView<S> x, RowsView<S> y) const noexcept {
    const Index d = w_gate.w.rows;
    const RowsView<S> gate{pass.buffers.gate, x.rows, d, d};  // [N, d_layer_input]
    run_linear<Products>(pass, std::array{w_gate.job(x, gate)});
    for_each_row(pass.exec, x.rows, [&](Index row) {
      const S* const inputs = pass.buffers.layer_inputs.row(row) + layer * d;
      kernels::activate(activation, gate.row(row), inputs, d, gate.row(row));
    });
    run_linear<Products>(pass, std::array{w_out.job(gate, y)});
  }
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/layers/embedding.hpp> - the vector of a token, and of its position where positions are learned.
#pragma once

#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/view.hpp>
#include <kvdecode/layers/pass.hpp>

namespace kvdecode::inline KVDECODE_ABI {

/// Calls f(c, number) for row `row` of a matrix, number by number, as scalars.
template <class Formats, class S, class Visit>
void for_each_in_row(const MatrixView& w, Index row, Visit&& f) noexcept {
  visit_format(Formats{}, w.format, [&]<class F>() {
    for (Index c = 0; c < w.cols; ++c)
      f(c, w.transposed ? F::template decode<S>(w.data + c * w.stride, row)
                        : F::template decode<S>(w.data + row * w.stride, c));
  });
}
/// Row `row` of a matrix as scalars. @param out  [w.cols]
template <class Formats, class S>
void decode_row(const MatrixView& w, Index row, S* out) noexcept {
  for_each_in_row<Formats, S>(w, row, [&](Index c, const S& number) { out[c] = number; });
}

struct EmbeddingLayer {
  MatrixView tokens;     // [vocab_size, d_model]
  MatrixView positions;  // [max_seq_len, d_model], or empty
  double scale = 1.0;    // of the token's vector

  /// @param scratch, out  [d_model]
  template <class Formats, class S>
  void forward(TokenId token, Index position, S* scratch, S* out) const noexcept {
    decode_row<Formats>(tokens, token, out);
    if (scale != 1.0)
      for (Index i = 0; i < tokens.cols; ++i) out[i] = mul(out[i], S(scale));
    if (positions.empty()) return;
    decode_row<Formats>(positions, position, scratch);
    for (Index i = 0; i < tokens.cols; ++i) out[i] = out[i] + scratch[i];
  }
};

}  // namespace kvdecode

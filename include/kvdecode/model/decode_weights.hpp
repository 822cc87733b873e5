// SPDX-License-Identifier: MIT
// <kvdecode/model/decode_weights.hpp> - from weights as views to layers: matrices stay where they lie, vectors are decoded
// to scalars.
#pragma once

#include <kvdecode/core/format.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/layers/linear.hpp>
#include <kvdecode/layers/norm.hpp>
#include <kvdecode/model/weights.hpp>

namespace kvdecode::inline KVDECODE_ABI::detail {

template <class Formats, class S>
Vector<S> decode_vector(const VectorView& view) {
  Vector<S> values(static_cast<std::size_t>(view.size));
  if (view.empty()) return values;
  visit_format(Formats{}, view.format, [&]<class F>() {
    for (Index i = 0; i < view.size; ++i)
      values[static_cast<std::size_t>(i)] = F::template decode<S>(view.data, i);
  });
  return values;
}

template <class Formats, class S>
LinearLayer<S> linear_layer(const LinearWeights& w) {
  return {w.matrix, decode_vector<Formats, S>(w.bias), S(w.scale), w.scale != 1.0};
}

template <class Formats, class S>
NormLayer<S> norm_layer(const NormWeights& w, NormKind kind, double eps) {
  return {kind, S(eps), decode_vector<Formats, S>(w.weight), decode_vector<Formats, S>(w.bias)};
}

}  // namespace kvdecode::inline KVDECODE_ABI::detail

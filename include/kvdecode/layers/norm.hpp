// SPDX-License-Identifier: MIT
// <kvdecode/layers/norm.hpp> - a norm with its weights as scalars.
#pragma once

#include <kvdecode/core/memory.hpp>
#include <kvdecode/kernels/norm.hpp>
#include <kvdecode/layers/pass.hpp>

namespace kvdecode::inline KVDECODE_ABI {

template <class S>
struct NormLayer {
  NormKind kind = NormKind::kRms;
  S eps{};
  Vector<S> weight;  // [d]
  Vector<S> bias;    // [d], or empty

  bool empty() const noexcept { return weight.empty(); }

  /// One row. May be in place.
  void apply(const S* x, S* y) const noexcept {
    const Index n = static_cast<Index>(weight.size());
    if (kind == NormKind::kRms)
      kernels::rms_norm(x, weight.data(), eps, n, y);
    else
      kernels::layer_norm(x, weight.data(), bias.empty() ? nullptr : bias.data(), eps, n, y);
  }
  /// A row of several norms' lengths, each part by itself: the heads of a query, for instance. In place.
  void apply_each(S* row, Index size) const noexcept {
    const Index n = static_cast<Index>(weight.size());
    for (Index i = 0; i < size; i += n) apply(row + i, row + i);
  }
  /// Every row of x. @param x, y  [N, d]
  void forward(ExecutorRef exec, RowsView<S> x, RowsView<S> y) const noexcept {
    for_each_row(exec, x.rows, [&](Index row) { apply(x.row(row), y.row(row)); });
  }
};

}  // namespace kvdecode

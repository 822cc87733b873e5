// SPDX-License-Identifier: MIT
// <kvdecode/layers/linear.hpp> - y = (W x) s + b as a layer: the matrix where it lies, scale and bias as scalars.
#pragma once

#include <kvdecode/core/memory.hpp>
#include <kvdecode/kernels/activations.hpp>
#include <kvdecode/layers/pass.hpp>

#include <array>

namespace kvdecode::inline KVDECODE_ABI {

template <class S>
struct LinearLayer {
  MatrixView w;    // [d_out, d_in]
  Vector<S> bias;  // [d_out], or empty
  S scale = S(1.0f);
  bool is_scaled = false;

  kernels::LinearJob<S> job(RowsView<const S> x, RowsView<S> y) const noexcept {
    return {w, bias.empty() ? nullptr : bias.data(), x, y, is_scaled ? &scale : nullptr};
  }
};

/// Runs some products of the same rows side by side, in the pass's scratch memory.
template <class Products, class S, std::size_t N>
void run_linear(const Pass<S>& pass, const std::array<kernels::LinearJob<S>, N>& jobs) noexcept {
  Products::Activations::template linear<typename Products::Formats, S>(
      pass.exec, jobs, pass.buffers.scratch, pass.buffers.scratch_stride, pass.buffers.rounded);
}

/// n products, job_of(i) being the i-th, each of its own rows as they are, whatever the policy of activations is.
template <class Products, class S, class JobOf>
void run_linear_each(const Pass<S>& pass, Index n, JobOf&& job_of) noexcept {
  kernels::linear_each<typename Products::Formats, S>(pass.exec, n, job_of, pass.buffers.scratch,
                                                      pass.buffers.scratch_stride);
}

}  // namespace kvdecode

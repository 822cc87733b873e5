// SPDX-License-Identifier: MIT
// <kvdecode/kernels/activations.hpp> - what is done to activations before they meet weights. It changes bits on purpose,
// so it is a type: a model's template parameter.
#pragma once

#include <kvdecode/kernels/int8_linear.hpp>
#include <kvdecode/kernels/linear.hpp>

#include <algorithm>
#include <span>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

/// A policy of activations:
///
/// | expression | meaning |
/// |---|---|
/// | A::kName | its name |
/// | A::scratch<S>(d_in, n) | scalars of scratch that each thread needs for n rows of d_in activations |
/// | A::rounded_bytes<S>(d_in, n) | bytes in which it keeps what it made of them; 0: nothing |
/// | A::linear<Formats, S>(exec, jobs, scratch, scratch_stride, rounded) | products of the same activations, side by side |
///
/// Models: ExactActivations, Int8Activations.
template <class A>
concept ActivationPolicy = requires(Index n) {
  { A::kName } -> std::convertible_to<std::string_view>;
  { A::template scratch<float>(n, n) } -> std::same_as<Index>;
  { A::template rounded_bytes<float>(n, n) } -> std::same_as<Index>;
};

/// Activations enter every product as they are: a quantized weight is the number it stands for.
struct ExactActivations {
  static constexpr std::string_view kName = "exact";

  template <class S>
  static constexpr Index scratch(Index d_in, Index n) {
    return kernels::linear_scratch<S>(d_in, n);
  }
  template <class S>
  static constexpr Index rounded_bytes(Index, Index) {
    return 0;
  }
  template <class Formats, class S>
  static void linear(ExecutorRef exec, std::span<const kernels::LinearJob<S>> jobs, S* scratch,
                     Index scratch_stride, std::byte*) noexcept {
    kernels::linear<Formats, S>(exec, jobs, scratch, scratch_stride);
  }
};

/// Activations that meet weights in blocks of integers are rounded to signed bytes, 32 at a time: faster where the
/// core's integers are faster than its floats, at a small price in precision (kernels/int8_linear.hpp has the formula).
/// Weights of other formats take them as they are: floats, and blocks that are no IntegerLayout (code books, ternary
/// numbers, NVFP4, Q1_0, Q2_0). So do the matrices that latent attention has for each head.
struct Int8Activations {
  static constexpr std::string_view kName = "int8";

  template <class S>
  static constexpr Index scratch(Index d_in, Index n) {
    return std::max(kernels::linear_scratch<S>(d_in, n), kernels::int8_linear_scratch<S>());
  }
  template <class S>
  static constexpr Index rounded_bytes(Index d_in, Index n) {
    return kernels::RoundedRows<S>::bytes(d_in, n);
  }
  template <class Formats, class S>
  static void linear(ExecutorRef exec, std::span<const kernels::LinearJob<S>> jobs, S* scratch,
                     Index scratch_stride, std::byte* rounded) noexcept {
    const RowsView<const S> x = jobs.front().x;
    kernels::RoundedRows<S> rows(rounded, x.cols);
    bool is_rounded = false;
    for (const kernels::LinearJob<S>& job : jobs) is_rounded = is_rounded || takes_integers<Formats>(job.w);
    if (is_rounded) for_each_row(exec, x.rows, [&](Index row) { rows.round(row, x.row(row)); });
    const auto job_of = [&](Index i) -> const kernels::LinearJob<S>& {
      return jobs[static_cast<std::size_t>(i)];
    };
    const auto n_jobs = static_cast<Index>(jobs.size());
    const auto run = [&](const kernels::LinearJob<S>& job, Range range, Index part) {
      visit_format(Formats{}, job.w.format, [&]<class F>() {
        if constexpr (kernels::IsMultipliedAsIntegers<F>) {
          if (!job.w.transposed)
            return kernels::int8_linear_rows<F, S>(job, range, rows, scratch + part * scratch_stride);
        }
        kernels::linear_rows<F, S>(job, range, scratch + part * scratch_stride);
      });
    };
    kernels::for_each_part<S>(exec, n_jobs, job_of, run);
  }

 private:
  template <class Formats>
  static bool takes_integers(const MatrixView& w) noexcept {
    return !w.transposed &&
           visit_format(Formats{}, w.format, []<class F>() { return kernels::IsMultipliedAsIntegers<F>; });
  }
};

static_assert(ActivationPolicy<ExactActivations> && ActivationPolicy<Int8Activations>);

/// How a model multiplies: what is done to activations, and the formats that its matrices may have.
template <ActivationPolicy A, class F>
struct Products {
  using Activations = A;
  using Formats = F;
};

}  // namespace kvdecode

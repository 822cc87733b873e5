// SPDX-License-Identifier: MIT
// <kvdecode/kernels/linear.hpp> - y = W x + b, or y = (W x) s + b, for one or many rows x, W in any format, row-major or
// transposed in place. One row is a matrix-vector product straight from the stored bytes; for more, each
// panel of W is decoded once and the same float tiles do the rest. The bits are those of the canonical dot in
// either case.
#pragma once

#include <kvdecode/core/executor.hpp>
#include <kvdecode/core/view.hpp>
#include <kvdecode/kernels/dot_tile.hpp>

#include <algorithm>
#include <span>
#include <type_traits>

namespace kvdecode::inline KVDECODE_ABI::kernels {

/// One product: y = (W x) s + b, each number rounded after the sum, the factor and the bias.
template <class S>
struct LinearJob {
  MatrixView w;              // [d_out, d_in]
  const S* bias = nullptr;   // [d_out], or null
  RowsView<const S> x;       // [n, d_in]
  RowsView<S> y;             // [n, d_out], apart from x
  const S* scale = nullptr;  // s, or null: 1
};

namespace detail {

// A panel of decoded rows stays in the first-level cache while tokens pass by; a few rows at a time also keep the
// decoding of two or three tokens from costing more than their products.
inline constexpr Index kPanelBytes = 24 * 1024;
template <class S>
constexpr Index panel_rows(Index d_in) {
  const Index rows = kPanelBytes / (d_in * static_cast<Index>(sizeof(S)));
  return std::clamp<Index>(rows / TileShape<S>::kRows * TileShape<S>::kRows, TileShape<S>::kRows, 64);
}

/// Whether a format is multiplied one row at a time. Entries of a code book are looked up one by one, which costs more
/// than what a taller tile saves; other such formats are rare, and their code a fraction of what tall tiles take.
template <class F>
concept IsRowByRow = requires {
  requires F::Layout::kIsRowByRow;
};

/// Asks for memory in its own order, some bytes at a time, by way of the second level of the caches.
struct Ahead {
  const std::byte* next;
  Index bytes;  // at a time; 0: nothing is asked for

  KVDECODE_INLINE void operator()() {
    simd::prefetch_second_level(next, bytes);
    next += bytes;
  }
};

/// Whole blocks of R rows as scalars, rows of `out` out_stride apart. @return the numbers done of each
template <class F, class S, int R>
Index decode_blocks(const std::byte* rows, Index row_stride, Index n, Ahead ahead, S* out,
                    Index out_stride) noexcept {
  constexpr int kBlock = static_cast<int>(F::kBlock), kTogether = F::kTogether;
  const Index n_whole = n / kBlock * kBlock;
  if (n_whole == 0) return 0;
  SharedByBlocks<F, R> shared(rows, row_stride);
  for (Index k = 0, offset = 0; k < n_whole; k += kBlock, offset += F::kBlockBytes) {
    ahead();
    shared.go_to(rows + offset, row_stride, k + kBlock == n_whole);
    const auto some = [&](int i) KVDECODE_INLINE_LAMBDA {
      simd::unroll<R>([&](auto r) KVDECODE_INLINE_LAMBDA {
        Lanes<S> numbers[kTogether / kLanes];
        F::template some<S>(rows + r * row_stride + offset, shared[r], i, numbers);
        simd::unroll<kTogether / kLanes>([&](auto j) KVDECODE_INLINE_LAMBDA {
          numbers[j].storeu(out + r * out_stride + k + i + j * kLanes);
        });
      });
    };
    if constexpr (IsRowByRow<F>)
      for (int i = 0; i < kBlock; i += kTogether) some(i);
    else
      simd::unroll<kBlock / kTogether>([&](auto part) KVDECODE_INLINE_LAMBDA { some(part * kTogether); });
  }
  return n_whole;
}

/// Rows [begin, begin + n) of W as scalars, one after another in `out`. As many rows behind them, which are decoded next, are
/// asked for meanwhile: they arrive while these are multiplied.
template <class F, class S>
void decode_rows(const MatrixView& w, Index begin, Index n, S* out) noexcept {
  if (w.transposed) {
    for (Index k = 0; k < w.cols; ++k)
      for (Index r = 0; r < n; ++r)
        out[r * w.cols + k] = F::template decode<S>(w.data + k * w.stride, begin + r);
    return;
  }
  const Index ahead = n * w.stride;
  const auto decode = [&]<int R>(Index r, std::integral_constant<int, R>) {
    const std::byte* const rows = w.data + (begin + r) * w.stride;
    S* const to = out + r * w.cols;
    Index first = 0;
    if constexpr (IsUnpackedByBlocks<F, S>)
      first =
          decode_blocks<F, S, R>(rows, w.stride, w.cols, Ahead{rows + ahead, R * F::kBlockBytes}, to, w.cols);
    for (Index i = 0; i < R; ++i) {
      const std::byte* const row = rows + i * w.stride;
      Index k = first;
      for (; k + kLanes <= w.cols; k += kLanes) {
        prefetch_rows<1, byte_near<F>(kLanes)>(row, 0, byte_near<F>(k), ahead);
        F::template widen<S>(row, k).storeu(to + i * w.cols + k);
      }
      for (; k < w.cols; ++k) to[i * w.cols + k] = F::template decode<S>(row, k);
    }
  };
  Index r = 0;
  if constexpr (IsUnpackedByBlocks<F, S> && !IsRowByRow<F>)
    for (; r + 4 <= n; r += 4) decode(r, std::integral_constant<int, 4>{});
  for (; r < n; ++r) decode(r, std::integral_constant<int, 1>{});
}

/// R rows of scalars times all rows of x, as wide a tile at a time as there are tokens.
template <class S, int R>
void multiply_rows(const std::byte* rows, Index row_stride, RowsView<const S> x, S* y,
                   Index y_stride) noexcept {
  Index t = 0;
  constexpr int max_cols = TileShape<S>::kCols;
  for (; t + max_cols <= x.rows; t += max_cols)
    dot_tile<Native<S>, S, R, max_cols>(rows, row_stride, x.row(t), x.stride, x.cols, y + t * y_stride,
                                        y_stride);
  if (t == x.rows) return;
  simd::unroll<max_cols - 1>([&](auto i) {
    constexpr int cols = i + 1;
    if (x.rows - t == cols)
      dot_tile<Native<S>, S, R, cols>(rows, row_stride, x.row(t), x.stride, x.cols, y + t * y_stride,
                                      y_stride);
  });
}

/// Rows [rows.begin, rows.end) of the product for many tokens.
template <class F, class S>
void linear_many(const MatrixView& w, Range rows, RowsView<const S> x, RowsView<S> y, S* scratch) noexcept {
  constexpr int tile = TileShape<S>::kRows;
  const bool in_place = std::is_same_v<F, Native<S>> && Lanes<S>::width > 1 && !w.transposed;
  const Index panel = panel_rows<S>(w.cols);
  for (Index begin = rows.begin; begin < rows.end; begin += panel) {
    const Index n = std::min(panel, rows.end - begin);
    const std::byte* data = w.data + begin * w.stride;
    Index stride = w.stride;
    if (!in_place) {
      decode_rows<F, S>(w, begin, n, scratch);
      data = reinterpret_cast<const std::byte*>(scratch);
      stride = w.cols * static_cast<Index>(sizeof(S));
    }
    // A few tokens at a time over the whole panel: both stay in the first-level cache.
    constexpr Index block = 2 * TileShape<S>::kCols;
    for (Index t = 0; t < x.rows; t += block) {
      const RowsView<const S> some{x.row(t), std::min(block, x.rows - t), x.cols, x.stride};
      Index r = 0;
      for (; r + tile <= n; r += tile)
        multiply_rows<S, tile>(data + r * stride, stride, some, y.row(t) + begin + r, y.stride);
      for (; r < n; ++r)
        for (Index i = 0; i < some.rows; ++i)
          dot_tile<Native<S>, S, 1, 1>(data + r * stride, 0, some.row(i), 0, some.cols,
                                       y.row(t + i) + begin + r, 0);
    }
  }
}

/// Rows that are multiplied with one token at a time. Each comes from another part of the matrix: memory is read fastest
/// in several streams, most so where the processor's own prefetching ends with each page of 4 KB. Four streams are enough
/// where numbers are quickly computed, eight registers of sums keep the core busy where they are not.
template <class F, class S>
constexpr int rows_at_a_time() {
  constexpr Index bytes = byte_near<F>(256);  // of 256 numbers
  if constexpr (Lanes<S>::width == 1 || IsRowByRow<F>)
    return 1;
  else
    return simd::kVectorRegisters < 32 || (bytes > 192 && bytes < 1024) ? 4 : 8;
}

/// Rows of the product for one token, from the stored bytes.
template <class F, class S>
void linear_one(const MatrixView& w, Range rows, const S* x, S* y) noexcept {
  constexpr int most = rows_at_a_time<F, S>();
  // A line for sixteen numbers, or lines for a block: what is asked for arrives sooner than the processor would ask.
  // Elsewhere its own prefetching keeps up, and asking costs more than it saves.
  constexpr Index together = byte_near<F>(std::max<Index>(kLanes, F::kBlock));
  constexpr Index ahead = together < 64 ? 0 : F::kBlock == 1 ? 8192 : 2048;
  const Index part = (rows.end - rows.begin) / most;
  for (Index r = rows.begin; r < rows.begin + part; ++r) {
    S sums[most];
    dot_tile<F, S, most, 1>(w.data + r * w.stride, part * w.stride, x, 0, w.cols, sums, 0, ahead);
    for (int i = 0; i < most; ++i) y[r + i * part] = sums[i];
  }
  for (Index r = rows.begin + part * most; r < rows.end; ++r)
    dot_tile<F, S, 1, 1>(w.data + r * w.stride, w.stride, x, 0, w.cols, y + r, 0);
}

/// The same for a transposed matrix: sixteen outputs side by side, each with its sixteen lanes.
template <class F, class S>
void linear_one_transposed(const MatrixView& w, Range rows, const S* x, S* y) noexcept {
  Index r = rows.begin;
  for (; r + kLanes <= rows.end; r += kLanes) {
    Lanes<S> lanes[kLanes];  // lanes[j]: lane j of each of the sixteen outputs
    for (Lanes<S>& l : lanes) l = Lanes<S>::zero();
    for (Index k = 0; k < w.cols; ++k) {
      Lanes<S>& l = lanes[k % kLanes];
      l = fma(F::template widen<S>(w.data + k * w.stride, r), Lanes<S>::set1(x[k]), l);
    }
    for (int half = kLanes / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) lanes[i] = add(lanes[i], lanes[i + half]);
    lanes[0].storeu(y + r);
  }
  for (; r < rows.end; ++r) {
    S t[kLanes];
    for (S& v : t) v = S(0.0f);
    for (Index k = 0; k < w.cols; ++k)
      t[k % kLanes] =
          simd::Register<S, false>::fma(F::template decode<S>(w.data + k * w.stride, r), x[k], t[k % kLanes]);
    y[r] = tree_sum(t);
  }
}

/// Scale and bias for outputs [rows.begin, rows.end) of every row, once the product is there.
template <class S>
void scale_and_add_bias(const LinearJob<S>& job, Range rows) noexcept {
  if (job.scale != nullptr)
    for (Index t = 0; t < job.y.rows; ++t) {
      S* y = job.y.row(t);
      for (Index r = rows.begin; r < rows.end; ++r) y[r] = mul(y[r], *job.scale);
    }
  if (job.bias == nullptr) return;
  for (Index t = 0; t < job.y.rows; ++t) {
    S* y = job.y.row(t);
    for (Index r = rows.begin; r < rows.end; ++r) y[r] = y[r] + job.bias[r];
  }
}

}  // namespace detail

/// Scalars of scratch that linear_rows() needs for this matrix and n rows of x.
template <class S>
constexpr Index linear_scratch(Index d_in, Index n) {
  return n > 1 ? detail::panel_rows<S>(d_in) * d_in : 0;
}

/// Outputs [rows.begin, rows.end) of one product, in format F. 2 n d_in flops each.
/// @pre rows.begin is a multiple of 16  @param scratch  linear_scratch() scalars
template <class F, class S>
void linear_rows(const LinearJob<S>& job, Range rows, S* scratch) noexcept {
  const WorkScope<S> scope(Work::kLinear);
  if (job.x.rows > 1)
    detail::linear_many<F, S>(job.w, rows, job.x, job.y, scratch);
  else if (job.w.transposed)
    detail::linear_one_transposed<F, S>(job.w, rows, job.x.data, job.y.data);
  else
    detail::linear_one<F, S>(job.w, rows, job.x.data, job.y.data);
  detail::scale_and_add_bias(job, rows);
}

/// Calls run(job, rows, part) for n products, job_of(i) being the i-th, in one parallel step; each thread takes a
/// contiguous part of the rows of every matrix.
template <class S, class JobOf, class Run>
void for_each_part(ExecutorRef exec, Index n, JobOf&& job_of, Run&& run) noexcept {
  const Index parts = exec.concurrency();
  auto part = [&](Index i) noexcept {
    for (Index number = 0; number < n; ++number) {
      const LinearJob<S>& job = job_of(number);
      const Range rows = split_range(job.w.rows, parts, i, kLanes);
      if (rows.begin != rows.end && job.x.rows != 0) run(job, rows, i);
    }
  };
  exec.parallel_for(parts, part);
}

/// n products in one parallel step, job_of(i) being the i-th: what they multiply may differ.
/// @param scratch         scratch_stride scalars for each of exec.concurrency() parts
template <class Formats, class S, class JobOf>
void linear_each(ExecutorRef exec, Index n, JobOf&& job_of, S* scratch, Index scratch_stride) noexcept {
  for_each_part<S>(exec, n, job_of, [&](const LinearJob<S>& job, Range rows, Index part) {
    visit_format(Formats{}, job.w.format,
                 [&]<class F>() { linear_rows<F, S>(job, rows, scratch + part * scratch_stride); });
  });
}
/// Several products in one parallel step.
/// @param scratch         scratch_stride scalars for each of exec.concurrency() parts
template <class Formats, class S>
void linear(ExecutorRef exec, std::span<const LinearJob<S>> jobs, S* scratch, Index scratch_stride) noexcept {
  const auto job_of = [&](Index i) -> const LinearJob<S>& { return jobs[static_cast<std::size_t>(i)]; };
  linear_each<Formats, S>(exec, static_cast<Index>(jobs.size()), job_of, scratch, scratch_stride);
}

}  // namespace kvdecode::inline KVDECODE_ABI::kernels

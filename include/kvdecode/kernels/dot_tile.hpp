// SPDX-License-Identifier: MIT
// <kvdecode/kernels/dot_tile.hpp> - R stored rows times C rows of scalars: R * C canonical dots at once. A
// tile loads each operand once for several products; every output has the bits of the 1 x 1 tile.
#pragma once

#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/scalar.hpp>
#include <kvdecode/core/simd/bytes.hpp>
#include <kvdecode/core/sums.hpp>

namespace kvdecode::inline KVDECODE_ABI::kernels {

/// The largest tile of rows in memory as scalars whose accumulators leave registers for the operands.
template <class S>
struct TileShape {
  static constexpr bool fits(int r, int c) {
    return r * c * Lanes<S>::regs + r + 1 <= simd::kVectorRegisters;
  }
  static constexpr bool kScalar = Lanes<S>::width == 1;
  static constexpr int kRows = kScalar ? 1 : fits(4, 3) ? 4 : fits(2, 2) ? 2 : 1;
  static constexpr int kCols = kScalar      ? 1
                               : fits(4, 6) ? 6
                               : fits(4, 3) ? 3
                               : fits(2, 3) ? 3
                               : fits(2, 2) ? 2
                                            : 1;
};

namespace detail {

/// The tile's accumulators: lanes for output (r, c) at [c * R + r]. Rows are of n numbers.
template <class F, class S, int R, int C>
KVDECODE_INLINE void accumulate_tile(const std::byte* rows, Index row_stride, const S* x, Index x_stride,
                                     Index first, [[maybe_unused]] Index n, Lanes<S> (&lanes)[R * C]) {
  using L = Lanes<S>;
  using Reg = typename L::R;
  if constexpr (std::is_same_v<F, Native<S>> && L::width > 1) {
    // Register by register: half a row of lanes at a time needs half the registers. What several products share is held
    // in one: g++ would read rows again for each column.
    L::each([&](auto h) KVDECODE_INLINE_LAMBDA {
      typename Reg::type w[R];
      simd::unroll<R>([&](auto r) KVDECODE_INLINE_LAMBDA {
        w[r] = Reg::loadu(reinterpret_cast<const S*>(rows + r * row_stride) + first + h * L::width);
        if constexpr (C > 1) Reg::pin(w[r]);
      });
      simd::unroll<C>([&](auto c) KVDECODE_INLINE_LAMBDA {
        auto v = Reg::loadu(x + c * x_stride + first + h * L::width);
        Reg::pin(v);
        simd::unroll<R>([&](auto r) KVDECODE_INLINE_LAMBDA {
          lanes[c * R + r].r[h] = Reg::fma(w[r], v, lanes[c * R + r].r[h]);
        });
      });
    });
  } else {
    L v[C];
    simd::unroll<C>([&](auto c) KVDECODE_INLINE_LAMBDA { v[c] = L::loadu(x + c * x_stride + first); });
    simd::unroll<R>([&](auto r) KVDECODE_INLINE_LAMBDA {
      const L w = widen_numbers<F, S>(rows + r * row_stride, first, n);
      simd::unroll<C>([&](auto c)
                          KVDECODE_INLINE_LAMBDA { lanes[c * R + r] = fma(w, v[c], lanes[c * R + r]); });
    });
  }
}

/// Whether a row is best taken a block at a time: its blocks share scales.
template <class F, class S>
concept IsUnpackedByBlocks = std::is_floating_point_v<S> && requires {
  typename F::Scales;
};

/// Asks for what lies `ahead` bytes after the n bytes of each row that come next, a line at a time, by way of the second
/// level of the caches: it has room for more requests than the first.
template <int R, Index n>
KVDECODE_INLINE void prefetch_rows(const std::byte* rows, Index row_stride, Index done, Index ahead) {
  constexpr Index line = 64;
  if (n < line && done % line >= n) return;
  simd::unroll<R>([&](auto r) KVDECODE_INLINE_LAMBDA {
    simd::prefetch_second_level(rows + r * row_stride + done + ahead, n);
  });
}

/// What the blocks of R rows share.
template <class F, int R>
class SharedByBlocks {
 public:
  KVDECODE_INLINE SharedByBlocks(const std::byte*, Index) {}
  /// Goes on to the blocks at `rows`.
  KVDECODE_INLINE void go_to(const std::byte* rows, Index row_stride, bool) {
    simd::unroll<R>([&](auto r) KVDECODE_INLINE_LAMBDA { scales_[r] = F::scales(rows + r * row_stride); });
  }
  KVDECODE_INLINE const typename F::Scales& operator[](int r) const { return scales_[r]; }

 private:
  typename F::Scales scales_[R];
};

/// Whether blocks of the format share one binary16, their first number, and nothing else.
template <class F>
concept SharesOneHalf = requires {
  requires F::Layout::kHasHalfScales && !F::Layout::kHasMinimum;
  requires sizeof(typename F::Scales) == sizeof(float);
};

/// Halves of several rows are widened together, a block ahead of where they are used, and spread from memory.
template <SharesOneHalf F, int R>
requires simd::Column<R>::kIsFast class SharedByBlocks<F, R> {
 public:
  KVDECODE_INLINE SharedByBlocks(const std::byte* rows, Index row_stride)
      : next_(simd::Column<R>::load(rows, row_stride)) {}
  KVDECODE_INLINE void go_to(const std::byte* rows, Index row_stride, bool is_last) {
    static_assert(sizeof scales_ == R * sizeof(float));
    next_.storeu(static_cast<float*>(static_cast<void*>(scales_)));
    simd::keep_in_memory(scales_);
    next_ = simd::Column<R>::load(is_last ? rows : rows + F::kBlockBytes, row_stride);
  }
  KVDECODE_INLINE const typename F::Scales& operator[](int r) const { return scales_[r]; }

 private:
  simd::Column<R> next_;
  typename F::Scales scales_[R];
};

/// Whole blocks of R rows times one row of x, from number 0 on. @return the numbers done
template <class F, class S, int R>
KVDECODE_INLINE Index accumulate_blocks(const std::byte* rows, Index row_stride, const S* x, Index n,
                                        Index ahead, Lanes<S> (&lanes)[R]) {
  // So many at a time that what layouts compute from an index is constant.
  constexpr int kBlock = static_cast<int>(F::kBlock), kGroup = kBlock < 128 ? kBlock : 128;
  constexpr int kTogether = F::kTogether;
  // Where there are registers for them, the numbers of several rows come before their products: they wait for one another.
  constexpr int kTileRows = simd::kVectorRegisters >= 32 && Lanes<S>::regs == 1 && R % 4 == 0 ? 4 : 1;
  const Index n_whole = n / kBlock * kBlock;
  if (n_whole == 0) return 0;
  SharedByBlocks<F, R> shared(rows, row_stride);
  for (Index k = 0; k < n_whole; k += kBlock, rows += F::kBlockBytes) {
    if (ahead != 0) prefetch_rows<R, F::kBlockBytes>(rows, row_stride, 0, ahead);
    shared.go_to(rows, row_stride, k + kBlock == n_whole);
    for (int g = 0; g < kBlock / kGroup; ++g)
      simd::unroll<kGroup / kTogether>([&](auto part) KVDECODE_INLINE_LAMBDA {
        const int i = g * kGroup + part * kTogether;
        Lanes<S> some_x[kTogether / kLanes];
        simd::unroll<kTogether / kLanes>(
            [&](auto j) KVDECODE_INLINE_LAMBDA { some_x[j] = Lanes<S>::loadu(x + k + i + j * kLanes); });
        simd::unroll<R / kTileRows>([&](auto tile) KVDECODE_INLINE_LAMBDA {
          Lanes<S> w[kTileRows][kTogether / kLanes];
          simd::unroll<kTileRows>([&](auto r) KVDECODE_INLINE_LAMBDA {
            constexpr int row = tile * kTileRows + r;
            F::template some<S>(rows + row * row_stride, shared[row], i, w[r]);
          });
          if constexpr (kTileRows > 1) simd::hold_order(w);
          simd::unroll<kTileRows>([&](auto r) KVDECODE_INLINE_LAMBDA {
            Lanes<S>& sums = lanes[tile * kTileRows + r];
            simd::unroll<kTogether / kLanes>(
                [&](auto j) KVDECODE_INLINE_LAMBDA { sums = fma(w[r][j], some_x[j], sums); });
          });
        });
      });
  }
  return n_whole;
}

}  // namespace detail

/// out[c * out_stride + r] = dot(row r, x row c), each row of n numbers. 2 n R C flops.
/// @param rows   R rows in format F, row_stride bytes apart, at any alignment
/// @param x      C rows of scalars, x_stride elements apart
/// @param ahead  for one column: bytes from what is read to what is asked for; 0: nothing is
template <class F, class S, int R, int C>
void dot_tile(const std::byte* rows, Index row_stride, const S* x, Index x_stride, Index n, S* out,
              Index out_stride, [[maybe_unused]] Index ahead = 0) noexcept {
  using L = Lanes<S>;
  L lanes[R * C];
  simd::unroll<R * C>([&](auto i) KVDECODE_INLINE_LAMBDA { lanes[i] = L::zero(); });
  Index k = 0;
  if constexpr (C == 1 && detail::IsUnpackedByBlocks<F, S>)
    k = detail::accumulate_blocks<F, S, R>(rows, row_stride, x, n, ahead, lanes);
  for (; k + kLanes <= n; k += kLanes) {
    if constexpr (C == 1)
      if (ahead != 0)
        detail::prefetch_rows<R, byte_near<F>(kLanes)>(rows, row_stride, byte_near<F>(k), ahead);
    detail::accumulate_tile<F, S, R, C>(rows, row_stride, x, x_stride, k, n, lanes);
  }
  if (k < n) {  // lanes past the end stay as they are
    simd::unroll<R * C>([&](auto i) KVDECODE_INLINE_LAMBDA {
      S t[kLanes];
      lanes[i].storeu(t);
      for (Index j = 0; k + j < n; ++j)
        t[j] = simd::Register<S, false>::fma(decode_number<F, S>(rows + (i % R) * row_stride, k + j, n),
                                             x[(i / R) * x_stride + k + j], t[j]);
      lanes[i] = L::loadu(t);
    });
  }
  S sums[R * C];
  tree_sums(lanes, sums);
  for (int c = 0; c < C; ++c)
    for (int r = 0; r < R; ++r) out[c * out_stride + r] = sums[c * R + r];
}

}  // namespace kvdecode::inline KVDECODE_ABI::kernels

// SPDX-License-Identifier: MIT
// <kvdecode/kernels/int8_linear.hpp> - y = W x + b where both factors are integers: W in blocks, and x rounded to
// signed bytes in blocks of 32, each with a scale of its own (LLM.int8, Dettmers 2022, by blocks). Sums of a block are
// exact integers on every machine; what is left is one short chain of floats.
//
//   d_x = max |x_k| / 127,  q_k = round-half-even(x_k / d_x) in [-127, 127], 0 where d_x is 0     k in a block of 32
//   y   = sum over blocks:  y = fma(sum_k s_k c_k q_k, d_w d_x, y),  d_w d_x rounded,  in rising order from +0
//         and where W has minimums, after each of them  y = fma(sum_k m_k q_k, m_w d_x, y)
//
// where W_k = d_w s_k c_k + m_w m_k, with integers s (1 if there are none), c and m.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>
#include <kvdecode/core/simd/ints.hpp>
#include <kvdecode/core/simd/row_dots.hpp>
#include <kvdecode/kernels/linear.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI::kernels {

/// Numbers of a row that are rounded together.
inline constexpr Index kRoundedBlock = 32;

/// 32 numbers of x, rounded.
template <class S>
struct RoundedBlock {
  std::int8_t codes[kRoundedBlock];
  S scale;
  S sums[2];  ///< of the first sixteen codes and of the others, exact
  /// -simd::kStartUnit times the sum of the first sixteen codes, of the others, and of all: where sums of products begin.
  std::int32_t starts[3];
};

/// Rows of x, rounded.
template <class S>
class RoundedRows {
 public:
  /// Bytes of n rows of d_in numbers.
  static constexpr Index bytes(Index d_in, Index n) {
    return n * blocks(d_in) * static_cast<Index>(sizeof(RoundedBlock<S>));
  }

  /// @param data  bytes(d_in, n) of them, aligned as RoundedBlock
  RoundedRows(std::byte* data, Index d_in) noexcept
      : data_(reinterpret_cast<RoundedBlock<S>*>(data)), d_in_(d_in) {}

  Index n_blocks() const noexcept { return blocks(d_in_); }
  /// n_blocks() of a row. Codes past the row's end are 0.
  const RoundedBlock<S>* operator[](Index row) const noexcept { return data_ + row * n_blocks(); }

  /// Rounds a row. O(d_in).
  void round(Index row, const S* x) noexcept {
    for (Index b = 0; b < n_blocks(); ++b) {
      const Index n = std::min(kRoundedBlock, d_in_ - b * kRoundedBlock);
      const S* numbers = x + b * kRoundedBlock;
      S block[kRoundedBlock];
      if (n < kRoundedBlock) {
        for (Index i = 0; i < kRoundedBlock; ++i) block[i] = i < n ? numbers[i] : S(0.0f);
        numbers = block;
      }
      RoundedBlock<S>& out = data_[row * n_blocks() + b];
      simd::Bytes codes[2];
      out.scale = round_block(numbers, codes);
      std::memcpy(out.codes, codes, sizeof codes);
      const int sums[] = {simd::sum_of(codes[0]), simd::sum_of(codes[1])};
      for (int half = 0; half < 2; ++half) out.sums[half] = S(static_cast<float>(sums[half]));
      const int all[] = {sums[0], sums[1], sums[0] + sums[1]};
      for (int i = 0; i < 3; ++i) out.starts[i] = -simd::kStartUnit * all[i];
    }
  }

 private:
  static constexpr Index blocks(Index d_in) { return (d_in + kRoundedBlock - 1) / kRoundedBlock; }

  /// @return the scale
  static S round_block(const S* x, simd::Bytes (&codes)[2]) noexcept {
    using R1 = simd::Register<S, false>;
    S largest[kLanes];
    max(magnitudes(Lanes<S>::loadu(x)), magnitudes(Lanes<S>::loadu(x + kLanes))).storeu(largest);
    const S scale = tree_reduce(largest, [](const S& a, const S& b) { return R1::max(a, b); }) / S(127.0f);
    if (!(S(0.0f) < scale)) {
      codes[0] = codes[1] = simd::Bytes{};
      return S(0.0f);
    }
    // A scale that was rounded down among subnormal numbers leaves quotients beyond 127.
    for (int half = 0; half < 2; ++half)
      codes[half] = simd::nearest_bytes(
          max(div(Lanes<S>::loadu(x + half * kLanes), Lanes<S>::set1(scale)), Lanes<S>::set1(S(-127.0f))));
    return scale;
  }
  static KVDECODE_INLINE Lanes<S> magnitudes(const Lanes<S>& v) {
    return kvdecode::detail::each_register<S>(
        [&](auto i) KVDECODE_INLINE_LAMBDA { return Lanes<S>::R::abs(v.r[i]); });
  }

  RoundedBlock<S>* data_;
  Index d_in_;
};

namespace detail {

// Numbers of sixteen rows that are decoded at a time: they stay in the first-level cache.
inline constexpr Index kInt8Chunk = 1024;

/// Sixteen rows of some blocks of W, laid out so that a lane is a row. What a format has no use for stays unused.
template <class S>
struct Int8Tile {
  static constexpr Index kBlocks = kInt8Chunk / kRoundedBlock;

  std::byte codes[kBlocks][8][64];  // four numbers of each row, as simd::dot8() takes them
  S scales[kBlocks][kLanes];
  S minimums[kBlocks][kLanes];
  S integer_scales[kBlocks][2][kLanes];
  S integer_minimums[kBlocks][2][kLanes];
};

/// What the products of a layout's tiles depend on: layouts that share it share the code.
template <int span, bool has_minimum, int added>
struct IntegerKind {
  static constexpr int kSpan = span;
  static constexpr bool kHasMinimum = has_minimum;
  static constexpr int kAdded = added;  // to codes
};
template <class B>
using IntegerKindOf = IntegerKind<B::kSpan, B::kHasMinimum, simd::added_to_codes(B::kOffset)>;

/// Sums of integers for each rounded block: those that share an integer scale.
template <class Kind>
inline constexpr int kSums = Kind::kSpan == 16 ? 2 : 1;

/// The scales of a block of eight rows, side by side.
template <class B>
class RowScales {
  static constexpr int kRows = simd::kDotRows;
  static constexpr int kIntegers = B::kSpan == 0 ? 0 : B::kSize / B::kSpan;  // of a row

 public:
  using RowFloats = simd::RowFloats;

  RowFloats scale, minimum;

  /// @param offset  bytes from the rows' beginnings to the block
  KVDECODE_INLINE RowScales(const std::byte* const (&rows)[kRows], Index offset) noexcept {
    kvdecode::detail::Integers all[kRows];
    simd::unroll<kRows>([&](auto r) KVDECODE_INLINE_LAMBDA { all[r] = B::integers(rows[r] + offset); });
    scale = RowFloats::of_each([&](int r) KVDECODE_INLINE_LAMBDA { return all[r].scale; });
    if constexpr (B::kHasMinimum)
      minimum = RowFloats::of_each([&](int r) KVDECODE_INLINE_LAMBDA { return all[r].minimum; });
    if constexpr (B::kSpan != 0) turn<&kvdecode::detail::Integers::scales>(all, scales_);
    if constexpr (B::kSpan != 0 && B::kHasMinimum)
      turn<&kvdecode::detail::Integers::minimums>(all, minimums_);
  }
  /// Integer i of each row: an integer scale, or an integer minimum.
  KVDECODE_INLINE RowFloats integer_scale(int i) const noexcept {
    return simd::load_signed_bytes(scales_ + kRows * i);
  }
  KVDECODE_INLINE RowFloats integer_minimum(int i) const noexcept {
    return simd::load_signed_bytes(minimums_ + kRows * i);
  }

 private:
  template <simd::Bytes kvdecode::detail::Integers::*member>
  static KVDECODE_INLINE void turn(const kvdecode::detail::Integers (&all)[kRows], std::byte* out) noexcept {
    simd::Bytes bytes[kRows];
    simd::unroll<kRows>([&](auto r) KVDECODE_INLINE_LAMBDA { bytes[r] = all[r].*member; });
    simd::turn_bytes<kIntegers>(bytes, out);
  }

  std::byte scales_[std::max(1, kRows* kIntegers)];
  std::byte minimums_[std::max(1, B::kHasMinimum ? kRows* kIntegers : 0)];
};
/// Where binary16s at the beginning of a block are all of them.
template <class B>
requires(B::kHasHalfScales) class RowScales<B> {
 public:
  simd::RowFloats scale, minimum;

  KVDECODE_INLINE RowScales(const std::byte* const (&rows)[simd::kDotRows], Index offset) noexcept
      : scale(simd::load_halves(rows, offset)) {
    if constexpr (B::kHasMinimum) minimum = simd::load_halves(rows, offset + 2);
  }
};

/// What eight rows ask for while they are multiplied.
struct Prefetch {
  enum class Order {
    kMemory,  ///< byte after byte: rows so short that eight fit in the first-level cache a few times
    kRows,    ///< the same place in each row
  };
  Order order;
  Index distance;          // bytes from the first row to what is asked for first
  bool into_second_level;  // of the caches: more requests at a time than the first has room for

  KVDECODE_INLINE void operator()(const std::byte* p) const {
    if (into_second_level)
      simd::prefetch_second_level(p);
    else
      simd::prefetch(p);
  }
};

/// Memory is read fastest in its own order, and several short rows side by side are out of it: so eight rows ask for the
/// next eight byte by byte. Those of long rows would not fit in the cache; there, rows are asked for in step. Blocks that
/// are summed faster than memory is read come by way of the second level: 1.15 (Q4_0) to 1.6 times as fast (Q8_0) on a
/// core that reads 25 GB/s. Others would wait for it.
template <class B>
constexpr Prefetch prefetch_for(Index stride) {
  constexpr Index kShortRows = 5 * 1024, kFewRows = 16 * 1024;
  constexpr Index kLongRow = 4096;  // from here on, the core's own prefetching follows each row
  const Index bytes = simd::kDotRows * stride;
  if (B::kBytes >= B::kSize || bytes <= kShortRows) return {Prefetch::Order::kMemory, bytes + 4096, true};
  if (stride < kLongRow && bytes <= kFewRows) return {Prefetch::Order::kMemory, bytes + 2048, false};
  return {Prefetch::Order::kRows, bytes, false};
}

/// Asks for one of equal parts of the next n bytes of each row: many requests at once would wait for one another.
template <Index n, int n_parts>
KVDECODE_INLINE void prefetch_part(const std::byte* const (&rows)[simd::kDotRows], Index done, int part,
                                   const Prefetch& prefetch) {
  if (prefetch.order == Prefetch::Order::kMemory) {
    constexpr Index bytes = simd::kDotRows * n / n_parts;
    const std::byte* const ahead = rows[0] + prefetch.distance + simd::kDotRows * done + bytes * part;
    simd::unroll<static_cast<int>((bytes + 63) / 64)>(
        [&](auto i) KVDECODE_INLINE_LAMBDA { prefetch(ahead + 64 * i); });
  } else if (part == 0) {
    simd::unroll<simd::kDotRows>([&](auto r) KVDECODE_INLINE_LAMBDA {
      for (Index line = 0; line < n; line += 64) prefetch(rows[r] + prefetch.distance + done + line);
    });
  }
}

/// Blocks [first, first + n) of eight rows, as the lanes of a tile from `lane` on; after the matrix's last row the last one
/// again.
template <class B, class S>
void decode_half_tile(const MatrixView& w, Index row, Index first, Index n, Index lane, Ahead ahead,
                      Int8Tile<S>& tile) noexcept {
  constexpr int kAdded = simd::added_to_codes(B::kOffset);
  constexpr int kBlocksOfOne = B::kSize / static_cast<int>(kRoundedBlock);
  const std::byte* rows[simd::kDotRows];
  for (Index r = 0; r < simd::kDotRows; ++r) rows[r] = w.data + std::min(row + r, w.rows - 1) * w.stride;
  const auto store = [&](const simd::RowFloats& numbers, S* to) KVDECODE_INLINE_LAMBDA {
    if constexpr (std::is_same_v<S, float>) {
      numbers.storeu(to + lane);
    } else {
      float floats[simd::kDotRows];
      numbers.storeu(floats);
      for (int r = 0; r < simd::kDotRows; ++r) to[lane + r] = S(floats[r]);
    }
  };
  Index offset = first / kBlocksOfOne * B::kBytes;
  for (Index b = 0; b < n; b += kBlocksOfOne, offset += B::kBytes) {
    const RowScales<B> scales(rows, offset);
    for (int part = 0; part < kBlocksOfOne; ++part) {
      store(scales.scale, tile.scales[b + part]);
      if constexpr (B::kHasMinimum) store(scales.minimum, tile.minimums[b + part]);
      if constexpr (B::kSpan != 0)
        for (int i = 0; i < kSums<B>; ++i) {
          store(scales.integer_scale(kSums<B> * part + i), tile.integer_scales[b + part][i]);
          if constexpr (B::kHasMinimum)
            store(scales.integer_minimum(kSums<B> * part + i), tile.integer_minimums[b + part][i]);
        }
      for (int sixteen = 0; sixteen < 2; ++sixteen) {
        simd::BytePairs codes[simd::kDotPairs];
        simd::unroll<simd::kDotPairs>([&](auto p) KVDECODE_INLINE_LAMBDA {
          codes[p] = simd::codes_of<B>(simd::RowPair{rows[p] + offset, rows[p + simd::kDotPairs] + offset},
                                       part * static_cast<int>(kRoundedBlock) + sixteen * kLanes);
          if constexpr (kAdded > 0) codes[p] = codes[p] + static_cast<std::uint8_t>(kAdded);
        });
        simd::turn_quads(codes, tile.codes[b + part][4 * sixteen] + 4 * lane);
      }
      ahead();
    }
  }
}

/// Blocks [first, first + n) of sixteen rows. @pre first is the beginning of a block of W
/// @return what is to be asked for while the tile is multiplied: the rest of the next one in memory, so that memory is
///         always at work
template <class B, class S>
Ahead decode_tile(const MatrixView& w, Index row, Index first, Index n, Int8Tile<S>& tile) noexcept {
  constexpr Index kRows = simd::kDotRows, kBlocksOfOne = B::kSize / kRoundedBlock;
  constexpr Index kAsked = 6;  // rows of the next sixteen, for each eight that are decoded
  const auto next = [&](Index from, Index n_rows) {
    return Ahead{w.data + (row + kLanes + from) * w.stride + n_rows * (first / kBlocksOfOne * B::kBytes),
                 n_rows * B::kBytes / kBlocksOfOne};
  };
  decode_half_tile<B>(w, row, first, n, 0, next(0, kAsked), tile);
  decode_half_tile<B>(w, row + kRows, first, n, kRows, next(kAsked, kAsked), tile);
  return next(2 * kAsked, kLanes - 2 * kAsked);
}

/// Adds the products of a tile and C rows of x to y, lane by lane.
/// @param first  the tile's first block in the rows  @param y  [C][16], y_stride scalars apart
template <class Kind, class S, int C>
void multiply_tile(const Int8Tile<S>& tile, const RoundedRows<S>& x, Index row, Index first, Index n, S* y,
                   Index y_stride, Ahead ahead) noexcept {
  using L = Lanes<S>;
  const RoundedBlock<S>* blocks[C];
  L total[C];
  simd::unroll<C>([&](auto c) KVDECODE_INLINE_LAMBDA {
    blocks[c] = x[row + c] + first;
    total[c] = L::loadu(y + c * y_stride);
  });
  for (Index b = 0; b < n; ++b) {
    ahead();
    L integers[C];
    simd::unroll<kSums<Kind>>([&](auto half) KVDECODE_INLINE_LAMBDA {
      simd::IntLanes sum[C];
      simd::unroll<C>([&](auto c) KVDECODE_INLINE_LAMBDA {
        if constexpr (Kind::kAdded > 0)
          sum[c] = simd::IntLanes::set1(blocks[c][b].starts[kSums<Kind> == 2 ? half : 2] *
                                        (Kind::kAdded / simd::kStartUnit));
        else
          sum[c] = simd::IntLanes::zero();
      });
      simd::unroll<4 / kSums<Kind>>([&](auto i) KVDECODE_INLINE_LAMBDA {
        constexpr int q = half * 4 + 2 * i;
        const simd::CodeQuads w[2] = {simd::CodeQuads::loadu(tile.codes[b][q]),
                                      simd::CodeQuads::loadu(tile.codes[b][q + 1])};
        simd::unroll<C>([&](auto c) KVDECODE_INLINE_LAMBDA {
          sum[c] = simd::dot8<Kind::kAdded == simd::kSigned>(sum[c], w, blocks[c][b].codes + 4 * q);
        });
      });
      simd::unroll<C>([&](auto c) KVDECODE_INLINE_LAMBDA {
        L v = simd::to_lanes<S>(sum[c]);
        if constexpr (Kind::kSpan != 0) v = mul(v, L::loadu(tile.integer_scales[b][half]));
        integers[c] = half == 0 ? v : add(integers[c], v);
      });
    });
    simd::unroll<C>([&](auto c) KVDECODE_INLINE_LAMBDA {
      const RoundedBlock<S>& block = blocks[c][b];
      const L scale = L::set1(block.scale);
      total[c] = fma(integers[c], mul(L::loadu(tile.scales[b]), scale), total[c]);
      if constexpr (Kind::kHasMinimum) {
        L m;
        if constexpr (Kind::kSpan == 0) {
          m = L::set1(block.sums[0] + block.sums[1]);
        } else if constexpr (Kind::kSpan == 32) {
          m = mul(L::loadu(tile.integer_minimums[b][0]), L::set1(block.sums[0] + block.sums[1]));
        } else {
          m = add(mul(L::loadu(tile.integer_minimums[b][0]), L::set1(block.sums[0])),
                  mul(L::loadu(tile.integer_minimums[b][1]), L::set1(block.sums[1])));
        }
        total[c] = fma(m, mul(L::loadu(tile.minimums[b]), scale), total[c]);
      }
    });
  }
  simd::unroll<C>([&](auto c) KVDECODE_INLINE_LAMBDA { total[c].storeu(y + c * y_stride); });
}

/// A tile and all rows of x, as many at a time as registers hold.
template <class Kind, class S>
void multiply_tile_by_all(const Int8Tile<S>& tile, const RoundedRows<S>& x, Index n_rows, Index first,
                          Index n, S* y, Index y_stride, Ahead ahead) noexcept {
  constexpr int kMost = Lanes<S>::width == 1 ? 1 : simd::IntLanes::regs == 1 ? 8 : 2;
  Index row = 0;
  const auto some = [&](auto rows) {
    for (; row + rows <= n_rows; row += rows)
      multiply_tile<Kind, S, rows>(tile, x, row, first, n, y + row * y_stride, y_stride,
                                   std::exchange(ahead, {}));
  };
  if constexpr (kMost >= 8) some(std::integral_constant<int, 8>{});
  if constexpr (kMost >= 8) some(std::integral_constant<int, 4>{});
  if constexpr (kMost >= 2) some(std::integral_constant<int, 2>{});
  some(std::integral_constant<int, 1>{});
}

/// Eight rows of W times one row of x, straight from the stored blocks: what a tile would cost to lay out is saved. The
/// sums are the same integers. @param y  [8]
template <class B>
void int8_dot_rows(const std::byte* const (&rows)[simd::kDotRows], Index n_blocks,
                   const RoundedRows<float>& x, const Prefetch& prefetch, float* y) noexcept {
  using simd::RowFloats;
  constexpr int kBlocksOfOne = B::kSize / static_cast<int>(kRoundedBlock);
  constexpr int kAtATime =
      std::min(kBlocksOfOne, 4);  // so that what layouts compute from an index is constant
  const RoundedBlock<float>* const blocks = x[0];
  RowFloats total = RowFloats::zero();
  Index offset = 0;  // bytes: one for all rows, whose beginnings stay in registers
  for (Index b = 0; b < n_blocks; b += kBlocksOfOne, offset += B::kBytes) {
    const RowScales<B> of_rows(rows, offset);
    for (int group = 0; group < kBlocksOfOne; group += kAtATime)
      simd::unroll<kAtATime>([&](auto i) KVDECODE_INLINE_LAMBDA {
        const int part = group + i;
        if (kBlocksOfOne > 1 && b + part >= n_blocks) return;
        prefetch_part<B::kBytes, kBlocksOfOne>(rows, offset, part, prefetch);
        const RoundedBlock<float>& block = blocks[b + part];
        const auto factor = simd::PairFactor<B::kOffset>::loadu(block.codes);
        simd::PairSums first[simd::kDotPairs], second[simd::kDotPairs];
        simd::unroll<simd::kDotPairs>([&](auto p) KVDECODE_INLINE_LAMBDA {
          const simd::RowPair pair{rows[p] + offset, rows[p + simd::kDotPairs] + offset};
          const auto low = simd::codes_of<B>(pair, part * 32), high = simd::codes_of<B>(pair, part * 32 + 16);
          if constexpr (B::kSpan == 16) {
            first[p] = factor.template times_half<0>(low);
            second[p] = factor.template times_half<1>(high);
          } else {
            first[p] = factor.times(low, high);
          }
        });
        // Products with integer scales and their sums are integers too, exact in float.
        RowFloats sum = to_floats(simd::row_sums(first));
        if constexpr (B::kSpan == 32) sum = mul(sum, of_rows.integer_scale(part));
        if constexpr (B::kSpan == 16)
          sum = fma(to_floats(simd::row_sums(second)), of_rows.integer_scale(2 * part + 1),
                    mul(sum, of_rows.integer_scale(2 * part)));
        const RowFloats step = RowFloats::set1(block.scale);
        total = fma(sum, mul(of_rows.scale, step), total);
        if constexpr (B::kHasMinimum) {
          RowFloats m;
          if constexpr (B::kSpan == 16)
            m = fma(of_rows.integer_minimum(2 * part + 1), RowFloats::set1(block.sums[1]),
                    mul(of_rows.integer_minimum(2 * part), RowFloats::set1(block.sums[0])));
          else
            m = RowFloats::set1(block.sums[0] + block.sums[1]);
          if constexpr (B::kSpan == 32) m = mul(of_rows.integer_minimum(part), m);
          total = fma(m, mul(of_rows.minimum, step), total);
        }
      });
  }
  total.storeu(y);
}

/// Rows [rows.begin, rows.end) of the product for one token.
template <class B>
void int8_linear_one(const MatrixView& w, Range rows, const RoundedRows<float>& x, float* y) noexcept {
  constexpr Index kRows = simd::kDotRows;
  const Prefetch prefetch = prefetch_for<B>(w.stride);
  for (Index row = rows.begin; row < rows.end; row += kRows) {
    const Index n = std::min(kRows, rows.end - row);
    const std::byte* some[kRows];
    for (Index r = 0; r < kRows; ++r) some[r] = w.data + (row + std::min(r, n - 1)) * w.stride;
    float sums[kRows];
    int8_dot_rows<B>(some, x.n_blocks(), x, prefetch, sums);
    std::copy_n(sums, n, y + row);
  }
}

}  // namespace detail

/// Whether rows in this format are multiplied as integers.
template <class F>
concept IsMultipliedAsIntegers = IntegerLayout<typename F::Layout>;

/// Scalars of scratch that int8_linear_rows() needs.
template <class S>
constexpr Index int8_linear_scratch() {
  return static_cast<Index>(sizeof(detail::Int8Tile<S>) / sizeof(S));
}

/// Outputs [rows.begin, rows.end) of one product, in a format of blocks F; x is job.x rounded. 2 n d_in operations each.
/// @pre rows.begin is a multiple of 16, W is not transposed  @param scratch  int8_linear_scratch() scalars
template <IsMultipliedAsIntegers F, class S>
void int8_linear_rows(const LinearJob<S>& job, Range rows, const RoundedRows<S>& x, S* scratch) noexcept {
  using B = typename F::Layout;
  const WorkScope<S> scope(Work::kLinear);
  if constexpr (std::is_same_v<S, float>)
    if (job.y.rows == 1) {
      detail::int8_linear_one<B>(job.w, rows, x, job.y.row(0));
      return detail::scale_and_add_bias(job, rows);
    }
  constexpr Index kAtATime = detail::Int8Tile<S>::kBlocks;
  auto& tile = *reinterpret_cast<detail::Int8Tile<S>*>(scratch);
  for (Index row = rows.begin; row < rows.end; row += kLanes) {
    const Index n_lanes = std::min<Index>(kLanes, rows.end - row);
    for (Index t = 0; t < job.y.rows; ++t) std::fill_n(job.y.row(t) + row, n_lanes, S(0.0f));
    for (Index first = 0; first < x.n_blocks(); first += kAtATime) {
      const Index n = std::min(kAtATime, x.n_blocks() - first);
      detail::Ahead ahead = detail::decode_tile<B>(job.w, row, first, n, tile);
      if (n_lanes == kLanes) {
        detail::multiply_tile_by_all<detail::IntegerKindOf<B>>(tile, x, job.y.rows, first, n,
                                                               job.y.row(0) + row, job.y.stride, ahead);
        continue;
      }
      for (Index t = 0; t < job.y.rows; ++t) {
        S lanes[kLanes] = {};
        std::copy_n(job.y.row(t) + row, n_lanes, lanes);
        detail::multiply_tile<detail::IntegerKindOf<B>, S, 1>(tile, x, t, first, n, lanes, kLanes,
                                                              std::exchange(ahead, {}));
        std::copy_n(lanes, n_lanes, job.y.row(t) + row);
      }
    }
  }
  detail::scale_and_add_bias(job, rows);
}

}  // namespace kvdecode::inline KVDECODE_ABI::kernels

// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/block_format.hpp> - a storage format of blocks: numbers that share scales. A block's
// layout says what one number is; this makes rows of it.
#pragma once

#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/format.hpp>
#include <kvdecode/core/half.hpp>
#include <kvdecode/core/simd/bytes.hpp>
#include <kvdecode/core/simd/lanes.hpp>
#include <kvdecode/core/simd/widen.hpp>

#include <algorithm>
#include <concepts>
#include <type_traits>

namespace kvdecode::inline KVDECODE_ABI {

namespace detail {
/// What turns the codes of a block into its numbers.
struct Integers {
  float scale;
  float minimum = 0.0f;
  simd::Bytes scales{};    // s, signed
  simd::Bytes minimums{};  // m
};
struct LanesPair {
  Lanes<float> first, second;
};
struct LanesQuad {
  Lanes<float> first, second, third, fourth;
};
}  // namespace detail

/// The layout of a block.
///
/// | expression | meaning |
/// |---|---|
/// | B::kId | the format's tag |
/// | B::kSize, B::kBytes | numbers in a block, a power of two of at least 32; its bytes |
/// | B::value(block, i) | number i of the block: the definition |
/// | B::Scales, B::scales(block) | what the numbers of a block share, ready for use |
/// | B::values(block, scales, i) | numbers i … i+15, the same bits as value(); i is a multiple of 16 |
/// | B::pair(block, scales, i) | optional: numbers i … i+31 as two times 16, where that saves something; i is a multiple of 32 |
/// | B::quad(block, scales, i) | optional: numbers i … i+63, likewise; i is a multiple of 64 |
/// | B::encode(values, block) | optional: stores kSize doubles |
/// | B::kIsRowByRow | optional: true of formats that are multiplied one row at a time, by a fraction of the code |
///
/// A stored number is a float, rounded as `value` says: each product by itself, never fused with a sum.
template <class B>
concept BlockLayout = requires(const std::byte* block, int i, const typename B::Scales& scales) {
  { B::kId } -> std::convertible_to<FormatId>;
  requires B::kSize >= 2 * kLanes && (B::kSize & (B::kSize - 1)) == 0 && B::kBytes > 0;
  { B::value(block, i) } -> std::same_as<float>;
  { B::scales(block) } -> std::same_as<typename B::Scales>;
  { B::values(block, scales, i) } -> std::same_as<Lanes<float>>;
};

/// A layout whose numbers are integers times scales, for activations that are integers too.
///
/// | expression | meaning |
/// |---|---|
/// | B::codes(block, i) | what of numbers i … i+15 is a signed byte: in units of the scale, from the minimum; of a block, or of two, a simd::RowPair |
/// | B::kOffset | codes plus this are unsigned: 128, or less where they are unsigned bytes below 64 |
/// | B::kSpan | how many numbers share an integer scale, 16 or 32; 0: there is none |
/// | B::kHasMinimum | whether there is one |
/// | B::kHasHalfScales | whether scale and minimum alone turn codes into numbers, as binary16 at bytes 0 and 2 |
/// | B::integers(block) | the scales of codes |
///
/// Number i is scale s[i / kSpan] code(i) + minimum m[i / kSpan]; s and m are 1 where kSpan is 0. The sum of s code(i) q
/// over a span of 32, or two of 16, is less than 2^24 for |q| <= 127: exact in float.
template <class B>
concept IntegerLayout = BlockLayout<B> && requires(const std::byte* block, int i) {
  { B::codes(block, i) } -> std::same_as<simd::Bytes>;
  requires B::kOffset >= 0 && B::kOffset <= 128;
  requires B::kSpan == 0 || B::kSpan == 16 || B::kSpan == 32;
  { B::kHasMinimum } -> std::convertible_to<bool>;
  { B::kHasHalfScales } -> std::convertible_to<bool>;
  { B::integers(block) } -> std::same_as<detail::Integers>;
};

/// The format whose rows are blocks of layout B, one after another. Every scalar gets the float that the
/// layout defines.
template <BlockLayout B>
struct BlockFormat {
  static constexpr FormatId kId = B::kId;
  static constexpr std::string_view kName = to_string(B::kId);
  static constexpr Index kBlock = B::kSize;
  static constexpr Index kBlockBytes = B::kBytes;
  using Layout = B;
  using Scales = typename B::Scales;
  /// How many numbers are best computed together: what they share is computed once.
  static constexpr int kTogether = requires(const std::byte* block, const Scales& scales) {
    B::quad(block, scales, 0);
  }
  ? 4 * kLanes : 2 * kLanes;
  /// Whole blocks: the last may be used in part.
  static constexpr Index row_bytes(Index n) { return (n + kBlock - 1) / kBlock * B::kBytes; }

  template <class S>
  static S decode(const std::byte* row, Index i) {
    return static_cast<S>(B::value(block_of(row, i), within(i)));
  }
  template <class S>
  static KVDECODE_INLINE Lanes<S> widen(const std::byte* row, Index first) {
    if constexpr (std::is_floating_point_v<S>) {
      const std::byte* const block = block_of(row, first);
      return widen_block<S>(block, B::scales(block), within(first));
    } else {
      return detail::widen_by_element<BlockFormat, S>(row, first);
    }
  }
  /// What the numbers of a block share, so that it is computed once.
  static KVDECODE_INLINE Scales scales(const std::byte* block) { return B::scales(block); }
  /// Numbers i … i+15 of a block.
  template <std::floating_point S>
  static KVDECODE_INLINE Lanes<S> widen_block(const std::byte* block, const Scales& scales, int i) {
    return simd::convert<S>(B::values(block, scales, i));
  }
  /// Numbers i … i+31.
  static KVDECODE_INLINE detail::LanesPair pair(const std::byte* block, const Scales& scales, int i) {
    if constexpr (requires { B::pair(block, scales, i); })
      return B::pair(block, scales, i);
    else
      return {B::values(block, scales, i), B::values(block, scales, i + kLanes)};
  }
  /// Numbers i … i + kTogether - 1.
  template <std::floating_point S>
  static KVDECODE_INLINE void some(const std::byte* block, const Scales& scales, int i,
                                   Lanes<S> (&numbers)[kTogether / kLanes]) {
    if constexpr (kTogether == 4 * kLanes) {
      const detail::LanesQuad quad = B::quad(block, scales, i);
      numbers[0] = simd::convert<S>(quad.first);
      numbers[1] = simd::convert<S>(quad.second);
      numbers[2] = simd::convert<S>(quad.third);
      numbers[3] = simd::convert<S>(quad.fourth);
    } else {
      const detail::LanesPair two = pair(block, scales, i);
      numbers[0] = simd::convert<S>(two.first);
      numbers[1] = simd::convert<S>(two.second);
    }
  }
  /// A last block in part is filled up with zeros.
  template <class S>
  static void encode(const S* values, Index n, std::byte* row) requires
      requires(const double* block, std::byte* bytes) {
    B::encode(block, bytes);
  }
  {
    for (Index i = 0; i < n; i += kBlock) {
      double block[kBlock] = {};
      for (Index j = 0; j < std::min(kBlock, n - i); ++j) block[j] = static_cast<double>(values[i + j]);
      B::encode(block, row + i / kBlock * B::kBytes);
    }
  }

 private:
  // Unsigned, so that a division by the block is a shift.
  static KVDECODE_INLINE const std::byte* block_of(const std::byte* row, Index i) {
    return row + static_cast<std::size_t>(i) / B::kSize * B::kBytes;
  }
  static KVDECODE_INLINE int within(Index i) {
    return static_cast<int>(static_cast<std::size_t>(i) % B::kSize);
  }
};

namespace detail {

/// The scales of layouts, ready for use.
struct OneScale {
  float scale;
};
struct ScaleAndMinimum {
  float scale;
  float minimum;
};
/// One for each kSize / n numbers.
template <int n>
struct PartScales {
  float scale[n];
};
/// The levels that four bits stand for.
struct Levels {
  std::int8_t level[kLanes];

  KVDECODE_INLINE Lanes<float> lanes() const {
    return simd::to_lanes(simd::load_bytes(reinterpret_cast<const std::byte*>(level)));
  }
};
inline constexpr Levels kZeroToFifteen{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};

inline constexpr float kNoMinimum = 0.0f;

/// The numbers that four bits stand for in a block: scale * level, and where there is one + minimum. All sixteen, where
/// a machine looks numbers up; else what makes them.
template <bool has_minimum, bool picks = simd::kPicksFast>
struct FourBitNumbers {
  KVDECODE_INLINE FourBitNumbers() = default;
  /// Of a scale, and a minimum if there is one, that are binary16s at the beginning of a block.
  KVDECODE_INLINE FourBitNumbers(const Levels& levels, const std::byte* block) {
    float minimum = 0.0f;
    if constexpr (has_minimum) minimum = simd::load_f16(block + 2);
    if constexpr (picks)
      shared = of(mul(levels.lanes(), Lanes<float>::set1(0x1p112f)), simd::broadcast_small_f16(block),
                  Lanes<float>::set1(minimum));
    else
      shared = {simd::load_f16(block), minimum};
  }
  KVDECODE_INLINE FourBitNumbers(const Levels& levels, const float& scale,
                                 const float& minimum = kNoMinimum) {
    if constexpr (picks && has_minimum)
      shared = of(levels.lanes(), simd::broadcast(scale), simd::broadcast(minimum));
    else if constexpr (picks)
      shared = of(levels.lanes(), simd::broadcast(scale), {});
    else
      shared = {scale, minimum};
  }
  /// Of sixteen codes, and the bytes whose bits from `shift` on they are.
  KVDECODE_INLINE Lanes<float> operator()(simd::Bytes codes, simd::Bytes packed, int shift) const {
    if constexpr (picks)
      return simd::pick(shared, packed, shift);
    else
      return of(simd::to_lanes(codes), Lanes<float>::set1(shared.scale), Lanes<float>::set1(shared.minimum));
  }

 private:
  static KVDECODE_INLINE Lanes<float> of(const Lanes<float>& level, const Lanes<float>& scale,
                                         const Lanes<float>& minimum) {
    if constexpr (has_minimum)
      return simd::scale_and_shift(level, scale, minimum);
    else
      return mul(scale, level);
  }
  std::conditional_t<picks, Lanes<float>, ScaleAndMinimum> shared;
};

/// One for each sixteen numbers.
struct SubScales {
  SubScales() = default;
  explicit KVDECODE_INLINE SubScales(const Lanes<float>& s) { s.storeu(scale); }

  float scale[kLanes];
};
struct SubScalesAndMinimums {
  SubScalesAndMinimums() = default;
  KVDECODE_INLINE SubScalesAndMinimums(const Lanes<float>& s, const Lanes<float>& m) {
    s.storeu(scale);
    m.storeu(minimum);
  }

  float scale[kLanes];
  float minimum[kLanes];
};

/// Byte i of a block as a number.
KVDECODE_INLINE int byte_at(const std::byte* block, int i) { return std::to_integer<int>(block[i]); }

/// The scale at p, as the definition has it.
inline float scale_at(const std::byte* p) { return f16_to_f32(load_element<std::uint16_t>(p, 0)); }

/// x to the nearest whole number in [low, high], halves away from zero; a NaN becomes high.
inline int round_to(double x, int low, int high) {
  if (!(x < high)) return high;
  if (x < low) return low;
  return static_cast<int>(x < 0.0 ? x - 0.5 : x + 0.5);
}

/// The finite binary16 nearest to x, stored at `p`; returns what was stored.
inline double store_scale(double x, std::byte* p) {
  constexpr double largest = 65504.0;
  const std::uint16_t half = to_f16(x > largest ? largest : x < -largest ? -largest : x);
  store_element(p, 0, half);
  return static_cast<double>(f16_to_f32(half));
}

}  // namespace detail
}  // namespace kvdecode

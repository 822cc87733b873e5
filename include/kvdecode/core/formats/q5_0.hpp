// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/q5_0.hpp> - Q5_0: 32 numbers of five bits that share a scale.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// d [f16], h [32 bits: the fifth bits], q [16 bytes: low nibbles are numbers 0 … 15, high ones 16 … 31]:
// w = d (q - 16)
struct Q5_0Block {
  static constexpr FormatId kId = FormatId::kQ5_0;
  static constexpr int kSize = 32, kBytes = 22;
  static constexpr int kFifth = 2, kCodes = 6;
  static constexpr int kSpan = 0;
  static constexpr int kOffset = 16;
  static constexpr bool kHasHalfScales = true;
  static constexpr bool kHasMinimum = false;

  static float value(const std::byte* block, int i) {
    const int low = byte_at(block, kCodes + i % 16) >> (i / 16 * 4) & 15;
    const int high = byte_at(block, kFifth + i / 8) >> (i % 8) & 1;
    return mul(scale_at(block), static_cast<float>((low | high << 4) - 16));
  }
  using Scales = OneScale;
  static KVDECODE_INLINE Scales scales(const std::byte* block) { return {simd::load_f16(block)}; }
  template <class Rows>
  static KVDECODE_INLINE auto codes(Rows block, int i) {
    const auto low = simd::bit_field(simd::load_bytes(block + kCodes), i / 16 * 4, 15);
    const auto high = simd::spread_bits_at(block + kFifth + i / 16 * 2, 16);
    return (low | high) - 16;
  }
  static KVDECODE_INLINE Integers integers(const std::byte* block) { return {simd::load_f16(block)}; }
  static KVDECODE_INLINE LanesPair pair(const std::byte* block, const Scales& scales, int i) {
    const Lanes<float> scale = simd::broadcast(scales.scale);
    return {mul(scale, simd::to_lanes(codes(block, i))),
            mul(scale, simd::to_lanes(codes(block, i + kLanes)))};
  }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    return mul(Lanes<float>::set1(scales.scale), simd::to_lanes(codes(block, i)));
  }
};

}  // namespace detail

using Q5_0 = BlockFormat<detail::Q5_0Block>;

static_assert(DecodesTo<Q5_0, float> && DecodesTo<Q5_0, double>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/q5_1.hpp> - Q5_1: 32 numbers of five bits that share a scale and a minimum.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// d, m [f16], h [32 bits: the fifth bits], q [16 bytes: low nibbles are numbers 0 … 15, high ones 16 … 31]:
// w = d q + m
struct Q5_1Block {
  static constexpr FormatId kId = FormatId::kQ5_1;
  static constexpr int kSize = 32, kBytes = 24;
  static constexpr int kMinimum = 2, kFifth = 4, kCodes = 8;
  static constexpr int kSpan = 0;
  static constexpr int kOffset = 0;
  static constexpr bool kHasHalfScales = true;
  static constexpr bool kHasMinimum = true;

  static float value(const std::byte* block, int i) {
    const int low = byte_at(block, kCodes + i % 16) >> (i / 16 * 4) & 15;
    const int high = byte_at(block, kFifth + i / 8) >> (i % 8) & 1;
    return mul(scale_at(block), static_cast<float>(low | high << 4)) + scale_at(block + kMinimum);
  }
  using Scales = ScaleAndMinimum;
  static KVDECODE_INLINE Scales scales(const std::byte* block) {
    return {simd::load_f16(block), simd::load_f16(block + kMinimum)};
  }
  template <class Rows>
  static KVDECODE_INLINE auto codes(Rows block, int i) {
    const auto low = simd::bit_field(simd::load_bytes(block + kCodes), i / 16 * 4, 15);
    const auto high = simd::spread_bits_at(block + kFifth + i / 16 * 2, 16);
    return low | high;
  }
  static KVDECODE_INLINE Integers integers(const std::byte* block) {
    return {simd::load_f16(block), simd::load_f16(block + kMinimum)};
  }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    return simd::scale_and_shift(simd::to_lanes(codes(block, i)), Lanes<float>::set1(scales.scale),
                                 Lanes<float>::set1(scales.minimum));
  }
};

}  // namespace detail

using Q5_1 = BlockFormat<detail::Q5_1Block>;

static_assert(DecodesTo<Q5_1, float> && DecodesTo<Q5_1, double>);

}  // namespace kvdecode

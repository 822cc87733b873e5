// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/q2_k.hpp> - Q2_K: 256 numbers of two bits; each 16 have a scale and a minimum of
// four bits in units of the block's.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// s [16 bytes, one for 16 numbers: scale in the low nibble, minimum in the high one], q [64 bytes: each 32
// hold 128 numbers, the first 32 in the lowest two bits], d, m [f16]:  w = (d s_low) q - m s_high
struct Q2_KBlock {
  static constexpr FormatId kId = FormatId::kQ2_K;
  static constexpr int kSize = 256, kBytes = 84;
  static constexpr int kCodes = 16, kScale = 80, kMinimum = 82;
  static constexpr int kSpan = 16;
  static constexpr int kOffset = 0;
  static constexpr bool kHasHalfScales = false;
  static constexpr bool kHasMinimum = true;

  static float value(const std::byte* block, int i) {
    const int q = byte_at(block, kCodes + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
    const int s = byte_at(block, i / 16);
    const float scale = mul(scale_at(block + kScale), static_cast<float>(s & 15));
    const float minimum = mul(scale_at(block + kMinimum), static_cast<float>(s >> 4));
    return mul(scale, static_cast<float>(q)) - minimum;
  }
  using Scales = SubScalesAndMinimums;
  static KVDECODE_INLINE Scales scales(const std::byte* block) {
    const simd::Bytes both = simd::load_bytes(block);
    return {
        mul(Lanes<float>::set1(simd::load_f16(block + kScale)), simd::to_lanes(simd::bit_field(both, 0, 15))),
        mul(Lanes<float>::set1(-simd::load_f16(block + kMinimum)),
            simd::to_lanes(simd::bit_field(both, 4, 15)))};
  }
  template <class Rows>
  static KVDECODE_INLINE auto codes(Rows block, int i) {
    return simd::bit_field(simd::load_bytes(block + kCodes + i / 128 * 32 + i % 32), i % 128 / 32 * 2, 3);
  }
  static KVDECODE_INLINE Integers integers(const std::byte* block) {
    const simd::Bytes both = simd::load_bytes(block);
    return {simd::load_f16(block + kScale), -simd::load_f16(block + kMinimum), simd::bit_field(both, 0, 15),
            simd::bit_field(both, 4, 15)};
  }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    return simd::scale_and_shift(simd::to_lanes(codes(block, i)), simd::broadcast(scales.scale[i / 16]),
                                 simd::broadcast(scales.minimum[i / 16]));
  }
};

}  // namespace detail

using Q2_K = BlockFormat<detail::Q2_KBlock>;

static_assert(DecodesTo<Q2_K, float> && DecodesTo<Q2_K, double>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/q5_k.hpp> - Q5_K: 256 numbers of five bits; each 32 have a scale and a minimum of
// six bits in units of the block's.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>
#include <kvdecode/core/formats/six_bit_scales.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// d, m [f16], s [12 bytes], h [32 bytes: bit i / 32 of byte i % 32 is the fifth bit of number i],
// q [128 bytes: each 32 hold 64 numbers, the first 32 in the low nibbles]:  w = (d s) q - m s_min
struct Q5_KBlock {
  static constexpr FormatId kId = FormatId::kQ5_K;
  static constexpr int kSize = 256, kBytes = 176;
  static constexpr int kMinimum = 2, kScales = 4, kFifth = 16, kCodes = 48;
  static constexpr int kSpan = 32;
  static constexpr int kOffset = 0;
  static constexpr bool kHasHalfScales = false;
  static constexpr bool kHasMinimum = true;

  static float value(const std::byte* block, int i) {
    const int low = byte_at(block, kCodes + i / 64 * 32 + i % 32) >> (i / 32 % 2 * 4) & 15;
    const int high = byte_at(block, kFifth + i % 32) >> (i / 32) & 1;
    const SixBitScale s = six_bit_scale(block + kScales, i / 32);
    const float scale = mul(scale_at(block), static_cast<float>(s.scale));
    const float minimum = mul(scale_at(block + kMinimum), static_cast<float>(s.minimum));
    return mul(scale, static_cast<float>(low | high << 4)) - minimum;
  }
  using Scales = SixBitScales;
  static KVDECODE_INLINE Scales scales(const std::byte* block) { return Scales(block); }
  template <class Rows>
  static KVDECODE_INLINE auto codes(Rows block, int i) {
    const auto low =
        simd::bit_field(simd::load_bytes(block + kCodes + i / 64 * 32 + i % 32), i / 32 % 2 * 4, 15);
    const auto high = simd::move_bits(simd::load_bytes(block + kFifth + i % 32), i / 32, 1, 4);
    return low | high;
  }
  static KVDECODE_INLINE Integers integers(const std::byte* block) {
    const simd::Bytes both = six_bit_scales(block);
    return {simd::load_f16(block), -simd::load_f16(block + kMinimum), both, simd::upper_half(both)};
  }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    return simd::scale_and_shift(simd::to_lanes(codes(block, i)), simd::broadcast(scales.scale(i / 32)),
                                 simd::broadcast(scales.minimum(i / 32)));
  }
};

}  // namespace detail

using Q5_K = BlockFormat<detail::Q5_KBlock>;

static_assert(DecodesTo<Q5_K, float> && DecodesTo<Q5_K, double>);

}  // namespace kvdecode

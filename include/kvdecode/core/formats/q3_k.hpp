// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/q3_k.hpp> - Q3_K: 256 numbers of three bits; each 16 have a scale of six bits in
// units of the block's.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// h [32 bytes: bit i / 32 of byte i % 32 is the third bit of number i], q [64 bytes: each 32 hold 128
// numbers, the first 32 in the lowest two bits], s [12 bytes: 16 scales; their low nibbles in eight bytes, as
// in Q4_0 those of 16 numbers, then their upper two bits in four], d [f16]:  w = (d (s - 32)) (q - 4)
struct Q3_KBlock {
  static constexpr FormatId kId = FormatId::kQ3_K;
  static constexpr int kSize = 256, kBytes = 110;
  static constexpr int kCodes = 32, kScales = 96, kScale = 108;

  /// s - 32 of numbers 16 j … 16 j + 15.
  static KVDECODE_INLINE int scale(const std::byte* block, int j) {
    const int low = byte_at(block, kScales + j % 8) >> (j / 8 * 4) & 15;
    const int high = byte_at(block, kScales + 8 + j % 4) >> (j / 4 * 2) & 3;
    return (low | high << 4) - 32;
  }
  static float value(const std::byte* block, int i) {
    const int low = byte_at(block, kCodes + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
    const int high = byte_at(block, i % 32) >> (i / 32) & 1;
    return mul(mul(scale_at(block + kScale), static_cast<float>(scale(block, i / 16))),
               static_cast<float>((low | high << 2) - 4));
  }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, int i) {
    const simd::Bytes low =
        simd::bit_field(simd::load_bytes(block + kCodes + i / 128 * 32 + i % 32), i % 128 / 32 * 2, 3);
    const simd::Bytes high = simd::bit_field(simd::load_bytes(block + i % 32), i / 32, 1);
    const float s = mul(simd::load_f16(block + kScale), static_cast<float>(scale(block, i / 16)));
    return mul(Lanes<float>::set1(s), simd::to_lanes(low + high * 4 - 4));
  }
};

}  // namespace detail

using Q3_K = BlockFormat<detail::Q3_KBlock>;

static_assert(DecodesTo<Q3_K, float> && DecodesTo<Q3_K, double>);

}  // namespace kvdecode

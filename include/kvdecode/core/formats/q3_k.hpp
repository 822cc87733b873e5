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
  static constexpr int kSpan = 16;
  static constexpr int kOffset = 4;
  static constexpr bool kHasHalfScales = false;
  static constexpr bool kHasMinimum = false;

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
  using Scales = SubScales;
  /// All sixteen s.
  static KVDECODE_INLINE simd::Bytes six_bits(const std::byte* scales) {
    // Four scales a word: the nibbles of s[0 … 7], low ones first, and the pairs of bits of s[8 … 11] above them.
    std::uint32_t s[3], words[4];
    std::memcpy(s, scales, sizeof s);
    for (int j = 0; j < 4; ++j)
      words[j] = (s[j % 2] >> (j / 2 * 4) & 0x0f0f0f0fu) | (s[2] >> (2 * j) & 0x03030303u) << 4;
    simd::Bytes bytes;
    std::memcpy(&bytes, words, sizeof bytes);
    return bytes;
  }
  static KVDECODE_INLINE Scales scales(const std::byte* block) {
    return Scales(mul(Lanes<float>::set1(simd::load_f16(block + kScale)),
                      simd::to_lanes(six_bits(block + kScales) - 32)));
  }
  template <class Rows>
  static KVDECODE_INLINE auto codes(Rows block, int i) {
    const auto low =
        simd::bit_field(simd::load_bytes(block + kCodes + i / 128 * 32 + i % 32), i % 128 / 32 * 2, 3);
    const auto high = simd::move_bits(simd::load_bytes(block + i % 32), i / 32, 1, 2);
    return (low | high) - 4;
  }
  static KVDECODE_INLINE Integers integers(const std::byte* block) {
    return {simd::load_f16(block + kScale), 0.0f, six_bits(block + kScales) - 32};
  }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    return mul(simd::broadcast(scales.scale[i / 16]), simd::to_lanes(codes(block, i)));
  }
};

}  // namespace detail

using Q3_K = BlockFormat<detail::Q3_KBlock>;

static_assert(DecodesTo<Q3_K, float> && DecodesTo<Q3_K, double>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/six_bit_scales.hpp> - the scales and minimums of Q4_K and Q5_K: eight of each, six
// bits wide, in twelve bytes.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// Scale and minimum of 32 numbers, in units of the block's.
struct SixBitScale {
  int scale;
  int minimum;
};

/// Number j of eight in the twelve bytes at p. The first four scales and minimums lie in the lower six bits
/// of bytes 0 … 3 and 4 … 7. Bytes 8 … 11 hold the lower nibbles of the other four, scale low and minimum
/// high, whose upper two bits are those that bytes 0 … 7 have to spare.
KVDECODE_INLINE SixBitScale six_bit_scale(const std::byte* p, int j) {
  if (j < 4) return {byte_at(p, j) & 63, byte_at(p, j + 4) & 63};
  const int low = byte_at(p, j + 4);
  return {(low & 15) | (byte_at(p, j - 4) >> 6) << 4, low >> 4 | (byte_at(p, j) >> 6) << 4};
}

/// All of them: the eight scales, then the eight minimums. @pre they are bytes 4 … 15 of a block
KVDECODE_INLINE simd::Bytes six_bit_scales(const std::byte* block) {
  using Words = std::uint32_t __attribute__((vector_size(16)));
  const simd::Bytes all = simd::load_bytes(block);
  const auto low = reinterpret_cast<Words>(
      __builtin_shufflevector(all, all, 4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15));
  const auto high = reinterpret_cast<Words>(
      __builtin_shufflevector(all, all, 4, 5, 6, 7, 4, 5, 6, 7, 8, 9, 10, 11, 8, 9, 10, 11));
  const Words shifts{0, 0, 0, 4}, low_bits{0x3f3f3f3fu, 0x0f0f0f0fu, 0x3f3f3f3fu, 0x0f0f0f0fu},
      high_bits{0, 0x30303030u, 0, 0x30303030u};
  return reinterpret_cast<simd::Bytes>((low >> shifts & low_bits) | (high >> 2 & high_bits));
}

/// The same as numbers, minimums to be added: each eight times the unit that is a binary16 at byte 0 or 2 of a block.
struct SixBitScales {
  SixBitScales() = default;
  explicit KVDECODE_INLINE SixBitScales(const std::byte* block) {
    mul(simd::plus_and_minus_f16(block), simd::to_lanes(six_bit_scales(block))).storeu(number);
  }
  KVDECODE_INLINE const float& scale(int j) const { return number[j]; }
  KVDECODE_INLINE const float& minimum(int j) const { return number[8 + j]; }

  float number[kLanes];
};

}  // namespace detail
}  // namespace kvdecode

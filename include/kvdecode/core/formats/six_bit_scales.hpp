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

/// All of them: the eight scales, then the eight minimums.
KVDECODE_INLINE simd::Bytes six_bit_scales(const std::byte* p) {
  std::uint32_t s[3];  // four bytes a word
  std::memcpy(s, p, sizeof s);
  const std::uint32_t words[4] = {s[0] & 0x3f3f3f3fu, (s[2] & 0x0f0f0f0fu) | (s[0] >> 2 & 0x30303030u),
                                  s[1] & 0x3f3f3f3fu, (s[2] >> 4 & 0x0f0f0f0fu) | (s[1] >> 2 & 0x30303030u)};
  simd::Bytes bytes;
  std::memcpy(&bytes, words, sizeof bytes);
  return bytes;
}

}  // namespace detail
}  // namespace kvdecode

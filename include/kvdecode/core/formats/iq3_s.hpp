// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/iq3_s.hpp> - IQ3_S: 256 numbers, four at a time out of a code book of 512 entries,
// with signs; each 32 have a scale of four bits in units of the block's.
#pragma once

#include <kvdecode/core/formats/code_book.hpp>
#include <kvdecode/core/formats/iq3_s_book.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// d [f16], e [64 bytes: the lower eight bits of an entry each], h [8 bytes: the uppermost bit of eight entries each], g [32
// bytes: eight signs each], s [4 bytes: two scales of 32 numbers each, the first in the low nibble]:
// w = (d (2 s + 1)) (± level)
struct IQ3_SCodes {
  static constexpr FormatId kId = FormatId::kIQ3_S;
  static constexpr int kBytes = 110;
  static constexpr int kPart = 32;
  static constexpr int kEntries = 2, kUpper = 66, kSigns = 74, kScales = 106;
  static constexpr auto& kBook = kIq3SBook;
  static constexpr Levels kLevels{{1, 3, 5, 7, 9, 11, 13, 15}};

  static KVDECODE_INLINE float unit(const std::byte* block) { return simd::load_f16(block); }
  static KVDECODE_INLINE float scale(float unit, const std::byte* block, int j) {
    const int s = byte_at(block, kScales + j / 2) >> (j % 2 * 4) & 15;
    return mul(unit, static_cast<float>(2 * s + 1));
  }
  static KVDECODE_INLINE int entry(const std::byte* block, int k) {
    return byte_at(block, kEntries + k) | (byte_at(block, kUpper + k / 8) >> (k % 8) & 1) << 8;
  }
  static KVDECODE_INLINE int signs(const std::byte* block, int k) { return byte_at(block, kSigns + k); }
};

}  // namespace detail

using IQ3_S = BlockFormat<detail::SignedFours<detail::IQ3_SCodes>>;

static_assert(DecodesTo<IQ3_S, float> && DecodesTo<IQ3_S, double>);

}  // namespace kvdecode

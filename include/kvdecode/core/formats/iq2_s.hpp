// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/iq2_s.hpp> - IQ2_S: 256 numbers, eight at a time out of a code book of 1024 entries,
// with signs; each 16 have a scale of four bits in units of the block's.
#pragma once

#include <kvdecode/core/formats/code_book.hpp>
#include <kvdecode/core/formats/iq2_s_book.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// d [f16], e [32 bytes: the lower eight bits of an entry each], g [32 bytes: eight signs each], h [8 bytes: the upper two
// bits of four entries each], s [8 bytes: each the scales of 32 numbers, the first 16 in the low nibble]:
// w = (d (s + 1/2) / 4) (± level)
struct IQ2_SCodes {
  static constexpr FormatId kId = FormatId::kIQ2_S;
  static constexpr int kBytes = 82;
  static constexpr int kPart = 16;
  static constexpr int kEntries = 2, kSigns = 34, kUpper = 66, kScales = 74;
  static constexpr auto& kBook = kIq2SBook;
  static constexpr auto& kLevels = kIq2Levels;

  static KVDECODE_INLINE float unit(const std::byte* block) { return simd::load_f16(block); }
  static KVDECODE_INLINE float scale(float unit, const std::byte* block, int j) {
    const int s = byte_at(block, kScales + j / 2) >> (j % 2 * 4) & 15;
    return four_bit_scale(unit, s);
  }
  static KVDECODE_INLINE int entry(const std::byte* block, int k) {
    const int upper = byte_at(block, kUpper + k / 4) >> (k % 4 * 2) & 3;
    return byte_at(block, kEntries + k) | upper << 8;
  }
  static KVDECODE_INLINE int signs(const std::byte* block, int k) { return byte_at(block, kSigns + k); }
};

}  // namespace detail

using IQ2_S = BlockFormat<detail::SignedEights<detail::IQ2_SCodes>>;

static_assert(DecodesTo<IQ2_S, float> && DecodesTo<IQ2_S, double>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/iq2_xs.hpp> - IQ2_XS: 256 numbers, eight at a time out of a code book of 512 entries,
// with signs; each 16 have a scale of four bits in units of the block's.
#pragma once

#include <kvdecode/core/formats/code_book.hpp>
#include <kvdecode/core/formats/iq2_xs_book.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// d [f16], e [32 times 16 bits: nine of an entry of the book, seven signs], s [8 bytes: each the scales of 32 numbers,
// the first 16 in the low nibble]:  w = (d (s + 1/2) / 4) (± level)
struct IQ2_XSCodes {
  static constexpr FormatId kId = FormatId::kIQ2_XS;
  static constexpr int kBytes = 74;
  static constexpr int kPart = 16;
  static constexpr int kEntries = 2, kScales = 66;
  static constexpr auto& kBook = kIq2XsBook;
  static constexpr auto& kLevels = kIq2Levels;

  static KVDECODE_INLINE float unit(const std::byte* block) { return simd::load_f16(block); }
  static KVDECODE_INLINE float scale(float unit, const std::byte* block, int j) {
    const int s = byte_at(block, kScales + j / 2) >> (j % 2 * 4) & 15;
    return four_bit_scale(unit, s);
  }
  static KVDECODE_INLINE int entry(const std::byte* block, int k) { return word(block, k) & 511; }
  static KVDECODE_INLINE int signs(const std::byte* block, int k) {
    return even_signs(static_cast<std::uint32_t>(word(block, k) >> 9));
  }

 private:
  static KVDECODE_INLINE int word(const std::byte* block, int k) {
    return load_element<std::uint16_t>(block + kEntries, k);
  }
};

}  // namespace detail

using IQ2_XS = BlockFormat<detail::SignedEights<detail::IQ2_XSCodes>>;

static_assert(DecodesTo<IQ2_XS, float> && DecodesTo<IQ2_XS, double>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/iq2_xxs.hpp> - IQ2_XXS: 256 numbers, eight at a time out of a code book of 256 entries,
// with signs; each 32 have a scale of four bits in units of the block's.
#pragma once

#include <kvdecode/core/formats/code_book.hpp>
#include <kvdecode/core/formats/iq2_xxs_book.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// d [f16], then for each 32 numbers: e [4 bytes, an entry of the book each], u [32 bits: four times seven signs, four
// bits s]:  w = (d (s + 1/2) / 4) (± level)
struct IQ2_XXSCodes {
  static constexpr FormatId kId = FormatId::kIQ2_XXS;
  static constexpr int kBytes = 66;
  static constexpr int kPart = 32;
  static constexpr int kEntries = 2;
  static constexpr auto& kBook = kIq2XxsBook;
  static constexpr auto& kLevels = kIq2Levels;

  static KVDECODE_INLINE float unit(const std::byte* block) { return simd::load_f16(block); }
  static KVDECODE_INLINE float scale(float unit, const std::byte* block, int j) {
    return four_bit_scale(unit, static_cast<int>(signs_and_scale(block, j) >> 28));
  }
  static KVDECODE_INLINE int entry(const std::byte* block, int k) {
    return byte_at(block, kEntries + k / 4 * 8 + k % 4);
  }
  static KVDECODE_INLINE int signs(const std::byte* block, int k) {
    return even_signs(signs_and_scale(block, k / 4) >> (k % 4 * 7) & 127u);
  }

 private:
  static KVDECODE_INLINE std::uint32_t signs_and_scale(const std::byte* block, int j) {
    return load_element<std::uint32_t>(block + kEntries + 8 * j + 4, 0);
  }
};

}  // namespace detail

using IQ2_XXS = BlockFormat<detail::SignedEights<detail::IQ2_XXSCodes>>;

static_assert(DecodesTo<IQ2_XXS, float> && DecodesTo<IQ2_XXS, double>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/iq3_xxs.hpp> - IQ3_XXS: 256 numbers, four at a time out of a code book of 256 entries,
// with signs; each 32 have a scale of four bits in units of the block's.
#pragma once

#include <kvdecode/core/formats/code_book.hpp>
#include <kvdecode/core/formats/iq3_xxs_book.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// d [f16], e [64 bytes, an entry of the book each], u [8 times 32 bits, each of 32 numbers: four times seven signs, four
// bits s]:  w = (d (s + 1/2) / 2) (± level)
struct IQ3_XXSCodes {
  static constexpr FormatId kId = FormatId::kIQ3_XXS;
  static constexpr int kBytes = 98;
  static constexpr int kPart = 32;
  static constexpr int kEntries = 2, kSigns = 66;
  static constexpr auto& kBook = kIq3XxsBook;
  static constexpr Levels kLevels{{4, 12, 20, 28, 36, 44, 52, 62}};

  static KVDECODE_INLINE float unit(const std::byte* block) { return simd::load_f16(block); }
  static KVDECODE_INLINE float scale(float unit, const std::byte* block, int j) {
    return mul(mul(unit, static_cast<float>(signs_and_scale(block, j) >> 28) + 0.5f), 0.5f);
  }
  static KVDECODE_INLINE int entry(const std::byte* block, int k) { return byte_at(block, kEntries + k); }
  static KVDECODE_INLINE int signs(const std::byte* block, int k) {
    return even_signs(signs_and_scale(block, k / 4) >> (k % 4 * 7) & 127u);
  }

 private:
  static KVDECODE_INLINE std::uint32_t signs_and_scale(const std::byte* block, int j) {
    return load_element<std::uint32_t>(block + kSigns, j);
  }
};

}  // namespace detail

using IQ3_XXS = BlockFormat<detail::SignedFours<detail::IQ3_XXSCodes>>;

static_assert(DecodesTo<IQ3_XXS, float> && DecodesTo<IQ3_XXS, double>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/iq1_s.hpp> - IQ1_S: 256 numbers, eight at a time out of a code book of 2048 entries,
// moved up or down a little; each 32 have a scale of three bits in units of the block's.
#pragma once

#include <kvdecode/core/formats/code_book.hpp>
#include <kvdecode/core/formats/iq1_book.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// d [f16], e [32 bytes: the lower eight bits of an entry each], h [8 times 16 bits, each of 32 numbers: four times the upper
// three bits of an entry, three bits s, one that says down]:  w = (d (2 s + 1)) (q - 1 ± 1/8)
struct IQ1_SCodes {
  static constexpr FormatId kId = FormatId::kIQ1_S;
  static constexpr int kBytes = 50;
  static constexpr int kPart = 32;
  static constexpr int kEntries = 2, kUpper = 34;
  static constexpr auto& kBook = kIq1Book;

  static KVDECODE_INLINE float unit(const std::byte* block) { return simd::load_f16(block); }
  static KVDECODE_INLINE float scale(float unit, const std::byte* block, int j) {
    return mul(unit, static_cast<float>(2 * (upper(block, j) >> 12 & 7) + 1));
  }
  static KVDECODE_INLINE int entry(const std::byte* block, int k) {
    return byte_at(block, kEntries + k) | (upper(block, k / 4) >> (k % 4 * 3) & 7) << 8;
  }
  static KVDECODE_INLINE bool is_lowered(const std::byte* block, int k) {
    return upper(block, k / 4) >> 15 != 0;
  }

 private:
  static KVDECODE_INLINE int upper(const std::byte* block, int j) {
    return load_element<std::uint16_t>(block + kUpper, j);
  }
};

}  // namespace detail

using IQ1_S = BlockFormat<detail::MovedEights<detail::IQ1_SCodes>>;

static_assert(DecodesTo<IQ1_S, float> && DecodesTo<IQ1_S, double>);

}  // namespace kvdecode

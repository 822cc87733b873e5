// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/iq1_m.hpp> - IQ1_M: 256 numbers, eight at a time out of IQ1_S's code book, each eight moved
// up or down a little; each 16 have a scale of three bits in units of the block's.
#pragma once

#include <kvdecode/core/formats/code_book.hpp>
#include <kvdecode/core/formats/iq1_book.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// e [32 bytes: the lower eight bits of an entry each], h [16 bytes, each of two entries, the first in the low nibble: three
// upper bits, one that says down], s [4 times 16 bits: four times three bits of a scale, four of d, which is f16; the lowest
// come first]:  w = (d (2 s + 1)) (q - 1 ± 1/8)
struct IQ1_MCodes {
  static constexpr FormatId kId = FormatId::kIQ1_M;
  static constexpr int kBytes = 56;
  static constexpr int kPart = 16;
  static constexpr int kUpper = 32, kScales = 48;
  static constexpr auto& kBook = kIq1Book;

  static KVDECODE_INLINE float unit(const std::byte* block) {
    int half = 0;
    for (int j = 0; j < 4; ++j) half |= word(block, j) >> 12 << (4 * j);
    std::byte bytes[2];
    store_element(bytes, 0, static_cast<std::uint16_t>(half));
    return simd::load_f16(bytes);
  }
  static KVDECODE_INLINE float scale(float unit, const std::byte* block, int j) {
    return mul(unit, static_cast<float>(2 * (word(block, j / 4) >> (j % 4 * 3) & 7) + 1));
  }
  static KVDECODE_INLINE int entry(const std::byte* block, int k) {
    return byte_at(block, k) | (upper(block, k) & 7) << 8;
  }
  static KVDECODE_INLINE bool is_lowered(const std::byte* block, int k) { return (upper(block, k) & 8) != 0; }

 private:
  static KVDECODE_INLINE int word(const std::byte* block, int j) {
    return load_element<std::uint16_t>(block + kScales, j);
  }
  static KVDECODE_INLINE int upper(const std::byte* block, int k) {
    return byte_at(block, kUpper + k / 2) >> (k % 2 * 4);
  }
};

}  // namespace detail

using IQ1_M = BlockFormat<detail::MovedEights<detail::IQ1_MCodes>>;

static_assert(DecodesTo<IQ1_M, float> && DecodesTo<IQ1_M, double>);

}  // namespace kvdecode

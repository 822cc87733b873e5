// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/code_book.hpp> - what formats with a code book have in common: a block names entries of the book,
// each of which is several numbers at once, and has signs and scales of its own for them.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>

#include <bit>
#include <cstdint>

namespace kvdecode::inline KVDECODE_ABI::detail {

/// Eight numbers of two bits, or four of four bits, the first in the lowest bits.
using BookEntry = std::uint16_t;

/// Each byte, negated where the bit of its place is set.
KVDECODE_INLINE simd::Bytes with_signs(simd::Bytes magnitudes, int bits) {
  const simd::Bytes mask = simd::spread_bits(static_cast<std::uint16_t>(bits), 0xff);
  return (magnitudes ^ mask) - mask;
}

/// Seven signs, and an eighth by which the number of negative ones is even: it is not stored.
constexpr int even_signs(std::uint32_t seven) {
  return static_cast<int>(seven | (static_cast<std::uint32_t>(std::popcount(seven)) & 1u) << 7);
}

/// A quarter of s + 1/2 units: a scale of four bits, never 0.
KVDECODE_INLINE float four_bit_scale(float unit, int s) {
  return mul(mul(unit, static_cast<float>(s) + 0.5f), 0.25f);
}

/// What all of the layouts below are made of: `Codes` says where in a block things are.
///
/// | expression | meaning |
/// |---|---|
/// | Codes::kId, kBytes | as of a layout |
/// | Codes::kPart | how many numbers share a scale, 16 or 32 |
/// | Codes::kBook | the code book |
/// | Codes::kLevels | what its numbers stand for |
/// | Codes::unit(block) | what scales are in units of |
/// | Codes::scale(unit, block, j) | the scale of part j |
/// | Codes::entry(block, k) | which entry of the book the k-th one is |
/// | Codes::signs(block, k) | the signs of numbers 8 k … 8 k + 7, a bit each |
/// | Codes::is_lowered(block, k) | where numbers have no signs: whether numbers 8 k … 8 k + 7 are moved down, not up |
template <class Codes>
struct BookLayout {
  static constexpr FormatId kId = Codes::kId;
  static constexpr int kSize = 256, kBytes = Codes::kBytes;
  static constexpr bool kIsRowByRow = true;

  using Scales = PartScales<kSize / Codes::kPart>;
  static KVDECODE_INLINE Scales scales(const std::byte* block) {
    const float unit = Codes::unit(block);
    Scales all;
    for (int j = 0; j < kSize / Codes::kPart; ++j) all.scale[j] = Codes::scale(unit, block, j);
    return all;
  }

 protected:
  static float scale_of(const std::byte* block, int i) {
    return Codes::scale(Codes::unit(block), block, i / Codes::kPart);
  }
  static KVDECODE_INLINE Lanes<float> lanes_of(const Scales& scales, int i) {
    return Lanes<float>::set1(scales.scale[i / Codes::kPart]);
  }
  static KVDECODE_INLINE BookEntry entry(const std::byte* block, int k) {
    return Codes::kBook[Codes::entry(block, k)];
  }
  static KVDECODE_INLINE std::uint32_t two_entries(const std::byte* block, int k) {
    return entry(block, k) | static_cast<std::uint32_t>(entry(block, k + 1)) << 16;
  }
};

/// The levels of the books of eight numbers an entry.
inline constexpr Levels kIq2Levels{{8, 25, 43}};

/// Entries of eight numbers, with signs:  w = scale (± level)
template <class Codes>
struct SignedEights : BookLayout<Codes> {
  using Base = BookLayout<Codes>;

  static float value(const std::byte* block, int i) {
    const float level = Codes::kLevels.level[Base::entry(block, i / 8) >> (i % 8 * 2) & 3];
    const bool is_negative = (Codes::signs(block, i / 8) >> (i % 8) & 1) != 0;
    return mul(Base::scale_of(block, i), is_negative ? -level : level);
  }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const typename Base::Scales& scales,
                                             int i) {
    const int k = i / 8;
    const simd::Bytes levels =
        simd::lookup(Codes::kLevels.level, simd::pairs_as_bytes(Base::two_entries(block, k)));
    const int signs = Codes::signs(block, k) | Codes::signs(block, k + 1) << 8;
    return mul(Base::lanes_of(scales, i), simd::to_lanes(with_signs(levels, signs)));
  }
};

/// Entries of four numbers, with signs:  w = scale (± level)
template <class Codes>
struct SignedFours : BookLayout<Codes> {
  using Base = BookLayout<Codes>;

  static float value(const std::byte* block, int i) {
    const float level = Codes::kLevels.level[Base::entry(block, i / 4) >> (i % 4 * 4) & 15];
    const bool is_negative = (Codes::signs(block, i / 8) >> (i % 8) & 1) != 0;
    return mul(Base::scale_of(block, i), is_negative ? -level : level);
  }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const typename Base::Scales& scales,
                                             int i) {
    const int k = i / 8;
    const std::uint64_t entries = Base::two_entries(block, 2 * k) |
                                  static_cast<std::uint64_t>(Base::two_entries(block, 2 * k + 2)) << 32;
    const simd::Bytes levels = simd::lookup(Codes::kLevels.level, simd::nibbles_as_bytes(entries));
    const int signs = Codes::signs(block, k) | Codes::signs(block, k + 1) << 8;
    return mul(Base::lanes_of(scales, i), simd::to_lanes(with_signs(levels, signs)));
  }
};

/// Entries of eight numbers q - 1, moved by an eighth:  w = scale (q - 1 ± 1/8)
template <class Codes>
struct MovedEights : BookLayout<Codes> {
  using Base = BookLayout<Codes>;

  static float value(const std::byte* block, int i) {
    const int q = Base::entry(block, i / 8) >> (i % 8 * 2) & 3;
    const float moved = static_cast<float>(q - 1) + (Codes::is_lowered(block, i / 8) ? -0.125f : 0.125f);
    return mul(Base::scale_of(block, i), moved);
  }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const typename Base::Scales& scales,
                                             int i) {
    const int k = i / 8;
    const simd::Bytes q = simd::pairs_as_bytes(Base::two_entries(block, k));
    const int lowered =
        (Codes::is_lowered(block, k) ? 0xff : 0) | (Codes::is_lowered(block, k + 1) ? 0xff00 : 0);
    // In eighths: 8 q - 8 ± 1.
    const simd::Bytes eighths = q * 8 - 7 - simd::spread_bits(static_cast<std::uint16_t>(lowered), 2);
    return mul(Base::lanes_of(scales, i), mul(simd::to_lanes(eighths), Lanes<float>::set1(0.125f)));
  }
};

}  // namespace kvdecode::inline KVDECODE_ABI::detail

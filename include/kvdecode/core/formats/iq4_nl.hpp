// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/iq4_nl.hpp> - IQ4_NL: 32 numbers of four bits, each one of sixteen levels that lie
// closer near zero, and a scale.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// The levels of IQ4_NL and IQ4_XS.
inline constexpr Levels kIq4Levels{
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}};

// d [f16], q [16 bytes: low nibbles are numbers 0 … 15, high ones 16 … 31]:  w = d level(q)
struct IQ4_NLBlock {
  static constexpr FormatId kId = FormatId::kIQ4_NL;
  static constexpr int kSize = 32, kBytes = 18;
  static constexpr int kCodes = 2;
  static constexpr int kSpan = 0;
  static constexpr int kOffset = 128;
  static constexpr bool kHasHalfScales = true;
  static constexpr bool kHasMinimum = false;

  static float value(const std::byte* block, int i) {
    const int q = byte_at(block, kCodes + i % 16) >> (i / 16 * 4) & 15;
    return mul(scale_at(block), static_cast<float>(kIq4Levels.level[q]));
  }
  using Scales = FourBitNumbers<false>;
  static KVDECODE_INLINE Scales scales(const std::byte* block) { return {kIq4Levels, block}; }
  template <class Rows>
  static KVDECODE_INLINE auto codes(Rows block, int i) {
    return simd::lookup(kIq4Levels.level, simd::bit_field(simd::load_bytes(block + kCodes), i / 16 * 4, 15));
  }
  static KVDECODE_INLINE Integers integers(const std::byte* block) { return {simd::load_f16(block)}; }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    return scales(codes(block, i), simd::load_bytes(block + kCodes), i / 16 * 4);
  }
};

}  // namespace detail

using IQ4_NL = BlockFormat<detail::IQ4_NLBlock>;

static_assert(DecodesTo<IQ4_NL, float> && DecodesTo<IQ4_NL, double>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/iq4_xs.hpp> - IQ4_XS: 256 numbers of four bits, each one of IQ4_NL's levels; each 32
// have a scale of six bits in units of the block's.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>
#include <kvdecode/core/formats/iq4_nl.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// d [f16], h [16 bits: the upper two bits of eight scales], s [4 bytes: their low nibbles], q [128 bytes:
// each 16 hold 32 numbers, the first 16 in the low nibbles]:  w = (d (s - 32)) level(q)
struct IQ4_XSBlock {
  static constexpr FormatId kId = FormatId::kIQ4_XS;
  static constexpr int kSize = 256, kBytes = 136;
  static constexpr int kUpper = 2, kScales = 4, kCodes = 8;
  static constexpr int kSpan = 32;
  static constexpr int kOffset = 128;
  static constexpr bool kHasHalfScales = false;
  static constexpr bool kHasMinimum = false;

  /// s - 32 of numbers 32 j … 32 j + 31.
  static KVDECODE_INLINE int scale(const std::byte* block, int j) {
    const int low = byte_at(block, kScales + j / 2) >> (j % 2 * 4) & 15;
    const int high = byte_at(block, kUpper + j / 4) >> (j % 4 * 2) & 3;
    return (low | high << 4) - 32;
  }
  static float value(const std::byte* block, int i) {
    const int q = byte_at(block, kCodes + i / 32 * 16 + i % 16) >> (i / 16 % 2 * 4) & 15;
    return mul(mul(scale_at(block), static_cast<float>(scale(block, i / 32))),
               static_cast<float>(kIq4Levels.level[q]));
  }
  struct Scales {
    float scale[8];  // of 32 numbers each
  };
  static KVDECODE_INLINE Scales scales(const std::byte* block) {
    const float d = simd::load_f16(block);
    Scales all;
    for (int j = 0; j < 8; ++j) all.scale[j] = mul(d, static_cast<float>(scale(block, j)));
    return all;
  }
  template <class Rows>
  static KVDECODE_INLINE auto codes(Rows block, int i) {
    const auto q = simd::bit_field(simd::load_bytes(block + kCodes + i / 32 * 16), i / 16 % 2 * 4, 15);
    return simd::lookup(kIq4Levels.level, q);
  }
  static KVDECODE_INLINE Integers integers(const std::byte* block) {
    simd::Bytes scales{};
    for (int j = 0; j < 8; ++j) scales[j] = static_cast<std::uint8_t>(scale(block, j));
    return {simd::load_f16(block), 0.0f, scales};
  }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    return some(FourBitNumbers<false>(kIq4Levels, scales.scale[i / 32]), block, i);
  }
  static KVDECODE_INLINE LanesPair pair(const std::byte* block, const Scales& scales, int i) {
    const FourBitNumbers<false> shared(kIq4Levels, scales.scale[i / 32]);
    return {some(shared, block, i), some(shared, block, i + kLanes)};
  }

 private:
  static KVDECODE_INLINE Lanes<float> some(const FourBitNumbers<false>& numbers, const std::byte* block,
                                           int i) {
    return numbers(codes(block, i), simd::load_bytes(block + kCodes + i / 32 * 16), i / 16 % 2 * 4);
  }
};

}  // namespace detail

using IQ4_XS = BlockFormat<detail::IQ4_XSBlock>;

static_assert(DecodesTo<IQ4_XS, float> && DecodesTo<IQ4_XS, double>);

}  // namespace kvdecode

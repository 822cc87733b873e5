// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/tq1_0.hpp> - TQ1_0: 256 numbers -1, 0 or 1, five of them in a byte, and a scale.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// q [48 bytes of five digits each, 4 of four], d [f16]. A byte holds digits of three as 256 / 3^n of its value, rounded up:
// times 3^n, without what is beyond a byte, the digit n of it is the upper part of thrice that. Digit n of bytes 0 … 31 are
// numbers 32 n … 32 n + 31, of bytes 32 … 47 numbers 160 + 16 n and on, of bytes 48 … 51 numbers 240 + 4 n and on:
// w = (digit - 1) d
struct TQ1_0Block {
  static constexpr FormatId kId = FormatId::kTQ1_0;
  static constexpr int kSize = 256, kBytes = 54;
  static constexpr int kSecond = 32, kThird = 48, kScale = 52;
  static constexpr bool kIsRowByRow = true;

  static float value(const std::byte* block, int i) {
    const bool is_first = i < 160, is_second = !is_first && i < 240;
    const int at = is_first ? i % 32 : is_second ? kSecond + i % 16 : kThird + i % 4;
    const int n = is_first ? i / 32 : is_second ? (i - 160) / 16 : (i - 240) / 4;
    constexpr int power[] = {1, 3, 9, 27, 81};
    const int digit = (byte_at(block, at) * power[n] & 255) * 3 >> 8;
    return mul(static_cast<float>(digit - 1), scale_at(block + kScale));
  }
  using Scales = OneScale;
  static KVDECODE_INLINE Scales scales(const std::byte* block) { return {simd::load_f16(block + kScale)}; }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    constexpr std::uint8_t power[] = {1, 3, 9, 27, 81};
    simd::Bytes q;
    if (i < 160) {
      q = simd::load_bytes(block + i % 32) * power[i / 32];
    } else if (i < 240) {
      q = simd::load_bytes(block + kSecond) * power[(i - 160) / 16];
    } else {
      constexpr simd::Bytes powers = {1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27};
      const std::uint64_t four = load_element<std::uint32_t>(block + kThird, 0) * std::uint64_t{0x100000001};
      q = simd::bytes_of(four, four) * powers;
    }
    // 3 q is 256 or more from q = 86 on, 512 or more from 171 on; a comparison that is true is -1.
    const simd::Bytes digits = simd::splat_bytes(0xff) - reinterpret_cast<simd::Bytes>(q >= 86) -
                               reinterpret_cast<simd::Bytes>(q >= 171);
    return mul(simd::to_lanes(digits), Lanes<float>::set1(scales.scale));
  }
};

}  // namespace detail

using TQ1_0 = BlockFormat<detail::TQ1_0Block>;

static_assert(DecodesTo<TQ1_0, float> && DecodesTo<TQ1_0, double>);

}  // namespace kvdecode

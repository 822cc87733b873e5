// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/q4_1.hpp> - Q4_1: 32 numbers of four bits that share a scale and a minimum.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// d, m [f16], q [16 bytes: low nibbles are numbers 0 … 15, high ones 16 … 31]:  w = d q + m
struct Q4_1Block {
  static constexpr FormatId kId = FormatId::kQ4_1;
  static constexpr int kSize = 32, kBytes = 20;
  static constexpr int kMinimum = 2, kCodes = 4;
  static constexpr int kSpan = 0;
  static constexpr int kOffset = 0;
  static constexpr bool kHasHalfScales = true;
  static constexpr bool kHasMinimum = true;

  static float value(const std::byte* block, int i) {
    const int q = byte_at(block, kCodes + i % 16) >> (i / 16 * 4) & 15;
    return mul(scale_at(block), static_cast<float>(q)) + scale_at(block + kMinimum);
  }
  using Scales = FourBitNumbers<true>;
  static KVDECODE_INLINE Scales scales(const std::byte* block) { return {kZeroToFifteen, block}; }
  template <class Rows>
  static KVDECODE_INLINE auto codes(Rows block, int i) {
    return simd::bit_field(simd::load_bytes(block + kCodes), i / 16 * 4, 15);
  }
  static KVDECODE_INLINE Integers integers(const std::byte* block) {
    return {simd::load_f16(block), simd::load_f16(block + kMinimum)};
  }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    return scales(codes(block, i), simd::load_bytes(block + kCodes), i / 16 * 4);
  }
};

}  // namespace detail

using Q4_1 = BlockFormat<detail::Q4_1Block>;

static_assert(DecodesTo<Q4_1, float> && DecodesTo<Q4_1, double>);

}  // namespace kvdecode

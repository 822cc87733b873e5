// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/mxfp4.hpp> - MXFP4: 32 floats of four bits (one sign, two exponent, one fraction
// bit) that share a power of two (OCP Microscaling Formats 1.0).
#pragma once

#include <kvdecode/core/formats/block_format.hpp>

#include <bit>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// The floats of four bits, doubled. Minus zero is zero.
inline constexpr Levels kFp4Doubled{{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}};

// e [byte], q [16 bytes: low nibbles are numbers 0 … 15, high ones 16 … 31]:  w = 2^(e - 127) fp4(q)
struct MXFP4Block {
  static constexpr FormatId kId = FormatId::kMXFP4;
  static constexpr int kSize = 32, kBytes = 17;
  static constexpr int kCodes = 1;
  static constexpr int kSpan = 0;
  static constexpr int kOffset = 128;
  static constexpr bool kHasHalfScales = false;
  static constexpr bool kHasMinimum = false;

  /// 2^(e - 128), to go with doubled numbers; subnormal for e < 2.
  static KVDECODE_INLINE float scale(const std::byte* block) {
    const auto e = std::to_integer<std::uint32_t>(block[0]);
    return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  }
  static float value(const std::byte* block, int i) {
    const int q = byte_at(block, kCodes + i % 16) >> (i / 16 * 4) & 15;
    return mul(scale(block), static_cast<float>(kFp4Doubled.level[q]));
  }
  using Scales = FourBitNumbers<false>;
  static KVDECODE_INLINE Scales scales(const std::byte* block) { return {kFp4Doubled, scale(block)}; }
  template <class Rows>
  static KVDECODE_INLINE auto codes(Rows block, int i) {
    return simd::lookup(kFp4Doubled.level, simd::bit_field(simd::load_bytes(block + kCodes), i / 16 * 4, 15));
  }
  static KVDECODE_INLINE Integers integers(const std::byte* block) { return {scale(block)}; }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    return scales(codes(block, i), simd::load_bytes(block + kCodes), i / 16 * 4);
  }
};

}  // namespace detail

using MXFP4 = BlockFormat<detail::MXFP4Block>;

static_assert(DecodesTo<MXFP4, float> && DecodesTo<MXFP4, double>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/nvfp4.hpp> - NVFP4: 64 floats of four bits as MXFP4 has them; each 16 share a float of seven
// bits (four exponent, three fraction bits).
#pragma once

#include <kvdecode/core/formats/block_format.hpp>
#include <kvdecode/core/formats/mxfp4.hpp>

#include <bit>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// s [4 bytes, one for 16 numbers], q [32 bytes: each 8 hold 16 numbers, the first eight in the low nibbles]:
// w = s fp4(q)
struct NVFP4Block {
  static constexpr FormatId kId = FormatId::kNVFP4;
  static constexpr int kSize = 64, kBytes = 36;
  static constexpr int kCodes = 4;
  static constexpr bool kIsRowByRow = true;

  /// Half of scale j, to go with doubled numbers. Bit 7 says nothing, unless all others are set: alone, they are 0.
  static KVDECODE_INLINE float scale(const std::byte* block, int j) {
    const auto byte = std::to_integer<std::uint32_t>(block[j]);
    const std::uint32_t exponent = byte >> 3 & 15u, fraction = byte & 7u;
    if (byte == 127u) return 0.0f;
    if (exponent == 0) return mul(static_cast<float>(fraction), 0x1p-10f);
    return std::bit_cast<float>((exponent + 119u) << 23 | fraction << 20);
  }
  static float value(const std::byte* block, int i) {
    const int q = byte_at(block, kCodes + i / 16 * 8 + i % 8) >> (i % 16 / 8 * 4) & 15;
    return mul(scale(block, i / 16), static_cast<float>(kFp4Doubled.level[q]));
  }
  using Scales = PartScales<4>;
  static KVDECODE_INLINE Scales scales(const std::byte* block) {
    return {{scale(block, 0), scale(block, 1), scale(block, 2), scale(block, 3)}};
  }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    const auto q = load_element<std::uint64_t>(block + kCodes, i / 16);
    const simd::Bytes codes = simd::bit_field(simd::bytes_of(q, q >> 4), 0, 15);
    return mul(Lanes<float>::set1(scales.scale[i / 16]),
               simd::to_lanes(simd::lookup(kFp4Doubled.level, codes)));
  }
};

}  // namespace detail

using NVFP4 = BlockFormat<detail::NVFP4Block>;

static_assert(DecodesTo<NVFP4, float> && DecodesTo<NVFP4, double>);

}  // namespace kvdecode

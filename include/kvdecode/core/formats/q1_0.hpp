// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/q1_0.hpp> - Q1_0: 128 numbers of one bit, a sign, that share a scale.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// d [f16], q [16 bytes: a bit each number, the lowest first]:  w = d if it is set, -d if not
struct Q1_0Block {
  static constexpr FormatId kId = FormatId::kQ1_0;
  static constexpr int kSize = 128, kBytes = 18;
  static constexpr int kCodes = 2;
  static constexpr bool kIsRowByRow = true;

  static float value(const std::byte* block, int i) {
    const int q = byte_at(block, kCodes + i / 8) >> (i % 8) & 1;
    return mul(scale_at(block), static_cast<float>(2 * q - 1));
  }
  using Scales = OneScale;
  static KVDECODE_INLINE Scales scales(const std::byte* block) { return {simd::load_f16(block)}; }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    const auto bits = load_element<std::uint16_t>(block + kCodes, i / 16);
    return mul(Lanes<float>::set1(scales.scale), simd::to_lanes(simd::spread_bits(bits, 2) - 1));
  }
};

}  // namespace detail

using Q1_0 = BlockFormat<detail::Q1_0Block>;

static_assert(DecodesTo<Q1_0, float> && DecodesTo<Q1_0, double>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/q2_0.hpp> - Q2_0: 64 numbers -1, 0, 1 or 2 of two bits that share a scale.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// d [f16], q [16 bytes: four numbers each, the first in the lowest bits]:  w = (q - 1) d
struct Q2_0Block {
  static constexpr FormatId kId = FormatId::kQ2_0;
  static constexpr int kSize = 64, kBytes = 18;
  static constexpr int kCodes = 2;
  static constexpr bool kIsRowByRow = true;

  static float value(const std::byte* block, int i) {
    const int q = byte_at(block, kCodes + i / 4) >> (i % 4 * 2) & 3;
    return mul(static_cast<float>(q - 1), scale_at(block));
  }
  using Scales = OneScale;
  static KVDECODE_INLINE Scales scales(const std::byte* block) { return {simd::load_f16(block)}; }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    const simd::Bytes codes = simd::pairs_as_bytes(load_element<std::uint32_t>(block + kCodes, i / 16));
    return mul(simd::to_lanes(codes - 1), Lanes<float>::set1(scales.scale));
  }
};

}  // namespace detail

using Q2_0 = BlockFormat<detail::Q2_0Block>;

static_assert(DecodesTo<Q2_0, float> && DecodesTo<Q2_0, double>);

}  // namespace kvdecode

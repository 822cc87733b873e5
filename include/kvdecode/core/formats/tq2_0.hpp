// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/tq2_0.hpp> - TQ2_0: 256 numbers -1, 0, 1 or 2 of two bits, and a scale.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// q [64 bytes: each 32 hold 128 numbers, the first 32 in the lowest two bits], d [f16]:  w = (q - 1) d
struct TQ2_0Block {
  static constexpr FormatId kId = FormatId::kTQ2_0;
  static constexpr int kSize = 256, kBytes = 66;
  static constexpr int kScale = 64;
  static constexpr bool kIsRowByRow = true;

  static float value(const std::byte* block, int i) {
    const int q = byte_at(block, i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
    return mul(static_cast<float>(q - 1), scale_at(block + kScale));
  }
  using Scales = OneScale;
  static KVDECODE_INLINE Scales scales(const std::byte* block) { return {simd::load_f16(block + kScale)}; }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    const simd::Bytes q = simd::load_bytes(block + i / 128 * 32 + i % 32);
    return mul(simd::to_lanes(simd::bit_field(q, i % 128 / 32 * 2, 3) - 1), Lanes<float>::set1(scales.scale));
  }
};

}  // namespace detail

using TQ2_0 = BlockFormat<detail::TQ2_0Block>;

static_assert(DecodesTo<TQ2_0, float> && DecodesTo<TQ2_0, double>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/q6_k.hpp> - Q6_K: 256 numbers of six bits; each 16 have a scale of eight bits in
// units of the block's.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// q [128 bytes: each 64 hold 128 numbers, the first 64 in the low nibbles], h [64 bytes: each 32 hold the
// upper two bits of 128 numbers, the first 32 in the lowest two bits], s [16 signed bytes, one for 16
// numbers], d [f16]:  w = (d s) (q - 32)
struct Q6_KBlock {
  static constexpr FormatId kId = FormatId::kQ6_K;
  static constexpr int kSize = 256, kBytes = 210;
  static constexpr int kUpper = 128, kScales = 192, kScale = 208;
  static constexpr int kSpan = 16;
  static constexpr int kOffset = 32;
  static constexpr bool kHasHalfScales = false;
  static constexpr bool kHasMinimum = false;

  static float value(const std::byte* block, int i) {
    const int low = byte_at(block, i / 128 * 64 + i % 64) >> (i % 128 / 64 * 4) & 15;
    const int high = byte_at(block, kUpper + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
    const auto s = static_cast<float>(load_element<std::int8_t>(block, kScales + i / 16));
    return mul(mul(scale_at(block + kScale), s), static_cast<float>((low | high << 4) - 32));
  }
  using Scales = SubScales;
  static KVDECODE_INLINE Scales scales(const std::byte* block) {
    return Scales(mul(Lanes<float>::set1(simd::load_f16(block + kScale)),
                      simd::to_lanes(simd::load_bytes(block + kScales))));
  }
  template <class Rows>
  static KVDECODE_INLINE auto codes(Rows block, int i) {
    const auto low = simd::bit_field(simd::load_bytes(block + i / 128 * 64 + i % 64), i % 128 / 64 * 4, 15);
    const auto high =
        simd::move_bits(simd::load_bytes(block + kUpper + i / 128 * 32 + i % 32), i % 128 / 32 * 2, 3, 4);
    return (low | high) - 32;
  }
  static KVDECODE_INLINE Integers integers(const std::byte* block) {
    return {simd::load_f16(block + kScale), 0.0f, simd::load_bytes(block + kScales)};
  }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    return mul(simd::broadcast(scales.scale[i / 16]), simd::to_lanes(codes(block, i)));
  }
};

}  // namespace detail

using Q6_K = BlockFormat<detail::Q6_KBlock>;

static_assert(DecodesTo<Q6_K, float> && DecodesTo<Q6_K, double>);

}  // namespace kvdecode

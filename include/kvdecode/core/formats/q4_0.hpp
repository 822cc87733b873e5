// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/q4_0.hpp> - Q4_0: 32 numbers of four bits that share a scale.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>

#include <cmath>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// d [f16], q [16 bytes: low nibbles are numbers 0 … 15, high ones 16 … 31]:  w = d (q - 8)
struct Q4_0Block {
  static constexpr FormatId kId = FormatId::kQ4_0;
  static constexpr int kSize = 32, kBytes = 18;
  static constexpr int kCodes = 2;
  static constexpr int kSpan = 0;
  static constexpr int kOffset = 8;
  static constexpr bool kHasHalfScales = true;
  static constexpr bool kHasMinimum = false;

  static float value(const std::byte* block, int i) {
    const int q = byte_at(block, kCodes + i % 16) >> (i / 16 * 4) & 15;
    return mul(scale_at(block), static_cast<float>(q - 8));
  }
  static constexpr Levels kLevels{{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}};
  using Scales = FourBitNumbers<false>;
  static KVDECODE_INLINE Scales scales(const std::byte* block) { return {kLevels, block}; }
  template <class Rows>
  static KVDECODE_INLINE auto codes(Rows block, int i) {
    return simd::bit_field(simd::load_bytes(block + kCodes), i / 16 * 4, 15) - 8;
  }
  static KVDECODE_INLINE Integers integers(const std::byte* block) { return {simd::load_f16(block)}; }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    return scales(codes(block, i), simd::load_bytes(block + kCodes), i / 16 * 4);
  }
  /// The number of largest magnitude becomes -8, so that all eight negative steps are of use.
  static void encode(const double* values, std::byte* block) {
    double largest = 0.0;
    for (int i = 0; i < kSize; ++i)
      if (std::fabs(values[i]) > std::fabs(largest)) largest = values[i];
    const double d = store_scale(largest / -8.0, block);
    const auto code = [&](double x) { return d == 0.0 ? 8 : round_to(x / d, -8, 7) + 8; };
    for (int i = 0; i < 16; ++i)
      block[kCodes + i] = static_cast<std::byte>(code(values[i]) | code(values[i + 16]) << 4);
  }
};

}  // namespace detail

using Q4_0 = BlockFormat<detail::Q4_0Block>;

static_assert(StoresFrom<Q4_0, float> && StoresFrom<Q4_0, double>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/q8_0.hpp> - Q8_0: 32 signed bytes that share a scale.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>

#include <cmath>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// d [f16], q [32 signed bytes]:  w = d q
struct Q8_0Block {
  static constexpr FormatId kId = FormatId::kQ8_0;
  static constexpr int kSize = 32, kBytes = 34;
  static constexpr int kCodes = 2;  // byte at which they begin
  static constexpr int kSpan = 0;
  static constexpr int kOffset = 128;
  static constexpr bool kHasHalfScales = true;
  static constexpr bool kHasMinimum = false;

  static float value(const std::byte* block, int i) {
    return mul(scale_at(block), static_cast<float>(load_element<std::int8_t>(block, kCodes + i)));
  }
  using Scales = OneScale;
  static KVDECODE_INLINE Scales scales(const std::byte* block) { return {simd::load_f16(block)}; }
  template <class Rows>
  static KVDECODE_INLINE auto codes(Rows block, int i) {
    return simd::load_bytes(block + kCodes + i);
  }
  static KVDECODE_INLINE Integers integers(const std::byte* block) { return {simd::load_f16(block)}; }
  static KVDECODE_INLINE LanesPair pair(const std::byte* block, const Scales& scales, int i) {
    const Lanes<float> scale = simd::broadcast(scales.scale);
    return {mul(scale, simd::to_lanes(codes(block, i))),
            mul(scale, simd::to_lanes(codes(block, i + kLanes)))};
  }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    return mul(Lanes<float>::set1(scales.scale), simd::to_lanes(codes(block, i)));
  }
  /// The largest number becomes ±127.
  static void encode(const double* values, std::byte* block) {
    double largest = 0.0;
    for (int i = 0; i < kSize; ++i) largest = std::max(largest, std::fabs(values[i]));
    const double d = store_scale(largest / 127.0, block);
    for (int i = 0; i < kSize; ++i)
      block[kCodes + i] = static_cast<std::byte>(d == 0.0 ? 0 : round_to(values[i] / d, -127, 127));
  }
};

}  // namespace detail

using Q8_0 = BlockFormat<detail::Q8_0Block>;

static_assert(StoresFrom<Q8_0, float> && StoresFrom<Q8_0, double>);

}  // namespace kvdecode

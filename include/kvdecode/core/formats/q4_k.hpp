// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/q4_k.hpp> - Q4_K: 256 numbers of four bits; each 32 have a scale and a minimum of
// six bits in units of the block's.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>
#include <kvdecode/core/formats/six_bit_scales.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// d, m [f16], s [12 bytes], q [128 bytes: each 32 hold 64 numbers, the first 32 in the low nibbles]:
// w = (d s) q - m s_min
struct Q4_KBlock {
  static constexpr FormatId kId = FormatId::kQ4_K;
  static constexpr int kSize = 256, kBytes = 144;
  static constexpr int kMinimum = 2, kScales = 4, kCodes = 16;
  static constexpr int kSpan = 32;
  static constexpr int kOffset = 0;
  static constexpr bool kHasHalfScales = false;
  static constexpr bool kHasMinimum = true;

  static float value(const std::byte* block, int i) {
    const int q = byte_at(block, kCodes + i / 64 * 32 + i % 32) >> (i / 32 % 2 * 4) & 15;
    const SixBitScale s = six_bit_scale(block + kScales, i / 32);
    const float scale = mul(scale_at(block), static_cast<float>(s.scale));
    const float minimum = mul(scale_at(block + kMinimum), static_cast<float>(s.minimum));
    return mul(scale, static_cast<float>(q)) - minimum;
  }
  using Scales = SixBitScales;
  static KVDECODE_INLINE Scales scales(const std::byte* block) { return Scales(block); }
  template <class Rows>
  static KVDECODE_INLINE auto codes(Rows block, int i) {
    return simd::bit_field(simd::load_bytes(block + kCodes + i / 64 * 32 + i % 32), i / 32 % 2 * 4, 15);
  }
  static KVDECODE_INLINE Integers integers(const std::byte* block) {
    const simd::Bytes both = six_bit_scales(block);
    return {simd::load_f16(block), -simd::load_f16(block + kMinimum), both, simd::upper_half(both)};
  }
  static KVDECODE_INLINE Lanes<float> values(const std::byte* block, const Scales& scales, int i) {
    return some(numbers(scales, i), block, i);
  }
  static KVDECODE_INLINE LanesPair pair(const std::byte* block, const Scales& scales, int i) {
    const FourBitNumbers<true> shared = numbers(scales, i);
    return {some(shared, block, i), some(shared, block, i + kLanes)};
  }
  static KVDECODE_INLINE LanesQuad quad(const std::byte* block, const Scales& scales, int i) {
    const FourBitNumbers<true> low = numbers(scales, i), high = numbers(scales, i + 32);
    const simd::Bytes first = simd::load_bytes(block + kCodes + i / 2),
                      second = simd::load_bytes(block + kCodes + i / 2 + 16);
    return {low(simd::bit_field(first, 0, 15), first, 0), low(simd::bit_field(second, 0, 15), second, 0),
            high(simd::bit_field(first, 4, 15), first, 4), high(simd::bit_field(second, 4, 15), second, 4)};
  }

 private:
  static KVDECODE_INLINE FourBitNumbers<true> numbers(const Scales& scales, int i) {
    return {kZeroToFifteen, scales.scale(i / 32), scales.minimum(i / 32)};
  }
  static KVDECODE_INLINE Lanes<float> some(const FourBitNumbers<true>& numbers, const std::byte* block,
                                           int i) {
    return numbers(codes(block, i), simd::load_bytes(block + kCodes + i / 64 * 32 + i % 32), i / 32 % 2 * 4);
  }
};

}  // namespace detail

using Q4_K = BlockFormat<detail::Q4_KBlock>;

static_assert(DecodesTo<Q4_K, float> && DecodesTo<Q4_K, double>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/core/simd/narrow.hpp> - floats to sixteen-bit ones, to nearest, ties to even: the bits of core/half.hpp,
// many at a time.
#pragma once

#include <kvdecode/core/half.hpp>
#include <kvdecode/core/simd/lanes.hpp>

#include <cstring>

namespace kvdecode::inline KVDECODE_ABI::simd {

/// Sixteen numbers to binary16. @pre the default floating-point environment
KVDECODE_INLINE void narrow_f16(const float* from, std::byte* to) {
#if defined(EIGEN_VECTORIZE_AVX512)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
#elif defined(EIGEN_VECTORIZE_AVX) && defined(__F16C__)
  for (int i = 0; i < 2; ++i)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16 * i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + 8 * i), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__aarch64__) && defined(EIGEN_VECTORIZE)
  for (int i = 0; i < 4; ++i)
    vst1_u8(reinterpret_cast<std::uint8_t*>(to) + 8 * i,
            vreinterpret_u8_f16(vcvt_f16_f32(vld1q_f32(from + 4 * i))));
#else
  for (int i = 0; i < kLanes; ++i) {
    const std::uint16_t half = to_f16(static_cast<double>(from[i]));
    std::memcpy(to + 2 * i, &half, sizeof half);
  }
#endif
}

/// Sixteen numbers to bfloat16.
KVDECODE_INLINE void narrow_bf16(const float* from, std::byte* to) {
  std::uint32_t bits[kLanes];
  std::uint16_t halves[kLanes];
  std::memcpy(bits, from, sizeof bits);
  for (int i = 0; i < kLanes; ++i) {
    // Adding all but half of the last place, and that where the last bit kept is odd, carries where it should; the
    // carry of the largest number makes it infinite.
    const std::uint32_t rounded = (bits[i] + 0x7fffu + (bits[i] >> 16 & 1u)) >> 16;
    const std::uint32_t quiet = bits[i] >> 16 | 0x40u;
    halves[i] = static_cast<std::uint16_t>((bits[i] & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
  std::memcpy(to, halves, sizeof halves);
}

/// The whole sixteens of n numbers. Not inlined: g++ 12 warns of rows that it can see to be shorter than that.
[[gnu::noinline]] inline void narrow_row_f16(const float* from, Index n, std::byte* to) noexcept {
  for (Index i = 0; i + kLanes <= n; i += kLanes) narrow_f16(from + i, to + 2 * i);
}
[[gnu::noinline]] inline void narrow_row_bf16(const float* from, Index n, std::byte* to) noexcept {
  for (Index i = 0; i + kLanes <= n; i += kLanes) narrow_bf16(from + i, to + 2 * i);
}

}  // namespace kvdecode::inline KVDECODE_ABI::simd

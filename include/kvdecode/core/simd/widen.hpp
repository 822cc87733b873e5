// SPDX-License-Identifier: MIT
// <kvdecode/core/simd/widen.hpp> - sixteen stored numbers to sixteen lanes. Every conversion here is exact or
// IEEE's, so that hardware and the scalar code of core/half.hpp agree to the bit.
#pragma once

#include <kvdecode/core/half.hpp>
#include <kvdecode/core/simd/lanes.hpp>

#include <cstring>

// Masks of all ones: g++ 12 warns of the undefined operand inside its own unmasked intrinsics.
namespace kvdecode::inline KVDECODE_ABI::simd {

/// Sixteen objects of type T at any alignment.
template <class T>
KVDECODE_INLINE Lanes<T> load16(const std::byte* p) {
  if constexpr (kHasPackets<T>) {
    return Lanes<T>::loadu(reinterpret_cast<const T*>(p));
  } else {
    T t[kLanes];
    std::memcpy(t, p, sizeof t);
    return Lanes<T>::loadu(t);
  }
}

KVDECODE_INLINE Lanes<float> widen_f16(const std::byte* p) {
#if defined(EIGEN_VECTORIZE_AVX512)
  Lanes<float> v;
  v.r[0] = _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return v;
#elif defined(EIGEN_VECTORIZE_AVX) && defined(__F16C__)
  Lanes<float> v;
  v.r[0] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  v.r[1] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)));
  return v;
#elif defined(__aarch64__) && defined(EIGEN_VECTORIZE)
  Lanes<float> v;
  unroll<4>([&](auto i) KVDECODE_INLINE_LAMBDA {
    v.r[i] = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(reinterpret_cast<const std::uint8_t*>(p) + 8 * i)));
  });
  return v;
#else
  std::uint16_t h[kLanes];
  std::memcpy(h, p, sizeof h);
  float t[kLanes];
  for (int i = 0; i < kLanes; ++i) t[i] = f16_to_f32(h[i]);
  return Lanes<float>::loadu(t);
#endif
}

KVDECODE_INLINE Lanes<float> widen_bf16(const std::byte* p) {
#if defined(EIGEN_VECTORIZE_AVX512)
  Lanes<float> v;
  v.r[0] = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(
      0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))),
      16));
  return v;
#elif defined(EIGEN_VECTORIZE_AVX2)
  Lanes<float> v;
  v.r[0] = _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
  v.r[1] = _mm256_castsi256_ps(_mm256_slli_epi32(
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16))), 16));
  return v;
#else
  std::uint16_t h[kLanes];
  std::memcpy(h, p, sizeof h);
  float t[kLanes];
  for (int i = 0; i < kLanes; ++i) t[i] = bf16_to_f32(h[i]);
  return Lanes<float>::loadu(t);
#endif
}

/// Each lane as another scalar: exact from float to double, rounded to nearest from double to float.
template <class To, class From>
KVDECODE_INLINE Lanes<To> convert(const Lanes<From>& v) {
  if constexpr (std::is_same_v<To, From>) {
    return v;
  } else {
    From from[kLanes];
    To to[kLanes];
    v.storeu(from);
    for (int i = 0; i < kLanes; ++i) to[i] = static_cast<To>(from[i]);
    return Lanes<To>::loadu(to);
  }
}

}  // namespace kvdecode::inline KVDECODE_ABI::simd

// SPDX-License-Identifier: MIT
// <kvdecode/core/simd/ints.hpp> - sixteen lanes of 32-bit integers and the dot of four bytes in each. All of it is
// exact: every machine gives the same integers, by the instructions it has.
#pragma once

#include <kvdecode/core/simd/bytes.hpp>
#include <kvdecode/core/simd/lanes.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(EIGEN_VECTORIZE_AVX512) && defined(__AVX512VNNI__)
#define KVDECODE_INTS_AVX512 1
#elif defined(EIGEN_VECTORIZE_AVX2)
#define KVDECODE_INTS_AVX2 1
#elif defined(EIGEN_VECTORIZE) && defined(__aarch64__)
#define KVDECODE_INTS_NEON 1
#endif

namespace kvdecode::inline KVDECODE_ABI::simd {

/// What is added to the signed bytes that dot4() takes as its second factor: the instruction of AVX-512 wants one
/// factor without a sign.
#if defined(KVDECODE_INTS_AVX512)
inline constexpr int kDotOffset = 128;
#else
inline constexpr int kDotOffset = 0;
#endif

/// Sixteen integers.
struct IntLanes {
#if defined(KVDECODE_INTS_AVX512)
  static constexpr int regs = 1;
  __m512i r[regs];
#elif defined(KVDECODE_INTS_AVX2)
  static constexpr int regs = 2;
  __m256i r[regs];
#elif defined(KVDECODE_INTS_NEON)
  static constexpr int regs = 4;
  int32x4_t r[regs];
#else
  static constexpr int regs = 16;
  std::int32_t r[regs];
#endif

  static KVDECODE_INLINE IntLanes loadu(const std::int32_t* p) {
    IntLanes v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  KVDECODE_INLINE void storeu(std::int32_t* p) const { std::memcpy(p, this, sizeof *this); }
  static KVDECODE_INLINE IntLanes zero() {
    IntLanes v;
#if defined(KVDECODE_INTS_AVX512)
    v.r[0] = _mm512_setzero_si512();
#elif defined(KVDECODE_INTS_AVX2)
    v.r[0] = v.r[1] = _mm256_setzero_si256();
#elif defined(KVDECODE_INTS_NEON)
    for (auto& r : v.r) r = vdupq_n_s32(0);
#else
    for (auto& r : v.r) r = 0;
#endif
    return v;
  }
};
static_assert(sizeof(IntLanes) == 16 * sizeof(std::int32_t));

/// Four signed bytes for each lane, 64 at p, at any alignment.
struct ByteQuads {
  IntLanes bytes;
#if defined(KVDECODE_INTS_AVX2)
  IntLanes magnitudes;
#endif

  static KVDECODE_INLINE ByteQuads loadu(const std::byte* p) {
    ByteQuads v;
    std::memcpy(&v.bytes, p, sizeof v.bytes);
#if defined(KVDECODE_INTS_AVX2)
    for (int i = 0; i < IntLanes::regs; ++i) v.magnitudes.r[i] = _mm256_abs_epi8(v.bytes.r[i]);
#endif
    return v;
  }
};

/// sums[j] += the four bytes of lane j times the four at x, which have kDotOffset added.
/// @pre no byte of x is -128 before that
KVDECODE_INLINE IntLanes dot4(const IntLanes& sums, const ByteQuads& quads, const std::byte* x) {
  std::int32_t four;
  std::memcpy(&four, x, sizeof four);
  IntLanes v;
#if defined(KVDECODE_INTS_AVX512)
  v.r[0] = _mm512_dpbusd_epi32(sums.r[0], _mm512_set1_epi32(four), quads.bytes.r[0]);
#elif defined(KVDECODE_INTS_AVX2)
  // By magnitudes: a pair of products is at most 2 * 128 * 127 and fits in sixteen bits.
  const __m256i all = _mm256_set1_epi32(four), ones = _mm256_set1_epi16(1);
  for (int i = 0; i < IntLanes::regs; ++i) {
    const __m256i pairs =
        _mm256_maddubs_epi16(quads.magnitudes.r[i], _mm256_sign_epi8(all, quads.bytes.r[i]));
    v.r[i] = _mm256_add_epi32(sums.r[i], _mm256_madd_epi16(pairs, ones));
  }
#elif defined(KVDECODE_INTS_NEON)
  const int8x16_t all = vreinterpretq_s8_s32(vdupq_n_s32(four));
  for (int i = 0; i < IntLanes::regs; ++i) {
    const int8x16_t bytes = vreinterpretq_s8_s32(quads.bytes.r[i]);
#if defined(__ARM_FEATURE_DOTPROD)
    v.r[i] = vdotq_s32(sums.r[i], bytes, all);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(bytes), vget_low_s8(all));
    const int16x8_t high = vmull_s8(vget_high_s8(bytes), vget_high_s8(all));
    v.r[i] = vaddq_s32(sums.r[i], vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
  }
#else
  const auto byte_of = [](std::int32_t word, int i) {
    return static_cast<std::int32_t>(static_cast<std::int8_t>(static_cast<std::uint32_t>(word) >> (8 * i)));
  };
  for (int j = 0; j < kLanes; ++j) {
    v.r[j] = sums.r[j];
    for (int i = 0; i < 4; ++i) v.r[j] += byte_of(quads.bytes.r[j], i) * byte_of(four, i);
  }
#endif
  return v;
}

/// Byte i of the four of each lane.
template <int i>
KVDECODE_INLINE IntLanes byte_of(const ByteQuads& quads) {
  IntLanes v;
#if defined(KVDECODE_INTS_AVX512)
  v.r[0] = _mm512_maskz_srai_epi32(0xffff, _mm512_maskz_slli_epi32(0xffff, quads.bytes.r[0], 24 - 8 * i), 24);
#elif defined(KVDECODE_INTS_AVX2)
  for (int j = 0; j < IntLanes::regs; ++j)
    v.r[j] = _mm256_srai_epi32(_mm256_slli_epi32(quads.bytes.r[j], 24 - 8 * i), 24);
#elif defined(KVDECODE_INTS_NEON)
  for (int j = 0; j < IntLanes::regs; ++j)
    v.r[j] = vshrq_n_s32(vshlq_n_s32(quads.bytes.r[j], 24 - 8 * i), 24);
#else
  for (int j = 0; j < IntLanes::regs; ++j)
    v.r[j] = static_cast<std::int8_t>(static_cast<std::uint32_t>(quads.bytes.r[j]) >> (8 * i));
#endif
  return v;
}

/// The integers as S. @pre S holds them exactly
template <class S>
KVDECODE_INLINE Lanes<S> to_lanes(const IntLanes& v) {
#if defined(EIGEN_VECTORIZE_AVX512)
  if constexpr (std::is_same_v<S, float>) {
    __m512i all;
    std::memcpy(&all, &v, sizeof all);
    Lanes<float> lanes;
    lanes.r[0] = _mm512_maskz_cvtepi32_ps(0xffff, all);
    return lanes;
  }
#elif defined(KVDECODE_INTS_AVX2)
  if constexpr (std::is_same_v<S, float>) {
    Lanes<float> lanes;
    for (int i = 0; i < IntLanes::regs; ++i) lanes.r[i] = _mm256_cvtepi32_ps(v.r[i]);
    return lanes;
  }
#elif defined(KVDECODE_INTS_NEON)
  if constexpr (std::is_same_v<S, float>) {
    Lanes<float> lanes;
    for (int i = 0; i < IntLanes::regs; ++i) lanes.r[i] = vcvtq_f32_s32(v.r[i]);
    return lanes;
  }
#endif
  std::int32_t from[kLanes];
  S to[kLanes];
  v.storeu(from);
  for (int i = 0; i < kLanes; ++i) to[i] = S(static_cast<double>(from[i]));
  return Lanes<S>::loadu(to);
}

/// The whole numbers nearest to sixteen, of two the even one, as signed bytes; 127 for what is beyond.
/// @pre no number is below -127; the default rounding mode
template <class S>
KVDECODE_INLINE Bytes nearest_bytes(const Lanes<S>& v) {
#if defined(EIGEN_VECTORIZE_AVX512)
  if constexpr (std::is_same_v<S, float>) {
    return reinterpret_cast<Bytes>(
        _mm512_maskz_cvtsepi32_epi8(0xffff, _mm512_maskz_cvtps_epi32(0xffff, v.r[0])));
  }
#elif defined(EIGEN_VECTORIZE_AVX2)
  if constexpr (std::is_same_v<S, float>) {
    // Packing works within halves of registers: words 0 … 3 and 8 … 11 of the numbers, then the others.
    const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(v.r[0]), _mm256_cvtps_epi32(v.r[1]));
    const __m256i ordered = _mm256_permute4x64_epi64(words, 0xd8);
    return reinterpret_cast<Bytes>(
        _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
  }
#endif
  // A float of 24 bits, or a double of 53, has no room for fractions at 1.5 * 2^23 (2^52): adding that rounds to even, and
  // leaves the whole number in the lowest bits.
  using T = std::conditional_t<std::is_same_v<S, float>, float, double>;
  using Bits = std::conditional_t<std::is_same_v<S, float>, std::uint32_t, std::uint64_t>;
  S t[kLanes];
  v.storeu(t);
  Bytes bytes{};
  for (int i = 0; i < kLanes; ++i) {
    const T x = static_cast<T>(t[i]);
    const T moved = (T(127) < x ? T(127) : x) + (std::is_same_v<S, float> ? T(0x1.8p23) : T(0x1.8p52));
    bytes[i] = static_cast<std::uint8_t>(std::bit_cast<Bits>(moved) & 0xffu);
  }
  return bytes;
}

/// The sum of sixteen signed bytes.
KVDECODE_INLINE int sum_of(Bytes v) {
#if defined(EIGEN_VECTORIZE) && defined(__SSE2__)
  const __m128i halves = _mm_sad_epu8(reinterpret_cast<__m128i>(v ^ 0x80), _mm_setzero_si128());
  return _mm_cvtsi128_si32(halves) + _mm_cvtsi128_si32(_mm_srli_si128(halves, 8)) - 16 * 128;
#else
  int sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += static_cast<std::int8_t>(v[i]);
  return sum;
#endif
}

/// -n[j] in each lane times kDotOffset: where sums start whose second factors have it added.
KVDECODE_INLINE IntLanes without_offset(const IntLanes& n) {
#if defined(KVDECODE_INTS_AVX512)
  IntLanes v;
  v.r[0] = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_maskz_slli_epi32(0xffff, n.r[0], 7));
  return v;
#else
  static_cast<void>(n);
  return IntLanes::zero();
#endif
}

/// Sixteen rows of sixteen bytes, turned: byte quad q of row j to bytes 4 j … 4 j + 3 of the 64 at out + 64 q.
KVDECODE_INLINE void turn_quads(const Bytes (&rows)[kLanes], std::byte* out) {
  using Quads = std::int32_t __attribute__((vector_size(16)));
  for (int j = 0; j < kLanes; j += 4) {
    Quads a[4], b[4];
    std::memcpy(a, &rows[j], sizeof a);
    b[0] = __builtin_shufflevector(a[0], a[1], 0, 4, 1, 5);
    b[1] = __builtin_shufflevector(a[2], a[3], 0, 4, 1, 5);
    b[2] = __builtin_shufflevector(a[0], a[1], 2, 6, 3, 7);
    b[3] = __builtin_shufflevector(a[2], a[3], 2, 6, 3, 7);
    a[0] = __builtin_shufflevector(b[0], b[1], 0, 1, 4, 5);
    a[1] = __builtin_shufflevector(b[0], b[1], 2, 3, 6, 7);
    a[2] = __builtin_shufflevector(b[2], b[3], 0, 1, 4, 5);
    a[3] = __builtin_shufflevector(b[2], b[3], 2, 3, 6, 7);
    for (int q = 0; q < 4; ++q) std::memcpy(out + 64 * q + 4 * j, &a[q], sizeof a[q]);
  }
}

}  // namespace kvdecode::inline KVDECODE_ABI::simd

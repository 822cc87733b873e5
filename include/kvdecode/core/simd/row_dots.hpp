// SPDX-License-Identifier: MIT
// <kvdecode/core/simd/row_dots.hpp> - what one row of bytes times eight rows of bytes takes, by registers of 256 bits
// where there are: 32 numbers of a row at a time, whose products are summed to eight integers, and eight such to one
// register of sums.
#pragma once

#include <kvdecode/core/simd/bytes.hpp>
#include <kvdecode/core/simd/ints.hpp>

#include <cstdint>
#include <cstring>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI::simd {

inline constexpr int kDotRows = 8;

#if defined(KVDECODE_INTS_AVX512) || defined(KVDECODE_INTS_AVX2)

/// Eight floats, one a row.
struct RowFloats {
  __m256 v;

  static KVDECODE_INLINE RowFloats zero() { return {_mm256_setzero_ps()}; }
  static KVDECODE_INLINE RowFloats set1(float x) { return {_mm256_set1_ps(x)}; }
  static KVDECODE_INLINE RowFloats loadu(const float* p) { return {_mm256_loadu_ps(p)}; }
  KVDECODE_INLINE void storeu(float* p) const { _mm256_storeu_ps(p, v); }
};
KVDECODE_INLINE RowFloats mul(const RowFloats& a, const RowFloats& b) {
  __m256 v = _mm256_mul_ps(a.v, b.v);
  KVDECODE_SEAL(v);
  return {v};
}
KVDECODE_INLINE RowFloats fma(const RowFloats& a, const RowFloats& b, const RowFloats& c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}

/// Eight integers.
struct RowInts {
  __m256i v;
};
KVDECODE_INLINE RowFloats to_floats(const RowInts& a) { return {_mm256_cvtepi32_ps(a.v)}; }

/// 32 signed bytes of x, to be multiplied with codes of several rows, which are unsigned once `offset` is added: below
/// 128, unless that is it.
template <int offset>
struct DotFactor {
#if defined(KVDECODE_INTS_AVX512)
  static constexpr bool kAddsOffset = true;
#else
  static constexpr bool kAddsOffset = offset < 128;  // a pair of products fits in sixteen bits
#endif
  __m256i bytes;
  __m256i start;  // where sums begin: less the offset times x

  /// @param codes  32 bytes with kDotOffset added
  static KVDECODE_INLINE DotFactor loadu(const std::byte* codes) {
    DotFactor x;
    std::memcpy(&x.bytes, codes, sizeof x.bytes);
    if constexpr (kDotOffset != 0)
      x.bytes = _mm256_xor_si256(x.bytes, _mm256_set1_epi8(static_cast<char>(kDotOffset)));
    x.start = _mm256_setzero_si256();
    if constexpr (kAddsOffset && offset != 0)
      x.start = _mm256_sub_epi32(x.start, x.times(_mm256_set1_epi8(static_cast<char>(offset)), x.start));
    return x;
  }
  /// sums and those of four products each of the unsigned bytes w with x.
  KVDECODE_INLINE __m256i times(__m256i w, __m256i sums) const {
#if defined(KVDECODE_INTS_AVX512)
    return _mm256_dpbusd_epi32(sums, w, bytes);
#else
    return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(w, bytes), _mm256_set1_epi16(1)));
#endif
  }
};

/// Sums of four products each, of the codes low and high with x.
template <int offset>
KVDECODE_INLINE RowInts dot32(Bytes low, Bytes high, const DotFactor<offset>& x) {
  constexpr bool adds = DotFactor<offset>::kAddsOffset;
  if constexpr (adds && offset != 0) {
    low = low + static_cast<std::uint8_t>(offset);
    high = high + static_cast<std::uint8_t>(offset);
  }
  const __m256i w = _mm256_inserti128_si256(_mm256_castsi128_si256(reinterpret_cast<__m128i>(low)),
                                            reinterpret_cast<__m128i>(high), 1);
  if constexpr (adds) {
    return {x.times(w, x.start)};
  } else {  // by magnitudes: a pair of products is at most 2 * 128 * 127
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x.bytes, w));
    return {_mm256_madd_epi16(pairs, _mm256_set1_epi16(1))};
  }
}

/// The sums of the first sixteen bytes times low, the others times high.
KVDECODE_INLINE RowInts scale_halves(const RowInts& sums, std::int32_t low, std::int32_t high) {
  const __m256i factors =
      _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_set1_epi32(low)), _mm_set1_epi32(high), 1);
  return {_mm256_mullo_epi32(sums.v, factors)};
}
KVDECODE_INLINE RowInts scale(const RowInts& sums, std::int32_t factor) {
  return {_mm256_mullo_epi32(sums.v, _mm256_set1_epi32(factor))};
}

/// The sum of each of eight rows' integers.
KVDECODE_INLINE RowInts row_sums(const RowInts (&rows)[kDotRows]) {
  // Single shuffles and sums: a horizontal addition is three of them.
  const auto pairs = [&](int i) KVDECODE_INLINE_LAMBDA {
    return _mm256_add_epi32(_mm256_unpacklo_epi32(rows[i].v, rows[i + 1].v),
                            _mm256_unpackhi_epi32(rows[i].v, rows[i + 1].v));
  };
  const auto quads = [&](int i) KVDECODE_INLINE_LAMBDA {
    const __m256i a = pairs(i), b = pairs(i + 2);
    return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
  };
  const __m256i a = quads(0), b = quads(4);
  return {_mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31))};
}

/// The first eight signed bytes.
KVDECODE_INLINE RowFloats first_as_floats(Bytes bytes) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(reinterpret_cast<__m128i>(bytes)))};
}
/// Eight times eight numbers, turned.
KVDECODE_INLINE void turn(RowFloats (&rows)[kDotRows]) {
  __m256 pairs[kDotRows], quads[kDotRows];
  for (int i = 0; i < kDotRows; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i].v, rows[i + 1].v);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i].v, rows[i + 1].v);
  }
  for (int i = 0; i < kDotRows; i += 4)
    for (int j = 0; j < 2; ++j) {
      quads[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + 2 + j], 0x44);
      quads[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + 2 + j], 0xee);
    }
  for (int i = 0; i < 4; ++i) {
    rows[i].v = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
    rows[i + 4].v = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
  }
}

/// Sixteen signed bytes as integers.
KVDECODE_INLINE void store_as_integers(Bytes bytes, std::int32_t* to) {
  const auto v = reinterpret_cast<__m128i>(bytes);
  const __m256i low = _mm256_cvtepi8_epi32(v), high = _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8));
  std::memcpy(to, &low, sizeof low);
  std::memcpy(to + 8, &high, sizeof high);
}

/// The binary16 at each of eight places.
KVDECODE_INLINE RowFloats load_halves(const std::byte* const (&rows)[kDotRows], int offset) {
  std::uint16_t h[kDotRows];
  for (int r = 0; r < kDotRows; ++r) std::memcpy(&h[r], rows[r] + offset, sizeof h[r]);
  const auto half = [&](int r) KVDECODE_INLINE_LAMBDA { return static_cast<short>(h[r]); };
  return {_mm256_cvtph_ps(
      _mm_setr_epi16(half(0), half(1), half(2), half(3), half(4), half(5), half(6), half(7)))};
}
#else
// The same for every other machine, in plain C++.
struct RowFloats {
  float v[kDotRows];

  static KVDECODE_INLINE RowFloats set1(float x) { return {{x, x, x, x, x, x, x, x}}; }
  static KVDECODE_INLINE RowFloats zero() { return set1(0.0f); }
  static KVDECODE_INLINE RowFloats loadu(const float* p) {
    RowFloats x;
    std::memcpy(x.v, p, sizeof x.v);
    return x;
  }
  KVDECODE_INLINE void storeu(float* p) const { std::memcpy(p, v, sizeof v); }
};
KVDECODE_INLINE RowFloats mul(const RowFloats& a, const RowFloats& b) {
  RowFloats x;
  for (int r = 0; r < kDotRows; ++r) x.v[r] = kvdecode::mul(a.v[r], b.v[r]);
  return x;
}
KVDECODE_INLINE RowFloats fma(const RowFloats& a, const RowFloats& b, const RowFloats& c) {
  RowFloats x;
  for (int r = 0; r < kDotRows; ++r) x.v[r] = kvdecode::fma(a.v[r], b.v[r], c.v[r]);
  return x;
}

struct RowInts {
  std::int32_t v[kDotRows];
};
KVDECODE_INLINE RowFloats to_floats(const RowInts& a) {
  RowFloats x;
  for (int r = 0; r < kDotRows; ++r) x.v[r] = static_cast<float>(a.v[r]);
  return x;
}

template <int offset>
struct DotFactor {
  static_assert(kDotOffset == 0);
  std::int8_t bytes[32];

  static KVDECODE_INLINE DotFactor loadu(const std::byte* codes) {
    DotFactor x;
    std::memcpy(x.bytes, codes, sizeof x.bytes);
    return x;
  }
};
template <int offset>
KVDECODE_INLINE RowInts dot32(Bytes low, Bytes high, const DotFactor<offset>& x) {
  std::int8_t w[32];
  std::memcpy(w, &low, sizeof low);
  std::memcpy(w + 16, &high, sizeof high);
  RowInts sums{};
  for (int i = 0; i < 32; ++i) sums.v[i / 4] += w[i] * x.bytes[i];
  return sums;
}
KVDECODE_INLINE RowInts scale_halves(RowInts sums, std::int32_t low, std::int32_t high) {
  for (int i = 0; i < kDotRows; ++i) sums.v[i] *= i < kDotRows / 2 ? low : high;
  return sums;
}
KVDECODE_INLINE RowInts scale(const RowInts& sums, std::int32_t factor) {
  return scale_halves(sums, factor, factor);
}
KVDECODE_INLINE RowInts row_sums(const RowInts (&rows)[kDotRows]) {
  RowInts sums{};
  for (int r = 0; r < kDotRows; ++r)
    for (const std::int32_t sum : rows[r].v) sums.v[r] += sum;
  return sums;
}
KVDECODE_INLINE RowFloats first_as_floats(Bytes bytes) {
  RowFloats x;
  for (int i = 0; i < kDotRows; ++i) x.v[i] = static_cast<float>(static_cast<std::int8_t>(bytes[i]));
  return x;
}
KVDECODE_INLINE void turn(RowFloats (&rows)[kDotRows]) {
  for (int i = 0; i < kDotRows; ++i)
    for (int j = 0; j < i; ++j) std::swap(rows[i].v[j], rows[j].v[i]);
}
KVDECODE_INLINE void store_as_integers(Bytes bytes, std::int32_t* to) {
  for (int i = 0; i < kLanes; ++i) to[i] = static_cast<std::int8_t>(bytes[i]);
}
KVDECODE_INLINE RowFloats load_halves(const std::byte* const (&rows)[kDotRows], int offset) {
  RowFloats x;
  for (int r = 0; r < kDotRows; ++r) x.v[r] = load_f16(rows[r] + offset);
  return x;
}
#endif

}  // namespace kvdecode::inline KVDECODE_ABI::simd

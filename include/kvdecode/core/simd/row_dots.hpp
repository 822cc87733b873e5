// SPDX-License-Identifier: MIT
// <kvdecode/core/simd/row_dots.hpp> - what one row of bytes times eight rows of bytes takes: sixteen numbers of two rows at
// a time, whose products are summed to four integers for each, and four such pairs to one sum a row.
#pragma once

#include <kvdecode/core/simd/bytes.hpp>
#include <kvdecode/core/simd/ints.hpp>

#include <cstdint>
#include <cstring>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI::simd {

/// Rows that are multiplied together; pair p of them is rows p and p + 4.
inline constexpr int kDotRows = 8, kDotPairs = 4;

#if defined(KVDECODE_INTS_AVX512) || defined(KVDECODE_INTS_AVX2)

/// Eight floats, one a row.
struct RowFloats {
  __m256 v;

  static KVDECODE_INLINE RowFloats zero() { return {_mm256_setzero_ps()}; }
  static KVDECODE_INLINE RowFloats set1(float x) { return {_mm256_set1_ps(x)}; }
  /// f(r) of each row.
  template <class F>
  static KVDECODE_INLINE RowFloats of_each(F&& f) {
    return {_mm256_setr_ps(f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7))};
  }
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

/// Four integers of the first row of a pair, then four of the second.
struct PairSums {
  __m256i v;
};

/// 32 signed bytes of x, to be multiplied with codes of several rows, which are unsigned once `offset` is added: below 64,
/// unless that is 128.
template <int offset>
class PairFactor {
#if defined(KVDECODE_INTS_AVX512)
  static constexpr bool kAddsOffset = true;
#else
  static constexpr bool kAddsOffset = offset < 128;  // four products fit in sixteen bits
#endif

 public:
  static KVDECODE_INLINE PairFactor loadu(const std::int8_t* codes) {
    PairFactor x;
    const auto half = [&](int i) KVDECODE_INLINE_LAMBDA {
      __m128i bytes;
      std::memcpy(&bytes, codes + 16 * i, sizeof bytes);
      return _mm256_broadcastsi128_si256(bytes);
    };
    x.half_[0] = half(0);
    x.half_[1] = half(1);
    return x;
  }

  /// Sums of the products of 32 codes of both rows.
  KVDECODE_INLINE PairSums times(BytePairs low, BytePairs high) const {
    if constexpr (!kAddsOffset)
      return {_mm256_add_epi32(by_magnitudes(low, half_[0]), by_magnitudes(high, half_[1]))};
    else
      return {products(unsigned_codes(low), unsigned_codes(high), start())};
  }
  /// The same for the first sixteen codes (half 0) or the others (half 1).
  template <int half>
  KVDECODE_INLINE PairSums times_half(BytePairs codes) const {
    if constexpr (!kAddsOffset)
      return {by_magnitudes(codes, half_[half])};
    else
      return {sixteen(unsigned_codes(codes), half_[half], start_of_half<half>())};
  }

 private:
  static KVDECODE_INLINE __m256i unsigned_codes(BytePairs codes) {
    if constexpr (offset != 0) codes = codes + static_cast<std::uint8_t>(offset);
    return reinterpret_cast<__m256i>(codes);
  }
  static KVDECODE_INLINE __m256i offsets() { return _mm256_set1_epi8(static_cast<char>(offset)); }
  /// Where sums begin: less the offset times x.
  KVDECODE_INLINE __m256i start() const {
    const __m256i zero = _mm256_setzero_si256();
    return offset == 0 ? zero : _mm256_sub_epi32(zero, products(offsets(), offsets(), zero));
  }
  template <int half>
  KVDECODE_INLINE __m256i start_of_half() const {
    const __m256i zero = _mm256_setzero_si256();
    return offset == 0 ? zero : _mm256_sub_epi32(zero, sixteen(offsets(), half_[half], zero));
  }

#if defined(KVDECODE_INTS_AVX512)
  static KVDECODE_INLINE __m256i sixteen(__m256i w, __m256i x, __m256i sums) {
    return _mm256_dpbusd_epi32(sums, w, x);
  }
  KVDECODE_INLINE __m256i products(__m256i low, __m256i high, __m256i sums) const {
    return sixteen(high, half_[1], sixteen(low, half_[0], sums));
  }
#else
  static KVDECODE_INLINE __m256i add_pairs(__m256i pairs, __m256i sums) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static KVDECODE_INLINE __m256i sixteen(__m256i w, __m256i x, __m256i sums) {
    return add_pairs(_mm256_maddubs_epi16(w, x), sums);
  }
  KVDECODE_INLINE __m256i products(__m256i low, __m256i high, __m256i sums) const {
    return add_pairs(
        _mm256_add_epi16(_mm256_maddubs_epi16(low, half_[0]), _mm256_maddubs_epi16(high, half_[1])), sums);
  }
#endif
  /// A pair of products is at most 2 * 128 * 127.
  static KVDECODE_INLINE __m256i by_magnitudes(BytePairs codes, __m256i x) {
    const auto w = reinterpret_cast<__m256i>(codes);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }

  __m256i half_[2];  // both for both rows of a pair
};

/// The sum of each of eight rows' integers.
KVDECODE_INLINE RowInts row_sums(const PairSums (&pairs)[kDotPairs]) {
  // Single shuffles and sums: a horizontal addition is three of them.
  const auto halves = [&](int i) KVDECODE_INLINE_LAMBDA {
    return _mm256_add_epi32(_mm256_unpacklo_epi32(pairs[i].v, pairs[i + 1].v),
                            _mm256_unpackhi_epi32(pairs[i].v, pairs[i + 1].v));
  };
  const __m256i a = halves(0), b = halves(2);
  return {_mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b))};
}

/// Eight signed bytes.
KVDECODE_INLINE RowFloats load_signed_bytes(const std::byte* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
}

/// The binary16 `offset` bytes behind each of eight places.
KVDECODE_INLINE RowFloats load_halves(const std::byte* const (&rows)[kDotRows], Index offset) {
  // Each by itself: g++ would store them one by one and load them together, which waits for every store.
  const auto half = [&](int r) KVDECODE_INLINE_LAMBDA {
    short h;
    std::memcpy(&h, rows[r] + offset, sizeof h);
    return h;
  };
  return {_mm256_cvtph_ps(
      _mm_setr_epi16(half(0), half(1), half(2), half(3), half(4), half(5), half(6), half(7)))};
}
#else
// The same for every other machine, in plain C++.
struct RowFloats {
  float v[kDotRows];

  static KVDECODE_INLINE RowFloats set1(float x) { return {{x, x, x, x, x, x, x, x}}; }
  static KVDECODE_INLINE RowFloats zero() { return set1(0.0f); }
  template <class F>
  static KVDECODE_INLINE RowFloats of_each(F&& f) {
    return {{f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)}};
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

struct PairSums {
  std::int32_t v[2];
};

template <int offset>
class PairFactor {
 public:
  static KVDECODE_INLINE PairFactor loadu(const std::int8_t* codes) {
    PairFactor x;
    std::memcpy(x.half_, codes, sizeof x.half_);
    return x;
  }
  KVDECODE_INLINE PairSums times(const BytePairs& low, const BytePairs& high) const {
    const PairSums a = times_half<0>(low), b = times_half<1>(high);
    return {{a.v[0] + b.v[0], a.v[1] + b.v[1]}};
  }
  template <int half>
  KVDECODE_INLINE PairSums times_half(const BytePairs& codes) const {
    return {{sixteen(codes.first, half_[half]), sixteen(codes.second, half_[half])}};
  }

 private:
  static KVDECODE_INLINE std::int32_t sixteen(Bytes codes, const std::int8_t* x) {
    std::int8_t w[16];
    std::memcpy(w, &codes, sizeof w);
    std::int32_t sum = 0;
    for (int i = 0; i < 16; ++i) sum += w[i] * x[i];
    return sum;
  }

  std::int8_t half_[2][16];
};
KVDECODE_INLINE RowInts row_sums(const PairSums (&pairs)[kDotPairs]) {
  RowInts sums;
  for (int r = 0; r < kDotRows; ++r) sums.v[r] = pairs[r % kDotPairs].v[r / kDotPairs];
  return sums;
}
KVDECODE_INLINE RowFloats load_signed_bytes(const std::byte* p) {
  return RowFloats::of_each([&](int r) { return static_cast<float>(static_cast<std::int8_t>(p[r])); });
}
KVDECODE_INLINE RowFloats load_halves(const std::byte* const (&rows)[kDotRows], Index offset) {
  return RowFloats::of_each([&](int r) { return load_f16(rows[r] + offset); });
}
#endif

}  // namespace kvdecode::inline KVDECODE_ABI::simd

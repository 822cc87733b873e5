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
#include <utility>

#if defined(EIGEN_VECTORIZE_AVX512) && defined(__AVX512VNNI__)
#define KVDECODE_INTS_AVX512 1
#elif defined(EIGEN_VECTORIZE_AVX2)
#define KVDECODE_INTS_AVX2 1
#elif defined(EIGEN_VECTORIZE) && defined(__aarch64__)
#define KVDECODE_INTS_NEON 1
#endif

namespace kvdecode::inline KVDECODE_ABI::simd {

/// What dot8() wants added to codes that are unsigned once `offset` is, which is 128 or leaves them below 64. Sums then have
/// that times x in them. kSigned: it takes codes as they are.
inline constexpr int kSigned = -1;
constexpr int added_to_codes([[maybe_unused]] int offset) {
#if defined(KVDECODE_INTS_AVX512)
  return offset == 0 ? 0 : 128;
#elif defined(KVDECODE_INTS_AVX2)
  return offset < 128 ? offset : kSigned;
#else
  return kSigned;
#endif
}
/// What every start of a sum is a multiple of.
#if defined(KVDECODE_INTS_AVX512)
inline constexpr int kStartUnit = 128;
#else
inline constexpr int kStartUnit = 1;
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
    return loadu(reinterpret_cast<const std::byte*>(p));
  }
  static KVDECODE_INLINE IntLanes loadu(const std::byte* p) {
    // A register at a time: g++ would copy several by way of the stack, in pieces that the next load waits for.
    IntLanes v;
    simd::unroll<regs>([&](auto i) KVDECODE_INLINE_LAMBDA {
      std::memcpy(&v.r[i], p + i * static_cast<int>(sizeof v.r[i]), sizeof v.r[i]);
    });
    return v;
  }
  KVDECODE_INLINE void storeu(std::int32_t* p) const {
    simd::unroll<regs>(
        [&](auto i) KVDECODE_INLINE_LAMBDA { std::memcpy(p + i * (kLanes / regs), &r[i], sizeof r[i]); });
  }
  static KVDECODE_INLINE IntLanes set1(std::int32_t x) {
    IntLanes v;
#if defined(KVDECODE_INTS_AVX512)
    v.r[0] = _mm512_set1_epi32(x);
#elif defined(KVDECODE_INTS_AVX2)
    v.r[0] = v.r[1] = _mm256_set1_epi32(x);
#elif defined(KVDECODE_INTS_NEON)
    for (auto& r : v.r) r = vdupq_n_s32(x);
#else
    for (auto& r : v.r) r = x;
#endif
    return v;
  }
  static KVDECODE_INLINE IntLanes zero() { return set1(0); }
};
static_assert(sizeof(IntLanes) == 16 * sizeof(std::int32_t));

/// Four codes for each lane.
struct CodeQuads {
  IntLanes bytes;
#if defined(KVDECODE_INTS_AVX2)
  IntLanes magnitudes;
#endif

  /// 64 at p, at any alignment.
  static KVDECODE_INLINE CodeQuads loadu(const std::byte* p) {
    CodeQuads v;
    v.bytes = IntLanes::loadu(p);
#if defined(KVDECODE_INTS_AVX2)
    for (int i = 0; i < IntLanes::regs; ++i) v.magnitudes.r[i] = _mm256_abs_epi8(v.bytes.r[i]);
#endif
    return v;
  }
};

namespace detail {
/// sums[j] += the four codes of lane j times the four signed bytes at x. Of AVX2, signed codes.
KVDECODE_INLINE IntLanes dot4(const IntLanes& sums, const CodeQuads& codes, const std::int8_t* x) {
  [[maybe_unused]] std::int32_t four;
  std::memcpy(&four, x, sizeof four);
  IntLanes v;
#if defined(KVDECODE_INTS_AVX512)
  v.r[0] = _mm512_dpbusd_epi32(sums.r[0], codes.bytes.r[0], _mm512_set1_epi32(four));
#elif defined(KVDECODE_INTS_AVX2)
  const __m256i all = _mm256_set1_epi32(four);
  for (int i = 0; i < IntLanes::regs; ++i) {
    // By magnitudes: a pair of products is at most 2 * 128 * 127 and fits in sixteen bits.
    const __m256i pairs =
        _mm256_maddubs_epi16(codes.magnitudes.r[i], _mm256_sign_epi8(all, codes.bytes.r[i]));
    v.r[i] = _mm256_add_epi32(sums.r[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
#elif defined(KVDECODE_INTS_NEON)
  const int8x16_t all = vreinterpretq_s8_s32(vdupq_n_s32(four));
  for (int i = 0; i < IntLanes::regs; ++i) {
    const int8x16_t bytes = vreinterpretq_s8_s32(codes.bytes.r[i]);
#if defined(__ARM_FEATURE_DOTPROD)
    v.r[i] = vdotq_s32(sums.r[i], bytes, all);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(bytes), vget_low_s8(all));
    const int16x8_t high = vmull_s8(vget_high_s8(bytes), vget_high_s8(all));
    v.r[i] = vaddq_s32(sums.r[i], vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
  }
#else
  for (int j = 0; j < kLanes; ++j) {
    v.r[j] = sums.r[j];
    for (int i = 0; i < 4; ++i)
      v.r[j] += static_cast<std::int8_t>(static_cast<std::uint32_t>(codes.bytes.r[j]) >> (8 * i)) * x[i];
  }
#endif
  return v;
}
}  // namespace detail

/// sums[j] += the eight codes of lane j, four of each of two, times the eight signed bytes at x.
/// @pre codes have added_to_codes() added, which is kSigned if is_signed; no byte of x is -128
template <bool is_signed>
KVDECODE_INLINE IntLanes dot8(const IntLanes& sums, const CodeQuads (&codes)[2], const std::int8_t* x) {
#if defined(KVDECODE_INTS_AVX2)
  if constexpr (!is_signed) {
    std::int32_t eight[2];
    std::memcpy(eight, x, sizeof eight);
    IntLanes v;
    for (int i = 0; i < IntLanes::regs; ++i) {
      // Four products are at most 4 * 63 * 127.
      const __m256i pairs =
          _mm256_add_epi16(_mm256_maddubs_epi16(codes[0].bytes.r[i], _mm256_set1_epi32(eight[0])),
                           _mm256_maddubs_epi16(codes[1].bytes.r[i], _mm256_set1_epi32(eight[1])));
      v.r[i] = _mm256_add_epi32(sums.r[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    return v;
  }
#endif
  return detail::dot4(detail::dot4(sums, codes[0], x), codes[1], x + 4);
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

namespace detail {
/// In each four of a and b: the first two of both, or the last two, in turn, n of one at a time.
template <int n, bool is_last, class Quads, std::size_t... I>
KVDECODE_INLINE Quads interleave(Quads a, Quads b, std::index_sequence<I...>) {
  constexpr auto from = [](int i) {
    const int k = i % 4;
    return i - k + (is_last ? 2 : 0) + (n == 1 ? k / 2 : k % 2) +
           (k / n % 2) * static_cast<int>(sizeof...(I));
  };
  return __builtin_shufflevector(a, b, from(static_cast<int>(I))...);
}
template <int n, bool is_last, class Quads>
KVDECODE_INLINE Quads interleave(Quads a, Quads b) {
  return interleave<n, is_last>(a, b, std::make_index_sequence<sizeof(Quads) / sizeof(std::int32_t)>{});
}
}  // namespace detail

/// Eight rows of sixteen bytes, turned: byte quad q of row j to bytes 4 j … 4 j + 3 behind out + 64 q.
/// @param pairs  rows 0 and 4, 1 and 5, 2 and 6, 3 and 7
KVDECODE_INLINE void turn_quads(const BytePairs (&pairs)[4], std::byte* out) {
  const auto four = [](auto a, auto b, auto c, auto d, std::byte* to) KVDECODE_INLINE_LAMBDA {
    using Quads = decltype(a);
    const Quads ab0 = detail::interleave<1, false>(a, b), ab1 = detail::interleave<1, true>(a, b);
    const Quads cd0 = detail::interleave<1, false>(c, d), cd1 = detail::interleave<1, true>(c, d);
    const auto store = [&](int q, Quads quads)
                           KVDECODE_INLINE_LAMBDA { std::memcpy(to + 64 * q, &quads, sizeof quads); };
    store(0, detail::interleave<2, false>(ab0, cd0));
    store(1, detail::interleave<2, true>(ab0, cd0));
    store(2, detail::interleave<2, false>(ab1, cd1));
    store(3, detail::interleave<2, true>(ab1, cd1));
  };
#if defined(EIGEN_VECTORIZE_AVX2)
  using Quads = std::int32_t __attribute__((vector_size(32)));
  const auto rows = [&](int i) KVDECODE_INLINE_LAMBDA { return reinterpret_cast<Quads>(pairs[i]); };
  four(rows(0), rows(1), rows(2), rows(3), out);
#else
  using Quads = std::int32_t __attribute__((vector_size(16)));
  const auto first = [&](int i) KVDECODE_INLINE_LAMBDA { return reinterpret_cast<Quads>(pairs[i].first); };
  const auto second = [&](int i) KVDECODE_INLINE_LAMBDA { return reinterpret_cast<Quads>(pairs[i].second); };
  four(first(0), first(1), first(2), first(3), out);
  four(second(0), second(1), second(2), second(3), out + 16);
#endif
}

}  // namespace kvdecode::inline KVDECODE_ABI::simd

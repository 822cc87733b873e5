// SPDX-License-Identifier: MIT
// <kvdecode/core/simd/bytes.hpp> - sixteen bytes at a time: what block formats do to small codes before they
// become numbers. Integers and exact conversions only.
#pragma once

#include <kvdecode/core/half.hpp>
#include <kvdecode/core/simd/lanes.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

// Masks of all ones: g++ 12 warns of the undefined operand inside its own unmasked intrinsics.
namespace kvdecode::inline KVDECODE_ABI::simd {

/// Sixteen bytes; g++ and clang lower the operators on it for every machine. What wraps, wraps.
using Bytes = std::uint8_t __attribute__((vector_size(16)));

/// Sixteen bytes at any alignment.
KVDECODE_INLINE Bytes load_bytes(const std::byte* p) {
  Bytes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

KVDECODE_INLINE Bytes splat_bytes(std::uint8_t b) { return Bytes{} + b; }

/// The bytes of two words, lowest first.
KVDECODE_INLINE Bytes bytes_of(std::uint64_t first, std::uint64_t second) {
  // Through memory, a register would wait for both stores.
  using Words = std::uint64_t __attribute__((vector_size(16)));
  return reinterpret_cast<Bytes>(Words{first, second});
}

/// Each of sixteen nibbles as a byte, lowest first.
KVDECODE_INLINE Bytes nibbles_as_bytes(std::uint64_t bits) {
  const Bytes v = bytes_of(bits, bits >> 4) & 15;
  return __builtin_shufflevector(v, v, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
}

/// Bytes 8 … 15 in the places of bytes 0 … 7, then zeros.
KVDECODE_INLINE Bytes upper_half(Bytes v) {
  return __builtin_shufflevector(v, Bytes{}, 8, 9, 10, 11, 12, 13, 14, 15, 16, 16, 16, 16, 16, 16, 16, 16);
}

namespace detail {
template <class Words, class V>
KVDECODE_INLINE V move_bits(V v, int from, std::uint8_t mask, int to) {
  // By words, as hardware shifts: what comes from the neighbour lies beside the mask. (g++ 12 has no shift of bytes, and
  // makes a product with sixteen of four sums.)
  Words words;
  std::memcpy(&words, &v, sizeof words);
  words = from >= to ? words >> static_cast<std::uint16_t>(from - to)
                     : words << static_cast<std::uint16_t>(to - from);
  std::memcpy(&v, &words, sizeof v);
  return v & static_cast<std::uint8_t>(mask << to);
}
}  // namespace detail

/// (b >> from & mask) << to of each byte b. @pre mask < 2^(8 - from), mask << to < 2^8
KVDECODE_INLINE Bytes move_bits(Bytes v, int from, std::uint8_t mask, int to) {
  using Words = std::uint16_t __attribute__((vector_size(16)));
  return detail::move_bits<Words>(v, from, mask, to);
}

/// Two rows of bytes: what a layout reads from one row, it reads from both.
struct RowPair {
  const std::byte* first;
  const std::byte* second;

  friend KVDECODE_INLINE RowPair operator+(const RowPair& rows, Index n) {
    return {rows.first + n, rows.second + n};
  }
};

#if defined(EIGEN_VECTORIZE_AVX2)
/// Sixteen bytes of each of two rows.
using BytePairs = std::uint8_t __attribute__((vector_size(32)));

KVDECODE_INLINE BytePairs pair_of(Bytes first, Bytes second) {
  return reinterpret_cast<BytePairs>(_mm256_inserti128_si256(
      _mm256_castsi128_si256(reinterpret_cast<__m128i>(first)), reinterpret_cast<__m128i>(second), 1));
}
KVDECODE_INLINE BytePairs load_bytes(const RowPair& rows) {
  return pair_of(load_bytes(rows.first), load_bytes(rows.second));
}
KVDECODE_INLINE BytePairs move_bits(BytePairs v, int from, std::uint8_t mask, int to) {
  using Words = std::uint16_t __attribute__((vector_size(32)));
  return detail::move_bits<Words>(v, from, mask, to);
}
#else
struct BytePairs {
  Bytes first;
  Bytes second;
};
#endif

/// (b >> shift) & mask of each byte b of one row or of two. @pre mask < 2^(8 - shift)
template <class V>
KVDECODE_INLINE V bit_field(V v, int shift, std::uint8_t mask) {
  return move_bits(v, shift, mask, 0);
}

/// The first n bytes of eight rows, turned: byte i of all rows at out + 8 i. n is 8 or 16.
template <int n>
KVDECODE_INLINE void turn_bytes(const Bytes (&rows)[8], std::byte* out) {
  static_assert(n == 8 || n == 16);
  using Words = std::uint16_t __attribute__((vector_size(16)));
  using Quads = std::uint32_t __attribute__((vector_size(16)));
  const auto eight = [&](Words a, Words b, Words c, Words d, std::byte* to) KVDECODE_INLINE_LAMBDA {
    const auto ab0 = reinterpret_cast<Quads>(__builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
    const auto ab1 = reinterpret_cast<Quads>(__builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15));
    const auto cd0 = reinterpret_cast<Quads>(__builtin_shufflevector(c, d, 0, 8, 1, 9, 2, 10, 3, 11));
    const auto cd1 = reinterpret_cast<Quads>(__builtin_shufflevector(c, d, 4, 12, 5, 13, 6, 14, 7, 15));
    const Quads all[4] = {
        __builtin_shufflevector(ab0, cd0, 0, 4, 1, 5), __builtin_shufflevector(ab0, cd0, 2, 6, 3, 7),
        __builtin_shufflevector(ab1, cd1, 0, 4, 1, 5), __builtin_shufflevector(ab1, cd1, 2, 6, 3, 7)};
    std::memcpy(to, all, sizeof all);
  };
  const auto low = [&](int r) KVDECODE_INLINE_LAMBDA {
    return reinterpret_cast<Words>(__builtin_shufflevector(rows[r], rows[r + 1], 0, 16, 1, 17, 2, 18, 3, 19,
                                                           4, 20, 5, 21, 6, 22, 7, 23));
  };
  eight(low(0), low(2), low(4), low(6), out);
  if constexpr (n == 16) {
    const auto high = [&](int r) KVDECODE_INLINE_LAMBDA {
      return reinterpret_cast<Words>(__builtin_shufflevector(rows[r], rows[r + 1], 8, 24, 9, 25, 10, 26, 11,
                                                             27, 12, 28, 13, 29, 14, 30, 15, 31));
    };
    eight(high(0), high(2), high(4), high(6), out + 64);
  }
}

/// Each of sixteen pairs of bits as a byte, lowest first.
KVDECODE_INLINE Bytes pairs_as_bytes(std::uint32_t bits) {
  const Bytes four = bytes_of(bits, 0);
  const Bytes v = __builtin_shufflevector(four, four, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  using Quads = std::uint32_t __attribute__((vector_size(16)));
  const auto in_each_four = [](std::uint32_t mask) { return reinterpret_cast<Bytes>(Quads{} + mask); };
  return (v & in_each_four(0x3u)) | (bit_field(v, 2, 3) & in_each_four(0x300u)) |
         (bit_field(v, 4, 3) & in_each_four(0x30000u)) | (bit_field(v, 6, 3) & in_each_four(0x3000000u));
}

/// Bit j of `bits` as byte j: `set` where it is one, else 0.
KVDECODE_INLINE Bytes spread_bits(std::uint16_t bits, std::uint8_t set) {
  const Bytes bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
#if defined(EIGEN_VECTORIZE) && defined(__SSSE3__)
  const __m128i places = _mm_set_epi64x(0x0101010101010101, 0);
  const __m128i mask = reinterpret_cast<__m128i>(bit);
  const __m128i bytes = _mm_and_si128(_mm_shuffle_epi8(_mm_cvtsi32_si128(bits), places), mask);
  return reinterpret_cast<Bytes>(_mm_cmpeq_epi8(bytes, mask)) & set;
#else
  constexpr std::uint64_t ones = 0x0101010101010101u;
  const std::uint64_t halves[2] = {(bits & 0xffu) * ones, static_cast<std::uint64_t>(bits >> 8) * ones};
  Bytes v;
  std::memcpy(&v, halves, sizeof v);
  return reinterpret_cast<Bytes>((v & bit) == bit) & set;
#endif
}

/// The sixteen bits at p, spread.
KVDECODE_INLINE Bytes spread_bits_at(const std::byte* p, std::uint8_t set) {
  std::uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return spread_bits(bits, set);
}
#if defined(EIGEN_VECTORIZE_AVX2)
KVDECODE_INLINE BytePairs spread_bits_at(const RowPair& rows, std::uint8_t set) {
  return pair_of(spread_bits_at(rows.first, set), spread_bits_at(rows.second, set));
}
#endif

/// table[b] for each byte b. @pre b < 16
KVDECODE_INLINE Bytes lookup(const std::int8_t (&table)[16], Bytes indices) {
  Bytes t;
  std::memcpy(&t, table, sizeof t);
#if defined(EIGEN_VECTORIZE) && defined(__SSSE3__)
  return reinterpret_cast<Bytes>(
      _mm_shuffle_epi8(reinterpret_cast<__m128i>(t), reinterpret_cast<__m128i>(indices)));
#elif defined(EIGEN_VECTORIZE) && defined(__aarch64__)
  return reinterpret_cast<Bytes>(
      vqtbl1q_u8(reinterpret_cast<uint8x16_t>(t), reinterpret_cast<uint8x16_t>(indices)));
#else
  Bytes v{};
  for (int i = 0; i < kLanes; ++i) v[i] = t[indices[i]];
  return v;
#endif
}

#if defined(EIGEN_VECTORIZE_AVX2)
KVDECODE_INLINE BytePairs lookup(const std::int8_t (&table)[16], BytePairs indices) {
  __m128i t;
  std::memcpy(&t, table, sizeof t);
  return reinterpret_cast<BytePairs>(
      _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), reinterpret_cast<__m256i>(indices)));
}
#endif

/// What layout B takes from numbers i … i+15 of a block of both rows.
template <class B>
KVDECODE_INLINE BytePairs codes_of(const RowPair& rows, int i) {
#if defined(EIGEN_VECTORIZE_AVX2)
  return B::codes(rows, i);
#else
  return {B::codes(rows.first, i), B::codes(rows.second, i)};
#endif
}

/// The bytes as signed numbers in lanes, exact.
KVDECODE_INLINE Lanes<float> to_lanes(Bytes v) {
#if defined(EIGEN_VECTORIZE_AVX512)
  Lanes<float> lanes;
  lanes.r[0] =
      _mm512_maskz_cvtepi32_ps(0xffff, _mm512_maskz_cvtepi8_epi32(0xffff, reinterpret_cast<__m128i>(v)));
  return lanes;
#elif defined(EIGEN_VECTORIZE_AVX2)
  const __m128i bytes = reinterpret_cast<__m128i>(v);
  Lanes<float> lanes;
  lanes.r[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  lanes.r[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)));
  return lanes;
#else
  std::int8_t bytes[kLanes];
  std::memcpy(bytes, &v, sizeof bytes);
  float t[kLanes];
  for (int i = 0; i < kLanes; ++i) t[i] = static_cast<float>(bytes[i]);
  return Lanes<float>::loadu(t);
#endif
}

/// Whether pick() is one instruction.
#if defined(EIGEN_VECTORIZE_AVX512)
inline constexpr bool kPicksFast = true;
#else
inline constexpr bool kPicksFast = false;
#endif

/// table[b >> shift & 15] for each byte b. @pre shift is 0 or 4
KVDECODE_INLINE Lanes<float> pick(const Lanes<float>& table, Bytes bytes, int shift) {
#if defined(EIGEN_VECTORIZE_AVX512)
  // The instruction looks at four bits of an index.
  __m512i indices = _mm512_maskz_cvtepu8_epi32(0xffff, reinterpret_cast<__m128i>(bytes));
  if (shift != 0) indices = _mm512_maskz_srli_epi32(0xffff, indices, 4);
  Lanes<float> lanes;
  lanes.r[0] = _mm512_maskz_permutexvar_ps(0xffff, indices, table.r[0]);
  return lanes;
#else
  float from[kLanes], to[kLanes];
  table.storeu(from);
  const Bytes indices = bit_field(bytes, shift, 15);
  for (int i = 0; i < kLanes; ++i) to[i] = from[indices[i]];
  return Lanes<float>::loadu(to);
#endif
}

/// The binary16 at p, at any alignment.
KVDECODE_INLINE float load_f16(const std::byte* p) {
  std::uint16_t half;
  std::memcpy(&half, p, sizeof half);
#if defined(EIGEN_VECTORIZE) && defined(__F16C__)
  return _cvtsh_ss(half);
#else
  return f16_to_f32(half);
#endif
}

/// A float in memory, in all lanes.
KVDECODE_INLINE Lanes<float> broadcast(const float& x) {
#if defined(EIGEN_VECTORIZE_AVX512)
  // The instruction for integers: that for floats, which compilers take, has to wait for a unit that shuffles (Zen 4).
  Lanes<float> lanes;
  asm("vpbroadcastd\t{%1, %0|%0, %1}" : "=v"(lanes.r[0]) : "m"(x));
  return lanes;
#else
  return Lanes<float>::set1(x);
#endif
}

/// scale * code + minimum, of codes and scales of so few bits that their product is exact: one rounding or two, it is the
/// same number.
KVDECODE_INLINE Lanes<float> scale_and_shift(const Lanes<float>& code, const Lanes<float>& scale,
                                             const Lanes<float>& minimum) {
#if KVDECODE_HAS_FMA
  return fma(scale, code, minimum);
#else
  return add(mul(scale, code), minimum);
#endif
}

/// R binary16s, the first at p and each `stride` bytes after the one before, as floats.
template <int R>
struct Column {
  static constexpr bool kIsFast = false;
};
#if defined(EIGEN_VECTORIZE_AVX2) && defined(__F16C__)
namespace detail {
KVDECODE_INLINE short load_short(const std::byte* p) {
  short h;
  std::memcpy(&h, p, sizeof h);
  return h;
}
}  // namespace detail
template <>
struct Column<4> {
  static constexpr bool kIsFast = true;
  __m128 v;

  static KVDECODE_INLINE Column load(const std::byte* p, Index stride) {
    const auto half = [&](int r) KVDECODE_INLINE_LAMBDA { return detail::load_short(p + r * stride); };
    return {_mm_cvtph_ps(_mm_setr_epi16(half(0), half(1), half(2), half(3), 0, 0, 0, 0))};
  }
  KVDECODE_INLINE void storeu(float* out) const { _mm_storeu_ps(out, v); }
};
template <>
struct Column<8> {
  static constexpr bool kIsFast = true;
  __m256 v;

  static KVDECODE_INLINE Column load(const std::byte* p, Index stride) {
    const auto half = [&](int r) KVDECODE_INLINE_LAMBDA { return detail::load_short(p + r * stride); };
    return {_mm256_cvtph_ps(
        _mm_setr_epi16(half(0), half(1), half(2), half(3), half(4), half(5), half(6), half(7)))};
  }
  KVDECODE_INLINE void storeu(float* out) const { _mm256_storeu_ps(out, v); }
};
#endif

/// Has what lies there read from memory, wherever it was computed.
template <class T>
KVDECODE_INLINE void keep_in_memory(T& object) {
  asm("" : "+m"(object));
}

/// The binary16 at p in lanes 0 … 7, minus the one behind it in the others.
KVDECODE_INLINE Lanes<float> plus_and_minus_f16(const std::byte* p) {
  Lanes<float> lanes;
#if defined(EIGEN_VECTORIZE_AVX512)
  const __m128i sign_of_second = _mm_cvtsi32_si128(static_cast<int>(0x80000000u));
  const __m128 both = _mm_cvtph_ps(_mm_xor_si128(_mm_loadu_si32(p), sign_of_second));
  const __m512i places = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  lanes.r[0] = _mm512_maskz_permutexvar_ps(0xffff, places, _mm512_zextps128_ps512(both));
#else
  const float first = load_f16(p), second = -load_f16(p + 2);
  Lanes<float>::each([&](auto i) KVDECODE_INLINE_LAMBDA {
    lanes.r[i] = Lanes<float>::R::set1(i * Lanes<float>::width < kLanes / 2 ? first : second);
  });
#endif
  return lanes;
}

/// The finite binary16 at p times 2^-112, in all lanes: no more than its bits moved, by way of memory. Widening and
/// spreading a register would wait for the units that multiply, which are busy where blocks are unpacked.
KVDECODE_INLINE Lanes<float> broadcast_small_f16(const std::byte* p) {
  std::int16_t half;
  std::memcpy(&half, p, sizeof half);
  // The sign goes to all bits above the others.
  float scale = std::bit_cast<float>(static_cast<std::uint32_t>(half) << 13 & 0x8fffe000u);
  asm("" : "+m"(scale));
  return Lanes<float>::set1(scale);
}

}  // namespace kvdecode::inline KVDECODE_ABI::simd

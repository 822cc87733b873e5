// SPDX-License-Identifier: MIT
// <kvdecode/core/simd/packed_codes.hpp> - codes of two, three or four bits, one after another without gaps, lowest bits
// first, and the numbers that they stand for. Nothing is computed here: every machine gives the same bits.
#pragma once

#include <kvdecode/core/simd/bytes.hpp>
#include <kvdecode/core/simd/lanes.hpp>

#include <cstdint>
#include <cstring>

namespace kvdecode::inline KVDECODE_ABI::simd {

/// Bytes of n codes.
template <int bits>
constexpr Index packed_bytes(Index n) {
  return (n * bits + 7) / 8;
}

/// Code i. Reads no byte without a bit of it.
template <int bits>
KVDECODE_INLINE unsigned packed_code(const std::byte* codes, Index i) {
  const auto first = static_cast<std::size_t>(i) * bits;
  const auto byte = [&](std::size_t at) { return std::to_integer<unsigned>(codes[at]); };
  unsigned word = byte(first / 8) >> (first % 8);
  if (first % 8 + bits > 8) word |= byte(first / 8 + 1) << (8 - first % 8);
  return word & ((1u << bits) - 1u);
}

/// Writes n codes; the last byte is filled up with zeros. @pre each is below 2^bits
template <int bits>
inline void pack_codes(const std::uint8_t* codes, Index n, std::byte* to) noexcept {
  // Eight at a time: neighbours move together, then pairs, then fours.
  constexpr auto lowest = [](int n_bits) { return (std::uint64_t{1} << n_bits) - 1; };
  constexpr std::uint64_t pairs = lowest(2 * bits) * 0x0001000100010001u,
                          fours = lowest(4 * bits) * 0x0000000100000001u;
  const Index n_whole = n / 8 * 8;
  for (Index i = 0; i < n_whole; i += 8, to += bits) {
    std::uint64_t word;
    std::memcpy(&word, codes + i, sizeof word);
    word = (word | word >> (8 - bits)) & pairs;
    word = (word | word >> (16 - 2 * bits)) & fours;
    word |= word >> (32 - 4 * bits);
    std::memcpy(to, &word, bits);
  }
  unsigned pending = 0;
  int n_pending = 0;
  for (Index i = n_whole; i < n; ++i) {
    pending |= static_cast<unsigned>(codes[i]) << n_pending;
    for (n_pending += bits; n_pending >= 8; n_pending -= 8) {
      *to++ = static_cast<std::byte>(pending & 0xffu);
      pending >>= 8;
    }
  }
  if (n_pending > 0) *to = static_cast<std::byte>(pending);
}

namespace detail {

KVDECODE_INLINE int load_word(const std::byte* p) {
  std::int32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

}  // namespace detail

/// table[code] for sixteen codes, which take 2 * bits bytes. @pre the table repeats itself after 2^bits numbers
template <int bits>
KVDECODE_INLINE Lanes<float> pick_packed(const Lanes<float>& table, const std::byte* codes) {
  static_assert(bits >= 2 && bits <= 4);
  // Eight codes lie within 32 bits: codes 0 … 7 in the first four bytes, codes 8 … 15 in the last four (codes of two
  // bits: all of them), from bit `skip` on. What comes from neighbours lies above them, where the table repeats itself
  // or the instruction does not look.
  [[maybe_unused]] constexpr int skip = bits == 3 ? 8 : bits == 2 ? 16 : 0;
#if defined(EIGEN_VECTORIZE_AVX512)
  const __m512i shifts = _mm512_setr_epi32(
      0, bits, 2 * bits, 3 * bits, 4 * bits, 5 * bits, 6 * bits, 7 * bits, skip, skip + bits, skip + 2 * bits,
      skip + 3 * bits, skip + 4 * bits, skip + 5 * bits, skip + 6 * bits, skip + 7 * bits);
  __m512i words = _mm512_set1_epi32(detail::load_word(codes));
  if constexpr (bits > 2)
    words = _mm512_mask_set1_epi32(words, 0xff00, detail::load_word(codes + 2 * bits - 4));
  Lanes<float> numbers;
  numbers.r[0] =
      _mm512_maskz_permutexvar_ps(0xffff, _mm512_maskz_srlv_epi32(0xffff, words, shifts), table.r[0]);
  return numbers;
#elif defined(EIGEN_VECTORIZE_AVX2)
  const __m256i shifts =
      _mm256_setr_epi32(0, bits, 2 * bits, 3 * bits, 4 * bits, 5 * bits, 6 * bits, 7 * bits);
  const __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32(detail::load_word(codes)), shifts);
  const __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32(detail::load_word(codes + 2 * bits - 4)),
                                         _mm256_add_epi32(shifts, _mm256_set1_epi32(skip)));
  const auto pick = [&](const __m256i& indices) KVDECODE_INLINE_LAMBDA {
    const __m256 first = _mm256_permutevar8x32_ps(table.r[0], indices);
    if constexpr (bits < 4) return first;
    const __m256 second = _mm256_permutevar8x32_ps(table.r[1], indices);
    return _mm256_blendv_ps(first, second, _mm256_castsi256_ps(_mm256_slli_epi32(indices, 28)));
  };
  Lanes<float> numbers;
  numbers.r[0] = pick(low);
  numbers.r[1] = pick(high);
  return numbers;
#else
  float from[kLanes], to[kLanes];
  table.storeu(from);
  for (int i = 0; i < kLanes; ++i) to[i] = from[packed_code<bits>(codes, i)];
  return Lanes<float>::loadu(to);
#endif
}

}  // namespace kvdecode::inline KVDECODE_ABI::simd

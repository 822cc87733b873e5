// SPDX-License-Identifier: MIT
// <kvdecode/core/hadamard.hpp> - the Walsh-Hadamard transform of a row, which spreads what is large in one number over
// all of them: rows that are turned so lose less when they are stored in few bits. It keeps lengths and angles, so
// that a query turned alike may meet stored keys as they are, and a weighted sum of values is turned back once.
#pragma once

#include <kvdecode/core/simd/lanes.hpp>

#include <bit>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

/// What is done to a row before it is stored: y = H x / sqrt(n), where H is the n x n Walsh-Hadamard matrix in natural
/// order. Its own inverse.
enum class RowTransform {
  kNone,
  kHadamard,        ///< H
  kSignedHadamard,  ///< H, after the numbers were given signs: rows that H alone leaves uneven become even too
};

/// The longest row that a format turns: its numbers go through memory on the stack.
inline constexpr Index kMaxTurnedRow = 1024;
/// Whether a row of n numbers can be turned.
constexpr bool can_turn(Index n) noexcept {
  return n > 0 && n <= kMaxTurnedRow && std::has_single_bit(static_cast<std::size_t>(n));
}

/// In words, which.
inline constexpr std::string_view kTurnedRows = "a power of two of at most 1024 numbers";

/// (float)(1 / sqrt(n)) of a power of two.
constexpr float inverse_root(Index n) noexcept {
  const int log2 = std::countr_zero(static_cast<std::size_t>(n));
  // Scaling by powers of two is exact.
  const auto bits = std::bit_cast<std::uint32_t>(log2 % 2 == 0 ? 1.0f : 0.707106781186547524f);
  return std::bit_cast<float>(bits - (static_cast<std::uint32_t>(log2 / 2) << 23));
}

namespace detail {

/// Rows of 32, 64 and 128 numbers have signs of their own, bit i of word i / 32 set where number i gets a minus; longer
/// ones have the product of those of 128 at i mod 128 and i / 128, shorter ones begin as those of 32.
struct HadamardSigns {
  static constexpr std::uint32_t k32[] = {0xc5556ac8u};
  static constexpr std::uint32_t k64[] = {0xd841d5ceu, 0xf101a790u};
  static constexpr std::uint32_t k128[] = {0x89000bbdu, 0x515edafbu, 0xebb79b5du, 0x7dac57fdu};

  static constexpr bool bit(const std::uint32_t* words, Index i) noexcept {
    return (words[i / 32] >> (i % 32) & 1u) != 0;
  }
  /// Whether number i of n gets a minus.
  static constexpr bool is_negative(Index n, Index i) noexcept {
    if (n <= 32) return bit(k32, i);
    if (n == 64) return bit(k64, i);
    return bit(k128, i % 128) != (n > 128 && bit(k128, i / 128));
  }
};

template <class S>
void apply_hadamard_signs(S* x, Index n) noexcept {
  for (Index i = 0; i < n; ++i)
    if (HadamardSigns::is_negative(n, i)) x[i] = mul(x[i], S(-1.0f));
}

/// x[i] = x[i] / sqrt(n), by one product.
template <class S>
void scale_by_inverse_root(S* x, Index n) noexcept {
  using R = typename Lanes<S>::R;
  using kvdecode::sqrt;
  const auto factor = static_cast<S>(1.0 / sqrt(static_cast<double>(n)));
  const auto factors = R::set1(factor);
  for_each_register<S>(
      n, [&](Index i) { R::storeu(x + i, R::mul(factors, R::loadu(x + i))); },
      [&](Index i) { x[i] = mul(factor, x[i]); });
}

}  // namespace detail

/// In place: H x by butterflies (a, b) -> (a + b, a - b) of numbers h = 1, 2, 4 … apart, in that order; any width of
/// registers gives these bits. n log2(n) sums. @pre n is a power of two
template <class S>
void hadamard(S* x, Index n) noexcept {
  using R = typename Lanes<S>::R;
  Index h = 1;
  if constexpr (R::width > 1) {
    if (n >= R::width) {
      for (Index i = 0; i < n; i += R::width) R::storeu(x + i, simd::butterflies_within<S>(R::loadu(x + i)));
      h = R::width;
    }
  }
  for (; h < n; h *= 2)
    for (Index first = 0; first < n; first += 2 * h) {
      S* const a = x + first;
      S* const b = a + h;
      for_each_register<S>(
          h,
          [&](Index i) {
            const auto u = R::loadu(a + i), v = R::loadu(b + i);
            R::storeu(a + i, R::add(u, v));
            R::storeu(b + i, R::sub(u, v));
          },
          [&](Index i) {
            const S u = a[i], v = b[i];
            a[i] = u + v;
            b[i] = u - v;
          });
    }
}

/// In place: the row as it is stored. @pre can_turn(n), unless there is nothing to do
template <class S>
void turn_row(RowTransform transform, S* x, Index n) noexcept {
  if (transform == RowTransform::kNone) return;
  if (transform == RowTransform::kSignedHadamard) detail::apply_hadamard_signs(x, n);
  hadamard(x, n);
  detail::scale_by_inverse_root(x, n);
}
/// In place: a stored row, or a weighted sum of some, as it was. @pre likewise
template <class S>
void turn_row_back(RowTransform transform, S* x, Index n) noexcept {
  if (transform == RowTransform::kNone) return;
  hadamard(x, n);
  detail::scale_by_inverse_root(x, n);
  if (transform == RowTransform::kSignedHadamard) detail::apply_hadamard_signs(x, n);
}

}  // namespace kvdecode

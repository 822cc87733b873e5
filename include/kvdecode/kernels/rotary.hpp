// SPDX-License-Identifier: MIT
// <kvdecode/kernels/rotary.hpp> - rotary position embedding: angles of a position in double, rounded once,
// and the turn of one head (Su 2021, Eq. 34).
#pragma once

#include <kvdecode/core/elementary.hpp>

namespace kvdecode::inline KVDECODE_ABI {

/// Which two elements of a head turn together, for pair i of rotary_dim / 2.
enum class RotaryPairs {
  kHalves,       ///< i and i + rotary_dim / 2
  kInterleaved,  ///< 2 i and 2 i + 1
};

namespace kernels {

/// Cosines and sines of position * inverse_frequency[i], times a magnitude.
/// @param inverse_frequency, cosine, sine  [n_pairs]  @pre |position * frequency| < 2^30
template <class S>
void rotary_angles(Index position, const double* inverse_frequency, Index n_pairs, S* cosine, S* sine,
                   double magnitude = 1.0) noexcept {
  for (Index i = 0; i < n_pairs; ++i) {
    const SinCos turn = sincos(mul(static_cast<double>(position), inverse_frequency[i]));
    cosine[i] = S(mul(turn.cos, magnitude));
    sine[i] = S(mul(turn.sin, magnitude));
  }
}

/// Turns the first 2 n_pairs elements of one head: (a, b) -> (a cos - b sin, b cos + a sin); the rest is
/// copied.
/// @param x, y  [head_dim], y == x or apart
template <class S>
void rotate(RotaryPairs pairs, const S* x, const S* cosine, const S* sine, Index n_pairs, Index head_dim,
            S* y) noexcept {
  using R1 = simd::Register<S, false>;
  const Index step = pairs == RotaryPairs::kHalves ? 1 : 2;
  const Index partner = pairs == RotaryPairs::kHalves ? n_pairs : 1;
  Index i = 0;
  if (pairs == RotaryPairs::kHalves) {
    using R = typename Lanes<S>::R;
    for (; i + R::width <= n_pairs; i += R::width) {
      const auto a = R::loadu(x + i), b = R::loadu(x + i + n_pairs);
      const auto c = R::loadu(cosine + i), s = R::loadu(sine + i);
      const auto minus_b = R::mul(b, R::set1(S(-1.0f)));
      R::storeu(y + i, R::fma(minus_b, s, R::mul(a, c)));
      R::storeu(y + i + n_pairs, R::fma(b, c, R::mul(a, s)));
    }
  }
  for (; i < n_pairs; ++i) {
    const S a = x[i * step], b = x[i * step + partner];
    y[i * step] = R1::fma(R1::mul(b, S(-1.0f)), sine[i], R1::mul(a, cosine[i]));
    y[i * step + partner] = R1::fma(b, cosine[i], R1::mul(a, sine[i]));
  }
  if (y != x)
    for (Index j = 2 * n_pairs; j < head_dim; ++j) y[j] = x[j];
}

}  // namespace kernels
}  // namespace kvdecode

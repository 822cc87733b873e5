// SPDX-License-Identifier: MIT
// <kvdecode/kernels/activation.hpp> - the non-linearities of feed-forward layers, with the same bits on every
// machine.
#pragma once

#include <kvdecode/core/elementary.hpp>

#include <algorithm>

namespace kvdecode::inline KVDECODE_ABI {

enum class Activation {
  kSilu,         ///< x * sigmoid(x) (Elfwing 2017; Ramachandran 2017)
  kGelu,         ///< x * Phi(x), by erf (Hendrycks & Gimpel 2016)
  kGeluTanh,     ///< its tanh approximation
  kRelu,         ///< max(x, 0)
  kReluSquared,  ///< max(x, 0)^2 (So 2021)
};

namespace kernels {

namespace detail {

/// The activation of one register; R as in core/simd/register.hpp.
template <Activation kind, class R>
KVDECODE_INLINE typename R::type activate(const typename R::type& x) {
  using S = typename R::scalar;
  if constexpr (kind == Activation::kRelu) {
    // A NaN stays. clang 14 makes of this selection NEON's maximum, which turns -0 to +0: the sum does it everywhere.
    const auto zero = R::set1(S(0.0f));
    return R::add(R::lt_select(x, zero, zero, x), zero);
  } else if constexpr (kind == Activation::kReluSquared) {
    const auto positive = activate<Activation::kRelu, R>(x);
    return R::mul(positive, positive);
  } else if constexpr (std::is_floating_point_v<S>) {
    using E = kvdecode::detail::Elementary<R>;
    if constexpr (kind == Activation::kSilu) {
      return R::mul(x, E::sigmoid(x));
    } else if constexpr (kind == Activation::kGelu) {
      return E::gelu(x);
    } else {
      // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
      const auto square = R::mul(x, x);
      const auto inner = R::fma(R::mul(square, x), R::set1(S(0.044715)), x);
      const auto t = E::tanh(R::mul(inner, R::set1(S(0x1.9884533d43651p-1))));
      const auto half = R::mul(x, R::set1(S(0.5f)));
      return R::fma(half, t, half);
    }
  } else {
    // A scalar type of its own: the same formulas by its own elementary functions.
    const S one(1.0f), half(0.5f);
    if constexpr (kind == Activation::kSilu) {
      return x * (one / (one + exp(S(0.0f) - x)));
    } else if constexpr (kind == Activation::kGelu) {
      if constexpr (requires { gelu(x); }) {
        return gelu(x);
      } else {
        const S h = x * half;
        return fma(h, erf(x * S(0x1.6a09e667f3bcdp-1)), h);
      }
    } else {
      const S inner = fma(x * x * x, S(0.044715), x);
      const S h = x * half;
      return fma(h, tanh(inner * S(0x1.9884533d43651p-1)), h);
    }
  }
}

template <Activation kind, class S>
void activate_row(const S* x, const S* factor, Index n, S* y) noexcept {
  using R = typename Lanes<S>::R;
  const auto whole = [&](const S* from, const S* by, S* to) KVDECODE_INLINE_LAMBDA {
    auto v = activate<kind, R>(R::loadu(from));
    if (by != nullptr) v = R::mul(v, R::loadu(by));
    R::storeu(to, v);
  };
  const Index n_whole = n / R::width * R::width;
  for (Index i = 0; i < n_whole; i += R::width) whole(x + i, factor == nullptr ? nullptr : factor + i, y + i);
  if (n_whole == n) return;
  S rest[3][R::width] = {};  // x, factor, y: lanes past the end compute what nobody reads
  for (Index i = n_whole; i < n; ++i) {
    rest[0][i - n_whole] = x[i];
    rest[1][i - n_whole] = factor == nullptr ? S(1.0f) : factor[i];
  }
  whole(rest[0], factor == nullptr ? nullptr : rest[1], rest[2]);
  std::copy_n(rest[2], n - n_whole, y + n_whole);
}

}  // namespace detail

/// y = act(x), or act(x) * factor (gated units, Shazeer 2020). May be in place.
/// @param x, y, factor  [n]; factor may be null
template <class S>
void activate(Activation kind, const S* x, const S* factor, Index n, S* y) noexcept {
  switch (kind) {
    case Activation::kSilu: return detail::activate_row<Activation::kSilu>(x, factor, n, y);
    case Activation::kGelu: return detail::activate_row<Activation::kGelu>(x, factor, n, y);
    case Activation::kGeluTanh: return detail::activate_row<Activation::kGeluTanh>(x, factor, n, y);
    case Activation::kRelu: return detail::activate_row<Activation::kRelu>(x, factor, n, y);
    case Activation::kReluSquared: return detail::activate_row<Activation::kReluSquared>(x, factor, n, y);
  }
}

}  // namespace kernels
}  // namespace kvdecode

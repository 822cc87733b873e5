// SPDX-License-Identifier: MIT
// <kvdecode/kernels/norm.hpp> - RMSNorm and LayerNorm of one row.
#pragma once

#include <kvdecode/core/scalar.hpp>
#include <kvdecode/core/sums.hpp>

namespace kvdecode::inline KVDECODE_ABI {

enum class NormKind {
  kRms,    ///< x / rms(x) * w (Zhang & Sennrich 2019)
  kLayer,  ///< (x - mean) / deviation * w + b (Ba 2016)
};

namespace kernels {

/// y = x / sqrt(mean(x^2) + eps) * w. May be in place.
/// @param x, y, w  [n]
template <class S>
void rms_norm(const S* x, const S* w, S eps, Index n, S* y) noexcept {
  using kvdecode::sqrt;
  const S mean = dot(x, x, n) / S(static_cast<double>(n));
  const S inverse = S(1.0f) / sqrt(mean + eps);
  using R = typename Lanes<S>::R;
  const auto scale = R::set1(inverse);
  for_each_register<S>(
      n, [&](Index i) { R::storeu(y + i, R::mul(R::mul(R::loadu(x + i), scale), R::loadu(w + i))); },
      [&](Index i) { y[i] = mul(mul(x[i], inverse), w[i]); });
}

/// y = (x - mean(x)) / sqrt(variance(x) + eps) * w + b. May be in place.
/// @param x, y, w, b  [n]; b may be null
template <class S>
void layer_norm(const S* x, const S* w, const S* b, S eps, Index n, S* y) noexcept {
  using kvdecode::sqrt;
  const S count = S(static_cast<double>(n));
  const S mean = sum(x, n) / count;
  for (Index i = 0; i < n; ++i) y[i] = x[i] - mean;
  const S inverse = S(1.0f) / sqrt(dot(y, y, n) / count + eps);
  using R = typename Lanes<S>::R;
  using R1 = simd::Register<S, false>;
  const auto scale = R::set1(inverse);
  for_each_register<S>(
      n,
      [&](Index i) {
        const auto normal = R::mul(R::loadu(y + i), scale);
        R::storeu(y + i, b == nullptr ? R::mul(normal, R::loadu(w + i))
                                      : R::fma(normal, R::loadu(w + i), R::loadu(b + i)));
      },
      [&](Index i) {
        const S normal = mul(y[i], inverse);
        y[i] = b == nullptr ? mul(normal, w[i]) : R1::fma(normal, w[i], b[i]);
      });
}

}  // namespace kernels
}  // namespace kvdecode

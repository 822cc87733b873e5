// SPDX-License-Identifier: MIT
// <reference/norms.hpp> - RMSNorm and LayerNorm of one row. An empty weight is all ones, an empty bias all
// zeros.
#pragma once

#include <reference/numbers.hpp>

#include <cmath>
#include <cstddef>

namespace kvdecode_reference {

inline Vector scale_and_shift(Vector x, const Vector& weight, const Vector& bias) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!weight.empty()) x[i] *= weight[i];
    if (!bias.empty()) x[i] += bias[i];
  }
  return x;
}

/// y_i = x_i / sqrt(mean over j of x_j^2 + eps) * w_i (Zhang & Sennrich 2019, Eq. 4, with eps), + b_i.
inline Vector rms_norm(const Vector& x, const Vector& weight, const Vector& bias, double eps) {
  const auto n = static_cast<double>(x.size());
  double sum_of_squares = 0.0;
  for (const double value : x) sum_of_squares += value * value;
  const double rms = std::sqrt(sum_of_squares / n + eps);
  Vector y;
  for (const double value : x) y.push_back(value / rms);
  return scale_and_shift(y, weight, bias);
}

/// y_i = (x_i - mean) / sqrt(variance + eps) * w_i + b_i, variance = mean over j of (x_j - mean)^2 (Ba 2016).
inline Vector layer_norm(const Vector& x, const Vector& weight, const Vector& bias, double eps) {
  const auto n = static_cast<double>(x.size());
  double mean = 0.0;
  for (const double value : x) mean += value / n;
  double variance = 0.0;
  for (const double value : x) variance += (value - mean) * (value - mean) / n;
  Vector y;
  for (const double value : x) y.push_back((value - mean) / std::sqrt(variance + eps));
  return scale_and_shift(y, weight, bias);
}

}  // namespace kvdecode_reference

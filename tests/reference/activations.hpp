// SPDX-License-Identifier: MIT
// <reference/activations.hpp> - the activations of the feed-forward, and softmax.
#pragma once

#include <reference/numbers.hpp>

#include <kvdecode/model/config.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace kvdecode_reference {

using kvdecode::Activation;

/// 1 / (1 + e^-x)
inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// x * sigmoid(x) (Elfwing 2017)
inline double silu(double x) { return x * sigmoid(x); }

/// x * Phi(x), Phi(x) = erfc(-x / sqrt 2) / 2 being the normal distribution (Hendrycks & Gimpel 2016). erfc,
/// since 1 + erf(x / sqrt 2) cancels for negative x.
inline double gelu(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }

/// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) (Hendrycks & Gimpel 2016, section 2)
inline double gelu_tanh(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

/// max(x, 0)
inline double relu(double x) { return std::max(x, 0.0); }

/// max(x, 0)^2 (So 2021)
inline double relu_squared(double x) { return relu(x) * relu(x); }

inline double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu: return silu(x);
    case Activation::kGelu: return gelu(x);
    case Activation::kGeluTanh: return gelu_tanh(x);
    case Activation::kRelu: return relu(x);
    case Activation::kReluSquared: return relu_squared(x);
  }
  throw std::invalid_argument("reference: unknown activation");
}

/// p_i = e^(x_i - m) / sum over j of e^(x_j - m), for any m; the largest x keeps e^ from overflowing.
inline Vector softmax(const Vector& x) {
  const double m = *std::max_element(x.begin(), x.end());
  double total = 0.0;
  for (const double value : x) total += std::exp(value - m);
  Vector p;
  for (const double value : x) p.push_back(std::exp(value - m) / total);
  return p;
}

}  // namespace kvdecode_reference

// SPDX-License-Identifier: MIT
// <reference/rotary.hpp> - rotary position embedding (Su 2021): frequencies with their scalings, and the
// rotation of one head's query or key.
#pragma once

#include <reference/numbers.hpp>

#include <kvdecode/model/config.hpp>

#include <cmath>
#include <numbers>
#include <stdexcept>

namespace kvdecode_reference {

using kvdecode::RotaryConfig;
using kvdecode::RotaryPairs;
using kvdecode::RotaryScaling;
using kvdecode::RotaryScalingKind;

/// A frequency (radians a position) after scaling.
/// kLinear: f / factor (position interpolation, Chen 2023).
/// kLlama3 (Llama Team 2024, after Peng 2023, "NTK-by-parts"): turns = original_max_seq_len * f / (2 pi) is
/// how often the pair turned within the length trained on. From high_freq_factor turns on f is kept, up to
/// low_freq_factor turns it is divided by factor, and between them
/// f' = (1 - s) f / factor + s f with s = (turns - low) / (high - low).
inline double scaled_frequency(double f, const RotaryScaling& scaling) {
  switch (scaling.kind) {
    case RotaryScalingKind::kNone: return f;
    case RotaryScalingKind::kLinear: return f / scaling.factor;
    case RotaryScalingKind::kLlama3: {
      const double low = scaling.low_freq_factor;
      const double high = scaling.high_freq_factor;
      const double turns = static_cast<double>(scaling.original_max_seq_len) * f / (2.0 * std::numbers::pi);
      if (turns >= high) return f;
      if (turns <= low) return f / scaling.factor;
      const double s = (turns - low) / (high - low);
      return (1.0 - s) * f / scaling.factor + s * f;
    }
    case RotaryScalingKind::kDynamic:
    case RotaryScalingKind::kYarn:
    case RotaryScalingKind::kLongrope:
    case RotaryScalingKind::kDivisors: break;
  }
  throw std::invalid_argument("reference: unknown rotary scaling");
}

/// The frequency of each pair i of a head of `head_dim` elements: theta^(-2 i / dim) (Su 2021, Eq. 15),
/// scaled. [dim / 2]
inline Vector inv_freq(const RotaryConfig& rotary, Index head_dim) {
  const Index dim = rotary.dim == 0 ? head_dim : rotary.dim;
  Vector result;
  for (Index i = 0; i < dim / 2; ++i) {
    const double f = std::pow(rotary.theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    result.push_back(scaled_frequency(f, rotary.scaling));
  }
  return result;
}

/// One head x turned to `position`: each pair (a, b) becomes (a cos t - b sin t, a sin t + b cos t),
/// t = position * inv_freq_i (Su 2021, Eq. 34). Elements beyond the pairs stay.
inline Vector rotate(Vector x, Index position, const RotaryConfig& rotary) {
  const Vector frequencies = inv_freq(rotary, static_cast<Index>(x.size()));
  const auto n_pairs = static_cast<Index>(frequencies.size());
  for (Index i = 0; i < n_pairs; ++i) {
    const bool halves = rotary.pairs == RotaryPairs::kHalves;
    double& first = x[at(halves ? i : 2 * i)];
    double& second = x[at(halves ? i + n_pairs : 2 * i + 1)];
    const double angle = static_cast<double>(position) * frequencies[at(i)];
    const double a = first;
    const double b = second;
    first = a * std::cos(angle) - b * std::sin(angle);
    second = a * std::sin(angle) + b * std::cos(angle);
  }
  return x;
}

}  // namespace kvdecode_reference

// SPDX-License-Identifier: MIT
// <reference/rotary.hpp> - rotary position embedding (Su 2021): frequencies with their scalings, and the
// rotation of one head's query or key.
#pragma once

#include <reference/numbers.hpp>

#include <kvdecode/model/config.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace kvdecode_reference {

using kvdecode::RotaryConfig;
using kvdecode::RotaryPairs;
using kvdecode::RotaryScaling;
using kvdecode::RotaryScalingKind;

/// A frequency (radians a position) after a scaling that asks for nothing but the frequency.
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
    case RotaryScalingKind::kDivisors:
    case RotaryScalingKind::kProportional: break;
  }
  throw std::invalid_argument("reference: unknown rotary scaling");
}

/// The part of pair i that is divided by factor under kYarn (Peng 2023, section 3.3; its bounds by dimension as in
/// the authors' program): 0 up to the pair that turns beta_fast times within the length trained on, 1 from the one
/// that turns beta_slow times, a straight line between. Pair x turns n times where
/// original_max_seq_len * theta^(-2 x / dim) = 2 pi n.
inline double yarn_divided_part(const RotaryConfig& rotary, Index dim, Index i) {
  const RotaryScaling& scaling = rotary.scaling;
  const auto pair_that_turns = [&](double n) {
    const double f = 2.0 * std::numbers::pi * n / static_cast<double>(scaling.original_max_seq_len);
    return -0.5 * static_cast<double>(dim) * std::log(f) / std::log(rotary.theta);
  };
  double first = pair_that_turns(scaling.beta_fast);
  double last = pair_that_turns(scaling.beta_slow);
  if (scaling.round_bounds) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(dim - 1));
  const auto x = static_cast<double>(i);
  if (first == last) return x <= first ? 0.0 : 1.0;
  return std::clamp((x - first) / (last - first), 0.0, 1.0);
}

/// theta of a sequence that is `epoch` positions longer than original_max_seq_len, under kDynamic:
/// theta (factor L / original - (factor - 1))^(dim / (dim - 2)).
inline double dynamic_theta(const RotaryConfig& rotary, Index dim, Index epoch) {
  const auto original = static_cast<double>(rotary.scaling.original_max_seq_len);
  const double length = original + static_cast<double>(epoch);
  const double stretch = rotary.scaling.factor * length / original - (rotary.scaling.factor - 1.0);
  return rotary.theta * std::pow(stretch, static_cast<double>(dim) / static_cast<double>(dim - 2));
}

/// The frequency of each pair i of a head of `head_dim` elements: theta^(-2 i / dim) (Su 2021, Eq. 15),
/// scaled. Under kDynamic and kLongrope it depends on the sequence's length: `epoch` is how much longer than
/// original_max_seq_len it is, or whether it is. [dim / 2]
inline Vector inv_freq(const RotaryConfig& rotary, Index head_dim, Index epoch = 0) {
  const RotaryScaling& scaling = rotary.scaling;
  const Index dim = rotary.dim == 0 ? head_dim : rotary.dim;
  const bool is_dynamic = scaling.kind == RotaryScalingKind::kDynamic;
  const double theta = is_dynamic ? dynamic_theta(rotary, dim, epoch) : rotary.theta;
  Vector result;
  for (Index i = 0; i < dim / 2; ++i) {
    const double f = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    switch (scaling.kind) {
      case RotaryScalingKind::kDynamic: result.push_back(f); break;
      case RotaryScalingKind::kYarn: {
        const double divided = yarn_divided_part(rotary, dim, i);
        result.push_back(divided * f / scaling.factor + (1.0 - divided) * f);
        break;
      }
      case RotaryScalingKind::kLongrope:
        result.push_back(f / (epoch > 0 ? scaling.long_factors : scaling.short_factors)[at(i)]);
        break;
      case RotaryScalingKind::kProportional:
        result.push_back(i < scaling.n_turning ? f / scaling.factor : 0.0);
        break;
      case RotaryScalingKind::kDivisors: result.push_back(f / scaling.short_factors[at(i)]); break;
      default: result.push_back(scaled_frequency(f, scaling));
    }
  }
  return result;
}

/// The epoch of a sequence of seq_len positions: what inv_freq() has to know of its length.
inline Index epoch_of(const RotaryConfig& rotary, Index seq_len) {
  const Index longer = seq_len - rotary.scaling.original_max_seq_len;
  switch (rotary.scaling.kind) {
    case RotaryScalingKind::kDynamic: return longer > 0 ? longer : 0;
    case RotaryScalingKind::kLongrope: return longer > 0 ? 1 : 0;
    default: return 0;
  }
}

/// One head x turned to `position`: each pair (a, b) becomes (a cos t - b sin t, a sin t + b cos t),
/// t = position * inv_freq_i (Su 2021, Eq. 34), times the scaling's magnitude. Elements beyond the pairs stay.
inline Vector rotate(Vector x, Index position, const RotaryConfig& rotary, Index epoch = 0) {
  if (!rotary.enabled) return x;
  const Vector frequencies = inv_freq(rotary, static_cast<Index>(x.size()), epoch);
  const auto n_pairs = static_cast<Index>(frequencies.size());
  for (Index i = 0; i < n_pairs; ++i) {
    const bool halves = rotary.pairs == RotaryPairs::kHalves;
    double& first = x[at(halves ? i : 2 * i)];
    double& second = x[at(halves ? i + n_pairs : 2 * i + 1)];
    const double angle = static_cast<double>(position) * frequencies[at(i)];
    const double a = rotary.scaling.magnitude * first;
    const double b = rotary.scaling.magnitude * second;
    first = a * std::cos(angle) - b * std::sin(angle);
    second = a * std::sin(angle) + b * std::cos(angle);
  }
  return x;
}

}  // namespace kvdecode_reference

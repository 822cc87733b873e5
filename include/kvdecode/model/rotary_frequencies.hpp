// SPDX-License-Identifier: MIT
// <kvdecode/model/rotary_frequencies.hpp> - the angular frequencies of rotary pairs, in double, in every scaling.
#pragma once

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/model/config.hpp>

#include <algorithm>
#include <cmath>

namespace kvdecode::inline KVDECODE_ABI {

namespace detail {

inline constexpr double kTwoPi = 0x1.921fb54442d18p+2;

/// The pair, as a real number, that turns `turns` times within the original length (Peng 2023, Eq. 17).
inline double yarn_dimension(const RotaryConfig& config, Index dim, double turns) {
  const double length = static_cast<double>(config.scaling.original_max_seq_len);
  return mul(static_cast<double>(dim), log(length / mul(turns, kTwoPi))) / mul(2.0, log(config.theta));
}

/// 0 for pairs that keep their frequency, 1 for those divided by the factor, a ramp between.
inline double yarn_ramp(const RotaryConfig& config, Index dim, Index pair) {
  double low = yarn_dimension(config, dim, config.scaling.beta_fast);
  double high = yarn_dimension(config, dim, config.scaling.beta_slow);
  if (config.scaling.round_bounds) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high = high + 0.001;
  return std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
}

}  // namespace detail

/// Radians a position of each pair: theta^(-2 i / dim), scaled as the config says.
/// @param dim    elements of a head that turn
/// @param epoch  ModelConfig::rotary_epoch() of the sequence
/// @param out    [dim / 2]
inline void rotary_frequencies(const RotaryConfig& config, Index dim, Index epoch, double* out) {
  const RotaryScaling& scaling = config.scaling;
  double theta = config.theta;
  if (scaling.kind == RotaryScalingKind::kDynamic && epoch > 0) {
    const double original = static_cast<double>(scaling.original_max_seq_len);
    const double length = static_cast<double>(scaling.original_max_seq_len + epoch);
    const double stretch = mul(scaling.factor, length) / original - (scaling.factor - 1.0);
    theta = mul(theta, pow(stretch, static_cast<double>(dim) / static_cast<double>(dim - 2)));
  }
  for (Index i = 0; i < dim / 2; ++i) {
    double f = 1.0 / pow(theta, static_cast<double>(2 * i) / static_cast<double>(dim));
    switch (scaling.kind) {
      case RotaryScalingKind::kNone:
      case RotaryScalingKind::kDynamic: break;
      case RotaryScalingKind::kLinear: f = f / scaling.factor; break;
      case RotaryScalingKind::kYarn: {
        const double ramp = detail::yarn_ramp(config, dim, i);
        f = fma(f / scaling.factor, ramp, mul(f, 1.0 - ramp));
        break;
      }
      case RotaryScalingKind::kLongrope:
        f = f / (epoch == 0 ? scaling.short_factors : scaling.long_factors)[static_cast<std::size_t>(i)];
        break;
      case RotaryScalingKind::kProportional: f = i < scaling.n_turning ? f / scaling.factor : 0.0; break;
      case RotaryScalingKind::kDivisors: f = f / scaling.short_factors[static_cast<std::size_t>(i)]; break;
      case RotaryScalingKind::kLlama3: {
        const double turns = static_cast<double>(scaling.original_max_seq_len) / (detail::kTwoPi / f);
        if (turns < scaling.low_freq_factor) {
          f = f / scaling.factor;
        } else if (turns <= scaling.high_freq_factor) {
          const double smooth =
              (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
          f = fma(1.0 - smooth, f / scaling.factor, mul(smooth, f));
        }
        break;
      }
    }
    out[i] = f;
  }
}

}  // namespace kvdecode

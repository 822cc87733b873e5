// SPDX-License-Identifier: MIT
// <kvdecode/model/rotary_frequencies.hpp> - the angular frequencies of a model's rotary pairs, in double.
#pragma once

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/model/config.hpp>

namespace kvdecode::inline KVDECODE_ABI {

/// Radians a position of each pair: theta^(-2 i / rotary_dim), scaled as the config says. [rotary_dim / 2]
inline Vector<double> rotary_frequencies(const ModelConfig& config) {
  constexpr double two_pi = 0x1.921fb54442d18p+2;
  const RotaryScaling& scaling = config.rotary.scaling;
  const Index dim = config.rotary_dim();
  Vector<double> frequencies(static_cast<std::size_t>(dim / 2));
  for (Index i = 0; i < dim / 2; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(dim);
    double f = 1.0 / pow(config.rotary.theta, exponent);
    if (scaling.kind == RotaryScalingKind::kLinear) {
      f = f / scaling.factor;
    } else if (scaling.kind == RotaryScalingKind::kLlama3) {
      // Wave lengths beyond original / low are stretched, those below original / high kept, a blend between.
      const double turns = static_cast<double>(scaling.original_max_seq_len) / (two_pi / f);
      if (turns < scaling.low_freq_factor) {
        f = f / scaling.factor;
      } else if (turns <= scaling.high_freq_factor) {
        const double smooth =
            (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
        f = fma(1.0 - smooth, f / scaling.factor, mul(smooth, f));
      }
    }
    frequencies[static_cast<std::size_t>(i)] = f;
  }
  return frequencies;
}

}  // namespace kvdecode

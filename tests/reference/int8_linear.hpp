// SPDX-License-Identifier: MIT
// <reference/int8_linear.hpp> - activations rounded to signed bytes, and a product of them.
#pragma once

#include <reference/numbers.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace kvdecode_reference {

/// What is left of x when each block of 32 is rounded to whole multiples of its largest magnitude / 127.
inline Vector rounded_to_int8(const Vector& x) {
  Vector rounded;
  for (std::size_t first = 0; first < x.size(); first += 32) {
    const std::size_t end = std::min(x.size(), first + 32);
    double largest = 0.0;
    for (std::size_t k = first; k < end; ++k) largest = std::max(largest, std::fabs(x[k]));
    const double step = largest / 127.0;
    for (std::size_t k = first; k < end; ++k)
      rounded.push_back(step == 0.0 ? 0.0 : step * std::nearbyint(x[k] / step));
  }
  return rounded;
}

}  // namespace kvdecode_reference

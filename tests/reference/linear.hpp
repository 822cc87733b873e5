// SPDX-License-Identifier: MIT
// <reference/linear.hpp> - matrix times vector, and sums of vectors.
#pragma once

#include <reference/numbers.hpp>

#include <cstddef>

namespace kvdecode_reference {

/// y = W x + b: y_r = sum over c of W_rc x_c, + b_r. An empty b is none.
inline Vector linear(const Rows& w, const Vector& b, const Vector& x) {
  Vector y;  // [rows of w]
  for (std::size_t r = 0; r < w.size(); ++r) {
    double sum = 0.0;
    for (std::size_t c = 0; c < x.size(); ++c) sum += w[r][c] * x[c];
    y.push_back(b.empty() ? sum : sum + b[r]);
  }
  return y;
}

/// linear() of each row of x.
inline Rows linear(const Rows& w, const Vector& b, const Rows& x) {
  Rows y;
  for (const Vector& row : x) y.push_back(linear(w, b, row));
  return y;
}

inline Vector sum(const Vector& a, const Vector& b) {
  Vector result;
  for (std::size_t i = 0; i < a.size(); ++i) result.push_back(a[i] + b[i]);
  return result;
}

inline Rows sum(const Rows& a, const Rows& b) {
  Rows result;
  for (std::size_t i = 0; i < a.size(); ++i) result.push_back(sum(a[i], b[i]));
  return result;
}

}  // namespace kvdecode_reference

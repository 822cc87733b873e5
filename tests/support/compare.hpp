// SPDX-License-Identifier: MIT
// <support/compare.hpp> - checks of many numbers at once for doctest: near the expected ones, or the same
// bits. A failure is reported at the caller's line with the place and both values.
#pragma once

#include <kvdecode/core/types.hpp>
#include <kvdecode/core/view.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace kvdecode_test {

using kvdecode::Index;
using kvdecode::RowsView;

/// What rounding may change: c * epsilon * magnitude. c counts the roundings on the way to a number, and
/// magnitude is the largest number that is rounded.
template <class T>
double tolerance(double c, double magnitude = 1.0) {
  return c * static_cast<double>(std::numeric_limits<T>::epsilon()) * magnitude;
}

/// The largest |x|: of a range of numbers, or of rows of them.
template <class Numbers>
double magnitude(const Numbers& numbers) {
  double result = 0.0;
  for (const auto& x : numbers) {
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(x)>>)
      result = std::max(result, std::abs(static_cast<double>(x)));
    else
      result = std::max(result, magnitude(x));
  }
  return result;
}

/// Rows of numbers as doubles, from a RowsView, a range of rows, or a range of numbers (one row).
template <class T>
std::vector<std::vector<double>> as_rows(const RowsView<T>& view) {
  std::vector<std::vector<double>> rows;
  for (Index i = 0; i < view.rows; ++i) {
    rows.emplace_back();
    for (Index c = 0; c < view.cols; ++c) rows.back().push_back(static_cast<double>(view.row(i)[c]));
  }
  return rows;
}
template <class Numbers>
std::vector<std::vector<double>> as_rows(const Numbers& numbers) {
  std::vector<std::vector<double>> rows;
  if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(*std::begin(numbers))>>) {
    rows.emplace_back();
    for (const auto& x : numbers) rows.back().push_back(static_cast<double>(x));
  } else {
    for (const auto& row : numbers) rows.push_back(as_rows(row)[0]);
  }
  return rows;
}

/// Empty if every |actual - expected| <= bound; else what differs: how many, the first, and the worst.
/// Equal infinities are near each other; a NaN is near nothing.
inline std::string describe_distance(const std::vector<std::vector<double>>& actual,
                                     const std::vector<std::vector<double>>& expected, double bound) {
  std::ostringstream text;
  text.precision(17);
  if (actual.size() != expected.size()) {
    text << actual.size() << " rows, expected " << expected.size();
    return text.str();
  }
  Index n_far = 0;
  double worst = -1.0;
  std::string first_text;
  std::string worst_text;
  for (std::size_t r = 0; r < expected.size(); ++r) {
    if (actual[r].size() != expected[r].size()) {
      text << "row " << r << " has " << actual[r].size() << " columns, expected " << expected[r].size();
      return text.str();
    }
    for (std::size_t c = 0; c < expected[r].size(); ++c) {
      const double a = actual[r][c];
      const double e = expected[r][c];
      if (a == e || std::abs(a - e) <= bound) continue;
      ++n_far;
      const double distance = std::isnan(a - e) ? std::numeric_limits<double>::infinity() : std::abs(a - e);
      if (distance <= worst) continue;
      worst = distance;
      std::ostringstream place;
      place.precision(17);
      place << "row " << r << ", column " << c << ": " << a << ", expected " << e << ", distance "
            << std::abs(a - e);
      worst_text = place.str();
      if (n_far == 1) first_text = worst_text;
    }
  }
  if (n_far == 0) return {};
  text << n_far << " numbers further than " << bound << " from the expected ones\n  first: " << first_text
       << "\n  worst: " << worst_text;
  return text.str();
}

/// Checks that every number is within `bound` of the expected one. Both are a RowsView, a range of rows, or a
/// range of numbers.
template <class Actual, class Expected>
void check_close(const Actual& actual, const Expected& expected, double bound,
                 const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const std::string difference = describe_distance(as_rows(actual), as_rows(expected), bound);
  if (difference.empty())
    CHECK(difference.empty());  // counted as an assertion
  else
    ADD_FAIL_CHECK_AT(file, line, difference);
}

/// The object's bytes as one hexadecimal number.
template <class T>
std::string hex(const T& object) {
  unsigned char bytes[sizeof(T)];
  std::memcpy(bytes, &object, sizeof(T));
  std::string text = "0x";
  for (std::size_t i = sizeof(T); i-- > 0;) {
    text += "0123456789abcdef"[bytes[i] / 16];
    text += "0123456789abcdef"[bytes[i] % 16];
  }
  return text;
}

/// Empty if all bytes are equal; else how many elements differ and the first that does.
template <class T>
std::string describe_bits(const T* actual, std::size_t n_actual, const T* expected, std::size_t n_expected) {
  std::ostringstream text;
  text.precision(17);
  if (n_actual != n_expected) {
    text << n_actual << " elements, expected " << n_expected;
    return text.str();
  }
  Index n_different = 0;
  std::size_t first = 0;
  for (std::size_t i = n_actual; i-- > 0;) {
    if (std::memcmp(actual + i, expected + i, sizeof(T)) == 0) continue;
    ++n_different;
    first = i;
  }
  if (n_different == 0) return {};
  text << n_different << " of " << n_actual << " elements differ\n  first: index " << first << ": "
       << hex(actual[first]) << ", expected " << hex(expected[first]);
  if constexpr (std::is_arithmetic_v<T>)
    text << " (" << actual[first] << ", expected " << expected[first] << ")";
  return text.str();
}

/// Checks that two contiguous ranges hold the same bytes.
template <class Actual, class Expected>
void check_same_bits(const Actual& actual, const Expected& expected, const char* file = __builtin_FILE(),
                     int line = __builtin_LINE()) {
  using T = std::remove_cvref_t<decltype(*std::data(actual))>;
  static_assert(std::is_same_v<T, std::remove_cvref_t<decltype(*std::data(expected))>>,
                "the bits of two different types are not compared");
  static_assert(std::is_trivially_copyable_v<T>);
  const std::string difference =
      describe_bits<T>(std::data(actual), std::size(actual), std::data(expected), std::size(expected));
  if (difference.empty())
    CHECK(difference.empty());  // counted as an assertion
  else
    ADD_FAIL_CHECK_AT(file, line, difference);
}

}  // namespace kvdecode_test

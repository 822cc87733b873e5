// SPDX-License-Identifier: MIT
#include <support/canonical.hpp>
#include <support/compare.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/core/counting.hpp>
#include <kvdecode/core/sums.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace {

using kvdecode::Counting;
using kvdecode::Index;
using kvdecode_test::canonical_dot;
using kvdecode_test::canonical_sum;
using kvdecode_test::check_close;
using kvdecode_test::check_same_bits;
using kvdecode_test::draws;
using kvdecode_test::FloatClass;
using kvdecode_test::tolerance;

std::vector<Index> lengths() {
  std::vector<Index> result;
  for (Index n = 0; n <= 70; ++n) result.push_back(n);
  for (const Index n : {255, 256, 257, 576}) result.push_back(n);
  return result;
}

TEST_CASE_TEMPLATE("sums: dot and sum keep the canonical order for every length", T, float, double) {
  for (const Index n : lengths()) {
    CAPTURE(n);
    for (const FloatClass c :
         {FloatClass::kOrdinary, FloatClass::kWide, FloatClass::kTiny, FloatClass::kSignedZeros}) {
      CAPTURE(to_string(c));
      const std::vector<T> a = draws<T>(n, 1, c), b = draws<T>(n, 2, c);
      check_same_bits(std::array{kvdecode::dot(a.data(), b.data(), n)},
                      std::array{canonical_dot(a.data(), b.data(), n)});
      check_same_bits(std::array{kvdecode::sum(a.data(), n)}, std::array{canonical_sum(a.data(), n)});
    }
  }
}

TEST_CASE_TEMPLATE("sums: dot is near the sum in long double", T, float, double) {
  for (const Index n : lengths()) {
    CAPTURE(n);
    const std::vector<T> a = draws<T>(n, 3), b = draws<T>(n, 4);
    long double exact = 0, magnitude = 0;
    for (std::size_t k = 0; k < a.size(); ++k) {
      exact += static_cast<long double>(a[k]) * static_cast<long double>(b[k]);
      magnitude += std::abs(static_cast<long double>(a[k]) * static_cast<long double>(b[k]));
    }
    // Each product passes through at most n / 16 + 1 roundings of its lane and 4 of the tree.
    const double c = static_cast<double>(n / 16 + 5) / 2;
    check_close(std::array{kvdecode::dot(a.data(), b.data(), n)}, std::array{static_cast<double>(exact)},
                tolerance<T>(c, static_cast<double>(magnitude)));
  }
}

TEST_CASE_TEMPLATE("sums: operands may lie at any address of their type", T, float, double) {
  const std::vector<T> a = draws<T>(60, 5), b = draws<T>(60, 6);
  const T expected = canonical_dot(a.data(), b.data(), 37);
  for (Index offset = 1; offset < 16; ++offset) {
    CAPTURE(offset);
    std::vector<T> x(static_cast<std::size_t>(offset)), y(static_cast<std::size_t>(17 - offset));
    x.insert(x.end(), a.begin(), a.begin() + 37);
    y.insert(y.end(), b.begin(), b.begin() + 37);
    CHECK(kvdecode::dot(x.data() + offset, y.data() + 17 - offset, 37) == expected);
  }
}

// Every lane is at -0: by products that underflow, each fma(-tiny, tiny, 0) rounding to -0. The tree of
// sixteen -0 is -0; a tail padded with zeros makes its lanes +0, since fma(0, 0, -0) is +0, and the result
// too.
TEST_CASE_TEMPLATE("sums: lanes past the end stay at -0", T, float, double) {
  const T tiny = std::numeric_limits<T>::min();
  const std::vector<T> a(64, -tiny), b(64, tiny);
  for (Index n = 16; n <= 64; ++n) {
    CAPTURE(n);
    const T result = kvdecode::dot(a.data(), b.data(), n);
    CHECK(result == T(0));
    CHECK(std::signbit(result));
  }
  for (Index n = 0; n < 16; ++n) {  // some lane was never touched: +0
    CAPTURE(n);
    CHECK(!std::signbit(kvdecode::dot(a.data(), b.data(), n)));
  }
  const std::vector<T> zeros(64, T(-0.0));
  for (Index n = 0; n <= 64; ++n) CHECK(!std::signbit(kvdecode::sum(zeros.data(), n)));
}

TEST_CASE_TEMPLATE("sums: a scalar of one's own has the bits of its base and counts n fused multiply-adds", T,
                   float, double) {
  using S = Counting<T>;
  for (const Index n : lengths()) {
    CAPTURE(n);
    const std::vector<T> a = draws<T>(n, 7, FloatClass::kWide), b = draws<T>(n, 8, FloatClass::kWide);
    std::vector<S> x(a.begin(), a.end()), y(b.begin(), b.end());
    kvdecode::take_work_counters();
    const S counted = kvdecode::dot(x.data(), y.data(), n);
    const kvdecode::WorkCounters counters = kvdecode::take_work_counters();
    CHECK(counters[kvdecode::Work::kOther] == n);
    CHECK(counters.other_operations == 15);  // the tree
    check_same_bits(std::array{static_cast<T>(static_cast<double>(counted))},
                    std::array{canonical_dot(a.data(), b.data(), n)});
  }
}

}  // namespace

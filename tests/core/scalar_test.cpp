// SPDX-License-Identifier: MIT
// core/scalar.hpp and core/simd/scalar.hpp.
#include <support/random.hpp>

#include <kvdecode/core/scalar.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace {

using kvdecode_test::draw;
using kvdecode_test::FloatClass;
using kvdecode_test::kFloatClasses;
using kvdecode_test::SplitMix64;

struct NotANumber {};
static_assert(kvdecode::Scalar<float> && kvdecode::Scalar<double>);
static_assert(!kvdecode::Scalar<int> && !kvdecode::Scalar<NotANumber> && !kvdecode::Scalar<std::string>);

/// Counts triples of which software and hardware disagree; a NaN is any NaN.
struct Comparison {
  int n_wrong = 0;
  int n_rounded_twice = 0;    // where rounding the sum in double first gives another number
  float a = 0, b = 0, c = 0;  // of the first disagreement

  void operator()(float x, float y, float z) {
    const float expected = std::fma(x, y, z);
    const float actual = kvdecode::detail::software_fma(x, y, z);
    const double product = static_cast<double>(x) * static_cast<double>(y);
    const double sum = product + static_cast<double>(z);
    n_rounded_twice += static_cast<float>(sum) != expected && !std::isnan(expected);
    const bool is_same = std::isnan(expected)
                             ? std::isnan(actual)
                             : std::bit_cast<std::uint32_t>(expected) == std::bit_cast<std::uint32_t>(actual);
    if (!is_same && n_wrong++ == 0) a = x, b = y, c = z;
  }
  void check() const {
    CAPTURE(a);
    CAPTURE(b);
    CAPTURE(c);
    CHECK(n_wrong == 0);
  }
};

TEST_CASE("software fma: special values meet in every triple as IEEE 754 says") {
  using Limits = std::numeric_limits<float>;
  std::vector<float> values;
  for (const float x : {0.0f, 1.0f, 1.5f, Limits::infinity(), Limits::quiet_NaN(), Limits::max(),
                        Limits::min(), Limits::denorm_min(), std::nextafter(Limits::min(), 0.0f), 0x1p-75f,
                        0x1p-23f, 0x1p24f, std::nextafter(1.0f, 2.0f), std::nextafter(1.0f, 0.0f), 0x1p64f}) {
    values.push_back(x);
    values.push_back(-x);
  }
  Comparison compare;
  for (const float a : values)
    for (const float b : values)
      for (const float c : values) compare(a, b, c);
  compare.check();
}

TEST_CASE("software fma: triples of every class of floats, alike and mixed") {
  SplitMix64 random(2);
  Comparison compare;
  for (const FloatClass a : kFloatClasses)
    for (const FloatClass b : kFloatClasses)
      for (const FloatClass c : kFloatClasses)
        for (int i = 0; i < 500; ++i)
          compare(draw<float>(random, a), draw<float>(random, b), draw<float>(random, c));
  compare.check();
}

TEST_CASE("software fma: a sum that lies just beside the middle of two floats is not rounded twice") {
  SplitMix64 random(3);
  Comparison compare;
  for (int i = 0; i < 100000; ++i) {
    // c + half a unit, less or more by what double cannot hold beside c: (1 + u)(1 - u) = 1 - u^2.
    const float c = std::ldexp(1.0f + static_cast<float>(random.below(1 << 23)) * 0x1p-23f,
                               static_cast<int>(random.below(30)) - 15);
    const float half_unit = std::ldexp(0x1p-24f, std::ilogb(c));
    const float u = std::ldexp(1.0f, -static_cast<int>(15 + random.below(9)));
    const float sign = random.below(2) == 0 ? -1.0f : 1.0f;
    compare(sign * half_unit * (1.0f + u), random.below(2) == 0 ? 1.0f - u : 1.0f + u, c);
    compare(half_unit * (1.0f + u), 1.0f - u, -c);
  }
  compare.check();
  CHECK(compare.n_rounded_twice > 10000);  // the triples are as hard as they are meant to be
}

TEST_CASE("software fma: a subnormal result is rounded once, at its own last place") {
  SplitMix64 random(4);
  Comparison compare;
  for (int i = 0; i < 100000; ++i) {
    const float a = std::ldexp(draw<float>(random, FloatClass::kOrdinary), -70);
    const float b =
        std::ldexp(draw<float>(random, FloatClass::kOrdinary), -50 - static_cast<int>(random.below(30)));
    compare(a, b, draw<float>(random, FloatClass::kTiny));
    // Half of the smallest subnormal, and a hair beside it.
    compare(0x1p-75f * (1.0f + 0x1p-23f), 0x1p-75f * (1.0f - 0x1p-23f),
            draw<float>(random, FloatClass::kTiny));
  }
  compare.check();
  CHECK(compare.n_rounded_twice > 100);
}

TEST_CASE_TEMPLATE("scalar: a product is rounded before it meets a sum, a fused one is not", T, float,
                   double) {
  const int digits = std::numeric_limits<T>::digits;
  volatile T one_and_a_bit = T(1) + std::numeric_limits<T>::epsilon();
  const T a = one_and_a_bit;
  const T rounded = T(1) + 2 * std::numeric_limits<T>::epsilon();
  const T lost = std::ldexp(T(1), -2 * (digits - 1));
  CHECK(kvdecode::mul(a, a) - rounded == T(0));
  CHECK(kvdecode::mul(a, a) + -rounded == T(0));
  CHECK(kvdecode::fma(a, a, -rounded) == lost);
  CHECK(kvdecode::seal(a) == a);
}

TEST_CASE_TEMPLATE("scalar: sqrt and fma are the correctly rounded ones", T, float, double) {
  SplitMix64 random(5);
  int n_wrong = 0;
  for (int i = 0; i < 20000; ++i) {
    const T a = draw<T>(random, FloatClass::kWide), b = draw<T>(random, FloatClass::kWide),
            c = draw<T>(random, FloatClass::kWide);
    n_wrong += kvdecode::fma(a, b, c) != std::fma(a, b, c);
    n_wrong += kvdecode::sqrt(std::abs(a)) != std::sqrt(std::abs(a));
  }
  CHECK(n_wrong == 0);
}

}  // namespace

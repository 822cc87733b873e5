// SPDX-License-Identifier: MIT
#include <support/compare.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/core/elementary.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using kvdecode::Lanes;
using kvdecode_test::check_same_bits;
using kvdecode_test::draw;
using kvdecode_test::FloatClass;
using kvdecode_test::kFloatClasses;
using kvdecode_test::SplitMix64;

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

// ---- accuracy: in units of the last place of the true value ----

/// How far y is from the true value, in units of T's last place there.
template <class T>
double units(T y, long double truth) {
  if (truth == 0.0L) return y == T(0) ? 0.0 : kInfinity<double>;
  const int exponent = std::max(std::ilogb(truth), std::numeric_limits<T>::min_exponent - 1);
  const long double unit = std::ldexp(1.0L, exponent - std::numeric_limits<T>::digits + 1);
  return static_cast<double>(std::abs(static_cast<long double>(y) - truth) / unit);
}

/// Holds f against its definition in long double at 20000 points of [low, high].
template <class T, class F, class Truth>
void check_accuracy(const char* name, F f, Truth truth, double low, double high, double bound) {
  CAPTURE(name);
  SplitMix64 random(1);
  double worst = 0.0;
  T worst_x{};
  for (int i = 0; i < 20000; ++i) {
    T x = static_cast<T>(random.uniform(low, high));
    if (i % 4 == 0) x = static_cast<T>(static_cast<double>(x) * std::exp2(-random.uniform(0.0, 20.0)));
    if (!(static_cast<double>(x) >= low)) continue;
    const double distance = units(f(x), truth(static_cast<long double>(x)));
    if (distance > worst) worst = distance, worst_x = x;
  }
  CAPTURE(worst_x);
  CHECK(worst <= bound);
  CHECK(worst > 0.0);
}

long double phi(long double x) { return std::erfc(-x * 0.707106781186547524400844362104849039L) / 2; }

// The measured worst cases of 2e6 points, rounded up.
TEST_CASE_TEMPLATE("elementary: functions of a register are within a few units of the last place", T, float,
                   double) {
  const double largest = sizeof(T) == 4 ? 87.3 : 708.3;  // e^-largest is a normal number
  check_accuracy<T>(
      "exp", [](T x) { return kvdecode::exp(x); }, [](long double x) { return std::exp(x); }, -largest,
      largest, 1.0);
  check_accuracy<T>(
      "tanh", [](T x) { return kvdecode::tanh(x); }, [](long double x) { return std::tanh(x); }, -25.0, 25.0,
      2.6);
  check_accuracy<T>(
      "tanh near 0", [](T x) { return kvdecode::tanh(x); }, [](long double x) { return std::tanh(x); }, -1.0,
      1.0, 2.6);
  check_accuracy<T>(
      "sigmoid", [](T x) { return kvdecode::sigmoid(x); },
      [](long double x) { return 1.0L / (1.0L + std::exp(-x)); }, -largest, largest, 2.6);
  check_accuracy<T>(
      "sigmoid near 0", [](T x) { return kvdecode::sigmoid(x); },
      [](long double x) { return 1.0L / (1.0L + std::exp(-x)); }, -4.0, 4.0, 2.6);
  check_accuracy<T>(
      "gelu", [](T x) { return kvdecode::gelu(x); }, [](long double x) { return x * phi(x); }, -12.8, 40.0,
      5.5);
  check_accuracy<T>(
      "gelu near 0", [](T x) { return kvdecode::gelu(x); }, [](long double x) { return x * phi(x); }, -2.0,
      2.0, 5.5);
}

TEST_CASE_TEMPLATE(
    "elementary: functions in double are within a few units, in float all but correctly rounded", T, float,
    double) {
  const bool is_float = sizeof(T) == 4;
  const auto bound = [&](double in_double) { return is_float ? 0.501 : in_double; };
  check_accuracy<T>(
      "log", [](T x) { return kvdecode::log(x); }, [](long double x) { return std::log(x); }, 1e-30, 1e30,
      bound(2.2));
  check_accuracy<T>(
      "log near 1", [](T x) { return kvdecode::log(x); }, [](long double x) { return std::log(x); }, 0.4, 2.5,
      bound(2.2));
  check_accuracy<T>(
      "log2", [](T x) { return kvdecode::log2(x); }, [](long double x) { return std::log2(x); }, 1e-30, 1e30,
      bound(3.0));
  check_accuracy<T>(
      "log2 near 1", [](T x) { return kvdecode::log2(x); }, [](long double x) { return std::log2(x); }, 0.4,
      2.5, bound(3.0));
  check_accuracy<T>(
      "exp2", [](T x) { return kvdecode::exp2(x); }, [](long double x) { return std::exp2(x); },
      is_float ? -126.0 : -1022.0, is_float ? 127.9 : 1023.9, bound(1.0));
  check_accuracy<T>(
      "erf", [](T x) { return kvdecode::erf(x); }, [](long double x) { return std::erf(x); }, -7.0, 7.0,
      bound(3.0));
  check_accuracy<T>(
      "erf near 0", [](T x) { return kvdecode::erf(x); }, [](long double x) { return std::erf(x); }, -1.0,
      1.0, bound(3.0));
  check_accuracy<T>(
      "softplus", [](T x) { return kvdecode::softplus(x); },
      [](long double x) { return std::max(x, 0.0L) + std::log1p(std::exp(-std::abs(x))); }, -80.0, 80.0,
      bound(4.0));
}

TEST_CASE("elementary: sincos is within 1.5e-16, also after many turns") {
  SplitMix64 random(2);
  double worst = 0.0;
  for (int i = 0; i < 60000; ++i) {
    const double reach = i % 3 == 0 ? 7.0 : i % 3 == 1 ? 1e5 : 0x1p30;
    const double x = random.uniform(-reach, reach);
    const kvdecode::SinCos turn = kvdecode::sincos(x);
    worst = std::max({worst,
                      static_cast<double>(std::abs(static_cast<long double>(turn.sin) -
                                                   std::sin(static_cast<long double>(x)))),
                      static_cast<double>(std::abs(static_cast<long double>(turn.cos) -
                                                   std::cos(static_cast<long double>(x))))});
  }
  CHECK(worst < 1.5e-16);
}

TEST_CASE("elementary: sincos near multiples of a quarter turn keeps what is left after the subtraction") {
  for (int n = -40; n <= 40; ++n) {
    const double x = static_cast<double>(n) * 0x1.921fb54442d18p+0;  // the nearest double: not quite a zero
    const kvdecode::SinCos turn = kvdecode::sincos(x);
    const long double s = std::sin(static_cast<long double>(x)), c = std::cos(static_cast<long double>(x));
    CAPTURE(n);
    CHECK(units(turn.sin, s) <= 2.0);
    CHECK(units(turn.cos, c) <= 2.0);
  }
  CHECK(kvdecode::sincos(0.0).sin == 0.0);
  CHECK(kvdecode::sincos(0.0).cos == 1.0);
}

TEST_CASE("elementary: pow of a positive base is within a unit for each unit of its exponent in base 2") {
  SplitMix64 random(3);
  for (int i = 0; i < 20000; ++i) {
    const double base = random.uniform(1.0, 1e6), exponent = random.uniform(-1.0, 1.0);
    const long double truth = std::pow(static_cast<long double>(base), static_cast<long double>(exponent));
    CHECK(units(kvdecode::pow(base, exponent), truth) <= 20.0);
  }
  CHECK(kvdecode::pow(10000.0, 0.0) == 1.0);
  CHECK(kvdecode::pow(1.0, -0.3) == 1.0);
}

// ---- exact values, limits, signs ----

TEST_CASE_TEMPLATE("elementary: log2 and exp2 are exact for powers of two", T, float, double) {
  int n_wrong = 0;
  for (int e = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
       e < std::numeric_limits<T>::max_exponent; ++e) {
    const T power = std::ldexp(T(1), e);
    n_wrong += kvdecode::log2(power) != T(e);
    const bool is_normal = power >= std::numeric_limits<T>::min();
    n_wrong += kvdecode::exp2(T(e)) != (is_normal ? power : T(0));
  }
  CHECK(n_wrong == 0);
}

TEST_CASE_TEMPLATE("elementary: zeros keep their sign where the function is odd", T, float, double) {
  for (const T zero : {T(0.0), T(-0.0)}) {
    check_same_bits(std::vector{kvdecode::tanh(zero), kvdecode::erf(zero), kvdecode::gelu(zero)},
                    std::vector{zero, zero, zero});
    check_same_bits(std::vector{kvdecode::exp(zero), kvdecode::exp2(zero), kvdecode::sigmoid(zero)},
                    std::vector{T(1), T(1), T(0.5)});
  }
  const T tiny = std::numeric_limits<T>::denorm_min();
  CHECK(kvdecode::tanh(-tiny) == -tiny);
  CHECK(kvdecode::erf(tiny) == tiny);
  check_same_bits(std::vector{kvdecode::log(T(1)), kvdecode::log2(T(1))}, std::vector{T(0), T(0)});
}

TEST_CASE_TEMPLATE("elementary: the ends of the line", T, float, double) {
  constexpr T inf = kInfinity<T>;
  check_same_bits(
      std::vector{kvdecode::exp(inf), kvdecode::exp(-inf), kvdecode::exp2(inf), kvdecode::exp2(-inf)},
      std::vector{inf, T(0), inf, T(0)});
  check_same_bits(
      std::vector{kvdecode::tanh(inf), kvdecode::tanh(-inf), kvdecode::erf(inf), kvdecode::erf(-inf)},
      std::vector{T(1), T(-1), T(1), T(-1)});
  check_same_bits(std::vector{kvdecode::sigmoid(inf), kvdecode::sigmoid(-inf), kvdecode::softplus(inf),
                              kvdecode::softplus(-inf)},
                  std::vector{T(1), T(0), inf, T(0)});
  check_same_bits(std::vector{kvdecode::gelu(inf), kvdecode::gelu(-inf)}, std::vector{inf, T(-0.0)});
  CHECK(kvdecode::gelu(T(-100)) == T(0));
  check_same_bits(std::vector{kvdecode::log(inf), kvdecode::log(T(0)), kvdecode::log(T(-0.0)),
                              kvdecode::log2(inf), kvdecode::log2(T(0))},
                  std::vector{inf, -inf, -inf, inf, -inf});
  CHECK(std::isnan(kvdecode::log(T(-1))));
  CHECK(std::isnan(kvdecode::log2(T(-1))));
}

TEST_CASE_TEMPLATE("elementary: a NaN stays one", T, float, double) {
  const T nan = kNaN<T>;
  for (const T y :
       {kvdecode::exp(nan), kvdecode::exp2(nan), kvdecode::log(nan), kvdecode::log2(nan), kvdecode::tanh(nan),
        kvdecode::erf(nan), kvdecode::sigmoid(nan), kvdecode::softplus(nan), kvdecode::gelu(nan)})
    CHECK(std::isnan(y));
}

TEST_CASE_TEMPLATE("elementary: exp is 0 below the smallest normal number and infinite above the largest", T,
                   float, double) {
  const T first = std::log(std::numeric_limits<T>::min()), last = std::log(std::numeric_limits<T>::max());
  T x = first;
  for (int i = 0; i < 8; ++i) x = std::nextafter(x, -kInfinity<T>);
  for (int i = 0; i < 16; ++i) {
    const T y = kvdecode::exp(x);
    CHECK((y == T(0) || y >= std::numeric_limits<T>::min()));
    x = std::nextafter(x, kInfinity<T>);
  }
  CHECK(kvdecode::exp(first - T(1)) == T(0));
  CHECK(kvdecode::exp(last + T(1)) == kInfinity<T>);
  CHECK(kvdecode::exp(std::nextafter(last, T(0))) < kInfinity<T>);
  CHECK(kvdecode::exp(std::nextafter(last, T(0))) > std::numeric_limits<T>::max() / T(1.001));
}

TEST_CASE_TEMPLATE("elementary: rising functions rise, across every switch of formula", T, float, double) {
  const auto rises = [](auto f, double low, double high) {
    T last = f(static_cast<T>(low));
    int n_falls = 0;
    for (double x = low; x <= high; x += 0x1p-9) {
      const T y = f(static_cast<T>(x));
      n_falls += y < last;
      last = y;
    }
    return n_falls == 0;
  };
  CHECK(rises([](T x) { return kvdecode::exp(x); }, -100.0, 100.0));
  CHECK(rises([](T x) { return kvdecode::exp2(x); }, -100.0, 100.0));
  CHECK(rises([](T x) { return kvdecode::tanh(x); }, -5.0, 5.0));
  CHECK(rises([](T x) { return kvdecode::sigmoid(x); }, -60.0, 9.0));
  CHECK(rises([](T x) { return kvdecode::erf(x); }, -2.5, 2.5));
  CHECK(rises([](T x) { return kvdecode::softplus(x); }, -60.0, 60.0));
  CHECK(rises([](T x) { return kvdecode::log(x); }, 0x1p-9, 50.0));
  CHECK(rises([](T x) { return kvdecode::log2(x); }, 0x1p-9, 50.0));
  CHECK(rises([](T x) { return kvdecode::gelu(x); }, 0.0, 20.0));
}

// ---- one register of any width is as many scalars ----

template <class T>
std::vector<T> arguments() {
  SplitMix64 random(4);
  std::vector<T> x;
  for (double v = -120.0; v < 120.0; v += 0.0437) x.push_back(static_cast<T>(v));
  for (double v = -720.0; v < 720.0; v += 1.37) x.push_back(static_cast<T>(v));
  for (const FloatClass c : kFloatClasses)
    for (int i = 0; i < 1000; ++i) x.push_back(draw<T>(random, c));
  for (const T v :
       {T(0), std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), kInfinity<T>, kNaN<T>})
    x.insert(x.end(), {v, -v});
  while (x.size() % 16 != 0) x.push_back(T(1));
  return x;
}

template <class T, class OfRegister, class OfScalar>
void check_register(const char* name, OfRegister of_register, OfScalar of_scalar) {
  CAPTURE(name);
  using R = typename Lanes<T>::R;
  const std::vector<T> x = arguments<T>();
  std::vector<T> actual(x.size()), expected;
  for (std::size_t i = 0; i < x.size(); i += R::width)
    R::storeu(actual.data() + i, of_register(R::loadu(x.data() + i)));
  for (const T v : x) expected.push_back(of_scalar(v));
  for (T& y : actual) y = y == y ? y : kNaN<T>;
  for (T& y : expected) y = y == y ? y : kNaN<T>;
  check_same_bits(actual, expected);
}

TEST_CASE_TEMPLATE("elementary: a register has the bits of its scalars", T, float, double) {
  using R = typename Lanes<T>::R;
  using E = kvdecode::detail::Elementary<R>;
  using P = typename R::type;
  check_register<T>(
      "exp", [](const P& x) { return E::exp(x); }, [](T x) { return kvdecode::exp(x); });
  check_register<T>(
      "tanh", [](const P& x) { return E::tanh(x); }, [](T x) { return kvdecode::tanh(x); });
  check_register<T>(
      "sigmoid", [](const P& x) { return E::sigmoid(x); }, [](T x) { return kvdecode::sigmoid(x); });
  check_register<T>(
      "gelu", [](const P& x) { return E::gelu(x); }, [](T x) { return kvdecode::gelu(x); });
}

TEST_CASE_TEMPLATE("elementary: exp of sixteen lanes is exp of each", T, float, double) {
  const std::vector<T> x = arguments<T>();
  std::vector<T> actual(x.size()), expected;
  for (std::size_t i = 0; i < x.size(); i += 16) exp(Lanes<T>::loadu(x.data() + i)).storeu(actual.data() + i);
  for (const T v : x) expected.push_back(kvdecode::exp(v));
  for (T& y : actual) y = y == y ? y : kNaN<T>;
  for (T& y : expected) y = y == y ? y : kNaN<T>;
  check_same_bits(actual, expected);
}

}  // namespace

// SPDX-License-Identifier: MIT
#include <reference/activations.hpp>
#include <support/canonical.hpp>
#include <support/compare.hpp>
#include <support/guarded.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/core/counting.hpp>
#include <kvdecode/kernels/activation.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace {

using kvdecode::Activation;
using kvdecode::Index;
using kvdecode_test::check_close;
using kvdecode_test::check_same_bits;
using kvdecode_test::draws;
using kvdecode_test::FloatClass;
using kvdecode_test::Guarded;
using kvdecode_test::rounded_product;

constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                                       Activation::kRelu, Activation::kReluSquared};

template <class S>
std::vector<S> activated(Activation kind, const std::vector<S>& x, const S* factor = nullptr) {
  const Index n = static_cast<Index>(x.size());
  Guarded<S> y(n);
  kvdecode::kernels::activate(kind, x.data(), factor, n, y.data());
  CHECK(y.is_intact());
  return std::vector<S>(y.data(), y.data() + n);
}

TEST_CASE_TEMPLATE("activation: is near the reference, relative to x", T, float, double) {
  std::vector<T> x;
  for (double v = -30.0; v <= 30.0; v += 0.0173) x.push_back(static_cast<T>(v));
  for (const Activation kind : kActivations) {
    CAPTURE(static_cast<int>(kind));
    const std::vector<T> y = activated(kind, x);
    double worst = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = kvdecode_reference::activate(kind, static_cast<double>(x[i]));
      const double scale = std::max({1e-30, std::abs(static_cast<double>(x[i])), std::abs(expected)});
      worst = std::max(worst, std::abs(static_cast<double>(y[i]) - expected) / scale);
    }
    // A few units: three of the sigmoid or tanh and two products; where 1 + tanh cancels, of x and not of y.
    CHECK(worst <= 8 * static_cast<double>(std::numeric_limits<T>::epsilon()));
  }
}

TEST_CASE_TEMPLATE("activation: an element does not depend on the row's length or its place", T, float,
                   double) {
  const std::vector<T> x = draws<T>(80, 1), factor = draws<T>(80, 2);
  for (const Activation kind : kActivations) {
    CAPTURE(static_cast<int>(kind));
    std::vector<T> plain, gated;
    for (std::size_t i = 0; i < x.size(); ++i) {  // rows of one element: the scalar formula
      plain.push_back(activated(kind, std::vector{x[i]})[0]);
      gated.push_back(activated(kind, std::vector{x[i]}, &factor[i])[0]);
      check_same_bits(std::vector{gated.back()}, std::vector{rounded_product(plain.back(), factor[i])});
    }
    for (Index n = 1; n <= 40; ++n)
      for (const Index first : {0, 1, 7, 40}) {
        CAPTURE(n);
        CAPTURE(first);
        const std::vector<T> row(x.begin() + first, x.begin() + first + n);
        check_same_bits(activated(kind, row),
                        std::vector<T>(plain.begin() + first, plain.begin() + first + n));
        check_same_bits(activated(kind, row, factor.data() + first),
                        std::vector<T>(gated.begin() + first, gated.begin() + first + n));
      }
  }
}

TEST_CASE_TEMPLATE("activation: may be in place, over x and over the factor", T, float, double) {
  const std::vector<T> x = draws<T>(45, 3), factor = draws<T>(45, 4);
  for (const Activation kind : kActivations) {
    std::vector<T> y = x;
    kvdecode::kernels::activate(kind, y.data(), factor.data(), 45, y.data());
    check_same_bits(y, activated(kind, x, factor.data()));
    y = factor;
    kvdecode::kernels::activate(kind, x.data(), static_cast<const T*>(y.data()), 45, y.data());
    check_same_bits(y, activated(kind, x, factor.data()));
  }
}

TEST_CASE_TEMPLATE("activation: large and special arguments", T, float, double) {
  constexpr T inf = std::numeric_limits<T>::infinity();
  for (const Activation kind : kActivations) {
    CAPTURE(static_cast<int>(kind));
    for (const std::size_t n : {1u, 16u}) {
      const auto of = [&](T x) { return activated(kind, std::vector<T>(n, x))[0]; };
      CHECK(of(T(0)) == T(0));
      CHECK(of(T(50)) == (kind == Activation::kReluSquared ? T(2500) : T(50)));
      CHECK(of(inf) == inf);
      CHECK(std::abs(of(T(-800))) == T(0));
      CHECK(std::isnan(of(std::numeric_limits<T>::quiet_NaN())));
    }
  }
}

TEST_CASE_TEMPLATE("activation: ReLU of either zero is +0, wherever it stands in a row", T, float, double) {
  for (const Activation kind : {Activation::kRelu, Activation::kReluSquared})
    for (const std::size_t n : {1u, 16u, 19u})
      for (const T zero : {T(0.0), T(-0.0)})
        check_same_bits(activated(kind, std::vector<T>(n, zero)), std::vector<T>(n, T(0.0)));
}

TEST_CASE("activation: a scalar of one's own has the formula of its base") {
  using S = kvdecode::Counting<float>;
  const std::vector<float> x = draws<float>(40, 5);
  const std::vector<S> xs(x.begin(), x.end());
  for (const Activation kind : kActivations) {
    CAPTURE(static_cast<int>(kind));
    const std::vector<float> expected = activated(kind, x);
    std::vector<float> actual;
    for (const S v : activated(kind, xs)) actual.push_back(static_cast<float>(v));
    check_same_bits(actual, expected);
  }
}

}  // namespace

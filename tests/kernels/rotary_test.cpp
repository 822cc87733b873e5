// SPDX-License-Identifier: MIT
#include <reference/rotary.hpp>
#include <support/canonical.hpp>
#include <support/compare.hpp>
#include <support/guarded.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/core/counting.hpp>
#include <kvdecode/kernels/rotary.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <vector>

namespace {

using kvdecode::Index;
using kvdecode::RotaryPairs;
using kvdecode_reference::Vector;
using kvdecode_test::check_close;
using kvdecode_test::check_same_bits;
using kvdecode_test::draws;
using kvdecode_test::Guarded;
using kvdecode_test::rounded_product;
using kvdecode_test::tolerance;

constexpr RotaryPairs kPairs[] = {RotaryPairs::kHalves, RotaryPairs::kInterleaved};

/// head_dim and the number of elements that turn.
struct Size {
  Index head_dim, n_turning;
};
constexpr Size kSizes[] = {{2, 2}, {5, 4}, {8, 8}, {12, 6}, {16, 16}, {20, 20}, {64, 64}, {70, 66}, {80, 32}};

TEST_CASE_TEMPLATE("rotary: angles are the cosines and sines of position times frequency, rounded once", T,
                   float, double) {
  const std::vector<double> frequencies{1.0, 0.7, 0.1, 1e-3, 1e-5, 0.0};
  const Index n = static_cast<Index>(frequencies.size());
  for (const Index position : {0, 1, 2, 255, 256, 4096, 100000, 10000000}) {
    CAPTURE(position);
    Guarded<T> cosine(n), sine(n);
    kvdecode::kernels::rotary_angles(position, frequencies.data(), n, cosine.data(), sine.data());
    CHECK(cosine.is_intact());
    CHECK(sine.is_intact());
    for (Index i = 0; i < n; ++i) {
      // The angle is rounded to double, as the reference's is; then 1.5e-16 of sincos, and half a unit of T.
      const auto angle =
          static_cast<long double>(static_cast<double>(position) * frequencies[static_cast<std::size_t>(i)]);
      const double bound = 1.5e-16 + tolerance<T>(0.5);
      CHECK(std::abs(static_cast<double>(cosine.data()[i]) - static_cast<double>(std::cos(angle))) <= bound);
      CHECK(std::abs(static_cast<double>(sine.data()[i]) - static_cast<double>(std::sin(angle))) <= bound);
    }
  }
}

template <class T>
struct Angles {
  std::vector<T> cosine, sine;

  Angles(Index position, Index head_dim, Index n_turning) {
    kvdecode::RotaryConfig config;
    config.dim = n_turning;
    const Vector frequencies = kvdecode_reference::inv_freq(config, head_dim);
    cosine.resize(frequencies.size());
    sine.resize(frequencies.size());
    kvdecode::kernels::rotary_angles(position, frequencies.data(), static_cast<Index>(frequencies.size()),
                                     cosine.data(), sine.data());
  }
};

TEST_CASE_TEMPLATE("rotary: a turned head is near the reference", T, float, double) {
  for (const Size size : kSizes)
    for (const RotaryPairs pairs : kPairs)
      for (const Index position : {0, 1, 3, 77}) {
        const Index head_dim = size.head_dim, n_turning = size.n_turning;
        CAPTURE(head_dim);
        CAPTURE(position);
        const std::vector<T> x = draws<T>(head_dim, 1);
        const Angles<T> angles(position, head_dim, n_turning);
        std::vector<T> y(x.size());
        kvdecode::kernels::rotate(pairs, x.data(), angles.cosine.data(), angles.sine.data(), n_turning / 2,
                                  head_dim, y.data());
        kvdecode::RotaryConfig config;
        config.dim = n_turning;
        config.pairs = pairs;
        // Two roundings of the formula and one of the angle's cosine and sine, of numbers up to 6.
        check_close(y, kvdecode_reference::rotate(Vector(x.begin(), x.end()), position, config),
                    tolerance<T>(3, 6.0));
      }
}

TEST_CASE_TEMPLATE("rotary: has the bits of its formula, apart and in place, and leaves the rest", T, float,
                   double) {
  for (const Size size : kSizes)
    for (const RotaryPairs pairs : kPairs) {
      const Index head_dim = size.head_dim, n_turning = size.n_turning;
      CAPTURE(head_dim);
      const Index n_pairs = n_turning / 2;
      const std::vector<T> x = draws<T>(head_dim, 2);
      const Angles<T> angles(1234, head_dim, n_turning);
      std::vector<T> expected = x;
      for (Index i = 0; i < n_pairs; ++i) {
        const bool halves = pairs == RotaryPairs::kHalves;
        const auto first = static_cast<std::size_t>(halves ? i : 2 * i);
        const auto second = static_cast<std::size_t>(halves ? i + n_pairs : 2 * i + 1);
        const T a = x[first], b = x[second];
        const T c = angles.cosine[static_cast<std::size_t>(i)], s = angles.sine[static_cast<std::size_t>(i)];
        expected[first] = std::fma(-b, s, rounded_product(a, c));
        expected[second] = std::fma(b, c, rounded_product(a, s));
      }
      Guarded<T> apart(head_dim);
      kvdecode::kernels::rotate(pairs, x.data(), angles.cosine.data(), angles.sine.data(), n_pairs, head_dim,
                                apart.data());
      CHECK(apart.is_intact());
      check_same_bits(std::vector<T>(apart.data(), apart.data() + head_dim), expected);
      std::vector<T> in_place = x;
      kvdecode::kernels::rotate(pairs, in_place.data(), angles.cosine.data(), angles.sine.data(), n_pairs,
                                head_dim, in_place.data());
      check_same_bits(in_place, expected);
    }
}

TEST_CASE("rotary: position 0 and no pairs change nothing") {
  const std::vector<float> x = draws<float>(24, 3);
  for (const RotaryPairs pairs : kPairs) {
    const Angles<float> angles(0, 24, 24);
    std::vector<float> y(24);
    kvdecode::kernels::rotate(pairs, x.data(), angles.cosine.data(), angles.sine.data(), 12, 24, y.data());
    CHECK(y == x);
    y.assign(24, 0.0f);
    kvdecode::kernels::rotate(pairs, x.data(), static_cast<const float*>(nullptr),
                              static_cast<const float*>(nullptr), 0, 24, y.data());
    check_same_bits(y, x);
  }
}

TEST_CASE("rotary: a scalar of one's own has the bits of its base") {
  using S = kvdecode::Counting<float>;
  const std::vector<float> x = draws<float>(24, 4);
  const std::vector<S> xs(x.begin(), x.end());
  const Angles<float> angles(17, 24, 20);
  const Angles<S> angles_s(17, 24, 20);
  for (const RotaryPairs pairs : kPairs) {
    std::vector<float> y(24), actual;
    std::vector<S> ys(24);
    kvdecode::kernels::rotate(pairs, x.data(), angles.cosine.data(), angles.sine.data(), 10, 24, y.data());
    kvdecode::kernels::rotate(pairs, xs.data(), angles_s.cosine.data(), angles_s.sine.data(), 10, 24,
                              ys.data());
    for (const S v : ys) actual.push_back(static_cast<float>(v));
    check_same_bits(actual, y);
  }
}

}  // namespace

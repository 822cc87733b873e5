// SPDX-License-Identifier: MIT
#include <reference/norms.hpp>
#include <support/canonical.hpp>
#include <support/compare.hpp>
#include <support/guarded.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/core/counting.hpp>
#include <kvdecode/kernels/norm.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

namespace {

using kvdecode::Index;
using kvdecode_reference::Vector;
using kvdecode_test::canonical_dot;
using kvdecode_test::canonical_sum;
using kvdecode_test::check_close;
using kvdecode_test::check_same_bits;
using kvdecode_test::draws;
using kvdecode_test::Guarded;
using kvdecode_test::magnitude;
using kvdecode_test::rounded_product;
using kvdecode_test::tolerance;

constexpr Index kSizes[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 44, 255, 256, 257};
constexpr double kEps = 1e-5;

template <class T>
Vector as_vector(const std::vector<T>& x) {
  return Vector(x.begin(), x.end());
}

template <class T>
std::vector<T> rms(const std::vector<T>& x, const std::vector<T>& w, T eps) {
  const Index n = static_cast<Index>(x.size());
  Guarded<T> y(n);
  kvdecode::kernels::rms_norm(x.data(), w.data(), eps, n, y.data());
  CHECK(y.is_intact());
  return std::vector<T>(y.data(), y.data() + n);
}
template <class T>
std::vector<T> layer(const std::vector<T>& x, const std::vector<T>& w, const T* b, T eps) {
  const Index n = static_cast<Index>(x.size());
  Guarded<T> y(n);
  kvdecode::kernels::layer_norm(x.data(), w.data(), b, eps, n, y.data());
  CHECK(y.is_intact());
  return std::vector<T>(y.data(), y.data() + n);
}

TEST_CASE_TEMPLATE("norm: RMSNorm and LayerNorm are near the reference", T, float, double) {
  for (const Index n : kSizes) {
    CAPTURE(n);
    const std::vector<T> x = draws<T>(n, 1), w = draws<T>(n, 2), b = draws<T>(n, 3);
    const Vector xs = as_vector(x), ws = as_vector(w), bs = as_vector(b);
    const Vector of_rms = kvdecode_reference::rms_norm(xs, ws, {}, kEps);
    // The sum of squares has n / 32 + 4 roundings of its terms at most, of which the root halves the effect;
    // then a quotient, a root, a quotient and two products.
    const double c = static_cast<double>(n) / 64 + 5;
    check_close(rms(x, w, static_cast<T>(kEps)), of_rms, tolerance<T>(c, magnitude(of_rms)));
    if (n == 1) continue;  // its deviation is 0: the result is nothing but rounding
    const Vector of_layer = kvdecode_reference::layer_norm(xs, ws, bs, kEps);
    // The difference to the mean adds a rounding of the magnitude of x over the deviation.
    const double largest = std::max(magnitude(of_layer), magnitude(ws) * 4);
    check_close(layer(x, w, b.data(), static_cast<T>(kEps)), of_layer, tolerance<T>(2 * c, largest));
    check_close(layer(x, w, static_cast<const T*>(nullptr), static_cast<T>(kEps)),
                kvdecode_reference::layer_norm(xs, ws, {}, kEps), tolerance<T>(2 * c, largest));
  }
}

TEST_CASE_TEMPLATE("norm: has the bits of its formula, one operation after another", T, float, double) {
  const T eps = static_cast<T>(kEps);
  for (const Index n : kSizes) {
    CAPTURE(n);
    const std::vector<T> x = draws<T>(n, 4), w = draws<T>(n, 5), b = draws<T>(n, 6);
    const T count = static_cast<T>(n);
    std::vector<T> of_rms, of_layer, without_bias, centred;
    const T inverse_rms = T(1) / std::sqrt(canonical_dot(x.data(), x.data(), n) / count + eps);
    const T mean = canonical_sum(x.data(), n) / count;
    for (const T v : x) centred.push_back(v - mean);
    const T inverse = T(1) / std::sqrt(canonical_dot(centred.data(), centred.data(), n) / count + eps);
    for (std::size_t i = 0; i < x.size(); ++i) {
      of_rms.push_back(rounded_product(rounded_product(x[i], inverse_rms), w[i]));
      without_bias.push_back(rounded_product(rounded_product(centred[i], inverse), w[i]));
      of_layer.push_back(std::fma(rounded_product(centred[i], inverse), w[i], b[i]));
    }
    check_same_bits(rms(x, w, eps), of_rms);
    check_same_bits(layer(x, w, b.data(), eps), of_layer);
    check_same_bits(layer(x, w, static_cast<const T*>(nullptr), eps), without_bias);
  }
}

TEST_CASE_TEMPLATE("norm: may be in place", T, float, double) {
  for (const Index n : kSizes) {
    const std::vector<T> x = draws<T>(n, 7), w = draws<T>(n, 8), b = draws<T>(n, 9);
    std::vector<T> y = x;
    kvdecode::kernels::rms_norm(y.data(), w.data(), T(0.1), n, y.data());
    check_same_bits(y, rms(x, w, T(0.1)));
    y = x;
    kvdecode::kernels::layer_norm(y.data(), w.data(), b.data(), T(0.1), n, y.data());
    check_same_bits(y, layer(x, w, b.data(), T(0.1)));
  }
}

TEST_CASE("norm: a row of zeros stays zeros, and eps is added under the root") {
  const std::vector<float> zeros(20), ones(20, 1.0f);
  check_same_bits(rms(zeros, ones, 1e-5f), zeros);
  check_same_bits(layer(ones, ones, zeros.data(), 1e-5f), zeros);
  check_same_bits(rms(std::vector<float>(16, 1.0f), ones, 3.0f), std::vector<float>(16, 0.5f));
}

TEST_CASE("norm: a scalar of one's own has the bits of its base") {
  using S = kvdecode::Counting<double>;
  const std::vector<double> x = draws<double>(37, 10), w = draws<double>(37, 11), b = draws<double>(37, 12);
  const std::vector<S> xs(x.begin(), x.end()), ws(w.begin(), w.end()), bs(b.begin(), b.end());
  std::vector<double> actual;
  for (const S v : rms(xs, ws, S(kEps))) actual.push_back(static_cast<double>(v));
  check_same_bits(actual, rms(x, w, kEps));
  actual.clear();
  for (const S v : layer(xs, ws, bs.data(), S(kEps))) actual.push_back(static_cast<double>(v));
  check_same_bits(actual, layer(x, w, b.data(), kEps));
}

}  // namespace

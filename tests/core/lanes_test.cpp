// SPDX-License-Identifier: MIT
// core/simd/lanes.hpp and the registers under it.
#include <support/canonical.hpp>
#include <support/compare.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/core/counting.hpp>
#include <kvdecode/core/simd/lanes.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace {

using kvdecode::Counting;
using kvdecode::Index;
using kvdecode::kLanes;
using kvdecode::Lanes;
using kvdecode_test::canonical_tree;
using kvdecode_test::check_same_bits;
using kvdecode_test::draw;
using kvdecode_test::FloatClass;
using kvdecode_test::kFloatClasses;
using kvdecode_test::SplitMix64;

template <class T>
using Sixteen = std::array<T, kLanes>;

template <class T>
Sixteen<T> sixteen(SplitMix64& random, FloatClass c) {
  Sixteen<T> result;
  for (T& x : result) x = draw<T>(random, c);
  return result;
}
template <class T>
Sixteen<T> stored(const Lanes<T>& lanes) {
  Sixteen<T> result;
  lanes.storeu(result.data());
  return result;
}
/// op of each pair of lanes, a NaN as the one NaN.
template <class T, class Op>
Sixteen<T> each(const Sixteen<T>& a, const Sixteen<T>& b, Op op) {
  Sixteen<T> result;
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = op(a[i], b[i]);
  return result;
}
template <class T>
Sixteen<T> one_nan(Sixteen<T> values) {
  for (T& x : values)
    if (x != x) x = std::numeric_limits<T>::quiet_NaN();
  return values;
}

TEST_CASE_TEMPLATE("lanes: each operation is the scalar one, lane by lane", T, float, double) {
  SplitMix64 random(1);
  for (const FloatClass c : kFloatClasses) {
    CAPTURE(to_string(c));
    for (int repeat = 0; repeat < 50; ++repeat) {
      const Sixteen<T> a = sixteen<T>(random, c), b = sixteen<T>(random, c), d = sixteen<T>(random, c);
      const auto x = Lanes<T>::loadu(a.data()), y = Lanes<T>::loadu(b.data()), z = Lanes<T>::loadu(d.data());
      check_same_bits(stored(x), a);
      check_same_bits(one_nan(stored(add(x, y))), one_nan(each(a, b, [](T p, T q) { return p + q; })));
      check_same_bits(one_nan(stored(sub(x, y))), one_nan(each(a, b, [](T p, T q) { return p - q; })));
      check_same_bits(one_nan(stored(mul(x, y))),
                      one_nan(each(a, b, [](T p, T q) { return kvdecode_test::rounded_product(p, q); })));
      check_same_bits(one_nan(stored(div(x, y))), one_nan(each(a, b, [](T p, T q) { return p / q; })));
      check_same_bits(stored(max(x, y)), each(a, b, [](T p, T q) { return p < q ? q : p; }));
      Sixteen<T> fused;
      for (std::size_t i = 0; i < fused.size(); ++i) fused[i] = std::fma(a[i], b[i], d[i]);
      check_same_bits(one_nan(stored(fma(x, y, z))), one_nan(fused));
    }
  }
}

TEST_CASE_TEMPLATE("lanes: max takes the first of equals and of what has no order", T, float, double) {
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  const auto max_of = [](T a, T b) { return stored(max(Lanes<T>::set1(a), Lanes<T>::set1(b)))[3]; };
  CHECK(std::signbit(max_of(T(-0.0), T(0.0))));
  CHECK(!std::signbit(max_of(T(0.0), T(-0.0))));
  CHECK(std::isnan(max_of(nan, T(1))));
  CHECK(max_of(T(1), nan) == T(1));
}

TEST_CASE_TEMPLATE("lanes: a product is rounded before it meets a sum", T, float, double) {
  volatile T one_and_a_bit = T(1) + std::numeric_limits<T>::epsilon();
  const T bit_more = one_and_a_bit;
  const auto a = Lanes<T>::set1(bit_more);
  const auto rounded = Lanes<T>::set1(T(1) + 2 * std::numeric_limits<T>::epsilon());
  CHECK(stored(sub(mul(a, a), rounded)) == Sixteen<T>{});
}

TEST_CASE_TEMPLATE("registers: abs, select and powers of two are exact", T, float, double) {
  using R = typename Lanes<T>::R;
  using R1 = kvdecode::simd::Register<T, false>;
  SplitMix64 random(2);
  for (const FloatClass c : kFloatClasses) {
    CAPTURE(to_string(c));
    for (int repeat = 0; repeat < 50; ++repeat) {
      const Sixteen<T> a = sixteen<T>(random, c), b = sixteen<T>(random, c);
      T actual[R::width], expected[R::width];
      R::storeu(actual, R::abs(R::loadu(a.data())));
      for (int i = 0; i < R::width; ++i) expected[i] = std::abs(a[static_cast<std::size_t>(i)]);
      check_same_bits(actual, expected);
      R::storeu(actual,
                R::lt_select(R::loadu(a.data()), R::loadu(b.data()), R::set1(T(1)), R::set1(T(-0.0))));
      for (int i = 0; i < R::width; ++i)
        expected[i] = a[static_cast<std::size_t>(i)] < b[static_cast<std::size_t>(i)] ? T(1) : T(-0.0);
      check_same_bits(actual, expected);
    }
  }
  const T bias = sizeof(T) == 4 ? T(0x1.8p23 + 127) : T(0x1.8p52 + 1023);
  const int lowest = sizeof(T) == 4 ? -126 : -1022;
  const int highest = -lowest + 1;
  int n_wrong = 0;
  for (int k = lowest; k <= highest; ++k) {
    T actual[R::width];
    R::storeu(actual, R::pow2_biased(R::set1(bias + static_cast<T>(k))));
    for (const T x : actual) n_wrong += x != std::ldexp(T(1), k);
    n_wrong += R1::pow2_biased(bias + static_cast<T>(k)) != std::ldexp(T(1), k);
  }
  CHECK(n_wrong == 0);
}

TEST_CASE_TEMPLATE("lanes: tree_sum adds (i, i+8), (i, i+4), (i, i+2), (i, i+1)", T, float, double) {
  SplitMix64 random(3);
  int n_order_matters = 0;
  for (const FloatClass c :
       {FloatClass::kOrdinary, FloatClass::kWide, FloatClass::kTiny, FloatClass::kSignedZeros}) {
    CAPTURE(to_string(c));
    for (int repeat = 0; repeat < 200; ++repeat) {
      Sixteen<T> a = sixteen<T>(random, c);
      const T expected = ((((a[0] + a[8]) + (a[4] + a[12])) + ((a[2] + a[10]) + (a[6] + a[14]))) +
                          (((a[1] + a[9]) + (a[5] + a[13])) + ((a[3] + a[11]) + (a[7] + a[15]))));
      const T in_order = canonical_tree({a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10],
                                         a[11], a[12], a[13], a[14], a[15]});
      check_same_bits(std::array{in_order}, std::array{expected});
      check_same_bits(std::array{tree_sum(Lanes<T>::loadu(a.data()))}, std::array{expected});
      T left_to_right = a[0];
      for (std::size_t i = 1; i < a.size(); ++i) left_to_right += a[i];
      n_order_matters += left_to_right != expected;
      check_same_bits(std::array{kvdecode::tree_sum(a.data())}, std::array{expected});
    }
  }
  CHECK(n_order_matters > 100);
}

TEST_CASE_TEMPLATE("lanes: tree_sum4 is four times tree_sum", T, float, double) {
  SplitMix64 random(4);
  for (int repeat = 0; repeat < 200; ++repeat) {
    Lanes<T> v[4];
    T expected[4], actual[4];
    for (int i = 0; i < 4; ++i) {
      v[i] = Lanes<T>::loadu(sixteen<T>(random, FloatClass::kWide).data());
      expected[i] = tree_sum(v[i]);
    }
    tree_sum4(v[0], v[1], v[2], v[3], actual);
    check_same_bits(actual, expected);
  }
}

TEST_CASE_TEMPLATE("lanes: partial loads and stores touch the first n only", T, float, double,
                   Counting<float>) {
  for (Index n = 0; n <= kLanes; ++n) {
    CAPTURE(n);
    std::vector<T> from;  // ends where it may be read
    for (Index i = 0; i < n; ++i) from.push_back(T(static_cast<double>(i + 1)));
    const auto lanes = Lanes<T>::load_partial(from.data(), n, T(-1.0));
    T t[kLanes];
    lanes.storeu(t);
    for (Index i = 0; i < kLanes; ++i)
      CHECK(static_cast<double>(t[i]) == (i < n ? static_cast<double>(i + 1) : -1.0));
    std::vector<T> to(static_cast<std::size_t>(kLanes), T(7.0));
    lanes.store_partial(to.data(), n);
    for (Index i = 0; i < kLanes; ++i)
      CHECK(static_cast<double>(to[static_cast<std::size_t>(i)]) ==
            (i < n ? static_cast<double>(i + 1) : 7.0));
  }
}

TEST_CASE("lanes: a scalar of one's own has registers of width one and the values of its base") {
  using S = Counting<float>;
  CHECK(Lanes<S>::width == 1);
  SplitMix64 random(5);
  const Sixteen<float> a = sixteen<float>(random, FloatClass::kWide),
                       b = sixteen<float>(random, FloatClass::kWide);
  S x[kLanes], y[kLanes];
  for (std::size_t i = 0; i < a.size(); ++i) x[i] = S(a[i]), y[i] = S(b[i]);
  const auto p = Lanes<S>::loadu(x), q = Lanes<S>::loadu(y);
  const auto u = Lanes<float>::loadu(a.data()), v = Lanes<float>::loadu(b.data());
  S counted[kLanes];
  fma(p, q, add(p, mul(p, q))).storeu(counted);
  Sixteen<float> values;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(counted[i]);
  check_same_bits(values, stored(fma(u, v, add(u, mul(u, v)))));
  CHECK(static_cast<float>(tree_sum(p)) == tree_sum(u));
}

TEST_CASE("registers: unroll calls with the constants 0 to N-1 in order") {
  std::vector<int> called;
  kvdecode::simd::unroll<5>([&](auto i) { called.push_back(i); });
  CHECK(called == std::vector{0, 1, 2, 3, 4});
  kvdecode::simd::unroll<0>([&](auto i) { called.push_back(i); });
  CHECK(called.size() == 5);
}

}  // namespace

// SPDX-License-Identifier: MIT
#include <support/compare.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/core/counting.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <thread>

namespace {

using kvdecode::Counting;
using kvdecode::take_work_counters;
using kvdecode::Work;
using kvdecode::WorkCounters;
using kvdecode::WorkScope;
using kvdecode_test::check_same_bits;
using kvdecode_test::draw;
using kvdecode_test::FloatClass;
using kvdecode_test::SplitMix64;

template <class T>
T value(Counting<T> x) {
  return static_cast<T>(static_cast<double>(x));
}

TEST_CASE_TEMPLATE("counting: every operation has the bits of its base", T, float, double) {
  using S = Counting<T>;
  SplitMix64 random(1);
  for (int i = 0; i < 1000; ++i) {
    const T a = draw<T>(random, FloatClass::kWide), b = draw<T>(random, FloatClass::kWide),
            c = draw<T>(random, FloatClass::kWide);
    const T small = draw<T>(random, FloatClass::kOrdinary);
    const S x(a), y(b), z(c), s(small);
    const T actual[] = {value(x + y),        value(x - y),       value(x * y),     value(x / y),
                        value(fma(x, y, z)), value(sqrt(x * x)), value(exp(s)),    value(tanh(s)),
                        value(erf(s)),       value(gelu(s)),     value(log(x * x))};
    const T square = kvdecode::mul(a, a);
    const T expected[] = {a + b,
                          a - b,
                          kvdecode::mul(a, b),
                          a / b,
                          std::fma(a, b, c),
                          std::sqrt(square),
                          kvdecode::exp(small),
                          kvdecode::tanh(small),
                          kvdecode::erf(small),
                          kvdecode::gelu(small),
                          kvdecode::log(square)};
    check_same_bits(actual, expected);
    CHECK((x < y) == (a < b));
  }
}

TEST_CASE("counting: each operation counts one, a comparison and a conversion none") {
  using S = Counting<double>;
  const S a(2.0), b(3.0);
  take_work_counters();
  const S sum = fma(a, b, a + b) - a * b / a;
  S results[] = {sqrt(sum), exp(a), tanh(a), erf(a), gelu(a), log(a)};
  const bool is_less = results[0] < results[1];
  const auto number = static_cast<double>(results[2]);
  const WorkCounters counters = take_work_counters();
  CHECK((is_less || number > 0.0));
  CHECK(counters[Work::kOther] == 1);
  CHECK(counters.other_operations == 10);
}

TEST_CASE("counting: a multiply-add belongs to the innermost scope") {
  using S = Counting<float>;
  const S a(2.0f);
  take_work_counters();
  fma(a, a, a);
  {
    const WorkScope<S> linear(Work::kLinear);
    fma(a, a, a);
    {
      const WorkScope<S> scores(Work::kScores);
      fma(a, a, a);
      fma(a, a, a);
      const WorkScope<S> values(Work::kValues);
      fma(a, a, a);
    }
    const WorkScope<float> uncounted(Work::kScores);  // of a scalar that does not count: nothing
    fma(a, a, a);
  }
  fma(a, a, a);
  const WorkCounters counters = take_work_counters();
  CHECK(counters[Work::kOther] == 2);
  CHECK(counters[Work::kLinear] == 2);
  CHECK(counters[Work::kScores] == 2);
  CHECK(counters[Work::kValues] == 1);
  CHECK(take_work_counters()[Work::kOther] == 0);
}

TEST_CASE("counting: counters belong to their thread") {
  using S = Counting<float>;
  take_work_counters();
  std::thread other([] { fma(S(1.0f), S(1.0f), S(1.0f)); });
  other.join();
  CHECK(take_work_counters()[Work::kOther] == 0);
}

}  // namespace

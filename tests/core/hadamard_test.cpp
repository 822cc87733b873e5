// SPDX-License-Identifier: MIT
// core/hadamard.hpp.
#include <support/compare.hpp>
#include <support/guarded.hpp>
#include <support/names.hpp>
#include <support/random.hpp>
#include <support/stored_tensors.hpp>

#include <kvdecode/core/counting.hpp>
#include <kvdecode/core/hadamard.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

namespace {

using kvdecode::Counting;
using kvdecode::Index;
using kvdecode::RowTransform;
using kvdecode_test::check_close;
using kvdecode_test::check_same_bits;
using kvdecode_test::draws;
using kvdecode_test::Guarded;
using kvdecode_test::tolerance;

constexpr Index kSizes[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};

/// Butterflies one after another.
template <class S>
std::vector<S> butterflies(std::vector<S> x) {
  for (std::size_t h = 1; h < x.size(); h *= 2)
    for (std::size_t i = 0; i < x.size(); ++i) {
      if ((i & h) != 0) continue;
      const S a = x[i], b = x[i + h];
      x[i] = a + b;
      x[i + h] = a - b;
    }
  return x;
}

template <class S, class Turn>
std::vector<S> turned(std::vector<S> x, Turn&& turn) {
  const auto n = static_cast<Index>(x.size());
  Guarded<S> row(n);
  std::copy(x.begin(), x.end(), row.data());
  turn(row.data(), n);
  CHECK(row.is_intact());
  return {row.data(), row.data() + n};
}

TEST_CASE_TEMPLATE("hadamard: has the bits of butterflies 1, 2, 4 … apart, for every length", S, float,
                   double) {
  for (const Index n : kSizes) {
    CAPTURE(n);
    std::vector<S> x = draws<S>(n, 1);
    x[0] = S(-0.0);
    check_same_bits(turned(x, kvdecode::hadamard<S>), butterflies(x));
    const std::vector<S> zeros(static_cast<std::size_t>(n), S(-0.0));
    check_same_bits(turned(zeros, kvdecode::hadamard<S>), butterflies(zeros));
  }
}

TEST_CASE("hadamard: a scalar of one's own has the bits of its base") {
  const std::vector<float> x = draws<float>(64, 2);
  std::vector<Counting<float>> own;
  for (const float number : x) own.push_back(Counting<float>(number));
  kvdecode::turn_row(RowTransform::kSignedHadamard, own.data(), 64);
  std::vector<float> numbers;
  for (const auto& number : own) numbers.push_back(static_cast<float>(number));
  check_same_bits(numbers, turned(x, [](float* row, Index n) {
                    kvdecode::turn_row(RowTransform::kSignedHadamard, row, n);
                  }));
}

TEST_CASE_TEMPLATE("hadamard: number i, j of the matrix is minus one to the number of bits they share", S,
                   float, double) {
  for (const Index n : {1, 4, 32, 64}) {
    for (Index j = 0; j < n; ++j) {
      std::vector<S> x(static_cast<std::size_t>(n), S(0)), column;
      x[static_cast<std::size_t>(j)] = S(1);
      for (Index i = 0; i < n; ++i)
        column.push_back(std::popcount(static_cast<std::size_t>(i & j)) % 2 == 0 ? S(1) : S(-1));
      CHECK(turned(x, kvdecode::hadamard<S>) == column);
    }
  }
}

TEST_CASE_TEMPLATE("hadamard: turned rows keep their length, and come back", S, float, double) {
  for (const RowTransform transform :
       {RowTransform::kNone, RowTransform::kHadamard, RowTransform::kSignedHadamard})
    for (const Index n : kSizes) {
      CAPTURE(n);
      const std::vector<S> x = draws<S>(n, 3);
      const std::vector<S> there =
          turned(x, [&](S* row, Index size) { kvdecode::turn_row(transform, row, size); });
      double squares = 0.0, turned_squares = 0.0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
        turned_squares += static_cast<double>(there[i]) * static_cast<double>(there[i]);
      }
      // Each number is 10 sums and a product of numbers of this size at most.
      CHECK(std::abs(turned_squares - squares) <= tolerance<S>(24, squares));
      check_close(turned(there, [&](S* row, Index size) { kvdecode::turn_row_back(transform, row, size); }),
                  x, tolerance<S>(24, std::sqrt(squares)));
      if (transform == RowTransform::kNone) check_same_bits(there, x);
    }
}

TEST_CASE("hadamard: signs are the reference's where it has some, and both kinds everywhere else") {
  for (const Index n : {32, 64, 128}) {
    const kvdecode_test::StoredTensors vectors("kvquant/vectors-" + std::to_string(n));
    const std::vector<float> signs = vectors.read<float>("signs");
    for (Index i = 0; i < n; ++i)
      CHECK(kvdecode::detail::HadamardSigns::is_negative(n, i) == (signs[static_cast<std::size_t>(i)] < 0));
  }
  for (const Index n : {8, 16, 256, 512, 1024}) {
    Index n_negative = 0;
    for (Index i = 0; i < n; ++i) n_negative += kvdecode::detail::HadamardSigns::is_negative(n, i) ? 1 : 0;
    CHECK(n_negative >= n / 4);
    CHECK(n_negative <= n - n / 4);
  }
}

TEST_CASE("hadamard: rows of powers of two can be turned, up to a length") {
  for (const Index n : kSizes) {
    CHECK(kvdecode::can_turn(n));
    CHECK(kvdecode::inverse_root(n) == static_cast<float>(1.0 / std::sqrt(static_cast<double>(n))));
  }
  for (const Index n : {-64, -1, 0, 3, 48, 80, 96, 576, 2048}) CHECK(!kvdecode::can_turn(n));
}

}  // namespace

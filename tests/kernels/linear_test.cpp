// SPDX-License-Identifier: MIT
#include <reference/linear.hpp>
#include <support/canonical.hpp>
#include <support/compare.hpp>
#include <support/executors.hpp>
#include <support/guarded.hpp>
#include <support/model.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/kvdecode.hpp>  // with extern templates where kvdecode::compiled is linked

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace {

using kvdecode::CoreFormats;
using kvdecode::Counting;
using kvdecode::ExecutorRef;
using kvdecode::FormatId;
using kvdecode::Index;
using kvdecode::MatrixView;
using kvdecode::RowsView;
using kvdecode::kernels::LinearJob;
using kvdecode_test::BackwardsExecutor;
using kvdecode_test::canonical_dot;
using kvdecode_test::check_close;
using kvdecode_test::check_same_bits;
using kvdecode_test::draws;
using kvdecode_test::Guarded;
using kvdecode_test::GuardedRows;
using kvdecode_test::magnitude;
using kvdecode_test::tolerance;

#if defined(KVDECODE_EXHAUSTIVE)
constexpr Index kOneOf = 1;
#else
constexpr Index kOneOf = 3;  // of the combinations of sizes; every two sizes still meet
#endif

constexpr FormatId kFormats[] = {FormatId::kF32, FormatId::kBF16, FormatId::kF16, FormatId::kF64};

/// W with what keeps it in memory.
struct Matrix {
  MatrixView w;
  std::vector<std::shared_ptr<const void>> owners;

  Matrix(FormatId format, bool transposed, Index rows, Index cols, Index offset = 1, Index row_padding = 3) {
    kvdecode_test::RandomNumbers numbers({.seed = static_cast<std::uint64_t>(1000 * rows + cols),
                                          .format = format,
                                          .offset = offset,
                                          .row_padding = row_padding});
    w = numbers.matrix(rows, cols, 1.0, transposed);
    owners = numbers.take_owners();
  }
};

/// All elements of W as T, row by row.
template <class T>
std::vector<std::vector<T>> decoded(const MatrixView& w) {
  std::vector<std::vector<T>> rows;
  for (const auto& row : kvdecode_reference::read(w)) {
    rows.emplace_back();
    for (const double x : row) rows.back().push_back(static_cast<T>(x));
  }
  return rows;
}

template <class T>
std::vector<T> expected_product(const std::vector<std::vector<T>>& w, RowsView<const T> x, const T* bias) {
  std::vector<T> y;
  for (Index t = 0; t < x.rows; ++t)
    for (std::size_t r = 0; r < w.size(); ++r) {
      const T sum = canonical_dot(w[r].data(), x.row(t), x.cols);
      y.push_back(bias == nullptr ? sum : sum + bias[r]);
    }
  return y;
}

/// Runs one product through linear() in some parts, everything fenced, and holds it against the canonical
/// dot.
template <class T>
void check_product(const Matrix& matrix, const std::vector<std::vector<T>>& w, Index n, Index parts,
                   bool has_bias) {
  const Index d_in = matrix.w.cols, d_out = matrix.w.rows;
  const std::vector<T> numbers = draws<T>(n * (d_in + 1) + 1, static_cast<std::uint64_t>(n + d_in));
  const RowsView<const T> x{numbers.data() + 1, n, d_in, d_in + 1};
  const std::vector<T> bias = draws<T>(d_out, 9);
  GuardedRows<T> y(n, d_out, 5);
  const Index stride = kvdecode::kernels::linear_scratch<T>(d_in, n);
  Guarded<T> scratch(parts * stride);
  const BackwardsExecutor exec{parts};
  const LinearJob<T> job{matrix.w, has_bias ? bias.data() : nullptr, x, y.view()};
  kvdecode::kernels::linear<CoreFormats, T>(exec, std::span(&job, 1), scratch.data(), stride);
  check_same_bits(y.packed(), expected_product(w, x, job.bias));
  CHECK(y.is_intact());
  CHECK(scratch.is_intact());
}

constexpr Index kInputs[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,   10,  11, 12,
                             13, 14, 15, 16, 17, 31, 32, 33, 255, 256, 257};
constexpr Index kOutputs[] = {1, 15, 16, 17, 33, 130};
constexpr Index kTokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 33};
constexpr Index kParts[] = {1, 2, 3, 7};

template <class T>
void check_sizes(bool transposed) {
  Index n_cases = 0;
  for (const FormatId format : kFormats) {
    CAPTURE(to_string(format));
    Index i = 0;
    for (const Index d_in : kInputs) {
      CAPTURE(d_in);
      Index j = 0;
      for (const Index d_out : kOutputs) {
        CAPTURE(d_out);
        const Matrix matrix(format, transposed, d_out, d_in, 1 + n_cases % 5, n_cases % 4);
        const std::vector<std::vector<T>> w = decoded<T>(matrix.w);
        Index k = 0;
        for (const Index n : kTokens) {
          CAPTURE(n);
          if ((i + j + k++) % kOneOf != 0) continue;
          check_product(matrix, w, n, kParts[n_cases % 4], n_cases % 3 == 0);
          ++n_cases;
        }
        ++j;
      }
      ++i;
    }
  }
}

TEST_CASE_TEMPLATE("linear: every output is the canonical dot of its row, whatever the sizes and parts", T,
                   float, double) {
  check_sizes<T>(false);
}

TEST_CASE_TEMPLATE("linear: so it is of a matrix stored transposed", T, float, double) {
  check_sizes<T>(true);
}

TEST_CASE_TEMPLATE("linear: a long row, several panels of rows", T, float, double) {
  for (const bool transposed : {false, true})
    for (const FormatId format : {FormatId::kBF16, FormatId::kF32}) {
      CAPTURE(transposed);
      CAPTURE(to_string(format));
      const Matrix matrix(format, transposed, 70, 4099);
      const std::vector<std::vector<T>> w = decoded<T>(matrix.w);
      for (const Index n : {1, 2, 7}) check_product(matrix, w, n, 2, false);
    }
}

TEST_CASE_TEMPLATE("linear: is near the reference", T, float, double) {
  for (const FormatId format : kFormats)
    for (const bool transposed : {false, true}) {
      const Matrix matrix(format, transposed, 33, 257);
      const std::vector<T> x = draws<T>(3 * 257, 4), bias = draws<T>(33, 5);
      std::vector<T> y(3 * 33);
      Guarded<T> scratch(kvdecode::kernels::linear_scratch<T>(257, 3));
      const LinearJob<T> job{matrix.w, bias.data(), {x.data(), 3, 257, 257}, {y.data(), 3, 33, 33}};
      kvdecode::kernels::linear<CoreFormats, T>({}, std::span(&job, 1), scratch.data(), 0);
      const kvdecode_reference::Vector b(bias.begin(), bias.end());
      // A product passes through at most 17 roundings of its lane, 4 of the tree, 1 of the bias; one more if
      // the matrix itself was rounded to T.
      check_close(
          RowsView<T>{y.data(), 3, 33, 33},
          kvdecode_reference::linear(kvdecode_reference::read(matrix.w), b,
                                     kvdecode_test::as_rows(RowsView<const T>{x.data(), 3, 257, 257})),
          tolerance<T>(23.0 / 2, 257.0));
    }
}

TEST_CASE_TEMPLATE("linear: several products in one step, on any executor", T, float, double) {
  const Matrix a(FormatId::kF16, false, 40, 24), b(FormatId::kF32, true, 7, 24),
      c(FormatId::kBF16, false, 130, 24);
  for (const Index n : {1, 5}) {
    const std::vector<T> x = draws<T>(n * 24, 6);
    const RowsView<const T> rows{x.data(), n, 24, 24};
    const auto run = [&](ExecutorRef exec) {
      std::vector<std::vector<T>> y;
      for (const Index d_out : {40, 7, 130}) y.emplace_back(static_cast<std::size_t>(n * d_out), T(7));
      const Index stride = kvdecode::kernels::linear_scratch<T>(24, n);
      Guarded<T> scratch(exec.concurrency() * stride);
      const std::array jobs{LinearJob<T>{a.w, nullptr, rows, {y[0].data(), n, 40, 40}},
                            LinearJob<T>{b.w, nullptr, rows, {y[1].data(), n, 7, 7}},
                            LinearJob<T>{c.w, nullptr, rows, {y[2].data(), n, 130, 130}}};
      kvdecode::kernels::linear<CoreFormats, T>(exec, std::span(jobs), scratch.data(), stride);
      CHECK(scratch.is_intact());
      return y;
    };
    kvdecode::ThreadTeam team(3);
    kvdecode_test::HostPool pool;
    for (const std::vector<std::vector<T>>& y : {run({}), run(team), run(pool)}) {
      check_same_bits(y[0], expected_product(decoded<T>(a.w), rows, static_cast<const T*>(nullptr)));
      check_same_bits(y[1], expected_product(decoded<T>(b.w), rows, static_cast<const T*>(nullptr)));
      check_same_bits(y[2], expected_product(decoded<T>(c.w), rows, static_cast<const T*>(nullptr)));
    }
  }
}

TEST_CASE_TEMPLATE("linear: lanes past the end stay at -0", T, float, double) {
  // As in sums_test.cpp: all products underflow to -0, so the sum is -0, unless a tail was padded with zeros.
  const T tiny = std::numeric_limits<T>::min();
  for (const bool transposed : {false, true})
    for (const Index n : {1, 2, 9})
      for (const Index d_in : {16, 17, 31, 40}) {
        const std::vector<T> w(static_cast<std::size_t>(33 * d_in), tiny);
        const std::vector<T> x(static_cast<std::size_t>(n * d_in), -tiny);
        std::vector<T> y(static_cast<std::size_t>(n * 33), T(1));
        const MatrixView view{kvdecode::Native<T>::kId,
                              reinterpret_cast<const std::byte*>(w.data()),
                              33,
                              d_in,
                              static_cast<Index>(sizeof(T)) * (transposed ? 33 : d_in),
                              transposed};
        const LinearJob<T> job{view, nullptr, {x.data(), n, d_in, d_in}, {y.data(), n, 33, 33}};
        Guarded<T> scratch(kvdecode::kernels::linear_scratch<T>(d_in, n));
        kvdecode::kernels::linear<CoreFormats, T>({}, std::span(&job, 1), scratch.data(), 0);
        check_same_bits(y, std::vector<T>(y.size(), T(-0.0)));
      }
}

TEST_CASE("linear: a scalar of one's own has the bits of its base and counts every multiply-add") {
  using S = Counting<float>;
  for (const bool transposed : {false, true})
    for (const Index n : {1, 4}) {
      const Matrix matrix(FormatId::kBF16, transposed, 19, 21);
      const std::vector<float> numbers = draws<float>(n * 21, 8);
      const std::vector<S> x(numbers.begin(), numbers.end());
      std::vector<S> y(static_cast<std::size_t>(n * 19));
      Guarded<S> scratch(kvdecode::kernels::linear_scratch<S>(21, n));
      const LinearJob<S> job{matrix.w, nullptr, {x.data(), n, 21, 21}, {y.data(), n, 19, 19}};
      kvdecode::take_work_counters();
      kvdecode::kernels::linear<CoreFormats, S>({}, std::span(&job, 1), scratch.data(), 0);
      const kvdecode::WorkCounters counters = kvdecode::take_work_counters();
      CHECK(counters[kvdecode::Work::kLinear] == n * 19 * 21);
      CHECK(counters[kvdecode::Work::kOther] == 0);
      std::vector<float> values;
      for (const S v : y) values.push_back(static_cast<float>(v));
      check_same_bits(values, expected_product(decoded<float>(matrix.w), {numbers.data(), n, 21, 21},
                                               static_cast<const float*>(nullptr)));
      CHECK(scratch.is_intact());
    }
}

TEST_CASE_TEMPLATE("linear: a scale comes between the product and the bias, each rounded by itself", T, float,
                   double) {
  for (const bool transposed : {false, true})
    for (const Index n : {1, 5}) {
      const Matrix matrix(FormatId::kBF16, transposed, 37, 50);
      const std::vector<T> numbers = draws<T>(n * 50, 4), bias = draws<T>(37, 5);
      const RowsView<const T> x{numbers.data(), n, 50, 50};
      const T scale = T(0.37);
      GuardedRows<T> y(n, 37, 5);
      Guarded<T> scratch(3 * kvdecode::kernels::linear_scratch<T>(50, n));
      const LinearJob<T> job{matrix.w, bias.data(), x, y.view(), &scale};
      const BackwardsExecutor exec{3};
      kvdecode::kernels::linear<CoreFormats, T>(exec, std::span(&job, 1), scratch.data(),
                                                kvdecode::kernels::linear_scratch<T>(50, n));
      std::vector<T> expected = expected_product(decoded<T>(matrix.w), x, static_cast<const T*>(nullptr));
      for (std::size_t i = 0; i < expected.size(); ++i)
        expected[i] = kvdecode::mul(expected[i], scale) + bias[i % 37];
      check_same_bits(y.packed(), expected);
      CHECK(y.is_intact());
    }
}

TEST_CASE("linear: a scale is one operation an output, and no multiply-add") {
  using S = Counting<float>;
  const Matrix matrix(FormatId::kF32, false, 19, 21);
  const std::vector<S> x(3 * 21, S(1.0f));
  const S scale = S(2.0f);
  const auto count = [&](const S* s) {
    std::vector<S> y(3 * 19);
    Guarded<S> scratch(kvdecode::kernels::linear_scratch<S>(21, 3));
    const LinearJob<S> job{matrix.w, nullptr, {x.data(), 3, 21, 21}, {y.data(), 3, 19, 19}, s};
    kvdecode::take_work_counters();
    kvdecode::kernels::linear<CoreFormats, S>({}, std::span(&job, 1), scratch.data(), 0);
    return kvdecode::take_work_counters();
  };
  const kvdecode::WorkCounters with = count(&scale), without = count(nullptr);
  CHECK(with[kvdecode::Work::kLinear] == 3 * 19 * 21);
  CHECK(without[kvdecode::Work::kLinear] == 3 * 19 * 21);
  CHECK(with.other_operations == without.other_operations + 3 * 19);
}

TEST_CASE_TEMPLATE("linear: products of different rows side by side are those of each alone", T, float,
                   double) {
  // The matrices lie among one another's rows, as those of heads do; parts of x and y are side by side too.
  const Matrix all(FormatId::kF16, false, 3 * (20 + 9), 33);
  for (const Index n : {1, 2, 7})
    for (const Index parts : kParts) {
      CAPTURE(n);
      CAPTURE(parts);
      const std::vector<T> numbers = draws<T>(n * 3 * 33, static_cast<std::uint64_t>(n));
      GuardedRows<T> y(n, 3 * 50, 5);
      const auto matrix = [&](Index i) {
        MatrixView w = all.w;
        w.data += (i * 29 + (i % 2 == 0 ? 0 : 20)) * w.stride;
        w.rows = i % 2 == 0 ? 20 : 9;
        if (i % 2 == 0) {
          std::swap(w.rows, w.cols);
          w.transposed = true;
        }
        return w;
      };
      const auto job_of = [&](Index i) -> LinearJob<T> {
        const MatrixView w = matrix(i);
        const RowsView<T> to{y.view().data + i * 50, n, w.rows, y.view().stride};
        return {.w = w, .x = {numbers.data() + i * 33, n, w.cols, 3 * 33}, .y = to};
      };
      for (T& number : std::span(y.view().data, static_cast<std::size_t>(3 * 50))) number = T(7);
      const Index stride =
          std::max(kvdecode::kernels::linear_scratch<T>(20, n), kvdecode::kernels::linear_scratch<T>(33, n));
      Guarded<T> scratch(parts * stride);
      const BackwardsExecutor exec{parts};
      kvdecode::kernels::linear_each<CoreFormats, T>(exec, 3, job_of, scratch.data(), stride);
      for (Index i = 0; i < 3; ++i) {
        const LinearJob<T> job = job_of(i);
        std::vector<T> actual;
        for (Index row = 0; row < n; ++row)
          actual.insert(actual.end(), job.y.row(row), job.y.row(row) + job.y.cols);
        check_same_bits(actual, expected_product(decoded<T>(job.w), job.x, static_cast<const T*>(nullptr)));
      }
      CHECK(y.view().data[33] == T(7));  // nothing beyond the outputs of the first
      CHECK(y.is_intact());
      CHECK(scratch.is_intact());
    }
}

TEST_CASE("linear: no rows of x, no work") {
  const Matrix matrix(FormatId::kF32, false, 5, 5);
  const LinearJob<float> job{matrix.w, nullptr, {nullptr, 0, 5, 5}, {nullptr, 0, 5, 5}};
  kvdecode::kernels::linear<CoreFormats, float>({}, std::span(&job, 1), static_cast<float*>(nullptr), 0);
}

}  // namespace

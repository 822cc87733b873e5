// SPDX-License-Identifier: MIT
#include <support/canonical.hpp>
#include <support/compare.hpp>
#include <support/guarded.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/kernels/dot_tile.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <vector>

namespace {

using kvdecode::Index;
using kvdecode_test::canonical_dot;
using kvdecode_test::check_same_bits;
using kvdecode_test::draws;
using kvdecode_test::GuardedRows;
using kvdecode_test::OffsetBytes;

constexpr Index kLengths[] = {1, 7, 15, 16, 17, 31, 32, 33, 80, 257};

template <class F, class T, int R, int C>
void check_tile() {
  CAPTURE(R);
  CAPTURE(C);
  for (const Index n : kLengths) {
    CAPTURE(n);
    const Index row_stride = F::row_bytes(n) + 3;
    const OffsetBytes rows((R - 1) * row_stride + F::row_bytes(n), 1);
    std::vector<std::vector<T>> w;
    for (int r = 0; r < R; ++r) {
      const std::vector<T> values = draws<T>(n, static_cast<std::uint64_t>(n + r));
      F::encode(values.data(), n, rows.data() + r * row_stride);
      w.emplace_back();
      for (Index k = 0; k < n; ++k)
        w.back().push_back(F::template decode<T>(rows.data() + r * row_stride, k));
    }
    const std::vector<T> x = draws<T>(C * (n + 2), static_cast<std::uint64_t>(n));
    GuardedRows<T> out(C, R, 2);
    const Index ahead = n % 2 * 64;  // what is fetched ahead does not show
    kvdecode::kernels::dot_tile<F, T, R, C>(rows.data(), row_stride, x.data(), n + 2, n, out.view().data,
                                            out.view().stride, ahead);
    std::vector<T> expected;
    for (int c = 0; c < C; ++c)
      for (int r = 0; r < R; ++r)
        expected.push_back(canonical_dot(w[static_cast<std::size_t>(r)].data(), x.data() + c * (n + 2), n));
    check_same_bits(out.packed(), expected);
    CHECK(out.is_intact());
  }
}

template <class F, class T, int R>
void check_columns() {
  check_tile<F, T, R, 1>();
  check_tile<F, T, R, 2>();
  check_tile<F, T, R, 3>();
  check_tile<F, T, R, 4>();
  check_tile<F, T, R, 6>();
}

TEST_CASE_TEMPLATE("dot tile: every shape has the bits of single dots", T, float, double) {
  using Native = kvdecode::Native<T>;
  check_columns<Native, T, 1>();
  check_columns<Native, T, 4>();
  check_tile<Native, T, 2, 2>();
  check_tile<Native, T, 2, 3>();
  check_tile<Native, T, 8, 1>();
}

TEST_CASE_TEMPLATE("dot tile: of stored rows of every format", F, kvdecode::F64, kvdecode::F32, kvdecode::F16,
                   kvdecode::BF16) {
  check_tile<F, float, 4, 2>();
  check_tile<F, float, 8, 1>();
  check_tile<F, double, 1, 1>();
  check_tile<F, double, 4, 1>();
}

// As in core/sums_test.cpp: all products underflow to -0, and so do the sums, unless a tail is padded with zeros.
template <class T, int R, int C>
void check_lanes_at_minus_zero() {
  const T tiny = std::numeric_limits<T>::min();
  const std::vector<T> w(static_cast<std::size_t>(R * 31), -tiny), x(static_cast<std::size_t>(C * 31), tiny);
  for (Index n = 16; n <= 31; ++n) {
    std::vector<T> y(R * C, T(1));
    kvdecode::kernels::dot_tile<kvdecode::Native<T>, T, R, C>(reinterpret_cast<const std::byte*>(w.data()),
                                                              n * static_cast<Index>(sizeof(T)), x.data(), n,
                                                              n, y.data(), R);
    check_same_bits(y, std::vector<T>(y.size(), T(-0.0)));
  }
}

TEST_CASE_TEMPLATE("dot tile: lanes past the end stay at -0", T, float, double) {
  check_lanes_at_minus_zero<T, 1, 1>();
  check_lanes_at_minus_zero<T, 4, 3>();
}

TEST_CASE_TEMPLATE("dot tile: the widest shape leaves registers for the operands", T, float, double) {
  using Shape = kvdecode::kernels::TileShape<T>;
  CHECK(Shape::kRows >= 1);
  CHECK(Shape::kCols >= 1);
  if (!Shape::kScalar)
    CHECK((Shape::fits(Shape::kRows, Shape::kCols) || (Shape::kRows == 1 && Shape::kCols == 1)));
}

}  // namespace

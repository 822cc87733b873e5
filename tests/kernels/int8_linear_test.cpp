// SPDX-License-Identifier: MIT
// kernels/int8_linear.hpp and kernels/activations.hpp: against the formula, written down with plain integers, and
// against a product in double of what rounding leaves.
#include <reference/int8_linear.hpp>
#include <reference/linear.hpp>
#include <support/block_formats.hpp>
#include <support/compare.hpp>
#include <support/executors.hpp>
#include <support/guarded.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/kvdecode.hpp>  // with extern templates where kvdecode::compiled is linked

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using kvdecode::Counting;
using kvdecode::ExactActivations;
using kvdecode::ExecutorRef;
using kvdecode::GgufFormats;
using kvdecode::Index;
using kvdecode::Int8Activations;
using kvdecode::MatrixView;
using kvdecode::kernels::LinearJob;
using kvdecode::kernels::RoundedRows;
using kvdecode_test::check_close;
using kvdecode_test::check_same_bits;
using kvdecode_test::draws;
using kvdecode_test::for_each_block_format;
using kvdecode_test::for_each_integer_format;
using kvdecode_test::Guarded;
using kvdecode_test::GuardedRows;
using kvdecode_test::OffsetBytes;
using kvdecode_test::SplitMix64;

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// A matrix of blocks of any bits, but for those that would make a scale infinite or no number.
template <class F>
struct Blocks {
  Blocks(Index d_out, Index d_in, Index offset, Index row_padding)
      : bytes(d_out * (F::row_bytes(d_in) + row_padding), offset),
        w{F::kId, bytes.data(), d_out, d_in, F::row_bytes(d_in) + row_padding, false} {
    SplitMix64 random(static_cast<std::uint64_t>(d_out * 1000 + d_in));
    for (Index i = 0; i < d_out * w.stride; ++i) bytes.data()[i] = static_cast<std::byte>(random() & 0xbfu);
  }
  OffsetBytes bytes;
  MatrixView w;
};

/// One row of the formula, with plain integers.
template <class F, class S>
S one_row(const std::byte* row, const std::vector<S>& x) {
  using B = typename F::Layout;
  const auto n = static_cast<Index>(x.size());
  S y = S(0);
  for (Index first = 0; first < n; first += 32) {
    const Index end = std::min(n, first + 32);
    S largest = S(0);
    for (Index k = first; k < end; ++k) largest = std::max(largest, std::abs(x[at(k)]));
    const S d_x = largest / S(127);
    const std::byte* const block = row + first / B::kSize * B::kBytes;
    const kvdecode::detail::Integers integers = B::integers(block);
    std::int64_t sum = 0, sum_of_minimums = 0;
    for (Index k = first; k < end; ++k) {
      const int i = static_cast<int>(k % B::kSize);
      const auto q =
          d_x == S(0)
              ? 0
              : static_cast<std::int64_t>(std::clamp(std::nearbyint(x[at(k)] / d_x), S(-127), S(127)));
      const auto code = static_cast<std::int8_t>(B::codes(block, i / 16 * 16)[i % 16]);
      int scale = 1, minimum = 1;
      if constexpr (B::kSpan != 0) {
        scale = static_cast<std::int8_t>(integers.scales[i / B::kSpan]);
        minimum = integers.minimums[i / B::kSpan];
      }
      sum += q * code * scale;
      sum_of_minimums += q * minimum;
    }
    y = std::fma(S(sum), kvdecode::mul(S(integers.scale), d_x), y);
    if (B::kHasMinimum) y = std::fma(S(sum_of_minimums), kvdecode::mul(S(integers.minimum), d_x), y);
  }
  return y;
}

/// y = (W x) s + b as a policy computes it.
template <class A, class S>
std::vector<S> product(const MatrixView& w, const std::type_identity_t<S>* bias, const std::vector<S>& x,
                       Index n, ExecutorRef exec = {}, const std::type_identity_t<S>* scale = nullptr) {
  const Index stride = (A::template scratch<S>(w.cols, n) + 15) / 16 * 16;
  Guarded<S> scratch(stride * exec.concurrency());
  std::vector<double> rounded(at(A::template rounded_bytes<S>(w.cols, n) / 8));
  GuardedRows<S> y(n, w.rows, 3);
  const LinearJob<S> job{w, bias, {x.data(), n, w.cols, w.cols}, y.view(), scale};
  A::template linear<GgufFormats, S>(exec, std::span(&job, 1), scratch.data(), stride,
                                     reinterpret_cast<std::byte*>(rounded.data()));
  CHECK(scratch.is_intact());
  CHECK(y.is_intact());
  return y.packed();
}

TEST_CASE("int8 products: codes and integer scales are the numbers of a block") {
  for_each_integer_format([]<class F>() {
    using B = typename F::Layout;
    CAPTURE(F::kName);
    SplitMix64 random(7);
    std::vector<std::byte> block(B::kBytes);
    for (int round = 0; round < 50; ++round) {
      for (std::byte& b : block) b = static_cast<std::byte>(random() & 0xbfu);
      const kvdecode::detail::Integers integers = B::integers(block.data());
      for (int i = 0; i < B::kSize; ++i) {
        const auto code = static_cast<std::int8_t>(B::codes(block.data(), i / 16 * 16)[i % 16]);
        double scale = static_cast<double>(integers.scale), minimum = static_cast<double>(integers.minimum);
        if constexpr (B::kSpan != 0) {
          scale *= static_cast<std::int8_t>(integers.scales[i / B::kSpan]);
          minimum *= integers.minimums[i / B::kSpan];
        }
        const auto value = static_cast<double>(B::value(block.data(), i));
        const double exact = scale * code + (B::kHasMinimum ? minimum : 0.0);
        REQUIRE(std::abs(value - exact) <=
                kvdecode_test::tolerance<float>(2.0, std::abs(scale * code) + std::abs(minimum)));
      }
    }
  });
}

TEST_CASE("int8 products: the largest sums of integers are exact in float") {
  // |s c q| summed over 32 numbers, at the formats' limits.
  constexpr int kLimit = 1 << 24;
  CHECK(32 * 128 * 127 < kLimit);       // Q8_0: codes alone
  CHECK(32 * 32 * 127 * 128 < kLimit);  // Q6_K
  CHECK(32 * 127 * 127 * 32 < kLimit);  // IQ4_XS
  CHECK(32 * 31 * 127 * 63 < kLimit);   // Q5_K
}

TEST_CASE_TEMPLATE("int8 products: rounding a row", S, float, double, Counting<float>) {
  using T = std::conditional_t<std::is_same_v<S, double>, double, float>;
  const T tiny = std::numeric_limits<T>::denorm_min();
  for (const Index n : {1, 15, 16, 31, 32, 33, 63, 64, 65, 300}) {
    CAPTURE(n);
    for (const T scale : {T(1), T(0), T(1e30), T(-3e-30), tiny, 150 * tiny, 190 * tiny}) {
      std::vector<T> x = draws<T>(n, static_cast<std::uint64_t>(n));
      for (T& v : x) v *= scale;
      if (scale == 190 * tiny)
        std::fill(x.begin(), x.end(), scale);  // a scale rounded down: more than 127 of it
      std::vector<S> in;
      for (const T v : x) in.push_back(S(v));
      std::vector<double> memory(at(RoundedRows<S>::bytes(n, 2) / 8));
      RoundedRows<S> rows(reinterpret_cast<std::byte*>(memory.data()), n);
      rows.round(1, in.data());
      for (Index b = 0; b < (n + 31) / 32; ++b) {
        T largest = 0;
        for (Index k = 32 * b; k < std::min(n, 32 * b + 32); ++k)
          largest = std::max(largest, std::abs(x[at(k)]));
        const T d = largest / 127;
        REQUIRE(static_cast<double>(rows[1][b].scale) == static_cast<double>(d));
        int sums[2] = {};
        for (Index k = 32 * b; k < 32 * b + 32; ++k) {
          const int q = rows[1][b].codes[k % 32];
          const T expected =
              k >= n || d == 0 ? T(0) : std::clamp(std::nearbyint(x[at(k)] / d), T(-127), T(127));
          REQUIRE(q == static_cast<int>(expected));
          sums[k / 16 % 2] += q;
        }
        for (int half = 0; half < 2; ++half)
          CHECK(static_cast<double>(rows[1][b].sums[half]) == static_cast<double>(sums[half]));
      }
    }
  }
}

TEST_CASE("int8 products: halves round to even") {
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f;
  for (int i = 1; i < 20; ++i) x[at(i)] = static_cast<float>(i - 10) + 0.5f;
  std::vector<double> memory(at(RoundedRows<float>::bytes(32, 1) / 8));
  RoundedRows<float> rows(reinterpret_cast<std::byte*>(memory.data()), 32);
  rows.round(0, x.data());
  for (int i = 1; i < 20; ++i) {
    const int below = i - 10, even = below % 2 == 0 ? below : below + 1;
    CHECK(rows[0]->codes[i] == even);
  }
}

TEST_CASE_TEMPLATE("int8 products: any number of rows and tokens has the bits of the formula", S, float,
                   double) {
  for_each_integer_format([]<class F>() {
    CAPTURE(F::kName);
    const Index sizes[] = {F::kBlock, F::kBlock - 1,    F::kBlock + 5, 3 * F::kBlock,
                           1024,      1024 + F::kBlock, 2304 + 48};
    for (const Index d_in : sizes)
      for (const Index n : {1, 2, 3, 8, 9, 19}) {
        const Index d_out = n == 1 ? 37 : n == 2 ? 16 : n == 3 ? 5 : 33;
        CAPTURE(d_in);
        CAPTURE(n);
        const Blocks<F> blocks(d_out, d_in, n % 3, n % 2);
        const std::vector<S> x = draws<S>(n * d_in, 5), bias = draws<S>(d_out, 6);
        const std::vector<S> y = product<Int8Activations>(blocks.w, n == 3 ? bias.data() : nullptr, x, n);
        std::vector<S> expected;
        for (Index t = 0; t < n; ++t)
          for (Index r = 0; r < d_out; ++r) {
            const S v = one_row<F>(blocks.w.data + r * blocks.w.stride,
                                   std::vector<S>(x.begin() + t * d_in, x.begin() + (t + 1) * d_in));
            expected.push_back(n == 3 ? v + bias[at(r)] : v);
          }
        check_same_bits(y, expected);
      }
  });
}

TEST_CASE("int8 products: a counting scalar has the same bits") {
  for_each_integer_format([]<class F>() {
    constexpr Index d_in = F::kBlock + 21, d_out = 19, n = 2;
    const Blocks<F> blocks(d_out, d_in, 1, 0);
    const std::vector<float> x = draws<float>(n * d_in, 5);
    std::vector<Counting<float>> counting;
    for (const float v : x) counting.emplace_back(v);
    std::vector<float> y;
    for (const Counting<float> v : product<Int8Activations>(blocks.w, nullptr, counting, n))
      y.push_back(static_cast<float>(v));
    check_same_bits(y, product<Int8Activations>(blocks.w, nullptr, x, n));
  });
}

TEST_CASE("int8 products: near the product of what rounding leaves") {
  for_each_integer_format([]<class F>() {
    CAPTURE(F::kName);
    constexpr Index d_in = 2 * F::kBlock + 7, d_out = 17;
    const Blocks<F> blocks(d_out, d_in, 0, 0);
    const std::vector<float> x = draws<float>(d_in, 5);
    kvdecode_reference::Rows w;
    double largest = 0.0;
    for (Index r = 0; r < d_out; ++r) {
      w.emplace_back();
      for (Index k = 0; k < d_in; ++k)
        w.back().push_back(F::template decode<double>(blocks.w.data + r * blocks.w.stride, k));
      largest = std::max(largest, kvdecode_test::magnitude(w.back()));
    }
    const kvdecode_reference::Vector rounded = kvdecode_reference::rounded_to_int8({x.begin(), x.end()});
    check_close(product<Int8Activations>(blocks.w, nullptr, x, 1), kvdecode_reference::linear(w, {}, rounded),
                kvdecode_test::tolerance<float>(4.0, largest * static_cast<double>(d_in)));
  });
}

TEST_CASE("int8 products: threads do not show, nor does company of other formats") {
  const Blocks<kvdecode::Q8_0> first(70, 96, 1, 0);
  const Blocks<kvdecode::Q4_K> second(37, 96, 0, 1);
  const std::vector<float> plain = draws<float>(33 * 96, 9);
  const MatrixView third{
      kvdecode::FormatId::kF32, reinterpret_cast<const std::byte*>(plain.data()), 33, 96, 384, false};
  for (const Index n : {1, 2, 9}) {
    const std::vector<float> x = draws<float>(n * 96, 10);
    std::vector<float> expected[] = {product<ExactActivations>(third, nullptr, x, n),
                                     product<Int8Activations>(first.w, nullptr, x, n),
                                     product<Int8Activations>(second.w, nullptr, x, n)};
    kvdecode::ThreadTeam team(3);
    kvdecode_test::HostPool pool;
    for (const ExecutorRef exec : {ExecutorRef(team), ExecutorRef(pool)}) {
      std::vector<float> y[3];
      std::array<LinearJob<float>, 3> jobs;
      const MatrixView views[] = {third, first.w, second.w};
      for (std::size_t i = 0; i < 3; ++i) {
        y[i].resize(at(n * views[i].rows));
        jobs[i] = {views[i], nullptr, {x.data(), n, 96, 96}, {y[i].data(), n, views[i].rows, views[i].rows}};
      }
      const Index stride = (Int8Activations::scratch<float>(96, n) + 15) / 16 * 16;
      std::vector<float> scratch(at(stride * exec.concurrency()));
      std::vector<double> rounded(at(Int8Activations::rounded_bytes<float>(96, n) / 8));
      Int8Activations::linear<GgufFormats, float>(exec, jobs, scratch.data(), stride,
                                                  reinterpret_cast<std::byte*>(rounded.data()));
      for (std::size_t i = 0; i < 3; ++i) check_same_bits(y[i], expected[i]);
    }
  }
}

TEST_CASE_TEMPLATE("int8 products: a scale comes between the product and the bias", S, float, double) {
  const Blocks<kvdecode::Q4_K> blocks(37, 300, 1, 0);
  const std::vector<S> bias = draws<S>(37, 12);
  const S scale = S(0.37);
  for (const Index n : {1, 3}) {
    const std::vector<S> x = draws<S>(n * 300, 11);
    std::vector<S> expected = product<Int8Activations>(blocks.w, nullptr, x, n);
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] = kvdecode::mul(expected[i], scale) + bias[i % 37];
    check_same_bits(product<Int8Activations>(blocks.w, bias.data(), x, n, {}, &scale), expected);
  }
}

TEST_CASE_TEMPLATE("int8 products: formats without integers take activations as they are", S, float, double) {
  int n_formats = 0;
  for_each_block_format([&]<class F>(Index) {
    if constexpr (!kvdecode::kernels::IsMultipliedAsIntegers<F>) {
      CAPTURE(F::kName);
      const Blocks<F> blocks(19, F::kBlock + 21, 1, 1);
      for (const Index n : {1, 3}) {
        const std::vector<S> x = draws<S>(n * blocks.w.cols, 13);
        check_same_bits(product<Int8Activations>(blocks.w, nullptr, x, n),
                        product<ExactActivations>(blocks.w, nullptr, x, n));
      }
      ++n_formats;
    }
  });
  CHECK(n_formats == 12);
}

TEST_CASE("int8 products: a transposed matrix of blocks takes activations as they are") {
  Blocks<kvdecode::Q8_0> blocks(40, 64, 0, 0);  // stored [40, 64]: W is [64, 40]
  blocks.w = {kvdecode::Q8_0::kId, blocks.bytes.data(), 64, 40, kvdecode::Q8_0::row_bytes(64), true};
  const std::vector<float> x = draws<float>(2 * 40, 3);
  check_same_bits(product<Int8Activations>(blocks.w, nullptr, x, 2),
                  product<ExactActivations>(blocks.w, nullptr, x, 2));
}

}  // namespace

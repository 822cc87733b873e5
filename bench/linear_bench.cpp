// SPDX-License-Identifier: MIT
// The product that decoding and prefill spend their time in, beside what the machine can do: for one token,
// bytes of weights a second against plain reading; for many, multiply-adds a second against the peak of the
// core; both against Eigen's own products and a textbook loop, whose bits are others. In blocks of integers also with
// activations rounded to bytes.
#include "random_blocks.hpp"
#include "rates.hpp"

#include <kvdecode/kvdecode.hpp>

#include <benchmark/benchmark.h>

#include <Eigen/Core>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

namespace {

using kvdecode::FormatId;
using kvdecode::GgufFormats;
using kvdecode::Index;
using RowMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// A product of the sizes that the benchmark names: y = W x for n rows of x.
struct Product {
  Product(FormatId format, benchmark::State& state)
      : n(state.range(0)),
        rows(state.range(1)),
        cols(state.range(2)),
        w(std::make_unique<bench::RandomBlocks>(format)->matrix(owner, rows, cols)),
        x(n, cols),
        y(n, rows),
        expected(n, rows) {
    kvdecode::detail::SplitMix64 random(5);
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = static_cast<float>(random.normal());
  }
  kvdecode::kernels::LinearJob<float> job() {
    return {w, nullptr, {x.data(), n, cols, cols}, {y.data(), n, rows, rows}};
  }
  double bytes() const { return static_cast<double>(w.rows * w.stride); }
  void set_rates(benchmark::State& state) const {
    bench::set_rates(state, bytes(), 2.0 * static_cast<double>(n * rows * cols));
  }

  Index n, rows, cols;
  kvdecode::Weights owner;
  kvdecode::MatrixView w;  // [rows, cols]
  RowMatrix x;             // [n, cols]
  RowMatrix y;             // [n, rows]
  RowMatrix expected;      // likewise
};

template <class Activations>
struct Run {
  explicit Run(Product& p)
      : product(p),
        scratch(static_cast<std::size_t>(Activations::template scratch<float>(p.cols, p.n))),
        rounded(static_cast<std::size_t>(Activations::template rounded_bytes<float>(p.cols, p.n))) {}
  void operator()() {
    const auto job = product.job();
    Activations::template linear<GgufFormats, float>({}, std::span(&job, 1), scratch.data(), 0,
                                                     rounded.data());
  }

  Product& product;
  std::vector<float> scratch;
  std::vector<std::byte> rounded;
};

/// Decodes row r of W.
void decode(const Product& p, Index r, float* out) { kvdecode::decode_row<GgufFormats>(p.w, r, out); }

void machine_read(benchmark::State& state) {
  const std::vector<std::byte> memory(static_cast<std::size_t>(state.range(0)) << 20, std::byte{1});
  const Index n = static_cast<Index>(memory.size());
  for (auto _ : state) benchmark::DoNotOptimize(bench::read_all<8>(memory.data(), n));
  bench::set_rates(state, static_cast<double>(n), 0.0);
}

void machine_fma(benchmark::State& state) {
  constexpr Index kRounds = 1000;
  for (auto _ : state) benchmark::DoNotOptimize(bench::fma_rounds(kRounds));
  bench::set_rates(state, 0.0, bench::kFmaRoundFlops * static_cast<double>(kRounds));
}

void tiles(benchmark::State& state, FormatId format) {
  Product p(format, state);
  Run<kvdecode::ExactActivations> run(p);
  run();
  // Equality first: the output of each row is the dot of the decoded row, to the bit.
  std::vector<float> row(static_cast<std::size_t>(p.cols));
  for (const Index r : {Index{0}, p.rows / 2, p.rows - 1}) {
    decode(p, r, row.data());
    for (Index t = 0; t < p.n; ++t) {
      const float expected = kvdecode::dot(row.data(), p.x.data() + t * p.cols, p.cols);
      if (std::memcmp(&expected, &p.y(t, r), sizeof expected) != 0)
        return state.SkipWithError("the product differs from the canonical dot");
    }
  }
  for (auto _ : state) {
    run();
    benchmark::ClobberMemory();
  }
  p.set_rates(state);
}

/// Whether y is the product of the weights' own numbers, but for so much of its largest.
bool is_near(Product& p, float error) {
  p.expected = p.y;
  Run<kvdecode::ExactActivations>{p}();
  const float bound = error * p.y.cwiseAbs().maxCoeff();
  const bool near = ((p.expected - p.y).array().abs() <= bound).all();
  p.y = p.expected;
  return near;
}

void int8(benchmark::State& state, FormatId format) {
  Product p(format, state);
  Run<kvdecode::Int8Activations> run(p);
  run();
  // Equality first: many tokens at once give the bits of each by itself, near the exact product.
  const RowMatrix together = p.y;
  for (Index t = 0; t < p.n; ++t) {
    const kvdecode::kernels::LinearJob<float> job{p.w,
                                                  nullptr,
                                                  {p.x.data() + t * p.cols, 1, p.cols, p.cols},
                                                  {p.y.data() + t * p.rows, 1, p.rows, p.rows}};
    kvdecode::Int8Activations::linear<GgufFormats, float>({}, std::span(&job, 1), run.scratch.data(), 0,
                                                          run.rounded.data());
  }
  if (std::memcmp(together.data(), p.y.data(), static_cast<std::size_t>(p.y.size()) * sizeof(float)) != 0)
    return state.SkipWithError("tokens at once and one by one differ");
  if (!is_near(p, 0.05f)) return state.SkipWithError("rounded activations give another product");
  for (auto _ : state) {
    run();
    benchmark::ClobberMemory();
  }
  p.set_rates(state);
}

void eigen(benchmark::State& state) {
  Product p(FormatId::kF32, state);
  const Eigen::Map<const RowMatrix> w(reinterpret_cast<const float*>(p.w.data), p.rows, p.cols);
  const auto run = [&] {
    if (p.n == 1)
      p.y.row(0).transpose().noalias() = w * p.x.row(0).transpose();
    else
      p.y.noalias() = p.x * w.transpose();
  };
  run();
  if (!is_near(p, 1e-4f)) return state.SkipWithError("Eigen computes something else");
  for (auto _ : state) {
    run();
    benchmark::DoNotOptimize(p.y.data());
  }
  p.set_rates(state);
}

/// The product as textbooks write it, each number decoded where it is needed.
template <class F>
void loop(benchmark::State& state) {
  Product p(F::kId, state);
  const auto run = [&] {
    for (Index t = 0; t < p.n; ++t)
      for (Index r = 0; r < p.rows; ++r) {
        const std::byte* const row = p.w.data + r * p.w.stride;
        float sum = 0.0f;
        for (Index c = 0; c < p.cols; ++c) sum += F::template decode<float>(row, c) * p.x(t, c);
        p.y(t, r) = sum;
      }
  };
  run();
  if (!is_near(p, 1e-3f)) return state.SkipWithError("the loop computes something else");
  for (auto _ : state) {
    run();
    benchmark::ClobberMemory();
  }
  p.set_rates(state);
}

// One token against weights beyond the last-level cache; then few and many tokens against one layer's matrix.
void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"n_tokens", "d_out", "d_in"})->Unit(benchmark::kMillisecond);
  bench->Args({1, 65536, 1024});
  for (const Index n : {1, 2, 3, 4, 7, 8, 15, 16, 17, 33, 512}) bench->Args({n, 1536, 768});
}
void few_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"n_tokens", "d_out", "d_in"})->Unit(benchmark::kMillisecond);
  bench->Args({1, 65536, 1024});
  for (const Index n : {1, 16}) bench->Args({n, 1536, 768});
}

BENCHMARK(machine_read)->Name("machine/read/f32")->ArgName("mib")->Arg(256)->Unit(benchmark::kMillisecond);
BENCHMARK(machine_fma)->Name("machine/fma/f32")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(tiles, f32, FormatId::kF32)->Name("linear/tiles/f32")->Apply(shapes);
BENCHMARK_CAPTURE(tiles, f16, FormatId::kF16)->Name("linear/tiles/f16")->Apply(shapes);
BENCHMARK_CAPTURE(tiles, bf16, FormatId::kBF16)->Name("linear/tiles/bf16")->Apply(shapes);
BENCHMARK_CAPTURE(tiles, q8_0, FormatId::kQ8_0)->Name("linear/tiles/q8_0")->Apply(shapes);
BENCHMARK_CAPTURE(tiles, q4_k, FormatId::kQ4_K)->Name("linear/tiles/q4_k")->Apply(shapes);
BENCHMARK_CAPTURE(int8, q8_0, FormatId::kQ8_0)->Name("linear/int8/q8_0")->Apply(shapes);
BENCHMARK_CAPTURE(int8, q4_k, FormatId::kQ4_K)->Name("linear/int8/q4_k")->Apply(shapes);
BENCHMARK(eigen)->Name("linear/eigen/f32")->Apply(shapes);
BENCHMARK(loop<kvdecode::F32>)->Name("linear/loop/f32")->Apply(few_shapes);
BENCHMARK(loop<kvdecode::Q8_0>)->Name("linear/loop/q8_0")->Apply(few_shapes);
BENCHMARK(loop<kvdecode::Q4_K>)->Name("linear/loop/q4_k")->Apply(few_shapes);

}  // namespace

// SPDX-License-Identifier: MIT
// The product that decoding and prefill spend their time in, beside what the machine can do: for one token,
// bytes of weights a second against plain reading; for many, multiply-adds a second against the peak of the
// core; both against Eigen's own products, whose bits are others.
#include "machine.hpp"

#include <kvdecode/kvdecode.hpp>

#include <benchmark/benchmark.h>

#include <Eigen/Core>

#include <cstring>
#include <vector>

namespace {

using kvdecode::FormatId;
using kvdecode::Index;

/// A matrix of random numbers in some format.
struct Weights {
  Weights(FormatId format, Index rows, Index cols) {
    kvdecode::RandomWeightsOptions options;
    options.format = format;
    matrix = kvdecode::detail::RandomNumbers(options).matrix(owner, rows, cols);
  }
  Index bytes() const { return matrix.rows * matrix.stride; }

  kvdecode::Weights owner;
  kvdecode::MatrixView matrix;
};

void machine_read(benchmark::State& state) {
  const Weights weights(FormatId::kF32, state.range(0), 1024);
  for (auto _ : state) benchmark::DoNotOptimize(bench::read_all(weights.matrix.data, weights.bytes()));
  state.SetBytesProcessed(state.iterations() * weights.bytes());
}

void machine_fma(benchmark::State& state) {
  constexpr Index kRounds = 1000;
  for (auto _ : state) benchmark::DoNotOptimize(bench::fma_rounds(kRounds));
  state.counters["flops"] = benchmark::Counter(bench::kFmaRoundFlops * static_cast<double>(kRounds),
                                               benchmark::Counter::kIsIterationInvariantRate);
}

/// y = W x for n rows of x, [rows, cols] weights.
void linear(benchmark::State& state, FormatId format) {
  const Index n = state.range(0), rows = state.range(1), cols = state.range(2);
  const Weights weights(format, rows, cols);
  std::vector<float> x(static_cast<std::size_t>(n * cols), 0.5f), y(static_cast<std::size_t>(n * rows));
  std::vector<float> scratch(static_cast<std::size_t>(kvdecode::kernels::linear_scratch<float>(cols, n)));
  const kvdecode::kernels::LinearJob<float> job{
      weights.matrix, nullptr, {x.data(), n, cols, cols}, {y.data(), n, rows, rows}};
  const auto run = [&] {
    kvdecode::kernels::linear<kvdecode::CoreFormats, float>({}, std::span(&job, 1), scratch.data(), 0);
  };
  run();
  // Equality first: the output of each row is the dot of the decoded row, to the bit.
  std::vector<float> row(static_cast<std::size_t>(cols));
  for (const Index r : {Index{0}, rows / 2, rows - 1}) {
    kvdecode::decode_row<kvdecode::CoreFormats>(weights.matrix, r, row.data());
    for (Index t = 0; t < n; ++t) {
      const float expected = kvdecode::dot(row.data(), x.data() + t * cols, cols);
      if (std::memcmp(&expected, &y[static_cast<std::size_t>(t * rows + r)], sizeof expected) != 0)
        return state.SkipWithError("the product differs from the canonical dot");
    }
  }
  for (auto _ : state) {
    run();
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * weights.bytes());
  state.counters["flops"] = benchmark::Counter(2.0 * static_cast<double>(n * rows * cols),
                                               benchmark::Counter::kIsIterationInvariantRate);
}

void linear_eigen(benchmark::State& state) {
  const Index n = state.range(0), rows = state.range(1), cols = state.range(2);
  const Weights weights(FormatId::kF32, rows, cols);
  using RowMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const RowMatrix> w(reinterpret_cast<const float*>(weights.matrix.data), rows, cols);
  const RowMatrix x = RowMatrix::Constant(n, cols, 0.5f);
  RowMatrix y(n, rows);
  for (auto _ : state) {
    if (n == 1)
      y.row(0).transpose().noalias() = w * x.row(0).transpose();
    else
      y.noalias() = x * w.transpose();
    benchmark::DoNotOptimize(y.data());
  }
  state.SetBytesProcessed(state.iterations() * weights.bytes());
  state.counters["flops"] = benchmark::Counter(2.0 * static_cast<double>(n * rows * cols),
                                               benchmark::Counter::kIsIterationInvariantRate);
}

void linear_f32(benchmark::State& state) { linear(state, FormatId::kF32); }
void linear_f16(benchmark::State& state) { linear(state, FormatId::kF16); }
void linear_bf16(benchmark::State& state) { linear(state, FormatId::kBF16); }

// One token against weights beyond the last-level cache; then few and many tokens against one layer's matrix.
void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"n_tokens", "d_out", "d_in"})->Unit(benchmark::kMillisecond);
  bench->Args({1, 65536, 1024});
  for (const Index n : {1, 2, 3, 4, 6, 8, 16, 33, 512}) bench->Args({n, 1536, 576});
}

BENCHMARK(machine_read)->Name("machine/read/f32")->ArgName("rows")->Arg(65536)->Unit(benchmark::kMillisecond);
BENCHMARK(machine_fma)->Name("machine/fma/f32")->Unit(benchmark::kMillisecond);
BENCHMARK(linear_f32)->Name("linear/tiles/f32")->Apply(shapes);
BENCHMARK(linear_f16)->Name("linear/tiles/f16")->Apply(shapes);
BENCHMARK(linear_bf16)->Name("linear/tiles/bf16")->Apply(shapes);
BENCHMARK(linear_eigen)->Name("linear/eigen/f32")->Apply(shapes);

}  // namespace

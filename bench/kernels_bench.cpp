// SPDX-License-Identifier: MIT
// The kernels around the products, a row at a time, each beside the expression that Eigen has for it and beside a
// textbook loop. Rows lie in the first levels of cache, so shares of what memory reads may exceed 1.
#include "rates.hpp"

#include <kvdecode/kvdecode.hpp>

#include <benchmark/benchmark.h>

#include <Eigen/Core>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

namespace {

using kvdecode::Index;
using Numbers = std::vector<float>;
using ArrayMap = Eigen::Map<Eigen::ArrayXf>;
using ConstArrayMap = Eigen::Map<const Eigen::ArrayXf>;

constexpr float kEps = 1e-5f;

/// A row of n numbers, weights or factors beside it, and where the result goes.
struct Row {
  explicit Row(Index size) : n(size) {
    kvdecode::detail::SplitMix64 random(1);
    for (Numbers* numbers : {&x, &w, &b, &y}) {
      numbers->resize(static_cast<std::size_t>(n));
      for (float& number : *numbers) number = static_cast<float>(random.normal());
    }
  }
  ConstArrayMap array(const Numbers& numbers) const { return {numbers.data(), n}; }
  ArrayMap out() { return {y.data(), n}; }

  Index n;
  Numbers x, w, b, y;
};

// ---- Norms ----------------------------------------------------------------------------------------------------

struct RmsNorm {
  static constexpr const char* kName = "rms_norm";
  static constexpr double kNumbersMoved = 3.0, kFlops = 4.0;  // of each number of the row

  static void kernel(Row& r) { kvdecode::kernels::rms_norm(r.x.data(), r.w.data(), kEps, r.n, r.y.data()); }
  static void eigen(Row& r) {
    const auto x = r.array(r.x);
    r.out() = x / std::sqrt(x.square().mean() + kEps) * r.array(r.w);
  }
  static void loop(Row& r) {
    float sum = 0.0f;
    for (const float x : r.x) sum += x * x;
    const float scale = 1.0f / std::sqrt(sum / static_cast<float>(r.n) + kEps);
    for (std::size_t i = 0; i < r.x.size(); ++i) r.y[i] = r.x[i] * scale * r.w[i];
  }
};

struct LayerNorm {
  static constexpr const char* kName = "layer_norm";
  static constexpr double kNumbersMoved = 4.0, kFlops = 7.0;

  static void kernel(Row& r) {
    kvdecode::kernels::layer_norm(r.x.data(), r.w.data(), r.b.data(), kEps, r.n, r.y.data());
  }
  static void eigen(Row& r) {
    const auto x = r.array(r.x);
    const float mean = x.mean(), variance = (x - mean).square().mean();
    r.out() = (x - mean) / std::sqrt(variance + kEps) * r.array(r.w) + r.array(r.b);
  }
  static void loop(Row& r) {
    float mean = 0.0f, variance = 0.0f;
    for (const float x : r.x) mean += x;
    mean /= static_cast<float>(r.n);
    for (const float x : r.x) variance += (x - mean) * (x - mean);
    const float scale = 1.0f / std::sqrt(variance / static_cast<float>(r.n) + kEps);
    for (std::size_t i = 0; i < r.x.size(); ++i) r.y[i] = (r.x[i] - mean) * scale * r.w[i] + r.b[i];
  }
};

// ---- Activations ----------------------------------------------------------------------------------------------

/// Elementary functions: no two count their operations alike, so there is no rate of those.
struct GatedSilu {
  static constexpr const char* kName = "gated_silu";
  static constexpr double kNumbersMoved = 3.0, kFlops = 0.0;

  static void kernel(Row& r) {
    kvdecode::kernels::activate(kvdecode::Activation::kSilu, r.x.data(),
                                static_cast<const float*>(r.w.data()), r.n, r.y.data());
  }
  static void eigen(Row& r) {
    const auto x = r.array(r.x);
    r.out() = x / (1.0f + (-x).exp()) * r.array(r.w);
  }
  static void loop(Row& r) {
    for (std::size_t i = 0; i < r.x.size(); ++i) r.y[i] = r.x[i] / (1.0f + std::exp(-r.x[i])) * r.w[i];
  }
};

template <kvdecode::Activation kind>
struct Activated {
  static constexpr double kNumbersMoved = 2.0, kFlops = 0.0;

  static void kernel(Row& r) {
    kvdecode::kernels::activate(kind, r.x.data(), static_cast<const float*>(nullptr), r.n, r.y.data());
  }
};

struct Gelu : Activated<kvdecode::Activation::kGelu> {
  static constexpr const char* kName = "gelu";

  static void eigen(Row& r) {
    const auto x = r.array(r.x);
    r.out() = 0.5f * x * (1.0f + (0.70710678f * x).unaryExpr([](float z) { return std::erf(z); }));
  }
  static void loop(Row& r) {
    for (std::size_t i = 0; i < r.x.size(); ++i)
      r.y[i] = 0.5f * r.x[i] * (1.0f + std::erf(0.70710678f * r.x[i]));
  }
};

struct GeluTanh : Activated<kvdecode::Activation::kGeluTanh> {
  static constexpr const char* kName = "gelu_tanh";

  static void eigen(Row& r) {
    const auto x = r.array(r.x);
    r.out() = 0.5f * x * (1.0f + (0.79788456f * (x + 0.044715f * x.cube())).tanh());
  }
  static void loop(Row& r) {
    for (std::size_t i = 0; i < r.x.size(); ++i) {
      const float x = r.x[i];
      r.y[i] = 0.5f * x * (1.0f + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
    }
  }
};

struct Relu : Activated<kvdecode::Activation::kRelu> {
  static constexpr const char* kName = "relu";

  static void eigen(Row& r) { r.out() = r.array(r.x).max(0.0f); }
  static void loop(Row& r) {
    for (std::size_t i = 0; i < r.x.size(); ++i) r.y[i] = std::max(r.x[i], 0.0f);
  }
};

struct ReluSquared : Activated<kvdecode::Activation::kReluSquared> {
  static constexpr const char* kName = "relu_squared";

  static void eigen(Row& r) { r.out() = r.array(r.x).max(0.0f).square(); }
  static void loop(Row& r) {
    for (std::size_t i = 0; i < r.x.size(); ++i) {
      const float x = std::max(r.x[i], 0.0f);
      r.y[i] = x * x;
    }
  }
};

// ---- Rotary ---------------------------------------------------------------------------------------------------

/// The two halves of the row turn against each other; cosines and sines are the halves of w.
struct Rotary {
  static constexpr const char* kName = "rotary";
  static constexpr double kNumbersMoved = 3.0, kFlops = 3.0;

  static void kernel(Row& r) {
    kvdecode::kernels::rotate(kvdecode::RotaryPairs::kHalves, r.x.data(), r.w.data(), r.w.data() + r.n / 2,
                              r.n / 2, r.n, r.y.data());
  }
  static void eigen(Row& r) {
    const Index half = r.n / 2;
    const auto a = r.array(r.x).head(half), b = r.array(r.x).tail(half), c = r.array(r.w).head(half),
               s = r.array(r.w).tail(half);
    r.out().head(half) = a * c - b * s;
    r.out().tail(half) = b * c + a * s;
  }
  static void loop(Row& r) {
    const std::size_t half = static_cast<std::size_t>(r.n / 2);
    for (std::size_t i = 0; i < half; ++i) {
      const float a = r.x[i], b = r.x[half + i], c = r.w[i], s = r.w[half + i];
      r.y[i] = a * c - b * s;
      r.y[half + i] = b * c + a * s;
    }
  }
};

// ---- Hadamard -------------------------------------------------------------------------------------------------

/// Heads of 128 numbers, each H x, as rotated cache formats turn them.
struct Hadamard {
  static constexpr const char* kName = "hadamard";
  static constexpr Index kHeadDim = 128;
  static constexpr double kNumbersMoved = 2.0, kFlops = 7.0;  // log2(128) sums a number

  static void kernel(Row& r) {
    r.y = r.x;
    for (Index i = 0; i < r.n; i += kHeadDim) kvdecode::hadamard(r.y.data() + i, kHeadDim);
  }
  /// The product with the matrix of signs (-1)^popcount(i & j).
  static void eigen(Row& r) {
    using Matrix = Eigen::MatrixXf;
    static const Matrix signs = Matrix::NullaryExpr(kHeadDim, kHeadDim, [](Index i, Index j) {
      return std::popcount(static_cast<std::size_t>(i & j)) % 2 == 0 ? 1.0f : -1.0f;
    });
    Eigen::Map<Matrix>(r.y.data(), kHeadDim, r.n / kHeadDim).noalias() =
        signs * Eigen::Map<const Matrix>(r.x.data(), kHeadDim, r.n / kHeadDim);
  }
  static void loop(Row& r) {
    r.y = r.x;
    for (Index first = 0; first < r.n; first += kHeadDim)
      for (Index h = 1; h < kHeadDim; h *= 2)
        for (Index i = first; i < first + kHeadDim; ++i) {
          if ((i & h) != 0) continue;
          float &a = r.y[static_cast<std::size_t>(i)], &b = r.y[static_cast<std::size_t>(i + h)];
          const float sum = a + b;
          b = a - b;
          a = sum;
        }
  }
};

// ---- The list -------------------------------------------------------------------------------------------------

template <class Kernel>
void row_kernel(benchmark::State& state, void (*run)(Row&)) {
  Row row(state.range(0)), expected(state.range(0));
  // Equality first, up to roundings: baselines sum and take functions in other ways.
  Kernel::kernel(expected);
  run(row);
  for (std::size_t i = 0; i < row.y.size(); ++i)
    if (!(std::abs(row.y[i] - expected.y[i]) <= 1e-5f * std::max(1.0f, std::abs(expected.y[i]))))
      return state.SkipWithError("kernel and baseline compute different things");
  for (auto _ : state) {
    run(row);
    benchmark::ClobberMemory();
  }
  const double n = static_cast<double>(row.n);
  bench::set_rates(state, Kernel::kNumbersMoved * n * static_cast<double>(sizeof(float)), Kernel::kFlops * n);
}

template <class Kernel>
void add() {
  const auto add_variant = [](const char* variant, void (*run)(Row&)) {
    benchmark::RegisterBenchmark((std::string(Kernel::kName) + "/" + variant + "/f32").c_str(),
                                 row_kernel<Kernel>, run)
        ->ArgName("n")
        ->Arg(4096);
  };
  add_variant("kernel", Kernel::kernel);
  add_variant("eigen", Kernel::eigen);
  add_variant("loop", Kernel::loop);
}

[[maybe_unused]] const bool kIsAdded = [] {
  add<RmsNorm>();
  add<LayerNorm>();
  add<GatedSilu>();
  add<Gelu>();
  add<GeluTanh>();
  add<Relu>();
  add<ReluSquared>();
  add<Rotary>();
  add<Hadamard>();
  return true;
}();

}  // namespace

// SPDX-License-Identifier: MIT
// 1. What does attention compute, and what are queries, keys, values and the scale for?
//
//   n    tokens                       Q  [n, d_k]   what each token looks for
//   d_k  numbers of a query or key    K  [n, d_k]   what each token offers to be found by
//   d_v  numbers of a value           V  [n, d_v]   what each token hands over when it is found
//
//   Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V                Vaswani 2017, Eq. 1
//   token i sees tokens j <= i only: the causal mask of a decoder    Vaswani 2017, section 3.2.3
//
// Run: build/examples/01_attention
#include <kvdecode/kvdecode.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

namespace {

constexpr int n = 5, d_k = 4, d_v = 2;
template <int cols>
using Rows = std::array<std::array<double, cols>, n>;

const std::array<const char*, n> words{"The", "cat", "slept", "because", "it"};

// Written by hand, so that they can be read. A model computes them: a matrix each times the token's vector.
//                    noun verb article other
const Rows<d_k> Q{{{0, 0, 0, 3}, {0, 0, 3, 0}, {3, 0, 0, 0}, {0, 3, 0, 0}, {3, 0, 0, 0}}};
const Rows<d_k> K{{{0, 0, 2, 0}, {2, 0, 0, 0}, {0, 2, 0, 0}, {0, 0, 0, 2}, {0, 0, 0, 2}}};
//                animal sleep
const Rows<d_v> V{{{0, 0}, {1, 0}, {0, 1}, {0, 0}, {0, 0}}};

/// x becomes probabilities: positive, of sum 1.
void softmax(double* x, int size) {
  const double largest = *std::max_element(x, x + size);  // changes nothing but keeps exp from overflowing
  double sum = 0.0;
  for (int j = 0; j < size; ++j) sum += x[j] = std::exp(x[j] - largest);
  for (int j = 0; j < size; ++j) x[j] /= sum;
}

/// The same formula by the kernel that every model of this library runs.
std::array<float, d_v> by_library(int i) {
  std::array<float, n * d_k> keys{};
  std::array<float, n * d_v> values{};
  std::array<float, d_k> query{};
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t c = 0; c < d_k; ++c) keys[j * d_k + c] = static_cast<float>(K[j][c]);
    for (std::size_t c = 0; c < d_v; ++c) values[j * d_v + c] = static_cast<float>(V[j][c]);
  }
  for (std::size_t c = 0; c < d_k; ++c) query[c] = static_cast<float>(Q[static_cast<std::size_t>(i)][c]);

  using namespace kvdecode::kernels;
  const AttentionPiece seen[]{{.position = 0,
                               .length = i + 1,
                               .keys = reinterpret_cast<const std::byte*>(keys.data()),
                               .key_stride = d_k * sizeof(float),
                               .values = reinterpret_cast<const std::byte*>(values.data()),
                               .value_stride = d_v * sizeof(float),
                               .rotation = 0}};
  float maximum = 0, sum = 0;
  std::array<float, d_v> output{};
  AttentionState<float> state{1, d_v, &maximum, &sum, output.data(), true};
  std::vector<float> scratch(static_cast<std::size_t>(attention_scratch(1, d_v)));
  const float scale = 1.0f / std::sqrt(static_cast<float>(d_k));
  attend_tile<kvdecode::F32, kvdecode::F32>(seen, query.data(), d_k, d_k, scale, state, scratch.data());
  finish_attention(state, output.data());
  return output;
}

}  // namespace

int main() {
  bool all_true = true;
  const auto claim = [&](bool is_true, const char* sentence) {
    std::printf("  %-7s %s\n", is_true ? "[true]" : "[FALSE]", sentence);
    all_true = all_true && is_true;
  };

  // [readme]
  double weights[n][n] = {}, output[n][d_v] = {};
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {  // the causal mask: no token sees a later one
      double score = 0.0;
      for (std::size_t c = 0; c < d_k; ++c)
        score += Q[i][c] * K[j][c];  // how well j answers what i looks for
      weights[i][j] = score / std::sqrt(d_k);
    }
    softmax(weights[i], static_cast<int>(i) + 1);
    for (std::size_t j = 0; j <= i; ++j)
      for (std::size_t c = 0; c < d_v; ++c) output[i][c] += weights[i][j] * V[j][c];
  }
  // [readme]

  std::printf("Whom each token looks at: softmax(Q K^T / sqrt(%d)), row by row\n\n  %-8s", d_k, "");
  for (const char* word : words) std::printf("%8s", word);
  std::printf("      animal   sleep\n");
  for (std::size_t i = 0; i < n; ++i) {
    std::printf("  %-8s", words[i]);
    for (std::size_t j = 0; j < n; ++j)
      j <= i ? std::printf("%8.2f", weights[i][j]) : std::printf("%8s", ".");
    std::printf("    %8.2f%8.2f\n", output[i][0], output[i][1]);
  }
  std::printf("\n  \"it\" looks for a noun, finds the key of \"cat\", and is handed its value: animal.\n");

  bool sums_to_one = true, is_kernel = true;
  for (std::size_t i = 0; i < n; ++i) {
    double sum = 0.0;
    for (std::size_t j = 0; j <= i; ++j) sum += weights[i][j];
    sums_to_one = sums_to_one && std::abs(sum - 1.0) < 1e-12;
    for (std::size_t j = i + 1; j < n; ++j) sums_to_one = sums_to_one && weights[i][j] == 0.0;
    const auto expected = by_library(static_cast<int>(i));
    for (std::size_t c = 0; c < d_v; ++c)
      is_kernel = is_kernel && std::abs(static_cast<double>(expected[c]) - output[i][c]) < 1e-6;
  }

  // What the scale is for. q . k of d_k random numbers is a sum of d_k terms of variance 1: it spreads like sqrt(d_k)
  // (Vaswani 2017, section 3.2.1). Unscaled, the more dimensions, the more one key takes everything.
  std::printf("\nWhat 1 / sqrt(d_k) is for: random queries over 16 random keys, 2,000 times\n\n");
  std::printf("  %6s %12s %10s   %23s\n", "", "spread of", "", "weight of the best key");
  std::printf("  %6s %12s %10s   %10s %12s\n", "d_k", "q . k", "sqrt(d_k)", "unscaled", "scaled");
  std::mt19937_64 random(1);
  const auto normal = [&random] {  // nearly: a sum of twelve uniform numbers, the same on every machine
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
    return sum;
  };
  bool spreads_as_sqrt = true;
  double unscaled_at_most_dims = 0.0, scaled_at_most_dims = 0.0;
  for (const int dims : {4, 64, 256}) {
    constexpr int n_tries = 2000, n_keys = 16;
    double squares = 0.0, best[2] = {0.0, 0.0};
    std::vector<double> query(static_cast<std::size_t>(dims));
    for (int i = 0; i < n_tries; ++i) {
      for (double& q : query) q = normal();
      double unscaled[n_keys], scaled[n_keys];
      for (int j = 0; j < n_keys; ++j) {
        double score = 0.0;
        for (const double q : query) score += q * normal();
        squares += score * score;
        unscaled[j] = score;
        scaled[j] = score / std::sqrt(dims);
      }
      softmax(unscaled, n_keys);
      softmax(scaled, n_keys);
      best[0] += *std::max_element(unscaled, unscaled + n_keys) / n_tries;
      best[1] += *std::max_element(scaled, scaled + n_keys) / n_tries;
    }
    const double spread = std::sqrt(squares / (n_tries * n_keys));
    std::printf("  %6d %12.1f %10.1f   %10.2f %12.2f\n", dims, spread, std::sqrt(dims), best[0], best[1]);
    spreads_as_sqrt = spreads_as_sqrt && std::abs(spread / std::sqrt(dims) - 1.0) < 0.05;
    unscaled_at_most_dims = best[0];
    scaled_at_most_dims = best[1];
  }

  std::printf("\n");
  claim(sums_to_one, "each token's weights sum to 1, and none goes to a later token");
  claim(is_kernel, "the library's kernel gives the same rows, to 1e-6");
  claim(spreads_as_sqrt, "q . k spreads like sqrt(d_k)");
  claim(unscaled_at_most_dims > 0.9 && scaled_at_most_dims < 0.4,
        "unscaled, one key of sixteen takes nearly all; scaled, many are heard");
  return all_true ? 0 : 1;
}

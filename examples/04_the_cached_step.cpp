// SPDX-License-Identifier: MIT
// 4. If old keys and values are kept, what is left to compute for a new token?
//
//   x_t  the new token's vector                                     [d_model]
//   q_t = W_q x_t,  k_t = W_k x_t,  v_t = W_v x_t                   [d_k], [d_k], [d_v]
//   K = [k_1 … k_{t-1}] becomes [k_1 … k_t], V likewise             [t, d_k], [t, d_v]
//   o_t = softmax(q_t K^T / sqrt(d_k)) V                            [d_v]      Vaswani 2017, Eq. 1, its last row
//
// One attention layer of one head, written out, with the library's cache and its kernel of attention.
//
// Run: build/examples/04_the_cached_step
#include <kvdecode/kvdecode.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

using kvdecode::Index;

namespace {

constexpr Index d_model = 4, d_k = 2, d_v = 2, T = 5;
using Input = std::array<float, d_model>;
using Head = std::array<float, d_k>;

const std::array<Input, T> x{{{0.9f, -0.3f, 0.1f, 0.4f},
                              {-0.2f, 0.8f, -0.5f, 0.1f},
                              {0.3f, 0.3f, 0.7f, -0.6f},
                              {-0.7f, 0.1f, 0.2f, 0.9f},
                              {0.5f, -0.9f, 0.4f, 0.2f}}};
const std::array<Input, d_k> w_q{{{1, 0, -1, 2}, {0, 2, 1, -1}}};
const std::array<Input, d_k> w_k{{{2, -1, 0, 1}, {1, 1, -2, 0}}};
const std::array<Input, d_v> w_v{{{1, 2, 0, 0}, {0, 0, 2, 1}}};

Index n_products = 0;  // vectors that a weight matrix was multiplied with

Head times(const std::array<Input, 2>& w, const Input& input) {
  ++n_products;
  Head result{};
  for (std::size_t row = 0; row < 2; ++row)
    for (std::size_t c = 0; c < d_model; ++c) result[row] = std::fma(w[row][c], input[c], result[row]);
  return result;
}

using Cache = kvdecode::ContiguousCache<>;

void append(Cache& cache, const Head& k, const Head& v) {
  using Rows = kvdecode::RowsView<const float>;
  cache.reserve(1);
  cache.append(0, Rows{k.data(), 1, d_k, d_k}, Rows{v.data(), 1, d_v, d_v});
  cache.commit();
}

/// softmax(q K^T / sqrt(d_k)) V over the first n rows of the cache.
Head attend(const Head& q, const Cache& cache, Index n) {
  using namespace kvdecode::kernels;
  const auto keys = *cache.keys(0, 0).begin();
  const auto values = *cache.values(0, 0).begin();
  const AttentionPiece seen[]{{0, n, keys.data, keys.row_stride, values.data, values.row_stride, 0}};
  float maximum = 0, sum = 0;
  Head output{};
  AttentionState<float> state{1, d_v, &maximum, &sum, output.data(), true};
  std::vector<float> scratch(static_cast<std::size_t>(attention_scratch(1, d_v)));
  const float scale = 1.0f / std::sqrt(static_cast<float>(d_k));
  attend_tile<kvdecode::F32, kvdecode::F32>(seen, q.data(), d_k, d_k, scale, state, scratch.data());
  finish_attention(state, output.data());
  return output;
}

/// Byte for byte: == would take +0 for -0.
bool is_same(const Head& a, const Head& b) {
  return std::bit_cast<std::array<std::byte, sizeof a>>(a) ==
         std::bit_cast<std::array<std::byte, sizeof b>>(b);
}
std::string text(const Head& h) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "(%5.2f,%5.2f)", static_cast<double>(h[0]), static_cast<double>(h[1]));
  return buffer;
}
/// "[K1 K2 K3]"
std::string names(char letter, Index n) {
  std::string list = "[";
  for (Index i = 1; i <= n; ++i) list += (i > 1 ? " " : "") + std::string(1, letter) + std::to_string(i);
  return list + "]";
}

}  // namespace

int main() {
  bool all_true = true;
  const auto claim = [&](bool is_true, const char* sentence) {
    std::printf("  %-7s %s\n", is_true ? "[true]" : "[FALSE]", sentence);
    all_true = all_true && is_true;
  };
  // A cache for one layer of one head: rows of d_k and d_v numbers, for T positions.
  const kvdecode::KvShape shape{{{.n_kv_heads = 1, .k_dim = d_k, .v_dim = d_v}}};

  std::printf(
      "The cached step: three small products for the new token, then one query over all rows kept\n\n");
  std::printf("  t  q_t            k_t            v_t            o_t            cache after the step\n");
  Cache cache(shape, T);
  std::array<Head, T> outputs{};
  for (Index t = 1; t <= T; ++t) {
    // [readme]
    const Input& x_t = x[static_cast<std::size_t>(t - 1)];
    const Head q_t = times(w_q, x_t), k_t = times(w_k, x_t), v_t = times(w_v, x_t);  // the new token's, only
    append(cache, k_t, v_t);                                                         // K = [k_1 … k_t]
    const Head o_t = attend(q_t, cache, t);                                          // one row of attention
    // [readme]
    outputs[static_cast<std::size_t>(t - 1)] = o_t;
    std::printf("  %td  %s  %s  %s  %s  K=%-16s V=%s\n", t, text(q_t).c_str(), text(k_t).c_str(),
                text(v_t).c_str(), text(o_t).c_str(), names('K', cache.kv_len()).c_str(),
                names('V', cache.kv_len()).c_str());
  }
  const Index n_cached = std::exchange(n_products, 0);

  // The naive way: at step t, queries, keys and values of all t tokens, of which only the last output is asked for.
  bool same_bits = true;
  for (Index t = 1; t <= T; ++t) {
    Cache fresh(shape, T);
    Head last{};
    for (Index i = 1; i <= t; ++i) {
      const Input& x_i = x[static_cast<std::size_t>(i - 1)];
      const Head q_i = times(w_q, x_i), k_i = times(w_k, x_i), v_i = times(w_v, x_i);
      append(fresh, k_i, v_i);
      last = attend(q_i, fresh, i);
    }
    same_bits = same_bits && is_same(last, outputs[static_cast<std::size_t>(t - 1)]);
  }
  const Index n_naive = n_products;

  std::printf(
      "\nThe query is used once and forgotten: no later token asks for it. Keys and values are what\n");
  std::printf("later tokens look at, so they stay: hence a KV cache, and not a QKV cache.\n\n");
  std::printf("  products W x for %td tokens:  naive %td  (3 for each of 1 + 2 + … + %td)\n", T, n_naive, T);
  std::printf("                              cached %td  (3 for each of %td)\n\n", n_cached, T);

  claim(same_bits, "every output of the cached steps has the bits of the naive one");
  claim(n_cached == 3 * T && n_naive == 3 * T * (T + 1) / 2, "3 T products instead of 3 T (T + 1) / 2");
  claim(cache.kv_len() == T && cache.bytes() == T * (d_k + d_v) * 4,
        "the price: the cache holds T (d_k + d_v) numbers");
  return all_true ? 0 : 1;
}

// SPDX-License-Identifier: MIT
// 11. Five things that are said of the KV cache, and what a measurement says to each.
//
//   T  tokens      t  a step      L  layers      H  query heads, H_kv  KV heads      d  numbers of a head
//
//   one masked pass   softmax(Q K^T / sqrt(d) + mask) V    all T rows at once         Vaswani 2017, section 3.2.3
//   step t, cached    2 L H d t multiply-adds of attention, 2 L H_kv d numbers more to keep
//
// Run: build/examples/11_five_misunderstandings
#include <kvdecode/kvdecode.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

using kvdecode::Cached;
using kvdecode::Index;
using kvdecode::Recompute;
using kvdecode::TokenId;

namespace {

/// Byte for byte: == would take +0 for -0.
bool same_bits(std::span<const float> a, std::span<const float> b) {
  const auto x = std::as_bytes(a), y = std::as_bytes(b);
  return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

/// "32,896"
std::string with_commas(Index n) {
  std::string digits = std::to_string(n);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

}  // namespace

int main() {
  bool all_true = true;
  const auto claim = [&](bool is_true, const char* sentence) {
    std::printf("  %-7s %s\n\n", is_true ? "[true]" : "[FALSE]", sentence);
    all_true = all_true && is_true;
  };

  constexpr Index T = 128, L = 2, H = 4, H_kv = 2, d = 8;
  const kvdecode::ModelConfig config{.n_layers = L,
                                     .d_model = 32,
                                     .n_heads = H,
                                     .n_kv_heads = H_kv,
                                     .head_dim = d,
                                     .d_ff = 64,
                                     .vocab_size = 100,
                                     .max_seq_len = T};
  const auto weights = kvdecode::random_weights(config);
  const kvdecode::Transformer<float> model(config, weights);
  const kvdecode::Transformer<kvdecode::Counting<float>> counting_model(config, weights);
  std::vector<TokenId> tokens(T);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>((7 * i + 3) % 100);
  const std::span<const TokenId> text(tokens);

  std::printf("1. \"Training uses the KV cache.\"\n\n");
  {
    // [readme]
    // Training knows the whole text: one pass under the mask gives the logits at all positions.
    kvdecode::Workspace<float> workspace;
    using Cache = kvdecode::ContiguousCache<>;
    Cache within_pass(model.kv_shape(), T);  // nobody reads it when the pass is done
    const auto rows =
        model.forward(workspace, {}, kvdecode::Segment<Cache>{&within_pass, text, kvdecode::Rows::kAll});
    // Decoding meets the tokens one by one.
    kvdecode::Decoder decoder(model, Cached<>{});
    Index n_equal = 0;
    for (Index t = 0; t < T; ++t) {
      const auto logits = decoder.step(tokens[static_cast<std::size_t>(t)]);
      n_equal += same_bits(logits, {rows.row(t), logits.size()});
    }
    // [readme]
    std::printf("  one masked pass          1 pass     %4td rows of logits\n", rows.rows);
    std::printf("  cached decoding        %3td passes   %4td rows of logits, %td of them the same bits\n", T,
                T, n_equal);
    claim(n_equal == T && rows.rows == T,
          "one pass gives all that T cached steps give: training has no use for a cache");
  }

  std::printf("2. \"It is optional, a convenience.\"\n\n");
  double factor[2] = {};
  for (const Index n : {T / 2, T}) {
    Index work[2];
    const auto count = [&](auto strategy) {
      kvdecode::Decoder decoder(counting_model, strategy);
      kvdecode::take_work_counters();
      for (const TokenId token : text.first(static_cast<std::size_t>(n))) decoder.step(token);
      const auto counters = kvdecode::take_work_counters();
      return counters[kvdecode::Work::kLinear] + counters[kvdecode::Work::kScores] +
             counters[kvdecode::Work::kValues];
    };
    work[0] = count(Recompute<>{});
    work[1] = count(Cached<>{});
    factor[n == T] = static_cast<double>(work[0]) / static_cast<double>(work[1]);
    std::printf("  %4td tokens: %12s multiply-adds without, %10s with it: %.1f times as many\n", n,
                with_commas(work[0]).c_str(), with_commas(work[1]).c_str(), factor[n == T]);
  }
  claim(factor[1] > 1.8 * factor[0] && factor[0] > 20,
        "without it the work is tens of times as much, and the factor doubles with the text");

  std::printf("3. \"It does not affect latency.\"\n\n");
  {
    kvdecode::Decoder naive(model, Recompute<>{});
    kvdecode::Decoder cached(model, Cached<>{});
    bool one_a_step = true, all_a_step = true;
    std::printf("  %6s %22s %12s\n", "step", "tokens run: without", "with it");
    double seconds[2] = {};
    const auto step = [&](auto& decoder, TokenId token, double& took) {
      const Index before = decoder.statistics().n_tokens_run;
      const auto start = std::chrono::steady_clock::now();
      decoder.step(token);
      took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      return decoder.statistics().n_tokens_run - before;
    };
    for (Index t = 1; t <= T; ++t) {
      const TokenId token = tokens[static_cast<std::size_t>(t - 1)];
      const Index n_naive = step(naive, token, seconds[0]), n_cached = step(cached, token, seconds[1]);
      all_a_step = all_a_step && n_naive == t;
      one_a_step = one_a_step && n_cached == 1;
      if (t == 1 || t == T / 2 || t == T) std::printf("  %6td %22td %12td\n", t, n_naive, n_cached);
    }
    std::printf("~ the last step took %.0f us without, %.0f us with it\n", seconds[0] * 1e6,
                seconds[1] * 1e6);
    claim(all_a_step && one_a_step,
          "without it each token waits for all before it to be run again; with it, for itself");
  }

  std::printf("4. \"It removes attention.\"\n\n");
  {
    kvdecode::Decoder decoder(counting_model, Cached<>{});
    bool is_formula = true;
    std::printf("  %6s %32s\n", "step", "multiply-adds of attention");
    for (Index t = 1; t <= T; ++t) {
      kvdecode::take_work_counters();
      decoder.step(tokens[static_cast<std::size_t>(t - 1)]);
      const auto counters = kvdecode::take_work_counters();
      const Index attention = counters[kvdecode::Work::kScores] + counters[kvdecode::Work::kValues];
      is_formula = is_formula && attention == 2 * L * H * d * t;
      if (t == 1 || t == T / 2 || t == T) std::printf("  %6td %32s\n", t, with_commas(attention).c_str());
    }
    claim(is_formula, "the new query still meets all t rows: 2 L H d t multiply-adds, more in every step");
  }

  std::printf("5. \"It needs no memory.\"\n\n");
  {
    kvdecode::Decoder naive(model, Recompute<>{});
    kvdecode::Decoder cached(model, Cached<>{});
    bool is_formula = true;
    std::printf("  %6s %22s %12s\n", "tokens", "bytes kept: without", "with it");
    for (Index t = 1; t <= T; ++t) {
      naive.step(tokens[static_cast<std::size_t>(t - 1)]);
      cached.step(tokens[static_cast<std::size_t>(t - 1)]);
      if (t != T / 2 && t != T) continue;
      const Index without = naive.statistics().cache_bytes, with = cached.statistics().cache_bytes;
      std::printf("  %6td %22td %12s\n", t, without, with_commas(with).c_str());
      is_formula = is_formula && without == 0 && with == 2 * L * H_kv * t * d * 4;
    }
    claim(is_formula, "it keeps 2 L H_kv T d numbers: the time it saves is paid for in memory");
  }
  return all_true ? 0 : 1;
}

// SPDX-License-Identifier: MIT
// 5. How fast does the work grow with the length of the text, without the cache and with it?
//
//   T  tokens written      L  layers      H  query heads      d  numbers of a head
//   W  weights that a token meets in the layers      V  those of the output head, for the last token of a step alone
//
//   a query and the rows it sees: 2 d multiply-adds each, d for its score and d for its value (Vaswani 2017, Eq. 1)
//   naive   attention  2 L H d (1 + 3 + 6 + … )  = 2 L H d T (T + 1) (T + 2) / 6      step t: t queries see 1 … t rows
//           weights    W (1 + 2 + 3 + … ) + V T  = W T (T + 1) / 2 + V T
//   cached  attention  2 L H d (1 + 2 + 3 + … )  = 2 L H d T (T + 1) / 2              step t: one query sees t rows
//           weights    W (1 + 1 + 1 + … ) + V T  = (W + V) T
//
// Counted here by a number type that counts its own multiply-adds, run through the templates that compute in float too,
// and compared with the formulas above and with the library's own, <kvdecode/model/cost.hpp>. No clock is involved.
//
// Run: build/examples/05_cost
#include <kvdecode/kvdecode.hpp>
#include <kvdecode/model/cost.hpp>
#include <kvdecode/model/cost_table.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>

using kvdecode::Index;
using kvdecode::StrategyKind;
using kvdecode::Work;

namespace {

/// Multiply-adds of writing T tokens.
struct Counted {
  Index attention = 0;
  Index weights = 0;
};

// [readme]
/// Decodes T tokens in a scalar that counts.
template <class Strategy>
Counted count(const kvdecode::Transformer<kvdecode::Counting<float>>& model, Strategy strategy, Index T) {
  kvdecode::Decoder decoder(model, strategy);
  kvdecode::take_work_counters();  // from zero
  for (Index t = 1; t <= T; ++t) decoder.step(static_cast<kvdecode::TokenId>(t % 7));
  const kvdecode::WorkCounters work = kvdecode::take_work_counters();
  return {work[Work::kScores] + work[Work::kValues], work[Work::kLinear]};
}
// [readme]

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
    std::printf("  %-7s %s\n", is_true ? "[true]" : "[FALSE]", sentence);
    all_true = all_true && is_true;
  };

  constexpr Index L = 2, H = 2, d = 8, d_model = 16, d_ff = 32, vocab_size = 8;
  const kvdecode::ModelConfig config{.n_layers = L,
                                     .d_model = d_model,
                                     .n_heads = H,
                                     .n_kv_heads = H,
                                     .head_dim = d,
                                     .d_ff = d_ff,
                                     .vocab_size = vocab_size,
                                     .max_seq_len = 256};
  const kvdecode::Transformer<kvdecode::Counting<float>> model(config, kvdecode::random_weights(config));
  // Queries, keys, values and back; three matrices of the feed-forward. The head (V above) adds a row of logits a step.
  constexpr Index W = L * (4 * d_model * H * d + 3 * d_model * d_ff), head = d_model * vocab_size;
  const kvdecode::ModelCost cost = kvdecode::model_cost(config);

  bool is_formula = true, is_library = true;
  Counted last[2], before[2];
  std::printf("Multiply-adds counted while writing T tokens; x: times as many as for half of T\n\n");
  std::printf("  %28s  attention %17s   weights\n", "", "");
  std::printf("  %5s %14s %6s %13s %6s %16s %6s %10s %6s\n", "T", "naive", "x", "cached", "x", "naive", "x",
              "cached", "x");
  for (Index T = 16; T <= 128; T *= 2) {
    last[0] = count(model, kvdecode::Recompute<>{}, T);
    last[1] = count(model, kvdecode::Cached<>{}, T);
    std::printf("  %5td", T);
    const auto column = [&](Index now, Index then, int width) {
      std::printf(" %*s", width, with_commas(now).c_str());
      if (then > 0) std::printf(" %6.2f", static_cast<double>(now) / static_cast<double>(then));
      if (then == 0) std::printf(" %6s", "-");
    };
    column(last[0].attention, before[0].attention, 14);
    column(last[1].attention, before[1].attention, 13);
    column(last[0].weights, before[0].weights, 16);
    column(last[1].weights, before[1].weights, 10);
    std::printf("\n");
    before[0] = last[0];
    before[1] = last[1];

    is_formula = is_formula && last[0].attention == 2 * L * H * d * T * (T + 1) * (T + 2) / 6 &&
                 last[0].weights == W * T * (T + 1) / 2 + head * T &&
                 last[1].attention == 2 * L * H * d * T * (T + 1) / 2 && last[1].weights == (W + head) * T;
    const auto equals = [&](StrategyKind kind, const Counted& counted) {
      const kvdecode::MultiplyAdds expected = cost.total(kind, 1, T).multiply_adds;
      return expected.attention() == static_cast<double>(counted.attention) &&
             expected.linear() == static_cast<double>(counted.weights);
    };
    is_library =
        is_library && equals(StrategyKind::kRecompute, last[0]) && equals(StrategyKind::kCached, last[1]);
  }
  std::printf(
      "\n  Twice the text: 8 times the attention without the cache, O(T^3); 4 times with it, O(T^2).\n");
  std::printf("  For the weights it is 4 times against twice, O(T^2) against O(T).\n");

  // The same formulas for a model that nobody wants to count through.
  const kvdecode::ModelConfig llama{.n_layers = 32,
                                    .d_model = 4096,
                                    .n_heads = 32,
                                    .n_kv_heads = 8,
                                    .head_dim = 128,
                                    .d_ff = 14336,
                                    .vocab_size = 128256,
                                    .max_seq_len = 131072};
  const kvdecode::ModelCost large = kvdecode::model_cost(llama);
  std::printf(
      "\nLlama-3-8B, by the same formulas: multiply-adds in all (G 10^9, T 10^12, P 10^15, E 10^18)\n\n");
  std::printf("  %8s %12s %12s %16s %28s\n", "T", "naive", "cached", "naive / cached",
              "attention's part of cached");
  for (const Index T : {100, 1000, 10000, 100000}) {
    const auto naive = large.total(StrategyKind::kRecompute, 1, T).multiply_adds;
    const auto cached = large.total(StrategyKind::kCached, 1, T).multiply_adds;
    std::printf("  %8s %12s %12s %16s %26.1f %%\n", with_commas(T).c_str(),
                kvdecode::short_count(naive.total()).c_str(), kvdecode::short_count(cached.total()).c_str(),
                with_commas(std::llround(naive.total() / cached.total())).c_str(),
                100.0 * cached.attention() / cached.total());
  }
  std::printf("\n  While T is small the weights hide attention: the curves look like O(T^2) and O(T).\n\n");

  claim(is_formula, "every count equals the formula at the top of this program");
  claim(is_library, "and the library's closed form, model_cost(config).total(strategy, 1, T)");
  claim(last[0].attention * 3 == last[1].attention * (128 + 2),
        "naive attention is (T + 2) / 3 times the cached one");
  return all_true ? 0 : 1;
}

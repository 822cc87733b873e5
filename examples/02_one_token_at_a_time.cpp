// SPDX-License-Identifier: MIT
// 2. How does a model write, and what does the plain way of doing it compute again and again?
//
//   T              steps, and tokens written behind the first one, which is given
//   x_t            the t-th token of the text
//   P(x_t | …)     its probability, for each token that it may be              [vocab_size]
//
//   P(x_1 … x_n) = product over t of P(x_t | x_1 … x_{t-1})                    Radford 2019 (GPT-2), Eq. 1
//
// A model gives P(x_t | all tokens before). So a text is written in a loop: run the model on all tokens so far, choose
// the next one (here the most probable), append it, run the model on all tokens so far …
//
// Run: build/examples/02_one_token_at_a_time
#include <kvdecode/kvdecode.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

using kvdecode::Index;
using kvdecode::TokenId;
using Cache = kvdecode::ContiguousCache<>;

int main() {
  bool all_true = true;
  const auto claim = [&](bool is_true, const char* sentence) {
    std::printf("  %-7s %s\n", is_true ? "[true]" : "[FALSE]", sentence);
    all_true = all_true && is_true;
  };

  // A small model of random numbers. What it writes means nothing; how it comes about is what matters here.
  const kvdecode::ModelConfig config{.n_layers = 2,
                                     .d_model = 32,
                                     .n_heads = 4,
                                     .n_kv_heads = 4,
                                     .head_dim = 8,
                                     .d_ff = 64,
                                     .vocab_size = 100,
                                     .max_seq_len = 64};
  const kvdecode::Transformer<float> model(config, kvdecode::random_weights(config));
  constexpr Index T = 12;

  std::vector<Index> n_run;  // tokens that passed through the model, by step
  const auto most_probable_after = [&](std::span<const TokenId> tokens) {
    kvdecode::Workspace<float> workspace;
    Cache keys_and_values(model.kv_shape(), T);  // thrown away when the step is done
    const auto logits = model.forward(workspace, {}, kvdecode::Segment<Cache>{&keys_and_values, tokens});
    n_run.push_back(keys_and_values.kv_len());
    return kvdecode::Greedy{}(std::span(logits.row(0), static_cast<std::size_t>(logits.cols)));
  };

  // [readme]
  std::vector<TokenId> tokens{1};
  while (static_cast<Index>(tokens.size()) < T + 1) {
    const TokenId next = most_probable_after(tokens);  // all tokens, through all layers, from nothing
    tokens.push_back(next);
  }
  // [readme]

  std::printf(
      "The naive loop, step by step: # a token that is new, o one that the model has seen before\n\n");
  std::printf("  step  tokens run through the model  ->  next   run  new  again\n");
  Index n_all = 0;
  for (Index t = 1; t <= T; ++t) {
    std::printf("  %4td  ", t);
    for (Index i = 1; i <= T; ++i) std::printf("%s ", i < t ? "o" : i == t ? "#" : " ");
    const auto step = static_cast<std::size_t>(t);
    std::printf("       ->  %4d %5td %4d %6td\n", tokens[step], n_run[step - 1], 1, n_run[step - 1] - 1);
    n_all += n_run[step - 1];
  }
  std::printf("  %-42s %7td %4td %6td\n\n", "in all", n_all, T, n_all - T);
  std::printf("The circles are a triangle: work done before, for the same tokens at the same places.\n");
  std::printf("12 tokens cost 78; 1,000 would cost 500,500. And that is before looking into a step, where\n");
  std::printf(
      "each of the t tokens attends to itself and all before it: a triangle again, t (t + 1) / 2 pairs.\n\n");

  // The library calls this loop Recompute.
  kvdecode::Decoder naive(model, kvdecode::Recompute<>{});
  const auto result =
      kvdecode::generate(naive, std::span(tokens).first(1), kvdecode::Greedy{}, {.max_new_tokens = T});

  claim(n_all == T * (T + 1) / 2, "the loop ran T (T + 1) / 2 tokens through the model to write T");
  claim(n_all - T == T * (T - 1) / 2, "T (T - 1) / 2 of them had been through it before");
  claim(std::equal(result.tokens.begin(), result.tokens.end(), tokens.begin() + 1, tokens.end()),
        "the library's Recompute writes the same tokens");
  claim(naive.statistics().n_tokens_run == n_all, "and runs as many to do so");
  return all_true ? 0 : 1;
}

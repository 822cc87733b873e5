// SPDX-License-Identifier: MIT
// 7. Why does a prompt of a hundred tokens take so much less than a hundred times one token?
//
//   W     numbers in the weight matrices         n  tokens that pass through them together
//   flops = 2 W n        each weight is multiplied with each of n tokens, and added
//   bytes = 4 W          f32 weights are read once a pass, whatever n is
//   operational intensity = flops / bytes = n / 2 flops a byte                   Williams 2009 (roofline)
//
// Prefill: the prompt is known, so its tokens go through together, and arithmetic is the limit (compute-bound).
// Decoding: each token needs the one before it, so n = 1: half a flop for each byte that memory has to deliver, and
// memory is the limit (memory-bound). The cache is read as well, by each sequence for itself; beside the weights of this
// program's model it is small.
//
// Run: build/examples/07_prefill_and_decode
#include <kvdecode/kvdecode.hpp>
#include <kvdecode/model/cost.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <vector>

using kvdecode::Index;
using kvdecode::TokenId;

namespace {

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Byte for byte: == would take +0 for -0.
bool same_bits(std::span<const float> a, std::span<const float> b) {
  const auto x = std::as_bytes(a), y = std::as_bytes(b);
  return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

}  // namespace

int main() {
  bool all_true = true;
  const auto claim = [&](bool is_true, const char* sentence) {
    std::printf("  %-7s %s\n", is_true ? "[true]" : "[FALSE]", sentence);
    all_true = all_true && is_true;
  };

  // Large enough not to fit into a processor's caches, as real models are.
  const kvdecode::ModelConfig config{.n_layers = 6,
                                     .d_model = 640,
                                     .n_heads = 10,
                                     .n_kv_heads = 10,
                                     .head_dim = 64,
                                     .d_ff = 1920,
                                     .vocab_size = 1000,
                                     .max_seq_len = 256};
  const kvdecode::Transformer<float> model(config, kvdecode::random_weights(config));
  std::vector<TokenId> prompt;
  for (Index i = 0; i < 128; ++i) prompt.push_back(static_cast<TokenId>(37 * i % config.vocab_size));

  // [readme]
  kvdecode::Decoder at_once(model, kvdecode::Cached<>{});     // prefill: one pass of 128 tokens
  kvdecode::Decoder one_by_one(model, kvdecode::Cached<>{});  // 128 passes of one token
  std::span<const float> after_prefill, after_steps;
  const double prefill = seconds_of([&] { after_prefill = at_once.append(prompt); });
  const double steps = seconds_of([&] {
    for (const TokenId token : prompt) after_steps = one_by_one.step(token);
  });
  // [readme]
  // What the two ways take, in closed form: program 5 has shown it equal to what is counted.
  const kvdecode::ModelCost cost = kvdecode::model_cost(config);
  const kvdecode::Cost one_pass = cost.forward(0, 128);
  kvdecode::Cost many_passes;
  for (Index t = 0; t < 128; ++t) many_passes += cost.forward(t, 1);
  const auto row = [](const char* what, int n_decimals, double first, double second) {
    std::printf("%-28s %10.*f %12.*f\n", what, n_decimals, first, n_decimals, second);
  };
  const double one_flops = 2 * one_pass.multiply_adds.linear(),
               many_flops = 2 * many_passes.multiply_adds.linear();
  std::printf("128 tokens that are known, through a model of %.0f MB of weights, on one thread\n\n",
              one_pass.weight_bytes / 1e6);
  std::printf("%-28s %10s %12s\n", "", "at once", "one by one");
  row("  passes", 0, 1, 128);
  row("  weights read, MB", 0, one_pass.weight_bytes / 1e6, many_passes.weight_bytes / 1e6);
  row("  arithmetic with them, Gflop", 1, one_flops / 1e9, many_flops / 1e9);
  row("  flops a byte", 1, one_flops / one_pass.weight_bytes, many_flops / many_passes.weight_bytes);
  row("~ time, ms", 0, prefill * 1e3, steps * 1e3);
  row("~ time a token, ms", 2, prefill * 1e3 / 128, steps * 1e3 / 128);
  row("~ weights read, GB/s", 1, one_pass.weight_bytes / prefill / 1e9,
      many_passes.weight_bytes / steps / 1e9);
  row("~ arithmetic, Gflop/s", 1, one_flops / prefill / 1e9, many_flops / steps / 1e9);
  const bool is_same = same_bits(after_prefill, after_steps);

  // What a user waits for: the first token comes after the prefill, every other one after a decoding step.
  kvdecode::Decoder decoder(model, kvdecode::Cached<>{});
  const auto result = kvdecode::generate(decoder, std::span<const TokenId>(prompt), kvdecode::Greedy{},
                                         {.max_new_tokens = 33});
  const auto& statistics = result.statistics;
  std::printf("\nWriting 33 tokens behind this prompt\n\n");
  std::printf("~ time to the first token, ms  %8.0f   prefill: grows with the prompt\n",
              statistics.time_to_first_token * 1e3);
  std::printf("~ time a token after it, ms    %8.2f   decoding: the weights, read once more each time\n",
              1e3 / statistics.tokens_per_second);
  std::printf("\nDecoding several sequences together reads the weights once for all of them: that is why\n");
  std::printf(
      "servers batch, and why quantized weights (fewer bytes) decode faster but prefill hardly so.\n\n");

  claim(is_same, "both ways leave the same logits, to the bit");
  claim(one_pass.multiply_adds.feed_forward == many_passes.multiply_adds.feed_forward &&
            one_pass.multiply_adds.projections == many_passes.multiply_adds.projections &&
            many_passes.weight_bytes > 100 * one_pass.weight_bytes,
        "for the same multiply-adds, one by one reads more than a hundred times the bytes");
  claim(at_once.statistics().n_tokens_run == 128 && one_by_one.statistics().n_tokens_run == 128,
        "both ran 128 tokens through the model");
  claim(statistics.n_new_tokens == 33 && statistics.decoder.n_tokens_run == 128 + 32,
        "33 tokens took one prefill of 128 and 32 steps of one");
  return all_true ? 0 : 1;
}

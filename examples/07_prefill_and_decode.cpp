// SPDX-License-Identifier: MIT
// 7. Why does a prompt of a hundred tokens take so much less than a hundred times one token?
//
//   W     numbers in the weight matrices         n  tokens that pass through them together
//   flops = 2 W n        each weight is multiplied with each of n tokens, and added
//   bytes = 4 W          f32 weights are read once a pass, whatever n is
//   operational intensity = flops / bytes = n / 2 flops a byte                   Williams 2009 (roofline)
//
// Prefill: the prompt is known, so its tokens go through together, and the cores' arithmetic is the limit (compute-bound).
// Decoding: each token needs the one before it, so n = 1: half a flop for each byte that memory has to deliver, and
// memory is the limit (memory-bound).
//
// Run: build/examples/07_prefill_and_decode
#include <kvdecode/kvdecode.hpp>

#include <chrono>
#include <cstdio>
#include <cstring>
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
  double n_weights = 0.0;
  kvdecode::Weights in_layers = model.weights();  // views; embedding and head are not read by every token
  in_layers.token_embedding = in_layers.head.matrix = {};
  kvdecode::for_each_matrix(
      in_layers, [&](const kvdecode::MatrixView& m) { n_weights += static_cast<double>(m.rows * m.cols); });
  std::printf("A model whose layers have %.1f million weights (%.0f MB), on one thread\n\n", n_weights / 1e6,
              n_weights * 4 / 1e6);

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
  const auto n = static_cast<double>(prompt.size());
  std::printf("  128 known tokens        all at once   one by one\n");
  std::printf("  passes                  %11d %12d\n", 1, 128);
  std::printf("  weights read            %8.0f MB %9.0f MB\n", n_weights * 4 / 1e6, n * n_weights * 4 / 1e6);
  std::printf("  flops by the weights    %8.1f G  %9.1f G\n", 2 * n * n_weights / 1e9,
              2 * n * n_weights / 1e9);
  std::printf("  flops a byte            %11.1f %12.1f\n", n / 2, 0.5);
  std::printf("~ time                    %8.0f ms %9.0f ms\n", prefill * 1e3, steps * 1e3);
  std::printf("~ time a token            %8.2f ms %9.2f ms\n", prefill * 1e3 / n, steps * 1e3 / n);
  std::printf("~ weights read, GB/s      %11.1f %12.1f\n", n_weights * 4 / prefill / 1e9,
              n * n_weights * 4 / steps / 1e9);
  std::printf("~ flops, G/s              %11.1f %12.1f\n", 2 * n * n_weights / prefill / 1e9,
              2 * n * n_weights / steps / 1e9);
  const bool same_bits = after_prefill.size() == after_steps.size() &&
                         std::memcmp(after_prefill.data(), after_steps.data(), after_steps.size_bytes()) == 0;

  // What a user waits for: the first token comes after the prefill, every other one after a decoding step.
  kvdecode::Decoder decoder(model, kvdecode::Cached<>{});
  const auto result = kvdecode::generate(decoder, std::span<const TokenId>(prompt), kvdecode::Greedy{},
                                         {.max_new_tokens = 33});
  const auto& statistics = result.statistics;
  std::printf("\nWriting 33 tokens behind this prompt\n\n");
  std::printf("~ time to the first token %8.0f ms   prefill: grows with the prompt\n",
              statistics.time_to_first_token * 1e3);
  std::printf("~ time per token after it %8.2f ms   decoding: the weights, read once more each time\n",
              1e3 / statistics.tokens_per_second);
  std::printf("\nDecoding several sequences together reads the weights once for all of them: that is why\n");
  std::printf(
      "servers batch, and why quantized weights (fewer bytes) decode faster but prefill hardly so.\n\n");

  claim(same_bits, "both ways leave the same logits, to the bit");
  claim(at_once.statistics().n_tokens_run == 128 && one_by_one.statistics().n_tokens_run == 128,
        "both ran the same 128 tokens through the model: the same arithmetic");
  claim(statistics.n_new_tokens == 33 && statistics.decoder.n_tokens_run == 128 + 32,
        "33 tokens took one prefill of 128 and 32 steps of one");
  return all_true ? 0 : 1;
}

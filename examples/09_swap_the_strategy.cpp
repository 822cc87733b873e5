// SPDX-License-Identifier: MIT
// 9. How much of a program changes with the way it decodes, and what changes in the answer?
//
//   P  tokens of the prompt      N  steps behind it      logits  a number for each token of the vocabulary  [vocab_size]
//
//   Recompute<Cache>  runs all tokens in each step:       P + (P + 1) + … + (P + N)  tokens run
//   Cached<Cache>     runs the newest one alone:          P + N
//
// One template parameter, and not one bit: each sum has one order, whatever is cached, and however the cache is laid
// out. (README, "The bit contract".) The number beside each strategy is made of every bit of every logit that it gave
// (the hash FNV-1a). It is the same on every machine.
//
// Run: build/examples/09_swap_the_strategy
#include <kvdecode/kvdecode.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

using kvdecode::Cached;
using kvdecode::Index;
using kvdecode::Recompute;
using kvdecode::TokenId;

namespace {

struct Outcome {
  std::uint64_t bits = 0xcbf29ce484222325;  // of all logits
  std::vector<TokenId> tokens;
  kvdecode::DecoderStatistics statistics;
};

// [readme]
/// Writes 40 tokens. The strategy is a type: nothing else here knows how decoding is done.
template <class Strategy>
Outcome write(const kvdecode::Transformer<float>& model, Strategy strategy) {
  kvdecode::Decoder decoder(model, strategy);
  Outcome outcome;
  outcome.tokens = {11, 42, 7};
  auto logits = decoder.append(outcome.tokens);
  for (int t = 0; t < 40; ++t) {
    for (const std::byte byte : std::as_bytes(logits))
      outcome.bits = (outcome.bits ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
    outcome.tokens.push_back(kvdecode::Greedy{}(logits));
    logits = decoder.step(outcome.tokens.back());
  }
  outcome.statistics = decoder.statistics();
  return outcome;
}
// [readme]

}  // namespace

int main() {
  bool all_true = true;
  const auto claim = [&](bool is_true, const char* sentence) {
    std::printf("  %-7s %s\n", is_true ? "[true]" : "[FALSE]", sentence);
    all_true = all_true && is_true;
  };

  const kvdecode::ModelConfig config{.n_layers = 2,
                                     .d_model = 32,
                                     .n_heads = 4,
                                     .n_kv_heads = 2,
                                     .head_dim = 8,
                                     .d_ff = 64,
                                     .vocab_size = 100,
                                     .max_seq_len = 64};
  const kvdecode::Transformer<float> model(config, kvdecode::random_weights(config, {.seed = 8}));

  std::printf("40 tokens behind a prompt of 3\n\n");
  std::printf("  %-34s %10s %12s   %s\n", "strategy", "tokens run", "cache bytes", "bits of all logits");
  const auto row = [](const char* name, const Outcome& outcome) {
    std::printf("  %-34s %10td %12td   %016llx\n", name, outcome.statistics.n_tokens_run,
                outcome.statistics.cache_bytes, static_cast<unsigned long long>(outcome.bits));
    return outcome;
  };
  using kvdecode::ContiguousCache, kvdecode::PagedCache, kvdecode::F16;
  const auto naive = row("Recompute<>", write(model, Recompute<>{}));
  const auto cached = row("Cached<>", write(model, Cached<>{}));
  const auto contiguous = row("Cached<ContiguousCache<>>", write(model, Cached<ContiguousCache<>>{}));
  const auto paged = row("Cached<PagedCache<7>>", write(model, Cached<PagedCache<7>>{}));
  const auto naive_half =
      row("Recompute<ContiguousCache<F16>>", write(model, Recompute<ContiguousCache<F16>>{}));
  const auto cached_half = row("Cached<ContiguousCache<F16>>", write(model, Cached<ContiguousCache<F16>>{}));

  std::printf("\nThe last two round keys and values to half precision: another answer, which the type\n");
  std::printf("says; and again the same one with and without the cache.\n\n");
  claim(naive.bits == cached.bits, "Recompute and Cached give the same bits");
  claim(cached.bits == contiguous.bits && cached.bits == paged.bits, "so do caches of any layout");
  claim(naive_half.bits == cached_half.bits && naive_half.bits != naive.bits,
        "what changes bits is the storage format, for both strategies alike");
  claim(naive.statistics.n_tokens_run > 20 * cached.statistics.n_tokens_run, "only the cost is another");
  return all_true ? 0 : 1;
}

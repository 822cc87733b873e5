// SPDX-License-Identifier: MIT
// 8. What is the whole loop, and what are its parts called elsewhere?
//
//   logits   a number for each token that may come next               [vocab_size]
//   x_t      the one that is chosen                                    its number in the vocabulary
//
//   prefill  logits = model(prompt), filling the cache
//   repeat   x_t = choose(logits)     greedy: argmax; or drawn from softmax(logits / temperature)     Hinton 2015, Eq. 1
//            logits = model(x_t), with the cache
//
// Three ways to write it with this library, from all parts in hand to one call. They write the same tokens.
//
// Run: build/examples/08_the_loop
#include <kvdecode/kvdecode.hpp>

#include <cstdio>
#include <span>
#include <vector>

using kvdecode::Index;
using kvdecode::TokenId;

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
  const std::vector<TokenId> prompt{11, 42, 7};
  constexpr Index n_new = 12;
  const auto print = [](const char* how, const std::vector<TokenId>& tokens) {
    std::printf("  %-28s", how);
    for (const TokenId token : tokens) std::printf("%4d", token);
    std::printf("\n");
  };
  std::printf("The same twelve tokens, three ways\n\n");

  // 1: every part by hand. The cache is an object of its own; forward() runs tokens against it and appends theirs.
  std::vector<TokenId> by_hand;
  {
    // [readme]
    using Cache = kvdecode::GrowingCache<>;
    Cache cache(model.kv_shape(), config.max_seq_len);
    kvdecode::Workspace<float> workspace;
    std::span<const TokenId> input(prompt);  // first the prompt, then one token at a time
    for (Index t = 0; t < n_new; ++t) {
      const auto rows = model.forward(workspace, {}, kvdecode::Segment<Cache>{&cache, input});
      const std::span<const float> logits(rows.row(0), static_cast<std::size_t>(rows.cols));
      by_hand.push_back(kvdecode::Greedy{}(logits));
      input = std::span(by_hand).last(1);
    }
    // [readme]
  }
  print("forward, with a cache", by_hand);

  // 2: a Decoder keeps cache, workspace and tokens together.
  std::vector<TokenId> by_decoder;
  {
    kvdecode::Decoder decoder(model, kvdecode::Cached<>{});
    auto logits = decoder.append(prompt);
    while (static_cast<Index>(by_decoder.size()) < n_new) {
      by_decoder.push_back(kvdecode::Greedy{}(logits));
      logits = decoder.step(by_decoder.back());
    }
  }
  print("Decoder::append, step", by_decoder);

  // 3: generate() is the loop, with stop tokens, a callback for each token, cancelling, and the figures.
  kvdecode::Decoder decoder(model, kvdecode::Cached<>{});
  Index n_seen = 0;
  const auto result = kvdecode::generate(decoder, std::span<const TokenId>(prompt), kvdecode::Greedy{},
                                         {.max_new_tokens = n_new}, [&](TokenId) {
                                           ++n_seen;
                                           return true;  // false would stop
                                         });
  print("generate", result.tokens);

  std::printf("\nWhat it is called in Hugging Face transformers, and here\n\n");
  const char* const names[][2] = {
      {"past_key_values", "the cache: GrowingCache, …; decoder.cache()"},
      {"model(ids, past_key_values=cache)", "model.forward(workspace, exec, Segment<Cache>{&cache, ids})"},
      {"outputs.logits[:, -1]", "what forward and step return (Rows::kLast)"},
      {"outputs.logits", "… with Rows::kAll in the segment"},
      {"use_cache=True, use_cache=False", "Cached<>, Recompute<>"},
      {"model.generate(ids, max_new_tokens=n)", "generate(decoder, ids, Greedy{}, {.max_new_tokens = n})"},
      {"do_sample=True, temperature, top_k", "Sampling<>({.temperature = …, .top_k = …, .seed = …})"},
      {"eos_token_id, stop_strings, streamer", "stop_tokens, stop_strings, the callback"},
      {"DynamicCache, StaticCache", "GrowingCache, ContiguousCache"},
      {"QuantizedCache", "a format: ContiguousCache<Int8, HadInt4>"},
      {"EncoderDecoderCache", "CrossAttentionCache beside the decoder's own"},
      {"cache.get_seq_length()", "cache.kv_len()"},
      {"cache.crop(n), copy.deepcopy(cache)", "cache.truncate(n), cache.fork()"},
  };
  for (const auto& pair : names) std::printf("  %-38s %s\n", pair[0], pair[1]);
  std::printf("\n");

  claim(by_hand == by_decoder && by_decoder == result.tokens, "all three wrote the same tokens");
  claim(n_seen == n_new && result.statistics.n_new_tokens == n_new, "the callback saw each of them once");
  claim(decoder.cache().kv_len() == 3 + n_new - 1,
        "the cache holds the prompt and all new tokens but the last, which nobody has run yet");
  return all_true ? 0 : 1;
}

// SPDX-License-Identifier: MIT
// 13. Several answers to one prompt: must each have the prompt's keys and values for itself?
//
//   n  answers      P  tokens of the prompt      m  tokens of an answer      page  positions that are kept together
//
//   apart   n (P + m) positions
//   shared  about P + n m: whole pages of the prompt once, and each answer's own     Kwon 2023 (PagedAttention), 4.4
//
// A fork of a cache refers to the pages of its original. A page is copied when one of them writes to it, and only then.
// A prefix store keeps the pages of sequences by their tokens, for others that begin with the same ones.
//
// Run: build/examples/13_sharing
#include <kvdecode/kvdecode.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

using kvdecode::Index;
using kvdecode::TokenId;

namespace {

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

  const kvdecode::ModelConfig config{.n_layers = 2,
                                     .d_model = 32,
                                     .n_heads = 4,
                                     .n_kv_heads = 2,
                                     .head_dim = 8,
                                     .d_ff = 64,
                                     .vocab_size = 100,
                                     .max_seq_len = 256};
  const kvdecode::Transformer<float> model(config, kvdecode::random_weights(config));
  std::vector<TokenId> prompt(84);
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>((7 * i + 3) % 100);
  constexpr Index n_answers = 4, n_new = 20;
  const auto sampler = [](std::uint64_t seed) {
    return kvdecode::Sampling<>({.temperature = 1.0, .seed = seed});
  };

  using Cache = kvdecode::PagedCache<8>;
  kvdecode::PagePool pool(Cache::page_bytes(model.kv_shape()));
  bool same_as_alone = true;
  Index n_with_prompt = 0, n_forked = 0, n_after = 0, n_run_shared = 0, n_run_apart = 0;
  {
    // [readme]
    kvdecode::Decoder original(model, kvdecode::Cached<Cache>{.cache = {.pool = &pool}});
    original.append(prompt);  // once
    n_with_prompt = pool.pages_in_use();
    std::vector<decltype(original)> answers;
    for (Index i = 0; i < n_answers; ++i) answers.push_back(original.fork());  // no page is copied
    n_forked = pool.pages_in_use();
    // [readme]
    std::vector<std::vector<TokenId>> texts;
    for (Index i = 0; i < n_answers; ++i) {
      auto& answer = answers[static_cast<std::size_t>(i)];
      texts.push_back(
          kvdecode::generate(answer, {}, sampler(static_cast<std::uint64_t>(i)), {.max_new_tokens = n_new})
              .tokens);
      n_run_shared += answer.statistics().n_tokens_run - original.statistics().n_tokens_run;
    }
    n_after = pool.pages_in_use();
    n_run_shared += original.statistics().n_tokens_run;

    std::printf("A prompt of 84 tokens in pages of 8, and four answers of 20 tokens, forked from it\n\n");
    std::printf("  pages in use: %td with the prompt, %td after four forks, %td after four answers\n\n",
                n_with_prompt, n_forked, n_after);
    const auto print_pages = [](const char* name, const Cache& cache) {
      std::printf("  %-9s", name);
      Index last = -1;
      for (Index position = 0; position < cache.kv_len(); ++position)
        if (const Index page = cache.place(0, position).page; page != last) std::printf("%4td", last = page);
      std::printf("\n");
    };
    std::printf("  which pages each one reads, by number\n");
    print_pages("prompt", original.cache());
    for (std::size_t i = 0; i < answers.size(); ++i)
      print_pages(("answer " + std::to_string(i + 1)).c_str(), answers[i].cache());
    std::printf(
        "\n  Ten pages are full and stay shared. The eleventh holds the prompt's last 4 tokens: each "
        "answer\n");
    std::printf("  writes behind them, and gets a copy of its own when it does.\n\n");

    for (std::size_t i = 0; i < answers.size(); ++i) {
      kvdecode::Decoder alone(model, kvdecode::Cached<>{});
      const auto text =
          kvdecode::generate(alone, std::span<const TokenId>(prompt), sampler(i), {.max_new_tokens = n_new});
      n_run_apart += alone.statistics().n_tokens_run;
      const auto expected = alone.logits(), got = answers[i].logits();
      same_as_alone = same_as_alone && text.tokens == texts[i] && same_bits(expected, got);
    }
  }
  const Index n_apart = n_answers * ((84 + n_new - 1 + 7) / 8);
  std::printf("  %-13s %10s %16s\n", "", "shared", "each for itself");
  std::printf("  %-13s %10td %16td\n", "memory, bytes", n_after * pool.page_bytes(),
              n_apart * pool.page_bytes());
  std::printf("  %-13s %10td %16td\n\n", "tokens run", n_run_shared, n_run_apart);

  // Sequences that know nothing of one another, but begin alike: a store finds their pages by the tokens in them.
  std::printf("Questions that come one after another, behind the same 84 tokens\n\n");
  std::printf("  %-10s %8s %12s %8s\n", "question", "tokens", "taken over", "run");
  bool same_as_fresh = true;
  Index n_taken = 0;
  {
    // [readme]
    kvdecode::PrefixStore<Cache> store(pool, model.kv_shape());
    const kvdecode::Cached<Cache> with_prefixes{.prefixes = &store};
    // [readme]
    for (const TokenId which : {1, 2, 3}) {
      auto question = prompt;
      for (TokenId i = 0; i < 5; ++i) question.push_back((31 * which + i) % 100);
      kvdecode::Decoder decoder(model, with_prefixes);
      kvdecode::Decoder fresh(model, kvdecode::Cached<>{});
      const auto got = decoder.append(question), expected = fresh.append(question);
      same_as_fresh = same_as_fresh && same_bits(expected, got);
      const auto statistics = decoder.statistics();
      std::printf("  %-10d %8td %12td %8td\n", which, decoder.kv_len(), statistics.n_tokens_adopted,
                  statistics.n_tokens_run);
      n_taken += statistics.n_tokens_adopted;
    }
  }
  std::printf("\n");

  claim(n_forked == n_with_prompt, "forking copies no page");
  claim(same_as_alone, "each answer has the tokens and the bits that it has when it is written alone");
  claim(n_after - n_with_prompt == n_answers * 3,
        "an answer takes three pages: a copy of the shared last one, and two new");
  claim(n_run_apart - n_run_shared == 3 * 84 - n_answers,
        "the prompt was run once instead of four times (each answer runs the prompt's last token again)");
  claim(n_taken == 2 * 80 && same_as_fresh,
        "later questions take over ten pages of the first one, and change no bit");
  claim(pool.pages_in_use() == 0, "when all are gone, all pages are free again");
  return all_true ? 0 : 1;
}

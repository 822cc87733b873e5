// SPDX-License-Identifier: MIT
// 14. Does all this hold for a real model, from a file?
//
//   tokens run   naive    P + (P + 1) + … + (P + N - 1)        P  tokens of the prompt
//                cached   P + N - 1                            N  tokens written
//
// The model that ships here (6 layers, 1.24 million weights, trained on Shakespeare's plays) writes a text twice. What
// it writes is known from its reference implementation: expected.json, beside it.
//
// Run: build/examples/14_a_real_model [MODEL]      MODEL: any Hugging Face folder or GGUF file
#include <kvdecode/pipeline.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <span>
#include <string>

using kvdecode::Index;

namespace {

/// Greedy, and a number made of every bit of every logit it was shown (the hash FNV-1a).
struct HashingGreedy {
  std::uint64_t* bits;

  kvdecode::TokenId operator()(std::span<const float> logits) const {
    for (const std::byte byte : std::as_bytes(logits))
      *bits = (*bits ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
    return kvdecode::Greedy{}(logits);
  }
};

}  // namespace

int main(int argc, char** argv) {
  bool all_true = true;
  const auto claim = [&](bool is_true, const char* sentence) {
    std::printf("  %-7s %s\n", is_true ? "[true]" : "[FALSE]", sentence);
    all_true = all_true && is_true;
  };

  const std::string shipped = KVDECODE_EXAMPLE_DATA_DIR "/tiny-shakespeare";
  const std::string path = argc > 1 ? argv[1] : shipped;
  const std::string prompt = "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\n";
  constexpr Index n_new = 45;

  // [readme]
  const kvdecode::TextModel text_model = kvdecode::load_text_model(path);
  const auto write = [&](auto strategy, std::uint64_t& bits) {
    kvdecode::Decoder decoder(text_model.transformer(), strategy);
    return kvdecode::generate_text(decoder, text_model.tokenizer(), prompt, HashingGreedy{&bits},
                                   {.max_new_tokens = n_new});
  };
  std::uint64_t naive_bits = 0, cached_bits = 0;
  const auto naive = write(kvdecode::Recompute<>{}, naive_bits);
  const auto cached = write(kvdecode::Cached<>{}, cached_bits);
  // [readme]

  std::printf("%s%s\n\n", prompt.c_str(), cached.text.c_str());
  const auto& n = naive.statistics;
  const auto& c = cached.statistics;
  std::printf("  %-30s %16s %16s\n", "", "Recompute<>", "Cached<>");
  std::printf("  %-30s %16td %16td\n", "tokens of the prompt", n.n_prompt_tokens, c.n_prompt_tokens);
  std::printf("  %-30s %16td %16td\n", "tokens written", n.n_new_tokens, c.n_new_tokens);
  std::printf("  %-30s %16td %16td\n", "tokens run through the model", n.decoder.n_tokens_run,
              c.decoder.n_tokens_run);
  std::printf("  %-30s %16td %16td\n", "bytes kept between steps", n.decoder.cache_bytes,
              c.decoder.cache_bytes);
  std::printf("  %-30s %016llx %016llx\n", "bits of all logits", static_cast<unsigned long long>(naive_bits),
              static_cast<unsigned long long>(cached_bits));
  std::printf("~ %-30s %13.1f ms %13.1f ms\n", "time", n.total_time * 1e3, c.total_time * 1e3);
  std::printf("~ %-30s %16.0f %16.0f\n\n", "tokens per second", n.tokens_per_second, c.tokens_per_second);

  claim(naive.text == cached.text && naive_bits == cached_bits,
        "the same text, and the same logits to the bit");
  // A token that ends the text takes a step too, although it is not written.
  const Index P = c.n_prompt_tokens,
              N = c.n_new_tokens + (cached.stop_reason == kvdecode::StopReason::kStopToken);
  claim(n.decoder.n_tokens_run == N * P + N * (N - 1) / 2 && c.decoder.n_tokens_run == P + N - 1,
        "as many tokens run as the formulas at the top of this program say");
  if (path == shipped) {
    std::ifstream file(shipped + "/expected.json");
    const auto expected = nlohmann::json::parse(file).at("prompts").at(1);
    claim(expected.at("prompt") == prompt && !cached.text.empty() &&
              expected.at("greedy_text").get<std::string>().starts_with(cached.text),
          "the text is the one that the model's reference implementation writes");
  }
  return all_true ? 0 : 1;
}

// SPDX-License-Identifier: MIT
// What does a KV cache change? The time, and not one bit of the answer. Writes the same text twice, first
// running the whole sequence for every token (Recompute), then only what is new (Cached), and compares every
// logit of every step.
//
// Run: build/examples/compare [MODEL] [--prompt TEXT] [--max-new-tokens N] [--threads N]
//          [--activations exact|int8] [--cache-format native|f16|int8|int8/had_int4|…]
// Exit status 1 if a token or a bit differs.
#include "program.hpp"
#include "progress_line.hpp"

#include <kvdecode/pipeline.hpp>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

using kvdecode::Index;
using kvdecode::TokenId;

/// Draws as Sampling does, and keeps every row of logits that it saw.
struct RecordingSampler {
  kvdecode::Sampling<> sampling{
      kvdecode::SamplingOptions{.temperature = 0.8, .top_k = 40, .top_p = 1.0, .seed = 1}};
  std::vector<float> rows;

  TokenId operator()(std::span<const float> logits) {
    rows.insert(rows.end(), logits.begin(), logits.end());
    return sampling(logits);
  }
};

struct Outcome {
  kvdecode::GenerateResult result;
  std::vector<float> logits;
};

template <class Activations>
Outcome write(const char* title, const kvdecode::TextModel& model, const kvdecode::DecodeOptions& options,
              const std::string& prompt, Index max_new_tokens, kvdecode::ExecutorRef exec) {
  std::cout << "--- " << title << " ---\n" << prompt << std::flush;
  auto decoder = kvdecode::make_decoder(model.transformer<float, Activations>(), options, exec);
  RecordingSampler sampler;
  const auto stream = [](std::string_view piece) {
    std::cout << piece << std::flush;
    return true;
  };
  Outcome outcome;
  outcome.result =
      kvdecode::generate_text(decoder, model.tokenizer(), prompt, sampler,
                              {.max_new_tokens = max_new_tokens, .stop_tokens = model.stop_tokens()}, stream);
  outcome.logits = std::move(sampler.rows);
  std::cout << "\n\n";
  return outcome;
}

void row(const char* name, const std::string& naive, const std::string& cached) {
  std::printf("  %-28s %14s %14s\n", name, naive.c_str(), cached.c_str());
}

/// The number of values before the first that differs in a bit; all of them if none does.
std::size_t n_equal(const std::vector<float>& a, const std::vector<float>& b) {
  std::size_t i = 0;
  while (i < a.size() && i < b.size() &&
         std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i]))
    ++i;
  return i;
}

bool report(const Outcome& naive, const Outcome& cached, std::size_t vocab_size) {
  const kvdecode::GenerateStatistics& n = naive.result.statistics;
  const kvdecode::GenerateStatistics& c = cached.result.statistics;
  std::fflush(stdout);
  row("", "Recompute", "Cached");
  row("new tokens", program::count(n.n_new_tokens), program::count(c.n_new_tokens));
  row("tokens run through the model", program::count(n.decoder.n_tokens_run),
      program::count(c.decoder.n_tokens_run));
  row("time to first token", program::seconds(n.time_to_first_token),
      program::seconds(c.time_to_first_token));
  row("total time", program::seconds(n.total_time), program::seconds(c.total_time));
  row("tokens per second", program::rate(n.tokens_per_second), program::rate(c.tokens_per_second));
  row("cache kept between steps", program::bytes(n.decoder.cache_bytes),
      program::bytes(c.decoder.cache_bytes));
  row("scratch within a step", program::bytes(n.decoder.scratch_bytes),
      program::bytes(c.decoder.scratch_bytes));
  if (c.total_time > 0.0)
    std::printf("\n  speed-up of the whole text: %.1f x\n", n.total_time / c.total_time);

  const bool same_tokens = naive.result.tokens == cached.result.tokens;
  std::printf("  token ids: %s\n",
              same_tokens ? ("equal, all " + program::count(c.n_new_tokens)).c_str() : "DIFFERENT");
  const std::size_t equal = n_equal(naive.logits, cached.logits);
  const bool same_logits = naive.logits.size() == cached.logits.size() && equal == cached.logits.size();
  if (same_logits)
    std::printf("  logits:    equal to the bit, all %s of %s steps\n",
                program::count(static_cast<Index>(equal)).c_str(),
                program::count(static_cast<Index>(equal / vocab_size)).c_str());
  else
    std::printf("  logits:    DIFFERENT from step %zu, entry %zu on\n", equal / vocab_size,
                equal % vocab_size);
  return same_tokens && same_logits;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Writes a text without and with the KV cache, and compares time, tokens and the logits' bits.",
               "compare"};
  std::string path = KVDECODE_EXAMPLE_DATA_DIR "/tiny-shakespeare";
  std::string prompt = "ROMEO:\n";
  Index max_new_tokens = 256, n_threads = 1;
  app.add_option("MODEL", path,
                 "a Hugging Face folder or a GGUF file; the model that ships with the project if left out");
  app.add_option("--prompt", prompt, "the text to continue")->capture_default_str();
  app.add_option("--max-new-tokens", max_new_tokens, "tokens to write")
      ->check(program::count_from(1))
      ->capture_default_str();
  program::add_threads_option(app, n_threads);
  std::string activations = "exact";
  program::add_activations_option(app, activations);
  std::string cache_format = "native";
  program::add_cache_format_option(app, cache_format);
  return program::run(app, argc, argv, [&] {
    const kvdecode::TextModel model = kvdecode::load_text_model(path);
    program::read_ahead(model.report());
    kvdecode::ThreadTeam team(n_threads);
    using Strategy = kvdecode::DecodeOptions::Strategy;
    const auto options = [&](Strategy strategy) {
      return kvdecode::DecodeOptions{.strategy = strategy,
                                     .cache_format = program::cache_format(cache_format)};
    };
    return program::with_activations(activations, [&]<class Activations>() {
      const Outcome naive = write<Activations>("Recompute: every step runs the whole sequence", model,
                                               options(Strategy::kRecompute), prompt, max_new_tokens, team);
      const Outcome cached = write<Activations>("Cached: every step runs the new token", model,
                                                options(Strategy::kCached), prompt, max_new_tokens, team);
      return report(naive, cached, static_cast<std::size_t>(model.config().vocab_size)) ? 0 : 1;
    });
  });
}

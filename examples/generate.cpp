// SPDX-License-Identifier: MIT
// How does one write text with a model? The text goes to standard output, the figures to standard error.
//
// Run: build/examples/generate MODEL --prompt TEXT [--strategy cached|recompute] [--max-new-tokens N]
//          [--temperature X --top-k K --top-p P --seed S] [--threads N] [--scalar f32|f64]
//          [--activations exact|int8] [--cache-format native|f16|int8|int8/had_int4|…] [--ignore-eos]
#include "program.hpp"
#include "progress_line.hpp"

#include <kvdecode/pipeline.hpp>

#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct Arguments {
  std::string model;
  std::string prompt;
  std::string strategy = "cached";
  std::string scalar = "f32";
  std::string activations = "exact";
  std::string cache_format = "native";
  kvdecode::Index max_new_tokens = 128;
  kvdecode::Index n_threads = 1;
  bool ignore_eos = false;
  kvdecode::SamplingOptions sampling{.temperature = 0.0};  // greedy unless asked otherwise
};

/// The text of tokens behind a prompt, special tokens included.
class PiecesWithSpecials {
 public:
  PiecesWithSpecials(const kvdecode::Tokenizer& tokenizer, const std::vector<kvdecode::TokenId>& prompt)
      : detokenizer_(tokenizer, {.skip_special = false}) {
    for (const kvdecode::TokenId token : prompt) detokenizer_.push(token);
  }
  std::string_view operator()(kvdecode::TokenId token) { return detokenizer_.push(token); }
  std::string_view flush() { return detokenizer_.flush(); }

 private:
  kvdecode::StreamingDetokenizer detokenizer_;
};

template <class S>
int write(const Arguments& arguments) {
  const kvdecode::TextModel model = kvdecode::load_text_model(arguments.model);
  program::read_ahead(model.report());
  kvdecode::ThreadTeam team(arguments.n_threads);
  program::ProgressLine reading_prompt("reading the prompt");
  kvdecode::DecodeOptions options;
  if (arguments.strategy == "recompute") options.strategy = kvdecode::DecodeOptions::Strategy::kRecompute;
  options.cache_format = program::cache_format(arguments.cache_format);
  auto decoder = program::with_activations(arguments.activations, [&]<class Activations>() {
    return kvdecode::make_decoder(model.transformer<S, Activations>(), options, team);
  });
  kvdecode::Sampling<> sampler(arguments.sampling);
  kvdecode::GenerateOptions limits{.max_new_tokens = arguments.max_new_tokens, .on_prompt = reading_prompt};
  const auto on_text = [](std::string_view piece) {
    std::cout << piece << std::flush;
    return std::cout.good();
  };
  kvdecode::GenerateResult result;
  if (arguments.ignore_eos) {
    const std::vector<kvdecode::TokenId> prompt = encode_prompt(model.tokenizer(), arguments.prompt);
    result = kvdecode::generate(decoder, prompt, sampler, limits,
                                PiecesWithSpecials(model.tokenizer(), prompt), on_text);
  } else {
    limits.stop_tokens = model.stop_tokens();
    result = kvdecode::generate_text(decoder, model.tokenizer(), arguments.prompt, sampler, limits, on_text);
  }
  std::cout << std::endl;
  if (!std::cout) throw std::runtime_error("standard output cannot be written");
  const kvdecode::GenerateStatistics& s = result.statistics;
  std::cerr << program::count(s.n_prompt_tokens) << " prompt tokens, " << program::count(s.n_new_tokens)
            << " new, stopped by " << to_string(result.stop_reason) << "; first token after "
            << program::seconds(s.time_to_first_token) << ", then " << program::rate(s.tokens_per_second)
            << " tokens/s; cache " << program::bytes(s.decoder.cache_bytes) << '\n';
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Continues a prompt with a model.", "generate"};
  Arguments a;
  app.add_option("MODEL", a.model, "a Hugging Face folder or a GGUF file")->required();
  app.add_option("--prompt", a.prompt, "the text to continue")->required();
  app.add_option("--strategy", a.strategy, "how to decode")
      ->check(CLI::IsMember({"cached", "recompute"}))
      ->capture_default_str();
  app.add_option("--max-new-tokens", a.max_new_tokens, "tokens to write at most")
      ->check(program::count_from(0))
      ->capture_default_str();
  program::add_sampling_options(app, a.sampling);
  program::add_threads_option(app, a.n_threads);
  app.add_option("--scalar", a.scalar, "the number type to compute in")
      ->check(CLI::IsMember({"f32", "f64"}))
      ->capture_default_str();
  program::add_activations_option(app, a.activations);
  program::add_cache_format_option(app, a.cache_format);
  app.add_flag("--ignore-eos", a.ignore_eos, "go on after tokens that end a text, and show special tokens");
  return program::run(app, argc, argv,
                      [&] { return a.scalar == "f64" ? write<double>(a) : write<float>(a); });
}

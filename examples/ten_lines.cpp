// SPDX-License-Identifier: MIT
// What does it take to let a model write? Ten lines. These stand in the README as well.
//
// Run: build/examples/ten_lines        (in the repository's folder)
#include <kvdecode/pipeline.hpp>

#include <iostream>
#include <string_view>

// clang-format off
int main() {
  // [readme]
  auto text    = kvdecode::load_text_model("examples/data/tiny-shakespeare");  // weights (mapped) and tokenizer
  auto decoder = kvdecode::Decoder(text.transformer(), kvdecode::Cached<>{.max_seq_len = 512});
  auto result  = kvdecode::generate_text(
      decoder, text.tokenizer(), "Once upon a time", kvdecode::Greedy{}, {.max_new_tokens = 64},
      [](std::string_view piece) { std::cout << piece << std::flush; return true; });  // false stops
  std::cout << '\n' << result.statistics.tokens_per_second << " tok/s, stopped by "
            << to_string(result.stop_reason) << '\n';
  // [readme]
  return result.tokens.empty() ? 1 : 0;
}

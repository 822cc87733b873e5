// SPDX-License-Identifier: MIT
#include <kvdecode/pipeline.hpp>

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

const std::filesystem::path kShipped = std::filesystem::path(KVDECODE_EXAMPLE_DATA_DIR) / "tiny-shakespeare";

nlohmann::json expected() {
  std::ifstream file(kShipped / "expected.json");
  return nlohmann::json::parse(file);
}

/// Greedy, keeping every row of logits.
template <class S>
struct RecordingGreedy {
  std::vector<S> rows;

  kvdecode::TokenId operator()(std::span<const S> logits) {
    rows.insert(rows.end(), logits.begin(), logits.end());
    return kvdecode::Greedy{}(logits);
  }
};

}  // namespace

TEST_CASE_TEMPLATE("generate_text: the shipped model's greedy texts are those of the reference", S, float,
                   double) {
  const kvdecode::TextModel model = kvdecode::load_text_model(kShipped);
  kvdecode::Decoder decoder(model.transformer<S>(), kvdecode::Cached<>{});
  for (const auto& prompt : expected()["prompts"]) {
    const std::string text = prompt["greedy_text"];
    decoder.clear();
    std::string streamed;
    const auto result =
        kvdecode::generate_text(decoder, model.tokenizer(), prompt["prompt"].get<std::string>(),
                                kvdecode::Greedy{}, {.max_new_tokens = 120}, [&](std::string_view piece) {
                                  streamed += piece;
                                  return true;
                                });
    CHECK(result.statistics.n_prompt_tokens == prompt["n_tokens"].get<kvdecode::Index>());
    CHECK(result.text.substr(0, text.size()) == text);
    CHECK(streamed == result.text);
  }
}

TEST_CASE_TEMPLATE("generate_text: both strategies write the same text from the same logits", S, float,
                   double) {
  const kvdecode::TextModel model = kvdecode::load_text_model(kShipped);
  RecordingGreedy<S> naive, cached;
  kvdecode::Decoder recompute(model.transformer<S>(), kvdecode::Recompute<>{});
  kvdecode::Decoder with_cache(model.transformer<S>(), kvdecode::Cached<>{.prefill_chunk = 3});
  const auto a =
      kvdecode::generate_text(recompute, model.tokenizer(), "JULIET:\nO", naive, {.max_new_tokens = 40});
  const auto b =
      kvdecode::generate_text(with_cache, model.tokenizer(), "JULIET:\nO", cached, {.max_new_tokens = 40});
  CHECK(a.text == b.text);
  CHECK(a.tokens == b.tokens);
  REQUIRE(naive.rows.size() == cached.rows.size());
  CHECK(std::memcmp(naive.rows.data(), cached.rows.data(), naive.rows.size() * sizeof(S)) == 0);
}

TEST_CASE("generate_text: a stop string ends the text before it, and its beginning is never shown") {
  const kvdecode::TextModel model = kvdecode::load_text_model(kShipped);
  kvdecode::Decoder decoder(model.transformer(), kvdecode::Cached<>{});
  const std::string whole = kvdecode::generate_text(decoder, model.tokenizer(), "To be, or not to be",
                                                    kvdecode::Greedy{}, {.max_new_tokens = 60})
                                .text;
  const std::string stop = "bosom.";
  REQUIRE(whole.find(stop) != std::string::npos);
  decoder.clear();
  std::string streamed;
  const auto result = kvdecode::generate_text(
      decoder, model.tokenizer(), "To be, or not to be", kvdecode::Greedy{},
      {.max_new_tokens = 60, .stop_strings = {"not there", stop}}, [&](std::string_view piece) {
        streamed += piece;
        CHECK(whole.compare(0, streamed.size(), streamed) == 0);
        return true;
      });
  CHECK(result.stop_reason == kvdecode::StopReason::kStopString);
  CHECK(result.text == whole.substr(0, whole.find(stop)));
  CHECK(streamed == result.text);
}

TEST_CASE("generate_text: a callback that returns false stops, and the decoder can go on") {
  const kvdecode::TextModel model = kvdecode::load_text_model(kShipped);
  kvdecode::Decoder decoder(model.transformer(), kvdecode::Cached<>{});
  int calls = 0;
  const auto first =
      kvdecode::generate_text(decoder, model.tokenizer(), "KING", kvdecode::Greedy{}, {.max_new_tokens = 50},
                              [&](std::string_view) { return ++calls < 5; });
  CHECK(first.stop_reason == kvdecode::StopReason::kCallback);
  CHECK(calls == 5);
  CHECK(decoder.kv_len() ==
        first.statistics.n_prompt_tokens + static_cast<kvdecode::Index>(first.tokens.size()) - 1);
  CHECK(kvdecode::generate_text(decoder, model.tokenizer(), " RICHARD", kvdecode::Greedy{},
                                {.max_new_tokens = 3})
            .tokens.size() == 3);
}

TEST_CASE("generate_text: an empty prompt needs a token that begins a text") {
  const kvdecode::TextModel model = kvdecode::load_text_model(kShipped);
  kvdecode::Decoder decoder(model.transformer(), kvdecode::Cached<>{});
  CHECK_THROWS_WITH_AS(kvdecode::generate_text(decoder, model.tokenizer(), "", kvdecode::Greedy{}),
                       "the prompt is empty, and this tokenizer has no token that begins a text",
                       kvdecode::Error);
  CHECK_THROWS_AS(kvdecode::generate_text(decoder, model.tokenizer(), "\xff", kvdecode::Greedy{}),
                  kvdecode::Error);
  CHECK(decoder.kv_len() == 0);
}

TEST_CASE("generate_text: a prompt longer than the context is refused and leaves the decoder as it was") {
  const kvdecode::TextModel model = kvdecode::load_text_model(kShipped);
  kvdecode::Decoder decoder(model.transformer(), kvdecode::Cached<>{.max_seq_len = 8});
  CHECK_THROWS_AS(kvdecode::generate_text(decoder, model.tokenizer(),
                                          "To be, or not to be, that is the question", kvdecode::Greedy{}),
                  kvdecode::Error);
  CHECK(decoder.kv_len() == 0);
  const auto result =
      kvdecode::generate_text(decoder, model.tokenizer(), "KING", kvdecode::Greedy{}, {.max_new_tokens = 50});
  CHECK(result.stop_reason == kvdecode::StopReason::kContextFull);
  CHECK(decoder.kv_len() == 8);
}

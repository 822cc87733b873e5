// SPDX-License-Identifier: MIT
#include <support/model.hpp>
#include <support/random.hpp>

#include <kvdecode/kvdecode.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace kvdecode;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;

using Tokens = std::vector<TokenId>;

Transformer<float> small_transformer() {
  static const RandomModel model("gqa");
  return Transformer<float>(model.config, model.weights);
}
auto small_decoder(Index max_seq_len = 64) {
  return Decoder(small_transformer(), Cached<>{.max_seq_len = max_seq_len});
}

/// A sampler that knows what it wants.
struct Script {
  Tokens tokens;
  std::size_t next = 0;

  TokenId operator()(std::span<const float> logits) {
    CHECK(logits.size() == 37);
    return tokens.at(next++);
  }
};

template <class D>
Tokens tokens_of(const D& decoder) {
  return Tokens(decoder.tokens().begin(), decoder.tokens().end());
}
Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Tokens without_last(Tokens tokens) {
  tokens.pop_back();
  return tokens;
}

const Tokens kPrompt{5, 9, 2};

// ---- Tokens ------------------------------------------------------------------------------------------------

TEST_CASE("generate: is the loop that one would write") {
  Tokens expected;
  {
    Decoder decoder(small_transformer(), Recompute<>{});
    auto logits = decoder.append(kPrompt);
    for (int i = 0; i < 20; ++i) {
      expected.push_back(
          static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      logits = decoder.step(expected.back());
    }
  }
  auto cached = small_decoder();
  const GenerateResult result = generate(cached, kPrompt, Greedy{}, {.max_new_tokens = 20});
  CHECK(result.tokens == expected);
  CHECK(result.stop_reason == StopReason::kMaxNewTokens);
  CHECK(result.text.empty());
  CHECK(tokens_of(cached) == joined(kPrompt, without_last(expected)));

  Decoder recompute(small_transformer(), Recompute<>{});
  CHECK(generate(recompute, kPrompt, Greedy{}, {.max_new_tokens = 20}).tokens == expected);
  auto any = make_decoder(small_transformer());
  CHECK(generate(any, kPrompt, Greedy{}, {.max_new_tokens = 20}).tokens == expected);
}

TEST_CASE("generate: the same seed gives the same tokens, cached or not") {
  const auto sampling = [] {
    return Sampling<>({.temperature = 1.3, .top_k = 20, .top_p = 0.95, .seed = 4});
  };
  auto cached = small_decoder();
  Decoder recompute(small_transformer(), Recompute<>{});
  const Tokens tokens = generate(cached, kPrompt, sampling(), {.max_new_tokens = 40}).tokens;
  CHECK(tokens == generate(recompute, kPrompt, sampling(), {.max_new_tokens = 40}).tokens);
  CHECK(tokens.size() == 40);
  auto other = small_decoder();
  CHECK(tokens != generate(other, kPrompt, Sampling<>({.seed = 5}), {.max_new_tokens = 40}).tokens);
}

TEST_CASE("generate: no new tokens is a prompt that was run") {
  auto decoder = small_decoder();
  const GenerateResult result = generate(decoder, kPrompt, Script{}, {.max_new_tokens = 0});
  CHECK(result.tokens.empty());
  CHECK(result.stop_reason == StopReason::kMaxNewTokens);
  CHECK(result.statistics.n_new_tokens == 0);
  CHECK(result.statistics.tokens_per_second == 0.0);
  CHECK(tokens_of(decoder) == kPrompt);
}

TEST_CASE("generate: a stop token ends the text and is not part of it") {
  auto decoder = small_decoder();
  const GenerateResult result =
      generate(decoder, kPrompt, Script{{4, 4, 30, 31, 4}}, {.stop_tokens = {7, 31}});
  CHECK(result.tokens == Tokens{4, 4, 30});
  CHECK(result.stop_reason == StopReason::kStopToken);
  // The last token had to be run to find that the next one ends the text.
  CHECK(tokens_of(decoder) == joined(kPrompt, {4, 4, 30}));

  auto at_once = small_decoder();
  const GenerateResult none = generate(at_once, kPrompt, Script{{31}}, {.stop_tokens = {31}});
  CHECK(none.tokens.empty());
  CHECK(none.stop_reason == StopReason::kStopToken);
  CHECK(tokens_of(at_once) == kPrompt);
}

TEST_CASE("generate: the callback sees each token and may end it") {
  auto decoder = small_decoder();
  Tokens seen;
  const GenerateResult result =
      generate(decoder, kPrompt, Script{{1, 2, 3, 4}}, {.stop_tokens = {4}}, [&](TokenId token) {
        seen.push_back(token);
        return token != 3;
      });
  CHECK(seen == Tokens{1, 2, 3});
  CHECK(result.tokens == seen);
  CHECK(result.stop_reason == StopReason::kCallback);
  CHECK(tokens_of(decoder) == joined(kPrompt, {1, 2}));
}

TEST_CASE("generate: what the callback throws comes through, and the decoder can go on") {
  auto decoder = small_decoder();
  const auto throwing = [](TokenId token) {
    if (token == 2) throw std::runtime_error("enough");
    return true;
  };
  CHECK_THROWS_WITH(generate(decoder, kPrompt, Script{{1, 2, 3}}, {}, throwing), "enough");
  CHECK(tokens_of(decoder) == joined(kPrompt, {1}));
  CHECK(generate(decoder, Tokens{2}, Script{{3}}, {.max_new_tokens = 1}).tokens == Tokens{3});
}

TEST_CASE("generate: cancelling leaves a decoder that can go on") {
  auto decoder = small_decoder();
  std::stop_source source;
  const GenerateResult result =
      generate(decoder, kPrompt, Script{{1, 2, 3, 4}}, {.stop = source.get_token()}, [&](TokenId token) {
        if (token == 2) source.request_stop();
        return true;
      });
  CHECK(result.tokens == Tokens{1, 2});
  CHECK(result.stop_reason == StopReason::kCancelled);
  CHECK(tokens_of(decoder) == joined(kPrompt, {1}));
  // Before the first token.
  const GenerateResult none = generate(decoder, Tokens{2}, Script{}, {.stop = source.get_token()});
  CHECK(none.tokens.empty());
  CHECK(none.stop_reason == StopReason::kCancelled);
  CHECK(none.statistics.n_new_tokens == 0);
  CHECK(tokens_of(decoder) == joined(kPrompt, {1, 2}));
  CHECK(generate(decoder, {}, Script{{8}}, {.max_new_tokens = 1}).tokens == Tokens{8});
}

TEST_CASE("generate: a long prompt is heard of, and can be cancelled between its passes") {
  Decoder decoder(small_transformer(), Cached<>{.prefill_chunk = 2});
  std::vector<Index> heard;
  auto listener = [&](Index done, Index total) {
    CHECK(total == 5);
    heard.push_back(done);
    return heard.size() != 2;
  };
  const Tokens prompt{1, 2, 3, 4, 5};
  const GenerateResult none = generate(decoder, prompt, Script{}, {.on_prompt = listener});
  CHECK(heard == std::vector<Index>{2, 4});
  CHECK(none.tokens.empty());
  CHECK(none.stop_reason == StopReason::kCancelled);
  CHECK(decoder.kv_len() == 0);
  CHECK(generate(decoder, prompt, Script{{8}}, {.max_new_tokens = 1, .on_prompt = listener}).tokens ==
        Tokens{8});
  CHECK(heard == std::vector<Index>{2, 4, 2, 4, 5});

  std::stop_source source;
  auto stop_then = [&](Index, Index) {
    source.request_stop();
    return true;
  };
  decoder.clear();
  CHECK(
      generate(decoder, prompt, Script{}, {.stop = source.get_token(), .on_prompt = stop_then}).stop_reason ==
      StopReason::kCancelled);
  CHECK(decoder.kv_len() == 0);
}

TEST_CASE("generate: a context is filled to its last position, and one token more is chosen") {
  auto decoder = small_decoder(10);
  const GenerateResult result =
      generate(decoder, Tokens{1, 2, 3, 4, 5, 6}, Greedy{}, {.max_new_tokens = 100});
  CHECK(result.tokens.size() == 5);
  CHECK(result.stop_reason == StopReason::kContextFull);
  CHECK(decoder.kv_len() == 10);
  // It was full already: the logits of the last position are still worth a token.
  const GenerateResult more = generate(decoder, {}, Greedy{}, {.max_new_tokens = 100});
  CHECK(more.tokens == Tokens{result.tokens.back()});
  CHECK(more.stop_reason == StopReason::kContextFull);
  // The maximum is not overrun by a full context, nor the other way.
  decoder.truncate(6);
  CHECK(generate(decoder, {}, Greedy{}, {.max_new_tokens = 5}).stop_reason == StopReason::kMaxNewTokens);
}

TEST_CASE("generate: what was generated can be continued as if it had never ended") {
  auto whole = small_decoder();
  const Tokens expected = generate(whole, kPrompt, Greedy{}, {.max_new_tokens = 12}).tokens;
  auto decoder = small_decoder();
  Tokens tokens = generate(decoder, kPrompt, Greedy{}, {.max_new_tokens = 5}).tokens;
  while (tokens.size() < 12) {
    const Tokens more = generate(decoder, Tokens{tokens.back()}, Greedy{}, {.max_new_tokens = 3}).tokens;
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  tokens.resize(12);
  CHECK(tokens == expected);
  // With an empty prompt it starts from what the decoder holds.
  decoder.truncate(3);
  CHECK(generate(decoder, {}, Greedy{}, {.max_new_tokens = 12}).tokens == expected);
}

TEST_CASE("generate: what cannot be done is refused, and the decoder stays as it was") {
  auto decoder = small_decoder(8);
  CHECK_THROWS_WITH_AS(generate(decoder, {}, Greedy{}),
                       "generate: the prompt is empty, and there is nothing to continue", Error);
  CHECK_THROWS_WITH_AS(generate(decoder, kPrompt, Greedy{}, {.max_new_tokens = -1}),
                       "generate: max_new_tokens must not be negative, got -1", Error);
  CHECK_THROWS_WITH_AS(generate(decoder, kPrompt, Greedy{}, {.stop_strings = {"x"}}),
                       "generate: stop strings need the text of tokens (see the overload with `pieces`)",
                       Error);
  CHECK_THROWS_WITH_AS(generate(decoder, random_tokens(9, 37, 1), Greedy{}),
                       "KV cache full: max_seq_len 8, kv_len 0, n_new 9", Error);
  CHECK_THROWS_WITH_AS(generate(decoder, Tokens{1, 37}, Greedy{}),
                       "token id 37 is outside the vocabulary of 37", Error);
  CHECK(decoder.kv_len() == 0);
  // A token that the sampler made up: what came before it stays.
  CHECK_THROWS_WITH_AS(generate(decoder, kPrompt, Script{{1, 99, 2}}),
                       "token id 99 is outside the vocabulary of 37", Error);
  CHECK(tokens_of(decoder) == joined(kPrompt, {1}));
}

TEST_CASE("generate: statistics are consistent") {
  for (const Index n : {0, 1, 2, 15}) {
    CAPTURE(n);
    auto decoder = small_decoder();
    const GenerateStatistics s = generate(decoder, kPrompt, Greedy{}, {.max_new_tokens = n}).statistics;
    CHECK(s.n_prompt_tokens == 3);
    CHECK(s.n_new_tokens == n);
    CHECK(s.time_to_first_token >= 0.0);
    CHECK(s.total_time >= s.time_to_first_token);
    if (n < 2)
      CHECK(s.tokens_per_second == 0.0);
    else
      CHECK(s.tokens_per_second == static_cast<double>(n - 1) / (s.total_time - s.time_to_first_token));
    CHECK(s.decoder.n_tokens_run == 3 + std::max<Index>(0, n - 1));
    CHECK(s.decoder.n_tokens_run == decoder.statistics().n_tokens_run);
    CHECK(s.decoder.cache_bytes == decoder.cache().bytes());
    CHECK(s.decoder.scratch_bytes == decoder.statistics().scratch_bytes);
  }
  Decoder recompute(small_transformer(), Recompute<>{});
  const GenerateStatistics s = generate(recompute, kPrompt, Greedy{}, {.max_new_tokens = 4}).statistics;
  CHECK(s.decoder.n_tokens_run == 3 + 4 + 5 + 6);
  CHECK(s.decoder.cache_bytes == 0);
}

TEST_CASE("generate: reasons have names") {
  CHECK(to_string(StopReason::kMaxNewTokens) == "length");
  CHECK(to_string(StopReason::kStopToken) == "stop token");
  CHECK(to_string(StopReason::kStopString) == "stop string");
  CHECK(to_string(StopReason::kContextFull) == "full context");
  CHECK(to_string(StopReason::kCallback) == "callback");
  CHECK(to_string(StopReason::kCancelled) == "cancellation");
}

// ---- Text --------------------------------------------------------------------------------------------------

/// Token i is piece i; the last byte of a piece that ends with '+' comes with the next one, as half a character
/// would.
struct Pieces {
  std::vector<std::string> pieces;
  std::string shown{}, held{};

  std::string_view operator()(TokenId token) {
    shown = held + pieces.at(static_cast<std::size_t>(token));
    held.clear();
    if (!shown.empty() && shown.back() == '+') {
      held = "+";
      shown.pop_back();
    }
    return shown;
  }
  std::string_view flush() {
    shown = held;
    held.clear();
    return shown;
  }
};
/// The same without flush().
struct PlainPieces {
  std::vector<std::string> pieces;

  std::string_view operator()(TokenId token) { return pieces.at(static_cast<std::size_t>(token)); }
};

struct Shown {
  GenerateResult result;
  std::vector<std::string> parts;
};
template <class P>
Shown show(Tokens script, P pieces, GenerateOptions options, std::size_t n_parts = 1000) {
  auto decoder = small_decoder();
  Shown shown;
  options.max_new_tokens = std::min(options.max_new_tokens, static_cast<Index>(script.size()));
  shown.result = generate(decoder, kPrompt, Script{script}, options, pieces, [&](std::string_view part) {
    CHECK(!part.empty());
    shown.parts.emplace_back(part);
    return shown.parts.size() < n_parts;
  });
  std::string all;
  for (const std::string& part : shown.parts) all += part;
  CHECK(all == shown.result.text);
  return shown;
}

using Parts = std::vector<std::string>;

TEST_CASE("generate text: comes piece by piece, and is the same in the end") {
  const Shown shown = show({0, 1, 2, 1}, PlainPieces{{"Once", " upon", " a time"}}, {});
  CHECK(shown.parts == Parts{"Once", " upon", " a time", " upon"});
  CHECK(shown.result.text == "Once upon a time upon");
  CHECK(shown.result.tokens == Tokens{0, 1, 2, 1});
  CHECK(shown.result.stop_reason == StopReason::kMaxNewTokens);
}

TEST_CASE("generate text: what a token leaves open comes with the next, or at the end") {
  const Pieces pieces{{"a", "b+", "c"}};
  CHECK(show({0, 1, 2}, pieces, {}).parts == Parts{"a", "b", "+c"});
  const Shown open = show({0, 2, 1}, pieces, {});
  CHECK(open.parts == Parts{"a", "c", "b", "+"});
  CHECK(open.result.text == "acb+");
  // Also when a token ends it.
  const Shown stopped = show({0, 1, 30}, pieces, {.stop_tokens = {30}});
  CHECK(stopped.result.text == "ab+");
  CHECK(stopped.result.stop_reason == StopReason::kStopToken);
}

TEST_CASE("generate text: a stop string ends it, wherever tokens are cut") {
  for (const Parts& vocabulary : {Parts{"one\n\ntwo"}, Parts{"one", "\n\n", "two"}, Parts{"one\n", "\ntwo"},
                                  Parts{"o", "n", "e", "\n", "\n", "t", "w", "o"}}) {
    Tokens script;
    for (std::size_t i = 0; i < vocabulary.size(); ++i) script.push_back(static_cast<TokenId>(i));
    const Shown shown = show(script, PlainPieces{vocabulary}, {.stop_strings = {"END", "\n\n"}});
    CHECK(shown.result.text == "one");
    CHECK(shown.result.stop_reason == StopReason::kStopString);
    CHECK(shown.result.tokens.size() <= vocabulary.size());
  }
}

TEST_CASE("generate text: what may begin a stop string waits, and comes out if it does not") {
  const PlainPieces pieces{{"the E", "N", "D", "!"}};
  CHECK(show({0, 1, 3}, pieces, {.stop_strings = {"END"}}).parts == Parts{"the ", "EN!"});
  CHECK(show({0, 1}, pieces, {.stop_strings = {"END"}}).parts == Parts{"the ", "EN"});
  const Shown ended = show({0, 1, 2, 3}, pieces, {.stop_strings = {"END"}});
  CHECK(ended.parts == Parts{"the "});
  CHECK(ended.result.stop_reason == StopReason::kStopString);
  CHECK(ended.result.tokens == Tokens{0, 1, 2});
  // A stop token lets out what waits.
  const Shown token = show({0, 1, 30}, pieces, {.stop_tokens = {30}, .stop_strings = {"END"}});
  CHECK(token.result.text == "the EN");
  CHECK(token.result.stop_reason == StopReason::kStopToken);
}

TEST_CASE("generate text: what is flushed can complete a stop string") {
  const Shown shown = show({0, 1}, Pieces{{"a", "b+"}}, {.stop_strings = {"b+"}});
  CHECK(shown.result.text == "a");
  CHECK(shown.result.stop_reason == StopReason::kStopString);
  CHECK(shown.result.tokens == Tokens{0, 1});
}

TEST_CASE("generate text: the callback ends it, and sees nothing more") {
  const Shown shown = show({0, 1, 2, 0}, Pieces{{"a", "b+", "c"}}, {.stop_strings = {"cd"}}, 2);
  CHECK(shown.parts == Parts{"a", "b"});
  CHECK(shown.result.stop_reason == StopReason::kCallback);
  CHECK(shown.result.tokens == Tokens{0, 1});
}

TEST_CASE("generate text: tokens without text are no call") {
  const Shown shown = show({0, 1, 0, 1}, PlainPieces{{"", "x"}}, {});
  CHECK(shown.parts == Parts{"x", "x"});
  CHECK(shown.result.tokens == Tokens{0, 1, 0, 1});
}

TEST_CASE("generate text: an empty stop string is refused before anything runs") {
  auto decoder = small_decoder();
  CHECK_THROWS_WITH_AS(generate(decoder, kPrompt, Greedy{}, {.stop_strings = {""}}, PlainPieces{{"x"}},
                                [](std::string_view) { return true; }),
                       "stop strings must not be empty", Error);
  CHECK(decoder.kv_len() == 0);
}

}  // namespace

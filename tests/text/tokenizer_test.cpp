// SPDX-License-Identifier: MIT
#include "golden_files.hpp"

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/tokenizer.hpp>
#include <kvdecode/text/tokenizer_json.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

using namespace kvdecode_test;
using kvdecode::AddedToken;
using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::read_tokenizer_json;
using kvdecode::TokenId;
using kvdecode::Tokenizer;
using kvdecode::TokenizerSpec;
using Ids = std::vector<TokenId>;

static_assert(std::is_nothrow_move_constructible_v<Tokenizer> && std::is_copy_constructible_v<Tokenizer>);
static_assert(!std::is_convertible_v<TokenizerSpec, Tokenizer>);

namespace kvdecode_test {

inline Tokenizer load(const std::string& name) {
  return Tokenizer(read_tokenizer_json(read_file(tokenizer_data("synthetic/" + name + "/tokenizer.json"))));
}

inline TokenizerSpec letters_spec() {
  TokenizerSpec spec;
  spec.tokens = {"a", "b", "c", " ", "_"};
  return spec;
}

inline AddedToken added(TokenId id, const std::string& content, bool special = false) {
  AddedToken token;
  token.id = id;
  token.content = content;
  token.special = special;
  return token;
}

inline std::string error_of(const TokenizerSpec& spec) {
  try {
    const Tokenizer tokenizer(spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace kvdecode_test

TEST_CASE("tokenizer: any text survives encoding and decoding with a byte-level vocabulary") {
  const Tokenizer tokenizer = load("bl_gpt2");
  for (const nlohmann::json& record : read_json(tokenizer_data("components/texts.json"))) {
    const std::string text = record.at("text").get<std::string>();
    CHECK(tokenizer.decode(tokenizer.encode(text, {.special_as_text = true})) == text);
    CHECK(tokenizer.decode(tokenizer.encode(text), {.skip_special = false}) == text);
  }
}

TEST_CASE("tokenizer: text that is not UTF-8 is a bad argument") {
  const Tokenizer tokenizer = load("bl_gpt2");
  for (const std::string_view bad : {"abc\xFF", "abc\xED\xA0\x80", "abc\xE4\xBD"}) {
    try {
      tokenizer.encode(bad);
      FAIL_CHECK("accepted");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kBadArgument);
      CHECK(std::string(error.what()).find("not valid UTF-8 at byte 3") != std::string::npos);
    }
  }
}

TEST_CASE("tokenizer: special tokens in a text are tokens, or text if the text is not to be trusted") {
  const Tokenizer tokenizer = load("bl_gpt2");
  const std::string text = "a<|im_end|>b";
  const TokenId mark = *tokenizer.id_of("<|im_end|>");
  const Ids ids = tokenizer.encode(text);
  CHECK(ids == Ids{*tokenizer.id_of("a"), mark, *tokenizer.id_of("b")});
  const Ids safe = tokenizer.encode(text, {.special_as_text = true});
  for (const TokenId id : safe) CHECK_FALSE(tokenizer.is_special(id));
  CHECK(tokenizer.decode(safe) == text);
  CHECK(tokenizer.decode(ids) == "ab");
  CHECK(tokenizer.decode(ids, {.skip_special = false}) == text);
}

TEST_CASE("tokenizer: pieces, ids and marks can be looked up") {
  const Tokenizer tokenizer = load("bl_llama3_ignore_merges");
  CHECK(tokenizer.vocab_size() == 493);
  CHECK(tokenizer.piece(489) == "<|begin_of_text|>");
  CHECK(tokenizer.id_of("<|begin_of_text|>") == 489);
  CHECK(tokenizer.piece(*tokenizer.id_of("\xC4\xA0the")) == "\xC4\xA0the");
  CHECK_FALSE(tokenizer.id_of("nobody").has_value());
  CHECK(tokenizer.piece(-1).empty());
  CHECK(tokenizer.piece(493).empty());
  CHECK(tokenizer.is_special(489));
  for (const TokenId id : {-1, 0, 493, 2147483647}) CHECK_FALSE(tokenizer.is_special(id));
  CHECK(tokenizer.bos_id() == 489);
  CHECK(tokenizer.adds_bos());
  CHECK(tokenizer.encode("") == Ids{489});
  CHECK(tokenizer.encode("", {.add_special_tokens = false}).empty());
  CHECK_FALSE(load("bl_gpt2").adds_bos());
}

TEST_CASE("tokenizer: ids that are no token leave no trace in a text") {
  TokenizerSpec spec = letters_spec();
  spec.token_types.assign(5, kvdecode::TokenType::kNormal);
  spec.token_types[1] = kvdecode::TokenType::kUnused;
  spec.decoder.emplace();
  const Tokenizer tokenizer(spec);
  CHECK(tokenizer.decode(Ids{0, 1, -7, 5, 1000000, 2}) == "ac");
  CHECK(tokenizer.piece(1).empty());
  CHECK(tokenizer.encode("abc") == Ids{0, 2});
}

TEST_CASE("tokenizer: added tokens take the longest match, their space, or only whole words") {
  TokenizerSpec spec = letters_spec();
  spec.added_tokens = {added(5, "ab"), added(6, "abc"), added(7, "_")};
  spec.tokens[4] = "-";
  CHECK(Tokenizer(spec).encode("abcab_") == Ids{6, 5, 7});
  spec.added_tokens[0].single_word = true;
  CHECK(Tokenizer(spec).encode("ab abb abc") == Ids{5, 3, 0, 1, 1, 3, 6});
  spec.added_tokens[0].lstrip = true;
  spec.added_tokens[0].rstrip = true;
  CHECK(Tokenizer(spec).encode("a  ab  c") == Ids{0, 5, 2});
}

TEST_CASE("tokenizer: contradictions in a spec are refused by name") {
  TokenizerSpec spec = letters_spec();
  spec.added_tokens = {added(-1, "x")};
  CHECK(error_of(spec).find("added token \"x\" has id -1") != std::string::npos);
  spec.added_tokens = {added(2000000000, "x")};
  CHECK(error_of(spec).find("has id 2000000000, expected 0 to") != std::string::npos);
  spec.added_tokens = {added(5, "x"), added(5, "y")};
  CHECK(error_of(spec).find("have the same id 5") != std::string::npos);
  spec.added_tokens = {added(1, "x")};
  CHECK(error_of(spec).find("which the vocabulary gives to \"b\"") != std::string::npos);
  spec.added_tokens = {added(5, "")};
  CHECK(error_of(spec).find("has no content") != std::string::npos);
  spec.added_tokens = {added(5, "\xFF")};
  CHECK(error_of(spec).find("not valid UTF-8") != std::string::npos);
  spec = letters_spec();
  spec.tokens[2] = "\xC0";
  CHECK(error_of(spec).find("token 2 is not valid UTF-8") != std::string::npos);
  spec = letters_spec();
  spec.token_types.resize(3);
  CHECK(error_of(spec).find("3 token types for 5 tokens") != std::string::npos);
  spec = letters_spec();
  spec.bos_id = 5;
  CHECK(error_of(spec).find("bos_id names token 5, which is not one of 5") != std::string::npos);
  spec = letters_spec();
  spec.post_processor.resize(1);
  CHECK(error_of(spec).find("0 places for the text") != std::string::npos);
  spec = letters_spec();
  spec.decoder.emplace(100);
  CHECK(error_of(spec).find("100 decoder steps") != std::string::npos);
  spec = letters_spec();
  spec.normalizer.resize(1);
  spec.normalizer[0].kind = kvdecode::NormalizerStep::Kind::kReplace;
  spec.normalizer[0].pattern = {"a\xFF", true};
  CHECK(error_of(spec).find("normalizer 0 is not valid UTF-8") != std::string::npos);
}

TEST_CASE("tokenizer: a word of a megabyte and a long run of marks take no quadratic time") {
  const std::size_t n = std::size_t{1} << 20;
  for (const std::string name : {"bl_gpt2", "bf_llama2", "norm_nfkc", "bl_deepseek"}) {
    const Tokenizer tokenizer = load(name);
    for (const std::string_view unit : {"a", " ", "\n", "7", "\xCC\xA3\xCC\x81", "the"}) {
      std::string text = "e";
      while (text.size() < n) text += unit;
      CHECK(tokenizer.encode(text).size() > 1000);  // a quadratic step would take minutes
    }
  }
}

TEST_CASE("tokenizer: copies share one state and encode on several threads") {
  const Tokenizer tokenizer = load("bl_llama3_ignore_merges");
  const std::string text =
      "What light through yonder window breaks? It is the east, and Juliet is the sun. 1599";
  const Ids expected = tokenizer.encode(text);
  std::atomic<int> n_right = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([copy = tokenizer, &text, &expected, &n_right] {
      for (int round = 0; round < 50; ++round) {
        if (copy.encode(text) == expected && copy.decode(expected) == text) n_right += 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(n_right == 200);
}

// SPDX-License-Identifier: MIT
#include "golden_files.hpp"

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/tokenizer.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace kvdecode_test;
using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::TokenId;
using kvdecode::Tokenizer;
using kvdecode::TokenizerModel;
using kvdecode::TokenizerSpec;

namespace kvdecode_test {

// A vocabulary of words over a few letters, each made by one or two merges of earlier ones, in random order
// of rank.
inline TokenizerSpec random_spec(std::mt19937& engine, std::size_t n_letters, std::size_t n_merges) {
  TokenizerSpec spec;
  const std::vector<std::string> letters = {"a", "b", "\xC3\xA9", "\xE4\xBD\xA0", "\xF0\x9F\x98\x80", "z"};
  std::map<std::string, TokenId> ids;
  const auto add = [&](const std::string& text) {
    if (!ids.emplace(text, static_cast<TokenId>(spec.tokens.size())).second) return;
    spec.tokens.push_back(text);
    spec.scores.push_back(static_cast<float>(engine() % 8));  // with ties
  };
  for (std::size_t i = 0; i < n_letters; ++i) add(letters[i]);
  for (std::size_t i = 0; i < n_merges; ++i) {
    const std::string left = spec.tokens[engine() % spec.tokens.size()];
    const std::string right = spec.tokens[engine() % spec.tokens.size()];
    if (left.size() + right.size() > 40) continue;
    add(left + right);
    spec.merges.push_back({left, right});
  }
  std::shuffle(spec.merges.begin(), spec.merges.end(), engine);
  return spec;
}

// The algorithm as it is told: find the best pair in the whole list, merge it, begin again.
inline std::vector<TokenId> textbook_bpe(const TokenizerSpec& spec,
                                         const std::vector<std::string>& characters) {
  std::map<std::string, TokenId> ids;
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) ids[spec.tokens[i]] = static_cast<TokenId>(i);
  std::vector<std::string> parts = characters;
  for (;;) {
    std::size_t best = parts.size();
    double best_rank = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      double rank = std::numeric_limits<double>::infinity();
      if (spec.model == TokenizerModel::kScoredBpe) {
        const auto merged = ids.find(parts[i] + parts[i + 1]);
        if (merged != ids.end()) {
          rank = -static_cast<double>(spec.scores[static_cast<std::size_t>(merged->second)]);
        }
      } else {
        for (std::size_t m = 0; m < spec.merges.size(); ++m) {  // of equal pairs the last one counts
          if (spec.merges[m].left == parts[i] && spec.merges[m].right == parts[i + 1]) {
            rank = static_cast<double>(m);
          }
        }
      }
      if (rank < best_rank) {
        best = i;
        best_rank = rank;
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<TokenId> result;
  for (const std::string& part : parts) result.push_back(ids.at(part));
  return result;
}

}  // namespace kvdecode_test

TEST_CASE("bpe: the tokens of the textbook algorithm, for short and long pieces, by merges and by scores") {
  constexpr unsigned kSeed = 7;
  CAPTURE(kSeed);
  std::mt19937 engine(kSeed);
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const std::size_t n_letters = 1 + engine() % 6;
    TokenizerSpec spec = random_spec(engine, n_letters, 1 + engine() % 25);
    if (round % 2 == 1) spec.model = TokenizerModel::kScoredBpe;
    const Tokenizer tokenizer(spec);
    for (const std::size_t n : {1u, 2u, 3u, 7u, 23u, 24u, 25u, 26u, 60u, 150u}) {
      std::vector<std::string> characters;
      std::string text;
      for (std::size_t i = 0; i < n; ++i) {
        characters.push_back(spec.tokens[engine() % n_letters]);
        text += characters.back();
      }
      CAPTURE(text);
      CHECK(to_text(tokenizer.encode(text)) == to_text(textbook_bpe(spec, characters)));
    }
  }
}

TEST_CASE("bpe: scores order merges, and tokens that are marks are not made") {
  TokenizerSpec spec;
  spec.model = TokenizerModel::kScoredBpe;
  spec.tokens = {"<", "s", ">", "<s", "s>", "<s>"};
  spec.scores = {0, 0, 0, -2, -1, 0};
  CHECK(Tokenizer(spec).encode("<s>") == std::vector<TokenId>{5});
  using kvdecode::TokenType;
  spec.token_types.assign(6, TokenType::kNormal);
  spec.token_types[5] = TokenType::kControl;
  CHECK(Tokenizer(spec).encode("<s>") == std::vector<TokenId>{0, 4});
  spec.scores.pop_back();
  CHECK_THROWS_AS(Tokenizer{spec}, Error);
  spec.scores.push_back(std::numeric_limits<float>::quiet_NaN());
  CHECK_THROWS_AS(Tokenizer{spec}, Error);
}

TEST_CASE("bpe: unknown characters become bytes, one unknown token each, one for all, or nothing") {
  TokenizerSpec spec;
  spec.tokens = {"a", "<unk>", "<0xC3>", "<0xA9>"};
  const std::string text =
      "a\xC3\xA9\xE4\xBD\xA0\xE4\xBD\xA0"
      "a";
  CHECK(Tokenizer(spec).encode(text) == std::vector<TokenId>{0, 0});
  spec.unk_token = "<unk>";
  CHECK(Tokenizer(spec).encode(text) == std::vector<TokenId>{0, 1, 1, 1, 0});
  spec.fuse_unk = true;
  CHECK(Tokenizer(spec).encode(text) == std::vector<TokenId>{0, 1, 0});
  spec.byte_fallback = true;  // all bytes of a character or none
  CHECK(Tokenizer(spec).encode(text) == std::vector<TokenId>{0, 2, 3, 1, 0});
  spec.unk_token = "<none>";
  CHECK(Tokenizer(spec).encode("a\xC3\xA9") == std::vector<TokenId>{0, 2, 3});
  CHECK_THROWS_AS(Tokenizer(spec).encode(text), Error);
}

TEST_CASE("bpe: byte tokens take part in merges") {
  TokenizerSpec spec;
  spec.tokens = {"a", "<0xC3>", "<0xA9>", "<0xC3><0xA9>", "a<0xC3><0xA9>"};
  spec.byte_fallback = true;
  spec.merges = {{"<0xC3>", "<0xA9>"}, {"a", "<0xC3><0xA9>"}};
  CHECK(Tokenizer(spec).encode("a\xC3\xA9") == std::vector<TokenId>{4});
}

TEST_CASE("bpe: characters with a prefix or a suffix merge as their tokens say") {
  TokenizerSpec spec;
  spec.tokens = {"a", "b</w>", "ab</w>", "a</w>"};
  spec.end_of_word_suffix = "</w>";
  spec.merges = {{"a", "b</w>"}};
  CHECK(Tokenizer(spec).encode("ab") == std::vector<TokenId>{2});
  CHECK(Tokenizer(spec).encode("aa") == std::vector<TokenId>{0, 3});
  spec = {};
  spec.tokens = {"a", "##b", "ab", "##c", "abc"};
  spec.continuing_subword_prefix = "##";
  spec.merges = {{"a", "##b"}, {"ab", "##c"}};
  CHECK(Tokenizer(spec).encode("abc") == std::vector<TokenId>{4});
  CHECK(Tokenizer(spec).encode("acb") == std::vector<TokenId>{0, 3, 1});
  spec.merges = {{"a", "b"}};
  CHECK_THROWS_AS(Tokenizer{spec}, Error);
}

TEST_CASE("bpe: ignore_merges takes a piece that is a token whole") {
  TokenizerSpec spec;
  spec.tokens = {"a", "b", "ab"};
  CHECK(Tokenizer(spec).encode("ab") == std::vector<TokenId>{0, 1});
  spec.ignore_merges = true;
  CHECK(Tokenizer(spec).encode("ab") == std::vector<TokenId>{2});
  CHECK(Tokenizer(spec).encode("aba") == std::vector<TokenId>{0, 1, 0});
}

TEST_CASE("bpe: a merge that names a missing token is a bad file") {
  const auto code_of = [](const TokenizerSpec& spec) {
    try {
      const Tokenizer tokenizer(spec);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  TokenizerSpec spec;
  spec.tokens = {"a", "b"};
  spec.merges = {{"a", "b"}};
  CHECK(code_of(spec) == "tokenizer: merge 0 (\"a\", \"b\") needs token \"ab\", which the vocabulary lacks");
  spec.merges = {{"a", "c"}};
  CHECK(code_of(spec) == "tokenizer: merge 0 (\"a\", \"c\") needs token \"c\", which the vocabulary lacks");
  spec.merges = {};
  spec.tokens = {"a", "a"};
  CHECK(code_of(spec) == "tokenizer: tokens 0 and 1 have the same text \"a\"");
}

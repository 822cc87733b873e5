// SPDX-License-Identifier: MIT
#include "golden_files.hpp"

#include <kvdecode/text/streaming_detokenizer.hpp>
#include <kvdecode/text/tokenizer_json.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace kvdecode_test;
using kvdecode::DecoderStep;
using kvdecode::DetokenizeOptions;
using kvdecode::read_tokenizer_json;
using kvdecode::StreamingDetokenizer;
using kvdecode::TokenId;
using kvdecode::Tokenizer;
using kvdecode::TokenizerSpec;
using kvdecode::detail::is_utf8;
using Ids = std::vector<TokenId>;
using Kind = DecoderStep::Kind;

namespace kvdecode_test {

inline Tokenizer load(const std::string& name) {
  return Tokenizer(read_tokenizer_json(read_file(tokenizer_data("synthetic/" + name + "/tokenizer.json"))));
}

// Pieces, the flush last.
inline std::vector<std::string> pieces_of(const Tokenizer& tokenizer, const Ids& ids,
                                          DetokenizeOptions options = {}) {
  StreamingDetokenizer stream(tokenizer, options);
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.emplace_back(stream(id));
  pieces.emplace_back(stream.flush());
  return pieces;
}

inline std::string joined(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

// A tokenizer whose tokens are the given texts, for its decoder.
inline Tokenizer decoder_of(std::vector<std::string> tokens, std::vector<DecoderStep> steps) {
  TokenizerSpec spec;
  spec.tokens = std::move(tokens);
  spec.decoder = std::move(steps);
  return Tokenizer(spec);
}

inline DecoderStep step(Kind kind, const std::string& content = "", const std::string& pattern = "",
                        bool is_regex = false) {
  DecoderStep result;
  result.kind = kind;
  result.content = content;
  result.pattern = {pattern, is_regex};
  result.replacement = "_";
  result.start = 1;
  return result;
}

using Pieces = std::vector<std::string>;

}  // namespace kvdecode_test

TEST_CASE("streaming: the pieces of arbitrary ids are whole characters and together the decoded text") {
  constexpr unsigned kSeed = 11;
  CAPTURE(kSeed);
  std::mt19937 engine(kSeed);
  for (const std::string name :
       {"bl_gpt2", "bl_clip", "bf_llama2", "bf_decoder_without_fuse", "bf_metaspace_first",
        "bpe_continuing_prefix", "bpe_word_suffix", "added_flags_llama2", "dec_none"}) {
    CAPTURE(name);
    const Tokenizer tokenizer = load(name);
    for (int round = 0; round < 60; ++round) {
      Ids ids;
      const std::size_t n = engine() % 40;
      const auto range = static_cast<std::uint32_t>(tokenizer.vocab_size() + 4);
      const std::uint32_t limit =
          round % 2 == 0 ? range : std::min<std::uint32_t>(range, 270);  // mostly bytes
      for (std::size_t i = 0; i < n; ++i) ids.push_back(static_cast<TokenId>(engine() % limit) - 2);
      for (const bool skip : {true, false}) {
        const Pieces pieces = pieces_of(tokenizer, ids, {.skip_special = skip});
        for (const std::string& piece : pieces) CHECK(is_utf8(piece));
        CHECK(joined(pieces) == tokenizer.decode(ids, {.skip_special = skip}));
      }
    }
  }
}

TEST_CASE("streaming: byte-level text comes as soon as its characters are whole") {
  const Tokenizer tokenizer = load("bl_gpt2");
  const std::string text = "a\xF0\x9F\x98\x80 b";
  const Ids ids = tokenizer.encode(text);
  const Pieces pieces = pieces_of(tokenizer, ids);
  std::string so_far;
  std::string bytes;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    kvdecode::detail::append_letter_bytes(bytes, tokenizer.piece(ids[i]));
    so_far += pieces[i];
    CHECK(so_far == bytes.substr(0, kvdecode::detail::utf8_valid_prefix(bytes)));
  }
  CHECK(so_far == text);
  CHECK(pieces.back().empty());
}

TEST_CASE("streaming: a text that ends within a character ends with U+FFFD, at the flush") {
  const Tokenizer tokenizer = load("bl_gpt2");
  Ids ids = tokenizer.encode("\xF0\x9F\x98\x80");
  REQUIRE(ids.size() == 4);
  ids.pop_back();
  CHECK(pieces_of(tokenizer, ids) == Pieces{"", "", "", "\xEF\xBF\xBD"});
}

TEST_CASE("streaming: byte tokens wait for the end of their run, other tokens do not wait") {
  const Tokenizer tokenizer =
      decoder_of({"<0xC3>", "<0xA9>", "a"}, {step(Kind::kByteFallback), step(Kind::kFuse)});
  CHECK(pieces_of(tokenizer, {2, 0, 1, 2, 2, 0, 2, 1, 0}) == Pieces{"a", "", "",
                                                                    "\xC3\xA9"
                                                                    "a",
                                                                    "a", "",
                                                                    "\xEF\xBF\xBD"
                                                                    "a",
                                                                    "", "", "\xEF\xBF\xBD\xEF\xBF\xBD"});
}

TEST_CASE("streaming: steps behind Fuse go on with the parts of the one token") {
  const Tokenizer strip = decoder_of({"", " ", " a"}, {step(Kind::kFuse), step(Kind::kStrip, " ")});
  CHECK(pieces_of(strip, {0, 1, 1, 2}) == Pieces{"", "", " ", " a", ""});
  const Tokenizer replace =
      decoder_of({"a", "b", "ab", "x"}, {step(Kind::kFuse), step(Kind::kReplace, "-", "aab")});
  CHECK(pieces_of(replace, {0, 0, 0, 1, 3}) == Pieces{"", "", "a", "-", "x", ""});
  CHECK(pieces_of(replace, {0, 2, 0, 3, 0}) == Pieces{"", "-", "", "ax", "", "a"});
  const Tokenizer metaspace = decoder_of({"_a", "_"}, {step(Kind::kFuse), step(Kind::kMetaspace)});
  CHECK(pieces_of(metaspace, {0, 1, 0}) == Pieces{"a", "", "a", ""});
  const Tokenizer regex = decoder_of({"a", "b"}, {step(Kind::kFuse), step(Kind::kReplace, "-", "a+", true)});
  CHECK(pieces_of(regex, {0, 0, 1, 0}) == Pieces{"", "", "", "", "-b-"});  // needs the whole text
}

TEST_CASE("streaming: only the last word's suffix waits") {
  const Tokenizer tokenizer = decoder_of({"ab</w>", "c"}, {step(Kind::kBpe, "</w>")});
  CHECK(pieces_of(tokenizer, {0, 1, 0, 0}) == Pieces{"ab", " c", "ab", " ab", ""});
  CHECK(pieces_of(tokenizer, {1, 0}) == Pieces{"c", "ab", ""});
}

TEST_CASE("streaming: without a decoder tokens are joined by spaces") {
  TokenizerSpec spec;
  spec.tokens = {"a", "b"};
  CHECK(pieces_of(Tokenizer(spec), {0, 1, 7, 0}) == Pieces{"a", " b", "", " a", ""});
}

TEST_CASE("streaming: after a flush a new text begins") {
  for (const std::string name : {"bf_llama2", "bf_metaspace_first", "bpe_word_suffix", "dec_none"}) {
    const Tokenizer tokenizer = load(name);
    const Ids ids = tokenizer.encode("the first <0x41> \xF0\x9F\x98\x80");
    StreamingDetokenizer stream(tokenizer);
    for (int round = 0; round < 3; ++round) {
      std::string text;
      for (const TokenId id : ids) text += stream.push(id);
      text += stream.flush();
      CHECK(text == tokenizer.decode(ids));
    }
    CHECK(stream.flush().empty());
  }
}

TEST_CASE("streaming: work per token does not grow with the text") {
  const Tokenizer tokenizer = load("bl_gpt2");
  StreamingDetokenizer stream(tokenizer);
  const Ids ids = tokenizer.encode("so long as men can breathe or eyes can see, ");
  std::size_t n_bytes = 0;
  for (int round = 0; round < 50000; ++round) {  // a quadratic step would take hours
    for (const TokenId id : ids) n_bytes += stream.push(id).size();
  }
  CHECK(n_bytes + stream.flush().size() == 50000 * tokenizer.decode(ids).size());
}

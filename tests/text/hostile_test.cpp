// SPDX-License-Identifier: MIT
// tokenizer.json files that lie: each is refused by name, in one line, and no number in it is taken for memory.
#include "golden_files.hpp"

#include <support/peak_heap.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/text/tokenizer.hpp>
#include <kvdecode/text/tokenizer_json.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace kvdecode_test;
using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::read_tokenizer_json;
using kvdecode::Tokenizer;
using Json = nlohmann::json;

namespace kvdecode_test {

// A tokenizer as small as one can be; `changes` are put over it.
inline Json small_file(const Json& changes = Json::object()) {
  Json file = Json::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
                              "added_tokens": [{"id": 3, "content": "<s>", "special": true}]})");
  file.merge_patch(changes);
  return file;
}

// What the file is refused with; empty if it is accepted.
inline std::string refusal(const std::string& file) {
  try {
    const Tokenizer tokenizer(read_tokenizer_json(file));
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

inline void check_refused(std::string_view word, const std::string& file) {
  CAPTURE(file.substr(0, 300));
  const std::string text = refusal(file);
  CHECK(!text.empty());
  CHECK_MESSAGE(text.find(word) != std::string::npos, text);
  CHECK(text.size() < 1000);
  CHECK(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; }));
}

inline void check_change(std::string_view word, const Json& changes) {
  check_refused(word, small_file(changes).dump());
}

}  // namespace kvdecode_test

TEST_CASE("hostile tokenizer.json: errors are one short line, whatever the file has in it") {
  CHECK(refusal(small_file().dump()).empty());
  const std::string odd = "\n\x1b[2J\"\\\xE2\x80\xAE" + std::string(5000, 'x');
  check_change("needs token \"\\n\\x1b[2J\\\"\\\\\\xe2\\x80\\xae",
               {{"model", {{"merges", Json::array({Json::array({odd, "a"})})}}}});
  check_change("is not two tokens with a space between them", {{"model", {{"merges", Json::array({odd})}}}});
  check_change("model.vocab gives id 0 to ", {{"model", {{"vocab", {{odd, 0}}}}}});
  check_change("is no token id", {{"model", {{"vocab", {{odd, -1}}}}}});
  check_change("expected an integer", {{"model", {{"vocab", {{odd, "0"}}}}}});
  check_change("tokenizer.json.model: model \\n", {{"model", {{"type", odd}}}});
  check_change("is shorter than the prefix \"\\n", {{"model", {{"continuing_subword_prefix", odd}}}});
  for (const auto& [member, what] :
       {std::pair("normalizer", "normalizer"), std::pair("pre_tokenizer", "pre-tokenizer"),
        std::pair("post_processor", "post-processor"), std::pair("decoder", "decoder")})
    check_change(what + std::string(" \\n"), {{member, {{"type", odd}}}});
  const auto split = [](const Json& pattern, const Json& behavior) {
    return Json{{"pre_tokenizer", {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}}}};
  };
  check_change("unknown behavior \"\\n", split({{"String", "a"}}, odd));
  check_change("regular expression \"\\n", split({{"Regex", odd + "("}}, "Isolated"));
  check_change("regular expression \"(?<\\n", split({{"Regex", "(?<" + odd}}, "Isolated"));
  check_change("is not one character", {{"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", odd}}}});
  check_change("unknown prepend_scheme \"\\n",
               {{"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", odd}}}});
  check_change("is not one character",
               {{"decoder", {{"type", "Strip"}, {"content", odd}, {"start", 0}, {"stop", 0}}}});
  const Json processor = {{"type", "TemplateProcessing"},
                          {"single", {{{"SpecialToken", {{"id", odd}}}}}},
                          {"special_tokens", Json::object()}};
  check_change("has no \"\\n", {{"post_processor", processor}});
  Json wrong_type = processor;
  wrong_type["special_tokens"][odd] = {{"ids", 0}};
  check_change("special_tokens.\\n", {{"post_processor", wrong_type}});
  check_refused("tokenizer.json: the key ",
                R"({")" + std::string(5000, 'k') + R"(":1,")" + std::string(5000, 'k') + R"(":2})");
  check_refused("tokenizer.json: not valid JSON at byte ", "{\"\x01\xff");
  check_refused("tokenizer.json: not valid JSON at byte ", "{" + std::string(5000, '\xff'));

  kvdecode::TokenizerSpec spec = read_tokenizer_json(small_file().dump());
  spec.added_tokens.front() = {.id = 0, .content = odd};
  CHECK_THROWS_WITH_AS(Tokenizer{spec},
                       ("tokenizer: added token " + kvdecode::detail::in_quotes(odd) +
                        " has id 0, which the vocabulary gives to \"a\"")
                           .c_str(),
                       Error);

  // A text that needs an unknown token which is not there.
  const Tokenizer tokenizer(read_tokenizer_json(small_file({{"model", {{"unk_token", odd}}}}).dump()));
  try {
    tokenizer.encode("\n");
    FAIL_CHECK("nothing was thrown");
  } catch (const Error& error) {
    CHECK(std::string_view(error.what()).find("\"\\n\" needs the unknown token \"\\n\\x1b[2J") !=
          std::string_view::npos);
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

TEST_CASE("hostile tokenizer.json: a zero byte does not end it") {
  const std::string file = small_file().dump();
  check_refused("tokenizer.json: not valid JSON at byte " + std::to_string(file.size()) + ": a zero byte",
                file + std::string(1, '\0') + "garbage");
  kvdecode::TokenizerSpec spec = read_tokenizer_json(file);
  CHECK_THROWS_WITH_AS(kvdecode::apply_tokenizer_config(spec, std::string_view("{}\0{", 4)),
                       "tokenizer_config.json: not valid JSON at byte 2: a zero byte", Error);
}

TEST_CASE("hostile tokenizer.json: ids take no memory that the tokens are not worth") {
  const auto peak = [](const Json& changes) {
    const std::string file = small_file(changes).dump();
    return peak_heap([&] { refusal(file); });
  };
  for (const std::int64_t id : {std::int64_t{2147483647}, std::int64_t{2147483648}, std::int64_t{1} << 62}) {
    CAPTURE(id);
    CHECK(peak({{"model", {{"vocab", {{"c", id}}}}}}) < 65536);
    CHECK(peak({{"added_tokens", {{{"id", id}, {"content", "<t>"}}}}}) < 65536);
    check_change("", Json{{"model", {{"vocab", {{"c", id}}}}}});
    check_change("", Json{{"added_tokens", {{{"id", id}, {"content", "<t>"}}}}});
    const Json processor = {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "x"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                            {"special_tokens", {{"x", {{"ids", {id}}}}}}};
    CHECK(peak({{"post_processor", processor}}) < 65536);
    check_change("", Json{{"post_processor", processor}});
  }
  // What holes may cost at most.
  const Json sparse = {{"model", {{"vocab", {{"c", 65535}}}}}};
  CHECK(refusal(small_file(sparse).dump()).empty());
  CHECK(peak(sparse) < (std::size_t{8} << 20));
}

TEST_CASE("hostile tokenizer.json: a vocabulary or merges of another kind are refused by name") {
  const auto file = [](const char* vocab, const char* merges) {
    return std::string(R"({"model":{"type":"BPE","vocab":)") + vocab + R"(,"merges":)" + merges + "}}";
  };
  CHECK(refusal(file(R"({"a":0})", "[]")).empty());
  for (const char* const vocab : {"null", "true", "1", "0.5", "\"a\""})
    check_refused("tokenizer.json.model", file(vocab, "[]"));
  check_refused("model.vocab is a list (Unigram)", file("[]", "[]"));
  check_refused("model.vocab is a list (Unigram)", file(R"([["a",-1.5]])", "[]"));
  for (const char* const id : {"null", "true", "0.5", "\"0\"", "[]", "{}", "[0]"})
    check_refused("model.vocab: the id of \"a\" is ",
                  file((R"({"a":)" + std::string(id) + "}").c_str(), "[]"));
  for (const char* const merges : {"true", "1", "\"a b\"", "{}"})
    check_refused("tokenizer.json.model.merges: expected an array", file(R"({"a":0})", merges));
  for (const char* const merge : {"null", "1", "{}", "[1,2]", "[[\"a\"],\"a\"]", "[null,\"a\"]"})
    check_refused("model.merges[0]: ", file(R"({"a":0})", ("[" + std::string(merge) + "]").c_str()));
  for (const char* const merge : {"[]", "[\"a\"]", "[\"a\",\"a\",\"a\"]"})
    check_refused("model.merges: a merge of ", file(R"({"a":0})", ("[" + std::string(merge) + "]").c_str()));
  check_refused("which the vocabulary lacks", file(R"({"a":0})", R"(["a a"])"));
  check_refused("which the vocabulary lacks", file(R"({"a":0,"aa":1})", R"(["a b"])"));
  check_refused("tokens 0 and 1 have the same text \"a\"", file(R"({"a":0,"\u0061":1})", "[]"));
}

TEST_CASE("hostile tokenizer.json: expressions that would explode are refused, at the latest by the text") {
  const auto splitter = [](const std::string& regex) {
    return small_file({{"pre_tokenizer",
                        {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}}}})
        .dump();
  };
  std::string nested = "a", repeated = "a";
  for (int i = 0; i < 3000; ++i) nested = "(" + nested + ")";
  for (int i = 0; i < 10; ++i) repeated = "(?:" + repeated + "){1000}";
  check_refused("regular expression", splitter(repeated));
  for (const std::string& regex :
       {nested, std::string("(?:a{1,1000}){1,60}"), std::string("(a|aa)+$"), std::string("(a*)*b"),
        std::string("(?:(?:(?:a?){50}){50})*b"),
        std::string("(x+x+)+y|(.*)(.*)(.*)(.*)(.*)[^\\0-\\x{10FFFF}]"), std::string("(?=(a+))a*b\\1"),
        std::string("(?<=a)(?<!b)(?:a|b|ab)*c"), std::string("[^\\s\\S]|(?:){1000}")}) {
    CAPTURE(regex.substr(0, 100));
    const std::string file = splitter(regex);
    std::size_t n_refused = 0;
    const std::size_t peak = peak_heap([&] {
      try {
        const Tokenizer tokenizer(read_tokenizer_json(file));
        tokenizer.encode(std::string(20000, 'a'));
      } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::kUnsupported);
        ++n_refused;
      }
    });
    CHECK(peak < (std::size_t{16} << 20));
    CHECK(n_refused <= 1);
  }
}

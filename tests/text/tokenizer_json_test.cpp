// SPDX-License-Identifier: MIT
#include "golden_files.hpp"

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/tokenizer.hpp>
#include <kvdecode/text/tokenizer_json.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

using namespace kvdecode_test;
using kvdecode::apply_tokenizer_config;
using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::read_tokenizer_json;
using kvdecode::TokenId;
using kvdecode::Tokenizer;
using kvdecode::TokenizerSpec;
using Json = nlohmann::json;

namespace kvdecode_test {

// Reads and uses a file that may be anything; true if it was accepted. Only an Error may come out.
inline bool survives(std::string_view file) {
  try {
    const Tokenizer tokenizer(read_tokenizer_json(file));
    const std::vector<TokenId> ids = tokenizer.encode("Hello,  w\xC3\xB6rld <|im_start|> 123\n \xE4\xBD\xA0");
    tokenizer.decode(ids, {.skip_special = false});
    tokenizer.decode(std::vector<TokenId>{0, 1, -1, 480, 2147483647, -2147483647, 7});
    return true;
  } catch (const Error&) {
    return false;
  }
}

struct Failure {
  ErrorCode code = ErrorCode::kMismatch;
  std::string text = "nothing was thrown";
};

inline Failure failure_of(std::string_view file) {
  try {
    const Tokenizer tokenizer(read_tokenizer_json(file));
    return {};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
}

inline Json base_file(const std::string& name = "bl_gpt2") {
  return read_json(tokenizer_data("synthetic/" + name + "/tokenizer.json"));
}

// Calls f(value) for values all over a document; of long lists and objects only for some.
inline void for_each_value(Json& value, const std::function<void(Json&)>& f) {
  f(value);
  if (!value.is_structured()) return;
  const std::size_t stride = value.size() > 64 ? value.size() / 8 : 1;
  std::size_t i = 0;
  for (Json& element : value) {
    if (i++ % stride == 0) for_each_value(element, f);
  }
}

}  // namespace kvdecode_test

TEST_CASE("tokenizer.json: cut off anywhere, it is a bad file") {
  for (const std::string name : {"bl_gpt2", "bf_llama2", "post_template_rich"}) {
    const std::string file = read_file(tokenizer_data("synthetic/" + name + "/tokenizer.json"));
    const std::size_t end = file.find_last_of('}');
    for (std::size_t n = 0; n < end; n += 997) {
      CAPTURE(n);
      const Failure failure = failure_of(file.substr(0, n));
      CHECK(failure.code == ErrorCode::kBadFile);
      CHECK(failure.text.find("tokenizer.json: not valid JSON at byte ") == 0);
    }
    CHECK(survives(file));
  }
}

TEST_CASE("tokenizer.json: a value of another type anywhere is accepted or an Error") {
  const std::vector<Json> others = {
      nullptr,    true, -1,  3.5,           1e300,         std::uint64_t{1} << 63,
      2147483647, "",   "x", Json::array(), Json::object()};
  int n_accepted = 0;
  int n_refused = 0;
  for (const std::string name : {"bl_llama3_ignore_merges", "bf_llama2", "bl_clip", "post_template_rich",
                                 "norm_replace_regex", "bf_metaspace_first", "bpe_word_suffix"}) {
    Json file = base_file(name);
    for_each_value(file, [&](Json& value) {
      const Json before = value;
      for (const Json& other : others) {
        value = other;
        (survives(file.dump()) ? n_accepted : n_refused) += 1;
      }
      value = before;
    });
    for_each_value(file, [&](Json& value) {  // a member that is not there
      if (!value.is_object() || value.size() > 64) return;
      const Json before = value;
      for (const auto& member : before.items()) {
        value.erase(member.key());
        (survives(file.dump()) ? n_accepted : n_refused) += 1;
        value = before;
      }
    });
  }
  CHECK(n_accepted > 100);
  CHECK(n_refused > 1000);
}

TEST_CASE("tokenizer.json: flipped bytes are accepted or an Error") {
  constexpr unsigned kSeed = 3;
  CAPTURE(kSeed);
  std::mt19937 engine(kSeed);
  int n_refused = 0;
  for (const std::string name : {"bl_o200k_removed_invert", "bf_llama2"}) {
    const std::string file = read_file(tokenizer_data("synthetic/" + name + "/tokenizer.json"));
    for (int round = 0; round < 300; ++round) {
      std::string damaged = file;
      const std::size_t range = round % 2 == 0 ? damaged.size() : 3000;
      for (int k = 0; k < 1 + round % 3; ++k) damaged[engine() % range] = static_cast<char>(engine() % 256);
      if (!survives(damaged)) n_refused += 1;
    }
  }
  CHECK(n_refused > 50);
}

TEST_CASE("tokenizer.json: deep nesting is a bad file, wherever it is") {
  for (const std::string& open : {std::string("["), std::string("{\"a\":")}) {
    std::string deep;
    for (int i = 0; i < 200000; ++i) deep += open;
    CHECK(failure_of(deep).code == ErrorCode::kBadFile);
    CHECK(failure_of("{\"decoder\":" + deep).code == ErrorCode::kBadFile);
    CHECK(failure_of("{\"model\":{\"vocab\":" + deep).code != ErrorCode::kMismatch);
    CHECK(failure_of("{\"model\":{\"merges\":" + deep).code == ErrorCode::kBadFile);
  }
  Json sequence = {{"type", "NFC"}};
  for (int i = 0; i < 40; ++i) sequence = {{"type", "Sequence"}, {"normalizers", Json::array({sequence})}};
  Json file = base_file();
  file["normalizer"] = sequence;
  CHECK(failure_of(file.dump()).text == "tokenizer.json: nested deeper than 64 levels");
}

TEST_CASE("tokenizer.json: errors name what is wrong and where") {
  struct Case {
    const char* pointer;
    Json value;
    ErrorCode code;
    const char* text;
  };
  const ErrorCode bad = ErrorCode::kBadFile;
  const ErrorCode unsupported = ErrorCode::kUnsupported;
  const std::vector<Case> cases = {
      {"/model/vocab/x", -1, bad, "tokenizer.json: model.vocab: the id of \"x\" is no token id"},
      {"/model/vocab/x", 2147483648, bad, "tokenizer.json: model.vocab: the id of \"x\" is no token id"},
      {"/model/vocab/x", 0.5, bad,
       "tokenizer.json: model.vocab: the id of \"x\" is a fraction, expected an integer"},
      {"/model/vocab/x", 2147483647, bad, "an id of 2147483647"},
      {"/model/vocab/x", 3, bad, "tokenizer.json: model.vocab gives id 3 to "},
      {"/model/vocab", Json::array(), unsupported, "tokenizer.json: model.vocab is a list (Unigram)"},
      {"/model/vocab", 1, bad, "tokenizer.json.model.vocab: expected an object, got number"},
      {"/model/merges/0", "no-space", bad, "model.merges[0]: \"no-space\" is not two tokens"},
      {"/model/merges/0", "nobody here", bad, "which the vocabulary lacks"},
      {"/model/merges/0", Json::array({"a"}), bad, "model.merges: a merge of 1 tokens, expected 2"},
      {"/model/merges/0", 7, bad, "model.merges[0]: a number, expected two tokens"},
      {"/model/merges", "x", bad, "tokenizer.json.model.merges: expected an array, got string"},
      {"/model/type", "WordPiece", unsupported, "tokenizer.json.model: model WordPiece is not supported"},
      {"/model/dropout", 0.1, unsupported, "dropout"},
      {"/model/fuse_unk", 1, bad, "tokenizer.json.model.fuse_unk: expected true or false, got number"},
      {"/normalizer", {{"type", "Precompiled"}}, unsupported, "normalizer Precompiled is not supported"},
      {"/normalizer",
       {{"type", "Sequence"}, {"normalizers", {{{"type", 1}}}}},
       bad,
       "tokenizer.json.normalizer.normalizers[0].type: expected a string, got number"},
      {"/normalizer",
       {{"type", "Replace"}, {"pattern", {{"Regex", "(?<n>a)"}}}, {"content", ""}},
       unsupported,
       "regular expression \"(?<n>a)\": an unknown group option"},
      {"/pre_tokenizer", {{"type", "Magic"}}, unsupported, "pre-tokenizer Magic is not supported"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Odd"}},
       bad,
       "unknown behavior \"Odd\""},
      {"/pre_tokenizer",
       {{"type", "FixedLength"}, {"length", 0}},
       bad,
       "pre_tokenizer.length: 0 is not in 1 to"},
      {"/decoder", {{"type", "Magic"}}, unsupported, "decoder Magic is not supported"},
      {"/decoder",
       {{"type", "Strip"}, {"content", "ab"}, {"start", 1}, {"stop", 0}},
       bad,
       "decoder.content: \"ab\" is not one character"},
      {"/post_processor",
       {{"type", "BertProcessing"}, {"sep", {"x", 9999}}, {"cls", {"y", 1}}},
       bad,
       "the post-processor names token 9999"},
      {"/added_tokens/0/id", -5, bad, "tokenizer.json.added_tokens[0].id: -5 is not in 0 to"},
      {"/added_tokens/0/id", 481, bad, "tokenizer.json.added_tokens: two tokens have the same id 481"},
      {"/added_tokens/0/id", 2000000000, bad, "added_tokens: id 2000000000, expected less than"},
      {"/added_tokens/0/content", "", bad, "added_tokens[0]: an added token without content"},
      {"/added_tokens/0/content", std::string(5000, 'x'), unsupported,
       "added token 480 of 5000 bytes, at most 4096"},
  };
  for (const Case& test : cases) {
    Json file = base_file();
    file[Json::json_pointer(test.pointer)] = test.value;
    CAPTURE(test.pointer);
    CAPTURE(test.value.dump().substr(0, 200));
    const Failure failure = failure_of(file.dump());
    CHECK(failure.code == test.code);
    CHECK_MESSAGE(failure.text.find(test.text) != std::string::npos, failure.text);
  }
  CHECK(failure_of("{\"a\":1,\"a\":2}").text == "tokenizer.json: the key \"a\" twice in one object");
  CHECK(failure_of("{\"model\":{\"vocab\":{},\"vocab\":{}}}").text ==
        "tokenizer.json: model.vocab is there twice");
  CHECK(failure_of("[]").text == "tokenizer.json: expected an object, got array");
  CHECK(failure_of("{}").text == "tokenizer.json: has no \"model\"");
  CHECK(failure_of("{\"model\":{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}").text ==
        "tokenizer: tokens 0 and 1 have the same text \"a\"");
}

TEST_CASE("tokenizer.json: a file cannot ask for more text or values than it is worth") {
  Json file = base_file();
  const Json doubling = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  for (int i = 0; i < 60; ++i) file["normalizer"]["normalizers"].push_back(doubling);
  const Tokenizer tokenizer(read_tokenizer_json(file.dump()));
  CHECK_THROWS_AS(tokenizer.encode("a"), Error);
  CHECK(tokenizer.encode("b").size() == 1);
  for (int i = 0; i < 10; ++i) file["normalizer"]["normalizers"].push_back(doubling);
  CHECK(failure_of(file.dump()).text.find("a pipeline of more than 64 steps is not supported") !=
        std::string::npos);

  file = base_file();
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array()}};
  const Json letters = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  for (int i = 0; i < 40; ++i) file["pre_tokenizer"]["pretokenizers"].push_back(letters);
  CHECK_THROWS_AS(Tokenizer(read_tokenizer_json(file.dump())).encode("\xC3\xA9"), Error);

  file = base_file();
  file["decoder"] = {{"type", "Sequence"}, {"decoders", Json::array()}};
  for (int i = 0; i < 60; ++i) file["decoder"]["decoders"].push_back(doubling);
  CHECK_THROWS_AS(Tokenizer(read_tokenizer_json(file.dump())).decode(std::vector<TokenId>{64, 64}), Error);

  std::string many = "{\"x\":[";
  for (int i = 0; i < 1100000; ++i) many += "0,";
  CHECK(failure_of(many + "0]}").text.find("more than 1048576 values") != std::string::npos);
}

TEST_CASE("tokenizer.json: truncation and padding are left to the caller") {
  Json file = base_file();
  const std::vector<TokenId> ids =
      Tokenizer(read_tokenizer_json(file.dump())).encode("A text of some length.");
  file["truncation"] = {
      {"direction", "Right"}, {"max_length", 2}, {"strategy", "LongestFirst"}, {"stride", 0}};
  file["padding"] = {{"strategy", {{"Fixed", 100}}}, {"direction", "Left"}, {"pad_id", 480}};
  CHECK(Tokenizer(read_tokenizer_json(file.dump())).encode("A text of some length.") == ids);
}

TEST_CASE("tokenizer.json: files of before the model had a type are read") {
  Json file = base_file();
  const std::vector<TokenId> ids = Tokenizer(read_tokenizer_json(file.dump())).encode("the old ways");
  file["model"].erase("type");
  CHECK(Tokenizer(read_tokenizer_json(file.dump())).encode("the old ways") == ids);
}

TEST_CASE(
    "tokenizer.json: start and end of text come from the post-processor, or from tokenizer_config.json") {
  TokenizerSpec spec = read_tokenizer_json(base_file("bl_roberta").dump());
  CHECK(spec.bos_id == 0);
  CHECK(spec.eos_id == 2);
  CHECK(Tokenizer(spec).adds_bos());
  apply_tokenizer_config(
      spec, R"({"bos_token": {"content": "<pad>"}, "eos_token": "</s>", "add_bos_token": true})");
  CHECK(spec.bos_id == 1);
  CHECK(spec.eos_id == 2);
  CHECK_FALSE(Tokenizer(spec).adds_bos());

  spec = read_tokenizer_json(base_file().dump());
  CHECK_FALSE(spec.bos_id.has_value());
  apply_tokenizer_config(spec, R"({"bos_token": null, "eos_token": "<|endoftext|>"})");
  CHECK_FALSE(spec.bos_id.has_value());
  CHECK(spec.eos_id == 480);
  CHECK_THROWS_AS(apply_tokenizer_config(spec, R"({"eos_token": "nobody"})"), Error);
  CHECK_THROWS_AS(apply_tokenizer_config(spec, R"({"eos_token": 5})"), Error);
  CHECK_THROWS_AS(apply_tokenizer_config(spec, R"([])"), Error);
  CHECK_THROWS_AS(apply_tokenizer_config(spec, R"({"eos_token": )"), Error);
}

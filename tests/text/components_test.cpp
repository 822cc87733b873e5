// SPDX-License-Identifier: MIT
// Single normalizers, pre-tokenizers and decoders against the reference's answers.
#include "golden_files.hpp"

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/detail/normalizer.hpp>
#include <kvdecode/text/detail/pre_tokenizer.hpp>
#include <kvdecode/text/detail/token_decoder.hpp>
#include <kvdecode/text/tokenizer_json.hpp>

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

using namespace kvdecode_test;
using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::detail::JsonView;
using kvdecode::detail::TokenizerJsonReader;
using Json = nlohmann::json;

namespace kvdecode_test {

inline std::map<std::string, std::string> component_texts() {
  std::map<std::string, std::string> texts;
  for (const Json& record : read_json(tokenizer_data("components/texts.json"))) {
    texts[record.at("name").get<std::string>()] = record.at("text").get<std::string>();
  }
  return texts;
}

// Characters that the reference's tables, from another version of Unicode, class differently.
inline bool is_known_difference(const Json& config, const std::string& text_name) {
  if (config.at("type") == "UnicodeScripts") return text_name == "random_04";  // U+1FA01 has no script there
  if (!config.contains("pattern") || !config.at("pattern").contains("Regex")) return false;
  return config.at("pattern").at("Regex") == "[[:alpha:]]+|[[:punct:]]+" && text_name == "zalgo";  // U+036B
}

}  // namespace kvdecode_test

TEST_CASE("normalizers: every config gives the reference's text, or is refused by name") {
  const auto texts = component_texts();
  std::set<std::string> refused;
  for (const Json& record : read_json(tokenizer_data("components/normalizers.json"))) {
    const Json& config = record.at("config");
    const std::string type = config.at("type").get<std::string>();
    CAPTURE(config.dump().substr(0, 300));
    kvdecode::detail::Normalizer normalizer;
    try {
      normalizer =
          kvdecode::detail::Normalizer(TokenizerJsonReader::read_normalizer(JsonView(config, "config")));
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kUnsupported);
      refused.insert(type);
      continue;
    }
    CHECK_FALSE(record.contains("load_error"));
    kvdecode::detail::RegexScratch scratch;
    for (const Json& test : record.at("cases")) {
      const std::string name = test[0].get<std::string>();
      CAPTURE(name);
      std::string text = texts.at(name);
      normalizer.apply(text, scratch);
      CHECK(text == test[1].get<std::string>());
    }
  }
  CHECK(refused == std::set<std::string>{"Precompiled"});
}

TEST_CASE("pre-tokenizers: every config gives the reference's pieces, or is refused by name") {
  const auto texts = component_texts();
  std::set<std::string> refused;
  for (const Json& record : read_json(tokenizer_data("components/pre_tokenizers.json"))) {
    const Json& config = record.at("config");
    CAPTURE(config.dump().substr(0, 300));
    kvdecode::detail::PreTokenizer pre_tokenizer;
    try {
      pre_tokenizer =
          kvdecode::detail::PreTokenizer(TokenizerJsonReader::read_pre_tokenizer(JsonView(config, "config")));
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kUnsupported);
      refused.insert(config.at("pattern").at("Regex").get<std::string>());
      continue;
    }
    CHECK_FALSE(record.contains("load_error"));
    if (record.contains("load_error")) continue;
    kvdecode::detail::RegexScratch scratch;
    for (const Json& test : record.at("cases")) {
      const std::string name = test[0].get<std::string>();
      if (test[1].is_null() || is_known_difference(config, name)) continue;
      CAPTURE(name);
      kvdecode::detail::PieceList list;
      list.text = texts.at(name);
      list.begins_at_start = true;
      pre_tokenizer.apply(list, scratch);
      std::vector<std::string> pieces;
      for (const auto& piece : list.pieces) {
        pieces.push_back(list.text.substr(piece.begin, piece.end - piece.begin));
      }
      std::vector<std::string> expected = test[1].get<std::vector<std::string>>();
      std::erase(expected, std::string());  // no token comes from an empty piece
      CHECK(Json(pieces).dump() == Json(expected).dump());
    }
  }
  CHECK(refused == std::set<std::string>{"(?s:.)", "\\p{Script=Cyrillic}+|\\p{Greek}+", "\\X"});
}

TEST_CASE("decoders: every config gives the reference's text") {
  for (const Json& record : read_json(tokenizer_data("components/decoders.json"))) {
    const Json& config = record.at("config");
    CAPTURE(config.dump());
    const kvdecode::detail::TokenDecoder decoder(
        TokenizerJsonReader::read_decoder(JsonView(config, "config")));
    for (const Json& test : record.at("cases")) {
      CAPTURE(test[0].dump());
      kvdecode::detail::TokenDecodeState decoding(decoder);
      std::string text;
      for (const Json& token : test[0]) decoding.push(decoder, token.get<std::string>(), text);
      decoding.finish(decoder, text);
      if (!test[1].is_null()) CHECK(text == test[1].get<std::string>());
    }
  }
}

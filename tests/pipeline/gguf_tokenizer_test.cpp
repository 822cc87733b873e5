// SPDX-License-Identifier: MIT
// Tokenizers from GGUF metadata, written in memory: the small vocabularies of tests/data/tokenizers against the
// reference's vectors, and what files may do wrong.
#include <kvdecode/pipeline/gguf_tokenizer.hpp>

#include <kvdecode/io/gguf.hpp>
#include <kvdecode/text.hpp>

#include <doctest/doctest.h>
#include <io/gguf_support.hpp>
#include <nlohmann/json.hpp>
#include <text/golden_files.hpp>
#include <text/golden_vectors.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace kvdecode_test;
using kvdecode::TokenId;
using kvdecode::Tokenizer;
using kvdecode::TokenizerSpec;

namespace {

using Texts = std::vector<std::string>;

constexpr std::int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

/// The keys of a tokenizer; what is not set is not written.
struct Fields {
  std::optional<std::string> model = "gpt2";
  std::optional<std::string> pre = {};
  std::optional<Texts> tokens = {};
  std::optional<std::vector<std::int32_t>> types = {};
  std::optional<std::vector<float>> scores = {};
  std::optional<Texts> merges = {};
  std::function<void(io_test::GgufWriter&)> more = {};
};

TokenizerSpec read(const Fields& fields) {
  io_test::GgufWriter writer;
  if (fields.model) writer.value("tokenizer.ggml.model", *fields.model);
  if (fields.pre) writer.value("tokenizer.ggml.pre", *fields.pre);
  if (fields.tokens) writer.array("tokenizer.ggml.tokens", *fields.tokens);
  if (fields.types) writer.array("tokenizer.ggml.token_type", *fields.types);
  if (fields.scores) writer.array("tokenizer.ggml.scores", *fields.scores);
  if (fields.merges) writer.array("tokenizer.ggml.merges", *fields.merges);
  if (fields.more) fields.more(writer);
  const std::string bytes = writer.bytes();
  const kvdecode::GgufFile file(std::as_bytes(std::span(bytes)), nullptr, "x.gguf");
  return kvdecode::read_gguf_tokenizer(file.metadata());
}

/// A vocabulary of the letters a to d, their byte tokens and a few words.
Fields small_scored() {
  Fields fields{.model = "llama"};
  fields.tokens = {"<unk>", "<s>", "</s>",     "<0x0A>",   "\u2581", "a",
                   "b",     "ab",  "\u2581ab", "<|tool|>", "hole"};
  fields.types = {kUnknown, kControl, kControl, kByte,        kNormal, kNormal,
                  kNormal,  kNormal,  kNormal,  kUserDefined, kUnused};
  fields.scores = {0, 0, 0, 0, -4, -5, -6, -1, -2, 0, 0};
  return fields;
}
Fields small_byte_level() {
  Fields fields{.pre = "gpt-2"};
  fields.tokens = {"<|endoftext|>", "a", "b", "ab", "Ġ", "õ", "Ã", "µ", "hole"};
  fields.types = {kControl, kNormal, kNormal, kNormal, kNormal, kUserDefined, kNormal, kNormal, kUnused};
  fields.merges = {"a b"};
  return fields;
}

std::string text_of(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += "[" + piece + "]";
  return text;
}

std::string message_of(const Fields& fields) {
  try {
    read(fields);
  } catch (const kvdecode::Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "";
}

// The keys that a file of this tokenizer.json would have, from the JSON alone.
Fields fields_of(const Json& json, const std::string& pre) {
  const Json& model = json.at("model");
  const bool is_byte_level = !pre.empty();
  Fields fields{.model = is_byte_level ? "gpt2" : "llama"};
  std::size_t n_tokens = model.at("vocab").size();
  for (const Json& token : json.at("added_tokens"))
    n_tokens = std::max(n_tokens, token.at("id").get<std::size_t>() + 1);
  fields.tokens.emplace(n_tokens);
  fields.types.emplace(n_tokens, kUnused);
  for (const auto& [text, id] : model.at("vocab").items()) {
    fields.tokens->at(id.get<std::size_t>()) = text;
    fields.types->at(id.get<std::size_t>()) = !is_byte_level && text.starts_with("<0x") ? kByte : kNormal;
  }
  for (const Json& token : json.at("added_tokens")) {
    const auto id = token.at("id").get<std::size_t>();
    fields.tokens->at(id) = token.at("content").get<std::string>();
    fields.types->at(id) = token.at("special").get<bool>() ? kControl : kUserDefined;
  }
  const std::vector<Json> merges = model.at("merges").get<std::vector<Json>>();
  if (is_byte_level) {
    fields.pre = pre;
    fields.merges.emplace();
    for (const Json& merge : merges)
      fields.merges->push_back(merge.is_string()
                                   ? merge.get<std::string>()
                                   : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  } else {
    fields.scores.emplace(n_tokens, -1e9f);
    float rank = 0;
    for (const Json& merge : merges) {
      std::string text = merge.is_string() ? merge.get<std::string>()
                                           : merge[0].get<std::string>() + merge[1].get<std::string>();
      if (merge.is_string()) text.erase(text.find(' '), 1);
      fields.scores->at(model.at("vocab").at(text).get<std::size_t>()) = -(++rank);
    }
  }
  return fields;
}

/// @param pre  the name of the pre-tokenizer, empty for a vocabulary with byte fallback
void check_golden(const std::string& name, const std::string& pre,
                  const std::function<void(io_test::GgufWriter&)>& more) {
  CAPTURE(name);
  const std::string folder = tokenizer_data("synthetic/" + name);
  Fields fields = fields_of(read_json(folder + "/tokenizer.json"), pre);
  fields.more = more;
  const Tokenizer tokenizer(read(fields));
  check_vectors(tokenizer, folder);
  check_streams(tokenizer, folder);
}

std::string pieces_of(const std::string& pre, const std::string& text) {
  const kvdecode::GgufPreTokenizer* const found = kvdecode::find_gguf_pre_tokenizer(pre);
  REQUIRE(found != nullptr);
  std::vector<kvdecode::PreTokenizerStep> steps = found->steps();
  REQUIRE(steps.size() > 0);
  kvdecode::detail::RegexScratch scratch;
  kvdecode::detail::PieceList list;
  list.text = text;
  kvdecode::detail::PreTokenizer(steps).apply(list, scratch);
  Texts pieces;
  for (const auto& range : list.pieces) {
    pieces.emplace_back();
    kvdecode::detail::append_letter_bytes(pieces.back(),
                                          list.text.substr(range.begin, range.end - range.begin));
  }
  return text_of(pieces);
}

}  // namespace

TEST_CASE("gguf_tokenizer: byte-level vocabularies give the reference's ids and texts") {
  const auto nothing = [](io_test::GgufWriter&) {};
  const auto bos = [](TokenId id) {
    return [id](io_test::GgufWriter& writer) {
      writer.value("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(id));
    };
  };
  check_golden("bl_gpt2", "gpt-2", nothing);
  check_golden("bl_missing_bytes_dropped", "gpt-2", nothing);
  check_golden("bl_deepseek", "deepseek-v3", nothing);
  check_golden("bl_falcon", "falcon", nothing);
  check_golden("bl_llama3_ignore_merges", "llama-bpe", bos(489));  // adds it unless told not to
  check_golden("bl_command_r_digits_nfc", "command-r", [&](io_test::GgufWriter& writer) {
    bos(480)(writer);
    writer.value("tokenizer.ggml.add_bos_token", true);
  });
}

TEST_CASE("gguf_tokenizer: vocabularies with byte fallback give the reference's ids and texts") {
  check_golden("bf_llama2", "", {});  // ids, space and start of the text as they always were
  check_golden("bf_missing_byte_tokens", "", {});
  check_golden("bf_gemma", "", [](io_test::GgufWriter& writer) {
    writer.value("tokenizer.ggml.bos_token_id", std::uint32_t{1});
    writer.value("tokenizer.ggml.eos_token_id", std::uint32_t{2});
    writer.value("tokenizer.ggml.unknown_token_id", std::uint32_t{0});
    writer.value("tokenizer.ggml.add_space_prefix", false);
  });
}

TEST_CASE("gguf_tokenizer: each pre-tokenizer divides as the model's own does") {
  const std::string text = "It'S  12345 km, `!?\n\n  \u9ED2 \u0391\u03C3 e\u0301a ";
  const std::string gpt2 =
      "[It]['][S][ ][ 12345][ km][,][ `!?][\n\n ][ \u9ED2][ \u0391\u03C3][ e][\u0301][a][ ]";
  const std::string digits =
      "[It]['][S][  ][1][2][3][4][5][ km][,][ `!?][\n\n ][ \u9ED2][ \u0391\u03C3][ e][\u0301][a][ ]";
  const std::string llama3 =
      "[It]['S][ ][ ][123][45][ km][,][ `!?\n\n][ ][ \u9ED2][ \u0391\u03C3][ e][\u0301a][ ]";
  const std::string qwen2 =
      "[It]['S][ ][ ][1][2][3][4][5][ km][,][ `!?\n\n][ ][ \u9ED2][ \u0391\u03C3][ e][\u0301a][ ]";
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"command-r", digits},
      {"dbrx", llama3},
      {"deepseek-coder",
       "[It]['][S][  ][1][2][3][4][5][ km][,][ `][!?][\n][\n][ ][ ][\u9ED2][ \u0391\u03C3][ e][\u0301][a][ "
       "]"},
      {"deepseek-llm",
       "[It]['][S][  ][1][2][3][4][5][ km][,][ `!?][\n][\n][  ][\u9ED2][ \u0391\u03C3][ e][\u0301][a][ ]"},
      {"deepseek-r1-qwen", qwen2},
      {"deepseek-v3", "[It]['S][  ][123][45][ km][,][ `!?\n\n][  ][\u9ED2][ \u0391\u03C3][ e\u0301a][ ]"},
      {"default",
       "[It]['][S][ ][ ][123][45][ km][,][ `][!?][\n\n ][ \u9ED2][ \u0391\u03C3][ e][\u0301][a][ ]"},
      {"falcon",
       "[It]['][S][ ][ ][123][45][ km][,][ ][`!?][\n\n ][ \u9ED2][ \u0391\u03C3][ e][\u0301][a][ ]"},
      {"gpt-2", gpt2},
      {"llama-bpe", llama3},
      {"llama-v3", llama3},
      {"llama3", llama3},
      {"mpt", gpt2},
      {"olmo", gpt2},
      {"phi-2", gpt2},
      {"qwen2", qwen2},
      {"qwen35", "[It]['S][ ][ ][1][2][3][4][5][ km][,][ `!?\n\n][ ][ \u9ED2][ \u0391\u03C3][ e\u0301a][ ]"},
      {"refact", digits},
      {"smaug-bpe", llama3},
      {"smollm", digits},
      {"starcoder", digits},
  };
  for (const auto& each : expected) {
    CAPTURE(each.first);
    CHECK(pieces_of(each.first, text) == each.second);
  }
  CHECK(expected.size() == std::size(kvdecode::kGgufPreTokenizers));
}

TEST_CASE("gguf_tokenizer: deepseek-llm knows the letters and symbols of its lists, and no others") {
  // Armenian capitals are letters, small ones are not; ASCII letters are symbols too, and those from U+0800 on
  // go with the ideographs.
  CHECK(pieces_of("deepseek-llm", "\u0531\u00E0\u0561 \u01C5\u00BA") ==
        "[\u0531\u00E0][\u0561][ \u01C5][\u00BA]");
  CHECK(pieces_of("deepseek-llm", "x\u0531") == "[x][\u0531]");
  CHECK(pieces_of("deepseek-llm", "\u0531\uFF01\u3002\u201C!") == "[\u0531][\uFF01][\u3002\u201C][!]");
  CHECK(pieces_of("deepseek-llm", "\u4E00\u0905\uD55C\u00BD\U0001F600") ==
        "[\u4E00\u0905\uD55C][\u00BD][\U0001F600]");
}

TEST_CASE("gguf_tokenizer: falcon looks for numbers among the letters of bytes") {
  CHECK(pieces_of("falcon", "\u03B2") == "[\xCE][\xB2]");  // the letters of which are a letter and a number
  CHECK(pieces_of("default", "\u03B2") == "[\u03B2]");
}

TEST_CASE("gguf_tokenizer: normal forms are those of the models' own tokenizers") {
  for (const kvdecode::GgufPreTokenizer& pre : kvdecode::kGgufPreTokenizers) {
    CAPTURE(pre.name);
    Fields fields = small_byte_level();
    fields.pre = pre.name;
    fields.more = [](io_test::GgufWriter& writer) {
      writer.value("tokenizer.ggml.bos_token_id", std::uint32_t{0});
      writer.value("tokenizer.ggml.add_bos_token", false);
    };
    const Tokenizer tokenizer(read(fields));
    const bool is_nfc = pre.name == "command-r" || pre.name == "deepseek-r1-qwen" || pre.name == "mpt" ||
                        pre.name == "olmo" || pre.name == "qwen2" || pre.name == "qwen35";
    // Composed, the letter has two bytes that are tokens; apart, nothing is.
    CHECK(tokenizer.encode("o\u0303") == (is_nfc ? Ids{6, 7} : Ids{}));
  }
}

TEST_CASE("gguf_tokenizer: a file may say whether marks and a space stand around a text") {
  const auto encode = [](const std::function<void(io_test::GgufWriter&)>& more) {
    Fields fields = small_scored();
    fields.more = more;
    return to_text(Tokenizer(read(fields)).encode("ab"));
  };
  CHECK(encode({}) == "1 8 ");
  CHECK(encode([](auto& writer) { writer.value("tokenizer.ggml.add_bos_token", false); }) == "8 ");
  CHECK(encode([](auto& writer) { writer.value("tokenizer.ggml.add_eos_token", true); }) == "1 8 2 ");
  CHECK(encode([](auto& writer) { writer.value("tokenizer.ggml.add_space_prefix", false); }) == "1 7 ");
  CHECK(encode([](auto& writer) {
          writer.value("tokenizer.ggml.add_eos_token", true);
          writer.value("tokenizer.ggml.bos_token_id", std::uint32_t{2});
          writer.value("tokenizer.ggml.eos_token_id", std::int64_t{1});
        }) == "2 8 1 ");
  const Tokenizer tokenizer(read(small_scored()));
  CHECK(tokenizer.bos_id() == 1);
  CHECK(tokenizer.eos_id() == 2);
  CHECK(tokenizer.adds_bos());
  CHECK(tokenizer.decode(tokenizer.encode("ab")) == "ab");
  CHECK_FALSE(Tokenizer(read(small_byte_level())).bos_id().has_value());
  CHECK_FALSE(Tokenizer(read(small_byte_level())).adds_bos());
}

TEST_CASE("gguf_tokenizer: types say what is found in a text and what is special") {
  const Tokenizer tokenizer(read(small_scored()));
  CHECK(tokenizer.vocab_size() == 11);
  CHECK(to_text(tokenizer.encode("a<|tool|>b</s>", {.add_special_tokens = false})) == "4 5 9 4 6 2 ");
  // As text, marks are made by no merge either: what is no token is unknown.
  CHECK(to_text(tokenizer.encode("<|tool|></s>", {.add_special_tokens = false, .special_as_text = true})) ==
        "9 4 0 ");
  CHECK(tokenizer.is_special(0));
  CHECK(tokenizer.is_special(1));
  CHECK_FALSE(tokenizer.is_special(9));
  CHECK(tokenizer.decode(Ids{1, 5, 9, 2}) == "a<|tool|>");
  CHECK(tokenizer.decode(Ids{1, 5, 9, 2}, {.skip_special = false}) == "<s>a<|tool|></s>");
  CHECK(tokenizer.encode("a\n", {.add_special_tokens = false}) == Ids{4, 5, 3});
  CHECK(tokenizer.piece(10).empty());  // not used
  CHECK_FALSE(tokenizer.id_of("hole").has_value());
}

TEST_CASE("gguf_tokenizer: without types all tokens are text, but for empty ones, which are none") {
  Fields fields = small_byte_level();
  fields.types.reset();
  fields.tokens->at(8) = "";
  fields.tokens->push_back("");
  const Tokenizer tokenizer(read(fields));
  CHECK(tokenizer.vocab_size() == 10);
  CHECK_FALSE(tokenizer.is_special(0));
  CHECK(tokenizer.decode(Ids{3, 8, 9, 1}) == "aba");
  CHECK(tokenizer.encode("\u00F5") == Ids{6, 7});  // the letters of its bytes
}

TEST_CASE("gguf_tokenizer: beside a byte-level vocabulary tokens decode to their own text") {
  const Tokenizer tokenizer(read(small_byte_level()));
  CHECK(tokenizer.encode("a\u00F5b") == Ids{1, 5, 2});
  CHECK(tokenizer.decode(Ids{1, 5, 2}) == "a\u00F5b");
  CHECK(tokenizer.decode(Ids{6, 7}) == "\u00F5");  // its two bytes
  kvdecode::StreamingDetokenizer stream(tokenizer);
  CHECK(stream.push(6) == "");
  CHECK(stream.push(5) == "\uFFFD\u00F5");
  CHECK(stream.flush() == "");
}

TEST_CASE("gguf_tokenizer: marks of Phi-3 take the white space behind them") {
  const auto encode = [](const char* name) {
    Fields fields = small_scored();
    fields.more = [name](io_test::GgufWriter& writer) { writer.value("general.name", name); };
    return to_text(Tokenizer(read(fields)).encode("<|tool|>\n <s>\nab", {.add_special_tokens = false}));
  };
  CHECK(encode("Phi3") == "9 1 4 3 7 ");
  CHECK(encode("My-PHI-3-mini") == "9 1 4 3 7 ");
  CHECK(encode("Phi-2") == "9 4 3 4 1 4 3 7 ");
}

TEST_CASE("gguf_tokenizer: tokens that end a turn are known by their names") {
  Fields fields = small_byte_level();
  fields.tokens = {"<|endoftext|>", "a", "b", "ab", "<|im_end|>", "<|eot_id|>", "<|im_start|>",
                   "<end_of_turn>"};
  fields.types = {kControl, kNormal, kNormal, kNormal, kUserDefined, kNormal, kControl, kUnused};
  CHECK(kvdecode::find_end_of_turn_tokens(read(fields)) == Ids{0, 4});
}

TEST_CASE("gguf_tokenizer: kinds that are not served are refused by name") {
  for (const std::string model : {"bert", "t5", "rwkv", "plamo2", "gemma4", "x"}) {
    Fields fields = small_byte_level();
    fields.model = model;
    CHECK(message_of(fields) == "Unsupported: x.gguf: tokenizer.ggml.model: \"" + model +
                                    "\" is not supported (supported: gpt2, llama)");
  }
  Fields fields = small_byte_level();
  fields.model = "none";
  CHECK(message_of(fields) == "Unsupported: x.gguf: has no tokenizer (tokenizer.ggml.model is \"none\")");
  fields.model.reset();
  CHECK(message_of(fields) == "Unsupported: x.gguf: has no tokenizer (tokenizer.ggml.model is missing)");
  for (const std::string pre : {"tekken", "gpt-4o", "chatglm-bpe", "", "gpt"}) {
    fields = small_byte_level();
    fields.pre = pre;
    CHECK(message_of(fields).find("Unsupported: x.gguf: tokenizer.ggml.pre: \"" + pre +
                                  "\" is not supported (supported: command-r, ") == 0);
  }
  fields = small_scored();  // has no use for it
  fields.pre = "tekken";
  CHECK(message_of(fields) == "");
}

TEST_CASE("gguf_tokenizer: a key that would change the result is refused by name") {
  const auto message = [](const Fields& small, const std::function<void(io_test::GgufWriter&)>& more) {
    Fields fields = small;
    fields.more = more;
    return message_of(fields);
  };
  for (const Fields& small : {small_scored(), small_byte_level()}) {
    CHECK(message(small, [](auto& writer) { writer.value("tokenizer.ggml.new_key", true); }) ==
          "Unsupported: x.gguf: the key \"tokenizer.ggml.new_key\" is not known and might change the result");
    CHECK(message(small, [](auto& writer) {
            writer.value("tokenizer.ggml.remove_extra_whitespaces", true);
          }) == "Unsupported: x.gguf: tokenizer.ggml.remove_extra_whitespaces: true is not supported");
    CHECK(message(small,
                  [](auto& writer) {
                    writer.array("tokenizer.ggml.precompiled_charsmap", std::vector<std::uint8_t>{1});
                  }) ==
          "Unsupported: x.gguf: tokenizer.ggml.precompiled_charsmap: a map of characters is not supported");
    CHECK(message(small, [](auto& writer) {
            writer.value("tokenizer.ggml.remove_extra_whitespaces", false);
            writer.value("tokenizer.ggml.add_sep_token", true);
            writer.value("tokenizer.ggml.padding_token_id", std::uint32_t{100});  // used for nothing
            writer.value("tokenizer.chat_template", "{{ messages }}");
            writer.value("tokenizer.huggingface.json", "{}");
          }) == "");
  }
  CHECK(message(small_byte_level(), [](auto& writer) {
          writer.value("tokenizer.ggml.add_space_prefix", true);
        }) == "Unsupported: x.gguf: tokenizer.ggml.add_space_prefix: true is not supported for gpt2");
  CHECK(message(small_byte_level(),
                [](auto& writer) { writer.value("tokenizer.ggml.add_space_prefix", false); }) == "");
}

TEST_CASE("gguf_tokenizer: metadata that contradicts the format or itself is an error that names the key") {
  const auto scored = [](const std::function<void(Fields&)>& spoil) {
    Fields fields = small_scored();
    spoil(fields);
    return message_of(fields);
  };
  const auto byte_level = [](const std::function<void(Fields&)>& spoil) {
    Fields fields = small_byte_level();
    spoil(fields);
    return message_of(fields);
  };
  const auto with = [](const char* key, auto value) {
    Fields fields = small_scored();
    fields.more = [key, value](io_test::GgufWriter& writer) { writer.value(key, value); };
    return message_of(fields);
  };
  const std::string prefix = "BadFile: x.gguf: tokenizer.ggml.";
  CHECK(scored([](Fields&) {}) == "");
  CHECK(byte_level([](Fields&) {}) == "");

  // Missing keys and wrong types.
  CHECK(scored([](Fields& f) { f.tokens.reset(); }) == prefix + "tokens is missing");
  CHECK(scored([](Fields& f) { f.scores.reset(); }) == prefix + "scores is missing");
  CHECK(byte_level([](Fields& f) { f.merges.reset(); }) == prefix + "merges is missing");
  CHECK(byte_level([](Fields& f) { f.pre.reset(); }) == prefix + "pre is missing");
  CHECK(byte_level([](Fields& f) {
          f.model.reset();
          f.more = [](auto& writer) { writer.value("tokenizer.ggml.model", true); };
        }) == prefix + "model must be a string, got true");
  CHECK(byte_level([](Fields& f) {
          f.tokens.reset();
          f.more = [](auto& writer) { writer.value("tokenizer.ggml.tokens", "a"); };
        }) == prefix + "tokens must be an array of strings, got \"a\"");
  CHECK(byte_level([](Fields& f) {
          f.types.reset();
          f.more = [](auto& writer) {
            writer.array("tokenizer.ggml.token_type", std::vector<float>(9, 1.0f));
          };
        }) == prefix + "token_type must be an array of integers, got an array of 9 of type float32");
  CHECK(scored([](Fields& f) {
          f.scores.reset();
          f.more = [](auto& writer) { writer.array("tokenizer.ggml.scores", Texts(11, "0")); };
        }) == prefix + "scores must be an array of numbers, got an array of 11 of type string");
  CHECK(byte_level([](Fields& f) {
          f.merges.reset();
          f.more = [](auto& writer) {
            writer.array("tokenizer.ggml.merges", std::vector<std::int32_t>{1, 2});
          };
        }) == prefix + "merges must be an array of strings, got an array of 2 of type int32");
  CHECK(with("tokenizer.ggml.add_bos_token", std::uint8_t{1}) ==
        prefix + "add_bos_token must be true or false, got 1");
  CHECK(with("tokenizer.ggml.add_space_prefix", "no") ==
        prefix + "add_space_prefix must be true or false, got \"no\"");
  CHECK(with("tokenizer.ggml.bos_token_id", "<s>") ==
        prefix + "bos_token_id must be an integer, got \"<s>\"");

  // Lengths that differ.
  CHECK(scored([](Fields& f) { f.types->pop_back(); }) == prefix + "token_type: 10 elements for 11 tokens");
  CHECK(scored([](Fields& f) { f.scores->push_back(0); }) == prefix + "scores: 12 elements for 11 tokens");
  CHECK(scored([](Fields& f) { f.tokens->clear(); }) ==
        prefix + "tokens: 0 tokens, expected 1 to 2147483647");

  // Values that are none.
  CHECK(scored([](Fields& f) { f.types->at(5) = 0; }) ==
        prefix + "token_type: token 5 has type 0, expected 1 to 6");
  CHECK(scored([](Fields& f) { f.types->at(5) = 7; }) ==
        prefix + "token_type: token 5 has type 7, expected 1 to 6");
  CHECK(scored([](Fields& f) { f.types->at(5) = kByte; }) ==
        prefix + "token_type: token 5, \"a\", is no byte of this vocabulary");
  CHECK(scored([](Fields& f) { f.tokens->at(3) = "<0x0a>"; }) ==
        prefix + "token_type: token 3, \"<0x0a>\", is no byte of this vocabulary");
  CHECK(byte_level([](Fields& f) {
          f.tokens->at(1) = "<0x0A>";
          f.types->at(1) = kByte;
        }) == prefix + "token_type: token 1, \"<0x0A>\", is no byte of this vocabulary");
  CHECK(scored([](Fields& f) {
          f.scores->at(5) = std::numeric_limits<float>::quiet_NaN();
        }).find(prefix + "scores: token 5 has the score ") == 0);
  CHECK(scored([](Fields& f) {
          f.scores->at(5) = -std::numeric_limits<float>::infinity();
        }).find(prefix + "scores: token 5 has the score ") == 0);
  CHECK(scored([](Fields& f) {
          f.scores.reset();
          f.more = [](auto& writer) {
            writer.array("tokenizer.ggml.scores", std::vector<double>(11, 1e300));
          };
        }) == prefix + "scores: token 0 has the score 1e+300, expected a finite number");
  CHECK(scored([](Fields& f) { f.tokens->at(5) = "\xC3"; }) ==
        prefix + "tokens: token 5, \"\\xc3\", is not valid UTF-8");

  // Tokens twice, ids beyond, merges of nothing.
  CHECK(scored([](Fields& f) { f.tokens->at(6) = "a"; }) == prefix + "tokens: tokens 5 and 6 are both \"a\"");
  CHECK(with("tokenizer.ggml.bos_token_id", std::uint32_t{11}) ==
        prefix + "bos_token_id: 11 is not a token, there are 11");
  CHECK(with("tokenizer.ggml.eos_token_id", std::int32_t{-1}) ==
        prefix + "eos_token_id: -1 is not a token, there are 11");
  CHECK(with("tokenizer.ggml.unknown_token_id", std::uint32_t{10}) ==
        prefix + "unknown_token_id: 10 is a token that is not used");
  CHECK(byte_level([](Fields& f) {
          f.more = [](auto& writer) { writer.value("tokenizer.ggml.add_bos_token", true); };
        }) == prefix + "bos_token_id: is missing, but each text is to begin with it");
  CHECK(byte_level([](Fields& f) {
          f.more = [](auto& writer) { writer.value("tokenizer.ggml.add_eos_token", true); };
        }) == prefix + "eos_token_id: is missing, but each text is to end with it");
  for (const std::string merge : {"ab", " ab", "ab ", "a b a", ""}) {
    CHECK(byte_level([&](Fields& f) {
            f.merges = {"a b", merge};
          }) == prefix + "merges: merge 1, \"" + merge + "\", is not two tokens with a space between them");
  }
  CHECK(byte_level([](Fields& f) { f.merges = {"x b"}; }) ==
        prefix + "merges: merge 0, \"x b\", needs \"x\", which is no token");
  CHECK(byte_level([](Fields& f) { f.merges = {"a x"}; }) ==
        prefix + "merges: merge 0, \"a x\", needs \"x\", which is no token");
  CHECK(byte_level([](Fields& f) { f.merges = {"b a"}; }) ==
        prefix + "merges: merge 0, \"b a\", needs \"ba\", which is no token");
  CHECK(byte_level([](Fields& f) { f.types->at(3) = kUnused; }) ==
        prefix + "merges: merge 0, \"a b\", needs \"ab\", which is no token");
}

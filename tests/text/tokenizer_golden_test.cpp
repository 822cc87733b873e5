// SPDX-License-Identifier: MIT
// Whole tokenizers against the reference: ids, texts, streams.
#include "golden_files.hpp"

#include <kvdecode/core/error.hpp>
#include <kvdecode/text.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace kvdecode_test;
using kvdecode::DetokenizeOptions;
using kvdecode::EncodeOptions;
using kvdecode::Error;
using kvdecode::StreamingDetokenizer;
using kvdecode::TokenId;
using kvdecode::Tokenizer;
using Json = nlohmann::json;

namespace kvdecode_test {

using Ids = std::vector<TokenId>;

// U+1F960 has a script in our tables and none in the reference's.
inline bool is_known_difference(const std::string& folder, const std::string& text_name) {
  return folder.find("pre_unicode_scripts") != std::string::npos && text_name == "random_03";
}

inline void check_vectors(const Tokenizer& tokenizer, const std::string& folder) {
  for (const Json& record : read_json(folder + "/vectors.json")) {
    const std::string name = record.at("name").get<std::string>();
    if (is_known_difference(folder, name)) continue;
    CAPTURE(name);
    const std::string text = record.at("text").get<std::string>();
    if (record.contains("error")) {
      CHECK_THROWS_AS(tokenizer.encode(text), Error);
      continue;
    }
    const Ids ids = record.at("ids").get<Ids>();
    const Ids plain = record.at("ids_no_special").get<Ids>();
    const Ids as_text =
        record.contains("ids_special_as_text") ? record.at("ids_special_as_text").get<Ids>() : plain;
    CHECK(to_text(tokenizer.encode(text)) == to_text(ids));
    CHECK(to_text(tokenizer.encode(text, {.add_special_tokens = false})) == to_text(plain));
    CHECK(to_text(tokenizer.encode(text, {.add_special_tokens = false, .special_as_text = true})) ==
          to_text(as_text));
    CHECK(tokenizer.decode(ids) == record.at("decoded").get<std::string>());
    CHECK(tokenizer.decode(ids, {.skip_special = false}) == record.at("decoded_raw").get<std::string>());
  }
}

inline void check_stream(const Tokenizer& tokenizer, const Ids& ids, bool skip_special,
                         const std::string& expected) {
  StreamingDetokenizer stream(tokenizer, {.skip_special = skip_special});
  for (int round = 0; round < 2; ++round) {  // flush begins anew
    std::string text;
    bool whole_characters = true;
    for (const TokenId id : ids) {
      const std::string_view piece = stream.push(id);
      whole_characters = whole_characters && kvdecode::detail::is_utf8(piece);
      text += piece;
    }
    text += stream.flush();
    CHECK(whole_characters);
    CHECK(text == expected);
  }
  CHECK(tokenizer.decode(ids, {.skip_special = skip_special}) == expected);
}

inline void check_streams(const Tokenizer& tokenizer, const std::string& folder) {
  for (const Json& record : read_json(folder + "/streaming.json")) {
    CAPTURE(record.at("name").get<std::string>());
    const Ids ids = record.at("ids").get<Ids>();
    check_stream(tokenizer, ids, false, record.at("full").get<std::string>());
    if (record.contains("full_skip_special")) {
      check_stream(tokenizer, ids, true, record.at("full_skip_special").get<std::string>());
    }
  }
}

inline void check_tokenizer(const std::string& folder) {
  CAPTURE(folder);
  const Tokenizer tokenizer(kvdecode::read_tokenizer_json(read_file(folder + "/tokenizer.json")));
  check_vectors(tokenizer, folder);
  check_streams(tokenizer, folder);
}

}  // namespace kvdecode_test

TEST_CASE("tokenizer: byte-level vocabularies give the reference's ids and texts") {
  for (const std::string name :
       {"bl_clip", "bl_command_r_digits_nfc", "bl_deepseek", "bl_falcon", "bl_gpt2",
        "bl_llama3_ignore_merges", "bl_missing_bytes_dropped", "bl_normalizer_bytelevel",
        "bl_o200k_removed_invert", "bl_prefix_space_trim", "bl_roberta"}) {
    check_tokenizer(tokenizer_data("synthetic/" + name));
  }
}

TEST_CASE("tokenizer: vocabularies with byte fallback give the reference's ids and texts") {
  for (const std::string name : {"bf_decoder_without_fuse", "bf_gemma", "bf_llama2", "bf_metaspace_first",
                                 "bf_metaspace_never_nosplit", "bf_missing_byte_tokens"}) {
    check_tokenizer(tokenizer_data("synthetic/" + name));
  }
}

TEST_CASE("tokenizer: vocabularies of characters give the reference's ids and texts") {
  for (const std::string name : {"bpe_continuing_prefix", "bpe_fuse_unk", "bpe_merge_order",
                                 "bpe_raw_spaces_in_tokens", "bpe_unk", "bpe_word_suffix"}) {
    check_tokenizer(tokenizer_data("synthetic/" + name));
  }
}

TEST_CASE("tokenizer: added tokens are found as the reference finds them, for all flags") {
  for (const std::string name :
       {"added_flags_llama2", "added_flags_symbols", "added_flags_words_lowercase", "added_overlap_nfc"}) {
    check_tokenizer(tokenizer_data("synthetic/" + name));
  }
}

TEST_CASE("tokenizer: normalizers, pre-tokenizers, post-processors, decoders work within a whole pipeline") {
  for (const std::string name :
       {"norm_nfd_strip_accents_lower", "norm_nfkc", "norm_replace_regex", "norm_strip", "post_template_rich",
        "pre_punctuation_merged_previous", "pre_split_contiguous_invert", "pre_unicode_scripts",
        "pre_whitespace", "dec_none"}) {
    check_tokenizer(tokenizer_data("synthetic/" + name));
  }
}

#if defined(KVDECODE_TOKENIZERS_DIR)
// Real vocabularies are their makers': a folder outside with a folder each.
TEST_CASE("tokenizer: real vocabularies give the reference's ids and texts") {
  for (const std::string name : {"gpt2", "llama3_1", "qwen3", "deepseek_v3", "mistral_v1", "gemma3"}) {
    check_tokenizer(std::string(KVDECODE_TOKENIZERS_DIR) + "/" + name);
  }
}
#endif

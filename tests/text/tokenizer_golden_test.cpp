// SPDX-License-Identifier: MIT
// Whole tokenizers against the reference: ids, texts, streams.
#include "golden_files.hpp"
#include "golden_vectors.hpp"

#include <kvdecode/text.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace kvdecode_test;
using kvdecode::Tokenizer;

namespace kvdecode_test {

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

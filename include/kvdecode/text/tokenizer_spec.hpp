// SPDX-License-Identifier: MIT
// <kvdecode/text/tokenizer_spec.hpp> - all that a tokenizer is, as plain data: filled from a tokenizer.json
// or from other metadata, checked and compiled by `Tokenizer`. The names follow the `tokenizers` format.
#pragma once

#include <kvdecode/core/types.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// How the model turns a piece of text into tokens.
enum class TokenizerModel {
  kBpe,        ///< byte-pair encoding by a list of merges, the first in the list first
  kScoredBpe,  ///< byte-pair encoding by score: the adjacent pair whose union is a token of highest score
               ///< first
};

/// What a token of the vocabulary is for.
enum class TokenType : std::uint8_t {
  kNormal,       ///< text
  kUnknown,      ///< stands for what the vocabulary lacks
  kControl,      ///< a mark, such as the start of the text
  kUserDefined,  ///< text that is never split
  kUnused,       ///< a hole: no token has this id
  kByte,         ///< one byte, written <0x0A>
};

/// A token that is found in the text before anything else is done to it.
struct AddedToken {
  TokenId id = 0;
  std::string content = {};
  bool special = false;      ///< left out by decode(skip_special), taken as text by encode(special_as_text)
  bool normalized = false;   ///< its normalized content is looked for in the normalized text
  bool lstrip = false;       ///< takes the white space on its left with it
  bool rstrip = false;       ///< takes the white space on its right with it
  bool single_word = false;  ///< only where no word character touches it
  bool verbatim = false;     ///< decodes to its own text, whose letters are no bytes of the byte alphabet
};

/// Two tokens that become one. Their order in the list is their rank.
struct TokenMerge {
  std::string left = {};
  std::string right = {};
};

/// A literal text, or a regular expression in Oniguruma's Ruby syntax.
struct TextPattern {
  std::string text = {};
  bool is_regex = false;
};

/// What becomes of the matches of a pattern that splits a text.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// Where Metaspace puts its mark in front of a text that does not begin with it.
enum class PrependScheme {
  kAlways,  ///< in front of each section between added tokens
  kFirst,   ///< only at the start of the whole text
  kNever,
};

/// One change of the text before it is split. Members that the kind does not name are not used.
struct NormalizerStep {
  enum class Kind {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kStrip,         ///< white space at the ends: strip_left, strip_right
    kStripAccents,  ///< marks are removed
    kPrepend,       ///< content, in front of a text that is not empty
    kReplace,       ///< pattern by content, taken literally
    kNmt,           ///< control characters removed, odd spaces made spaces
    kByteLevel,     ///< bytes become letters of the byte alphabet
    kBert,          ///< clean_text, handle_chinese_chars, strip_accents, lowercase
  };
  Kind kind = Kind::kNfc;
  TextPattern pattern = {};
  std::string content = {};
  bool strip_left = false;
  bool strip_right = false;
  bool clean_text = false;
  bool handle_chinese_chars = false;
  bool strip_accents = false;
  bool lowercase = false;
};

/// One division of the text into pieces that no token crosses.
struct PreTokenizerStep {
  enum class Kind {
    kByteLevel,        ///< add_prefix_space, use_regex (GPT-2's); bytes become letters of the byte alphabet
    kSplit,            ///< pattern, behavior, invert
    kDigits,           ///< individual_digits
    kWhitespace,       ///< words and runs of symbols
    kWhitespaceSplit,  ///< at white space, which is removed
    kBert,             ///< at white space and punctuation
    kPunctuation,      ///< behavior
    kMetaspace,        ///< replacement, prepend_scheme, split
    kUnicodeScripts,   ///< where the script changes
    kFixedLength,      ///< length, in characters
  };
  Kind kind = Kind::kByteLevel;
  TextPattern pattern = {};
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
  bool add_prefix_space = false;
  bool use_regex = true;
  bool individual_digits = false;
  std::string replacement = {};  ///< one character
  PrependScheme prepend_scheme = PrependScheme::kAlways;
  bool split = true;
  Index length = 0;
};

/// One part of what `encode` returns: some tokens, or the text's.
struct TemplatePiece {
  bool is_text = false;
  std::vector<TokenId> ids = {};  ///< used if not is_text
};

/// One step on the way from tokens to text.
struct DecoderStep {
  enum class Kind {
    kByteLevel,     ///< letters of the byte alphabet become bytes
    kMetaspace,     ///< replacement becomes a space, or nothing in the first token unless prepend_scheme is
                    ///< kNever
    kByteFallback,  ///< runs of <0x0A> become bytes
    kFuse,          ///< all tokens become one
    kStrip,         ///< content (one character): at most `start` in front, `stop` behind
    kReplace,       ///< pattern by content
    kBpe,           ///< content (the word suffix) becomes a space, nothing in the last token
    kCtc,  ///< repeated tokens and content (the pad token) vanish, word_delimiter becomes a space; cleanup
    kWordPiece,  ///< tokens without the prefix content get a space in front; cleanup
  };
  Kind kind = Kind::kByteLevel;
  TextPattern pattern = {};
  std::string content = {};
  std::string replacement = {};
  PrependScheme prepend_scheme = PrependScheme::kAlways;
  Index start = 0;
  Index stop = 0;
  std::string word_delimiter = {};
  bool cleanup = false;
};

/// A tokenizer as data. `Tokenizer` checks it; nothing here is trusted.
struct TokenizerSpec {
  TokenizerModel model = TokenizerModel::kBpe;
  std::vector<std::string> tokens = {};       ///< [n_tokens] the model's vocabulary, by id
  std::vector<TokenType> token_types = {};    ///< [n_tokens], or empty: all normal
  std::vector<float> scores = {};             ///< [n_tokens] for kScoredBpe
  std::vector<TokenMerge> merges = {};        ///< for kBpe, by rank
  std::vector<AddedToken> added_tokens = {};  ///< in the vocabulary (same id and text) or beyond it

  std::optional<std::string> unk_token =
      {};  ///< for characters that the vocabulary lacks; without it they vanish
  std::string continuing_subword_prefix = {};  ///< marks all characters of a piece but the first
  std::string end_of_word_suffix = {};         ///< marks the last character of a piece
  bool fuse_unk = false;                       ///< one unk_token for a run of unknown characters
  bool byte_fallback = false;                  ///< unknown characters become byte tokens, if all are there
  bool ignore_merges = false;                  ///< a piece that is a token is that token, merges or not

  std::vector<NormalizerStep> normalizer = {};
  std::vector<PreTokenizerStep> pre_tokenizer = {};
  std::vector<TemplatePiece> post_processor = {};        ///< empty: the text's tokens alone
  std::optional<std::vector<DecoderStep>> decoder = {};  ///< none: tokens are joined by spaces

  std::optional<TokenId> bos_id = {};  ///< start of the text
  std::optional<TokenId> eos_id = {};  ///< end of the text
};

}  // namespace kvdecode

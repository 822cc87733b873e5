// SPDX-License-Identifier: MIT
// <kvdecode/pipeline/gguf_tokenizer.hpp> - the tokenizer in a GGUF file's metadata, as a TokenizerSpec. What
// files leave out (how a text is divided, defaults, flags of special tokens) is what those who write and read
// them agree on; whatever else would change an answer is refused by its key.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/io/gguf_metadata.hpp>
#include <kvdecode/io/json.hpp>
#include <kvdecode/pipeline/gguf_pre_tokenizers.hpp>
#include <kvdecode/text/detail/token_index.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/tokenizer_spec.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// Reads the keys tokenizer.ggml.*. Used once and thrown away.
class GgufTokenizerReader {
 public:
  explicit GgufTokenizerReader(const GgufMetadata& metadata) : metadata_(metadata) {}

  TokenizerSpec read() {
    const std::optional<std::string_view> model = metadata_.as_string(kModel);
    if (!model || *model == "none" || *model == "no_vocab") [[unlikely]]
      raise(ErrorCode::kUnsupported, metadata_.source(), ": has no tokenizer (", kModel,
            model ? " is " : " is missing", model ? in_quotes(*model) : "", ")");
    const bool is_byte_level = *model == "gpt2";
    if (!is_byte_level && *model != "llama") [[unlikely]]
      unsupported(kModel, in_quotes(*model) + " is not supported (supported: gpt2, llama)");
    check_keys();
    tokens(is_byte_level);
    if (is_byte_level)
      byte_level();
    else
      byte_fallback();
    marks();
    added_tokens(is_byte_level);
    return std::move(spec_);
  }

 private:
  static constexpr std::string_view kModel = "tokenizer.ggml.model";
  static constexpr std::string_view kPre = "tokenizer.ggml.pre";
  static constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  static constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
  static constexpr std::string_view kScores = "tokenizer.ggml.scores";
  static constexpr std::string_view kMerges = "tokenizer.ggml.merges";
  static constexpr std::string_view kBos = "tokenizer.ggml.bos_token_id";
  static constexpr std::string_view kEos = "tokenizer.ggml.eos_token_id";
  static constexpr std::string_view kUnknown = "tokenizer.ggml.unknown_token_id";
  static constexpr std::string_view kAddBos = "tokenizer.ggml.add_bos_token";
  static constexpr std::string_view kAddEos = "tokenizer.ggml.add_eos_token";
  static constexpr std::string_view kAddSpace = "tokenizer.ggml.add_space_prefix";
  static constexpr std::string_view kRemoveSpaces = "tokenizer.ggml.remove_extra_whitespaces";
  static constexpr std::string_view kCharacterMap = "tokenizer.ggml.precompiled_charsmap";
  static constexpr std::string_view kAddSep = "tokenizer.ggml.add_sep_token";        // between two texts
  static constexpr std::string_view kTypeCount = "tokenizer.ggml.token_type_count";  // of segments of texts

  template <class... Parts>
  [[noreturn]] void fail(std::string_view key, const Parts&... parts) const {
    raise(ErrorCode::kBadFile, metadata_.source(), ": ", key, ": ", parts...);
  }
  [[noreturn]] void unsupported(std::string_view key, std::string_view what) const {
    raise(ErrorCode::kUnsupported, metadata_.source(), ": ", key, ": ", what);
  }
  template <class T>
  const T& required(const std::optional<T>& value, std::string_view key) const {
    if (!value) [[unlikely]]
      raise(ErrorCode::kBadFile, metadata_.source(), ": ", key, " is missing");
    return *value;
  }

  // Every key has to be one that is read, or that does not change how one text becomes tokens.
  void check_keys() const {
    constexpr std::string_view known[] = {kModel,        kPre,    kTokens,   kTypes,    kScores,
                                          kMerges,       kAddBos, kAddEos,   kAddSpace, kRemoveSpaces,
                                          kCharacterMap, kAddSep, kTypeCount};
    constexpr std::string_view prefix = "tokenizer.ggml.";
    for (const auto& [key, value] : metadata_.entries()) {
      if (!key.starts_with(prefix) || key.ends_with("_token_id")) continue;  // names a mark, used or not
      if (std::find(std::begin(known), std::end(known), key) == std::end(known)) [[unlikely]]
        raise(ErrorCode::kUnsupported, metadata_.source(), ": the key ", in_quotes(key),
              " is not known and might change the result");
    }
    if (metadata_.as_boolean(kRemoveSpaces).value_or(false)) [[unlikely]]
      unsupported(kRemoveSpaces, "true is not supported");
    if (metadata_.contains(kCharacterMap)) [[unlikely]]
      unsupported(kCharacterMap, "a map of characters is not supported");
  }

  void tokens(bool is_byte_level) {
    const auto texts = metadata_.as_strings(kTokens);
    const std::size_t n_tokens = required(texts, kTokens).size();
    if (n_tokens == 0 || n_tokens > static_cast<std::size_t>(std::numeric_limits<TokenId>::max()))
        [[unlikely]]
      fail(kTokens, n_tokens, " tokens, expected 1 to ", std::numeric_limits<TokenId>::max());
    types(n_tokens);
    index_ = TextIndex(n_tokens);
    spec_.tokens.reserve(n_tokens);
    for (std::size_t i = 0; i < n_tokens; ++i) {
      const std::string_view text = (*texts)[i];
      if (!is_utf8(text)) [[unlikely]]
        fail(kTokens, "token ", i, ", ", in_quotes(text), ", is not valid UTF-8");
      spec_.tokens.emplace_back(text);
      TokenType& type = spec_.token_types[i];
      if (text.empty()) {  // a place that a converter could not fill
        type = TokenType::kUnused;
        continue;
      }
      const auto id = static_cast<TokenId>(i);
      const TokenId first = index_.insert(spec_.tokens, id);
      if (first != id) [[unlikely]]
        fail(kTokens, "tokens ", first, " and ", i, " are both ", in_quotes(text));
      if (type == TokenType::kByte && (is_byte_level || !is_byte_token(text))) [[unlikely]]
        fail(kTypes, "token ", i, ", ", in_quotes(text), ", is no byte of this vocabulary");
    }
  }

  void types(std::size_t n_tokens) {
    const auto types = metadata_.as_integers(kTypes);
    spec_.token_types.assign(n_tokens, TokenType::kNormal);
    if (!types) return;
    check_length(kTypes, types->size(), n_tokens);
    constexpr TokenType by_number[] = {TokenType::kNormal,      TokenType::kUnknown, TokenType::kControl,
                                       TokenType::kUserDefined, TokenType::kUnused,  TokenType::kByte};
    for (std::size_t i = 0; i < n_tokens; ++i) {
      const std::int64_t number = (*types)[i];
      if (number < 1 || number > static_cast<std::int64_t>(std::size(by_number))) [[unlikely]]
        fail(kTypes, "token ", i, " has type ", number, ", expected 1 to ", std::size(by_number));
      spec_.token_types[i] = by_number[number - 1];
    }
  }

  void check_length(std::string_view key, std::size_t n, std::size_t n_tokens) const {
    if (n != n_tokens) [[unlikely]]
      fail(key, n, " elements for ", n_tokens, " tokens");
  }

  static bool is_byte_token(std::string_view text) {
    const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
    return text.size() == 6 && text.starts_with("<0x") && is_digit(text[3]) && is_digit(text[4]) &&
           text[5] == '>';
  }

  // Byte-pair encoding over the letters of the byte alphabet.
  void byte_level() {
    const auto name = metadata_.as_string(kPre);
    const GgufPreTokenizer* const pre = find_gguf_pre_tokenizer(required(name, kPre));
    if (pre == nullptr) [[unlikely]] {
      std::string known;
      for (const GgufPreTokenizer& each : kGgufPreTokenizers)
        known.append(known.empty() ? "" : ", ").append(each.name);
      unsupported(kPre, in_quotes(*name) + " is not supported (supported: " + known + ")");
    }
    if (metadata_.as_boolean(kAddSpace).value_or(false)) [[unlikely]]
      unsupported(kAddSpace, "true is not supported for gpt2");
    spec_.model = TokenizerModel::kBpe;
    merges();
    spec_.ignore_merges = pre->ignores_merges;
    if (pre->normalizes_nfc) spec_.normalizer.push_back(normalizer_step(NormalizerStep::Kind::kNfc));
    spec_.pre_tokenizer = pre->steps();
    spec_.decoder.emplace().push_back(decoder_step(DecoderStep::Kind::kByteLevel));
    adds_bos_ = pre->adds_bos;
  }

  void merges() {
    const auto texts = metadata_.as_strings(kMerges);
    spec_.merges.reserve(required(texts, kMerges).size());
    std::string merged;
    for (std::size_t i = 0; i < texts->size(); ++i) {
      const std::string_view text = (*texts)[i];
      const std::size_t space = text.find(' ');
      if (space == std::string_view::npos || space == 0 || space + 1 == text.size() ||
          text.find(' ', space + 1) != std::string_view::npos) [[unlikely]]
        fail(kMerges, "merge ", i, ", ", in_quotes(text), ", is not two tokens with a space between them");
      const std::string_view left = text.substr(0, space);
      const std::string_view right = text.substr(space + 1);
      merged.assign(left).append(right);
      for (const std::string_view token : {left, right, std::string_view(merged)})
        if (!is_token(token)) [[unlikely]]
          fail(kMerges, "merge ", i, ", ", in_quotes(text), ", needs ", in_quotes(token),
               ", which is no token");
      spec_.merges.push_back({std::string(left), std::string(right)});
    }
  }

  bool is_token(std::string_view text) const {
    const TokenId id = index_.find(spec_.tokens, text);
    return id >= 0 && spec_.token_types[static_cast<std::size_t>(id)] != TokenType::kUnused;
  }

  static NormalizerStep normalizer_step(NormalizerStep::Kind kind, std::string_view pattern = {},
                                        std::string_view content = {}) {
    NormalizerStep step;
    step.kind = kind;
    step.pattern.text = pattern;
    step.content = content;
    return step;
  }
  static DecoderStep decoder_step(DecoderStep::Kind kind, std::string_view pattern = {},
                                  std::string_view content = {}) {
    DecoderStep step;
    step.kind = kind;
    step.pattern.text = pattern;
    step.content = content;
    return step;
  }

  // Byte-pair encoding by scores, with spaces as U+2581 and bytes for characters that are no token.
  void byte_fallback() {
    constexpr std::string_view space = "\u2581";
    spec_.model = TokenizerModel::kScoredBpe;
    const auto scores = metadata_.as_numbers(kScores);
    check_length(kScores, required(scores, kScores).size(), spec_.tokens.size());
    spec_.scores.reserve(scores->size());
    for (std::size_t i = 0; i < scores->size(); ++i) {
      if (!(std::abs((*scores)[i]) <= double{std::numeric_limits<float>::max()})) [[unlikely]]
        fail(kScores, "token ", i, " has the score ", (*scores)[i], ", expected a finite number");
      spec_.scores.push_back(static_cast<float>((*scores)[i]));
    }
    const bool adds_space = metadata_.as_boolean(kAddSpace).value_or(true);
    if (adds_space) spec_.normalizer.push_back(normalizer_step(NormalizerStep::Kind::kPrepend, "", space));
    spec_.normalizer.push_back(normalizer_step(NormalizerStep::Kind::kReplace, " ", space));
    spec_.byte_fallback = true;
    spec_.fuse_unk = true;
    spec_.decoder.emplace();
    spec_.decoder->push_back(decoder_step(DecoderStep::Kind::kReplace, space, " "));
    spec_.decoder->push_back(decoder_step(DecoderStep::Kind::kByteFallback));
    spec_.decoder->push_back(decoder_step(DecoderStep::Kind::kFuse));
    if (adds_space) {
      spec_.decoder->push_back(decoder_step(DecoderStep::Kind::kStrip, "", " "));
      spec_.decoder->back().start = 1;
    }
    adds_bos_ = true;
    unk_id_ = default_id(0);
    spec_.bos_id = default_id(1);
    spec_.eos_id = default_id(2);
  }

  // The id that such a mark has had in every vocabulary of this kind, if it is one here.
  std::optional<TokenId> default_id(TokenId id) const {
    const auto i = static_cast<std::size_t>(id);
    if (i >= spec_.tokens.size()) return std::nullopt;
    const TokenType type = spec_.token_types[i];
    if (type != TokenType::kControl && type != TokenType::kUnknown) return std::nullopt;
    return id;
  }

  // The token that a key names, if the key is there; else `id` stays as it is.
  void read_id(std::string_view key, std::optional<TokenId>& id) const {
    const std::optional<std::int64_t> read = metadata_.as_integer(key);
    if (!read) return;
    if (*read < 0 || *read >= static_cast<std::int64_t>(spec_.tokens.size())) [[unlikely]]
      fail(key, *read, " is not a token, there are ", spec_.tokens.size());
    if (spec_.token_types[static_cast<std::size_t>(*read)] == TokenType::kUnused) [[unlikely]]
      fail(key, *read, " is a token that is not used");
    id = static_cast<TokenId>(*read);
  }

  // Which tokens begin and end a text, and whether encoding puts them there.
  void marks() {
    read_id(kBos, spec_.bos_id);
    read_id(kEos, spec_.eos_id);
    read_id(kUnknown, unk_id_);
    if (spec_.byte_fallback && unk_id_) spec_.unk_token = spec_.tokens[static_cast<std::size_t>(*unk_id_)];
    const bool adds_bos = metadata_.as_boolean(kAddBos).value_or(adds_bos_);
    const bool adds_eos = metadata_.as_boolean(kAddEos).value_or(false);
    if (adds_bos && !spec_.bos_id) [[unlikely]]
      fail(kBos, "is missing, but each text is to begin with it");
    if (adds_eos && !spec_.eos_id) [[unlikely]]
      fail(kEos, "is missing, but each text is to end with it");
    if (!adds_bos && !adds_eos) return;
    if (adds_bos) spec_.post_processor.push_back({.ids = {*spec_.bos_id}});
    spec_.post_processor.push_back({.is_text = true});
    if (adds_eos) spec_.post_processor.push_back({.ids = {*spec_.eos_id}});
  }

  // Tokens that are found in the text before it is divided. Files do not have their flags.
  void added_tokens(bool is_byte_level) {
    const bool is_phi3 = is_named_phi3();
    for (std::size_t i = 0; i < spec_.tokens.size(); ++i) {
      const TokenType type = spec_.token_types[i];
      const bool is_special = type == TokenType::kControl || type == TokenType::kUnknown;
      if (!is_special && type != TokenType::kUserDefined) continue;
      const std::string& text = spec_.tokens[i];
      const bool strips = is_phi3 && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
      spec_.added_tokens.push_back({.id = static_cast<TokenId>(i),
                                    .content = text,
                                    .special = is_special,
                                    .rstrip = strips,
                                    .verbatim = is_byte_level});
    }
  }

  // Phi-3 alone takes the white space behind its marks with them.
  bool is_named_phi3() const {
    std::string name(metadata_.as_string("general.name").value_or(""));
    for (char& c : name)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
  }

  const GgufMetadata& metadata_;
  TokenizerSpec spec_;
  TextIndex index_;  // of spec_.tokens, without those that are empty
  std::optional<TokenId> unk_id_;
  bool adds_bos_ = false;  // unless the file says otherwise
};

}  // namespace detail

/// The tokenizer that the metadata of a GGUF file describes: byte-level byte-pair encoding (gpt2) with one of
/// kGgufPreTokenizers, or byte-pair encoding by scores with byte fallback (llama).
///
/// Control and unknown tokens are special, those and user-defined ones are found in a text. A tokenizer.json
/// of the same model gives the same ids, but for what no GGUF file has: white space that special tokens take
/// with them (known for Phi-3 alone).
/// @throws Error kBadFile, naming the key, for metadata that contradicts the format or itself; kUnsupported,
///          naming the key, for kinds of tokenizers and pre-tokenizers that are not served, and for a file
///          without a tokenizer
inline TokenizerSpec read_gguf_tokenizer(const GgufMetadata& metadata) {
  return detail::GgufTokenizerReader(metadata).read();
}

/// The tokens that end a turn of a conversation by their name, those beside the vocabulary's text: files name
/// one token that ends a text, and models that converse often use another.
inline std::vector<TokenId> find_end_of_turn_tokens(const TokenizerSpec& spec) {
  constexpr std::string_view names[] = {
      "<EOT>",      "<end_of_turn>", "<|end_of_text|>", "<|endoftext|>",         "<|end|>",
      "<|eom_id|>", "<|eot_id|>",    "<|im_end|>",      "<｜end▁of▁sentence｜>",
  };
  std::vector<TokenId> ids;
  for (const AddedToken& token : spec.added_tokens)
    if (std::find(std::begin(names), std::end(names), token.content) != std::end(names))
      ids.push_back(token.id);
  return ids;
}

}  // namespace kvdecode

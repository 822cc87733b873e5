// SPDX-License-Identifier: MIT
// <kvdecode/text/tokenizer.hpp> - text to tokens and back, as a TokenizerSpec says. One immutable state
// behind a shared pointer: copies are cheap and may be used on any threads.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/text/detail/added_tokens.hpp>
#include <kvdecode/text/detail/bpe.hpp>
#include <kvdecode/text/detail/normalizer.hpp>
#include <kvdecode/text/detail/pre_tokenizer.hpp>
#include <kvdecode/text/detail/token_decoder.hpp>
#include <kvdecode/text/detail/token_index.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/tokenizer_spec.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// How text becomes tokens.
struct EncodeOptions {
  bool add_special_tokens = true;  ///< what the post-processor puts around the text
  bool special_as_text =
      false;  ///< "<|eot|>" in the text is seven characters, no token: for the text of strangers
};

/// How tokens become text.
struct DetokenizeOptions {
  bool skip_special = true;  ///< special tokens leave no trace
};

namespace detail {

/// What all copies of a Tokenizer share.
class TokenizerState {
 public:
  explicit TokenizerState(TokenizerSpec spec) : bos_id_(spec.bos_id), eos_id_(spec.eos_id) {
    check_texts(spec);
    normalizer_ = Normalizer(spec.normalizer);
    pre_tokenizer_ = PreTokenizer(spec.pre_tokenizer);
    decoder_ = TokenDecoder(spec.decoder);
    post_processor_ = std::move(spec.post_processor);
    added_ = std::move(spec.added_tokens);
    unused_.assign(spec.tokens.size(), false);
    for (std::size_t i = 0; i < spec.token_types.size(); ++i) {
      unused_[i] = spec.token_types[i] == TokenType::kUnused;
    }
    bpe_.emplace(spec);
    place_added_tokens();
    find_added_tokens();
    find_skipped_tokens();
    check_ids();
  }

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const {
    const std::size_t n_valid = utf8_valid_prefix(text);
    if (n_valid != text.size()) [[unlikely]] {
      raise(ErrorCode::kBadArgument, "encode: a text of ", text.size(), " bytes is not valid UTF-8 at byte ",
            n_valid);
    }
    Encoding encoding{*this, options, {}, {}, {}, {}, {}};
    if (post_processor_.empty()) encoding.run(text);
    for (const TemplatePiece& piece : post_processor_) {
      if (piece.is_text) {
        encoding.run(text);
      } else if (options.add_special_tokens) {
        encoding.tokens.insert(encoding.tokens.end(), piece.ids.begin(), piece.ids.end());
      }
    }
    return std::move(encoding.tokens);
  }

  /// The token as the file writes it, or null if there is no such token.
  const std::string* piece(TokenId id) const noexcept { return look_up(id, added_contents_); }

  bool is_special(TokenId id) const noexcept {
    if (id < 0 || id >= vocab_size()) return false;
    const std::int32_t added = added_by_id_[static_cast<std::size_t>(id)];
    return added >= 0 && added_[static_cast<std::size_t>(added)].special;
  }

  std::optional<TokenId> find(std::string_view text) const noexcept {
    const TokenId added = added_index_.find(added_contents_, text);
    if (added >= 0) return added_[static_cast<std::size_t>(added)].id;
    const TokenId id = bpe_->find(text);
    if (id >= 0) return id;
    return std::nullopt;
  }

  Index vocab_size() const noexcept { return static_cast<Index>(added_by_id_.size()); }
  std::optional<TokenId> bos_id() const noexcept { return bos_id_; }
  std::optional<TokenId> eos_id() const noexcept { return eos_id_; }
  const TokenDecoder& decoder() const noexcept { return decoder_; }

  bool adds_bos() const noexcept {
    return bos_id_ && !post_processor_.empty() && !post_processor_.front().is_text &&
           !post_processor_.front().ids.empty() && post_processor_.front().ids.front() == *bos_id_;
  }

  /// Sends `id` through the decoder to `out`, if it is a token and not left out.
  void decode(TokenId id, const DetokenizeOptions& options, TokenDecodeState& decoding,
              std::string& out) const {
    const std::string* token = look_up(id, added_texts_);
    if (token == nullptr) return;
    const std::int32_t added = added_by_id_[static_cast<std::size_t>(id)];
    if (options.skip_special && added >= 0 && skipped_[static_cast<std::size_t>(added)]) return;
    const bool is_verbatim = added >= 0 && added_[static_cast<std::size_t>(added)].verbatim;
    decoding.push(decoder_, *token, out, is_verbatim);
  }

 private:
  // One call of encode.
  struct Encoding {
    const TokenizerState& state;
    const EncodeOptions& options;
    std::vector<TokenId> tokens;
    RegexScratch regex;
    BpeScratch bpe;
    PieceList pieces;
    std::string normalized;

    void add(std::int32_t index) { tokens.push_back(state.added_[static_cast<std::size_t>(index)].id); }

    // Tokens whose text is looked for as it is divide the text into sections.
    void run(std::string_view text) {
      state.raw_finder_.split(text, state.added_, options.special_as_text, regex,
                              [&](std::size_t begin, std::size_t end, std::int32_t index) {
                                if (index >= 0) return add(index);
                                section(text.substr(begin, end - begin), begin == 0);
                              });
    }

    // A section is normalized, and divided again at tokens that are looked for after that.
    void section(std::string_view text, bool at_start) {
      normalized = text;
      const bool keeps_start = state.normalizer_.apply(normalized, regex);
      state.normalized_finder_.split(
          normalized, state.added_, options.special_as_text, regex,
          [&](std::size_t begin, std::size_t end, std::int32_t index) {
            if (index >= 0) return add(index);
            pieces.text.assign(normalized, begin, end - begin);
            pieces.begins_at_start = at_start && keeps_start && begin == 0;
            state.pre_tokenizer_.apply(pieces, regex);
            for (const PieceList::Range& piece : pieces.pieces) {
              state.bpe_->encode(std::string_view(pieces.text).substr(piece.begin, piece.end - piece.begin),
                                 bpe, tokens);
            }
          });
    }
  };

  const std::string* look_up(TokenId id, const std::vector<std::string>& added) const noexcept {
    if (id < 0 || id >= vocab_size()) return nullptr;
    const auto i = static_cast<std::size_t>(id);
    if (added_by_id_[i] >= 0) return &added[static_cast<std::size_t>(added_by_id_[i])];
    return i < unused_.size() && !unused_[i] ? &bpe_->text(id) : nullptr;
  }

  // Everything that is searched, or searched for, must be UTF-8: PCRE2 is told not to check.
  static void check_texts(const TokenizerSpec& spec) {
    const auto check = [](std::string_view text, std::string_view what, std::size_t i) {
      if (!is_utf8(text)) raise(ErrorCode::kBadFile, "tokenizer: ", what, " ", i, " is not valid UTF-8");
    };
    const std::size_t n_tokens = spec.tokens.size();
    if (n_tokens > kMaxTokens || spec.merges.size() > kMaxTokens || spec.added_tokens.size() > kMaxTokens) {
      raise(ErrorCode::kBadFile, "tokenizer: more than ", kMaxTokens, " tokens, added tokens or merges");
    }
    if (!spec.token_types.empty() && spec.token_types.size() != n_tokens) {
      raise(ErrorCode::kBadFile, "tokenizer: ", spec.token_types.size(), " token types for ", n_tokens,
            " tokens");
    }
    for (std::size_t i = 0; i < n_tokens; ++i) check(spec.tokens[i], "token", i);
    for (std::size_t i = 0; i < spec.added_tokens.size(); ++i) {
      check(spec.added_tokens[i].content, "added token", i);
    }
    for (std::size_t i = 0; i < spec.normalizer.size(); ++i) {
      check(spec.normalizer[i].content, "normalizer", i);
      check(spec.normalizer[i].pattern.text, "normalizer", i);
    }
    for (std::size_t i = 0; i < spec.pre_tokenizer.size(); ++i) {
      check(spec.pre_tokenizer[i].replacement, "pre-tokenizer", i);
      check(spec.pre_tokenizer[i].pattern.text, "pre-tokenizer", i);
    }
    const std::size_t n_decoders = spec.decoder ? spec.decoder->size() : 0;
    for (std::size_t i = 0; i < n_decoders; ++i) {
      const DecoderStep& step = (*spec.decoder)[i];
      for (const std::string_view text :
           {step.content, step.replacement, step.word_delimiter, step.pattern.text}) {
        check(text, "decoder", i);
      }
    }
    check(spec.continuing_subword_prefix, "continuing_subword_prefix", 0);
    check(spec.end_of_word_suffix, "end_of_word_suffix", 0);
    if (spec.model == TokenizerModel::kScoredBpe) {
      if (spec.scores.size() != n_tokens) {
        raise(ErrorCode::kBadFile, "tokenizer: ", spec.scores.size(), " scores for ", n_tokens, " tokens");
      }
      for (std::size_t i = 0; i < n_tokens; ++i) {
        if (std::isnan(spec.scores[i])) {
          raise(ErrorCode::kBadFile, "tokenizer: the score of token ", i, " is no number");
        }
      }
    }
  }

  // Ids of added tokens: in the vocabulary with the same text, or beyond it.
  void place_added_tokens() {
    const std::size_t n_tokens = unused_.size();
    const std::size_t max_size = 16 * (n_tokens + added_.size()) + 65536;  // a table by id stays small
    std::size_t size = n_tokens;
    for (const AddedToken& token : added_) {
      if (token.id < 0 || static_cast<std::size_t>(token.id) >= max_size) {
        raise(ErrorCode::kBadFile, "tokenizer: added token ", in_quotes(token.content), " has id ", token.id,
              ", expected 0 to ", max_size - 1);
      }
      if (token.content.empty()) {
        raise(ErrorCode::kBadFile, "tokenizer: added token ", token.id, " has no content");
      }
      size = std::max(size, static_cast<std::size_t>(token.id) + 1);
    }
    added_by_id_.assign(size, -1);
    added_contents_.reserve(added_.size());
    added_index_ = TextIndex(added_.size());
    for (std::size_t i = 0; i < added_.size(); ++i) {
      const TokenId token_id = added_[i].id;
      const auto id = static_cast<std::size_t>(token_id);
      const auto index = static_cast<std::int32_t>(i);
      added_contents_.push_back(std::move(added_[i].content));
      const std::string& content = added_contents_.back();
      if (added_by_id_[id] >= 0) {
        raise(ErrorCode::kBadFile, "tokenizer: added tokens ",
              in_quotes(added_contents_[static_cast<std::size_t>(added_by_id_[id])]), " and ",
              in_quotes(content), " have the same id ", token_id);
      }
      if (id < n_tokens && !unused_[id] && bpe_->text(token_id) != content) {
        raise(ErrorCode::kBadFile, "tokenizer: added token ", in_quotes(content), " has id ", token_id,
              ", which the vocabulary gives to ", in_quotes(bpe_->text(token_id)));
      }
      added_by_id_[id] = index;
      added_index_.insert(added_contents_, index);  // of equal contents the first is found, as in a text
    }
  }

  void find_added_tokens() {
    RegexScratch scratch;
    added_texts_ = added_contents_;
    for (const bool special : {true, false}) {  // of equal texts a special token's is found
      for (std::size_t i = 0; i < added_.size(); ++i) {
        if (added_[i].special != special) continue;
        if (added_[i].normalized) normalizer_.apply(added_texts_[i], scratch);
        AddedTokenFinder& finder = added_[i].normalized ? normalized_finder_ : raw_finder_;
        finder.add(added_[i], added_texts_[i], static_cast<std::int32_t>(i));
      }
    }
  }

  // By text, as the reference does it: a special token whose normalized text is another one is not left out.
  void find_skipped_tokens() {
    TextIndex special(added_.size());
    for (std::size_t i = 0; i < added_.size(); ++i) {
      if (added_[i].special) special.insert(added_contents_, static_cast<TokenId>(i));
    }
    skipped_.reserve(added_.size());
    for (const std::string& text : added_texts_) skipped_.push_back(special.find(added_contents_, text) >= 0);
  }

  void check_ids() const {
    const auto check = [this](TokenId id, std::string_view what) {
      if (piece(id) == nullptr) {
        raise(ErrorCode::kBadFile, "tokenizer: ", what, " names token ", id, ", which is not one of ",
              vocab_size());
      }
    };
    std::size_t n_texts = 0;
    for (const TemplatePiece& piece : post_processor_) {
      if (piece.is_text) n_texts += 1;
      for (const TokenId id : piece.ids) check(id, "the post-processor");
    }
    if (bos_id_) check(*bos_id_, "bos_id");
    if (eos_id_) check(*eos_id_, "eos_id");
    if (!post_processor_.empty() && n_texts != 1) {
      raise(ErrorCode::kUnsupported, "tokenizer: a post-processor with ", n_texts,
            " places for the text, expected 1");
    }
  }

  static constexpr std::size_t kMaxTokens = std::size_t{1} << 28;

  std::optional<TokenId> bos_id_;
  std::optional<TokenId> eos_id_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  TokenDecoder decoder_;
  std::optional<Bpe> bpe_;
  std::vector<bool> unused_;  // [n_tokens] of the model's vocabulary
  std::vector<TemplatePiece> post_processor_;
  std::vector<AddedToken> added_;            // [n_added] without their contents
  std::vector<std::string> added_contents_;  // [n_added] as the file writes them
  std::vector<std::string> added_texts_;     // [n_added] as they are looked for and decoded (normalized)
  std::vector<bool> skipped_;                // [n_added] left out by skip_special
  TextIndex added_index_;                    // of added_contents_
  std::vector<std::int32_t> added_by_id_;    // [vocab_size] index into added_, -1: a token of the model
  AddedTokenFinder raw_finder_;
  AddedTokenFinder normalized_finder_;
};

}  // namespace detail

/// A tokenizer ready for use. Immutable, cheap to copy, safe on any threads.
class Tokenizer {
 public:
  /// Checks and compiles `spec`. @throws Error kBadFile for contradictions in it, kUnsupported for what is
  /// not served.
  explicit Tokenizer(TokenizerSpec spec)
      : state_(std::make_shared<const detail::TokenizerState>(std::move(spec))) {}

  /// The tokens of `text`, with what the post-processor adds if asked. O(n log n) in the longest piece's
  /// characters.
  /// @throws Error kBadArgument if `text` is not valid UTF-8, kBadFile if a character needs an unknown token
  ///          that the vocabulary lacks, kUnsupported if a regular expression of the file exceeds its limits
  ///          on this text.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const {
    return state_->encode(text, options);
  }

  /// The text of `ids`, always valid UTF-8: malformed bytes become U+FFFD. Ids that are no token leave no
  /// trace.
  std::string decode(std::span<const TokenId> ids, DetokenizeOptions options = {}) const {
    std::string text;
    detail::TokenDecodeState decoding(state_->decoder());
    for (const TokenId id : ids) state_->decode(id, options, decoding, text);
    decoding.finish(state_->decoder(), text);
    return text;
  }

  /// The token as the vocabulary writes it ("Ġthe"), not decoded; empty if `id` is no token. Lives as long as
  /// any copy.
  std::string_view piece(TokenId id) const noexcept {
    const std::string* text = state_->piece(id);
    return text != nullptr ? std::string_view(*text) : std::string_view();
  }

  /// The id of a token as the vocabulary or the added tokens write it.
  std::optional<TokenId> id_of(std::string_view piece) const noexcept { return state_->find(piece); }

  /// One more than the largest id.
  Index vocab_size() const noexcept { return state_->vocab_size(); }

  std::optional<TokenId> bos_id() const noexcept { return state_->bos_id(); }
  std::optional<TokenId> eos_id() const noexcept { return state_->eos_id(); }

  /// True for added tokens marked special: the ones that skip_special leaves out.
  bool is_special(TokenId id) const noexcept { return state_->is_special(id); }

  /// True if encode puts bos_id in front of the text.
  bool adds_bos() const noexcept { return state_->adds_bos(); }

 private:
  friend class StreamingDetokenizer;

  std::shared_ptr<const detail::TokenizerState> state_;
};

}  // namespace kvdecode

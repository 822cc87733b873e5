// SPDX-License-Identifier: MIT
// <kvdecode/text/streaming_detokenizer.hpp> - tokens in, text out, one token at a time: each call returns
// what that token made certain. It runs the steps that Tokenizer::decode runs, so the pieces together are its
// answer.
#pragma once

#include <kvdecode/core/types.hpp>
#include <kvdecode/text/detail/token_decoder.hpp>
#include <kvdecode/text/tokenizer.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {

/// Decodes a growing list of tokens. The pieces and the last one from flush() are decode(all ids), byte for
/// byte, for any ids; each piece is valid UTF-8. Work per token does not grow with the list.
///
/// Text is held back only where a later token can change it: bytes of an unfinished character; a run of byte
/// tokens (<0xE4>), which one malformed byte turns into U+FFFD as a whole; a decoder that needs its input
/// whole, such as a regular expression behind Fuse, holds all of it.
class StreamingDetokenizer {
 public:
  explicit StreamingDetokenizer(Tokenizer tokenizer, DetokenizeOptions options = {})
      : tokenizer_(std::move(tokenizer)), options_(options), decoding_(tokenizer_.state_->decoder()) {}

  /// The text that `id` makes certain, often empty; valid until the next call. An id that is no token adds
  /// nothing.
  std::string_view push(TokenId id) {
    piece_.clear();
    tokenizer_.state_->decode(id, options_, decoding_, piece_);
    return piece_;
  }

  /// The same, so that the object serves where a callable from tokens to text is asked for.
  std::string_view operator()(TokenId id) { return push(id); }

  /// The rest of the text; the next push begins a new one.
  std::string_view flush() {
    piece_.clear();
    decoding_.finish(tokenizer_.state_->decoder(), piece_);
    return piece_;
  }

  const Tokenizer& tokenizer() const noexcept { return tokenizer_; }

 private:
  Tokenizer tokenizer_;
  DetokenizeOptions options_;
  detail::TokenDecodeState decoding_;
  std::string piece_;
};

}  // namespace kvdecode

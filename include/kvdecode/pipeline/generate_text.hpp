// SPDX-License-Identifier: MIT
// <kvdecode/pipeline/generate_text.hpp> - generate() from text to text: encodes the prompt, streams what is
// written.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/decode/generate.hpp>
#include <kvdecode/text/streaming_detokenizer.hpp>
#include <kvdecode/text/tokenizer.hpp>

#include <span>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

namespace detail {

/// The text of tokens that continue a prompt. The detokenizer has read the prompt, since what a token becomes
/// can depend on those before it (a leading space, for one); what belongs to the prompt is not shown again.
class ContinuationPieces {
 public:
  ContinuationPieces(const Tokenizer& tokenizer, std::span<const TokenId> prompt)
      : detokenizer_(tokenizer), n_hidden_(tokenizer.decode(prompt).size()) {
    for (const TokenId token : prompt) visible(detokenizer_.push(token));
  }
  std::string_view operator()(TokenId token) { return visible(detokenizer_.push(token)); }
  std::string_view flush() { return visible(detokenizer_.flush()); }

 private:
  std::string_view visible(std::string_view piece) noexcept {
    const std::size_t n = std::min(n_hidden_, piece.size());
    n_hidden_ -= n;
    return piece.substr(n);
  }

  StreamingDetokenizer detokenizer_;
  std::size_t n_hidden_;  // bytes of the prompt's text still to come
};

}  // namespace detail

/// The tokens to start from: the encoded prompt, with what the tokenizer puts around a text. An empty one is
/// the first token of a text, if the tokenizer adds one. @throws Error kBadArgument otherwise, or if the text
/// is no UTF-8
inline std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, std::string_view prompt) {
  std::vector<TokenId> tokens = tokenizer.encode(prompt);
  if (prompt.empty() && (tokens.empty() || !tokenizer.adds_bos())) [[unlikely]]
    detail::raise(ErrorCode::kBadArgument,
                  "the prompt is empty, and this tokenizer has no token that begins a text");
  return tokens;
}

/// Writes text after a prompt. The tokenizer's last token ends it, beside options.stop_tokens.
///
/// @param decoder  an empty one starts with the prompt; otherwise the prompt is appended to what it holds
/// @param on_text  bool(std::string_view), called with each new piece of text, never half a character; false
/// stops
/// @return         tokens, text without the prompt, why it ended, what it took
/// @throws Error kBadArgument (empty prompt, invalid UTF-8), kCacheFull (the prompt does not fit)
template <class D, Sampler<typename D::scalar> Picker, std::predicate<std::string_view> OnText>
GenerateResult generate_text(D& decoder, const Tokenizer& tokenizer, std::string_view prompt,
                             Picker&& sampler, GenerateOptions options, OnText&& on_text) {
  const std::vector<TokenId> tokens = encode_prompt(tokenizer, prompt);
  if (const auto eos = tokenizer.eos_id()) options.stop_tokens.push_back(*eos);
  return generate(decoder, std::span<const TokenId>(tokens), sampler, options,
                  detail::ContinuationPieces(tokenizer, tokens), on_text);
}
template <class D, Sampler<typename D::scalar> Picker>
GenerateResult generate_text(D& decoder, const Tokenizer& tokenizer, std::string_view prompt,
                             Picker&& sampler, GenerateOptions options = {}) {
  return generate_text(decoder, tokenizer, prompt, sampler, std::move(options),
                       [](std::string_view) { return true; });
}

}  // namespace kvdecode

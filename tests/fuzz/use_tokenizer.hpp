// SPDX-License-Identifier: MIT
// What has to hold of any tokenizer that was accepted, whatever it was read from.
#pragma once

#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/streaming_detokenizer.hpp>
#include <kvdecode/text/tokenizer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz.hpp"

namespace fuzz {

inline std::optional<std::string> streamed(const kvdecode::Tokenizer& tokenizer,
                                           const std::vector<kvdecode::TokenId>& ids,
                                           kvdecode::DetokenizeOptions options) {
  kvdecode::StreamingDetokenizer detokenizer(tokenizer, options);
  std::string text;
  const auto add = [&](std::string_view piece) {
    require(kvdecode::detail::is_utf8(piece), "every piece is UTF-8");
    text += piece;
  };
  const bool is_whole = accepts([&] {
    for (const kvdecode::TokenId id : ids) add(detokenizer.push(id));
    add(detokenizer.flush());
  });
  return is_whole ? std::optional(text) : std::nullopt;
}

inline void check_decode(const kvdecode::Tokenizer& tokenizer, const std::vector<kvdecode::TokenId>& ids) {
  for (const bool skip_special : {true, false}) {
    const kvdecode::DetokenizeOptions options{skip_special};
    std::optional<std::string> text;
    accepts([&] { text = tokenizer.decode(ids, options); });
    require(text == streamed(tokenizer, ids, options), "streamed text is decoded text");
  }
}

inline void check_encode(const kvdecode::Tokenizer& tokenizer, std::string_view text) {
  for (const bool special_as_text : {false, true}) {
    std::vector<kvdecode::TokenId> ids;
    const bool is_encoded = accepts([&] {
      ids = tokenizer.encode(text, {.add_special_tokens = true, .special_as_text = special_as_text});
    });
    if (!is_encoded) continue;
    require(kvdecode::detail::is_utf8(text), "what is encoded is UTF-8");
    for (const kvdecode::TokenId id : ids)
      require(id >= 0 && id < tokenizer.vocab_size(), "what comes out are tokens");
    check_decode(tokenizer, ids);
  }
}

inline void use_tokenizer(const kvdecode::Tokenizer& tokenizer, std::string_view text) {
  check_encode(tokenizer, text);
  check_encode(tokenizer, text.substr(0, kvdecode::detail::utf8_valid_prefix(text)));
  std::vector<kvdecode::TokenId> ids = {-1, 0, 2147483647};
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  check_decode(tokenizer, ids);
  for (kvdecode::TokenId id = 0; id < std::min<kvdecode::Index>(tokenizer.vocab_size(), 1000); ++id) {
    const std::string_view piece = tokenizer.piece(id);
    if (piece.empty()) continue;
    const std::optional<kvdecode::TokenId> found = tokenizer.id_of(piece);
    require(found && tokenizer.piece(*found) == piece, "a piece has an id");
  }
}

}  // namespace fuzz

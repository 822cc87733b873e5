// SPDX-License-Identifier: MIT
// tokenizer.json and, behind a zero byte, a text to encode; without one, the file itself is the text.
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/streaming_detokenizer.hpp>
#include <kvdecode/text/tokenizer.hpp>
#include <kvdecode/text/tokenizer_json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz.hpp"

using kvdecode::DetokenizeOptions;
using kvdecode::Index;
using kvdecode::TokenId;
using kvdecode::Tokenizer;
using kvdecode::detail::is_utf8;

namespace {

std::optional<std::string> streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                                    DetokenizeOptions options) {
  kvdecode::StreamingDetokenizer detokenizer(tokenizer, options);
  std::string text;
  const auto add = [&](std::string_view piece) {
    fuzz::require(is_utf8(piece), "every piece is UTF-8");
    text += piece;
  };
  const bool is_whole = fuzz::accepts([&] {
    for (const TokenId id : ids) add(detokenizer.push(id));
    add(detokenizer.flush());
  });
  return is_whole ? std::optional(text) : std::nullopt;
}

void check_decode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  for (const bool skip_special : {true, false}) {
    const DetokenizeOptions options{skip_special};
    std::optional<std::string> text;
    fuzz::accepts([&] { text = tokenizer.decode(ids, options); });
    fuzz::require(text == streamed(tokenizer, ids, options), "streamed text is decoded text");
  }
}

void check_encode(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool special_as_text : {false, true}) {
    std::vector<TokenId> ids;
    const bool is_encoded = fuzz::accepts([&] {
      ids = tokenizer.encode(text, {.add_special_tokens = true, .special_as_text = special_as_text});
    });
    if (!is_encoded) continue;
    fuzz::require(is_utf8(text), "what is encoded is UTF-8");
    for (const TokenId id : ids)
      fuzz::require(id >= 0 && id < tokenizer.vocab_size(), "what comes out are tokens");
    check_decode(tokenizer, ids);
  }
}

void use(const Tokenizer& tokenizer, std::string_view text) {
  check_encode(tokenizer, text);
  check_encode(tokenizer, text.substr(0, kvdecode::detail::utf8_valid_prefix(text)));
  std::vector<TokenId> ids = {-1, 0, 2147483647};
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  check_decode(tokenizer, ids);
  for (TokenId id = 0; id < std::min<Index>(tokenizer.vocab_size(), 1000); ++id) {
    const std::string_view piece = tokenizer.piece(id);
    if (piece.empty()) continue;
    const std::optional<TokenId> found = tokenizer.id_of(piece);
    fuzz::require(found && tokenizer.piece(*found) == piece, "a piece has an id");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMaxText = 2000;  // bytes
  const fuzz::HeapBytes heap({data, size});
  const std::string_view input = fuzz::as_text(heap.bytes);
  const std::size_t end = std::min(input.find('\0'), size);
  const std::string_view file = input.substr(0, end);
  const std::string_view text = (end < size ? input.substr(end + 1) : file).substr(0, kMaxText);
  // Some tables have an entry for each of 65536 ids, and an expression may have 16 MiB to match with.
  fuzz::within(1024 * size + (std::size_t{32} << 20),
               [&] { fuzz::accepts([&] { use(Tokenizer(kvdecode::read_tokenizer_json(file)), text); }); });
  return 0;
}

// SPDX-License-Identifier: MIT
// <kvdecode/text/detail/byte_alphabet.hpp> - the 256 printable characters that stand for bytes in the
// vocabularies of byte-level tokenizers (Radford 2019, GPT-2).
#pragma once

#include <kvdecode/core/types.hpp>
#include <kvdecode/text/detail/utf8.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

constexpr std::size_t kByteAlphabetEnd = 256 + 68;  // one past the largest code point of the alphabet

/// True for bytes that stand for themselves: the printable ones of Latin-1. The others take 256, 257, … in
/// order.
constexpr bool is_own_letter(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<std::uint16_t, 256> make_byte_letters() {
  std::array<std::uint16_t, 256> letters{};
  std::uint16_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    letters[byte] = is_own_letter(byte) ? static_cast<std::uint16_t>(byte) : next++;
  }
  return letters;
}

constexpr std::array<std::int16_t, kByteAlphabetEnd> make_letter_bytes() {
  std::array<std::int16_t, kByteAlphabetEnd> bytes{};
  for (auto& byte : bytes) byte = -1;
  const auto letters = make_byte_letters();
  for (unsigned byte = 0; byte < 256; ++byte) bytes[letters[byte]] = static_cast<std::int16_t>(byte);
  return bytes;
}

inline constexpr std::array<std::uint16_t, 256> kByteLetters = make_byte_letters();  // byte -> code point
inline constexpr std::array<std::int16_t, kByteAlphabetEnd> kLetterBytes =
    make_letter_bytes();  // and back, or -1

/// Appends the letters of the bytes of `text`.
inline void append_byte_letters(std::string& out, std::string_view text) {
  for (const char c : text) utf8_append(out, kByteLetters[static_cast<unsigned char>(c)]);
}

/// Appends the bytes that the letters of `token` stand for, or `token` as it is if a character is no letter.
/// @pre `token` is well-formed.
inline void append_letter_bytes(std::string& out, std::string_view token) {
  const std::size_t before = out.size();
  for (std::size_t i = 0; i < token.size();) {
    const char32_t c = utf8_next(token, i);
    if (c >= kByteAlphabetEnd || kLetterBytes[c] < 0) {
      out.resize(before);
      out += token;
      return;
    }
    out += static_cast<char>(static_cast<unsigned char>(kLetterBytes[c]));
  }
}

}  // namespace detail
}  // namespace kvdecode

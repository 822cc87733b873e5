// SPDX-License-Identifier: MIT
// <kvdecode/text/detail/utf8.hpp> - reading, writing and repairing UTF-8. Malformed input is never an error
// here: it is classified, and whoever reads decides.
#pragma once

#include <kvdecode/core/types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

/// What stands at the start of some bytes.
struct Utf8Head {
  enum class Kind {
    kCharacter,   ///< one well-formed character of `length` bytes
    kMalformed,   ///< `length` bytes that no continuation can repair (a maximal subpart: one U+FFFD)
    kIncomplete,  ///< all bytes there are begin a character whose rest is missing
  };
  Kind kind;
  std::size_t length;   // bytes
  char32_t code_point;  // only for kCharacter
};

/// Classifies the start of non-empty `bytes` (Unicode 15, table 3-7: no surrogates, no overlong forms).
inline Utf8Head utf8_head(std::string_view bytes) noexcept {
  using Kind = Utf8Head::Kind;
  const auto byte = [bytes](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {Kind::kCharacter, 1, first};
  if (first < 0xC2 || first > 0xF4) return {Kind::kMalformed, 1, 0};
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  char32_t code_point = first & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Kind::kIncomplete, i, 0};
    unsigned low = 0x80;
    unsigned high = 0xBF;
    if (i == 1) {
      if (first == 0xE0) low = 0xA0;
      if (first == 0xED) high = 0x9F;
      if (first == 0xF0) low = 0x90;
      if (first == 0xF4) high = 0x8F;
    }
    if (byte(i) < low || byte(i) > high) return {Kind::kMalformed, i, 0};
    code_point = (code_point << 6) | (byte(i) & 0x3Fu);
  }
  return {Kind::kCharacter, length, code_point};
}

/// The number of leading bytes of `text` that are whole, well-formed characters.
inline std::size_t utf8_valid_prefix(std::string_view text) noexcept {
  std::size_t i = 0;
  while (i < text.size()) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const Utf8Head head = utf8_head(text.substr(i));
    if (head.kind != Utf8Head::Kind::kCharacter) break;
    i += head.length;
  }
  return i;
}

inline bool is_utf8(std::string_view text) noexcept { return utf8_valid_prefix(text) == text.size(); }

/// The bytes of the character that begins with `first`. @pre a well-formed character begins there.
inline std::size_t utf8_length(char first) noexcept {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// The code point at `i`, which moves past it. @pre `text` is well-formed and a character begins at `i`.
inline char32_t utf8_next(std::string_view text, std::size_t& i) noexcept {
  const Utf8Head head = utf8_head(text.substr(i));
  i += std::max<std::size_t>(head.length, 1);
  return head.code_point;
}

/// Appends `code_point` in UTF-8. @pre it is a Unicode scalar value.
inline void utf8_append(std::string& text, char32_t code_point) {
  const auto put = [&text](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

/// Bytes in, well-formed UTF-8 out: each maximal malformed subpart becomes one U+FFFD, and a character that
/// arrives in parts is held back (at most 3 bytes) until it is whole.
class Utf8Repair {
 public:
  /// Appends to `out` what `bytes` make certain.
  void push(std::string_view bytes, std::string& out) {
    while (n_held_ > 0 && !bytes.empty()) {
      held_[n_held_++] = bytes.front();
      bytes.remove_prefix(1);
      settle(out);
    }
    while (!bytes.empty()) {
      const std::size_t valid = utf8_valid_prefix(bytes);
      out.append(bytes.substr(0, valid));
      bytes.remove_prefix(valid);
      if (bytes.empty()) return;
      const Utf8Head head = utf8_head(bytes);
      if (head.kind == Utf8Head::Kind::kIncomplete) {
        std::copy(bytes.begin(), bytes.end(), held_);
        n_held_ = bytes.size();
        return;
      }
      out += kReplacementCharacter;
      bytes.remove_prefix(head.length);
    }
  }

  /// Appends to `out` what is left: one U+FFFD for a character that never came to its end.
  void finish(std::string& out) {
    if (n_held_ > 0) out += kReplacementCharacter;
    n_held_ = 0;
  }

 private:
  // The last held byte is new: it completes the character, prolongs it, or shows that it is none.
  void settle(std::string& out) {
    const std::string_view held(held_, n_held_);
    const Utf8Head head = utf8_head(held);
    if (head.kind == Utf8Head::Kind::kIncomplete) return;
    if (head.kind == Utf8Head::Kind::kCharacter) {
      out += held;
      n_held_ = 0;
      return;
    }
    const char last = held.back();  // what came before it is one malformed subpart; it may begin a character
    out += kReplacementCharacter;
    n_held_ = 0;
    push(std::string_view(&last, 1), out);
  }

  char held_[4] = {};
  std::size_t n_held_ = 0;
};

}  // namespace detail
}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/characters.hpp> - texts by character: case, classes, white space and positions as
// Python's str has them.
#pragma once

#include <kvdecode/text/detail/unicode.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/jinja/meter.hpp>
#include <kvdecode/text/jinja/value.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

/// Calls visit(code point, its bytes) for every character; false from it stops.
template <class Visitor>
requires std::predicate<Visitor&, char32_t, std::string_view>
void for_each_char(std::string_view text, Visitor&& visit) {
  std::size_t i = 0;
  while (i < text.size()) {
    const std::size_t begin = i;
    const char32_t c = kvdecode::detail::utf8_next(text, i);
    if (!visit(c, text.substr(begin, i - begin))) return;
  }
}

/// What str.isspace() accepts.
inline bool is_space(char32_t c) noexcept {
  return kvdecode::detail::is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}
inline bool is_upper(char32_t c) noexcept {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return kvdecode::detail::category(c) == UTF8PROC_CATEGORY_LU;
}
inline bool is_title(char32_t c) noexcept {
  return c >= 0x80 && kvdecode::detail::category(c) == UTF8PROC_CATEGORY_LT;
}
inline bool is_lower(char32_t c) noexcept {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return kvdecode::detail::category(c) == UTF8PROC_CATEGORY_LL;
}
inline bool is_letter(char32_t c) noexcept {
  if (c < 0x80) return is_lower(c) || is_upper(c);
  const auto kind = kvdecode::detail::category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}
inline bool is_decimal(char32_t c) noexcept {
  if (c < 0x80) return c >= '0' && c <= '9';
  return kvdecode::detail::category(c) == UTF8PROC_CATEGORY_ND;
}
inline bool is_cased(char32_t c) noexcept { return is_upper(c) || is_lower(c) || is_title(c); }

inline void append_upper(std::string& text, char32_t c) {
  if (c == 0xDF) {
    text += "SS";
    return;
  }
  kvdecode::detail::utf8_append(text,
                                static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

inline std::string to_upper(std::string_view text) {
  std::string result;
  for_each_char(text, [&](char32_t c, std::string_view) {
    append_upper(result, c);
    return true;
  });
  return result;
}
inline std::string to_lower(std::string_view text) {
  std::string result;
  bool after_letter = false;
  for_each_char(text, [&](char32_t c, std::string_view bytes) {
    if (c == 0x3A3 && after_letter) {  // a sigma at the end of a word has a form of its own
      const auto rest = static_cast<std::size_t>(bytes.data() + bytes.size() - text.data());
      std::size_t next = rest;
      const bool at_end = rest == text.size() || !is_letter(kvdecode::detail::utf8_next(text, next));
      kvdecode::detail::utf8_append(result, at_end ? 0x3C2 : 0x3C3);
    } else {
      kvdecode::detail::append_lower(result, c);
    }
    after_letter = is_letter(c);
    return true;
  });
  return result;
}
inline std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  std::size_t first = 0;
  kvdecode::detail::utf8_next(text, first);
  return to_upper(text.substr(0, first)) + to_lower(text.substr(first));
}

/// Removes from the ends what `drops` accepts.
template <class Predicate>
requires std::predicate<Predicate&, char32_t> std::string_view strip_if(std::string_view text, bool left,
                                                                        bool right, Predicate&& drops) {
  while (left && !text.empty()) {
    std::size_t length = 0;
    if (!drops(kvdecode::detail::utf8_next(text, length))) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0u) == 0x80u) --begin;
    std::size_t at = begin;
    if (!drops(kvdecode::detail::utf8_next(text, at))) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

/// str.strip(characters), lstrip, rstrip; white space if `characters` is null.
inline std::string_view strip(Meter& meter, std::string_view text, const String* characters, bool left,
                              bool right) {
  meter.step(text.size());
  if (characters == nullptr) return strip_if(text, left, right, is_space);
  return strip_if(text, left, right, [&](char32_t c) {
    meter.step(characters->text.size());
    std::string one;
    kvdecode::detail::utf8_append(one, c);
    return characters->text.find(one) != std::string::npos;
  });
}

/// The byte at which character `index` begins. @pre 0 <= index <= n_chars
inline std::size_t byte_of_char(const String& string, Index index) {
  if (string.is_ascii() || string.is_bytes) return static_cast<std::size_t>(index);
  std::size_t at = 0;
  for (; index > 0; --index) at += kvdecode::detail::utf8_length(string.text[at]);
  return at;
}

/// Counts a search for `wanted` in `text`, which in the worst case compares it at each place.
inline void count_search(Meter& meter, std::string_view text, std::string_view wanted) {
  meter.step(text.size() * std::max<std::size_t>(wanted.size(), 1));
}

inline void append_html_escaped(TextBuilder& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '&': out.append("&amp;"); break;
      case '<': out.append("&lt;"); break;
      case '>': out.append("&gt;"); break;
      case '"': out.append("&#34;"); break;
      case '\'': out.append("&#39;"); break;
      default: out.append(1, c);
    }
  }
}

}  // namespace jinja
}  // namespace kvdecode

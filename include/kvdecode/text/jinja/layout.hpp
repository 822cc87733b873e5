// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/layout.hpp> - filters that lay text out: wrapping, truncating, indenting, titles,
// tags, addresses, sizes.
#pragma once

#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/jinja/characters.hpp>
#include <kvdecode/text/jinja/meter.hpp>
#include <kvdecode/text/jinja/numbers.hpp>
#include <kvdecode/text/jinja/value.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

/// The first `n_chars` characters.
inline std::string_view first_chars(std::string_view text, Index n_chars) {
  std::size_t end = 0;
  for (; n_chars > 0 && end < text.size(); --n_chars) end += kvdecode::detail::utf8_length(text[end]);
  return text.substr(0, end);
}

/// A capital after each space, hyphen or opening bracket, small letters elsewhere.
inline std::string title_words(std::string_view text) {
  std::string result;
  bool starts_word = true;
  for_each_char(text, [&](char32_t c, std::string_view) {
    const bool divides = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    if (starts_word) {
      append_upper(result, c);
    } else {
      kvdecode::detail::append_lower(result, c);
    }
    starts_word = divides;
    return true;
  });
  return result;
}

/// Without comments and tags, and with single spaces; entities of the escape filter are read back.
inline std::string without_tags(std::string_view text) {
  std::string bare;
  for (std::size_t i = 0; i < text.size();) {
    const bool is_comment = text.substr(i, 4) == "<!--";
    if (text[i] == '<') {
      const std::size_t end = text.find(is_comment ? "-->" : ">", i);
      if (end != std::string_view::npos) {
        i = end + (is_comment ? 3 : 1);
        continue;
      }
    }
    bare += text[i++];
  }
  std::string spaced;
  bool needs_space = false;
  for_each_char(bare, [&](char32_t c, std::string_view bytes) {
    if (is_space(c)) {
      needs_space = !spaced.empty();
      return true;
    }
    if (needs_space) spaced += ' ';
    needs_space = false;
    spaced += bytes;
    return true;
  });
  struct Entity {
    std::string_view name;
    char character;
  };
  constexpr Entity kEntities[] = {{"&lt;", '<'},  {"&gt;", '>'},   {"&quot;", '"'},
                                  {"&#34;", '"'}, {"&#39;", '\''}, {"&amp;", '&'}};
  std::string result;
  for (std::size_t i = 0; i < spaced.size();) {
    const Entity* found = nullptr;
    for (const Entity& entity : kEntities) {
      if (std::string_view(spaced).substr(i, entity.name.size()) == entity.name) found = &entity;
    }
    result += found != nullptr ? found->character : spaced[i];
    i += found != nullptr ? found->name.size() : 1;
  }
  return result;
}

inline Integer count_words(std::string_view text) {
  Integer n = 0;
  bool in_word = false;
  for_each_char(text, [&](char32_t c, std::string_view) {
    const bool is_word = c == '_' || is_letter(c) || kvdecode::detail::is_numeric(c);
    if (is_word && !in_word) ++n;
    in_word = is_word;
    return true;
  });
  return n;
}

/// At most `length` characters, with `end` in the place of what is cut; a few more are let through.
inline std::string truncated_text(std::string_view text, Index length, bool cuts_words, std::string_view end,
                                  Index leeway) {
  const Index n_end = count_chars(end);
  if (length < n_end) fail("expected length >= ", n_end, ", got ", length);
  if (leeway < 0) fail("expected leeway >= 0, got ", leeway);
  if (count_chars(text) - leeway <= length) return std::string(text);
  std::string_view kept = first_chars(text, length - n_end);
  if (!cuts_words) kept = kept.substr(0, std::min(kept.rfind(' '), kept.size()));
  return std::string(kept) + std::string(end);
}

/// Lines of at most `width` characters, each line of the text on its own.
inline void wrap_words(TextBuilder& out, std::string_view text, Index width, bool breaks_words,
                       std::string_view line_end, bool breaks_hyphens) {
  if (width <= 0) fail("invalid width ", width, " (must be > 0)");
  bool is_first_line = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!is_first_line) out.append(line_end);
    is_first_line = false;
    Index column = 0;
    std::string_view spaces;
    bool is_new = true;
    while (!line.empty()) {
      const std::size_t n_spaces = std::min(line.find_first_not_of(' '), line.size());
      std::size_t n_word = std::min(line.find(' ', n_spaces), line.size()) - n_spaces;
      if (breaks_hyphens) {
        const std::size_t hyphen = line.substr(n_spaces, n_word).find('-', 1);
        if (hyphen != std::string_view::npos && hyphen + 1 < n_word) n_word = hyphen + 1;
      }
      spaces = line.substr(0, n_spaces);
      std::string_view word = line.substr(n_spaces, n_word);
      line.remove_prefix(n_spaces + n_word);
      if (word.empty()) break;
      const Index length = count_chars(word);
      const Index gap = static_cast<Index>(n_spaces);
      if (column + gap + length <= width) {
        out.append(spaces);
        out.append(word);
        column += gap + length;
        is_new = false;
        continue;
      }
      if (length > width && breaks_words) {
        if (column + gap < width && !is_new) {
          out.append(spaces);
          column += gap;
        } else if (!is_new) {
          out.append(line_end);
          column = 0;
        }
        while (!word.empty()) {
          const std::string_view part = first_chars(word, width - column);
          out.append(part);
          column += count_chars(part);
          word.remove_prefix(part.size());
          if (word.empty()) break;
          out.append(line_end);
          column = 0;
        }
        is_new = false;
        continue;
      }
      if (!is_new) out.append(line_end);
      out.append(word);
      column = length;
      is_new = false;
    }
  }
}

/// Puts `margin` in front of the lines, of the first and of empty ones on request.
inline void indent_lines(TextBuilder& out, std::string_view text, std::string_view margin, bool first,
                         bool blank) {
  bool is_first = true;
  for (;;) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (is_first ? first : blank || !line.empty()) out.append(margin);
    out.append(line);
    is_first = false;
    if (end == text.size()) return;
    out.append("\n");
    text.remove_prefix(end + 1);
  }
}

/// Percent-encodes; in a query a space is a plus and a slash is encoded too.
inline void append_url_quoted(TextBuilder& out, std::string_view text, bool is_query) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = byte < 0x80 && ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
                                          std::string_view("_.-~").find(c) != std::string_view::npos);
    if (is_plain || (c == '/' && !is_query)) {
      out.append(1, c);
    } else if (c == ' ' && is_query) {
      out.append("+");
    } else {
      const char escaped[] = {'%', kHex[byte >> 4], kHex[byte & 15]};
      out.append({escaped, 3});
    }
  }
}

inline std::string file_size_text(double bytes, bool binary) {
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return "1 Byte";
  if (bytes < base) return integer_text(truncated(bytes)) + " Bytes";
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  std::size_t i = 0;
  while (i + 1 < kPrefixes.size() && bytes >= unit * base) {
    unit *= base;
    ++i;
  }
  const char letter = binary && i == 0 ? 'K' : kPrefixes[i];
  return float_text(bytes / unit, 'f', 1) + " " + std::string(1, letter) + (binary ? "iB" : "B");
}

}  // namespace jinja
}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/text/detail/unicode.hpp> - character classes, case and normal forms, from utf8proc's tables.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/detail/utf8.hpp>

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline utf8proc_category_t category(char32_t c) noexcept {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

/// The White_Space property.
inline bool is_white_space(char32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

/// Category N.
inline bool is_numeric(char32_t c) noexcept {
  if (c < 0x80) return c >= '0' && c <= '9';
  const utf8proc_category_t k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

/// Category P, or an ASCII character that is neither letter, digit, space nor control.
inline bool is_punctuation(char32_t c) noexcept {
  if (c < 0x80) return c > 0x20 && c < 0x7F && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z') && !is_numeric(c);
  const utf8proc_category_t k = category(c);
  return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

/// Category M.
inline bool is_mark(char32_t c) noexcept {
  if (c < 0x300) return false;
  const utf8proc_category_t k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

/// Control, format, private use (Cc, Cf, Co), tab and line ends excepted.
inline bool is_control(char32_t c) noexcept {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  const utf8proc_category_t k = category(c);
  return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO;
}

/// The ideographs that BERT sets apart.
inline bool is_bert_ideograph(char32_t c) noexcept {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

inline bool is_ascii(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

/// Appends the lower case of `c`, by character: U+0130 is the one that becomes two.
inline void append_lower(std::string& text, char32_t c) {
  if (c == 0x130) {
    text += "i\xCC\x87";
    return;
  }
  utf8_append(text, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

/// Unicode's normal forms (UAX 15).
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

/// `text` in `form`. O(n log n) also for long runs of combining marks, which utf8proc's own reordering sorts
/// in O(n²); its tables and its composition are used. @pre `text` is well-formed.
inline std::string normal_form(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const auto decompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                        (compatible ? UTF8PROC_COMPAT : 0));

  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<utf8proc_int32_t>(utf8_next(text, i));
    if (c < 0x80) {
      points.push_back(c);
      continue;
    }
    utf8proc_int32_t parts[32];  // the longest decomposition has 18
    int boundary_class = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char(c, parts, 32, decompose, &boundary_class);
    if (n < 0 || n > 32) [[unlikely]] {
      raise(ErrorCode::kUnsupported, "Unicode normalization failed at code point ", c);
    }
    points.insert(points.end(), parts, parts + n);
  }

  const auto combining_class = [](utf8proc_int32_t c) {
    return c < 0x300 ? utf8proc_propval_t{0} : utf8proc_get_property(c)->combining_class;
  };
  for (auto first = points.begin(); first != points.end();) {
    if (combining_class(*first) == 0) {
      ++first;
      continue;
    }
    auto last = first;
    while (last != points.end() && combining_class(*last) != 0) ++last;
    std::stable_sort(first, last, [&](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    first = last;
  }

  auto n_points = static_cast<utf8proc_ssize_t>(points.size());
  if (composed) {
    const auto compose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    n_points = utf8proc_normalize_utf32(points.data(), n_points, compose);
    if (n_points < 0) [[unlikely]]
      raise(ErrorCode::kUnsupported, "Unicode composition failed");
  }
  std::string result;
  result.reserve(text.size() + text.size() / 2);
  for (utf8proc_ssize_t i = 0; i < n_points; ++i) {
    utf8_append(result, static_cast<char32_t>(points[static_cast<std::size_t>(i)]));
  }
  return result;
}

}  // namespace detail
}  // namespace kvdecode

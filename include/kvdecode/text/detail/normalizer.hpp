// SPDX-License-Identifier: MIT
// <kvdecode/text/detail/normalizer.hpp> - the normalizer steps of a TokenizerSpec, compiled and applied to
// one section of text at a time.
#pragma once

#include <kvdecode/text/detail/byte_alphabet.hpp>
#include <kvdecode/text/detail/pattern.hpp>
#include <kvdecode/text/detail/unicode.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/tokenizer_spec.hpp>

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(const std::vector<NormalizerStep>& steps) {
    steps_.reserve(steps.size());
    for (const NormalizerStep& step : steps) {
      steps_.push_back(
          {step, step.kind == NormalizerStep::Kind::kReplace ? Pattern(step.pattern) : Pattern()});
    }
  }

  bool empty() const noexcept { return steps_.empty(); }

  /// Normalizes `text` in place. False if its first character was removed, so that what now stands at its
  /// start was not the start. @pre well-formed UTF-8, and so is the result.
  bool apply(std::string& text, RegexScratch& scratch) const {
    bool keeps_start = true;
    const std::size_t original = text.size();
    for (const Step& step : steps_) {
      keeps_start = apply(step, text, scratch) && keeps_start;
      check_growth(text.size(), original);
    }
    return keeps_start;
  }

 private:
  struct Step {
    NormalizerStep spec;
    Pattern pattern;
  };

  // Calls f(code point, result) for each character; true if the first one left something.
  template <std::invocable<char32_t, std::string&> F>
  static bool map_characters(std::string& text, F&& f) {
    std::string result;
    result.reserve(text.size());
    bool keeps_start = true;
    for (std::size_t i = 0; i < text.size();) {
      const bool is_first = i == 0;
      f(utf8_next(text, i), result);
      if (is_first) keeps_start = !result.empty();
    }
    text = std::move(result);
    return keeps_start;
  }

  static bool apply(const Step& step, std::string& text, RegexScratch& scratch) {
    using Kind = NormalizerStep::Kind;
    const NormalizerStep& spec = step.spec;
    switch (spec.kind) {
      case Kind::kNfc: text = normal_form(text, NormalForm::kNfc); return true;
      case Kind::kNfd: text = normal_form(text, NormalForm::kNfd); return true;
      case Kind::kNfkc: text = normal_form(text, NormalForm::kNfkc); return true;
      case Kind::kNfkd: text = normal_form(text, NormalForm::kNfkd); return true;
      case Kind::kLowercase:
        return map_characters(text, [](char32_t c, std::string& out) { append_lower(out, c); });
      case Kind::kStrip: return strip(text, spec.strip_left, spec.strip_right);
      case Kind::kStripAccents:
        return map_characters(text, [](char32_t c, std::string& out) {
          if (!is_mark(c)) utf8_append(out, c);
        });
      case Kind::kPrepend:
        if (!text.empty()) text.insert(0, spec.content);
        return true;
      case Kind::kReplace: return replace(step.pattern, spec.content, text, scratch);
      case Kind::kNmt: return map_characters(text, [](char32_t c, std::string& out) { append_nmt(out, c); });
      case Kind::kByteLevel: {
        std::string letters;
        letters.reserve(text.size() + text.size() / 2);
        append_byte_letters(letters, text);
        text = std::move(letters);
        return true;
      }
      case Kind::kBert: return bert(spec, text);
    }
    return true;
  }

  static bool strip(std::string& text, bool left, bool right) {
    std::size_t begin = 0;
    std::size_t end = 0;  // behind the last character that is no white space
    bool seen = false;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t at = i;
      if (is_white_space(utf8_next(text, i))) continue;
      if (!seen) begin = at;
      seen = true;
      end = i;
    }
    if (!seen) {
      if (left || right) text.clear();
      return true;
    }
    if (right) text.resize(end);
    if (left) text.erase(0, begin);
    return !left || begin == 0;
  }

  static bool replace(const Pattern& pattern, const std::string& content, std::string& text,
                      RegexScratch& scratch) {
    bool keeps_start = true;
    if (content.empty()) {
      pattern.for_each_match(text, scratch, [&](std::size_t begin, std::size_t end) {
        if (begin == 0 && end > 0) keeps_start = false;
      });
    }
    text = replace_all(text, pattern, content, scratch);
    return keeps_start;
  }

  static void append_nmt(std::string& out, char32_t c) {
    if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
        c == 0x9F) {
      return;
    }
    if (c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
        c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD) {
      out += ' ';
      return;
    }
    utf8_append(out, c);
  }

  static bool bert(const NormalizerStep& spec, std::string& text) {
    bool keeps_start = true;
    if (spec.clean_text) {
      keeps_start = map_characters(text, [](char32_t c, std::string& out) {
        if (c == 0 || c == 0xFFFD || is_control(c)) return;
        if (is_white_space(c)) {
          out += ' ';
        } else {
          utf8_append(out, c);
        }
      });
    }
    if (spec.handle_chinese_chars) {
      map_characters(text, [](char32_t c, std::string& out) {
        if (!is_bert_ideograph(c)) return utf8_append(out, c);
        out += ' ';
        utf8_append(out, c);
        out += ' ';
      });
    }
    if (spec.strip_accents) {
      text = normal_form(text, NormalForm::kNfd);
      keeps_start = map_characters(text,
                                   [](char32_t c, std::string& out) {
                                     if (category(c) != UTF8PROC_CATEGORY_MN) utf8_append(out, c);
                                   }) &&
                    keeps_start;
    }
    if (spec.lowercase) map_characters(text, [](char32_t c, std::string& out) { append_lower(out, c); });
    return keeps_start;
  }

  std::vector<Step> steps_;
};

}  // namespace detail
}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/lexer.hpp> - a template cut into tokens, with the white-space rules of chat templates:
// trim_blocks, lstrip_blocks, one line end at the very end dropped.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/jinja/characters.hpp>
#include <kvdecode/text/jinja/value.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

/// Throws what is wrong with the text of a template.
template <class... Parts>
[[noreturn]] void fail_syntax(Index line, const Parts&... parts) {
  kvdecode::detail::raise(ErrorCode::kBadFile, "chat template: line ", line, ": ", parts...);
}

struct Token {
  enum class Kind : std::uint8_t {
    kData,
    kBlockBegin,
    kBlockEnd,
    kVariableBegin,
    kVariableEnd,
    kName,
    kInteger,
    kFloat,
    kString,  // with its quotes
    kOperator,
    kEnd,
    kError,  // `text` says what
  };
  Kind kind = Kind::kEnd;
  Index line = 1;
  std::string_view text;  // part of the source
};

/// Line ends as \n, and the last one dropped.
inline std::string normalized_source(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// Cuts a normalized source. What cannot be cut is an error token at the end: the parser may stop before it.
class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size() && error_.empty()) data();
    if (error_.empty()) push(Token::Kind::kEnd, {});
    return std::move(tokens_);
  }

  /// What the error token says; it has to outlive the tokens.
  const std::string& error() const noexcept { return error_; }

 private:
  static constexpr std::size_t kNone = std::string_view::npos;

  char peek(std::size_t offset = 0) const {
    return at_ + offset < source_.size() ? source_[at_ + offset] : '\0';
  }
  bool is_at(std::string_view text, std::size_t at) const {
    return source_.substr(std::min(at, source_.size()), text.size()) == text;
  }

  void push(Token::Kind kind, std::string_view text) {
    const std::size_t begin = text.empty() ? at_ : static_cast<std::size_t>(text.data() - source_.data());
    if (begin > counted_) {
      line_ += std::count(source_.begin() + static_cast<Index>(counted_),
                          source_.begin() + static_cast<Index>(begin), '\n');
      counted_ = begin;
    }
    tokens_.push_back({kind, line_, text});
  }

  void fail_at(std::string message) {
    push(Token::Kind::kError, {});
    error_ = std::move(message);
  }

  void skip_space() {
    while (at_ < source_.size()) {
      std::size_t next = at_;
      if (!is_space(kvdecode::detail::utf8_next(source_, next))) return;
      at_ = next;
    }
  }

  // Moves past the end of a tag, `close` being "%}", "}}" or "#}"; false if it is not here.
  bool end_tag(std::string_view close, bool trims) {
    if (is_at(close, at_)) {
      at_ += 2;
      if (trims && peek() == '\n') ++at_;
      return true;
    }
    if (peek() == '-' && is_at(close, at_ + 1)) {
      at_ += 3;
      skip_space();
      return true;
    }
    if (trims && peek() == '+' && is_at(close, at_ + 1)) {
      at_ += 3;
      return true;
    }
    return false;
  }

  // Text in front of a tag that begins at `end`, less the white space that the tag's sign or lstrip_blocks takes.
  void push_data(std::size_t begin, std::size_t end, char sign, bool is_variable) {
    std::string_view text = source_.substr(begin, end - begin);
    if (sign == '-') {
      text = strip_if(text, false, true, is_space);
    } else if (sign != '+' && !is_variable) {
      const std::size_t line_begin = text.rfind('\n') + 1;  // 0 if there is no line end
      const bool starts_line = line_begin > 0 || begin == 0 || source_[begin - 1] == '\n';
      if (starts_line && strip_if(text.substr(line_begin), true, false, is_space).empty())
        text = text.substr(0, line_begin);
    }
    if (!text.empty()) push(Token::Kind::kData, text);
  }

  static char sign_of(char c) { return c == '-' || c == '+' ? c : '\0'; }

  void data() {
    std::size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == kNone || tag + 1 >= source_.size()) {
        push(Token::Kind::kData, source_.substr(at_));
        at_ = source_.size();
        return;
      }
      const char second = source_[tag + 1];
      if (second == '{' || second == '%' || second == '#') break;
    }
    const char second = source_[tag + 1];
    const char sign = sign_of(tag + 2 < source_.size() ? source_[tag + 2] : '\0');
    push_data(at_, tag, sign, second == '{');
    at_ = tag + (sign == 0 ? 2 : 3);
    if (second == '#') return comment();
    if (second == '%' && raw()) return;
    push(second == '{' ? Token::Kind::kVariableBegin : Token::Kind::kBlockBegin, {});
    tag_tokens(second == '{');
  }

  void comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == kNone) return fail_at("Missing end of comment tag");
    const char before = end > at_ ? source_[end - 1] : '\0';
    at_ = before == '-' || before == '+' ? end - 1 : end;
    end_tag("#}", true);
  }

  bool raw() {
    const std::size_t begin = at_;
    skip_space();
    const bool is_raw = is_at("raw", at_);
    at_ += is_raw ? 3 : 0;
    if (is_raw) skip_space();
    if (!is_raw || peek() == '+' || !end_tag("%}", false)) {
      at_ = begin;
      return false;
    }
    const std::size_t text_begin = at_;
    for (std::size_t tag = source_.find("{%", at_); tag != kNone; tag = source_.find("{%", tag + 1)) {
      at_ = tag + 2;
      const char sign = sign_of(peek());
      if (sign != 0) ++at_;
      skip_space();
      if (!is_at("endraw", at_)) continue;
      at_ += 6;
      skip_space();
      if (!end_tag("%}", true)) continue;
      const std::size_t end = at_;
      push_data(text_begin, tag, sign, false);
      at_ = end;
      return true;
    }
    at_ = text_begin;
    fail_at("Missing end of raw directive");
    return true;
  }

  void tag_tokens(bool is_variable) {
    std::string open;  // brackets
    while (at_ < source_.size()) {
      const std::size_t begin = at_;
      if (open.empty() && end_tag(is_variable ? "}}" : "%}", !is_variable)) {
        push(is_variable ? Token::Kind::kVariableEnd : Token::Kind::kBlockEnd, source_.substr(begin, 2));
        return;
      }
      skip_space();
      if (at_ != begin) continue;
      if (!token(open)) return;
    }
  }

  // One token of an expression; false if there is none.
  bool token(std::string& open) {
    const std::size_t begin = at_;
    const char c = peek();
    if (is_digit(c)) {
      number();
      return true;
    }
    if (c == '\'' || c == '"') {
      std::size_t end = begin + 1;
      while (end < source_.size() && source_[end] != c) end += source_[end] == '\\' ? 2 : 1;
      if (end >= source_.size()) return unexpected_char();
      at_ = end + 1;
      push(Token::Kind::kString, source_.substr(begin, at_ - begin));
      return true;
    }
    while (at_ < source_.size()) {
      std::size_t next = at_;
      const char32_t letter = kvdecode::detail::utf8_next(source_, next);
      const bool is_word = letter == '_' || is_letter(letter) || kvdecode::detail::is_numeric(letter) ||
                           kvdecode::detail::is_mark(letter);
      if (!is_word) break;
      at_ = next;
    }
    if (at_ > begin) {
      push(Token::Kind::kName, source_.substr(begin, at_ - begin));
      return true;
    }
    constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    const std::string_view two = source_.substr(begin, 2);
    const std::size_t length = std::find(std::begin(kTwo), std::end(kTwo), two) != std::end(kTwo) ? 2 : 1;
    if (length == 1 && (c == '\0' || std::string_view("+-/*%~[](){}><=.:|,;").find(c) == kNone))
      return unexpected_char();
    if (length == 1 && !balance(open, c)) return false;
    at_ += length;
    push(Token::Kind::kOperator, source_.substr(begin, length));
    return true;
  }

  bool balance(std::string& open, char c) {
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '{') open += '}';
    if (c != ')' && c != ']' && c != '}') return true;
    if (open.empty()) {
      fail_at("unexpected '" + std::string(1, c) + "'");
      return false;
    }
    if (open.back() != c) {
      fail_at("unexpected '" + std::string(1, c) + "', expected '" + std::string(1, open.back()) + "'");
      return false;
    }
    open.pop_back();
    return true;
  }

  bool unexpected_char() {
    std::size_t next = at_;
    kvdecode::detail::utf8_next(source_, next);
    const std::string shown(source_.substr(at_, next - at_));
    const std::string quoted = shown == "'" ? "\"'\"" : "'" + shown + "'";
    fail_at("unexpected char " + quoted + " at " + std::to_string(count_chars(source_.substr(0, at_))));
    return false;
  }

  // Digits with single underscores between them, from `at`; where they end.
  template <class Predicate>
  std::size_t digits_end(std::size_t at, Predicate&& accepts) const {
    const auto good = [&](std::size_t i) { return i < source_.size() && accepts(source_[i]); };
    while (good(at) || (at < source_.size() && source_[at] == '_' && good(at + 1))) ++at;
    return at;
  }

  void number() {
    const std::size_t begin = at_;
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';
    const auto at = [&](std::size_t i) { return i < source_.size() ? source_[i] : '\0'; };
    const std::size_t whole = digits_end(begin, is_digit);
    std::size_t end = whole;
    bool is_float = false;
    if (!after_dot) {
      if (at(end) == '.' && is_digit(at(end + 1))) {
        end = digits_end(end + 1, is_digit);
        is_float = true;
      }
      std::size_t power = end + 1;
      if ((at(end) | 32) == 'e') {
        if (at(power) == '+' || at(power) == '-') ++power;
        if (is_digit(at(power))) {
          end = digits_end(power, is_digit);
          is_float = true;
        }
      }
    }
    if (!is_float) {
      const char mark = static_cast<char>(at(begin + 1) | 32);
      const auto prefixed = [&](char wanted, auto&& accepts) {
        if (at(begin) != '0' || mark != wanted) return false;
        std::size_t first = begin + 2;
        if (at(first) == '_') ++first;
        if (first >= source_.size() || !accepts(source_[first])) return false;
        end = digits_end(first, accepts);
        return true;
      };
      const bool has_prefix =
          prefixed('x', [](char c) { return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f'); }) ||
          prefixed('o', [](char c) { return c >= '0' && c <= '7'; }) ||
          prefixed('b', [](char c) { return c == '0' || c == '1'; });
      if (!has_prefix && at(begin) == '0') end = digits_end(begin, [](char c) { return c == '0'; });
    }
    at_ = end;
    push(is_float ? Token::Kind::kFloat : Token::Kind::kInteger, source_.substr(begin, end - begin));
  }

  static bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

  std::string_view source_;
  std::size_t at_ = 0;
  std::size_t counted_ = 0;  // up to where line_ has counted
  Index line_ = 1;
  std::vector<Token> tokens_;
  std::string error_;
};

}  // namespace jinja
}  // namespace kvdecode

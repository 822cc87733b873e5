// SPDX-License-Identifier: MIT
// <kvdecode/text/detail/pattern.hpp> - a TextPattern compiled: literal texts are searched for as they are.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/detail/regex.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/tokenizer_spec.hpp>

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// Refuses a step that makes `size` bytes out of a text of `original` bytes: files may not ask for all memory
/// there is.
inline void check_growth(std::size_t size, std::size_t original) {
  constexpr std::size_t kMaxFactor = 64;
  constexpr std::size_t kFree = 65536;
  if (size > kFree && (size - kFree) / kMaxFactor > original) [[unlikely]] {
    raise(ErrorCode::kUnsupported, "tokenizer: a text of ", original, " bytes becomes one of more than ",
          size, " bytes in a normalizer, pre-tokenizer or decoder");
  }
}

class Pattern {
 public:
  Pattern() = default;
  explicit Pattern(Regex regex) : regex_(std::move(regex)) {}
  explicit Pattern(const TextPattern& pattern) {
    if (pattern.is_regex) {
      regex_.emplace(pattern.text);
    } else if (pattern.text.empty()) {
      regex_.emplace("", Regex::Syntax::kPcre2);  // matches between all characters
    } else {
      literal_ = pattern.text;
    }
  }

  /// The text to search for; empty if it takes an expression.
  const std::string& literal() const noexcept { return literal_; }

  /// Calls f(begin, end) in bytes for each match, left to right, none overlapping.
  template <std::invocable<std::size_t, std::size_t> F>
  void for_each_match(std::string_view text, RegexScratch& scratch, F&& f) const {
    if (regex_) {
      regex_->for_each_match(text, scratch, f);
      return;
    }
    if (literal_.empty()) return;
    for (std::size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, at + literal_.size())) {
      f(at, at + literal_.size());
    }
  }

 private:
  std::string literal_;
  std::optional<Regex> regex_;
};

/// `text` with the matches of `pattern` replaced by `to`.
inline std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view to,
                               RegexScratch& scratch) {
  std::string result;
  std::size_t done = 0;
  pattern.for_each_match(text, scratch, [&](std::size_t begin, std::size_t end) {
    result += text.substr(done, begin - done);
    result += to;
    done = end;
    check_growth(result.size(), text.size());
  });
  result += text.substr(done);
  return result;
}

/// `text` with `from` replaced by `to`; an empty `from` stands before each character and at the end.
inline std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  result.reserve(text.size());
  if (from.empty()) {
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t length = utf8_length(text[i]);
      result += to;
      result += text.substr(i, length);
      i += length;
      check_growth(result.size(), text.size());
    }
    result += to;
    return result;
  }
  std::size_t done = 0;
  for (std::size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
    result += text.substr(done, at - done);
    result += to;
    done = at + from.size();
    check_growth(result.size(), text.size());
  }
  result += text.substr(done);
  return result;
}

}  // namespace detail
}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/text/detail/regex.hpp> - a compiled regular expression and the enumeration of its matches. PCRE2
// with its JIT where there is one; every match is limited, and what exceeds the limits is an Error.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/text/detail/regex_syntax.hpp>
#include <kvdecode/text/detail/utf8.hpp>

#if !defined(PCRE2_CODE_UNIT_WIDTH)
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

struct Pcre2Delete {
  void operator()(pcre2_code_8* p) const noexcept { pcre2_code_free_8(p); }
  void operator()(pcre2_compile_context_8* p) const noexcept { pcre2_compile_context_free_8(p); }
  void operator()(pcre2_match_context_8* p) const noexcept { pcre2_match_context_free_8(p); }
  void operator()(pcre2_match_data_8* p) const noexcept { pcre2_match_data_free_8(p); }
  void operator()(pcre2_jit_stack_8* p) const noexcept { pcre2_jit_stack_free_8(p); }
};

template <class T>
using Pcre2Ptr = std::unique_ptr<T, Pcre2Delete>;

/// What matching writes to: one per thread and call, shared by all expressions. Created at the first match.
class RegexScratch {
 public:
  pcre2_match_data_8* data() {
    if (!data_) data_.reset(checked(pcre2_match_data_create_8(1, nullptr)));
    return data_.get();
  }
  pcre2_match_context_8* context() {
    if (!context_) {
      context_.reset(checked(pcre2_match_context_create_8(nullptr)));
      pcre2_set_heap_limit_8(context_.get(), kHeapLimit);
    }
    return context_.get();
  }
  /// Bounds the steps of one match, in proportion to the text: white space may be gone through once per
  /// alternative.
  void limit_steps(std::size_t n_bytes) {
    const std::size_t limit = std::min<std::size_t>(kMinSteps + kStepsPerByte * n_bytes, 0xFFFFFFFFu);
    pcre2_set_match_limit_8(context(), static_cast<std::uint32_t>(limit));
  }
  /// Replaces the machine stack, of which compiled matching uses 32 KiB, by a larger one. False if that was
  /// done.
  bool grow_stack() {
    if (stack_) return false;
    stack_.reset(checked(pcre2_jit_stack_create_8(std::size_t{1} << 15, std::size_t{1} << 24, nullptr)));
    pcre2_jit_stack_assign_8(context(), nullptr, stack_.get());
    return true;
  }

 private:
  static constexpr std::size_t kMinSteps = 1'000'000;
  static constexpr std::size_t kStepsPerByte = 16;
  static constexpr std::uint32_t kHeapLimit = 1 << 16;  // KiB

  template <class T>
  static T* checked(T* p) {
    if (p == nullptr) throw std::bad_alloc();
    return p;
  }

  Pcre2Ptr<pcre2_match_data_8> data_;
  Pcre2Ptr<pcre2_match_context_8> context_;
  Pcre2Ptr<pcre2_jit_stack_8> stack_;
};

/// An immutable expression; safe on several threads, each with its own RegexScratch.
class Regex {
 public:
  enum class Syntax { kOniguruma, kPcre2 };

  /// @throws Error kUnsupported for what cannot be compiled, with the pattern.
  explicit Regex(std::string_view pattern, Syntax syntax = Syntax::kOniguruma) : pattern_(pattern) {
    const std::string text =
        syntax == Syntax::kOniguruma ? RegexTranslator(pattern).translate() : std::string(pattern);
    const Pcre2Ptr<pcre2_compile_context_8> context(pcre2_compile_context_create_8(nullptr));
    if (!context) throw std::bad_alloc();
    pcre2_set_newline_8(context.get(), PCRE2_NEWLINE_LF);
    pcre2_set_bsr_8(context.get(), PCRE2_BSR_UNICODE);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(text.data()), text.size(),
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                                &offset, context.get()));
    if (!code_)
      raise(ErrorCode::kUnsupported, "regular expression ", in_quotes(pattern_), ": ", message(error));
    pcre2_jit_compile_8(code_.get(), PCRE2_JIT_COMPLETE);  // without a JIT the interpreter matches
  }

  /// Calls f(begin, end) in bytes for each match, left to right. An empty match right after another is left
  /// out, and an empty text has none.
  /// @pre `text` is well-formed UTF-8. @throws Error kUnsupported if a match exceeds the limits.
  template <std::invocable<std::size_t, std::size_t> F>
  void for_each_match(std::string_view text, RegexScratch& scratch, F&& f) const {
    std::size_t at = 0;
    std::size_t last_end = text.size() + 1;  // none yet
    scratch.limit_steps(text.size());
    while (!text.empty() && at <= text.size()) {
      std::size_t begin = 0;
      std::size_t end = 0;
      if (!find(text, at, scratch, begin, end)) return;
      if (begin == end && end == last_end) {
        at = end < text.size() ? end + utf8_length(text[end]) : end + 1;
        continue;
      }
      at = last_end = end;
      f(begin, end);
    }
  }

  /// True if the expression matches somewhere in `text`.
  bool matches(std::string_view text, RegexScratch& scratch) const {
    std::size_t begin = 0;
    std::size_t end = 0;
    scratch.limit_steps(text.size());
    return find(text, 0, scratch, begin, end);
  }

 private:
  bool find(std::string_view text, std::size_t at, RegexScratch& scratch, std::size_t& begin,
            std::size_t& end) const {
    const char* subject = text.data() != nullptr ? text.data() : "";
    const auto match = [&] {
      return pcre2_match_8(code_.get(), reinterpret_cast<PCRE2_SPTR8>(subject), text.size(), at,
                           PCRE2_NO_UTF_CHECK, scratch.data(), scratch.context());
    };
    int result = match();
    if (result == PCRE2_ERROR_JIT_STACKLIMIT && scratch.grow_stack()) result = match();
    if (result == PCRE2_ERROR_NOMATCH) return false;
    if (result < 0) [[unlikely]] {
      raise(ErrorCode::kUnsupported, "regular expression ", in_quotes(pattern_), " gave up at byte ", at,
            " of ", text.size(), ": ", message(result));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer_8(scratch.data());
    begin = ends[0];
    end = ends[1];
    return true;
  }

  static std::string message(int error) {
    char buffer[160];
    const int n = pcre2_get_error_message_8(error, reinterpret_cast<PCRE2_UCHAR8*>(buffer), sizeof buffer);
    return n < 0 ? "PCRE2 error " + std::to_string(error) : std::string(buffer, static_cast<std::size_t>(n));
  }

  std::string pattern_;
  Pcre2Ptr<pcre2_code_8> code_;
};

}  // namespace detail
}  // namespace kvdecode

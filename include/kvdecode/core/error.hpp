// SPDX-License-Identifier: MIT
// <kvdecode/core/error.hpp> - the one exception type, thrown at boundaries with a full sentence.
#pragma once

#include <kvdecode/core/types.hpp>

#include <concepts>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

/// What kind of request failed; the text says what, what was expected and what was found.
enum class ErrorCode {
  kBadArgument,  ///< a value outside what the function's documentation allows
  kCacheFull,    ///< more positions than the cache can hold
  kBadFile,      ///< a file that is missing, truncated, malformed or lies about itself
  kUnsupported,  ///< a valid request that this library does not serve
  kMismatch,     ///< two things that do not belong together (a tensor's shape and its config, …)
};

/// The error's name as in the source, without the k: "CacheFull".
constexpr std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kBadArgument: return "BadArgument";
    case ErrorCode::kCacheFull: return "CacheFull";
    case ErrorCode::kBadFile: return "BadFile";
    case ErrorCode::kUnsupported: return "Unsupported";
    case ErrorCode::kMismatch: return "Mismatch";
  }
  return "?";
}

/// Thrown by every boundary of the library: constructors, loading, `reserve`, prompts.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

namespace detail {

inline void append_text(std::string& text, std::string_view part) { text += part; }
inline void append_text(std::string& text, std::integral auto part) { text += std::to_string(part); }
inline void append_text(std::string& text, std::floating_point auto part) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.9g", static_cast<double>(part));
  text += buffer;
}

/// Throws Error with the parts (texts and numbers) joined. Out of the way of the code that checks.
template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void raise(ErrorCode code, const Parts&... parts) {
  std::string text;
  (append_text(text, parts), ...);
  throw Error(code, text);
}

}  // namespace detail
}  // namespace kvdecode

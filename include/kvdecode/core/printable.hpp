// SPDX-License-Identifier: MIT
// <kvdecode/core/printable.hpp> - texts of strangers as a sentence can hold them: on one line, in ASCII, short.
#pragma once

#include <kvdecode/core/types.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// Appends a character, or what C writes for it where a line cannot hold it.
inline void append_printable(std::string& line, char c) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  if (c == '\n') {
    line += "\\n";
  } else if (c == '\t') {
    line += "\\t";
  } else if (byte < 0x20 || byte > 0x7e) {
    line += "\\x";
    line += kDigits[byte / 16u];
    line += kDigits[byte % 16u];
  } else {
    line += c;
  }
}

/// `text`, whose other characters are escaped; cut after max_bytes.
inline std::string printable(std::string_view text, std::size_t max_bytes = 200) {
  std::string line;
  for (const char c : text.substr(0, max_bytes)) append_printable(line, c);
  return text.size() > max_bytes ? line + "..." : line;
}

/// The same in quotes, with those in it escaped too.
inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMaxShown = 100;  // bytes
  std::string line = "\"";
  for (const char c : text.substr(0, kMaxShown)) {
    if (c == '"' || c == '\\') line += '\\';
    append_printable(line, c);
  }
  line += '"';
  return text.size() > kMaxShown ? line + "..." : line;
}

}  // namespace detail
}  // namespace kvdecode

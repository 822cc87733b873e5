// SPDX-License-Identifier: MIT
// <kvdecode/decode/stop_strings.hpp> - ends a text at the first of some strings, without ever showing a part
// of one: text that may begin a stop string is held back until it is clear that it does not.
#pragma once

#include <kvdecode/core/error.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// Text goes in by pieces and comes out up to the first stop string. O(piece * total length of the strings).
class StopStrings {
 public:
  StopStrings() = default;
  /// @throws Error kBadArgument if a string is empty
  explicit StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
    for (const std::string& s : strings_)
      if (s.empty()) [[unlikely]]
        detail::raise(ErrorCode::kBadArgument, "stop strings must not be empty");
  }

  /// What is certain to belong to the text after this piece; valid until the next call. Nothing once
  /// stopped().
  std::string_view feed(std::string_view piece) {
    held_.erase(0, released_);
    released_ = 0;
    if (stopped_) return {};
    held_ += piece;
    // The one that is complete first, as if the text came byte by byte; of those that end together, the longest.
    std::size_t begin = std::string::npos, end = std::string::npos;
    for (const std::string& s : strings_) {
      const std::size_t at = held_.find(s);
      if (at == std::string::npos || at + s.size() > end || (at + s.size() == end && at > begin)) continue;
      begin = at;
      end = at + s.size();
    }
    if (begin != std::string::npos) {
      stopped_ = true;
      held_.resize(begin);
      return release(begin);
    }
    return release(held_.size() - longest_begun());
  }
  /// The text held back, when no more will come; valid until the next call.
  std::string_view flush() {
    held_.erase(0, released_);
    released_ = 0;
    return stopped_ ? std::string_view{} : release(held_.size());
  }
  bool stopped() const noexcept { return stopped_; }

 private:
  std::string_view release(std::size_t n) {
    released_ = n;
    return std::string_view(held_).substr(0, n);
  }
  /// The longest end of the text that begins a stop string.
  std::size_t longest_begun() const {
    std::size_t longest = 0;
    for (const std::string& s : strings_)
      for (std::size_t n = std::min(s.size() - 1, held_.size()); n > longest; --n)
        if (held_.compare(held_.size() - n, n, s, 0, n) == 0) longest = n;
    return longest;
  }

  std::vector<std::string> strings_;
  std::string held_;
  std::size_t released_ = 0;  // bytes of held_ that the last call returned
  bool stopped_ = false;
};

}  // namespace kvdecode

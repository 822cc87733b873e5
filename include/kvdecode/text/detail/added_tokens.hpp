// SPDX-License-Identifier: MIT
// <kvdecode/text/detail/added_tokens.hpp> - finds added tokens in a text: of those that begin at the leftmost
// place the longest, with what their flags ask of their neighbourhood.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/detail/regex.hpp>
#include <kvdecode/text/detail/unicode.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/tokenizer_spec.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// A set of texts as a trie over bytes. The search costs O(1) for a byte that begins none of them.
class TextTrie {
 public:
  TextTrie() { root_.fill(-1); }

  bool empty() const noexcept { return nodes_.empty(); }

  /// Adds a non-empty text with its value; the first of equal texts stays.
  void insert(std::string_view text, std::int32_t value) {
    std::int32_t node = -1;
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      const std::int32_t first = node < 0 ? root_[byte] : at(node).first_child;
      std::int32_t child = find_sibling(first, byte);
      if (child < 0) {
        child = static_cast<std::int32_t>(nodes_.size());
        nodes_.push_back({byte, -1, -1, node < 0 ? -1 : first});
        if (node < 0) {
          root_[byte] = child;
        } else {
          at(node).first_child = child;
        }
      }
      node = child;
    }
    if (node >= 0 && at(node).value < 0) at(node).value = value;
  }

  /// The length in bytes of the longest text that `text` begins with, and its value; length 0 if there is
  /// none.
  std::size_t longest(std::string_view text, std::int32_t& value) const noexcept {
    std::size_t length = 0;
    std::int32_t node = -1;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      node = i == 0 ? root_[byte] : find_sibling(at(node).first_child, byte);
      if (node < 0) break;
      if (at(node).value >= 0) {
        length = i + 1;
        value = at(node).value;
      }
    }
    return length;
  }

 private:
  struct Node {
    unsigned char byte;
    std::int32_t value;
    std::int32_t first_child;
    std::int32_t next_sibling;
  };

  Node& at(std::int32_t i) noexcept { return nodes_[static_cast<std::size_t>(i)]; }
  const Node& at(std::int32_t i) const noexcept { return nodes_[static_cast<std::size_t>(i)]; }

  std::int32_t find_sibling(std::int32_t node, unsigned char byte) const noexcept {
    while (node >= 0 && at(node).byte != byte) node = at(node).next_sibling;
    return node;
  }

  std::array<std::int32_t, 256> root_;  // nodes of first bytes
  std::vector<Node> nodes_;
};

class AddedTokenFinder {
 public:
  static constexpr std::size_t kMaxBytes = 4096;  // of one token: bounds the search at each place of the text

  AddedTokenFinder() = default;

  /// Adds a token under the text to look for, which may differ from its content. `index` identifies it.
  void add(const AddedToken& token, std::string_view text, std::int32_t index) {
    if (text.size() > kMaxBytes) {
      raise(ErrorCode::kUnsupported, "tokenizer: added token ", token.id, " of ", text.size(),
            " bytes, at most ", kMaxBytes);
    }
    if (text.empty()) return;
    if (token.single_word && !word_) {
      word_.emplace("[" + std::string(kPlainWordClass) + "]", Regex::Syntax::kPcre2);
    }
    trie_.insert(text, index);
  }

  bool empty() const noexcept { return trie_.empty(); }

  /// Divides `text`: calls f(begin, end, index) for each part, in order; index -1: text between tokens.
  /// `tokens` are those that were added, by index.
  template <std::invocable<std::size_t, std::size_t, std::int32_t> F>
  void split(std::string_view text, const std::vector<AddedToken>& tokens, bool special_as_text,
             RegexScratch& scratch, F&& f) const {
    std::size_t done = 0;
    if (!trie_.empty()) {
      for (std::size_t at = 0; at < text.size();) {
        std::int32_t index = -1;
        const std::size_t length = trie_.longest(text.substr(at), index);
        if (length == 0) {
          ++at;
          continue;
        }
        std::size_t begin = at;
        std::size_t end = at + length;
        at = end;
        const AddedToken& token = tokens[static_cast<std::size_t>(index)];
        if (special_as_text && token.special) continue;
        if (token.single_word && (is_word_before(text, begin, scratch) || is_word_at(text, end, scratch))) {
          continue;
        }
        if (token.lstrip) begin = std::max(space_before(text, begin), done);
        if (token.rstrip) end = space_behind(text, end);
        if (done < begin) f(done, begin, -1);
        f(begin, end, index);
        done = end;
      }
    }
    if (done < text.size()) f(done, text.size(), -1);
  }

 private:
  // Where the character before `at` begins. @pre at > 0
  static std::size_t character_before(std::string_view text, std::size_t at) noexcept {
    do {
      --at;
    } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
    return at;
  }

  bool is_word_before(std::string_view text, std::size_t at, RegexScratch& scratch) const {
    if (at == 0) return false;
    const std::size_t begin = character_before(text, at);
    return word_->matches(text.substr(begin, at - begin), scratch);
  }
  bool is_word_at(std::string_view text, std::size_t at, RegexScratch& scratch) const {
    return at < text.size() && word_->matches(text.substr(at, utf8_length(text[at])), scratch);
  }

  static std::size_t space_before(std::string_view text, std::size_t at) noexcept {
    while (at > 0) {
      const std::size_t begin = character_before(text, at);
      std::size_t i = begin;
      if (!is_white_space(utf8_next(text, i))) break;
      at = begin;
    }
    return at;
  }
  static std::size_t space_behind(std::string_view text, std::size_t at) noexcept {
    while (at < text.size()) {
      std::size_t i = at;
      if (!is_white_space(utf8_next(text, i))) break;
      at = i;
    }
    return at;
  }

  TextTrie trie_;
  std::optional<Regex> word_;  // one word character
};

}  // namespace detail
}  // namespace kvdecode

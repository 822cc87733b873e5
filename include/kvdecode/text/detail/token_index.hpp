// SPDX-License-Identifier: MIT
// <kvdecode/text/detail/token_index.hpp> - two open-addressing tables: token text to id, and pair of ids to
// merge. A vocabulary is looked up for every character of a prompt; node-based maps cost three times the
// memory.
#pragma once

#include <kvdecode/core/types.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline std::uint64_t mix_bits(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// A power of two of at least twice `n`.
inline std::size_t table_size(std::size_t n) {
  std::size_t size = 16;
  while (size < 2 * n) size *= 2;
  return size;
}

/// Text to index in a list of texts that the caller keeps. The list's texts are given anew at each call.
class TextIndex {
 public:
  TextIndex() : TextIndex(0) {}
  explicit TextIndex(std::size_t n) : slots_(table_size(n)) {}

  /// Adds texts[i]. Returns the index of an equal text that is there already, else i.
  /// @pre fewer than the announced number of texts were added.
  TokenId insert(std::span<const std::string> texts, TokenId i) {
    const std::string& text = texts[static_cast<std::size_t>(i)];
    const std::size_t hash = hash_of(text);
    Slot& slot = slots_[probe(texts, text, hash)];
    if (slot.index < 0) slot = {tag(hash), i};
    return slot.index;
  }

  /// The index of `text`, or -1.
  TokenId find(std::span<const std::string> texts, std::string_view text) const noexcept {
    return slots_[probe(texts, text, hash_of(text))].index;
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    TokenId index = -1;
  };

  static std::size_t hash_of(std::string_view text) noexcept { return std::hash<std::string_view>{}(text); }
  static std::uint32_t tag(std::size_t hash) noexcept { return static_cast<std::uint32_t>(hash >> 32); }

  std::size_t probe(std::span<const std::string> texts, std::string_view text,
                    std::size_t hash) const noexcept {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
      const Slot& slot = slots_[i];
      if (slot.index < 0) return i;
      if (slot.tag == tag(hash) && texts[static_cast<std::size_t>(slot.index)] == text) return i;
    }
  }

  std::vector<Slot> slots_;
};

/// What a pair of tokens becomes.
struct MergeRule {
  std::int32_t rank = -1;  // lower first; -1: the pair does not merge
  TokenId merged = -1;
};

/// Pair of token ids to MergeRule.
class MergeTable {
 public:
  MergeTable() : MergeTable(0) {}
  explicit MergeTable(std::size_t n) : slots_(table_size(n)) {}

  /// Sets the rule of (left, right). @pre fewer than the announced number of rules were set.
  void set(TokenId left, TokenId right, MergeRule rule) {
    Slot& slot = slots_[probe(key(left, right))];
    slot = {key(left, right), rule};
  }

  MergeRule find(TokenId left, TokenId right) const noexcept { return slots_[probe(key(left, right))].rule; }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kEmpty;
    MergeRule rule;
  };

  static std::uint64_t key(TokenId left, TokenId right) noexcept {
    return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) | static_cast<std::uint32_t>(right);
  }

  std::size_t probe(std::uint64_t key) const noexcept {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = static_cast<std::size_t>(mix_bits(key)) & mask;
    while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & mask;
    return i;
  }

  std::vector<Slot> slots_;
};

}  // namespace detail
}  // namespace kvdecode

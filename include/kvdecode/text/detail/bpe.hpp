// SPDX-License-Identifier: MIT
// <kvdecode/text/detail/bpe.hpp> - byte-pair encoding of one piece of text (Sennrich 2016, algorithm 1): as
// long as two adjacent tokens merge, the pair of lowest rank does, the leftmost first. The rank is the
// merge's place in a list, or that of the merged token's score.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/text/detail/token_index.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/tokenizer_spec.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// What encoding writes to: one per call of Tokenizer::encode.
struct BpeScratch {
  struct Symbol {
    TokenId id;
    std::int32_t rank = -1;      // of the merge with the next symbol, -1: none
    TokenId merged = -1;         // what that merge makes
    std::int32_t previous = -1;  // positions in `run`, -1 at the ends; used for long runs
    std::int32_t next = -1;
  };
  struct Letter {
    TokenId id;
    bool is_character;  // the token's text is the character, it stands for no byte and nothing unknown
  };
  struct Candidate {
    std::int32_t rank;
    std::int32_t position;  // of the left symbol
    TokenId left;           // the pair as it was; the candidate is stale when it has changed
    TokenId right;
  };
  std::vector<Letter> letters;  // of the piece, before any merge
  std::vector<Symbol> run;      // of letters that may become one token
  std::vector<Candidate> heap;
  std::string text;
};

/// The vocabulary and merges of a TokenizerSpec, compiled. O(n log n) in the characters of a piece, in fact
/// of a run: two characters that are adjacent in no token are never merged across, and whole texts fall apart
/// into words.
class Bpe {
 public:
  /// Takes the vocabulary out of `spec`. @pre tokens are well-formed UTF-8, their number fits TokenId.
  explicit Bpe(TokenizerSpec& spec)
      : texts_(std::move(spec.tokens)),
        index_(texts_.size()),
        prefix_(std::move(spec.continuing_subword_prefix)),
        suffix_(std::move(spec.end_of_word_suffix)),
        is_scored_(spec.model == TokenizerModel::kScoredBpe),
        fuse_unk_(spec.fuse_unk),
        ignore_merges_(spec.ignore_merges) {
    const auto type = [&spec](std::size_t i) {
      return spec.token_types.empty() ? TokenType::kNormal : spec.token_types[i];
    };
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (type(i) == TokenType::kUnused) continue;
      const auto id = static_cast<TokenId>(i);
      const TokenId first = index_.insert(texts_, id);
      if (first != id) {
        raise(ErrorCode::kBadFile, "tokenizer: tokens ", first, " and ", id, " have the same text ",
              in_quotes(texts_[i]));
      }
    }
    if (spec.unk_token) {
      has_unk_ = true;
      unk_text_ = *spec.unk_token;
      unk_id_ = find(unk_text_);
    }
    bytes_.fill(-1);
    for (std::size_t byte = 0; byte < bytes_.size() && spec.byte_fallback; ++byte) {
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      const char text[] = {'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'};
      bytes_[byte] = find(std::string_view(text, sizeof text));
    }
    for (char32_t c = 0; c < letters_.size(); ++c) {
      std::string letter;
      utf8_append(letter, c);
      letters_[c] = find(letter);
    }
    if (is_scored_) {
      rank_scores(spec.scores, type);
    } else {
      read_merges(spec.merges);
    }
    spec.merges = {};
  }

  std::size_t size() const noexcept { return texts_.size(); }
  const std::string& text(TokenId id) const noexcept { return texts_[static_cast<std::size_t>(id)]; }

  /// The id of `token`, or -1.
  TokenId find(std::string_view token) const noexcept { return index_.find(texts_, token); }

  /// Appends the tokens of `piece`. @pre well-formed UTF-8.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const {
    if (piece.empty()) return;
    if (ignore_merges_) {
      const TokenId whole = find(piece);
      if (whole >= 0) {
        out.push_back(whole);
        return;
      }
    }
    split(piece, scratch);
    const std::vector<BpeScratch::Letter>& letters = scratch.letters;
    for (std::size_t begin = 0; begin < letters.size();) {
      std::size_t end = begin + 1;
      while (end < letters.size() && may_join(letters[end - 1], letters[end])) ++end;
      if (end == begin + 1) {
        out.push_back(letters[begin].id);
      } else {
        merge(begin, end, scratch);
        for (const BpeScratch::Symbol& symbol : scratch.run) {
          if (symbol.id >= 0) out.push_back(symbol.id);
        }
      }
      begin = end;
    }
  }

 private:
  // Runs of at most so many letters are scanned for their best pair at each merge: no heap, a few cache
  // lines.
  static constexpr std::size_t kScanLimit = 24;

  void read_merges(const std::vector<TokenMerge>& merges) {
    merges_ = MergeTable(merges.size());
    adjacent_ = MergeTable(merges.size());
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const TokenMerge& merge = merges[i];
      const auto id = [&](std::string_view token) {
        const TokenId found = find(token);
        if (found < 0) {
          raise(ErrorCode::kBadFile, "tokenizer: merge ", i, " (", in_quotes(merge.left), ", ",
                in_quotes(merge.right), ") needs token ", in_quotes(token), ", which the vocabulary lacks");
        }
        return found;
      };
      const TokenId left = id(merge.left);
      const TokenId right = id(merge.right);
      if (merge.right.size() < prefix_.size()) {
        raise(ErrorCode::kBadFile, "tokenizer: merge ", i, ": ", in_quotes(merge.right),
              " is shorter than the prefix ", in_quotes(prefix_));
      }
      const TokenId merged = id(merge.left + merge.right.substr(prefix_.size()));
      merges_.set(left, right, {static_cast<std::int32_t>(i), merged});
      if (!merge.left.empty() && !merge.right.empty()) set_adjacent(merge.left, merge.right);
    }
  }

  // The highest score has rank 0, equal scores have equal ranks. Marks and bytes are never made by merging.
  template <std::invocable<std::size_t> TypeOf>
  void rank_scores(const std::vector<float>& scores, TypeOf type) {
    std::vector<std::size_t> order;
    std::size_t n_pairs = 0;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (type(i) != TokenType::kNormal && type(i) != TokenType::kUserDefined) continue;
      order.push_back(i);
      n_pairs += texts_[i].size();
    }
    std::sort(order.begin(), order.end(),
              [&scores](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
    score_ranks_.assign(texts_.size(), -1);
    adjacent_ = MergeTable(n_pairs);
    std::int32_t rank = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      if (k > 0 && scores[order[k]] < scores[order[k - 1]]) ++rank;
      score_ranks_[order[k]] = rank;
      const std::string_view text = texts_[order[k]];
      for (std::size_t i = 0; i < text.size();) {
        i += utf8_length(text[i]);
        if (i < text.size()) set_adjacent(text.substr(0, i), text.substr(i));
      }
    }
  }

  // Some token has the last character of `left` in front of the first of `right`.
  void set_adjacent(std::string_view left, std::string_view right) {
    std::size_t last = left.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(left[last]) & 0xC0) == 0x80) --last;
    const TokenId left_id = find(left.substr(last));
    const TokenId right_id = find(right.substr(0, utf8_length(right.front())));
    if (left_id >= 0 && right_id >= 0) adjacent_.set(left_id, right_id, {0, 0});
  }

  // False if no merge can join what ends with `left` and what begins with `right`.
  bool may_join(const BpeScratch::Letter& left, const BpeScratch::Letter& right) const noexcept {
    return !left.is_character || !right.is_character || adjacent_.find(left.id, right.id).rank >= 0;
  }

  // The piece's characters as tokens.
  void split(std::string_view piece, BpeScratch& scratch) const {
    scratch.letters.clear();
    const auto append = [&scratch](TokenId token, bool is_character) {
      scratch.letters.push_back({token, is_character});
    };
    bool unk_pending = false;
    const bool is_plain = prefix_.empty() && suffix_.empty();
    for (std::size_t i = 0; i < piece.size();) {
      const std::size_t begin = i;
      const char32_t c = utf8_next(piece, i);
      std::string_view letter = piece.substr(begin, i - begin);
      TokenId id = -1;
      if (is_plain) {
        id = c < letters_.size() ? letters_[c] : find(letter);
      } else {
        scratch.text.clear();
        if (begin > 0) scratch.text += prefix_;
        scratch.text += letter;
        if (i == piece.size()) scratch.text += suffix_;
        letter = scratch.text;
        id = find(letter);
      }
      if (id >= 0) {
        if (unk_pending) append(unk_id_, false);
        unk_pending = false;
        append(id, is_plain);
        continue;
      }
      const bool has_bytes = std::all_of(letter.begin(), letter.end(), [this](char byte) {
        return bytes_[static_cast<unsigned char>(byte)] >= 0;
      });
      if (has_bytes) {  // a pending unk stays behind them: the reference does so
        for (const char byte : letter) append(bytes_[static_cast<unsigned char>(byte)], false);
        continue;
      }
      if (!has_unk_) continue;
      if (unk_id_ < 0) {
        raise(ErrorCode::kBadFile, "tokenizer: ", in_quotes(letter), " needs the unknown token ",
              in_quotes(unk_text_), ", which the vocabulary lacks");
      }
      if (unk_pending && !fuse_unk_) append(unk_id_, false);
      unk_pending = true;
    }
    if (unk_pending) append(unk_id_, false);
    if (scratch.letters.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
      raise(ErrorCode::kUnsupported, "a piece of text of ", scratch.letters.size(), " characters");
    }
  }

  // Merges scratch.letters[begin, end) in scratch.run; symbols that were merged away may stay with id -1.
  void merge(std::size_t begin, std::size_t end, BpeScratch& scratch) const {
    scratch.run.clear();
    for (std::size_t i = begin; i < end; ++i) scratch.run.push_back({scratch.letters[i].id});
    for (std::size_t i = 0; i + 1 < scratch.run.size(); ++i) {
      set_rule(scratch.run[i], scratch.run[i + 1].id, scratch.text);
    }
    if (scratch.run.size() <= kScanLimit) {
      merge_by_scan(scratch);
    } else {
      merge_by_heap(scratch);
    }
  }

  void set_rule(BpeScratch::Symbol& left, TokenId right, std::string& text) const {
    MergeRule rule;
    if (is_scored_) {
      text = texts_[static_cast<std::size_t>(left.id)];
      text += texts_[static_cast<std::size_t>(right)];
      rule.merged = find(text);
      if (rule.merged >= 0) rule.rank = score_ranks_[static_cast<std::size_t>(rule.merged)];
    } else {
      rule = merges_.find(left.id, right);
    }
    left.rank = rule.rank;
    left.merged = rule.merged;
  }

  void merge_by_scan(BpeScratch& scratch) const {
    auto& symbols = scratch.run;
    for (;;) {
      std::size_t best = symbols.size();
      std::int32_t best_rank = std::numeric_limits<std::int32_t>::max();
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        if (symbols[i].rank >= 0 && symbols[i].rank < best_rank) {
          best = i;
          best_rank = symbols[i].rank;
        }
      }
      if (best == symbols.size()) return;
      symbols[best].id = symbols[best].merged;
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
      if (best + 1 < symbols.size()) {
        set_rule(symbols[best], symbols[best + 1].id, scratch.text);
      } else {
        symbols[best].rank = -1;
      }
      if (best > 0) set_rule(symbols[best - 1], symbols[best].id, scratch.text);
    }
  }

  void merge_by_heap(BpeScratch& scratch) const {
    using Candidate = BpeScratch::Candidate;
    auto& symbols = scratch.run;
    auto& heap = scratch.heap;
    const auto at = [&symbols](std::int32_t i) -> BpeScratch::Symbol& {
      return symbols[static_cast<std::size_t>(i)];
    };
    const auto later = [](const Candidate& a, const Candidate& b) {
      return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
    };
    const auto n = static_cast<std::int32_t>(symbols.size());
    heap.clear();
    for (std::int32_t i = 0; i < n; ++i) {
      at(i).previous = i - 1;
      at(i).next = i + 1 < n ? i + 1 : -1;
      if (i + 1 < n && at(i).rank >= 0) heap.push_back({at(i).rank, i, at(i).id, at(i + 1).id});
    }
    std::make_heap(heap.begin(), heap.end(), later);
    const auto offer = [&](std::int32_t left) {
      const std::int32_t right = at(left).next;
      set_rule(at(left), at(right).id, scratch.text);
      if (at(left).rank < 0) return;
      heap.push_back({at(left).rank, left, at(left).id, at(right).id});
      std::push_heap(heap.begin(), heap.end(), later);
    };
    while (!heap.empty()) {
      const Candidate top = heap.front();
      std::pop_heap(heap.begin(), heap.end(), later);
      heap.pop_back();
      BpeScratch::Symbol& left = at(top.position);
      if (left.id != top.left || left.next < 0 || at(left.next).id != top.right) continue;
      const std::int32_t dead = left.next;
      left.id = left.merged;
      left.next = at(dead).next;
      if (left.next >= 0) at(left.next).previous = top.position;
      at(dead).id = -1;
      if (left.next >= 0) offer(top.position);
      if (left.previous >= 0) offer(left.previous);
    }
  }

  std::vector<std::string> texts_;  // [n_tokens]
  TextIndex index_;
  MergeTable merges_;
  MergeTable adjacent_;                    // pairs of single characters that some token has side by side
  std::vector<std::int32_t> score_ranks_;  // [n_tokens] if is_scored_; -1: not made by merging
  std::array<TokenId, 512> letters_ = {};  // tokens of single characters, by code point
  std::array<TokenId, 256> bytes_ = {};    // byte tokens, -1 where there is none
  std::string prefix_;
  std::string suffix_;
  std::string unk_text_;
  TokenId unk_id_ = -1;
  bool has_unk_ = false;
  bool is_scored_;
  bool fuse_unk_;
  bool ignore_merges_;
};

}  // namespace detail
}  // namespace kvdecode

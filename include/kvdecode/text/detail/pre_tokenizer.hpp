// SPDX-License-Identifier: MIT
// <kvdecode/text/detail/pre_tokenizer.hpp> - the pre-tokenizer steps of a TokenizerSpec, compiled: a section
// of text becomes a list of pieces. Steps that only divide keep the text and change the list.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/text/detail/byte_alphabet.hpp>
#include <kvdecode/text/detail/pattern.hpp>
#include <kvdecode/text/detail/scripts.hpp>
#include <kvdecode/text/detail/unicode.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/tokenizer_spec.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// A section of text divided into pieces, and room to divide it again.
struct PieceList {
  struct Range {
    std::size_t begin;  // bytes of `text`
    std::size_t end;
  };
  std::string text;
  std::vector<Range> pieces;     // never empty ones, in order
  bool begins_at_start = false;  // the first piece stands where the whole text begins
  std::string next_text;
  std::vector<Range> next_pieces;
};

// GPT-2's division into contractions, words, numbers, symbols and white space (Radford 2019).
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(const std::vector<PreTokenizerStep>& steps) {
    steps_.reserve(steps.size());
    for (const PreTokenizerStep& step : steps) {
      if (step.kind == Kind::kFixedLength && step.length < 1) {
        raise(ErrorCode::kBadFile, "FixedLength: length ", step.length, ", at least 1");
      }
      if (step.kind == Kind::kMetaspace &&
          (step.replacement.empty() || utf8_length(step.replacement.front()) != step.replacement.size())) {
        raise(ErrorCode::kBadFile, "Metaspace: replacement ", in_quotes(step.replacement),
              " is not one character");
      }
      steps_.push_back({step, pattern_of(step), {}});
      if (step.kind == Kind::kUnicodeScripts) steps_.back().scripts.emplace();
    }
  }

  /// Divides list.text, which becomes one piece first, into pieces. @pre well-formed UTF-8.
  void apply(PieceList& list, RegexScratch& scratch) const {
    list.pieces.clear();
    if (!list.text.empty()) list.pieces.push_back({0, list.text.size()});
    const std::size_t original = list.text.size();
    for (const Step& step : steps_) {
      if (list.pieces.empty()) return;
      apply(step, list, scratch);
      check_growth(list.text.size(), original);
    }
  }

 private:
  using Kind = PreTokenizerStep::Kind;
  using Range = PieceList::Range;
  struct Step {
    PreTokenizerStep spec;
    Pattern pattern;
    std::optional<ScriptTable> scripts;
  };

  static Pattern pattern_of(const PreTokenizerStep& step) {
    switch (step.kind) {
      case Kind::kByteLevel: return step.use_regex ? Pattern({std::string(kGpt2Pattern), true}) : Pattern();
      case Kind::kSplit: return Pattern(step.pattern);
      case Kind::kMetaspace: return Pattern({step.replacement, false});
      case Kind::kWhitespace: {
        const std::string word(kPlainWordClass);
        return Pattern(
            Regex("[" + word + "]+|[^" + word + std::string(kSpaceClass) + "]+", Regex::Syntax::kPcre2));
      }
      default: return Pattern();
    }
  }

  // Divides each piece at the ranges that `find(piece text, f)` reports by f(begin, end).
  template <std::invocable<std::string_view, void (*)(std::size_t, std::size_t)> Find>
  static void divide(PieceList& list, SplitBehavior behavior, bool invert, Find&& find) {
    list.next_pieces.clear();
    const std::size_t old_begin = list.pieces.front().begin;
    for (const Range piece : list.pieces) {
      const std::string_view text = std::string_view(list.text).substr(piece.begin, piece.end - piece.begin);
      Divider divider{list.next_pieces, behavior, invert, piece.begin, piece.begin, list.next_pieces.size()};
      find(text, [&](std::size_t begin, std::size_t end) {
        divider.match(piece.begin + begin, piece.begin + end);
      });
      divider.finish(piece.end);
    }
    std::swap(list.pieces, list.next_pieces);
    if (list.pieces.empty() || list.pieces.front().begin != old_begin) list.begins_at_start = false;
  }

  // Turns the matches in one piece into new pieces.
  struct Divider {
    std::vector<Range>& out;
    SplitBehavior behavior;
    bool invert;
    std::size_t done;      // all before it is dealt with
    std::size_t begin;     // of the piece
    std::size_t n_before;  // new pieces that belong to earlier ones
    bool last_matched = false;
    bool next_is_open = false;  // kMergedWithNext: the last piece waits for what follows it

    void match(std::size_t from, std::size_t to) {
      if (done != from) add({done, from}, invert);
      add({from, to}, !invert);
      done = to;
    }

    void finish(std::size_t end) {
      if (done != end) add({done, end}, invert);
      // Empty ranges matter while merging; they are no pieces.
      out.erase(std::remove_if(out.begin() + static_cast<std::ptrdiff_t>(n_before), out.end(),
                               [](const Range& r) { return r.begin == r.end; }),
                out.end());
    }

    void add(Range range, bool matched) {
      const bool has_last = out.size() > n_before;
      switch (behavior) {
        case SplitBehavior::kRemoved:
          if (!matched) out.push_back(range);
          break;
        case SplitBehavior::kIsolated: out.push_back(range); break;
        case SplitBehavior::kMergedWithPrevious:
          if (matched && !last_matched && has_last) {
            out.back().end = range.end;
          } else {
            out.push_back(range);
          }
          break;
        case SplitBehavior::kMergedWithNext:
          // A match goes with what follows, unless that is a match too.
          if (next_is_open && !matched) {
            out.back().end = range.end;
          } else {
            out.push_back(range);
          }
          next_is_open = matched;
          break;
        case SplitBehavior::kContiguous:
          if (has_last && matched == last_matched) {
            out.back().end = range.end;
          } else {
            out.push_back(range);
          }
          break;
      }
      last_matched = matched;
    }
  };

  // As matches: runs of one character each for which `is_match` holds.
  template <std::predicate<char32_t> Predicate>
  static auto characters(Predicate is_match) {
    return [is_match](std::string_view text, auto&& f) {
      for (std::size_t i = 0; i < text.size();) {
        const std::size_t begin = i;
        if (is_match(utf8_next(text, i))) f(begin, i);
      }
    };
  }

  // Rewrites each piece by f(piece text, out).
  template <std::invocable<std::string_view, std::string&> F>
  static void rewrite(PieceList& list, F&& f) {
    list.next_text.clear();
    list.next_text.reserve(list.text.size() + list.text.size() / 2);
    for (Range& piece : list.pieces) {
      const std::size_t begin = list.next_text.size();
      f(std::string_view(list.text).substr(piece.begin, piece.end - piece.begin), list.next_text);
      piece = {begin, list.next_text.size()};
    }
    std::swap(list.text, list.next_text);
  }

  // A piece goes from one character of a script to the next of another; what is before the first vanishes.
  static void divide_scripts(const ScriptTable& scripts, PieceList& list) {
    divide(list, SplitBehavior::kRemoved, true, [&scripts](std::string_view text, auto&& f) {
      int last = ScriptTable::kAny;
      std::size_t begin = 0;
      for (std::size_t i = 0; i < text.size();) {
        const std::size_t at = i;
        const int script = scripts.find(utf8_next(text, i));
        if (script == ScriptTable::kAny || script == last) continue;
        if (last != ScriptTable::kAny) f(begin, at);
        last = script;
        begin = at;
      }
      if (last != ScriptTable::kAny) f(begin, text.size());
    });
  }

  static void apply(const Step& step, PieceList& list, RegexScratch& scratch) {
    const PreTokenizerStep& spec = step.spec;
    const auto matches = [&](std::string_view text, auto&& f) {
      step.pattern.for_each_match(text, scratch, f);
    };
    switch (spec.kind) {
      case Kind::kByteLevel:
        if (spec.add_prefix_space) {
          rewrite(list, [](std::string_view text, std::string& out) {
            if (text.front() != ' ') out += ' ';
            out += text;
          });
        }
        if (spec.use_regex) divide(list, SplitBehavior::kIsolated, false, matches);
        rewrite(list, [](std::string_view text, std::string& out) { append_byte_letters(out, text); });
        return;
      case Kind::kSplit: divide(list, spec.behavior, spec.invert, matches); return;
      case Kind::kDigits:
        divide(list, spec.individual_digits ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false,
               characters(is_numeric));
        return;
      case Kind::kWhitespace: divide(list, SplitBehavior::kRemoved, true, matches); return;
      case Kind::kWhitespaceSplit:
        divide(list, SplitBehavior::kRemoved, false, characters(is_white_space));
        return;
      case Kind::kBert:
        divide(list, SplitBehavior::kRemoved, false, characters(is_white_space));
        if (!list.pieces.empty()) divide(list, SplitBehavior::kIsolated, false, characters(is_punctuation));
        return;
      case Kind::kPunctuation: divide(list, spec.behavior, false, characters(is_punctuation)); return;
      case Kind::kMetaspace: {
        bool at_start = list.begins_at_start;
        rewrite(list, [&](std::string_view text, std::string& out) {
          const bool has_mark =
              text.front() == ' ' || text.substr(0, spec.replacement.size()) == spec.replacement;
          const bool prepend = spec.prepend_scheme == PrependScheme::kAlways ||
                               (spec.prepend_scheme == PrependScheme::kFirst && at_start);
          at_start = false;
          if (prepend && !has_mark) out += spec.replacement;
          for (const char c : text) {
            if (c == ' ') {
              out += spec.replacement;
            } else {
              out += c;
            }
          }
        });
        if (spec.split) divide(list, SplitBehavior::kMergedWithNext, false, matches);
        return;
      }
      case Kind::kUnicodeScripts: divide_scripts(*step.scripts, list); return;
      case Kind::kFixedLength:
        divide(list, SplitBehavior::kIsolated, false, [&](std::string_view text, auto&& f) {
          std::size_t begin = 0;
          Index n = 0;
          for (std::size_t i = 0; i < text.size();) {
            utf8_next(text, i);
            if (++n == spec.length) {
              f(begin, i);
              begin = i;
              n = 0;
            }
          }
        });
        return;
    }
  }

  std::vector<Step> steps_;
};

}  // namespace detail
}  // namespace kvdecode

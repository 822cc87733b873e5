// SPDX-License-Identifier: MIT
// <kvdecode/text/detail/token_decoder.hpp> - the decoder steps of a TokenizerSpec, compiled, and their
// incremental application. Decoding a whole list is the same code run to its end, so that streamed text
// equals decoded text.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/text/detail/byte_alphabet.hpp>
#include <kvdecode/text/detail/pattern.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/tokenizer_spec.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// Immutable: what each step does.
class TokenDecoder {
 public:
  struct Step {
    DecoderStep spec;
    Pattern pattern;
  };
  static constexpr std::size_t kMaxSteps = 64;

  TokenDecoder() = default;

  /// @param steps  none: tokens are joined by spaces.
  explicit TokenDecoder(const std::optional<std::vector<DecoderStep>>& steps) : joins_by_space_(!steps) {
    if (!steps) return;
    if (steps->size() > kMaxSteps) {
      raise(ErrorCode::kUnsupported, "tokenizer: ", steps->size(), " decoder steps, at most ", kMaxSteps);
    }
    using Kind = DecoderStep::Kind;
    steps_.reserve(steps->size());
    for (const DecoderStep& step : *steps) {
      const auto need_character = [](const std::string& text, std::string_view what) {
        if (text.empty() || utf8_length(text.front()) != text.size()) {
          raise(ErrorCode::kBadFile, "decoder ", what, ": ", in_quotes(text), " is not one character");
        }
      };
      if (step.kind == Kind::kMetaspace) need_character(step.replacement, "Metaspace");
      if (step.kind == Kind::kStrip) {
        need_character(step.content, "Strip");
        if (step.start < 0 || step.stop < 0) raise(ErrorCode::kBadFile, "decoder Strip: a negative count");
      }
      steps_.push_back({step, step.kind == Kind::kReplace ? Pattern(step.pattern) : Pattern()});
    }
  }

  const std::vector<Step>& steps() const noexcept { return steps_; }
  bool joins_by_space() const noexcept { return joins_by_space_; }

 private:
  std::vector<Step> steps_;
  bool joins_by_space_ = true;
};

/// One decoding in progress. Tokens go through all steps as far as they are certain; each step holds back the
/// rest. Between steps a token travels whole, or in parts if an earlier step makes all tokens one.
class TokenDecodeState {
 public:
  explicit TokenDecodeState(const TokenDecoder& decoder) : states_(decoder.steps().size()) {}

  /// Appends to `out` what the next token makes certain: whole characters. The letters of a verbatim one stand
  /// for themselves, not for bytes. @pre `text` is well-formed UTF-8.
  void push(const TokenDecoder& decoder, std::string_view text, std::string& out, bool is_verbatim = false) {
    if (decoder.joins_by_space() && n_tokens_ > 0) out += ' ';
    n_tokens_ += 1;
    n_bytes_ += text.size();
    Run{decoder, states_, regex_scratch_, out, n_bytes_, is_verbatim}.token(0, text);
  }

  /// Appends to `out` all that was held back, and begins anew.
  void finish(const TokenDecoder& decoder, std::string& out) {
    Run{decoder, states_, regex_scratch_, out, n_bytes_, false}.finish(0);
    n_tokens_ = 0;
    n_bytes_ = 0;
    for (State& state : states_) state.clear();
  }

 private:
  using Kind = DecoderStep::Kind;

  struct State {
    std::string partial;      // of the arriving token, for steps that take tokens whole
    std::string held;         // what the step cannot decide yet
    std::string result;       // passed on at once; kept for its memory
    Utf8Repair repair = {};   // kByteLevel
    Index n_tokens = 0;       // that arrived whole
    Index n_stripped = 0;     // kStrip: characters taken from this token
    bool past_start = false;  // kStrip: a character that stays was seen in this token

    void clear() {
      partial.clear();
      held.clear();
      repair = {};
      n_tokens = n_stripped = 0;
      past_start = false;
    }
  };

  // The way of one call through the steps. Step i sends to step i + 1; behind the last is `out`.
  struct Run {
    const TokenDecoder& decoder;
    std::vector<State>& states;
    RegexScratch& scratch;
    std::string& out;
    std::size_t n_original;  // bytes of the tokens so far
    bool is_verbatim;        // the token on its way

    const TokenDecoder::Step& step(std::size_t i) const { return decoder.steps()[i]; }
    bool is_end(std::size_t i) const { return i == states.size(); }
    bool takes_parts(std::size_t i) const {
      const TokenDecoder::Step& s = step(i);
      switch (s.spec.kind) {
        case Kind::kFuse:
        case Kind::kMetaspace: return true;
        case Kind::kStrip: return s.spec.stop == 0;
        case Kind::kReplace: return !s.pattern.literal().empty();
        default: return false;
      }
    }

    // A whole token arrives at step i.
    void token(std::size_t i, std::string_view text) {
      check_growth(text.size(), n_original);
      if (is_end(i)) {
        out += text;
        return;
      }
      if (takes_parts(i)) {
        part(i, text);
        end_of_token(i);
        return;
      }
      State& state = states[i];
      const DecoderStep& spec = step(i).spec;
      switch (spec.kind) {
        case Kind::kByteLevel: {
          std::string& bytes = state.held;
          bytes.clear();
          if (is_verbatim) {
            bytes = text;
          } else {
            append_letter_bytes(bytes, text);
          }
          state.result.clear();
          state.repair.push(bytes, state.result);
          part(i + 1, state.result);
          break;
        }
        case Kind::kByteFallback: {
          const int byte = byte_of(text);
          if (byte >= 0) {
            state.held += static_cast<char>(static_cast<unsigned char>(byte));
            break;
          }
          end_bytes(i);
          token(i + 1, text);
          break;
        }
        case Kind::kStrip: token(i + 1, strip(spec, text)); break;
        case Kind::kReplace: token(i + 1, replace_all(text, step(i).pattern, spec.content, scratch)); break;
        case Kind::kBpe: {
          if (state.n_tokens > 0) end_word(i, " ");
          // What stands before the first suffix is certain; how the suffix is replaced depends on what
          // follows.
          const std::size_t certain =
              spec.content.empty() ? 0 : std::min(text.find(spec.content), text.size());
          part(i + 1, text.substr(0, certain));
          state.held = text.substr(certain);
          break;
        }
        case Kind::kCtc: {
          const bool repeated = state.n_tokens > 0 && state.held == text;
          state.held = text;
          if (repeated) break;
          std::string result = replace_all(text, spec.content, "");
          if (spec.cleanup) result = replace_all(clean_up(std::move(result)), spec.word_delimiter, " ");
          if (!result.empty()) token(i + 1, result);
          break;
        }
        case Kind::kWordPiece: {
          std::string result(text);
          if (state.n_tokens > 0) {
            if (text.substr(0, spec.content.size()) == spec.content) {
              result.erase(0, spec.content.size());
            } else {
              result.insert(0, " ");
            }
          }
          if (spec.cleanup) result = clean_up(std::move(result));
          token(i + 1, result);
          break;
        }
        case Kind::kFuse:
        case Kind::kMetaspace: break;  // take parts
      }
      state.n_tokens += 1;
    }

    // More of the token that is arriving at step i.
    void part(std::size_t i, std::string_view text) {
      check_growth(text.size(), n_original);
      if (is_end(i)) {
        out += text;
        return;
      }
      if (!takes_parts(i)) {
        states[i].partial += text;
        return;
      }
      switch (step(i).spec.kind) {
        case Kind::kFuse: part(i + 1, text); return;
        case Kind::kMetaspace: metaspace(i, text); return;
        case Kind::kStrip: strip_start(i, text); return;
        case Kind::kReplace: replace_literal(i, text); return;
        default: return;
      }
    }

    // The token that arrived at step i in parts is whole.
    void end_of_token(std::size_t i) {
      if (is_end(i)) return;
      State& state = states[i];
      if (!takes_parts(i)) {
        token(i, std::exchange(state.partial, {}));
        return;
      }
      if (step(i).spec.kind == Kind::kFuse) return;
      if (step(i).spec.kind == Kind::kReplace) {
        part(i + 1, state.held);
        state.held.clear();
      }
      state.n_tokens += 1;
      state.n_stripped = 0;
      state.past_start = false;
      end_of_token(i + 1);
    }

    // No more tokens arrive at step i.
    void finish(std::size_t i) {
      if (is_end(i)) return;
      State& state = states[i];
      switch (step(i).spec.kind) {
        case Kind::kFuse: end_of_token(i + 1); break;
        case Kind::kByteLevel:
          state.result.clear();
          state.repair.finish(state.result);
          part(i + 1, state.result);
          end_of_token(i + 1);
          break;
        case Kind::kByteFallback: end_bytes(i); break;
        case Kind::kBpe:
          if (state.n_tokens > 0) end_word(i, "");
          break;
        default: break;
      }
      finish(i + 1);
    }

    // The value of a token like <0x0A>, or -1.
    static int byte_of(std::string_view text) {
      if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
      int value = 0;
      for (const char c : text.substr(3, 2)) {
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
      }
      return value;
    }

    // A run of byte tokens ends: it is a text, or as many U+FFFD as there are bytes, each a token.
    void end_bytes(std::size_t i) {
      if (states[i].held.empty()) return;
      const std::string bytes = std::exchange(states[i].held, {});
      if (is_utf8(bytes)) {
        token(i + 1, bytes);
      } else {
        for (std::size_t n = 0; n < bytes.size(); ++n) token(i + 1, kReplacementCharacter);
      }
    }

    void end_word(std::size_t i, std::string_view replacement) {
      part(i + 1, replace_all(std::exchange(states[i].held, {}), step(i).spec.content, replacement));
      end_of_token(i + 1);
    }

    void metaspace(std::size_t i, std::string_view text) {
      State& state = states[i];
      const DecoderStep& spec = step(i).spec;
      const bool vanishes = state.n_tokens == 0 && spec.prepend_scheme != PrependScheme::kNever;
      state.result = replace_all(text, spec.replacement, vanishes ? "" : " ");
      part(i + 1, state.result);
    }

    void strip_start(std::size_t i, std::string_view text) {
      State& state = states[i];
      const DecoderStep& spec = step(i).spec;
      while (!state.past_start && !text.empty()) {
        if (state.n_stripped < spec.start && text.substr(0, spec.content.size()) == spec.content) {
          text.remove_prefix(spec.content.size());
          state.n_stripped += 1;
        } else {
          state.past_start = true;
        }
      }
      part(i + 1, text);
    }

    // `held` is the longest end of what arrived that may begin a match.
    void replace_literal(std::size_t i, std::string_view text) {
      State& state = states[i];
      const std::string& literal = step(i).pattern.literal();
      state.held += text;
      std::size_t done = 0;
      state.result.clear();
      for (std::size_t at = 0; (at = state.held.find(literal, done)) != std::string::npos;
           done = at + literal.size()) {
        state.result.append(state.held, done, at - done);
        state.result += step(i).spec.content;
        check_growth(state.result.size(), state.held.size());
      }
      const std::string_view rest = std::string_view(state.held).substr(done);
      std::size_t n_held = std::min(rest.size(), literal.size() - 1);
      while (n_held > 0 && rest.substr(rest.size() - n_held) != std::string_view(literal).substr(0, n_held)) {
        --n_held;
      }
      state.result += rest.substr(0, rest.size() - n_held);
      state.held.erase(0, state.held.size() - n_held);
      part(i + 1, state.result);
    }

    static std::string_view strip(const DecoderStep& spec, std::string_view text) {
      const std::size_t length = spec.content.size();
      for (Index n = 0; n < spec.start && text.substr(0, length) == spec.content; ++n) {
        text.remove_prefix(length);
      }
      for (Index n = 0; n < spec.stop; ++n) {
        if (text.size() < length || text.substr(text.size() - length) != spec.content) break;
        text.remove_suffix(length);
      }
      return text;
    }

    // English punctuation and contractions lose the space in front of them.
    static std::string clean_up(std::string text) {
      using Rule = std::array<std::string_view, 2>;
      static constexpr auto kRules = std::to_array<Rule>({{" .", "."},
                                                          {" ?", "?"},
                                                          {" !", "!"},
                                                          {" ,", ","},
                                                          {" ' ", "'"},
                                                          {" n't", "n't"},
                                                          {" 'm", "'m"},
                                                          {" do not", " don't"},
                                                          {" 's", "'s"},
                                                          {" 've", "'ve"},
                                                          {" 're", "'re"}});
      for (const Rule& rule : kRules) {
        if (text.find(rule[0]) != std::string::npos) text = replace_all(text, rule[0], rule[1]);
      }
      return text;
    }
  };

  std::vector<State> states_;
  RegexScratch regex_scratch_;
  Index n_tokens_ = 0;
  std::size_t n_bytes_ = 0;
};

}  // namespace detail
}  // namespace kvdecode

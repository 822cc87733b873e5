// SPDX-License-Identifier: MIT
// <kvdecode/decode/generate.hpp> - the loop that everything else serves: logits, sample, append, until
// something says stop.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/progress.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/decode/decoder.hpp>
#include <kvdecode/decode/stop_strings.hpp>

#include <algorithm>
#include <chrono>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

enum class StopReason {
  kMaxNewTokens,  ///< as many tokens as asked for
  kStopToken,     ///< a stop token was sampled
  kStopString,    ///< the text came to a stop string
  kContextFull,   ///< the sequence has reached max_seq_len
  kCallback,      ///< the callback returned false
  kCancelled,     ///< the stop_token was triggered
};

constexpr std::string_view to_string(StopReason reason) {
  switch (reason) {
    case StopReason::kMaxNewTokens: return "length";
    case StopReason::kStopToken: return "stop token";
    case StopReason::kStopString: return "stop string";
    case StopReason::kContextFull: return "full context";
    case StopReason::kCallback: return "callback";
    case StopReason::kCancelled: return "cancellation";
  }
  return "?";
}

struct GenerateOptions {
  Index max_new_tokens = 128;
  std::vector<TokenId> stop_tokens = {};
  std::vector<std::string> stop_strings = {};  // with text only
  std::stop_token stop = {};  // looked at before every token, and between the passes of a long prompt
  ProgressRef on_prompt =
      {};  // hears of the prompt's passes: tokens run, tokens to run; false stops as `stop` does
};

/// What generating took. Times in seconds.
struct GenerateStatistics {
  Index n_prompt_tokens = 0;
  Index n_new_tokens = 0;
  double time_to_first_token = 0.0;  // from the start to the choice of the first token
  double total_time = 0.0;           // from the start to the choice of the last token
  double tokens_per_second = 0.0;    // (n_new_tokens - 1) / (last - first); 0 below two tokens
  DecoderStatistics decoder{};       // at the end
};

struct GenerateResult {
  // Accepted: without the stop token. All but the last are in the decoder, and that one too if a stop token came after it.
  std::vector<TokenId> tokens;
  std::string text;  // without the stop string; empty when generating tokens only
  StopReason stop_reason = StopReason::kMaxNewTokens;
  GenerateStatistics statistics{};
};

namespace detail {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// The loop. accept(token) says whether to go on, and why not.
template <class D, class Picker, class Accept>
GenerateResult generate_loop(D& decoder, std::span<const TokenId> prompt, Picker& sampler,
                             const GenerateOptions& options, Accept&& accept) {
  if (options.max_new_tokens < 0) [[unlikely]]
    raise(ErrorCode::kBadArgument, "generate: max_new_tokens must not be negative, got ",
          options.max_new_tokens);
  if (prompt.empty() && decoder.kv_len() == 0) [[unlikely]]
    raise(ErrorCode::kBadArgument, "generate: the prompt is empty, and there is nothing to continue");
  GenerateResult result;
  GenerateStatistics& statistics = result.statistics;
  statistics.n_prompt_tokens = static_cast<Index>(prompt.size());
  const Stopwatch watch;
  const auto goes_on = [&](Index done, Index total) {
    return options.on_prompt(done, total) && !options.stop.stop_requested();
  };
  std::span<const typename D::scalar> logits =
      prompt.empty() ? decoder.logits() : decoder.append(prompt, goes_on);
  if (logits.empty()) result.stop_reason = StopReason::kCancelled;
  while (!logits.empty()) {
    if (static_cast<Index>(result.tokens.size()) >= options.max_new_tokens) {
      result.stop_reason = StopReason::kMaxNewTokens;
      break;
    }
    if (options.stop.stop_requested()) {
      result.stop_reason = StopReason::kCancelled;
      break;
    }
    if (!result.tokens.empty()) {
      if (!decoder.can_append(1)) {
        result.stop_reason = StopReason::kContextFull;
        break;
      }
      logits = decoder.step(result.tokens.back());
    }
    const TokenId token = sampler(logits);
    statistics.total_time = watch.seconds();
    if (result.tokens.empty()) statistics.time_to_first_token = statistics.total_time;
    if (std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) !=
        options.stop_tokens.end()) {
      result.stop_reason = StopReason::kStopToken;
      break;
    }
    result.tokens.push_back(token);
    if (!accept(token, result)) break;
  }
  statistics.n_new_tokens = static_cast<Index>(result.tokens.size());
  if (statistics.n_new_tokens > 1 && statistics.total_time > statistics.time_to_first_token)
    statistics.tokens_per_second = static_cast<double>(statistics.n_new_tokens - 1) /
                                   (statistics.total_time - statistics.time_to_first_token);
  statistics.decoder = decoder.statistics();
  return result;
}

}  // namespace detail

/// Continues the sequence by sampled tokens.
///
/// @param prompt    appended first; empty continues what the decoder holds
/// @param on_token  bool(TokenId), called with each accepted token; false stops
/// @throws Error kBadArgument (nothing to continue), kCacheFull (the prompt does not fit), and what the decoder
/// throws. However it ends, the decoder is valid and holds the prompt and the accepted tokens; the last one only
/// if a stop token came after it. Stopped within the prompt, it holds what it held before.
template <class D, Sampler<typename D::scalar> Picker, std::predicate<TokenId> OnToken>
GenerateResult generate(D& decoder, std::span<const TokenId> prompt, Picker&& sampler,
                        const GenerateOptions& options, OnToken&& on_token) {
  if (!options.stop_strings.empty()) [[unlikely]]
    detail::raise(ErrorCode::kBadArgument,
                  "generate: stop strings need the text of tokens (see the overload with `pieces`)");
  return detail::generate_loop(decoder, prompt, sampler, options, [&](TokenId token, GenerateResult& result) {
    if (on_token(token)) return true;
    result.stop_reason = StopReason::kCallback;
    return false;
  });
}
template <class D, Sampler<typename D::scalar> Picker>
GenerateResult generate(D& decoder, std::span<const TokenId> prompt, Picker&& sampler,
                        const GenerateOptions& options = {}) {
  return generate(decoder, prompt, sampler, options, [](TokenId) { return true; });
}

/// Something that turns tokens into text, piece by piece: operator()(TokenId) gives what the token makes
/// certain, flush() what is left at the end. Both views are valid until the next call.
template <class P>
concept TokenPieces = requires(P& pieces, TokenId token) {
  { pieces(token) } -> std::convertible_to<std::string_view>;
};

/// The same with text: on_text is called with each new piece of it, and stop strings end it.
/// @param pieces   TokenPieces, for instance a streaming detokenizer
/// @param on_text  bool(std::string_view); false stops
template <class D, Sampler<typename D::scalar> Picker, TokenPieces Pieces,
          std::predicate<std::string_view> OnText>
GenerateResult generate(D& decoder, std::span<const TokenId> prompt, Picker&& sampler,
                        const GenerateOptions& options, Pieces&& pieces, OnText&& on_text) {
  StopStrings filter(options.stop_strings);
  std::string text;
  const auto emit = [&](std::string_view piece) {
    text += piece;
    return piece.empty() || on_text(piece);
  };
  GenerateResult result =
      detail::generate_loop(decoder, prompt, sampler, options, [&](TokenId token, GenerateResult& partial) {
        const bool go_on = emit(filter.feed(pieces(token)));
        if (filter.stopped())
          partial.stop_reason = StopReason::kStopString;
        else if (!go_on)
          partial.stop_reason = StopReason::kCallback;
        return go_on && !filter.stopped();
      });
  if (result.stop_reason != StopReason::kCallback && result.stop_reason != StopReason::kStopString) {
    if constexpr (requires { pieces.flush(); }) {
      const bool go_on = emit(filter.feed(pieces.flush()));
      if (filter.stopped()) result.stop_reason = StopReason::kStopString;
      if (go_on) emit(filter.flush());
    } else {
      emit(filter.flush());
    }
  }
  result.text = std::move(text);
  return result;
}

}  // namespace kvdecode

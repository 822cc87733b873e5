// SPDX-License-Identifier: MIT
// <kvdecode/decode/perplexity.hpp> - how surprised a model is by a text: what a change of formats, caches or arithmetic
// costs, in one number.
#pragma once

#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/executor.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/core/progress.hpp>
#include <kvdecode/core/sums.hpp>
#include <kvdecode/model/transformer.hpp>

#include <algorithm>
#include <span>

namespace kvdecode::inline KVDECODE_ABI {

struct PerplexityOptions {
  Index window = 512;   // tokens that are seen together; each window starts afresh
  Index n_windows = 0;  // at most; 0: all of the text
  Index chunk = 64;     // tokens a pass; does not change the result
};

struct Perplexity {
  double value = 0.0;        // exp of the mean of -ln p(token | those before it in its window)
  Index n_predicted = 0;     // tokens: all but the first of each window
  bool was_stopped = false;  // by the listener: the value is that of the tokens so far
};

namespace detail {

/// -ln of the probability of a token. In double, whatever the logits are. @param scratch  as many doubles as logits
template <class S>
double surprise(std::span<const S> logits, TokenId token, double* scratch) noexcept {
  double largest = static_cast<double>(logits[0]);
  for (const S& logit : logits) largest = std::max(largest, static_cast<double>(logit));
  for (std::size_t i = 0; i < logits.size(); ++i) scratch[i] = exp(static_cast<double>(logits[i]) - largest);
  const double total = sum(scratch, static_cast<Index>(logits.size()));
  return log(total) - (static_cast<double>(logits[static_cast<std::size_t>(token)]) - largest);
}

}  // namespace detail

/// The perplexity of a text of two tokens or more. A last window of one token is left out.
/// @tparam Cache     whose formats keys and values are read back from
/// @param progress   hears of tokens run and tokens to run; false stops
/// @throws Error kBadArgument (a text or a window of fewer than two tokens, a token id, a window whose angles depend on
/// its length), std::bad_alloc
template <class Cache, class T>
Perplexity perplexity(const T& transformer, std::span<const TokenId> tokens,
                      const PerplexityOptions& options = {}, ExecutorRef exec = {},
                      ProgressRef progress = {}) {
  using S = typename T::scalar;
  const auto n_tokens = static_cast<Index>(tokens.size());
  if (n_tokens < 2 || options.window < 2 || options.chunk < 1 || options.n_windows < 0) [[unlikely]]
    detail::raise(ErrorCode::kBadArgument, "perplexity: there is nothing to predict: ", n_tokens,
                  " tokens, windows of ", options.window, ", ", options.chunk, " tokens a pass, ",
                  options.n_windows, " windows");
  const Index n_all = (n_tokens + options.window - 1) / options.window;
  const Index n_windows = options.n_windows == 0 ? n_all : std::min(n_all, options.n_windows);
  const Index n_run = std::min(n_tokens, n_windows * options.window);

  Cache cache(transformer.kv_shape(), std::min(options.window, n_tokens));
  Workspace<S> workspace;
  Vector<double> scratch(static_cast<std::size_t>(transformer.config().vocab_size));
  Perplexity result;
  double total = 0.0;
  for (Index begin = 0; begin + 1 < n_run && !result.was_stopped; begin += options.window) {
    const Index end = std::min(begin + options.window, n_run);
    cache.clear();
    for (Index first = begin; first < end && !result.was_stopped; first += options.chunk) {
      const Index n = std::min(options.chunk, end - first);
      const auto rows = transformer.forward(
          workspace, exec,
          Segment<Cache>{&cache, tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(n)),
                         Rows::kAll});
      with_default_fp_env([&] {
        for (Index i = 0; i < n && first + i + 1 < end; ++i, ++result.n_predicted)
          total += detail::surprise(std::span<const S>(rows.row(i), static_cast<std::size_t>(rows.cols)),
                                    tokens[static_cast<std::size_t>(first + i + 1)], scratch.data());
      });
      result.was_stopped = !progress(first + n, n_run);
    }
  }
  result.value = with_default_fp_env([&] { return exp(total / static_cast<double>(result.n_predicted)); });
  return result;
}
/// The same with a cache that rounds nothing.
template <class T>
Perplexity perplexity(const T& transformer, std::span<const TokenId> tokens,
                      const PerplexityOptions& options = {}, ExecutorRef exec = {},
                      ProgressRef progress = {}) {
  return perplexity<ContiguousCache<Native<typename T::scalar>>>(transformer, tokens, options, exec,
                                                                 progress);
}

}  // namespace kvdecode

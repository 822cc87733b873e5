// SPDX-License-Identifier: MIT
// <kvdecode/decode/strategies.hpp> - the two ways to decode, one word apart.
//
//   Recompute<>  runs the whole sequence for every token: O(T^3) attention over T tokens, nothing kept between
//                steps. The plain definition, and what the other one is compared with.
//   Cached<>     runs only the new tokens against the keys and values of the old ones: O(T^2), for a cache that
//                grows with the sequence. Over a PagedCache it can share a PrefixStore with others: then tokens
//                that one of them has run at the beginning of a sequence are run by none again.
//
// Both give the same bits. Cache = Auto is a GrowingCache that rounds nothing; any KvCache can be named instead.
#pragma once

#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/cache/prefix_store.hpp>
#include <kvdecode/core/progress.hpp>
#include <kvdecode/decode/concepts.hpp>

#include <algorithm>
#include <new>

namespace kvdecode::inline KVDECODE_ABI {

/// The cache that suits most: grows as needed and stores scalars as they are.
struct Auto {
  struct Options {};
};

/// What one step did.
template <class S>
struct Advance {
  RowsView<const S> logits;  // [1, vocab_size], in the workspace until its next use; no row if it was stopped
  Index n_tokens_run;        // tokens that passed through the layers
  bool reprefilled;          // old tokens had to be run again, for a new rotary epoch
  Index n_tokens_adopted = 0;  // tokens whose keys and values came from a PrefixStore instead
};

namespace detail {

template <class Cache, class S>
struct ResolveCache {
  using type = Cache;
  using Options = typename Cache::Options;
  static Options options(const Options& given) { return given; }
};
template <class S>
struct ResolveCache<Auto, S> {
  using type = GrowingCache<Native<S>>;
  static typename type::Options options(const Auto::Options&) { return {}; }
};

inline void check_strategy(Index max_seq_len, Index prefill_chunk) {
  if (max_seq_len < 0) [[unlikely]]
    raise(ErrorCode::kBadArgument, "decode: max_seq_len must not be negative, got ", max_seq_len);
  if (prefill_chunk < 1) [[unlikely]]
    raise(ErrorCode::kBadArgument, "decode: prefill_chunk must be at least 1, got ", prefill_chunk);
}

/// The longest sequence: what was asked for, or the model's. Learned positions end where they end.
inline Index max_positions(const ModelConfig& config, Index max_seq_len) noexcept {
  if (max_seq_len == 0) return config.max_seq_len;
  return config.position == PositionKind::kLearned ? std::min(max_seq_len, config.max_seq_len) : max_seq_len;
}

/// Runs history[cache.kv_len(), end) in passes of at most `chunk` tokens; after each one, progress hears of it.
template <class T, class S, class Cache>
Advance<S> run_missing(const T& transformer, Workspace<S>& workspace, ExecutorRef exec, Cache& cache,
                       std::span<const TokenId> history, Index chunk, ProgressRef progress) {
  Advance<S> result{{}, 0, false};
  const Index end = static_cast<Index>(history.size()), n_missing = end - cache.kv_len();
  cache.reserve(n_missing);  // the whole call, before its first pass
  while (cache.kv_len() < end) {
    const Index begin = cache.kv_len(), n = std::min({chunk, end - begin, cache.max_append()});
    const Segment<Cache> segment{
        &cache, history.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(n)),
        begin + n == end ? Rows::kLast : Rows::kNone};
    result.logits = transformer.forward(workspace, exec, segment);
    result.n_tokens_run += n;
    if (!progress(result.n_tokens_run, n_missing) && begin + n < end) break;
  }
  return result;
}

}  // namespace detail

/// Naive decoding: every step starts from nothing.
template <class Cache = Auto>
struct Recompute {
  template <class S>
  using cache_type = typename detail::ResolveCache<Cache, S>::type;
  static constexpr bool kKeepsCache = false;

  Index max_seq_len = 0;               // positions; 0: the model's
  Index prefill_chunk = 512;           // tokens a pass
  typename Cache::Options cache = {};  // of the cache that holds keys and values within a step

  Index max_positions(const ModelConfig& config) const noexcept {
    return detail::max_positions(config, max_seq_len);
  }
  template <class T>
  auto make_cache(const T& transformer) const {
    detail::check_strategy(max_seq_len, prefill_chunk);
    using Resolved = detail::ResolveCache<Cache, typename T::scalar>;
    return typename Resolved::type(transformer.kv_shape(), max_positions(transformer.config()),
                                   Resolved::options(cache));
  }
  template <class T, class S, class C>
  Advance<S> advance(const T& transformer, Workspace<S>& workspace, ExecutorRef exec, C& work,
                     std::span<const TokenId> history, ProgressRef progress = {}) const {
    work.clear(transformer.config().rotary_epoch(static_cast<Index>(history.size())));
    return detail::run_missing(transformer, workspace, exec, work, history, prefill_chunk, progress);
  }
};

/// Cached decoding: a step runs what the cache has not seen.
template <class Cache = Auto>
struct Cached {
  template <class S>
  using cache_type = typename detail::ResolveCache<Cache, S>::type;
  static constexpr bool kKeepsCache = true;

  Index max_seq_len = 0;               // positions; 0: the model's
  Index prefill_chunk = 512;           // tokens a pass: the workspace does not grow with the prompt
  typename Cache::Options cache = {};  // of the cache; without a pool it has that of the prefixes
  /// Of this model, for a PagedCache; outlives the decoder. A step takes over what it finds there of the tokens that it
  /// would have to run, and leaves the pages that it has filled: from then on others find them. The first decoder of a
  /// transformer reads all of its weights once, to know the model (Transformer::fingerprint()).
  PrefixStore<Cache>* prefixes = nullptr;

  Index max_positions(const ModelConfig& config) const noexcept {
    return detail::max_positions(config, max_seq_len);
  }
  /// @throws Error kMismatch also if the prefixes are for other caches or another model
  template <class T>
  auto make_cache(const T& transformer) const {
    detail::check_strategy(max_seq_len, prefill_chunk);
    using Resolved = detail::ResolveCache<Cache, typename T::scalar>;
    using Result = typename Resolved::type;
    typename Result::Options options = Resolved::options(cache);
    if constexpr (SharesPages<Cache>)
      if (prefixes != nullptr && options.pool == nullptr) options.pool = &prefixes->pool();
    Result result(transformer.kv_shape(), max_positions(transformer.config()), options);
    if constexpr (SharesPages<Cache>)
      if (prefixes != nullptr) {
        prefixes->require_same(result);
        prefixes->require_origin({transformer.fingerprint(), T::activations::kName,
                                  static_cast<Index>(sizeof(typename T::scalar))});
      }
    return result;
  }
  template <class T, class S, class C>
  Advance<S> advance(const T& transformer, Workspace<S>& workspace, ExecutorRef exec, C& kv,
                     std::span<const TokenId> history, ProgressRef progress = {}) const {
    const Index epoch = transformer.config().rotary_epoch(static_cast<Index>(history.size()));
    const bool reprefill = epoch != kv.epoch() && kv.kv_len() > 0;
    if (epoch != kv.epoch()) kv.clear(epoch);
    // Logits of a token that is in the cache already have to be computed again with it; where a ring cannot go back
    // even so far, with all of them.
    if (const Index last = static_cast<Index>(history.size()) - 1; kv.kv_len() > last) {
      if (kv.can_truncate(last))
        kv.truncate(last);
      else
        kv.clear(epoch);
    }
    Index n_adopted = 0;
    if constexpr (SharesPages<Cache>)
      if (prefixes != nullptr) n_adopted = prefixes->adopt(history, kv);
    [[maybe_unused]] const Index before = kv.kv_len();
    Advance<S> result =
        detail::run_missing(transformer, workspace, exec, kv, history, prefill_chunk, progress);
    if constexpr (SharesPages<Cache>)
      if (prefixes != nullptr && kv.kv_len() / Cache::kPageSize > before / Cache::kPageSize)
        leave(history, kv);
    result.reprefilled = reprefill;
    result.n_tokens_adopted = n_adopted;
    return result;
  }

 private:
  /// No memory for a page that somebody might want is no reason to fail.
  template <class C>
  void leave(std::span<const TokenId> history, const C& kv) const {
    try {
      prefixes->insert(history, kv);
    } catch (const std::bad_alloc&) {
    }
  }
};

static_assert(DecodeStrategy<Recompute<>, float> && DecodeStrategy<Cached<>, double>);
static_assert(DecodeStrategy<Cached<ContiguousCache<F16>>, float>);

}  // namespace kvdecode

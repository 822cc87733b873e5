// SPDX-License-Identifier: MIT
// <kvdecode/decode/decoder.hpp> - one sequence being decoded: the model, the strategy, the cache, the tokens
// so far.
#pragma once

#include <kvdecode/cache/record.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/decode/record.hpp>
#include <kvdecode/decode/strategies.hpp>

#include <algorithm>
#include <span>

namespace kvdecode::inline KVDECODE_ABI {

/// What a decoder has done and holds.
struct DecoderStatistics {
  Index n_tokens_run = 0;      // tokens that passed through the layers, again each time they did
  Index n_tokens_adopted = 0;  // tokens that did not: a PrefixStore had their keys and values
  Index n_reprefill = 0;       // times that old tokens had to be run again, for a new rotary epoch
  Index cache_bytes = 0;       // kept between steps; 0 for Recompute
  Index scratch_bytes = 0;     // workspace, and Recompute's keys and values within a step
};

/// A sequence and its next-token logits. Owns a handle of the transformer, workspace, cache and history;
/// movable, copied by fork() only. One thread at a time; the executor must outlive it.
template <class T, DecodeStrategy<typename T::scalar> Strategy>
class Decoder {
 public:
  using transformer_type = T;
  using scalar = typename T::scalar;
  using strategy_type = Strategy;
  using cache_type = typename Strategy::template cache_type<scalar>;

  /// @throws Error kBadArgument (options), std::bad_alloc
  explicit Decoder(T transformer, Strategy strategy = {}, ExecutorRef exec = {})
      : transformer_(std::move(transformer)),
        strategy_(strategy),
        exec_(exec),
        cache_(strategy_.make_cache(transformer_)) {
    // Some models claim lengths that nobody will see: then the list of tokens grows, as the cache does.
    constexpr Index kRoom = Index{1} << 20;  // tokens
    history_.reserve(static_cast<std::size_t>(std::min(max_seq_len(), kRoom)));
  }
  Decoder(Decoder&&) noexcept = default;
  Decoder& operator=(Decoder&&) noexcept = default;

  /// Appends tokens and returns the logits after the last one, [vocab_size], valid until the next operation.
  /// Cached: O(n) passes through the layers for n tokens; Recompute: for all tokens.
  /// @param progress  hears of each pass: tokens run, tokens to run. It may stop before the last one: then
  /// there are no logits (empty), and nothing has changed
  /// @throws Error kBadArgument (no tokens, token id), kCacheFull, std::bad_alloc: nothing changed
  std::span<const scalar> append(std::span<const TokenId> tokens, ProgressRef progress = {}) {
    if (tokens.empty()) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "decoder: append needs at least one token");
    const Index n = static_cast<Index>(tokens.size());
    if (!can_append(n)) [[unlikely]]
      detail::raise(ErrorCode::kCacheFull, "KV cache full: max_seq_len ", max_seq_len(), ", kv_len ",
                    kv_len(), ", n_new ", n);
    const Index vocab_size = transformer_.config().vocab_size;
    for (const TokenId token : tokens)
      if (token < 0 || token >= vocab_size) [[unlikely]]
        detail::raise(ErrorCode::kBadArgument, "token id ", token, " is outside the vocabulary of ",
                      vocab_size);
    const std::size_t before = history_.size();
    history_.insert(history_.end(), tokens.begin(), tokens.end());
    const auto undo = [&] {
      history_.resize(before);
      forget_from(static_cast<Index>(before));
    };
    try {
      const std::span<const scalar> logits = logits_of_history(progress);
      if (logits.empty()) undo();
      return logits;
    } catch (...) {
      undo();
      throw;
    }
  }
  std::span<const scalar> step(TokenId token) { return append({&token, 1}); }

  /// The logits after the last token once more, for instance after truncate(). Runs it again, unless a restored record
  /// brought them along. @throws as append
  std::span<const scalar> logits() {
    if (history_.empty()) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "decoder: an empty sequence has no logits");
    if (!restored_logits_.empty()) return restored_logits_;
    return logits_of_history();
  }

  /// Forgets the tokens from new_len on. @throws Error kBadArgument unless 0 <= new_len <= kv_len(): nothing
  /// changed
  void truncate(Index new_len) {
    if (new_len < 0 || new_len > kv_len()) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "decoder: cannot truncate to ", new_len, " tokens, kv_len ",
                    kv_len());
    forget_logits();
    history_.resize(static_cast<std::size_t>(new_len));
    forget_from(new_len);
  }
  /// Whether shift(first, delta) can be done.
  bool can_shift(Index first, Index delta) const noexcept
      requires(Strategy::kKeepsCache&& ShiftableCache<cache_type>) {
    return transformer_.config().position != PositionKind::kLearned && cache_.kv_len() == kv_len() &&
           cache_.can_shift(first, delta);
  }
  /// Context shift: forgets tokens [first + delta, first); those behind them move down by -delta and keep the keys and
  /// values that they were given when the others were still there. So it is no other way to decode the tokens that are
  /// left: Recompute does not have it, and where the cache is filled again (another rotary epoch) they are fresh.
  /// @throws Error kUnsupported (learned positions, a rotary epoch, a cache that forgets by itself), kBadArgument
  /// unless delta < 0 <= first + delta and first <= kv_len(), std::bad_alloc: nothing changed
  void shift(Index first, Index delta) requires(Strategy::kKeepsCache&& ShiftableCache<cache_type>) {
    if (transformer_.config().position == PositionKind::kLearned) [[unlikely]]
      detail::raise(
          ErrorCode::kUnsupported,
          "decoder: cannot shift tokens of a model with learned positions, which are in their keys and "
          "values for good");
    if (cache_.kv_len() != kv_len()) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "decoder: cannot shift ", kv_len(),
                    " tokens, of which the cache holds ", cache_.kv_len());
    cache_.shift(first, delta);
    forget_logits();
    history_.erase(history_.begin() + first + delta, history_.begin() + first);
  }
  void clear() noexcept {
    forget_logits();
    history_.clear();
    cache_.clear();
  }
  /// An independent decoder with the same sequence, strategy and executor. Its workspace starts empty.
  Decoder fork() const {
    Decoder copy(transformer_, strategy_, exec_);
    copy.history_.assign(history_.begin(), history_.end());
    if constexpr (Strategy::kKeepsCache) copy.cache_ = cache_.fork();
    copy.statistics_ = statistics_;
    return copy;
  }

  /// What it holds, for restore(): the cache's rows are copied, O(cache bytes); tokens and logits stay valid until the
  /// next operation. The transformer's first one reads all weights. @throws std::bad_alloc
  DecoderRecord<scalar> record() const {
    DecoderRecord<scalar> record{transformer_.fingerprint(), T::activations::kName, history_, logits_, {}};
    if constexpr (Strategy::kKeepsCache)
      record.cache = record_of(cache_);
    else
      record.cache = empty_record<typename cache_type::KeyFormat, typename cache_type::ValueFormat>(
          transformer_.kv_shape());
    return record;
  }
  /// Goes on with what a decoder of the same model held: from here on both give the same bytes. Any strategy takes the
  /// record of any other; what the cache lacks then, the next step runs. What it has run stays in the statistics.
  /// @throws Error kMismatch (another model, activation policy or cache format; positions that a ring has forgotten and
  /// this cache needs), kUnsupported (shifted tokens, for Recompute or a ring), kCacheFull (more tokens than
  /// max_seq_len), kBadArgument (a record that contradicts itself), std::bad_alloc: nothing changed
  void restore(const DecoderRecord<scalar>& record) requires(!Strategy::kKeepsCache ||
                                                             RestorableCache<cache_type>) {
    check_record(record);
    Vector<TokenId> history;
    history.reserve(std::max(history_.capacity(), record.tokens.size()));  // steps still do not allocate
    history.assign(record.tokens.begin(), record.tokens.end());
    Vector<scalar> logits(record.logits.begin(), record.logits.end());
    if constexpr (Strategy::kKeepsCache)
      cache_.restore(record.cache);
    else
      cache_.clear();
    // From here on nothing throws.
    history_ = std::move(history);
    restored_logits_ = std::move(logits);
    logits_ = restored_logits_;
  }

  bool can_append(Index n) const noexcept { return n >= 0 && n <= max_seq_len() - kv_len(); }
  std::span<const TokenId> tokens() const noexcept { return history_; }
  /// Tokens of the sequence, all of which the next step builds on.
  Index kv_len() const noexcept { return static_cast<Index>(history_.size()); }
  Index max_seq_len() const noexcept { return strategy_.max_positions(transformer_.config()); }
  const T& transformer() const noexcept { return transformer_; }
  const cache_type& cache() const noexcept { return cache_; }
  DecoderStatistics statistics() const noexcept {
    DecoderStatistics s = statistics_;
    s.cache_bytes = Strategy::kKeepsCache ? cache_.bytes() : 0;
    s.scratch_bytes = workspace_.bytes() + (Strategy::kKeepsCache ? 0 : cache_.bytes());
    return s;
  }

 private:
  void check_record(const DecoderRecord<scalar>& record) const {
    using detail::in_quotes;
    using detail::raise;
    if (record.model != transformer_.fingerprint()) [[unlikely]]
      raise(ErrorCode::kMismatch, "decoder: the record is of another model, whose config or weights differ");
    if (record.activations != T::activations::kName) [[unlikely]]
      raise(ErrorCode::kMismatch, "decoder: the record is of activations ", in_quotes(record.activations),
            ", this decoder's are ", T::activations::kName);
    const Index n = static_cast<Index>(record.tokens.size());
    if (n > max_seq_len()) [[unlikely]]
      raise(ErrorCode::kCacheFull, "KV cache full: max_seq_len ", max_seq_len(), ", the record has ", n,
            " tokens");
    const ModelConfig& config = transformer_.config();
    for (const TokenId token : record.tokens)
      if (token < 0 || token >= config.vocab_size) [[unlikely]]
        raise(ErrorCode::kBadArgument, "decoder: the record has token id ", token,
              ", outside the vocabulary of ", config.vocab_size);
    if (record.cache.kv_len > n) [[unlikely]]
      raise(ErrorCode::kBadArgument, "decoder: the record has ", n, " tokens and a cache of ",
            record.cache.kv_len);
    const Index n_logits = static_cast<Index>(record.logits.size());
    if (n_logits != 0 && (n_logits != config.vocab_size || n == 0)) [[unlikely]]
      raise(ErrorCode::kBadArgument, "decoder: the record has ", n_logits, " logits after ", n,
            " tokens, expected ", n == 0 ? 0 : config.vocab_size);
    if (!record.cache.rotation.empty() && config.position == PositionKind::kLearned) [[unlikely]]
      raise(ErrorCode::kBadArgument, "decoder: the record has shifted tokens of learned positions");
    if constexpr (!Strategy::kKeepsCache) {
      detail::require_record(
          record.cache, transformer_.kv_shape(), max_seq_len(),
          detail::record_demands<typename cache_type::KeyFormat, typename cache_type::ValueFormat>());
      if (!record.cache.rotation.empty()) [[unlikely]]
        raise(ErrorCode::kUnsupported,
              "decoder: the record has shifted tokens, whose keys and values Recompute cannot compute again");
    }
  }

  std::span<const scalar> logits_of_history(ProgressRef progress = {}) {
    forget_logits();
    const Advance<scalar> result = strategy_.advance(transformer_, workspace_, exec_, cache_,
                                                     std::span<const TokenId>(history_), progress);
    statistics_.n_tokens_run += result.n_tokens_run;
    statistics_.n_tokens_adopted += result.n_tokens_adopted;
    statistics_.n_reprefill += result.reprefilled ? 1 : 0;
    if (result.logits.rows == 0) return {};  // stopped
    logits_ = {result.logits.data, static_cast<std::size_t>(result.logits.cols)};
    return logits_;
  }
  void forget_logits() noexcept {
    logits_ = {};
    restored_logits_.clear();
  }
  /// The cache must not be ahead of history; where it cannot go back, the next step runs what it lacks.
  void forget_from(Index new_len) {
    if (cache_.kv_len() <= new_len)
      cache_.abandon();
    else if (cache_.can_truncate(new_len))
      cache_.truncate(new_len);
    else
      cache_.clear(cache_.epoch());
  }

  T transformer_;
  Strategy strategy_;
  ExecutorRef exec_;
  cache_type cache_;
  Workspace<scalar> workspace_;
  Vector<TokenId> history_;
  std::span<const scalar> logits_;  // after the last token, in the workspace or restored; none: not at hand
  Vector<scalar> restored_logits_;
  DecoderStatistics statistics_;
};

}  // namespace kvdecode

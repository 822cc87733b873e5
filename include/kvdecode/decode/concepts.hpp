// SPDX-License-Identifier: MIT
// <kvdecode/decode/concepts.hpp> - what decides how a sequence is decoded: strategies, and what picks a
// token: samplers.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/core/progress.hpp>
#include <kvdecode/layers/pass.hpp>
#include <kvdecode/model/transformer.hpp>

#include <concepts>
#include <span>

namespace kvdecode::inline KVDECODE_ABI {

/// How the logits of a sequence's last token come about.
///
/// | expression | meaning |
/// |---|---|
/// | D::cache_type<S> | the cache it works with for scalars S |
/// | D::kKeepsCache | whether the cache's content is worth something after a step |
/// | d.make_cache(transformer) | such a cache, empty |
/// | d.max_positions(config) | the longest sequence |
/// | d.advance(transformer, workspace, exec, cache, history, progress) | the logits [1, vocab_size] after history, whose last tokens the cache has not seen; and what it ran. progress hears of every pass, and may stop it before the last: then no logits |
///
/// Invariant: the logits are a function of the model and history alone, whatever the strategy. A call that
/// throws may leave the cache behind history, never ahead: the next call runs what is missing. Models:
/// Recompute, Cached.
template <class D, class S>
concept DecodeStrategy = std::copyable<D> && KvCacheFor<typename D::template cache_type<S>, S> &&
    requires(const D& strategy, const Transformer<S>& transformer, Workspace<S>& workspace, ExecutorRef exec,
             typename D::template cache_type<S>& cache, std::span<const TokenId> history,
             ProgressRef progress, const ModelConfig& config) {
  { D::kKeepsCache } -> std::convertible_to<bool>;
  { strategy.make_cache(transformer) } -> std::same_as<typename D::template cache_type<S>>;
  { strategy.max_positions(config) } -> std::same_as<Index>;
  strategy.advance(transformer, workspace, exec, cache, history, progress);
};

/// Picks the next token. Models: Greedy, Sampling.
template <class P, class S>
concept Sampler = requires(P& sampler, std::span<const S> logits) {
  { sampler(logits) } -> std::same_as<TokenId>;
};

}  // namespace kvdecode

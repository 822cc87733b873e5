// SPDX-License-Identifier: MIT
// <laws/product.hpp> - runs rows of laws/axes.hpp: finds the types that a row names, makes its model, and tries
// every law. One scalar and one part of the list of caches a translation unit, to share out the compile time.
#pragma once

#include <laws/axes.hpp>
#include <laws/laws.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

namespace kvdecode_laws {

/// Models and answers that rows share.
template <class S>
class Answered {
 public:
  using T = kvdecode::Transformer<S>;

  /// The tokens that all rows decode a beginning of.
  Answered()
      : tokens_(kvdecode_test::random_tokens(kLongest, kvdecode_test::small_config().vocab_size, 77)) {}

  std::span<const TokenId> tokens(Index n) const {
    return std::span<const TokenId>(tokens_).first(static_cast<std::size_t>(n));
  }
  /// The model of a row, its matrices where the row wants them.
  const T& transformer(const Row& row) { return transformer(row, false); }
  /// Its answers at the lengths, by matrices that lie row by row from alignment.
  template <class Cache>
  const Answers<S>& answers(const Row& row, const std::vector<Index>& lengths) {
    using K = typename Cache::KeyFormat;
    using V = typename Cache::ValueFormat;
    Answers<S>& answers = answers_[{row[kModelAxis], row[kWeightsAxis], K::kId, V::kId}];
    add_answers<K, V>(answers, transformer(row, true), tokens_, lengths);
    return answers;
  }

 private:
  const T& transformer(const Row& row, bool is_plain) {
    const std::tuple key{row[kModelAxis], row[kWeightsAxis], is_plain};
    if (const auto found = transformers_.find(key); found != transformers_.end()) return found->second;
    WeightOptions options = kWeights[row[kWeightsAxis]];
    if (is_plain) {
      options.transposed = false;
      options.offset = options.row_padding = 0;
    }
    const kvdecode_test::RandomModel model(model_config(row[kModelAxis]), options);
    return transformers_.emplace(key, T(model.config, model.weights)).first->second;
  }

  std::vector<TokenId> tokens_;
  std::map<std::tuple<Index, Index, bool>, T> transformers_;
  std::map<std::tuple<Index, Index, FormatId, FormatId>, Answers<S>> answers_;
};

/// The lengths at which a row compares: all of them, or those where sums change their shape.
inline std::vector<Index> compared_lengths(Index n_tokens, bool all) {
  if (all || n_tokens <= 17) return lengths_up_to(n_tokens);
  std::vector<Index> lengths = edges(n_tokens);
  lengths.erase(lengths.begin());  // nothing comes after no tokens
  return lengths;
}

namespace detail {

/// Calls f with element i of the list, as a value of std::type_identity.
template <class F, class... Ts>
void visit_type(TypeList<Ts...>, Index i, const F& f) {
  Index k = 0;
  ((k++ == i ? f(std::type_identity<Ts>{}) : void()), ...);
}

/// The Caches that are part `part` of n.
template <Index part, Index n_parts, class Done, Index i, class... Ts>
struct PartOf {
  using type = Done;
};
template <Index part, Index n_parts, class... Done, Index i, class Head, class... Tail>
struct PartOf<part, n_parts, TypeList<Done...>, i, Head, Tail...>
    : std::conditional_t<i % n_parts == part, PartOf<part, n_parts, TypeList<Done..., Head>, i + 1, Tail...>,
                         PartOf<part, n_parts, TypeList<Done...>, i + 1, Tail...>> {};
template <Index part, Index n_parts, class... Ts>
auto part_of(TypeList<Ts...>) -> typename PartOf<part, n_parts, TypeList<>, 0, Ts...>::type;

template <class Cache, class S>
void try_row(Answered<S>& answered, const Row& row, bool compare_everywhere) {
  const Index n = kLengths[row[kLengthAxis]];
  const auto& transformer = answered.transformer(row);
  const Answers<S>& answers = answered.template answers<Cache>(row, compared_lengths(n, compare_everywhere));
  const Setting<kvdecode::Transformer<S>> setting{transformer, executors()[row[kExecutorAxis]].exec,
                                                  answered.tokens(n), answers, kChunks[row[kChunkAxis]]};
  // A long sequence in passes of one token would only take time; its law cuts its end in small pieces anyway.
  const Index prefill_chunk = kChunks[row[kChunkAxis]] + (n > 64 ? 61 : 0);
  std::vector<Violation> violations;
  {
    const kvdecode_test::ScopedFpMode mode(kFpModes[row[kFpModeAxis]]);
    visit_type(Strategies{}, row[kStrategyAxis], [&]<class Strategy>(std::type_identity<Strategy>) {
      const std::vector<typename Cache::Options> options = options_of<Cache>();
      const auto turn = static_cast<std::size_t>(row[kChunkAxis] + row[kLengthAxis]) % options.size();
      const typename Strategy::template type<Cache> strategy{
          .max_seq_len = n, .prefill_chunk = prefill_chunk, .cache = options[turn]};
      violations = violated_by_strategy(setting, strategy);
    });
    // The laws of a cache know no strategy: they are tried beside the first one. They run on through all
    // lengths, which a cache of one angle epoch cannot.
    if (row[kStrategyAxis] == 0 && transformer.config().rotary_epoch(n) == 0)
      for (Violation& v : violated_by_cache<Cache>(setting, options_of<Cache>()))
        violations.push_back(std::move(v));
  }
  CHECK(violations.empty());  // counted as an assertion
  for (const Violation& v : violations)
    FAIL_CHECK(std::string(v.law) << ", " << describe(row) << ":\n  " << v.difference);
}

}  // namespace detail

/// What try_rows() tries.
template <class S, Index part, Index n_parts>
class Product {
 public:
  /// Tries every law on a row, if it is of this scalar and part of the caches, and its cache takes its model.
  void try_row(const Row& row, bool compare_everywhere) {
    if (row[kScalarAxis] != (std::is_same_v<S, float> ? 0 : 1) || row[kCacheAxis] % n_parts != part) return;
    if (!can_meet(kModelAxis, row[kModelAxis], kCacheAxis, row[kCacheAxis])) return;
    ++n_tried_;
    detail::visit_type(Part{}, row[kCacheAxis] / n_parts, [&]<class Cache>(std::type_identity<Cache>) {
      detail::try_row<Cache>(answered_, row, compare_everywhere);
    });
  }
  Index n_tried() const { return n_tried_; }

 private:
  using Part = decltype(detail::part_of<part, n_parts>(Caches{}));

  Answered<S> answered_;
  Index n_tried_ = 0;
};

/// The everyday rows. @return how many were of this scalar and part
template <class S, Index part, Index n_parts>
Index try_everyday_rows() {
  Product<S, part, n_parts> product;
  for (const Row& row : everyday_rows()) product.try_row(row, false);
  return product.n_tried();
}

/// Every span, cache, strategy, executor and length with every other; the other axes take turns. Hours.
/// @return how many rows were of this scalar and part
template <class S, Index part, Index n_parts>
Index try_full_product() {
  const Ranges all = all_values();
  Index turn = 0, n_tried = 0;
  for (const Index model : product_models()) {
    Product<S, part, n_parts> product;  // keeps the answers of one model
    const bool is_wide = model >= kNSmallModels;
    Row row{};
    row[kModelAxis] = model;
    row[kWeightsAxis] = model % all.end[kWeightsAxis];
    row[kScalarAxis] = std::is_same_v<S, float> ? 0 : 1;
    for (row[kCacheAxis] = 0; row[kCacheAxis] < all.end[kCacheAxis]; ++row[kCacheAxis])
      for (row[kStrategyAxis] = 0; row[kStrategyAxis] < all.end[kStrategyAxis]; ++row[kStrategyAxis])
        for (row[kExecutorAxis] = 0; row[kExecutorAxis] < all.end[kExecutorAxis]; ++row[kExecutorAxis])
          for (row[kLengthAxis] = is_wide ? kNShortLengths : 0;
               row[kLengthAxis] < (is_wide ? all.end[kLengthAxis] : kNShortLengths); ++row[kLengthAxis]) {
            ++turn;
            row[kChunkAxis] = turn % all.end[kChunkAxis];
            row[kFpModeAxis] = turn % all.end[kFpModeAxis];
            // Where every length takes long, one stands for the others.
            const NamedExecutor& executor = executors()[row[kExecutorAxis]];
            const bool is_slow = is_wide ? row[kStrategyAxis] != 0 || !executor.is_typical : executor.is_slow;
            if (is_slow && kLengths[row[kLengthAxis]] != (is_wide ? 257 : 7)) continue;
            // All 300 positions, where nothing is slower than it has to be.
            const bool everywhere = is_wide && row[kStrategyAxis] == 0 && row[kExecutorAxis] == 0 &&
                                    kLengths[row[kLengthAxis]] == kLongest;
            product.try_row(row, everywhere);
          }
    n_tried += product.n_tried();
    MESSAGE(model_words(model) << ": " << product.n_tried() << " rows");  // it takes long: say how far it is
  }
  return n_tried;
}

}  // namespace kvdecode_laws

// SPDX-License-Identifier: MIT
// How many threads share a row's attention, by heads or by tiles of positions, which no logit may show.
#pragma once

#include <support/compare.hpp>
#include <support/executors.hpp>
#include <support/forward.hpp>
#include <support/model.hpp>
#include <support/random.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <initializer_list>
#include <span>
#include <vector>

namespace kvdecode_test {

/// The last logits of more than two tiles of positions are the same, whatever came in one call, on one thread and on each
/// of `counts`.
template <class S>
void check_thread_counts(const RandomModel& model, std::initializer_list<Index> counts) {
  const Transformer<S> transformer(model.config, model.weights);
  const std::vector<TokenId> tokens = random_tokens(530, 37, 6);
  const auto last_rows = [&](ExecutorRef exec, std::size_t n_last) {
    kvdecode::ContiguousCache<kvdecode::F16> cache(transformer.kv_shape(), 530);
    Workspace<S> workspace;
    forward(transformer, workspace, cache, std::span(tokens).first(530 - n_last), Rows::kNone, exec);
    return flat(forward(transformer, workspace, cache, std::span(tokens).last(n_last), Rows::kLast, exec));
  };
  const std::vector<S> expected = last_rows({}, 1);
  check_same_bits(last_rows({}, 100), expected);
  for (const Index n_threads : counts) {
    CAPTURE(n_threads);
    const BackwardsExecutor backwards{n_threads};
    check_same_bits(last_rows(backwards, 1), expected);
    check_same_bits(last_rows(backwards, 5), expected);
  }
}

}  // namespace kvdecode_test

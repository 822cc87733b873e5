// SPDX-License-Identifier: MIT
// Threads that share the attention of a row by tiles of positions give the bits of one thread, whatever the number of
// threads, of KV heads and of tiles.
#include <support/executors.hpp>
#include <support/model.hpp>
#include <support/random.hpp>

#include <kvdecode/cache/growing.hpp>
#include <kvdecode/core/counting.hpp>
#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/thread_team.hpp>
#include <kvdecode/model/transformer.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

namespace {

using kvdecode::AttentionSpan;
using kvdecode::ExecutorRef;
using kvdecode::GrowingCache;
using kvdecode::Index;
using kvdecode::Rows;
using kvdecode::Segment;
using kvdecode::TokenId;
using kvdecode::Workspace;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;

kvdecode::ModelConfig config_of(Index n_kv_heads, AttentionSpan even, AttentionSpan odd) {
  kvdecode::ModelConfig config = kvdecode_test::small_config();
  config.n_kv_heads = n_kv_heads;
  config.n_heads = 2 * n_kv_heads;
  config.head_dim = 6;
  config.max_seq_len = 4096;
  config.spans = {even, odd};
  return config;
}

using Cache = GrowingCache<kvdecode::F16>;

/// A cache with all but the last tokens of a long sequence.
template <class S>
Cache filled(const kvdecode::Transformer<S>& transformer, std::span<const TokenId> tokens) {
  Cache cache(transformer.kv_shape(), 4096);
  Workspace<S> workspace;
  transformer.forward(workspace, {}, Segment<Cache>{&cache, tokens, Rows::kNone});
  return cache;
}
/// The logits of some more tokens, one at a time: of that sequence and, but for the last one, of another that begins.
template <class S>
std::vector<S> answers(const kvdecode::Transformer<S>& transformer, ExecutorRef exec, const Cache& before,
                       std::span<const TokenId> tokens) {
  Cache cache = before.fork(), other(transformer.kv_shape(), 16);
  Workspace<S> workspace;
  std::vector<S> all;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Segment<Cache> both[] = {{&other, tokens.subspan(i, 1)}, {&cache, tokens.subspan(i, 1)}};
    const auto logits = transformer.forward(
        workspace, exec, std::span<const Segment<Cache>>(both).subspan(i + 1 == tokens.size() ? 1 : 0));
    for (Index row = 0; row < logits.rows; ++row)
      all.insert(all.end(), logits.row(row), logits.row(row) + logits.cols);
  }
  return all;
}

TEST_CASE_TEMPLATE("shared attention: threads that share rows by tiles give the bits of one", S, float,
                   double) {
  struct Case {
    Index n_kv_heads;
    Index n_long;
    AttentionSpan even{};
    AttentionSpan odd{};
  };
  // Seven heads on two threads keep four tiles of each: more tiles come in rounds.
  for (const Case& c : {Case{1, 300}, Case{1, 1700}, Case{3, 257}, Case{3, 900}, Case{7, 1100},
                        Case{7, 1300, {.window = 700}, {.window = 520, .n_sink = 300}},
                        Case{3, 1300, {.window = 300, .n_sink = 4}, {.chunk = 600}}}) {
    const RandomModel model(config_of(c.n_kv_heads, c.even, c.odd));
    const kvdecode::Transformer<S> transformer(model.config, model.weights);
    const std::vector<TokenId> tokens = random_tokens(c.n_long + 3, 37, 5);
    const std::span<const TokenId> next = std::span(tokens).last(3);
    const Cache before = filled(transformer, std::span(tokens).first(static_cast<std::size_t>(c.n_long)));
    const std::vector<S> expected = answers(transformer, {}, before, next);
    CHECK(std::none_of(expected.begin(), expected.end(), [](S x) { return x != x; }));
    for (const Index n_threads : {2, 3, 5, 33}) {
      CAPTURE(c.n_kv_heads);
      CAPTURE(c.n_long);
      CAPTURE(n_threads);
      const kvdecode_test::BackwardsExecutor backwards{n_threads};
      CHECK(answers<S>(transformer, backwards, before, next) == expected);
      if (n_threads > 3) continue;
      kvdecode::ThreadTeam team(n_threads);
      CHECK(answers<S>(transformer, team, before, next) == expected);
    }
  }
}

/// Runs tasks on this thread and adds up the multiplications of scores of each.
struct WeighingExecutor {
  std::vector<Index>* work;  // of each thread

  Index concurrency() const { return static_cast<Index>(work->size()); }
  void parallel_for(Index n, kvdecode::TaskRef task) const {
    for (Index i = 0; i < n; ++i) {
      kvdecode::take_work_counters();
      task(i);
      (*work)[static_cast<std::size_t>(i)] += kvdecode::take_work_counters()[kvdecode::Work::kScores];
    }
  }
};

TEST_CASE("shared attention: each thread has its share of the scores of a single row") {
  using S = kvdecode::Counting<double>;
  const Index n = 2047;
  const std::vector<TokenId> tokens = random_tokens(n + 1, 37, 5);
  for (const Index n_kv_heads : {1, 3})
    for (const std::size_t n_threads : {2, 4, 8}) {
      CAPTURE(n_kv_heads);
      CAPTURE(n_threads);
      const RandomModel model(config_of(n_kv_heads, {}, {.window = 8, .n_sink = 1}));
      const kvdecode::Transformer<S> transformer(model.config, model.weights);
      Cache cache(transformer.kv_shape(), 4096);
      Workspace<S> workspace;
      transformer.forward(workspace, {}, Segment<Cache>{&cache, std::span(tokens).first(n), Rows::kNone});
      std::vector<Index> work(n_threads);
      const WeighingExecutor weighing{&work};
      transformer.forward(workspace, weighing, Segment<Cache>{&cache, std::span(tokens).last(1)});
      const double all = static_cast<double>(std::accumulate(work.begin(), work.end(), Index{0}));
      CHECK(all == 2.0 * static_cast<double>(n_kv_heads * 6 * (2048 + 9)));
      const double most = static_cast<double>(*std::max_element(work.begin(), work.end()));
      CHECK(most * static_cast<double>(n_threads) < 1.05 * all);
    }
}

}  // namespace

// SPDX-License-Identifier: MIT
// What decoding costs, counted and in closed form. A scalar that counts runs through the same templates, so
// the numbers are equal, not close.
#include <support/model.hpp>
#include <support/random.hpp>

#include <kvdecode/kvdecode.hpp>

#include <doctest/doctest.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace kvdecode;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;

using S = Counting<float>;

/// Multiply-adds of decoding T tokens one by one.
template <class Strategy>
WorkCounters work_of_steps(const RandomModel& model, Index n_tokens) {
  const Transformer<S> transformer(model.config, model.weights);
  Decoder decoder(transformer, Strategy{});
  take_work_counters();
  for (const TokenId token : random_tokens(n_tokens, model.config.vocab_size, 1)) decoder.step(token);
  return take_work_counters();
}

/// Numbers in the matrices that every token passes through: layers * (q and o, k and v, feed-forward).
Index weights_of_layers(const ModelConfig& c) {
  return c.n_layers * (2 * c.n_heads * c.head_dim * c.d_model + 2 * c.n_kv_heads * c.head_dim * c.d_model +
                       (c.gated_feed_forward ? 3 : 2) * c.d_ff * c.d_model);
}

TEST_CASE("work: Recompute multiplies O(T^3), Cached O(T^2), by these closed forms") {
  for (const Index n_layers : {1, 2, 3})
    for (const auto& heads : {std::pair{1, 1}, {4, 4}, {4, 2}, {6, 2}, {4, 1}})
      for (const Index head_dim : {2, 8, 20})
        for (const Index T : {1, 2, 5, 17}) {
          const Index n_heads = heads.first, n_kv_heads = heads.second;
          ModelConfig config = kvdecode_test::config_of("gqa");
          config.n_layers = n_layers;
          config.n_heads = n_heads;
          config.n_kv_heads = n_kv_heads;
          config.head_dim = head_dim;
          CAPTURE(n_layers);
          CAPTURE(n_heads);
          CAPTURE(n_kv_heads);
          CAPTURE(head_dim);
          CAPTURE(T);
          const RandomModel model(config);
          const WorkCounters cached = work_of_steps<Cached<>>(model, T);
          const WorkCounters naive = work_of_steps<Recompute<>>(model, T);
          // A query at position i meets i + 1 keys: head_dim products each, for every head of every layer.
          // Cached:    sum over t = 1 … T of t          = T (T + 1) / 2
          // Recompute: sum over t = 1 … T of t (t + 1) / 2 = T (T + 1) (T + 2) / 6
          const Index a_key = n_layers * n_heads * head_dim;
          const Index keys = T * (T + 1) / 2, all_keys = T * (T + 1) * (T + 2) / 6;
          CHECK(cached[Work::kScores] == a_key * keys);
          CHECK(cached[Work::kValues] == a_key * keys);
          CHECK(naive[Work::kScores] == a_key * all_keys);
          CHECK(naive[Work::kValues] == a_key * all_keys);
          // Every token that is run passes through every matrix but the head, which only the last one sees.
          const Index head = config.vocab_size * config.d_model;
          CHECK(cached[Work::kLinear] == T * (weights_of_layers(config) + head));
          CHECK(naive[Work::kLinear] == T * (T + 1) / 2 * weights_of_layers(config) + T * head);
        }
}

TEST_CASE("work: the number of KV heads changes projections only") {
  ModelConfig config = kvdecode_test::config_of("mha");
  const WorkCounters mha = work_of_steps<Cached<>>(RandomModel(config), 9);
  config.n_kv_heads = 1;
  const WorkCounters mqa = work_of_steps<Cached<>>(RandomModel(config), 9);
  CHECK(mha[Work::kScores] == mqa[Work::kScores]);
  CHECK(mha[Work::kValues] == mqa[Work::kValues]);
  CHECK(mha[Work::kLinear] - mqa[Work::kLinear] == 9 * 2 * 2 * 3 * 8 * 32);  // K and V, layers, heads less
}

TEST_CASE("work: what a span hides is not computed") {
  for (const std::string words :
       {"full", "sliding", "sinks", "sinks_within", "chunk", "mixed", "mixed_sinks"}) {
    CAPTURE(words);
    const RandomModel model(words);
    const Index T = 23;
    Index visible = 0;
    for (Index layer = 0; layer < 2; ++layer)
      for (Index i = 0; i < T; ++i)
        for (Index j = 0; j <= i; ++j) visible += model.config.span(layer).sees(i, j) ? 1 : 0;
    const WorkCounters work = work_of_steps<Cached<>>(model, T);
    CHECK(work[Work::kScores] == visible * 6 * 8);
    CHECK(work[Work::kValues] == visible * 6 * 8);
  }
}

TEST_CASE("work: neither chunks nor caches, formats or threads of one change it") {
  const RandomModel model("gqa mixed");
  const Transformer<S> transformer(model.config, model.weights);
  const auto tokens = random_tokens(30, 37, 1);
  const auto work_of = [&](const auto& strategy) {
    Decoder decoder(transformer, strategy);
    take_work_counters();
    decoder.append(tokens);
    return take_work_counters();
  };
  const WorkCounters expected = work_of(Cached<>{});
  const auto check = [&](const WorkCounters& work) {
    for (const Work kind : {Work::kLinear, Work::kScores, Work::kValues}) CHECK(work[kind] == expected[kind]);
  };
  check(work_of(Cached<>{.prefill_chunk = 1}));
  check(work_of(Cached<>{.prefill_chunk = 7}));
  check(work_of(Recompute<>{}));
  check(work_of(Cached<ContiguousCache<F16>>{}));
  check(work_of(Cached<GrowingCache<F32, BF16>>{.cache = {.initial_positions = 1}}));
}

TEST_CASE("work: rows that nobody asks for cost no head") {
  const RandomModel model("gqa");
  const Transformer<S> transformer(model.config, model.weights);
  const auto tokens = random_tokens(6, 37, 1);
  using Cache = ContiguousCache<Raw<S>>;
  const auto linear_of = [&](Rows rows) {
    Workspace<S> workspace;
    Cache cache(transformer.kv_shape(), 6);
    take_work_counters();
    transformer.forward(workspace, {}, Segment<Cache>{&cache, tokens, rows});
    return take_work_counters()[Work::kLinear];
  };
  const Index layers = 6 * weights_of_layers(model.config), head = 37 * 32;
  CHECK(linear_of(Rows::kNone) == layers);
  CHECK(linear_of(Rows::kLast) == layers + head);
  CHECK(linear_of(Rows::kAll) == layers + 6 * head);
}

}  // namespace

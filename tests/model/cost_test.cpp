// SPDX-License-Identifier: MIT
// Closed forms held against counted work: a scalar that counts runs through the same templates, so the numbers are
// equal, not close.
#include <support/forward.hpp>
#include <support/model.hpp>
#include <support/random.hpp>

#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/kvdecode.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace kvdecode;
using kvdecode_test::config_of;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;

using S = Counting<float>;

/// What writing n_new tokens behind a prompt counts: a step for the prompt, one for each token but the last.
template <class Strategy>
WorkCounters counted(const RandomModel& model, const Strategy& strategy, Index n_prompt, Index n_new) {
  const Transformer<S> transformer(model.config, model.weights);
  Decoder decoder(transformer, strategy);
  const auto tokens = random_tokens(n_prompt + n_new - 1, model.config.vocab_size, 1);
  take_work_counters();
  decoder.append(std::span(tokens).first(static_cast<std::size_t>(n_prompt)));
  for (Index i = n_prompt; i < n_prompt + n_new - 1; ++i) decoder.step(tokens[static_cast<std::size_t>(i)]);
  return take_work_counters();
}
WorkCounters counted(const RandomModel& model, StrategyKind kind, Index n_prompt, Index n_new) {
  return kind == StrategyKind::kCached ? counted(model, Cached<>{}, n_prompt, n_new)
                                       : counted(model, Recompute<>{}, n_prompt, n_new);
}

double number(Index n) { return static_cast<double>(n); }

void check_equal(const WorkCounters& work, const MultiplyAdds& cost) {
  CHECK(number(work[Work::kScores]) == cost.scores);
  CHECK(number(work[Work::kValues]) == cost.values);
  CHECK(number(work[Work::kLinear]) == cost.linear());
}

constexpr StrategyKind kKinds[] = {StrategyKind::kRecompute, StrategyKind::kCached};

TEST_CASE("cost: counted work is the closed form, over layers, heads, groups, head sizes and lengths") {
  for (const Index n_layers : {1, 2, 3})
    for (const auto& heads : {std::pair{1, 1}, {4, 4}, {4, 2}, {6, 2}, {4, 1}})
      for (const Index head_dim : {2, 8, 20}) {
        ModelConfig config = config_of("gqa");
        config.n_layers = n_layers;
        config.n_heads = heads.first;
        config.n_kv_heads = heads.second;
        config.head_dim = head_dim;
        const RandomModel model(config);
        const ModelCost cost = model_cost(config);
        for (const auto& lengths : {std::pair{1, 1}, {1, 2}, {1, 5}, {1, 17}, {6, 1}, {7, 4}})
          for (const StrategyKind kind : kKinds) {
            CAPTURE(n_layers);
            CAPTURE(config.n_heads);
            CAPTURE(config.n_kv_heads);
            CAPTURE(head_dim);
            CAPTURE(lengths.first);
            CAPTURE(lengths.second);
            CAPTURE(static_cast<int>(kind));
            check_equal(counted(model, kind, lengths.first, lengths.second),
                        cost.total(kind, lengths.first, lengths.second).multiply_adds);
          }
      }
}

TEST_CASE("cost: counted work is the closed form, for every span and length around its edges") {
  std::vector<AttentionSpan> spans{{}};
  for (const Index window : {1, 2, 5, 8})
    for (const Index n_sink : {0, 1, 3}) spans.push_back({window, n_sink, 0});
  for (const Index chunk : {1, 2, 4, 7}) spans.push_back({0, 0, chunk});
  for (const AttentionSpan& span : spans) {
    ModelConfig config = config_of("gqa");
    config.spans = {span, {}};  // beside a layer that sees everything
    const RandomModel model(config);
    const ModelCost cost = model_cost(config);
    for (const auto& lengths : {std::pair{1, 1}, {1, 4}, {1, 5}, {1, 6}, {1, 9}, {1, 20}, {5, 7}, {13, 3}})
      for (const StrategyKind kind : kKinds) {
        CAPTURE(span.window);
        CAPTURE(span.n_sink);
        CAPTURE(span.chunk);
        CAPTURE(lengths.first);
        CAPTURE(lengths.second);
        CAPTURE(static_cast<int>(kind));
        check_equal(counted(model, kind, lengths.first, lengths.second),
                    cost.total(kind, lengths.first, lengths.second).multiply_adds);
      }
  }
}

TEST_CASE("cost: counted work is the closed form of every small config: experts, tied heads, plain layers") {
  for (const std::string_view words : kvdecode_test::kSmallConfigs) {
    CAPTURE(words);
    const RandomModel model(words);
    if (model.config.rotary_epoch(12) != model.config.rotary_epoch(1)) continue;
    for (const StrategyKind kind : kKinds) {
      CAPTURE(static_cast<int>(kind));
      check_equal(counted(model, kind, 3, 10), model_cost(model.config).total(kind, 3, 10).multiply_adds);
    }
  }
}

TEST_CASE("cost: counted work is the closed form, over experts") {
  for (const auto& experts : {std::pair{1, 1}, {4, 1}, {4, 3}, {8, 2}, {5, 5}})
    for (const Index d_expert : {1, 12, 50})
      for (const bool gated : {true, false}) {
        ModelConfig config = config_of("some_experts");
        config.n_experts = experts.first;
        config.n_experts_used = experts.second;
        config.d_expert = d_expert;
        config.gated_feed_forward = gated;
        const RandomModel model(config);
        for (const StrategyKind kind : kKinds) {
          CAPTURE(config.n_experts);
          CAPTURE(config.n_experts_used);
          CAPTURE(d_expert);
          CAPTURE(gated);
          CAPTURE(static_cast<int>(kind));
          check_equal(counted(model, kind, 2, 6), model_cost(config).total(kind, 2, 6).multiply_adds);
        }
      }
}

TEST_CASE(
    "cost: counted work is the closed form, over latents, their ranks and heads, and experts in groups") {
  for (const Index q_lora_rank : {0, 1, 21})
    for (const Index kv_lora_rank : {1, 18, 40})
      for (const auto& heads : {std::pair{1, 9}, {5, 9}, {4, 1}})
        for (const std::string_view experts : {"mla", "mla balanced_experts", "mla sliding best_groups"}) {
          ModelConfig config = config_of(experts);
          config.q_lora_rank = q_lora_rank;
          config.kv_lora_rank = kv_lora_rank;
          config.n_heads = heads.first;
          config.v_head_dim = heads.second;
          const RandomModel model(config);
          const ModelCost cost = model_cost(config);
          for (const auto& lengths : {std::pair{1, 1}, {1, 9}, {6, 3}})
            for (const StrategyKind kind : kKinds) {
              CAPTURE(experts);
              CAPTURE(q_lora_rank);
              CAPTURE(kv_lora_rank);
              CAPTURE(config.n_heads);
              CAPTURE(config.v_head_dim);
              CAPTURE(lengths.first);
              CAPTURE(lengths.second);
              CAPTURE(static_cast<int>(kind));
              check_equal(counted(model, kind, lengths.first, lengths.second),
                          cost.total(kind, lengths.first, lengths.second).multiply_adds);
            }
        }
}

TEST_CASE(
    "cost: counted work is the closed form, over layers that read another's keys and values, of heads of "
    "their own "
    "length, and over their inputs") {
  for (const std::vector<Index>& stores :
       {std::vector<Index>{}, {0, 0, 0, 0}, {0, 1, 2, 1}, {0, 1, 0, 1}, {0, 1, 1, 1}})
    for (const std::vector<Index>& dims : {std::vector<Index>{}, {8, 20, 8, 20}})
      for (const Index d_layer_input : {0, 1, 9})
        for (const std::string_view words : {"gqa", "mqa plain some_experts"}) {
          ModelConfig config = config_of(words);
          config.n_layers = 4;
          config.has_experts.resize(config.has_experts.empty() ? 0 : 4);
          config.kv_stores = stores;
          config.layer_head_dim = dims;
          config.d_layer_input = d_layer_input;
          if (!dims.empty() && !stores.empty() && (stores[1] == 0 || stores[2] == 1)) continue;
          const RandomModel model(config);
          const ModelCost cost = model_cost(config);
          for (const auto& lengths : {std::pair{1, 1}, {1, 9}, {6, 3}})
            for (const StrategyKind kind : kKinds) {
              CAPTURE(words);
              CAPTURE(stores.size());
              CAPTURE(dims.size());
              CAPTURE(d_layer_input);
              CAPTURE(lengths.first);
              CAPTURE(lengths.second);
              CAPTURE(static_cast<int>(kind));
              check_equal(counted(model, kind, lengths.first, lengths.second),
                          cost.total(kind, lengths.first, lengths.second).multiply_adds);
            }
        }
}

TEST_CASE("cost: of layers that read another's keys and values, their matrices and bytes by hand") {
  // d_model 32; heads of 8, 16 and 8, six of queries and two of keys; the last layer reads the first one's.
  const ModelConfig config = config_of("borrowed own_head_dims layer_inputs");
  const Cost step = model_cost<F16>(config).step(StrategyKind::kCached, 10);
  CHECK(step.multiply_adds.scores == 6 * (8 + 16 + 8) * 10);
  CHECK(step.multiply_adds.values == 6 * (8 + 16 + 8) * 10);
  CHECK(step.multiply_adds.projections == 2 * 48 * 32 * 2 + 2 * 96 * 32 + 2 * 16 * 32 + 2 * 32 * 32);
  CHECK(step.multiply_adds.feed_forward == 3 * (3 * 44 * 32 + 2 * 6 * 32) + 18 * 32);
  CHECK(step.cache_bytes_read == 10 * 2 * 2 * (8 + 16 + 8) * 2);
  CHECK(step.cache_bytes_written == 2 * 2 * (8 + 16) * 2);
  // Of weights a step reads them all, and a row of either embedding.
  const RandomModel model(config, {.format = FormatId::kF16});
  const double expected = 2.0 * (step.multiply_adds.linear() + 32 + 18);
  CHECK(model_cost<F16>(config, model.weights).step(StrategyKind::kCached, 10).weight_bytes == expected);
  CHECK(model_cost<F16, F16, F16>(config).step(StrategyKind::kCached, 10).weight_bytes == expected);
}

TEST_CASE("cost: of a latent, its projections and its one row a position by hand") {
  const ModelConfig config =
      config_of("mla_q best_groups");  // d_model 32, 5 heads of 7 + 6, ranks 21 and 18, values 9
  const Cost step = model_cost<F16>(config).step(StrategyKind::kCached, 10);
  CHECK(step.multiply_adds.scores == 2 * 5 * 24 * 10);
  CHECK(step.multiply_adds.values == 2 * 5 * 18 * 10);
  CHECK(step.multiply_adds.projections ==
        2 * (21 * 32 + 65 * 21 + 24 * 32 + 5 * 7 * 18 + 5 * 9 * 18 + 45 * 32));
  CHECK(step.multiply_adds.feed_forward == 2 * (8 * 32 + 3 * 3 * 12 * 32 + 3 * 26 * 32));
  CHECK(step.cache_bytes_read == 2 * 10 * 24 * 2);
  CHECK(step.cache_bytes_written == 2 * 24 * 2);
  // Of weights a step reads all but five of eight experts, and one row of the embedding.
  const RandomModel model(config, {.format = FormatId::kF16, .transposed = true});
  const double expected =
      4.0 * (21 * 32 + 65 * 21 + 24 * 32 + 5 * 16 * 18 + 45 * 32 + 8 * 32 + 3 * 26 * 32 + 3 * 3 * 12 * 32) +
      2.0 * (37 * 32 + 32);
  CHECK(model_cost<F16>(config, model.weights).step(StrategyKind::kCached, 10).weight_bytes ==
        doctest::Approx(expected).epsilon(1e-14));
}

TEST_CASE("cost: kinds of work are what their matrices and heads are") {
  const ModelConfig config = config_of("gqa experts");  // 2 layers, d_model 32, 6 heads of 8, 2 KV heads
  const Cost step = model_cost(config).step(StrategyKind::kCached, 10);
  CHECK(step.multiply_adds.scores == 2 * 6 * 8 * 10);
  CHECK(step.multiply_adds.values == 2 * 6 * 8 * 10);
  CHECK(step.multiply_adds.projections == 2 * (2 * 48 * 32 + 2 * 16 * 32));
  CHECK(step.multiply_adds.feed_forward == 2 * (5 * 32 + 2 * 3 * 20 * 32));
  CHECK(step.multiply_adds.head == 37 * 32);
  CHECK(step.multiply_adds.attention() == 2 * 2 * 6 * 8 * 10);
  CHECK(step.multiply_adds.total() == step.multiply_adds.attention() + step.multiply_adds.linear());
}

TEST_CASE(
    "cost: counted, naive attention is a polynomial of degree 3 in T, cached attention one of degree 2") {
  const RandomModel model("gqa");
  const double a = 2.0 * 2 * 6 * 8;  // scores and values, layers, heads, head_dim
  for (const StrategyKind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    std::vector<double> differences;  // of T = 1, 2, … 9
    for (Index T = 1; T < 10; ++T) {
      const WorkCounters work = counted(model, kind, 1, T);
      differences.push_back(number(work[Work::kScores] + work[Work::kValues]));
    }
    // The d-th differences of a polynomial of degree d are its leading coefficient times d!, and all the same.
    const int degree = kind == StrategyKind::kCached ? 2 : 3;
    const double leading = kind == StrategyKind::kCached ? a / 2 : a / 6;
    for (int d = 0; d < degree; ++d) {
      CHECK(std::set(differences.begin(), differences.end()).size() > 1);
      for (std::size_t i = 0; i + 1 < differences.size(); ++i)
        differences[i] = differences[i + 1] - differences[i];
      differences.pop_back();
    }
    for (const double difference : differences) CHECK(difference == leading * (degree == 2 ? 2 : 6));
  }
}

TEST_CASE("cost: the last row passes through every layer whole, also of one layer") {
  ModelConfig config = config_of("gqa");
  config.n_layers = 1;
  const WorkCounters work = counted(RandomModel(config), Recompute<>{}, 1, 9);
  CHECK(work[Work::kScores] == 6 * 8 * 9 * 10 * 11 / 6);
}

TEST_CASE("cost: counted work of forward calls is the closed form, whatever rows are asked for") {
  for (const std::string_view words : {"gqa", "sliding", "mixed_sinks", "chunk", "experts tied"}) {
    CAPTURE(words);
    const RandomModel model(words);
    const ModelCost cost = model_cost(model.config);
    const Transformer<S> transformer(model.config, model.weights);
    ContiguousCache<Raw<S>> cache(transformer.kv_shape(), 40);
    Workspace<S> workspace;
    for (const auto& [n_new, rows] :
         {std::pair{5, Rows::kNone}, {1, Rows::kLast}, {9, Rows::kAll}, {2, Rows::kLast}}) {
      const Index kv_len = cache.kv_len();
      CAPTURE(kv_len);
      take_work_counters();
      kvdecode_test::forward(transformer, workspace, cache, random_tokens(n_new, 37, 2), rows);
      check_equal(take_work_counters(), cost.forward(kv_len, n_new,
                                                     rows == Rows::kAll    ? n_new
                                                     : rows == Rows::kLast ? 1
                                                                           : 0)
                                            .multiply_adds);
    }
  }
}

TEST_CASE("cost: neither chunks nor caches or their formats change what is counted") {
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

TEST_CASE("cost: a total is the sum of its steps, in every figure") {
  for (const std::string_view words : {"gqa", "sliding", "sinks", "chunk", "mixed", "experts learned"}) {
    ModelConfig config = config_of(words);
    for (const Index chunk : {1, 3, 4, 512}) {
      CAPTURE(words);
      CAPTURE(chunk);
      ModelCost cost = model_cost<F16, Int8>(config);
      cost.prefill_chunk = chunk;
      for (const Index n_prompt : {1, 3, 4, 10}) {
        Cost sum[2];
        for (Index n_new = 1; n_new < 20; ++n_new)
          for (const StrategyKind kind : kKinds) {
            Cost& all = sum[static_cast<int>(kind)];
            const Index seq_len = n_prompt + n_new - 1;
            // The first cached step runs the prompt, which is what a naive step of its length does.
            all += cost.step(n_new == 1 ? StrategyKind::kRecompute : kind, seq_len);
            const Cost total = cost.total(kind, n_prompt, n_new);
            CAPTURE(n_prompt);
            CAPTURE(n_new);
            CHECK(total.multiply_adds == all.multiply_adds);
            CHECK(total.cache_bytes_read == all.cache_bytes_read);
            CHECK(total.cache_bytes_written == all.cache_bytes_written);
            // Shares of experts are no whole numbers.
            CHECK(total.weight_bytes == doctest::Approx(all.weight_bytes).epsilon(1e-12));
            if (config.n_experts == 0) CHECK(total.weight_bytes == all.weight_bytes);
          }
      }
    }
  }
}

TEST_CASE("cost: bytes of the cache are those of the rows that counted work has read and written") {
  for (const std::string_view words : {"gqa", "mha", "mqa", "sinks", "chunk", "borrowed sliding"}) {
    CAPTURE(words);
    const RandomModel model(words);
    const ModelConfig& c = model.config;
    const ModelCost cost = model_cost<F16, Int8>(c);
    const WorkCounters work = counted(model, Cached<>{}, 3, 15);
    const Cost total = cost.total(StrategyKind::kCached, 3, 15);
    // A row of keys is read once for the group_size heads that multiply it.
    const Index rows = work[Work::kScores] / (c.group_size() * c.head_dim);
    CHECK(total.cache_bytes_read ==
          number(rows * (F16::row_bytes(c.head_dim) + Int8::row_bytes(c.head_dim))));
    KvShape everything = c.kv_shape();
    for (LayerKvShape& layer : everything.layers) layer.span = {};
    CHECK(total.cache_bytes_written == number(payload_bytes<F16, Int8>(everything, 17)));
  }
}

TEST_CASE("cost: rows of another layer are read, not written") {
  KvShape shape = config_of("gqa").kv_shape();
  shape.layers[1].store = 0;
  const LayerCost owner = detail::attention_cost<F32, F32>(config_of("gqa"), shape, 0),
                  reader = detail::attention_cost<F32, F32>(config_of("gqa"), shape, 1);
  CHECK(owner.cache_bytes_written == 2 * 2 * 8 * 4);
  CHECK(reader.cache_bytes_read == owner.cache_bytes_read);
  CHECK(reader.cache_bytes_written == 0.0);
}

TEST_CASE("cost: bytes of weights are those of the matrices, each once a pass, in their own formats") {
  for (const std::string_view words : {"gqa", "tied", "learned plain", "tied learned some_experts"})
    for (const bool transposed : {false, true}) {
      CAPTURE(words);
      CAPTURE(transposed);
      RandomModel model(words, {.format = FormatId::kF16, .transposed = transposed, .row_padding = 6});
      const RandomModel wide(words);
      model.weights.layers[1].w_q = wide.weights.layers[1].w_q;  // one is in f32
      const ModelConfig& c = model.config;
      double all = 0.0, experts = 0.0;
      for_each_matrix(model.weights, [&](const MatrixView& w) {
        all += number(w.rows * w.cols * (w.format == FormatId::kF16 ? 2 : 4));
      });
      for (const LayerWeights& layer : model.weights.layers)
        for (const ExpertWeights& expert : layer.experts)
          for (const LinearWeights* w : {&expert.w_gate, &expert.w_up, &expert.w_down})
            experts += number(w->matrix.rows * w->matrix.cols * 2);
      const double positions = c.position == PositionKind::kLearned ? number(c.max_seq_len * 32 * 2) : 0.0;
      const double embedding = number(c.vocab_size * 32 * 2), rows = positions > 0.0 ? 2 * 32 * 2 : 32 * 2;
      // A step reads everything but what is looked up, and two of five experts.
      const double head_again = c.tied_head ? embedding : 0.0;
      const double step = all - embedding - positions + head_again - experts * 3.0 / 5.0 + rows;
      const ModelCost cost = model_cost<F32, F32>(c, model.weights);
      CHECK(cost.step(StrategyKind::kCached, 9).weight_bytes == doctest::Approx(step).epsilon(1e-14));
      CHECK(cost.weight_bytes(1, 1) == doctest::Approx(step).epsilon(1e-14));
      CHECK(cost.weight_bytes(1, 0) == doctest::Approx(step - cost.head_bytes).epsilon(1e-14));
      // Of four tokens each experts go unused with probability (3/5)^4.
      CHECK(cost.weight_bytes(4, 2) ==
            doctest::Approx(step + experts * (3.0 / 5.0 - std::pow(0.6, 4)) + 3 * rows).epsilon(1e-14));
    }
}

TEST_CASE("cost: without weights, as if all matrices were of one format") {
  for (const std::string_view words :
       {"gqa", "mha tied", "plain learned", "some_experts", "mla", "mla_q tied balanced_experts",
        "borrowed tied own_head_dims layer_inputs"}) {
    CAPTURE(words);
    const RandomModel model(words, {.format = FormatId::kBF16});
    const ModelCost expected = model_cost<F16>(model.config, model.weights);
    const ModelCost actual = model_cost<F16, F16, BF16>(model.config);
    for (const StrategyKind kind : kKinds) CHECK(actual.total(kind, 5, 30) == expected.total(kind, 5, 30));
  }
  // Q8_0 has blocks of 32 numbers in 34 bytes: one a row of d_model, two a row of w_o (48) and w_down (44).
  const Index a_layer = 48 + 16 + 16 + 44 + 44 + 2 * 32 + 2 * 32, head = 37, embedding = 1;
  CHECK(model_cost<F32, F32, Q8_0>(config_of("gqa")).weight_bytes(1, 1) ==
        number(34 * (2 * a_layer + head + embedding)));
}

TEST_CASE("cost: what cannot be asked is refused") {
  const ModelCost cost = model_cost(config_of("gqa"));
  CHECK_THROWS_WITH_AS(
      cost.total(StrategyKind::kCached, 0, 1),
      "cost: lengths and prefill_chunk must be in [1, 2^48], got 0 tokens, then 1, in chunks of 512", Error);
  CHECK_THROWS_AS(cost.total(StrategyKind::kRecompute, 1, 0), Error);
  CHECK_THROWS_AS(cost.total(StrategyKind::kRecompute, (Index{1} << 48) + 1, 1), Error);
  CHECK_THROWS_AS(cost.step(StrategyKind::kRecompute, 0), Error);
  ModelCost chunkless = cost;
  chunkless.prefill_chunk = 0;
  CHECK_THROWS_AS(chunkless.step(StrategyKind::kRecompute, 3), Error);
  ModelConfig config = config_of("gqa");
  config.n_heads = 5;
  CHECK_THROWS_AS(model_cost(config), Error);

  const ModelCost longrope = model_cost(config_of("longrope"));  // its angles change behind 9 positions
  CHECK(longrope.total(StrategyKind::kCached, 1, 9).multiply_adds.scores > 0.0);
  CHECK(longrope.total(StrategyKind::kCached, 10, 9).multiply_adds.scores > 0.0);
  CHECK(longrope.total(StrategyKind::kRecompute, 1, 10).multiply_adds.scores > 0.0);
  CHECK_THROWS_WITH_AS(
      longrope.total(StrategyKind::kCached, 1, 10),
      "cost: between 1 and 10 tokens the model's rotary angles change with the length (epoch 0 to "
      "1), and cached decoding runs old tokens again",
      Error);
  CHECK_THROWS_AS(longrope.step(StrategyKind::kCached, 10), Error);
  CHECK(longrope.step(StrategyKind::kCached, 11).multiply_adds.scores > 0.0);
}

TEST_CASE("cost: figures stay right where they exceed 64 bits") {
  ModelConfig config = config_of("gqa");
  config.n_layers = 32;
  config.n_heads = config.n_kv_heads = 32;
  config.head_dim = 128;
  const Index T = Index{1} << 17;
  const double t = number(T), a = 2.0 * 32 * 32 * 128;
  const MultiplyAdds naive = model_cost(config).total(StrategyKind::kRecompute, 1, T).multiply_adds;
  CHECK(naive.attention() == doctest::Approx(a * (t * t * t / 6 + t * t / 2 + t / 3)).epsilon(1e-15));
  CHECK(naive.attention() > 9.3e18);
}

TEST_CASE("cost table: counts in at most four digits") {
  const std::pair<double, std::string_view> counts[] = {
      {0.0, "0"},          {0.004, "0.00"},      {0.5, "0.50"},      {1.254, "1.25"},     {9.994, "9.99"},
      {9.996, "10.0"},     {12.5, "12.5"},       {99.96, "100"},     {999.4, "999"},      {999.6, "1.00 k"},
      {999.0, "999"},      {1000.0, "1,000"},    {9999.0, "9,999"},  {10000.0, "10.0 k"}, {12345.0, "12.3 k"},
      {999499.0, "999 k"}, {999500.0, "1.00 M"}, {1.05e6, "1.05 M"}, {9.8e19, "98.0 E"},  {1e21, "-"},
      {-1.0, "-"},         {std::nan(""), "-"}};
  for (const auto& [value, text] : counts) CHECK(short_count(value) == text);
}

TEST_CASE("cost table: both strategies side by side") {
  CHECK(cost_table(model_cost<F16, F16, F16>(config_of("gqa")), 3, 2) ==
        R"(                      the last step                   2 tokens behind 3
                     recompute    cached     ratio   recompute    cached     ratio
multiply-adds
  scores                   960       384      2.50       1,536       960      1.60
  values                   960       384      2.50       1,536       960      1.60
  projections           32.8 k     8,192         4      57.3 k    32.8 k      1.75
  feed-forward          33.8 k     8,448         4      59.1 k    33.8 k      1.75
  head                   1,184     1,184         1       2,368     2,368         1
  all                   69.7 k    18.6 k      3.75       122 k    70.8 k      1.72
bytes
  weights read          35.9 k    35.7 k      1.01      71.7 k    71.6 k      1.00
  cache read             1,280       512      2.50       2,048     1,280      1.60
  cache written            512       128         4         896       512      1.75
)");
}

}  // namespace

// SPDX-License-Identifier: MIT
// Logits held against the reference, and what a call returns. That nothing else changes them is for tests/laws/.
#include <reference/model.hpp>
#include <support/compare.hpp>
#include <support/executors.hpp>
#include <support/forward.hpp>
#include <support/model.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/core/counting.hpp>
#include <kvdecode/core/thread_team.hpp>
#include <kvdecode/model/cache_bytes.hpp>
#include <kvdecode/model/transformer.hpp>

#include <doctest/doctest.h>

#include <array>
#include <span>
#include <vector>

namespace {

using kvdecode::ContiguousCache;
using kvdecode::Counting;
using kvdecode::F16;
using kvdecode::F32;
using kvdecode::FormatId;
using kvdecode::GrowingCache;
using kvdecode::Index;
using kvdecode::Native;
using kvdecode::Raw;
using kvdecode::Rows;
using kvdecode::Segment;
using kvdecode::TokenId;
using kvdecode::Transformer;
using kvdecode::Workspace;
using kvdecode_test::all_logits;
using kvdecode_test::check_close;
using kvdecode_test::check_same_bits;
using kvdecode_test::copied;
using kvdecode_test::flat;
using kvdecode_test::forward;
using kvdecode_test::kSmallConfigs;
using kvdecode_test::magnitude;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;
using kvdecode_test::RandomWeightsOptions;
using kvdecode_test::tolerance;

// A logit has passed through some 300 roundings of two layers (each sum of 32 to 48 products has 3 in a lane and 4
// in the tree; norms, activations and the residual stream come on top), each of a number of about its own size.
// They add up as a random walk. The worst of all configs below is 26 in float and 46 in double, where the
// reference's own roundings are as large: norms behind the branches enlarge what is small, roundings too, and capped
// logits are smaller than what they were made of. Without those two it is 2.9 and 6.8. c is twice the worst.
constexpr double kRoundings = 92;

template <class S>
void check_against_reference(const RandomModel& model, const std::vector<TokenId>& tokens) {
  const Transformer<S> transformer(model.config, model.weights);
  const auto expected = kvdecode_reference::logits(model.config, model.weights, tokens);
  check_close(all_logits<S>(transformer, tokens), expected, tolerance<S>(kRoundings, magnitude(expected)));
}

TEST_CASE_TEMPLATE(
    "transformer: logits of every small config are near the reference, whatever holds the weights", S, float,
    double) {
  constexpr FormatId formats[] = {FormatId::kF32, FormatId::kBF16, FormatId::kF16, FormatId::kF64};
  std::uint64_t seed = 1;
  for (const std::string_view words : kSmallConfigs) {
    CAPTURE(words);
    // The formats, storages and biases in turn: each config meets one, all meet each other in the list.
    const RandomModel model(words, {.seed = seed,
                                    .format = formats[seed % 4],
                                    .biases = seed % 2 == 0,
                                    .transposed = seed % 3 == 0,
                                    .offset = static_cast<Index>(seed % 5),
                                    .row_padding = static_cast<Index>(seed % 7)});
    check_against_reference<S>(model, random_tokens(24, model.config.vocab_size, seed));
    ++seed;
  }
}

TEST_CASE_TEMPLATE("transformer: logits beyond the first tile of attention are near the reference", S, float,
                   double) {
  for (const std::string_view words :
       {"gqa", "mqa hd12 layer_norm relu2 plain parallel partial llama3 sinks_within"}) {
    CAPTURE(words);
    const RandomModel model(words);
    check_against_reference<S>(model, random_tokens(300, model.config.vocab_size, 7));
  }
}

TEST_CASE_TEMPLATE("transformer: the matrices of one model may be in different formats and storages", S,
                   float, double) {
  RandomModel model("gqa", {.seed = 3});
  const RandomModel half("gqa", {.seed = 3, .format = FormatId::kF16, .transposed = true});
  model.weights.layers[0].w_q = half.weights.layers[0].w_q;
  model.weights.layers[1].w_down = half.weights.layers[1].w_down;
  model.weights.token_embedding = half.weights.token_embedding;
  model.weights.final_norm = half.weights.final_norm;
  check_against_reference<S>(model, random_tokens(10, model.config.vocab_size, 8));
}

/// Calls f for every linear map of the weights.
template <class F>
void for_each_linear(kvdecode::Weights& weights, F&& f) {
  const auto feed_forward = [&](auto& w) {
    f(w.w_gate);
    f(w.w_up);
    f(w.w_down);
  };
  for (kvdecode::LayerWeights& layer : weights.layers) {
    for (kvdecode::LinearWeights* w : {&layer.w_q, &layer.w_k, &layer.w_v, &layer.w_o, &layer.router}) f(*w);
    feed_forward(layer);
    for (kvdecode::ExpertWeights& expert : layer.experts) feed_forward(expert);
  }
  f(weights.head);
}

TEST_CASE_TEMPLATE("transformer: a matrix and its scale are the matrix of the products", S, float, double) {
  for (const std::string_view words : {"gqa", "experts", "tied"}) {
    CAPTURE(words);
    RandomModel model(words, {.seed = 6, .biases = true});
    const std::vector<TokenId> tokens = random_tokens(9, model.config.vocab_size, 8);
    const auto plain = all_logits<S>(Transformer<S>(model.config, model.weights), tokens);
    // Powers of two: products round as they did.
    RandomModel scaled = model;
    std::vector<std::vector<float>> numbers;
    double scale = 0.25;
    for_each_linear(scaled.weights, [&](kvdecode::LinearWeights& w) {
      if (w.matrix.empty()) return;
      scale = scale == 4.0 ? 0.25 : 2.0 * scale;
      std::vector<float>& divided = numbers.emplace_back();
      for (const auto& row : kvdecode_reference::read(w.matrix))
        for (const double x : row) divided.push_back(static_cast<float>(x / scale));
      w.matrix.data = reinterpret_cast<const std::byte*>(divided.data());
      w.matrix.stride = 4 * w.matrix.cols;
      w.scale = scale;
    });
    const auto by_scales = all_logits<S>(Transformer<S>(scaled.config, scaled.weights), tokens);
    check_same_bits(flat(by_scales), flat(plain));
    check_against_reference<S>(scaled, tokens);
  }
}

TEST_CASE_TEMPLATE("transformer: a head that is tied is the token embedding, and may have a bias", S, float,
                   double) {
  RandomModel model("tied", {.seed = 4});
  model.weights.head.bias = RandomModel("gqa", {.seed = 5, .biases = true}).weights.head.bias;
  const RandomModel owner("gqa", {.seed = 5, .biases = true});
  model.weights.head.bias = owner.weights.head.bias;
  check_against_reference<S>(model, random_tokens(10, model.config.vocab_size, 9));
}

TEST_CASE("transformer: rows of logits are those asked for, segment by segment") {
  const RandomModel model("mixed");
  const Transformer<float> transformer(model.config, model.weights);
  using Cache = ContiguousCache<F32>;
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::vector<std::vector<float>>> alone;
  for (const Index n : {3, 1, 7, 2}) {
    tokens.push_back(random_tokens(n, model.config.vocab_size, static_cast<std::uint64_t>(n)));
    alone.push_back(all_logits(transformer, tokens.back()));
  }
  constexpr Rows kKinds[] = {Rows::kNone, Rows::kLast, Rows::kAll};
  for (int code = 0; code < 81; ++code) {  // every assignment of the kinds to the four segments
    CAPTURE(code);
    std::vector<Cache> caches;
    for (int i = 0; i < 4; ++i) caches.emplace_back(transformer.kv_shape(), 10);
    std::vector<Segment<Cache>> segments;
    std::vector<std::vector<float>> expected;
    for (int i = 0, rest = code; i < 4; ++i, rest /= 3) {
      const auto s = static_cast<std::size_t>(i);
      const Rows rows = kKinds[rest % 3];
      segments.push_back({&caches[s], tokens[s], rows});
      if (rows == Rows::kAll) expected.insert(expected.end(), alone[s].begin(), alone[s].end());
      if (rows == Rows::kLast) expected.push_back(alone[s].back());
    }
    Workspace<float> workspace;
    const auto actual = copied(transformer.forward(workspace, {}, std::span<const Segment<Cache>>(segments)));
    CHECK(actual.size() == expected.size());
    check_same_bits(flat(actual), flat(expected));
    for (std::size_t i = 0; i < 4; ++i) CHECK(caches[i].kv_len() == static_cast<Index>(tokens[i].size()));
  }
}

TEST_CASE("transformer: no segments, no rows") {
  const RandomModel model("gqa");
  const Transformer<float> transformer(model.config, model.weights);
  Workspace<float> workspace;
  const auto rows = transformer.forward(workspace, {}, std::span<const Segment<ContiguousCache<F32>>>());
  CHECK(rows.rows == 0);
}

TEST_CASE_TEMPLATE("transformer: a sequence continued call by call is the sequence at once", S, float,
                   double) {
  for (const std::string_view words : {"gqa", "sinks_within mqa", "chunk learned"}) {
    CAPTURE(words);
    const RandomModel model(words);
    const Transformer<S> transformer(model.config, model.weights);
    const std::vector<TokenId> tokens = random_tokens(20, model.config.vocab_size, 10);
    const auto expected = all_logits(transformer, tokens);
    GrowingCache<Native<S>> cache(transformer.kv_shape(), 20);
    Workspace<S> workspace;
    std::vector<std::vector<S>> actual;
    for (Index at = 0, n = 1; at < 20; at += n, n = std::min<Index>(n + 1, 20 - at)) {
      const auto rows =
          forward(transformer, workspace, cache,
                  std::span(tokens).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n)));
      actual.insert(actual.end(), rows.begin(), rows.end());
    }
    check_same_bits(flat(actual), flat(expected));
  }
}

TEST_CASE_TEMPLATE("transformer: threads do not show", S, float, double) {
  const RandomModel model("hd12 interleaved sinks_within");
  const Transformer<S> transformer(model.config, model.weights);
  const std::vector<TokenId> tokens = random_tokens(17, model.config.vocab_size, 11);
  const auto expected = flat(all_logits(transformer, tokens));
  kvdecode::ThreadTeam team(3);
  check_same_bits(flat(all_logits(transformer, tokens, team)), expected);
  for (const Index n : {2, 5, 40}) {
    const kvdecode_test::BackwardsExecutor backwards{n};
    check_same_bits(flat(all_logits(transformer, tokens, backwards)), expected);
  }
}

TEST_CASE("transformer: a cache of a narrower format changes the logits, and by no more than its rounding") {
  const RandomModel model("gqa");
  const Transformer<float> transformer(model.config, model.weights);
  const std::vector<TokenId> tokens = random_tokens(20, model.config.vocab_size, 12);
  const auto exact = all_logits(transformer, tokens);
  const auto rounded = all_logits<float, ContiguousCache<F16>>(transformer, tokens);
  CHECK(flat(exact) != flat(rounded));
  check_close(rounded, exact, 0.01 * magnitude(exact));
}

TEST_CASE(
    "transformer: a scalar of one's own has the bits of its base, and its work is what the model asks for") {
  using S = Counting<float>;
  using Cache = ContiguousCache<Raw<S>>;
  const RandomModel model("gqa", {.format = FormatId::kBF16});
  const auto& c = model.config;
  const std::vector<TokenId> tokens = random_tokens(9, c.vocab_size, 13);
  const Transformer<S> counting(c, model.weights);
  Workspace<S> workspace;
  Cache cache(counting.kv_shape(), 9);
  kvdecode::take_work_counters();
  const auto logits = forward(counting, workspace, cache, tokens, Rows::kAll);
  const kvdecode::WorkCounters counters = kvdecode::take_work_counters();
  std::vector<float> actual;
  for (const S x : flat(logits)) actual.push_back(static_cast<float>(x));
  check_same_bits(actual, flat(all_logits(Transformer<float>(c, model.weights), tokens)));
  const Index n_seen = 9 * 10 / 2;  // positions that the queries see, over all tokens
  CHECK(counters[kvdecode::Work::kScores] == c.n_layers * n_seen * c.n_heads * c.head_dim);
  CHECK(counters[kvdecode::Work::kValues] == c.n_layers * n_seen * c.n_heads * c.head_dim);
  const Index a_layer = c.d_model * (c.n_heads + 2 * c.n_kv_heads) * c.head_dim +
                        c.n_heads * c.head_dim * c.d_model + 3 * c.d_model * c.d_ff;
  CHECK(counters[kvdecode::Work::kLinear] == 9 * (c.n_layers * a_layer + c.d_model * c.vocab_size));
}

TEST_CASE("transformer: rows that are not asked for cost no head") {
  using S = Counting<float>;
  const RandomModel model("gqa");
  const Transformer<S> transformer(model.config, model.weights);
  const std::vector<TokenId> tokens = random_tokens(9, model.config.vocab_size, 14);
  const auto linear_work = [&](Rows rows) {
    Workspace<S> workspace;
    ContiguousCache<Raw<S>> cache(transformer.kv_shape(), 9);
    kvdecode::take_work_counters();
    forward(transformer, workspace, cache, tokens, rows);
    return kvdecode::take_work_counters()[kvdecode::Work::kLinear];
  };
  const Index a_row = model.config.d_model * model.config.vocab_size;
  CHECK(linear_work(Rows::kLast) - linear_work(Rows::kNone) == a_row);
  CHECK(linear_work(Rows::kAll) - linear_work(Rows::kNone) == 9 * a_row);
}

TEST_CASE("transformer: copies share their weights, and outlive the original") {
  const std::vector<TokenId> tokens = random_tokens(5, 37, 15);
  std::vector<float> expected;
  const auto copy = [&] {
    const RandomModel model("gqa");
    const Transformer<float> original(model.config, model.weights);
    expected = flat(all_logits(original, tokens));
    const Transformer<float> second = original;
    CHECK(&second.weights() == &original.weights());
    return second;
  }();
  check_same_bits(flat(all_logits(copy, tokens)), expected);
}

TEST_CASE("transformer: a model of one layer, one head, one of everything") {
  kvdecode::ModelConfig config;
  config.n_layers = config.d_model = config.n_heads = config.n_kv_heads = config.d_ff = config.vocab_size =
      config.max_seq_len = 1;
  config.head_dim = 2;
  const RandomModel model(config);
  check_against_reference<double>(model, {0, 0, 0});
  check_against_reference<float>(model, {0, 0, 0});
}

}  // namespace

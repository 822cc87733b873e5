// SPDX-License-Identifier: MIT
// Layers that read another's keys and values, over caches. That their logits are right is for transformer_test.cpp and
// tests/golden/, that nothing else changes them for tests/laws/.
#include <support/compare.hpp>
#include <support/forward.hpp>
#include <support/model.hpp>
#include <support/names.hpp>
#include <support/random.hpp>
#include <support/thread_counts.hpp>

#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/sink.hpp>
#include <kvdecode/cache/sliding_window.hpp>
#include <kvdecode/core/cache_formats.hpp>
#include <kvdecode/model/cache_bytes.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace {

using namespace kvdecode;
using kvdecode_test::all_logits;
using kvdecode_test::check_same_bits;
using kvdecode_test::config_of;
using kvdecode_test::flat;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;

/// A matrix of zeros of the same size.
void clear(LinearWeights& w, Weights& weights) {
  const Index stride = w.matrix.cols * static_cast<Index>(sizeof(float));
  auto zeros = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(w.matrix.rows * stride));
  w.matrix = {FormatId::kF32, zeros->data(), w.matrix.rows, w.matrix.cols, stride, false};
  weights.owners.push_back(std::move(zeros));
}

TEST_CASE_TEMPLATE(
    "shared stores: what a layer reads is what it would make of the stream that the other one read", S, float,
    double) {
  for (const std::string_view words :
       {"borrowed", "borrowed hd16 sinks_within norm_offset value_norm head_norms",
        "borrowed mqa layer_norm chunk interleaved whole_norms"}) {
    CAPTURE(words);
    // Layers that add nothing leave the last one the stream that the first one read.
    RandomModel model(words, {.seed = 3});
    for (const std::size_t layer : {0u, 1u}) {
      clear(model.weights.layers[layer].w_o, model.weights);
      clear(model.weights.layers[layer].w_down, model.weights);
    }
    LayerWeights& last = model.weights.layers[2];
    const LayerWeights& first = model.weights.layers[0];
    last.attention_norm = first.attention_norm;
    const std::vector<TokenId> tokens = random_tokens(23, model.config.vocab_size, 6);
    const Transformer<S> reader(model.config, model.weights);
    const std::vector<S> actual = flat(all_logits<S>(reader, tokens));
    last.w_k = first.w_k;
    last.w_v = first.w_v;
    last.k_norm = first.k_norm;
    model.config.kv_stores.clear();
    const Transformer<S> maker(model.config, model.weights);
    check_same_bits(flat(all_logits<S>(maker, tokens)), actual);
    CHECK(payload_bytes<F32>(reader.kv_shape(), 9) * 3 == payload_bytes<F32>(maker.kv_shape(), 9) * 2);
  }
}

/// Every layout, in calls of many tokens and of one.
template <class F, class S>
void check_format(const RandomModel& model, std::span<const TokenId> tokens) {
  const Transformer<S> transformer(model.config, model.weights);
  const std::vector<S> expected = flat(all_logits<S, ContiguousCache<F>>(transformer, tokens));
  CHECK(std::none_of(expected.begin(), expected.end(), [](S x) { return x != x; }));
  const auto check = [&](auto&& cache, std::size_t chunk) {
    CAPTURE(chunk);
    Workspace<S> workspace;
    std::vector<S> rows;
    for (std::size_t i = 0; i < tokens.size(); i += chunk) {
      const auto part = tokens.subspan(i, std::min(chunk, tokens.size() - i));
      const std::vector<S> some = flat(kvdecode_test::forward(transformer, workspace, cache, part));
      rows.insert(rows.end(), some.begin(), some.end());
    }
    check_same_bits(rows, expected);
  };
  const auto n = static_cast<Index>(tokens.size());
  const KvShape& shape = transformer.kv_shape();
  for (const std::size_t chunk : {1u, 5u, 64u}) {
    check(GrowingCache<F>(shape, n), chunk);
    check(PagedCache<3, F>(shape, n), chunk);
    check(SlidingWindowCache<F>(shape, n, {.slack = 0, .max_append = 4}), chunk);
    check(SinkCache<F>(shape, n, {.slack = 1, .max_append = 3}), chunk);
  }
}

TEST_CASE_TEMPLATE("shared stores: within a format all layouts give the same bits", S, float, double) {
  const RandomModel model("borrowed hd16 own_head_dims standing sinks_within value_norm layer_inputs",
                          {.seed = 5, .format = FormatId::kBF16});
  const std::vector<TokenId> tokens = random_tokens(37, 37, 6);
  check_format<Native<S>, S>(model, tokens);
  check_format<F16, S>(model, tokens);
  check_format<HadInt4, S>(model, tokens);
  check_format<Asym4, S>(model, tokens);
}

TEST_CASE("shared stores: a layer that reads another's costs no bytes, one with longer heads its own") {
  const KvShape shape = config_of("borrowed own_head_dims sliding").kv_shape();  // 2 KV heads of 8, 16 and 8
  CHECK(payload_bytes<F32>(shape, 3) == 3 * 2 * 2 * (8 + 16) * 4);
  CHECK(payload_bytes<F16, F32>(shape, 100) == 5 * 2 * (2 + 4) * (8 + 16));  // the window
  CHECK(ContiguousCache<F32>::required_bytes(shape, 10) == 10 * 2 * 2 * (8 + 16) * 4);
  CHECK(ContiguousCache<F32>(shape, 10).bytes() == ContiguousCache<F32>::required_bytes(shape, 10));
  CHECK(PagedCache<4, F32>::required_bytes(shape, 10) == 12 * 2 * 2 * (8 + 16) * 4);
  CHECK(SinkCache<F32>::required_bytes(shape, 100, {.slack = 1, .max_append = 2}) ==
        (5 - 1 + 1 + 2) * 2 * 2 * (8 + 16) * 4);
}

TEST_CASE_TEMPLATE("shared stores: no number of threads and tiles shows", S, float, double) {
  kvdecode_test::check_thread_counts<S>(RandomModel("borrowed own_head_dims mixed_sinks layer_inputs"),
                                        {2, 7});
}

TEST_CASE_TEMPLATE("layer inputs: sequences of one call have those of their own tokens", S, float, double) {
  const RandomModel model("borrowed layer_inputs");
  const Transformer<S> transformer(model.config, model.weights);
  const std::vector<TokenId> a = random_tokens(5, 37, 6), b = random_tokens(3, 37, 7);
  using Cache = GrowingCache<Native<S>>;
  Cache first(transformer.kv_shape(), 9), second(transformer.kv_shape(), 9);
  const Segment<Cache> both[] = {{&first, a, Rows::kAll}, {&second, b, Rows::kAll}};
  Workspace<S> workspace;
  const std::vector<S> actual =
      flat(kvdecode_test::copied(transformer.forward(workspace, {}, std::span<const Segment<Cache>>(both))));
  std::vector<S> expected = flat(all_logits<S>(transformer, a));
  const std::vector<S> more = flat(all_logits<S>(transformer, b));
  expected.insert(expected.end(), more.begin(), more.end());
  check_same_bits(actual, expected);
}

TEST_CASE_TEMPLATE(
    "layer inputs: a token is what both embeddings have of it, a scale what multiplies the stream", S, float,
    double) {
  const std::vector<TokenId> tokens = random_tokens(9, 37, 6);
  RandomModel model("layer_inputs", {.format = FormatId::kF32});
  const auto logits = [&] {
    return flat(all_logits<S>(Transformer<S>(model.config, model.weights), tokens));
  };
  const std::vector<S> expected = logits();
  // A token that nobody wrote may have any row; the last one that was written changes the last logits alone.
  const MatrixView& embedding = model.weights.layer_embedding;
  const auto changes_from = [&](TokenId token) {
    auto& byte = const_cast<std::byte&>(embedding.data[token * embedding.stride + 2]);
    byte ^= std::byte{64};
    const std::vector<S> changed = logits();
    byte ^= std::byte{64};
    return std::mismatch(changed.begin(), changed.end(), expected.begin()).first - changed.begin();
  };
  TokenId unused = 0;
  while (std::find(tokens.begin(), tokens.end(), unused) != tokens.end()) ++unused;
  CHECK(changes_from(unused) == static_cast<std::ptrdiff_t>(expected.size()));
  const auto first = std::find(tokens.begin(), tokens.end(), tokens.back()) - tokens.begin();
  CHECK(changes_from(tokens.back()) / 37 == first);
  // A power of two behind the last layer goes through the final norm: only its eps sees it.
  model.config.norm_eps = 0.0;
  const std::vector<S> without = logits();
  model.weights.layers[1].scale *= 4.0;
  check_same_bits(logits(), without);
  model.weights.layers[0].scale *= 4.0;
  CHECK(logits() != without);
}

}  // namespace

// SPDX-License-Identifier: MIT
// What a context shift leaves, held against the formula: every key that is left is turned from its old position to its
// new one, in double, and written into a cache of its own; no run of that one says anything of a shift.
#include <laws/axes.hpp>
#include <laws/laws.hpp>
#include <reference/rotary.hpp>
#include <support/compare.hpp>
#include <support/forward.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace kvdecode_laws;
using kvdecode::Cached;
using kvdecode::Decoder;
using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::F64;
using kvdecode::Transformer;
using kvdecode::Workspace;
using Plain = ContiguousCache<F64>;

/// The rows of one layer of a cache, all heads side by side: [kv_len, n_kv_heads * dim].
std::vector<std::vector<double>> rows_of(const Plain& cache, Index layer, bool keys) {
  const kvdecode::LayerKvShape& shape = cache.shape()[layer];
  const Index dim = keys ? shape.k_dim : shape.v_dim;
  std::vector<std::vector<double>> rows(static_cast<std::size_t>(cache.kv_len()));
  for (Index head = 0; head < shape.n_kv_heads; ++head)
    for (const auto& run : keys ? cache.keys(layer, head) : cache.values(layer, head))
      for (Index i = 0; i < run.length; ++i)
        for (Index j = 0; j < dim; ++j)
          rows[static_cast<std::size_t>(run.position + i)].push_back(
              F64::decode<double>(run.data + i * run.row_stride, j));
  return rows;
}

/// A cache with the content of another one after shifts, none of which it knows of.
Plain shifted_by_formula(const Plain& cache, const kvdecode::ModelConfig& config, Index first, Index delta) {
  Plain result(cache.shape(), cache.capacity());
  const Index n = cache.kv_len() + delta;
  result.reserve(n);
  for (Index layer = 0; layer < cache.shape().n_layers(); ++layer) {
    if (!cache.shape().owns_store(layer)) continue;
    const kvdecode::LayerKvShape& shape = cache.shape()[layer];
    kvdecode::RotaryConfig rotary = config.rotary_of(layer);
    rotary.scaling.magnitude = 1.0;  // it is in the key already
    if (config.position != kvdecode::PositionKind::kRotary) rotary.enabled = false;
    std::vector<double> k, v;
    const auto keys = rows_of(cache, layer, true), values = rows_of(cache, layer, false);
    for (Index p = 0; p < cache.kv_len(); ++p) {
      if (p >= first + delta && p < first) continue;
      const std::vector<double>& key = keys[static_cast<std::size_t>(p)];
      for (Index head = 0; head < shape.n_kv_heads; ++head) {
        const auto begin = key.begin() + head * shape.k_dim;
        const auto turning = begin + (shape.values_in_keys ? shape.v_dim : 0);  // behind a latent
        kvdecode_reference::Vector turned(turning, begin + shape.k_dim);
        if (p >= first) turned = kvdecode_reference::rotate(std::move(turned), delta, rotary);
        k.insert(k.end(), begin, turning);
        k.insert(k.end(), turned.begin(), turned.end());
      }
      const std::vector<double>& value = values[static_cast<std::size_t>(p)];
      v.insert(v.end(), value.begin(), value.end());
    }
    const Index k_cols = shape.n_kv_heads * shape.k_dim, v_cols = shape.n_kv_heads * shape.v_dim;
    result.append(layer, kvdecode::RowsView<const double>{k.data(), n, k_cols, k_cols},
                  kvdecode::RowsView<const double>{v.data(), n, v_cols, v_cols});
  }
  result.commit();
  return result;
}

TEST_CASE("shift: the logits are those of keys turned to their new positions") {
  int n_models = 0;
  for (Index model = 0; model < kNSmallModels; ++model) {
    const kvdecode::ModelConfig config = model_config(model);
    if (config.position == kvdecode::PositionKind::kLearned || config.rotary_epoch(40) != 0) continue;
    const std::string words(model_words(model));
    CAPTURE(words);
    ++n_models;
    const kvdecode_test::RandomModel random(config);
    const Transformer<double> transformer(random.config, random.weights);
    const std::vector<TokenId> tokens = kvdecode_test::random_tokens(40, config.vocab_size, 6);
    const std::span<const TokenId> all(tokens);
    Workspace<double> workspace;
    Plain cache(transformer.kv_shape(), 40);
    kvdecode_test::forward(transformer, workspace, cache, all.first(30), kvdecode::Rows::kNone);
    Plain formula = shifted_by_formula(cache, config, 19, -11);
    cache.shift(19, -11);
    const auto check = [&](std::span<const TokenId> next) {
      const auto rows = kvdecode_test::flat(kvdecode_test::forward(transformer, workspace, cache, next));
      const auto expected =
          kvdecode_test::flat(kvdecode_test::forward(transformer, workspace, formula, next));
      kvdecode_test::check_close(rows, expected, 1e-12 * kvdecode_test::magnitude(expected));
    };
    check(all.subspan(30, 4));
    // And once more, across the edge that the first one has left.
    formula = shifted_by_formula(formula, config, 21, -7);
    cache.shift(21, -7);
    check(all.subspan(34, 1));
    check(all.subspan(35, 5));
  }
  CHECK(n_models > 25);
}

TEST_CASE("shift: a decoder of one layer decodes the tokens that are left") {
  // Keys and values of the first layer know nothing of other tokens.
  kvdecode::ModelConfig config = kvdecode_test::config_of("gqa");
  config.n_layers = 1;
  const kvdecode_test::RandomModel model(config);
  const Transformer<double> transformer(model.config, model.weights);
  const std::vector<TokenId> tokens = kvdecode_test::random_tokens(30, config.vocab_size, 7);
  Decoder decoder(transformer, Cached<PagedCache<4, F64>>{.max_seq_len = 30});
  decoder.append(tokens);
  CHECK(!decoder.can_append(1));
  CHECK(decoder.can_shift(20, -12));
  decoder.shift(20, -12);
  std::vector<TokenId> left(tokens.begin(), tokens.begin() + 8);
  left.insert(left.end(), tokens.begin() + 20, tokens.end());
  CHECK(std::vector<TokenId>(decoder.tokens().begin(), decoder.tokens().end()) == left);
  CHECK(decoder.kv_len() == 18);
  Decoder fresh(transformer, Cached<>{.max_seq_len = 30});
  fresh.append(left);
  const auto check = [](std::span<const double> a, std::span<const double> b) {
    const std::vector<double> expected(b.begin(), b.end());
    kvdecode_test::check_close(std::vector<double>(a.begin(), a.end()), expected,
                               1e-12 * kvdecode_test::magnitude(expected));
  };
  for (const TokenId token : {3, 1, 4, 1, 5}) check(decoder.step(token), fresh.step(token));
  // What was shifted can be forked, cut and continued.
  auto fork = decoder.fork();
  fork.truncate(10);
  fresh.truncate(10);
  check(fork.logits(), fresh.logits());
  check(fork.step(9), fresh.step(9));
  CHECK(decoder.kv_len() == 23);
}

TEST_CASE("shift: sequences go on for ever in a cache of constant size") {
  const kvdecode_test::RandomModel model("gqa");
  const Transformer<float> transformer(model.config, model.weights);
  Decoder paged(transformer, Cached<PagedCache<5>>{.max_seq_len = 24});
  Decoder plain(transformer, Cached<ContiguousCache<F32>>{.max_seq_len = 24});
  const std::vector<TokenId> tokens = kvdecode_test::random_tokens(200, model.config.vocab_size, 8);
  for (const TokenId token : tokens) {
    if (!paged.can_append(1)) {
      paged.shift(14, -10);
      plain.shift(14, -10);
    }
    const auto a = paged.step(token), b = plain.step(token);
    kvdecode_test::check_same_bits(std::vector<float>(a.begin(), a.end()),
                                   std::vector<float>(b.begin(), b.end()));
  }
  CHECK(paged.statistics().n_tokens_run == 200);
  CHECK(paged.cache().bytes() <= 8 * 5 * transformer.kv_shape().n_layers() * 2 * 2 * 8 * 4);
}

template <class D>
ErrorCode refusal(D& decoder, Index first, Index delta) {
  CHECK(!decoder.can_shift(first, delta));
  const std::vector<TokenId> before(decoder.tokens().begin(), decoder.tokens().end());
  try {
    decoder.shift(first, delta);
  } catch (const Error& error) {
    CHECK(std::vector<TokenId>(decoder.tokens().begin(), decoder.tokens().end()) == before);
    CHECK(decoder.cache().kv_len() == decoder.kv_len());
    return error.code();
  }
  FAIL("nothing was thrown");
  return {};
}

TEST_CASE("shift: decoders refuse what makes no sense, and say why") {
  const auto decoder_of = [](const char* words, auto strategy) {
    const kvdecode_test::RandomModel model(words);
    Decoder decoder(Transformer<float>(model.config, model.weights), strategy);
    decoder.append(kvdecode_test::random_tokens(12, model.config.vocab_size, 9));
    return decoder;
  };
  auto learned = decoder_of("learned", Cached<>{});
  CHECK(refusal(learned, 5, -2) == ErrorCode::kUnsupported);
  CHECK_THROWS_WITH_AS(
      learned.shift(5, -2),
      "decoder: cannot shift tokens of a model with learned positions, which are in their keys and "
      "values for good",
      Error);
  auto dynamic = decoder_of("dynamic", Cached<>{});  // 12 tokens are 3 beyond its length
  CHECK(refusal(dynamic, 5, -2) == ErrorCode::kUnsupported);
  auto ring = decoder_of("sliding", Cached<SlidingWindowCache<F32>>{});
  CHECK(refusal(ring, 5, -2) == ErrorCode::kUnsupported);
  auto decoder = decoder_of("gqa", Cached<>{});
  CHECK(refusal(decoder, 5, 0) == ErrorCode::kBadArgument);
  CHECK(refusal(decoder, 5, -6) == ErrorCode::kBadArgument);
  CHECK(refusal(decoder, 13, -1) == ErrorCode::kBadArgument);
  CHECK(decoder.can_shift(12, -12));
  decoder.shift(12, -12);
  CHECK(decoder.tokens().empty());
  decoder.step(1);
  using Naive = Decoder<Transformer<float>, kvdecode::Recompute<>>;
  CHECK(![]<class D>(D*) {
    return requires(D & d) { d.shift(1, -1); };
  }(static_cast<Naive*>(nullptr)));
}

}  // namespace

// SPDX-License-Identifier: MIT
#include <support/allocation.hpp>
#include <support/compare.hpp>
#include <support/model.hpp>
#include <support/random.hpp>

#include <kvdecode/kvdecode.hpp>

#include <doctest/doctest.h>

#include <span>
#include <string>
#include <vector>

namespace {

using namespace kvdecode;
using kvdecode_test::check_same_bits;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;

Transformer<float> small_transformer(std::string_view words = "gqa") {
  const RandomModel model(words);
  return Transformer<float>(model.config, model.weights);
}

template <class D>
std::vector<float> copied(D& decoder) {
  const auto logits = decoder.logits();
  return std::vector<float>(logits.begin(), logits.end());
}

TEST_CASE(
    "strategies: max_positions is what was asked for, or the model's; learned positions end where they end") {
  ModelConfig config = kvdecode_test::config_of("gqa");
  CHECK(Cached<>{}.max_positions(config) == 320);
  CHECK(Cached<>{.max_seq_len = 7}.max_positions(config) == 7);
  CHECK(Cached<>{.max_seq_len = 1000}.max_positions(config) == 1000);
  CHECK(Recompute<>{.max_seq_len = 1000}.max_positions(config) == 1000);
  config = kvdecode_test::config_of("learned");
  CHECK(Cached<>{.max_seq_len = 1000}.max_positions(config) == 320);
  CHECK(Recompute<>{.max_seq_len = 7}.max_positions(config) == 7);
  CHECK(Recompute<>{}.max_positions(config) == 320);
}

TEST_CASE("strategies: options that make no sense are refused by name") {
  const auto transformer = small_transformer();
  CHECK_THROWS_WITH_AS(Decoder(transformer, Cached<>{.max_seq_len = -1}),
                       "decode: max_seq_len must not be negative, got -1", Error);
  CHECK_THROWS_WITH_AS(Decoder(transformer, Recompute<>{.prefill_chunk = 0}),
                       "decode: prefill_chunk must be at least 1, got 0", Error);
  CHECK_THROWS_WITH_AS(Decoder(transformer, Cached<>{.prefill_chunk = -3}),
                       "decode: prefill_chunk must be at least 1, got -3", Error);
}

TEST_CASE("strategies: Recompute runs every token for every step, Cached each token once") {
  const auto transformer = small_transformer();
  for (const Index n : {1, 2, 7, 40}) {
    CAPTURE(n);
    const auto tokens = random_tokens(n, 37, 1);
    Decoder cached(transformer, Cached<>{});
    Decoder recompute(transformer, Recompute<>{});
    for (const TokenId token : tokens) {
      cached.step(token);
      recompute.step(token);
    }
    CHECK(cached.statistics().n_tokens_run == n);
    CHECK(recompute.statistics().n_tokens_run == n * (n + 1) / 2);
    CHECK(cached.statistics().n_reprefill == 0);
    CHECK(recompute.statistics().n_reprefill == 0);
  }
}

TEST_CASE("strategies: a prompt is run once by either, whatever the pass") {
  const auto transformer = small_transformer();
  const auto tokens = random_tokens(23, 37, 1);
  for (const Index chunk : {1, 5, 23, 512}) {
    Decoder cached(transformer, Cached<>{.prefill_chunk = chunk});
    Decoder recompute(transformer, Recompute<>{.prefill_chunk = chunk});
    cached.append(tokens);
    recompute.append(tokens);
    CHECK(cached.statistics().n_tokens_run == 23);
    CHECK(recompute.statistics().n_tokens_run == 23);
    check_same_bits(copied(cached), copied(recompute));
    // Logits that are asked for again cost the last token again, or all of them.
    CHECK(cached.statistics().n_tokens_run == 24);
    CHECK(recompute.statistics().n_tokens_run == 46);
  }
}

TEST_CASE("strategies: after truncate, Cached runs what is new and Recompute everything") {
  const auto transformer = small_transformer();
  const auto tokens = random_tokens(10, 37, 1);
  Decoder cached(transformer, Cached<>{});
  Decoder recompute(transformer, Recompute<>{});
  cached.append(tokens);
  recompute.append(tokens);
  cached.truncate(4);
  recompute.truncate(4);
  cached.append(std::span(tokens).subspan(4, 2));
  recompute.append(std::span(tokens).subspan(4, 2));
  CHECK(cached.statistics().n_tokens_run == 12);
  CHECK(recompute.statistics().n_tokens_run == 16);
}

TEST_CASE("strategies: the cache counts between steps for Cached, as scratch for Recompute") {
  const auto transformer = small_transformer();
  using Cache = ContiguousCache<F16>;
  const Index bytes = Cache::required_bytes(transformer.kv_shape(), 50);
  CHECK(bytes == 2 * 2 * 2 * 50 * 8 * 2);  // K and V, layers, KV heads, positions, head_dim, bytes
  Decoder cached(transformer, Cached<Cache>{.max_seq_len = 50});
  Decoder recompute(transformer, Recompute<Cache>{.max_seq_len = 50});
  CHECK(cached.statistics().cache_bytes == bytes);
  CHECK(cached.statistics().scratch_bytes == 0);
  CHECK(recompute.statistics().cache_bytes == 0);
  CHECK(recompute.statistics().scratch_bytes == bytes);
  cached.step(1);
  recompute.step(1);
  CHECK(cached.statistics().scratch_bytes > 0);
  CHECK(recompute.statistics().scratch_bytes == bytes + cached.statistics().scratch_bytes);
}

TEST_CASE("strategies: the workspace grows with the pass, not with the sequence") {
  const auto transformer = small_transformer();
  const auto tokens = random_tokens(300, 37, 1);
  const auto scratch_after = [&](Index n, Index chunk) {
    Decoder decoder(transformer, Cached<>{.prefill_chunk = chunk});
    decoder.append(std::span(tokens).first(static_cast<std::size_t>(n)));
    return decoder.statistics().scratch_bytes;
  };
  CHECK(scratch_after(288, 16) == scratch_after(32, 16));
  CHECK(scratch_after(288, 64) > scratch_after(288, 16));
}

TEST_CASE("strategies: what is left of a failed step is run by the next") {
  // An allocation fails in the middle of a prompt: the passes before it are done, those after it are not.
  const auto transformer = small_transformer();
  const auto tokens = random_tokens(9, 37, 1);
  const Cached<ContiguousCache<F32>> strategy{.max_seq_len = 9, .prefill_chunk = 2};
  Workspace<float> workspace;
  auto cache = strategy.make_cache(transformer);
  const std::span<const TokenId> history(tokens);
  Index n_failures = 0;
  for (Index which = 0;; ++which) {
    try {
      const kvdecode_test::FailingAllocation failing(which);
      Workspace<float> fresh;
      strategy.advance(transformer, fresh, {}, cache, history);
      if (!failing.has_failed()) break;
    } catch (const std::bad_alloc&) {
      ++n_failures;
      CHECK(cache.kv_len() <= 9);
    }
  }
  CHECK(n_failures > 0);
  cache.clear();
  strategy.advance(transformer, workspace, {}, cache, history.first(4));
  const auto healed = strategy.advance(transformer, workspace, {}, cache, history);
  CHECK(healed.n_tokens_run == 5);
  Decoder fresh(transformer, Cached<ContiguousCache<F32>>{});
  const auto expected = fresh.append(tokens);
  check_same_bits(std::span<const float>(healed.logits.data, 37), expected);
}

}  // namespace

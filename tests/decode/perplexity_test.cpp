// SPDX-License-Identifier: MIT
#include <support/compare.hpp>
#include <support/model.hpp>
#include <support/random.hpp>

#include <kvdecode/core/thread_team.hpp>
#include <kvdecode/decode/decoder.hpp>
#include <kvdecode/decode/perplexity.hpp>
#include <kvdecode/decode/strategies.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace {

using kvdecode::Error;
using kvdecode::Index;
using kvdecode::Perplexity;
using kvdecode::perplexity;
using kvdecode::PerplexityOptions;
using kvdecode::TokenId;
using kvdecode::Transformer;

Transformer<float> small_transformer() {
  const kvdecode_test::RandomModel model("gqa");
  return Transformer<float>(model.config, model.weights);
}
std::vector<TokenId> text(Index n) {
  return kvdecode_test::random_tokens(n, kvdecode_test::small_config().vocab_size, 3);
}

/// By its definition, from the logits of one token after another.
double expected(const std::vector<TokenId>& tokens, std::size_t window) {
  kvdecode::Decoder decoder(small_transformer(), kvdecode::Recompute<>{});
  double total = 0.0;
  int n = 0;
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (i % window == 0) decoder.clear();
    const std::span<const float> logits = decoder.step(tokens[i]);
    if ((i + 1) % window == 0) continue;
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    total += std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(tokens[i + 1])]);
    ++n;
  }
  return std::exp(total / n);
}

TEST_CASE("perplexity: is what the logits of every token say") {
  for (const Index n : {2, 3, 30, 31, 32, 33}) {
    const std::vector<TokenId> tokens = text(n);
    for (const Index window : {2, 5, 10, 31, 100}) {
      CAPTURE(n);
      CAPTURE(window);
      const Perplexity result = perplexity(small_transformer(), tokens, {.window = window});
      CHECK(result.value ==
            doctest::Approx(expected(tokens, static_cast<std::size_t>(window))).epsilon(1e-12));
      CHECK(result.n_predicted == n - (n + window - 1) / window);
      CHECK(!result.was_stopped);
    }
  }
}

TEST_CASE("perplexity: chunks and threads leave every bit, a narrow cache does not") {
  const std::vector<TokenId> tokens = text(40);
  const double exact = perplexity(small_transformer(), tokens, {.window = 20}).value;
  kvdecode::ThreadTeam team(2);
  for (const Index chunk : {1, 3, 20, 64})
    CHECK(perplexity(small_transformer(), tokens, {.window = 20, .chunk = chunk}, team).value == exact);
  CHECK(perplexity<kvdecode::ContiguousCache<kvdecode::BF16>>(small_transformer(), tokens, {.window = 20})
            .value != exact);
}

TEST_CASE("perplexity: a number of windows, and a listener that stops") {
  const std::vector<TokenId> tokens = text(40), first(tokens.begin(), tokens.begin() + 20);
  CHECK(perplexity(small_transformer(), tokens, {.window = 10, .n_windows = 2}).value ==
        perplexity(small_transformer(), first, {.window = 10}).value);
  std::vector<Index> heard;
  auto stop = [&](Index done, Index total) {
    CHECK(total == 40);
    heard.push_back(done);
    return done < 15;
  };
  const Perplexity result = perplexity(small_transformer(), tokens, {.window = 10, .chunk = 5}, {}, stop);
  CHECK(heard == std::vector<Index>{5, 10, 15});
  CHECK(result.was_stopped);
  CHECK(result.n_predicted == 9 + 5);
}

TEST_CASE("perplexity: what cannot be predicted is refused") {
  const Transformer<float> transformer = small_transformer();
  CHECK_THROWS_AS(perplexity(transformer, text(1)), Error);
  CHECK_THROWS_AS(perplexity(transformer, text(5), {.window = 1}), Error);
  CHECK_THROWS_AS(perplexity(transformer, text(5), {.chunk = 0}), Error);
  CHECK_THROWS_AS(perplexity(transformer, text(5), {.n_windows = -1}), Error);
  const std::vector<TokenId> bad{0, 1, 100000};
  CHECK_THROWS_AS(perplexity(transformer, bad), Error);
}

}  // namespace

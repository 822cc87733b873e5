// SPDX-License-Identifier: MIT
#include <support/random.hpp>

#include <kvdecode/decode/samplers.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

using kvdecode::Error;
using kvdecode::Greedy;
using kvdecode::Index;
using kvdecode::Sampling;
using kvdecode::SamplingOptions;
using kvdecode::TokenId;

template <class S>
TokenId greedy(const std::vector<S>& logits) {
  return Greedy{}(std::span<const S>(logits));
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ---- Greedy ------------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("Greedy: the largest logit, of equal ones the lowest id", S, float, double) {
  const S infinity = std::numeric_limits<S>::infinity();
  CHECK(greedy<S>({3}) == 0);
  CHECK(greedy<S>({1, 2, 3}) == 2);
  CHECK(greedy<S>({3, 2, 1}) == 0);
  CHECK(greedy<S>({1, 3, 2, 3, 3}) == 1);
  CHECK(greedy<S>({S(-0.0), S(0.0)}) == 0);
  CHECK(greedy<S>({-infinity, -5, -infinity}) == 1);
  CHECK(greedy<S>({-infinity, -infinity}) == 0);
  CHECK(greedy<S>({-5, -4, S(-4) + std::numeric_limits<S>::epsilon() * 4}) == 2);
  CHECK_THROWS_WITH_AS(greedy<S>({}), "sampler: no logits", Error);
}

// ---- The distribution of Sampling, measured exactly --------------------------------------------------------

/// An engine that always draws the number it points to.
struct Dial {
  using result_type = std::uint64_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type{0}; }
  result_type operator()() const { return *value; }

  const result_type* value;
};

/// The probability of each token: how many of the 2^53 possible draws pick it. Tokens are picked in one order
/// over the draws, so that halving finds where one ends and the next begins.
template <class S>
std::vector<double> distribution(const SamplingOptions& options, const std::vector<S>& logits) {
  constexpr std::uint64_t kDraws = std::uint64_t{1} << 53;
  std::uint64_t value = 0;
  Sampling<Dial> sampling(options, Dial{&value});
  const auto pick = [&](std::uint64_t draw) {
    value = draw << 11;
    return sampling(std::span<const S>(logits));
  };
  std::vector<double> probabilities(logits.size(), 0.0);
  const auto measure = [&](const auto& self, std::uint64_t first, TokenId at_first, std::uint64_t last,
                           TokenId at_last) -> void {  // both ends included
    if (at_first == at_last) {
      probabilities[static_cast<std::size_t>(at_first)] +=
          static_cast<double>(last - first + 1) / static_cast<double>(kDraws);
      return;
    }
    const std::uint64_t middle = first + (last - first) / 2;
    const TokenId before = pick(middle), after = pick(middle + 1);
    self(self, first, at_first, middle, before);
    self(self, middle + 1, after, last, at_last);
  };
  measure(measure, 0, pick(0), kDraws - 1, pick(kDraws - 1));
  return probabilities;
}

std::vector<double> softmax(const std::vector<double>& logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double total = 0.0;
  std::vector<double> result;
  for (const double x : logits) result.push_back(std::exp(x - top));
  for (const double x : result) total += x;
  for (double& x : result) x /= total;
  return result;
}

void check_distribution(const std::vector<double>& actual, const std::vector<double>& expected) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(actual[i] - expected[i]) < 1e-14);
    if (expected[i] == 0.0) CHECK(actual[i] == 0.0);
  }
}

/// A row of the file: null is -inf.
std::vector<double> row_of(const nlohmann::json& values) {
  std::vector<double> row;
  for (const auto& value : values) row.push_back(value.is_null() ? -kInfinity : value.get<double>());
  return row;
}

nlohmann::json reference_rows() {
  std::ifstream file(std::string(KVDECODE_TEST_DATA_DIR) + "/generation/processors.json");
  return nlohmann::json::parse(file);
}

TEST_CASE("Sampling: temperature, top-k and top-p keep what the reference keeps, as likely") {
  Index n_compared = 0;
  for (const auto& row : reference_rows()) {
    const std::vector<double> logits = row_of(row["logits"]);
    for (const auto& expected : row["expected"]) {
      SamplingOptions options;
      const std::string processor = expected.value("processor", "");
      if (processor == "temperature")
        options.temperature = expected["params"]["temperature"];
      else if (processor ==
               "top_k")  // no row has a tie between the last that is kept and the first that is not
        options.top_k = expected["params"]["top_k"];
      else if (processor == "top_p")
        options.top_p = expected["params"]["top_p"];
      else
        continue;
      ++n_compared;
      CAPTURE(row["kind"].get<std::string>());
      CAPTURE(expected["params"].dump());
      std::vector<double> kept = row_of(expected["logits"]);
      if (row["kind"] == "ties" && processor == "top_p") {
        // Of equal logits the reference keeps any, we keep the lowest ids: as many, and as likely.
        std::vector<double> ours = distribution(options, logits), theirs = softmax(kept);
        std::sort(ours.begin(), ours.end());
        std::sort(theirs.begin(), theirs.end());
        check_distribution(ours, theirs);
      } else {
        check_distribution(distribution(options, logits), softmax(kept));
      }
    }
  }
  CHECK(n_compared == 6 * 12);
}

TEST_CASE("Sampling: temperature, then top-k, then top-p") {
  Index n_compared = 0;
  for (const auto& row : reference_rows())
    for (const auto& expected : row["expected"]) {
      if (!expected.contains("chain") || expected["chain"][0][0] != "repetition_penalty") continue;
      std::vector<double> logits = row_of(row["logits"]);
      std::vector<TokenId> tokens = row["tokens"];
      std::sort(tokens.begin(), tokens.end());
      tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
      const double penalty = expected["chain"][0][1];
      for (const TokenId token : tokens) {
        double& x = logits[static_cast<std::size_t>(token)];
        x = x < 0.0 ? x * penalty : x / penalty;
      }
      const SamplingOptions options{.temperature = expected["chain"][1][1],
                                    .top_k = expected["chain"][2][1],
                                    .top_p = expected["chain"][3][1]};
      CAPTURE(row["kind"].get<std::string>());
      check_distribution(distribution(options, logits), expected["probabilities"].get<std::vector<double>>());
      ++n_compared;
    }
  CHECK(n_compared == 6);
}

// ---- Single points -----------------------------------------------------------------------------------------

TEST_CASE("Sampling: of equal logits the lowest ids are kept") {
  const std::vector<float> logits{1, 2, 2, 2, 2, 0};
  CHECK(distribution({.top_k = 2}, logits) == std::vector<double>{0, 0.5, 0.5, 0, 0, 0});
  CHECK(distribution({.top_k = 4, .top_p = 0.5}, logits) == std::vector<double>{0, 0.5, 0.5, 0, 0, 0});
  CHECK(distribution({.top_k = 4, .top_p = 0.500001}, logits)[3] > 0.3);
  CHECK(distribution({.top_p = 1e-9}, logits) == std::vector<double>{0, 1, 0, 0, 0, 0});
}

TEST_CASE_TEMPLATE("Sampling: whatever leaves one token is greedy", S, float, double) {
  kvdecode_test::SplitMix64 random(5);
  for (int i = 0; i < 50; ++i) {
    std::vector<S> logits;
    for (int j = 0; j < 30; ++j) logits.push_back(static_cast<S>(random.below(8)));  // ties
    const TokenId expected = greedy(logits);
    const std::uint64_t seed = random();
    for (const SamplingOptions& options :
         {SamplingOptions{.temperature = 0.0, .seed = seed}, SamplingOptions{.top_k = 1, .seed = seed},
          SamplingOptions{.top_p = 1e-12, .seed = seed},
          SamplingOptions{.temperature = 0.0, .top_k = 7, .top_p = 0.9, .seed = seed}}) {
      Sampling<> sampling(options);
      CHECK(sampling(std::span<const S>(logits)) == expected);
    }
  }
}

TEST_CASE("Sampling: temperatures near 0 leave the largest logits, however large the quotients") {
  const std::vector<double> logits{3.0, 300.0, -2.0, 299.0, 300.0};
  for (const double temperature : {1e-3, 1e-10, 1e-300, 1e-310, 5e-324}) {
    CAPTURE(temperature);
    CHECK(distribution({.temperature = temperature}, logits) == std::vector<double>{0, 0.5, 0, 0, 0.5});
  }
}

TEST_CASE("Sampling: high temperatures make everything equally likely") {
  for (const double p : distribution({.temperature = 1e30}, std::vector<float>{5, -7, 0, 100}))
    CHECK(std::abs(p - 0.25) < 1e-15);
}

TEST_CASE("Sampling: masked tokens are never drawn") {
  const std::vector<double> logits{-kInfinity, 1.0, -kInfinity, 1.0};
  CHECK(distribution({}, logits) == std::vector<double>{0, 0.5, 0, 0.5});
  CHECK(distribution({.top_k = 3}, logits) == std::vector<double>{0, 0.5, 0, 0.5});
  CHECK(distribution({.temperature = 2.0, .top_p = 0.9}, std::vector<double>{-kInfinity, -40.0}) ==
        std::vector<double>{0, 1});
}

TEST_CASE("Sampling: what is no number is never drawn, and leads nothing astray") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits{nan, 1.0f, nan, 1.0f, nan};
  for (const SamplingOptions& options : {SamplingOptions{}, {.top_k = 2}, {.top_k = 4}, {.top_p = 0.99}})
    CHECK(distribution(options, logits) == std::vector<double>{0, 0.5, 0, 0.5, 0});
  std::vector<float> many(3000, nan);  // more than the sort of the standard library looks at one by one
  for (std::size_t i = 0; i < many.size(); i += 7) many[i] = static_cast<float>(i % 91);
  for (const SamplingOptions& options : {SamplingOptions{}, {.top_k = 40}, {.top_k = 2900}, {.top_p = 0.5}}) {
    Sampling<> sampling(options);
    for (int draw = 0; draw < 100; ++draw) CHECK(sampling(std::span<const float>(many)) % 7 == 0);
  }
  Sampling<> sampling;
  const std::vector<float> none(50, nan);
  const TokenId token = sampling(std::span<const float>(none));
  CHECK((token >= 0 && token < 50));
}

TEST_CASE("Sampling: a k or p beyond the vocabulary cuts nothing") {
  const std::vector<float> logits{1, 2, 3};
  const auto all = distribution({}, logits);
  CHECK(distribution({.top_k = 3}, logits) == all);
  CHECK(distribution({.top_k = 1000}, logits) == all);
  CHECK(distribution({.top_p = 1.0}, logits) == all);
}

// ---- Draws -------------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("Sampling: a seed gives the same tokens on every machine", S, float, double) {
  // By a Mersenne Twister and softmax written in another language.
  const std::vector<TokenId> expected{7, 1, 5, 5, 5, 5, 6, 2, 5, 2, 2, 7, 6, 1, 5, 5, 5, 0, 1, 2,
                                      0, 2, 5, 3, 5, 2, 7, 7, 0, 5, 5, 7, 5, 5, 2, 3, 5, 5, 2, 5};
  const std::vector<S> logits{0, 1, 2, 1, S(-0.5), 3, S(0.25), S(1.5)};
  Sampling<> first({.temperature = 1.25, .seed = 2024}), second({.temperature = 1.25, .seed = 2024}),
      other({.temperature = 1.25, .seed = 2025});
  std::vector<TokenId> drawn, drawn_again, others;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    drawn.push_back(first(std::span<const S>(logits)));
    drawn_again.push_back(second(std::span<const S>(logits)));
    others.push_back(other(std::span<const S>(logits)));
  }
  CHECK(drawn == expected);
  CHECK(drawn_again == expected);
  CHECK(others != expected);
}

TEST_CASE("Sampling: each call draws once, whatever it cuts; greedy never draws") {
  const std::vector<float> logits{1, 2, 3};
  Sampling<> sampling({.top_k = 2, .top_p = 0.5, .seed = 3});
  Sampling<> cold({.temperature = 0.0, .seed = 3});
  std::mt19937_64 engine(3);
  CHECK(cold.engine() == engine);
  for (int i = 0; i < 5; ++i) {
    sampling(std::span<const float>(logits));
    cold(std::span<const float>(logits));
  }
  CHECK(cold.engine() == engine);
  engine.discard(5);
  CHECK(sampling.engine() == engine);
  CHECK(sampling.options().top_k == 2);
}

TEST_CASE("Sampling: draws are distributed as they should be (chi-squared, fixed seed)") {
  const std::vector<float> logits{0.0f, 1.0f, 2.0f, 1.0f, -0.5f, 3.0f, 0.25f, 1.5f, -3.0f, 2.5f};
  for (const SamplingOptions& options :
       {SamplingOptions{.seed = 7}, SamplingOptions{.temperature = 0.6, .seed = 8},
        SamplingOptions{.top_k = 4, .seed = 9},
        SamplingOptions{.temperature = 2.0, .top_k = 8, .top_p = 0.8, .seed = 10}}) {
    const std::vector<double> expected = distribution(options, logits);
    std::vector<Index> counts(logits.size(), 0);
    Sampling<> sampling(options);
    constexpr Index kDraws = 100000;
    for (Index i = 0; i < kDraws; ++i)
      ++counts[static_cast<std::size_t>(sampling(std::span<const float>(logits)))];
    double chi_squared = 0.0;
    Index n_bins = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (expected[i] == 0.0) {
        CHECK(counts[i] == 0);
        continue;
      }
      const double mean = expected[i] * static_cast<double>(kDraws);
      chi_squared += (static_cast<double>(counts[i]) - mean) * (static_cast<double>(counts[i]) - mean) / mean;
      ++n_bins;
    }
    const double freedom = static_cast<double>(n_bins - 1);
    CHECK(chi_squared < freedom + 4.0 * std::sqrt(2.0 * freedom));  // four deviations
    CHECK(chi_squared > freedom - 4.0 * std::sqrt(2.0 * freedom));
  }
}

// ---- Errors ------------------------------------------------------------------------------------------------

TEST_CASE("Sampling: options outside their range are refused") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH_AS(Sampling<>({.temperature = -0.5}),
                       "sampling: temperature must not be negative, got -0.5", Error);
  CHECK_THROWS_AS(Sampling<>({.temperature = nan}), Error);
  CHECK_THROWS_AS(Sampling<>({.temperature = kInfinity}), Error);
  CHECK_THROWS_WITH_AS(Sampling<>({.top_k = -1}), "sampling: top_k must not be negative, got -1", Error);
  CHECK_THROWS_WITH_AS(Sampling<>({.top_p = 0.0}), "sampling: top_p must be in (0, 1], got 0", Error);
  CHECK_THROWS_AS(Sampling<>({.top_p = 1.0000001}), Error);
  CHECK_THROWS_AS(Sampling<>({.top_p = -0.1}), Error);
  CHECK_THROWS_AS(Sampling<>({.top_p = nan}), Error);
  Sampling<> sampling;
  CHECK_THROWS_WITH_AS(sampling(std::span<const float>{}), "sampler: no logits", Error);
}

}  // namespace

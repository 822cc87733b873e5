// SPDX-License-Identifier: MIT
#include <reference/rotary.hpp>
#include <support/compare.hpp>
#include <support/model.hpp>

#include <kvdecode/model/rotary_frequencies.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <string_view>
#include <vector>

namespace {

using kvdecode::Index;
using kvdecode::ModelConfig;
using kvdecode_test::config_of;

std::vector<double> frequencies(const ModelConfig& config, Index epoch = 0) {
  std::vector<double> result(static_cast<std::size_t>(config.rotary_dim() / 2));
  kvdecode::rotary_frequencies(config.rotary, config.rotary_dim(), epoch, result.data());
  return result;
}

TEST_CASE("rotary frequencies: are near the reference for every scaling, dimension and epoch") {
  for (const std::string_view words :
       {"gqa", "hd16 linear", "hd16 llama3", "hd12 partial", "hd5 partial llama3", "hd16 yarn",
        "hd12 partial yarn", "hd16 dynamic", "hd12 partial dynamic", "hd16 longrope", "hd5 partial longrope",
        "hd16 divisors", "hd16 standing", "hd12 partial standing"})
    for (const double theta : {10000.0, 500000.0, 1e6, 2.0})
      for (const Index seq_len : {1, 9, 10, 11, 300, 4000000}) {
        CAPTURE(words);
        CAPTURE(theta);
        CAPTURE(seq_len);
        ModelConfig config = config_of(words);
        config.rotary.theta = theta;
        const Index epoch = config.rotary_epoch(seq_len);
        CHECK(epoch == kvdecode_reference::epoch_of(config.rotary, seq_len));
        const auto actual = frequencies(config, epoch);
        const auto expected = kvdecode_reference::inv_freq(config.rotary, config.head_dim, epoch);
        REQUIRE(actual.size() == expected.size());
        for (std::size_t i = 0; i < actual.size();
             ++i)  // pow costs a few units for each unit of its exponent
          CHECK(std::abs(actual[i] - expected[i]) <= kvdecode_test::tolerance<double>(32, expected[i]));
      }
}

TEST_CASE("rotary frequencies: yarn by the reference, whole bounds or not, near or far apart") {
  for (const bool whole : {false, true})
    for (const double fast : {32.0, 8.0, 1.0, 0.01})
      for (const double slow : {1.0, 0.001})
        for (const Index original : {7, 64, 4096, 1000000}) {
          CAPTURE(whole);
          CAPTURE(fast);
          CAPTURE(slow);
          CAPTURE(original);
          ModelConfig config = config_of("hd16 yarn");
          config.rotary.scaling.round_bounds = whole;
          config.rotary.scaling.beta_fast = fast;
          config.rotary.scaling.beta_slow = slow;
          config.rotary.scaling.original_max_seq_len = original;
          if (fast <= slow && !whole) continue;  // a line that goes down, or none
          const auto actual = frequencies(config);
          const auto expected = kvdecode_reference::inv_freq(config.rotary, config.head_dim);
          for (std::size_t i = 0; i < actual.size(); ++i)
            CHECK(std::abs(actual[i] - expected[i]) <= kvdecode_test::tolerance<double>(256, expected[i]));
        }
}

TEST_CASE(
    "rotary frequencies: the first pair turns by a radian a position, and there are none without rotation") {
  CHECK(frequencies(config_of("hd16"))[0] == 1.0);
  CHECK(frequencies(config_of("linear"))[0] == 0.25);
  CHECK(frequencies(config_of("learned")).empty());
}

TEST_CASE(
    "rotary frequencies: of proportional ones the first pairs turn, as slowly as among all, the others "
    "stand") {
  const auto plain = frequencies(config_of("gqa"));
  ModelConfig config = config_of("standing");
  config.rotary.scaling.n_turning = 2;
  CHECK(frequencies(config) == std::vector<double>{plain[0] / 2, plain[1] / 2, 0.0, 0.0});
  config.rotary.scaling.n_turning = 0;
  CHECK(frequencies(config) == std::vector<double>(4, 0.0));
}

TEST_CASE("rotary frequencies: llama3 keeps short waves, divides long ones, and blends between") {
  const auto plain = frequencies(config_of("gqa"));
  const auto scaled = frequencies(config_of("llama3"));
  CHECK(scaled[0] == plain[0]);
  CHECK(scaled[1] < plain[1]);
  CHECK(scaled[1] > plain[1] / 8);
  CHECK(scaled[2] == plain[2] / 8);
  CHECK(scaled[3] == plain[3] / 8);
}

}  // namespace

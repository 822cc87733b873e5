// SPDX-License-Identifier: MIT
// The laws can fail: each one finds the cache or strategy that breaks it. What they find when the library
// itself is broken is listed in README.md.
#include <laws/axes.hpp>
#include <laws/laws.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

namespace {

using namespace kvdecode_laws;
using kvdecode::Cached;

struct FaultModel {
  kvdecode_test::RandomModel model{"gqa"};
  kvdecode::Transformer<float> transformer{model.config, model.weights};
  std::vector<TokenId> tokens = kvdecode_test::random_tokens(9, model.config.vocab_size, 5);
  Answers<float> answers;

  FaultModel() { add_answers<F32>(answers, transformer, tokens, lengths_up_to(9)); }
  Setting<kvdecode::Transformer<float>> setting() const { return {transformer, {}, tokens, answers, 2}; }
};

/// Names of the laws, joined: those that `Cache` breaks with a strategy, then by itself.
template <class Cache>
std::string laws_broken_by() {
  const FaultModel model;
  std::string names;
  const auto append = [&](const std::vector<Violation>& violations) {
    for (const Violation& v : violations) names += (names.empty() ? "" : ", ") + std::string(v.law);
  };
  append(violated_by_strategy(model.setting(), Cached<Cache>{.max_seq_len = 12}));
  append(violated_by_cache<Cache>(model.setting()));
  return names;
}

template <Moment moment>
using SpoiledCache = Spoiled<ContiguousCache<F32>, moment>;

TEST_CASE("faults: a cache that spoils nothing breaks no law") {
  CHECK(laws_broken_by<SpoiledCache<Moment::kNever>>() == "");
}

TEST_CASE("faults: each law finds the cache that breaks it") {
  CHECK(laws_broken_by<SpoiledCache<Moment::kCommitOne>>().find("every position") == 0);
  CHECK(laws_broken_by<SpoiledCache<Moment::kCommitMany>>().find("any chunking") == 0);
  CHECK(laws_broken_by<SpoiledCache<Moment::kTruncate>>() == "truncate then append, fork then diverge");
  CHECK(laws_broken_by<SpoiledCache<Moment::kFork>>() == "fork then diverge");
  CHECK(laws_broken_by<SpoiledCache<Moment::kForked>>() == "fork then diverge");
  CHECK(laws_broken_by<SpoiledCache<Moment::kAbandon>>() == "truncate then append, abandoned step");
  CHECK(laws_broken_by<SpoiledCache<Moment::kMove>>() == "capacity and history");
  CHECK(laws_broken_by<SpoiledCache<Moment::kRestore>>() == "capacity and history");
  CHECK(laws_broken_by<SpoiledCache<Moment::kShift>>() == "shift");
  CHECK(laws_broken_by<SpoiledCache<Moment::kRoom>>().find("capacity and history") != std::string::npos);
}

/// Knows a sequence by its length alone.
struct ForgetsTokens {
  template <class S>
  using cache_type = ContiguousCache<F32>;
  static constexpr bool kKeepsCache = true;

  Cached<ContiguousCache<F32>> cached{.max_seq_len = 12};

  Index max_positions(const kvdecode::ModelConfig& config) const noexcept {
    return cached.max_positions(config);
  }
  template <class T>
  auto make_cache(const T& transformer) const {
    return cached.make_cache(transformer);
  }
  template <class T, class S, class C>
  kvdecode::Advance<S> advance(const T& transformer, kvdecode::Workspace<S>& workspace, ExecutorRef exec,
                               C& cache, std::span<const TokenId> history,
                               kvdecode::ProgressRef progress) const {
    std::vector<TokenId> tokens(history.begin(), history.end());
    if (tokens.size() - static_cast<std::size_t>(cache.kv_len()) > 1) tokens.back() = 0;
    return cached.advance(transformer, workspace, exec, cache, std::span<const TokenId>(tokens), progress);
  }
};

TEST_CASE("faults: the laws find a strategy whose answer depends on how the tokens came") {
  const FaultModel model;
  const auto violations = violated_by_strategy(model.setting(), ForgetsTokens{});
  REQUIRE(violations.size() == 3);
  CHECK(std::string(violations[0].law) == "any chunking");
  CHECK(violations[0].difference.find("after 9 tokens: 37 of 37 logits differ; the first, 0: ") !=
        std::string::npos);
}

TEST_CASE("faults: a law that meets an exception is broken, and says what was thrown") {
  const FaultModel model;
  const auto violations =
      violated_by_strategy(model.setting(), Cached<ContiguousCache<F32>>{.max_seq_len = 5});
  REQUIRE(violations.size() == 4);
  CHECK(violations[0].difference == "threw: KV cache full: max_seq_len 5, kv_len 5, n_new 1");
}

TEST_CASE("faults: every law finds one wrong bit of one logit") {
  const FaultModel model;
  Answers<float> wrong;
  for (const auto& [length, logits] : model.answers.rows()) {
    std::vector<float> changed = logits;
    changed.back() = std::nextafter(changed.back(), 1e9f);
    wrong.add(length, changed);
  }
  const Setting<kvdecode::Transformer<float>> setting{model.transformer, {}, model.tokens, wrong, 2};
  CHECK(violated_by_strategy(setting, Cached<ContiguousCache<F32>>{.max_seq_len = 9}).size() == 4);
  CHECK(violated_by_cache<ContiguousCache<F32>>(setting).size() == 4);
}

}  // namespace

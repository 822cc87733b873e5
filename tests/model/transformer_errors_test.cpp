// SPDX-License-Identifier: MIT
// A forward call that throws: what it says, and that everything is as if it had not been made.
#include <support/allocation.hpp>
#include <support/compare.hpp>
#include <support/forward.hpp>
#include <support/fp_mode.hpp>
#include <support/model.hpp>
#include <support/random.hpp>

#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/model/transformer.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using kvdecode::ContiguousCache;
using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::F32;
using kvdecode::GrowingCache;
using kvdecode::Index;
using kvdecode::Rows;
using kvdecode::Segment;
using kvdecode::TokenId;
using kvdecode::Transformer;
using kvdecode::Workspace;
using kvdecode_test::all_logits;
using kvdecode_test::check_same_bits;
using kvdecode_test::copied;
using kvdecode_test::FailingAllocation;
using kvdecode_test::flat;
using kvdecode_test::forward;
using kvdecode_test::is_refused;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;

using Cache = ContiguousCache<F32>;

/// Two sequences in progress, and what comes next in each.
struct Scene {
  explicit Scene(std::string_view words) : model(words), transformer(model.config, model.weights) {
    for (std::size_t i = 0; i < 2; ++i) {
      tokens.push_back(random_tokens(8, model.config.vocab_size, i + 1));
      expected.push_back(all_logits(transformer, tokens[i])[7]);
      caches.emplace_back(transformer.kv_shape(), 10);
      forward(transformer, workspace, caches[i], std::span(tokens[i]).first(7), Rows::kNone);
    }
  }
  std::span<const TokenId> next(std::size_t i) const { return std::span(tokens[i]).subspan(7, 1); }

  /// Makes the call, which has to throw, and checks that nothing has happened.
  void check_refused(std::vector<Segment<Cache>> segments, ErrorCode code, const std::string& text) {
    CAPTURE(text);
    std::string actual;
    try {
      transformer.forward(workspace, {}, std::span<const Segment<Cache>>(segments));
    } catch (const Error& error) {
      actual = error.what();
      CHECK(error.code() == code);
    }
    CHECK(actual == text);
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(caches[i].kv_len() == 7);
      CHECK((*caches[i].keys(0, 0).begin()).length == 7);
      check_same_bits(flat(forward(transformer, workspace, caches[i], next(i))), expected[i]);
      caches[i].truncate(7);
    }
  }

  RandomModel model;
  Transformer<float> transformer;
  Workspace<float> workspace;
  std::vector<std::vector<TokenId>> tokens;
  std::vector<Cache> caches;
  std::vector<std::vector<float>> expected;  // the logits of token 7
};

TEST_CASE("forward errors: token ids outside the vocabulary, in any segment and place") {
  Scene s("mixed");
  for (const TokenId bad : {-1, 37, 2147483647, -2147483647 - 1}) {
    const std::vector<TokenId> tokens{3, 36, bad};
    const std::string text = "token id " + std::to_string(bad) + " is outside the vocabulary of 37";
    s.check_refused({{&s.caches[0], tokens}}, ErrorCode::kBadArgument, text);
    s.check_refused({{&s.caches[0], s.next(0)}, {&s.caches[1], tokens, Rows::kNone}}, ErrorCode::kBadArgument,
                    text);
  }
}

TEST_CASE("forward errors: a segment without tokens, without a cache, or with another's cache") {
  Scene s("gqa");
  s.check_refused({{&s.caches[0], {}}}, ErrorCode::kBadArgument, "forward: segment 0 has no tokens");
  s.check_refused({{&s.caches[0], s.next(0)}, {&s.caches[1], {}}}, ErrorCode::kBadArgument,
                  "forward: segment 1 has no tokens");
  s.check_refused({{nullptr, s.next(0)}}, ErrorCode::kBadArgument, "forward: segment 0 has no cache");
  s.check_refused({{&s.caches[0], s.next(0)}, {&s.caches[1], s.next(1)}, {&s.caches[0], s.next(0)}},
                  ErrorCode::kBadArgument, "forward: segments 0 and 2 share a cache");
}

TEST_CASE("forward errors: a cache of another shape") {
  Scene s("gqa");
  for (const char* words : {"mha", "hd16", "sliding"}) {
    Cache other(RandomModel(words).config.kv_shape(), 10);
    s.check_refused({{&s.caches[0], s.next(0)}, {&other, s.next(1)}}, ErrorCode::kMismatch,
                    "forward: the cache of segment 1 was made for another model's KvShape");
    CHECK(other.kv_len() == 0);
  }
}

TEST_CASE("forward errors: more tokens than a cache has room for, after others were reserved") {
  Scene s("gqa");
  const std::vector<TokenId> four{1, 2, 3, 4};
  s.check_refused({{&s.caches[0], four}}, ErrorCode::kCacheFull,
                  "KV cache full: max_seq_len 10, kv_len 7, n_new 4");
  s.check_refused({{&s.caches[0], s.next(0)}, {&s.caches[1], four}}, ErrorCode::kCacheFull,
                  "KV cache full: max_seq_len 10, kv_len 7, n_new 4");
}

TEST_CASE("forward errors: positions beyond those that were learned") {
  kvdecode::ModelConfig config = kvdecode_test::config_of("learned");
  config.max_seq_len = 9;
  const RandomModel model(config);
  const Transformer<float> transformer(model.config, model.weights);
  const std::vector<TokenId> tokens = random_tokens(9, 37, 3);
  const auto expected = all_logits(transformer, tokens);
  Workspace<float> workspace;
  Cache cache(transformer.kv_shape(), 100);
  forward(transformer, workspace, cache, std::span(tokens).first(7), Rows::kNone);
  CHECK_THROWS_WITH_AS(forward(transformer, workspace, cache, std::span(tokens).first(3)),
                       "the model has learned positions up to max_seq_len 9, kv_len 7, n_new 3", Error);
  CHECK(cache.kv_len() == 7);
  const auto last = forward(transformer, workspace, cache, std::span(tokens).subspan(7, 2));
  check_same_bits(last[0], expected[7]);
  check_same_bits(last[1], expected[8]);
}

TEST_CASE(
    "forward errors: logits of a cache in another epoch of angles; without logits it is nobody's business") {
  Scene s("gqa");
  s.caches[0].clear(2);
  const std::vector<TokenId> three{1, 2, 3};
  Workspace<float> workspace;
  CHECK_THROWS_WITH_AS(forward(s.transformer, workspace, s.caches[0], three),
                       "forward: logits at position 0 belong to rotary epoch 0, the cache to epoch 2", Error);
  CHECK_THROWS_WITH_AS(forward(s.transformer, workspace, s.caches[0], three, Rows::kLast),
                       "forward: logits at position 2 belong to rotary epoch 0, the cache to epoch 2", Error);
  CHECK(s.caches[0].kv_len() == 0);
  CHECK_NOTHROW(forward(s.transformer, workspace, s.caches[0], three, Rows::kNone));
}

TEST_CASE("forward errors: the constructor refuses configs that cannot be run and weights that do not fit") {
  const RandomModel model("gqa");
  kvdecode::ModelConfig config = model.config;
  config.n_kv_heads = 4;
  CHECK_THROWS_WITH_AS(Transformer<float>(config, model.weights),
                       "model config: n_heads 6 is not a multiple of n_kv_heads 4", Error);
  config = model.config;
  config.d_ff = 45;
  CHECK_THROWS_WITH_AS(Transformer<float>(config, model.weights),
                       "weights: layer 0 w_gate is [44, 32], expected [45, 32]", Error);
  using OnlyHalves = Transformer<float, kvdecode::ExactActivations, kvdecode::FormatList<kvdecode::F16>>;
  CHECK_THROWS_WITH_AS(
      OnlyHalves(model.config, model.weights),
      "weights: token_embedding is stored as f32, which is not in this transformer's list of formats", Error);
}

TEST_CASE("forward errors: the host's floating-point mode is restored after a refusal") {
  Scene s("gqa");
  const std::vector<TokenId> bad{-1};
  std::uint64_t before = 0, after = 0;
  {
    const kvdecode_test::ScopedFpMode scope(kvdecode_test::FpMode::kFlushToZero);
    before = kvdecode_test::fp_control();
    try {
      forward(s.transformer, s.workspace, s.caches[0], bad);
    } catch (const Error&) {
    }
    after = kvdecode_test::fp_control();
  }
  CHECK(before == after);
}

/// Refuses allocation 0, 1, 2, … of a call in turn until it succeeds.
template <class C>
void check_every_allocation(std::string_view words, Index kv_len) {
  CAPTURE(words);
  const RandomModel model(words);
  const Transformer<float> transformer(model.config, model.weights);
  const std::vector<TokenId> first = random_tokens(kv_len + 6, 37, 1), second = random_tokens(9, 37, 2);
  const auto expected_first = all_logits(transformer, first),
             expected_second = all_logits(transformer, second);
  Index n_failures = 0;
  for (Index which = 0;; ++which) {
    CAPTURE(which);
    REQUIRE(which < 100);
    // A workspace that has seen smaller calls only, a sequence in progress and a new one.
    Workspace<float> workspace;
    std::vector<C> caches;
    for (int i = 0; i < 2; ++i) caches.emplace_back(transformer.kv_shape(), 400);
    if (kv_len > 0)
      forward(transformer, workspace, caches[0], std::span(first).first(static_cast<std::size_t>(kv_len)),
              Rows::kNone);
    const Segment<C> segments[] = {
        {&caches[0], std::span(first).subspan(static_cast<std::size_t>(kv_len)), Rows::kAll},
        {&caches[1], second, Rows::kAll}};
    const auto call = [&] {
      return copied(transformer.forward(workspace, {}, std::span<const Segment<C>>(segments)));
    };
    if (!is_refused(which,
                    [&] { transformer.forward(workspace, {}, std::span<const Segment<C>>(segments)); }))
      break;
    ++n_failures;
    CHECK(caches[0].kv_len() == kv_len);
    CHECK(caches[1].kv_len() == 0);
    for (const auto& run : caches[0].keys(1, 0)) CHECK(run.length == kv_len);
    auto actual = call();
    std::vector<std::vector<float>> expected(expected_first.begin() + kv_len, expected_first.end());
    expected.insert(expected.end(), expected_second.begin(), expected_second.end());
    check_same_bits(flat(actual), flat(expected));
    CHECK(caches[0].kv_len() == kv_len + 6);
    CHECK(caches[1].kv_len() == 9);
  }
  CHECK(n_failures >= 1);
}

TEST_CASE("forward errors: an allocation refused anywhere leaves all sequences as they were") {
  check_every_allocation<ContiguousCache<F32>>("gqa", 0);
  check_every_allocation<ContiguousCache<F32>>("sinks_within", 5);
  check_every_allocation<GrowingCache<F32>>("gqa", 0);
  check_every_allocation<GrowingCache<F32>>("sinks_within learned", 62);  // the call makes the cache grow
}

TEST_CASE("forward errors: a transformer that cannot be allocated is not there") {
  const RandomModel model("sinks_within", {.biases = true});
  for (Index which = 0;; ++which) {
    REQUIRE(which < 1000);
    FailingAllocation failing(which);
    try {
      const Transformer<float> transformer(model.config, model.weights);
    } catch (const std::bad_alloc&) {
    }
    if (!failing.has_failed()) break;
  }
}

}  // namespace

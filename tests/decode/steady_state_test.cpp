// SPDX-License-Identifier: MIT
// After warm-up a cached step of a decoder allocates nothing: neither from the library's memory, nor from
// anybody's.
#include <support/counted_malloc.hpp>
#include <support/model.hpp>
#include <support/random.hpp>

#include <kvdecode/core/eigen_executor.hpp>
#include <kvdecode/kvdecode.hpp>

#include <doctest/doctest.h>

#include <array>
#include <vector>

namespace {

using namespace kvdecode;
using kvdecode_test::n_mallocs;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;

struct Allocations {
  Index of_the_library = 0;
  Index of_anybody = 0;
  friend bool operator==(const Allocations&, const Allocations&) = default;
};

/// Of 290 steps after a prompt and one step, across the edge of a tile. A sampler picks each token.
template <class Strategy, class Picker>
Allocations allocations_of_steps(const Transformer<float>& transformer, const Strategy& strategy,
                                 Picker sampler, ExecutorRef exec = {}) {
  Decoder decoder(transformer, strategy, exec);
  TokenId token = sampler(decoder.append(random_tokens(9, 37, 1)));
  token = sampler(decoder.step(token));
  AllocationHook hook;
  const Index before = n_mallocs();
  {
    const ScopedAllocationHook scope(hook);
    for (int i = 0; i < 290; ++i) token = sampler(decoder.step(token));
  }
  return {hook.n_allocations, n_mallocs() - before};
}

Transformer<float> small_transformer(std::string_view words = "gqa") {
  const RandomModel model(words);
  return Transformer<float>(model.config, model.weights);
}

TEST_CASE("steady state: a step over a ContiguousCache allocates nothing, whatever samples and runs it") {
  for (const char* words : {"gqa", "mqa layer_norm gelu plain parallel sinks_within", "learned tied chunk"}) {
    const auto transformer = small_transformer(words);
    CHECK(allocations_of_steps(transformer, Cached<ContiguousCache<F32>>{}, Greedy{}) == Allocations{});
    CHECK(allocations_of_steps(transformer, Cached<ContiguousCache<BF16, F16>>{},
                               Sampling<>({.temperature = 0.7, .top_k = 9, .top_p = 0.8})) == Allocations{});
  }
  ThreadTeam team(2);
  CHECK(allocations_of_steps(small_transformer(), Cached<ContiguousCache<F32>>{}, Greedy{}, team) ==
        Allocations{});
}

TEST_CASE("steady state: a step over a GrowingCache allocates nothing while it has room") {
  const auto transformer = small_transformer();
  CHECK(allocations_of_steps(transformer, Cached<GrowingCache<F32>>{.cache = {.initial_positions = 320}},
                             Greedy{}) == Allocations{});
  // By default it has room for 64, and doubles at 65, 129 and 257: rows and their offsets.
  CHECK(allocations_of_steps(transformer, Cached<>{}, Greedy{}).of_the_library == 2 * 3);
}

TEST_CASE("steady state: Recompute allocates nothing once it has run as long a sequence") {
  const auto transformer = small_transformer();
  const auto tokens = random_tokens(100, 37, 1);
  Decoder decoder(transformer, Recompute<>{});
  decoder.append(tokens);
  decoder.truncate(50);
  AllocationHook hook;
  const Index before = n_mallocs();
  {
    const ScopedAllocationHook scope(hook);
    for (std::size_t i = 50; i < 100; ++i) decoder.step(tokens[i]);
  }
  CHECK(hook.n_allocations == 0);
  CHECK(n_mallocs() - before == 0);
}

TEST_CASE("steady state: truncating and clearing allocate nothing") {
  const auto transformer = small_transformer();
  const auto tokens = random_tokens(40, 37, 1);
  Decoder decoder(transformer, Cached<>{});
  decoder.append(tokens);
  const Index before = n_mallocs();
  decoder.truncate(20);
  decoder.logits();
  decoder.append(std::span(tokens).subspan(20));
  decoder.clear();
  decoder.append(tokens);
  CHECK(n_mallocs() - before == 0);
}

}  // namespace

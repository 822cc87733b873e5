// SPDX-License-Identifier: MIT
// After warm-up a cached step allocates nothing: neither from the library's memory, nor from anybody's.
#include <support/counted_malloc.hpp>
#include <support/forward.hpp>
#include <support/model.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/core/thread_team.hpp>
#include <kvdecode/model/transformer.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace {

using kvdecode::AllocationHook;
using kvdecode::ContiguousCache;
using kvdecode::ExecutorRef;
using kvdecode::F16;
using kvdecode::GrowingCache;
using kvdecode::Index;
using kvdecode::Native;
using kvdecode::Rows;
using kvdecode::ScopedAllocationHook;
using kvdecode::Segment;
using kvdecode::TokenId;
using kvdecode::Transformer;
using kvdecode::Workspace;
using kvdecode_test::n_mallocs;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;

TEST_CASE("counted malloc: counts what C and C++ allocate") {
  if (!kvdecode_test::kCountsMallocs) return;
  Index before = n_mallocs();
  const auto small = std::make_unique<int>(3);
  CHECK(n_mallocs() - before == 1);
  before = n_mallocs();
  const std::vector<double> vector(1000);
  const kvdecode::Block<float> aligned(7);
  CHECK(n_mallocs() - before == 2);
}

/// Allocations of some steps after some others, from the library's memory and from malloc.
struct Allocations {
  Index of_the_library = 0;
  Index of_anybody = 0;
};

template <class S, class Cache>
Allocations allocations_of_steps(const Transformer<S>& transformer, std::vector<Cache>& caches,
                                 ExecutorRef exec) {
  const std::vector<TokenId> tokens = random_tokens(400, 37, 1);
  Workspace<S> workspace;
  std::vector<Segment<Cache>> segments;
  for (Cache& cache : caches) segments.push_back({&cache, std::span(tokens).first(9), Rows::kLast});
  const std::span<const Segment<Cache>> all(segments);
  transformer.forward(workspace, exec, all);
  for (Segment<Cache>& segment : segments) segment.tokens = std::span(tokens).subspan(9, 1);
  transformer.forward(workspace, exec, all);
  AllocationHook hook;
  const Index before = n_mallocs();
  {
    const ScopedAllocationHook scope(hook);
    for (std::size_t i = 10; i < 300; ++i) {  // across the edge of a tile
      for (Segment<Cache>& segment : segments) segment.tokens = std::span(tokens).subspan(i, 1);
      transformer.forward(workspace, exec, all);
    }
  }
  return {hook.n_allocations, n_mallocs() - before};
}

TEST_CASE_TEMPLATE("steady state: a cached step allocates nothing, for every kind of model", S, float,
                   double) {
  for (const std::string_view words :
       {"gqa", "mqa layer_norm gelu plain parallel sinks_within", "learned tied chunk",
        "hd5 relu2 plain interleaved partial mixed", "mla_q interleaved balanced_experts",
        "mla sinks_within best_groups", "borrowed own_head_dims sliding value_norm layer_inputs"}) {
    CAPTURE(words);
    const RandomModel model(words);
    const Transformer<S> transformer(model.config, model.weights);
    std::vector<ContiguousCache<Native<S>>> caches;
    for (int i = 0; i < 3; ++i) caches.emplace_back(transformer.kv_shape(), 320);
    const Allocations allocations = allocations_of_steps(transformer, caches, {});
    CHECK(allocations.of_the_library == 0);
    CHECK(allocations.of_anybody == 0);
  }
}

TEST_CASE("steady state: nor with weights and cache in halves, on a team of threads") {
  const RandomModel model("gqa", {.format = kvdecode::FormatId::kBF16, .transposed = true});
  const Transformer<float> transformer(model.config, model.weights);
  std::vector<ContiguousCache<F16>> caches;
  caches.emplace_back(transformer.kv_shape(), 320);
  kvdecode::ThreadTeam team(2);
  const Allocations allocations = allocations_of_steps(transformer, caches, team);
  CHECK(allocations.of_the_library == 0);
  CHECK(allocations.of_anybody == 0);
}

TEST_CASE("steady state: a growing cache allocates when it doubles, and never if it was made large enough") {
  const RandomModel model("gqa");
  const Transformer<float> transformer(model.config, model.weights);
  std::vector<GrowingCache<F16>> caches;
  caches.emplace_back(transformer.kv_shape(), 320);
  CHECK(allocations_of_steps(transformer, caches, {}).of_the_library ==
        2 * 3);  // rows and offsets, at 65, 129, 257
  caches.clear();
  caches.emplace_back(transformer.kv_shape(), 320);
  caches[0].reserve_capacity(320);
  const Allocations allocations = allocations_of_steps(transformer, caches, {});
  CHECK(allocations.of_the_library == 0);
  CHECK(allocations.of_anybody == 0);
}

TEST_CASE("steady state: smaller calls than before allocate nothing either") {
  const RandomModel model("gqa");
  const Transformer<float> transformer(model.config, model.weights);
  Workspace<float> workspace;
  ContiguousCache<kvdecode::F32> cache(transformer.kv_shape(), 200);
  const std::vector<TokenId> tokens = random_tokens(40, 37, 2);
  transformer.forward(workspace, {}, Segment<ContiguousCache<kvdecode::F32>>{&cache, tokens, Rows::kAll});
  const Index before = n_mallocs();
  for (const std::size_t n : {40u, 1u, 17u, 39u}) {
    const Segment<ContiguousCache<kvdecode::F32>> segment{&cache, std::span(tokens).first(n), Rows::kAll};
    transformer.forward(workspace, {}, segment);
  }
  CHECK(n_mallocs() == before);
}

}  // namespace

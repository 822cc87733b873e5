// SPDX-License-Identifier: MIT
// Sessions: going on after a restore is never having stopped, whatever the caches and strategies are.
#include <support/random.hpp>

#include <kvdecode/io/session.hpp>
#include <kvdecode/kvdecode.hpp>

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "session_support.hpp"
#include "support.hpp"

namespace {

using namespace kvdecode;
using io_test::check_error;
using io_test::check_same;
using io_test::check_session;
using io_test::continued;
using io_test::TemporaryFolder;
using io_test::transformer_of;
using kvdecode_test::random_tokens;

/// From one layout to the next and back, in the formats.
template <class A, class B, class S = float>
void check_layouts(std::string_view words, typename A::Options a = {}, typename B::Options b = {}) {
  CAPTURE(std::string(words));
  const auto transformer = transformer_of<S>(words);
  const Cached<A> first{.max_seq_len = 60, .prefill_chunk = 7, .cache = a};
  const Cached<B> second{.max_seq_len = 75, .prefill_chunk = 5, .cache = b};
  for (const Index n : {1, 21}) {
    check_session(Decoder(transformer, first), Decoder(transformer, second), n);
    check_session(Decoder(transformer, second), Decoder(transformer, first), n);
    check_session(Decoder(transformer, first), Decoder(transformer, first), n);
  }
}

TEST_CASE("session: going on is never having stopped, whatever the layouts") {
  check_layouts<ContiguousCache<F32>, GrowingCache<F32>>("gqa");
  check_layouts<GrowingCache<F64, F16>, PagedCache<4, F64, F16>, double>("mqa hd16");
  check_layouts<PagedCache<4, Int8, HadInt4>, ContiguousCache<Int8, HadInt4>>("gqa experts");
  check_layouts<ContiguousCache<Turbo3>, PagedCache<1, Turbo3>>("learned tied");
  using Ring = SlidingWindowCache<BF16>;
  check_layouts<Ring, Ring>("gqa mixed_sinks", {.slack = 2, .max_append = 3}, {.slack = 5, .max_append = 50});
  check_layouts<SinkCache<Int8>, SlidingWindowCache<Int8>>("gqa sinks_within", {.slack = 0, .max_append = 2},
                                                           {.slack = 1, .max_append = 2});
  check_layouts<SinkCache<F32>, SinkCache<F32>>("chunk", {.slack = 0, .max_append = 1});
  check_layouts<Ring, Ring>("borrowed own_head_dims mixed value_norm layer_inputs",
                            {.slack = 2, .max_append = 3});
}

TEST_CASE("session: what has all positions goes into a ring") {
  const auto transformer = transformer_of("gqa mixed_sinks");
  check_session(Decoder(transformer, Cached<ContiguousCache<>>{}),
                Decoder(transformer, Cached<SlidingWindowCache<>>{.max_seq_len = 60,
                                                                  .cache = {.slack = 1, .max_append = 3}}));
}

TEST_CASE("session: a rotary epoch goes along") {
  for (const std::string_view words : {"longrope", "dynamic"})
    for (const Index n : {4, 20}) {
      const auto transformer = transformer_of(words);
      check_session(Decoder(transformer, Cached<>{}), Decoder(transformer, Cached<PagedCache<4>>{}), n);
    }
  // The keys are of the long epoch, and none has to be computed again for it.
  const TemporaryFolder folder;
  const auto transformer = transformer_of("longrope");
  Decoder from(transformer, Cached<>{});
  Decoder to(transformer, Cached<PagedCache<4>>{});
  from.append(random_tokens(20, 37, 3));
  save_session(folder.path() / "session", from);
  restore_session(folder.path() / "session", to);
  CHECK(to.cache().epoch() == 1);
  to.step(1);
  CHECK(to.statistics().n_tokens_run == 1);
}

TEST_CASE("session: each strategy goes on with what the other left") {
  const auto transformer = transformer_of("gqa sliding");
  const auto cached = [&] { return Decoder(transformer, Cached<GrowingCache<F16>>{}); };
  const auto recompute = [&] { return Decoder(transformer, Recompute<GrowingCache<F16>>{}); };
  check_session(cached(), recompute());
  check_session(recompute(), cached());
  check_session(recompute(), recompute());
}

TEST_CASE("session: shifted tokens keep their keys, and go where shifts are known") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "shifted";
  const auto transformer = transformer_of("gqa");
  Decoder from(transformer, Cached<ContiguousCache<>>{.max_seq_len = 60});
  from.append(random_tokens(30, 37, 3));
  from.shift(12, -5);
  from.append(random_tokens(3, 37, 4));
  from.shift(20, -2);
  Greedy greedy;
  save_session(path, from);
  Decoder paged(transformer, Cached<PagedCache<4>>{.max_seq_len = 60});
  restore_session(path, paged);
  // The logits were not at hand: the last token runs again, with the keys of the others.
  const auto expected = continued(from, greedy, 8);
  check_same(continued(paged, greedy, 8), expected);
  from.shift(10, -3);
  paged.shift(10, -3);
  check_same(continued(paged, greedy, 8), continued(from, greedy, 8));

  Decoder ring(transformer, Cached<SlidingWindowCache<>>{.max_seq_len = 60});
  check_error(ErrorCode::kUnsupported, {"shifted", "a ring"}, [&] { restore_session(path, ring); });
  Decoder recompute(transformer, Recompute<>{});
  check_error(ErrorCode::kUnsupported, {"shifted", "Recompute"}, [&] { restore_session(path, recompute); });
}

TEST_CASE("session: what a ring has forgotten is not made up elsewhere") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "ring.session";
  const auto transformer = transformer_of("gqa sliding");
  const Cached<SlidingWindowCache<>> ring{.max_seq_len = 60, .cache = {.slack = 1, .max_append = 2}};
  Decoder from(transformer, ring);
  Decoder to(transformer, Cached<>{});
  from.append(random_tokens(7, 37, 1));
  save_session(path, from);
  restore_session(path, to);  // nothing is forgotten yet
  CHECK(to.kv_len() == 7);
  from.append(random_tokens(13, 37, 2));
  save_session(path, from);
  check_error(ErrorCode::kMismatch,
              {"ring.session", "layer 0 has no positions [0, 13)", "a ring has forgotten"},
              [&] { restore_session(path, to); });
  CHECK(to.kv_len() == 7);
}

}  // namespace

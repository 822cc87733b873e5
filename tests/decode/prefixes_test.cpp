// SPDX-License-Identifier: MIT
// Decoders that share a PrefixStore (Cached::prefixes): what they save, and that nobody sees it in the logits.
#include <support/allocation.hpp>
#include <support/compare.hpp>
#include <support/model.hpp>
#include <support/random.hpp>

#include <kvdecode/kvdecode.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace kvdecode;
using kvdecode_test::check_same_bits;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;
using SmallPages = PagedCache<4>;
using Tokens = std::vector<TokenId>;

Transformer<float> small_transformer(std::string_view words = "gqa") {
  const RandomModel model(words);
  return Transformer<float>(model.config, model.weights);
}
Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
std::vector<float> copied(std::span<const float> logits) {
  return std::vector<float>(logits.begin(), logits.end());
}
/// The logits after tokens, by a decoder of its own without a store.
template <class Named = SmallPages>
std::vector<float> alone(const Transformer<float>& transformer, const Tokens& tokens) {
  Decoder decoder(transformer, Cached<Named>{.max_seq_len = 100});
  return copied(decoder.append(tokens));
}

/// A pool and a store for decoders of one model.
template <class Named = SmallPages>
struct Shared {
  explicit Shared(const Transformer<float>& t, Index max_pages_kept = 0, Index max_pages = 0)
      : transformer(t),
        pool(Named::page_bytes(t.kv_shape()), {.max_pages = max_pages}),
        store(pool, t.kv_shape(), {.max_bytes = max_pages_kept * pool.page_bytes()}) {}

  Decoder<Transformer<float>, Cached<Named>> decoder(Index prefill_chunk = 512) {
    return Decoder(transformer,
                   Cached<Named>{.max_seq_len = 100, .prefill_chunk = prefill_chunk, .prefixes = &store});
  }

  Transformer<float> transformer;
  PagePool pool;
  PrefixStore<Named> store;
};

template <class Named>
void check_hit_and_miss(const Transformer<float>& transformer) {
  constexpr Index page = Named::kPageSize;
  for (const Index n : {Index{1}, page - 1, page, page + 1, 2 * page, 3 * page - 1, Index{37}}) {
    if (n < 1) continue;
    CAPTURE(n);
    Shared<Named> shared(transformer);
    const Tokens tokens = random_tokens(n, 37, 5);
    const std::vector<float> expected = alone<Named>(transformer, tokens);
    auto first = shared.decoder(), second = shared.decoder(7);
    check_same_bits(copied(first.append(tokens)), expected);
    CHECK(first.statistics().n_tokens_run == n);
    CHECK(first.statistics().n_tokens_adopted == 0);
    check_same_bits(copied(second.append(tokens)), expected);
    CHECK(second.statistics().n_tokens_adopted == (n - 1) / page * page);
    CHECK(second.statistics().n_tokens_run == n - (n - 1) / page * page);
    check_same_bits(copied(second.logits()), expected);
    check_same_bits(copied(first.logits()), expected);
    // Both go on, each its own way.
    for (auto* decoder : {&first, &second}) {
      const Tokens more = random_tokens(9, 37, decoder == &first ? 6 : 7);
      check_same_bits(copied(decoder->append(more)), alone<Named>(transformer, tokens + more));
    }
    CHECK(second.cache().kv_len() == n + 9);
  }
}

TEST_CASE("prefixes: hit and miss give the same bits, and a hit runs what is left, the last token always") {
  for (const char* words : {"gqa", "mqa sliding", "sinks", "chunk", "learned layer_norm", "mixed_sinks",
                            "yarn", "borrowed own_head_dims mixed layer_inputs"}) {
    CAPTURE(words);
    check_hit_and_miss<PagedCache<4>>(small_transformer(words));
  }
  check_hit_and_miss<PagedCache<1>>(small_transformer());
  check_hit_and_miss<PagedCache<16, F16, BF16>>(small_transformer("mixed"));
  check_hit_and_miss<PagedCache<3, Int8, Int4>>(small_transformer());
}

TEST_CASE("prefixes: pages are left as they fill, and their sequence need not have ended") {
  Shared shared(small_transformer());
  const Tokens tokens = random_tokens(11, 37, 1);
  auto first = shared.decoder();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    first.step(tokens[i]);
    CHECK(shared.store.match(tokens) == static_cast<Index>(i + 1) / 4 * 4);
  }
  auto second = shared.decoder();
  second.append(tokens);
  CHECK(second.statistics().n_tokens_adopted == 8);
  CHECK(shared.pool.pages_in_use() == 2 + 1 + 1);
}

TEST_CASE("prefixes: a sequence that is cut and continued otherwise finds what others have run") {
  Shared shared(small_transformer());
  const Tokens start = random_tokens(9, 37, 1), a = start + random_tokens(12, 37, 2),
               b = start + random_tokens(12, 37, 3);
  auto first = shared.decoder(), second = shared.decoder();
  first.append(a);
  second.append(b);
  CHECK(second.statistics().n_tokens_adopted == 8);
  second.truncate(9);
  check_same_bits(copied(second.append(std::span(a).subspan(9))), alone(shared.transformer, a));
  CHECK(second.statistics().n_tokens_adopted == 8 + 11);  // all but the last token of a
  auto fork = second.fork();
  fork.truncate(3);
  check_same_bits(copied(fork.append(std::span(b).subspan(3))), alone(shared.transformer, b));
  CHECK(fork.statistics().n_tokens_adopted == 8 + 11 + 17);
  fork.clear();
  check_same_bits(copied(fork.append(a)), alone(shared.transformer, a));
  check_same_bits(copied(second.logits()), alone(shared.transformer, a));
}

TEST_CASE("prefixes: a rotary epoch other than 0 shares nothing") {
  for (const char* words : {"dynamic", "longrope"}) {
    CAPTURE(words);
    Shared shared(small_transformer(words));  // whose angles depend on the length beyond 9 positions
    const Tokens tokens = random_tokens(20, 37, 1);
    for (int round = 0; round < 2; ++round) {
      auto decoder = shared.decoder();
      Decoder recompute(shared.transformer, Recompute<SmallPages>{});
      decoder.append(std::span(tokens).first(8));
      recompute.append(std::span(tokens).first(8));
      CHECK(decoder.statistics().n_tokens_adopted == 4 * round);
      for (std::size_t i = 8; i < 20; ++i)
        check_same_bits(copied(decoder.step(tokens[i])), copied(recompute.step(tokens[i])));
      CHECK(decoder.statistics().n_tokens_adopted == 4 * round);
      CHECK(shared.store.match(tokens) == 8);
      decoder.truncate(7);
      recompute.truncate(7);
      check_same_bits(copied(decoder.logits()), copied(recompute.logits()));
      CHECK(decoder.statistics().n_tokens_adopted == 4 * round + 4);  // back in epoch 0, where it left one
    }
  }
}

TEST_CASE("prefixes: a shifted sequence goes on as it would without a store") {
  Shared shared(small_transformer());
  const Tokens tokens = random_tokens(20, 37, 1), more = random_tokens(13, 37, 2);
  const Tokens left = Tokens(tokens.begin(), tokens.begin() + 6) + Tokens(tokens.begin() + 9, tokens.end());
  shared.decoder().append(left + more);  // what another has run afresh
  auto decoder = shared.decoder();
  Decoder plain(shared.transformer, Cached<SmallPages>{.max_seq_len = 100});
  decoder.append(tokens);
  plain.append(tokens);
  decoder.shift(9, -3);
  plain.shift(9, -3);
  check_same_bits(copied(decoder.append(more)), copied(plain.append(more)));
  check_same_bits(copied(decoder.logits()), copied(plain.logits()));
  CHECK(decoder.statistics().n_tokens_adopted == 4);  // before the shift
  // What it leaves is what a fresh sequence has too.
  const Tokens other = random_tokens(13, 37, 3);
  decoder.truncate(17);
  decoder.append(other);
  for (const Tokens& end : {more, other}) {
    auto fresh = shared.decoder();
    check_same_bits(copied(fresh.append(left + end)), alone(shared.transformer, left + end));
  }
}

TEST_CASE("prefixes: a prompt that is stopped leaves what it has run") {
  Shared shared(small_transformer());
  const Tokens tokens = random_tokens(20, 37, 1);
  auto first = shared.decoder(5);
  auto stop = [](Index done, Index) { return done < 10; };
  CHECK(first.append(tokens, stop).empty());
  CHECK(first.kv_len() == 0);
  CHECK(shared.store.match(tokens) == 8);
  Index n_to_run = 0;
  auto listen = [&](Index, Index total) {
    n_to_run = total;
    return true;
  };
  check_same_bits(copied(first.append(tokens, listen)), alone(shared.transformer, tokens));
  CHECK(n_to_run == 12);
}

TEST_CASE("prefixes: an allocation that fails leaves the sequence, and the pages with the store") {
  const auto transformer = small_transformer();
  const Tokens start = random_tokens(6, 37, 1), tokens = start + random_tokens(14, 37, 2);
  const std::vector<float> at_start = alone(transformer, start), expected = alone(transformer, tokens);
  Index n_failures = 0;
  bool has_failed = true;
  for (Index which = 0; has_failed; ++which) {
    REQUIRE(which < 1000);
    Shared shared(transformer);
    shared.decoder().append(Tokens(tokens.begin(), tokens.begin() + 13));
    auto decoder = shared.decoder(3);
    decoder.append(start);
    const Index in_use = shared.pool.pages_in_use();
    try {
      const kvdecode_test::FailingAllocation failing(which);
      decoder.append(std::span(tokens).subspan(6));
      has_failed = failing.has_failed();
    } catch (const std::bad_alloc&) {
      ++n_failures;
      CHECK(decoder.kv_len() == 6);
      CHECK(decoder.cache().kv_len() <= 6);
      CHECK(shared.pool.pages_in_use() <= in_use);
      check_same_bits(copied(decoder.logits()), at_start);
      decoder.append(std::span(tokens).subspan(6));
    }
    check_same_bits(copied(decoder.logits()), expected);
    decoder.clear();
    shared.store.clear();
    CHECK(shared.pool.pages_in_use() == 0);
  }
  CHECK(n_failures > 0);
}

TEST_CASE("prefixes: a page that finds no memory in the store is not missed") {
  // What a step allocates last is what it leaves: that fails without a word.
  const auto transformer = small_transformer();
  const Tokens tokens = random_tokens(8, 37, 1);
  AllocationHook hook;
  {
    Shared shared(transformer);
    auto decoder = shared.decoder();
    const ScopedAllocationHook scope(hook);
    decoder.append(tokens);
  }
  Shared shared(transformer);
  auto decoder = shared.decoder();
  {
    const kvdecode_test::FailingAllocation failing(hook.n_allocations - 1);
    const std::vector<float> logits = copied(decoder.append(tokens));
    REQUIRE(failing.has_failed());
    check_same_bits(logits, alone(transformer, tokens));
  }
  CHECK(shared.store.bytes() == 0);
  decoder.append(tokens);
  CHECK(shared.store.match(tokens + tokens) == 16);
}

TEST_CASE(
    "prefixes: a pool with a limit serves one long sequence after another, and keeps what there is room "
    "for") {
  Shared shared(small_transformer(), 0, 12);
  for (std::uint64_t i = 0; i < 6; ++i) {
    auto decoder = shared.decoder();
    const Tokens tokens = random_tokens(4, 37, 1) + random_tokens(36, 37, 10 + i);
    check_same_bits(copied(decoder.append(tokens)), alone(shared.transformer, tokens));
    CHECK(decoder.statistics().n_tokens_adopted == (i == 0 ? 0 : 4));
    CHECK(shared.pool.pages_in_use() <= 12);
    Decoder other(shared.transformer,
                  Cached<SmallPages>{.max_seq_len = 100, .cache = {.pool = &shared.pool}});
    CHECK_THROWS_AS(other.append(tokens), Error);  // the decoder's own pages are no spare ones
    CHECK(other.kv_len() == 0);
  }
  CHECK(shared.store.bytes() > 0);
}

TEST_CASE("prefixes: strategies are for the store's caches only") {
  Shared shared(small_transformer());
  PagePool other(shared.pool.page_bytes());
  CHECK_THROWS_WITH_AS(
      Decoder(shared.transformer, Cached<SmallPages>{.cache = {.pool = &other}, .prefixes = &shared.store}),
      "prefix store: the cache's pages are of another pool than the store's", Error);
  CHECK_THROWS_AS(Decoder(small_transformer("mha"), Cached<SmallPages>{.prefixes = &shared.store}), Error);
  CHECK_THROWS_WITH_AS(Decoder(small_transformer("sliding"), Cached<SmallPages>{.prefixes = &shared.store}),
                       "prefix store: the cache was made for another KvShape than the store", Error);
  const auto decoder = shared.decoder();
  CHECK(&decoder.cache().pool() == &shared.pool);
}

TEST_CASE("prefixes: models of one shape do not take one another's keys and values") {
  const RandomModel model("gqa"), other("gqa relu");
  const Transformer<float> first(model.config, model.weights), again(model.config, model.weights);
  PagePool pool(SmallPages::page_bytes(first.kv_shape()));
  PrefixStore<SmallPages> store(pool, first.kv_shape());
  const Cached<SmallPages> strategy{.prefixes = &store};
  Decoder(first, strategy).append(random_tokens(8, 37, 1));
  Decoder second(again, strategy);  // the same weights
  second.append(random_tokens(8, 37, 1));
  CHECK(second.statistics().n_tokens_adopted == 4);
  const RandomModel loaded_again("gqa");  // the same weights, elsewhere
  Decoder third(Transformer<float>(loaded_again.config, loaded_again.weights), strategy);
  third.append(random_tokens(8, 37, 1));
  CHECK(third.statistics().n_tokens_adopted == 4);

  const auto is_another_model =
      "prefix store: it holds keys and values of another model, whose config or weights differ";
  CHECK_THROWS_WITH_AS(Decoder(Transformer<float>(other.config, other.weights), strategy), is_another_model,
                       Error);
  ModelConfig turned = model.config;  // over the very same weights
  turned.rotary.theta *= 2.0;
  CHECK_THROWS_WITH_AS(Decoder(Transformer<float>(turned, model.weights), strategy), is_another_model, Error);
  CHECK_THROWS_WITH_AS(Decoder(Transformer<float, Int8Activations>(model.config, model.weights), strategy),
                       "prefix store: it holds keys and values of exact activations and scalars of 4 bytes, "
                       "not of int8 and 4",
                       Error);
  CHECK_THROWS_WITH_AS(Decoder(Transformer<double>(model.config, model.weights), strategy),
                       "prefix store: it holds keys and values of exact activations and scalars of 4 bytes, "
                       "not of exact and 8",
                       Error);
}

TEST_CASE("prefixes: models that share most of their weights are told apart") {
  const RandomModel model("gqa");
  const Transformer<float> first(model.config, model.weights);
  PagePool pool(SmallPages::page_bytes(first.kv_shape()));
  PrefixStore<SmallPages> store(pool, first.kv_shape());
  const Cached<SmallPages> strategy{.prefixes = &store};
  Decoder(first, strategy).append(random_tokens(8, 37, 1));
  const auto is_refused = [&](const kvdecode::ModelConfig& config, const kvdecode::Weights& weights) {
    try {
      Decoder decoder(Transformer<float>(config, weights), strategy);
    } catch (const Error& error) {
      return error.code() == kvdecode::ErrorCode::kMismatch;
    }
    return false;
  };
  CHECK(!is_refused(model.config, model.weights));
  kvdecode::ModelConfig turned = model.config;  // the same weights, other angles
  turned.rotary.theta *= 2.0;
  CHECK(is_refused(turned, model.weights));
  kvdecode::Weights adapted = model.weights;  // the same embedding, another matrix of one layer
  adapted.layers[1].w_v.matrix = model.weights.layers[0].w_v.matrix;
  CHECK(is_refused(model.config, adapted));
  kvdecode::Weights scaled = model.weights;
  scaled.layers[0].w_q.scale = 0.5;
  CHECK(is_refused(model.config, scaled));
  kvdecode::Weights normed = model.weights;
  normed.layers[0].attention_norm = model.weights.layers[1].attention_norm;
  CHECK(is_refused(model.config, normed));
}

TEST_CASE("prefixes: the README's decoder uses them") {
  const auto transformer = small_transformer();
  const Tokens tokens = random_tokens(40, 37, 1);
  // [readme]
  using Cache = kvdecode::PagedCache<>;
  kvdecode::PagePool pool(Cache::page_bytes(transformer.kv_shape()));
  kvdecode::PrefixStore<Cache> prefixes(pool, transformer.kv_shape(), {.max_bytes = 1 << 30});
  kvdecode::Decoder decoder(transformer, kvdecode::Cached<Cache>{.prefixes = &prefixes});
  // [readme]
  decoder.append(tokens);
  decoder.clear();
  check_same_bits(copied(decoder.append(tokens)), alone(transformer, tokens));
  CHECK(decoder.statistics().n_tokens_adopted == 32);
}

TEST_CASE("prefixes: generate finds them, and its statistics tell") {
  Shared shared(small_transformer());
  const Tokens prompt = random_tokens(30, 37, 1);
  auto first = shared.decoder(), second = shared.decoder();
  const GenerateResult a = generate(first, prompt, Greedy{}, {.max_new_tokens = 20});
  const GenerateResult b = generate(second, prompt, Greedy{}, {.max_new_tokens = 20});
  CHECK(a.tokens == b.tokens);
  CHECK(a.statistics.decoder.n_tokens_adopted == 0);
  CHECK(b.statistics.decoder.n_tokens_adopted == 28);
  CHECK(b.statistics.decoder.n_tokens_run == 2 + 19);
}

TEST_CASE("prefixes: threads decode over one store, and their logits do not know it") {
  Shared shared(small_transformer(), 8, 60);
  std::vector<Tokens> prompts;
  std::vector<std::vector<float>> expected;
  for (std::uint64_t i = 0; i < 4; ++i) {
    prompts.push_back(random_tokens(9, 37, 1) + random_tokens(11, 37, 10 + i / 2) +
                      random_tokens(6, 37, 20 + i));
    expected.push_back(alone(shared.transformer, prompts.back()));
  }
  std::vector<int> wrong(2, 0);
  const auto work = [&](std::size_t t) {
    for (std::size_t round = 0; round < 20; ++round) {
      const std::size_t i = (3 * t + round) % 4;
      auto decoder = shared.decoder(5);
      wrong[t] += copied(decoder.append(prompts[i])) == expected[i] ? 0 : 1;
      if (round % 5 == t) shared.store.trim(2 * shared.pool.page_bytes());
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  CHECK(wrong == std::vector<int>{0, 0});
  CHECK(shared.pool.pages_in_use() * shared.pool.page_bytes() == shared.store.bytes());
  shared.store.clear();
  CHECK(shared.pool.pages_in_use() == 0);
}

}  // namespace

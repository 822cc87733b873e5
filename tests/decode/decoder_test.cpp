// SPDX-License-Identifier: MIT
#include <support/allocation.hpp>
#include <support/compare.hpp>
#include <support/model.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/kvdecode.hpp>

#include <doctest/doctest.h>

#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using CachedContiguous = kvdecode::Cached<kvdecode::ContiguousCache<kvdecode::F32>>;
using CachedGrowing = kvdecode::Cached<kvdecode::GrowingCache<kvdecode::F16>>;
using RecomputeContiguous = kvdecode::Recompute<kvdecode::ContiguousCache<kvdecode::F32>>;
using RecomputeGrowing = kvdecode::Recompute<kvdecode::GrowingCache<kvdecode::F16>>;

}  // namespace

TYPE_TO_STRING_AS("Cached<ContiguousCache<F32>>", CachedContiguous);
TYPE_TO_STRING_AS("Cached<GrowingCache<F16>>", CachedGrowing);
TYPE_TO_STRING_AS("Recompute<ContiguousCache<F32>>", RecomputeContiguous);
TYPE_TO_STRING_AS("Recompute<GrowingCache<F16>>", RecomputeGrowing);

namespace {

using namespace kvdecode;
using kvdecode_test::check_same_bits;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;

template <class S = float>
Transformer<S> small_transformer(std::string_view words = "gqa") {
  const RandomModel model(words);
  return Transformer<S>(model.config, model.weights);
}

template <class S>
std::vector<S> copied(std::span<const S> logits) {
  return std::vector<S>(logits.begin(), logits.end());
}

#define EVERY_STRATEGY CachedContiguous, CachedGrowing, RecomputeContiguous, RecomputeGrowing

TEST_CASE_TEMPLATE("decoder: holds the tokens it was given", Strategy, EVERY_STRATEGY) {
  Decoder decoder(small_transformer(), Strategy{.max_seq_len = 20});
  CHECK(decoder.kv_len() == 0);
  CHECK(decoder.tokens().empty());
  CHECK(decoder.max_seq_len() == 20);
  CHECK(decoder.can_append(20));
  CHECK_FALSE(decoder.can_append(21));
  CHECK_FALSE(decoder.can_append(-1));

  const auto tokens = random_tokens(7, 37, 1);
  const auto logits = decoder.append(tokens);
  CHECK(logits.size() == 37);
  CHECK(decoder.kv_len() == 7);
  CHECK(std::vector<TokenId>(decoder.tokens().begin(), decoder.tokens().end()) == tokens);
  CHECK(decoder.can_append(13));
  CHECK_FALSE(decoder.can_append(14));

  const auto before = copied(logits);
  decoder.step(3);
  CHECK(decoder.kv_len() == 8);
  CHECK(decoder.tokens().back() == 3);
  decoder.truncate(7);
  check_same_bits(copied(decoder.logits()), before);
  check_same_bits(copied(decoder.logits()), before);
  CHECK(decoder.kv_len() == 7);

  decoder.clear();
  CHECK(decoder.kv_len() == 0);
  CHECK(decoder.tokens().empty());
  check_same_bits(copied(decoder.append(tokens)), before);
}

TEST_CASE_TEMPLATE("decoder: a move takes the sequence along", Strategy, EVERY_STRATEGY) {
  static_assert(!std::is_copy_constructible_v<Decoder<Transformer<float>, Strategy>>);
  const auto tokens = random_tokens(5, 37, 1);
  Decoder first(small_transformer(), Strategy{.max_seq_len = 20});
  const auto expected = copied(first.append(tokens));
  Decoder second(std::move(first));
  CHECK(second.kv_len() == 5);
  check_same_bits(copied(second.logits()), expected);
  Decoder third(small_transformer("mqa"), Strategy{.max_seq_len = 3});
  third = std::move(second);
  CHECK(third.max_seq_len() == 20);
  check_same_bits(copied(third.logits()), expected);
}

TEST_CASE_TEMPLATE("decoder: a fork takes what the original has done along", Strategy, EVERY_STRATEGY) {
  Decoder original(small_transformer(), Strategy{.max_seq_len = 20});
  original.append(random_tokens(5, 37, 1));
  auto fork = original.fork();
  CHECK(fork.kv_len() == 5);
  CHECK(fork.max_seq_len() == 20);
  CHECK(fork.statistics().n_tokens_run == original.statistics().n_tokens_run);
  fork.step(3);
  CHECK(original.kv_len() == 5);
  CHECK(original.statistics().n_tokens_run == 5);
}

/// Calls f, which throws Error, and checks that the decoder is as before.
template <class D, class F>
void check_unchanged(D& decoder, ErrorCode code, const std::string& message, const F& f) {
  const std::vector<TokenId> tokens(decoder.tokens().begin(), decoder.tokens().end());
  const auto expected = copied(decoder.logits());
  try {
    f();
    FAIL_CHECK("no error");
  } catch (const Error& e) {
    CHECK(e.code() == code);
    CHECK(std::string(e.what()) == message);
  }
  CHECK(decoder.kv_len() == static_cast<Index>(tokens.size()));
  CHECK(std::vector<TokenId>(decoder.tokens().begin(), decoder.tokens().end()) == tokens);
  CHECK(decoder.cache().kv_len() <= decoder.kv_len());
  check_same_bits(copied(decoder.logits()), expected);
}

TEST_CASE_TEMPLATE("decoder: a full cache refuses more, says so, and stays as it was", Strategy,
                   EVERY_STRATEGY) {
  Decoder decoder(small_transformer(), Strategy{.max_seq_len = 128});
  const auto tokens = random_tokens(129, 37, 1);
  decoder.append(std::span(tokens).first(100));
  check_unchanged(decoder, ErrorCode::kCacheFull, "KV cache full: max_seq_len 128, kv_len 100, n_new 29",
                  [&] { decoder.append(std::span(tokens).subspan(100)); });
  decoder.append(std::span(tokens).subspan(100, 28));
  CHECK_FALSE(decoder.can_append(1));
  CHECK(decoder.can_append(0));
  check_unchanged(decoder, ErrorCode::kCacheFull, "KV cache full: max_seq_len 128, kv_len 128, n_new 1",
                  [&] { decoder.step(3); });
  decoder.truncate(127);
  decoder.step(3);
  CHECK(decoder.kv_len() == 128);
}

TEST_CASE_TEMPLATE("decoder: bad tokens are refused, and nothing changes", Strategy, EVERY_STRATEGY) {
  Decoder decoder(small_transformer(), Strategy{.max_seq_len = 20, .prefill_chunk = 2});
  decoder.append(random_tokens(5, 37, 1));
  for (const TokenId bad : {-1, 37, 1 << 30}) {
    const std::string message = "token id " + std::to_string(bad) + " is outside the vocabulary of 37";
    check_unchanged(decoder, ErrorCode::kBadArgument, message, [&] { decoder.step(bad); });
    const TokenId last[] = {1, 2, 3, 4, bad};
    check_unchanged(decoder, ErrorCode::kBadArgument, message, [&] { decoder.append(last); });
  }
  check_unchanged(decoder, ErrorCode::kBadArgument, "decoder: append needs at least one token",
                  [&] { decoder.append({}); });
}

TEST_CASE_TEMPLATE("decoder: a long append tells how far it is, and can be stopped without a trace", Strategy,
                   EVERY_STRATEGY) {
  const auto tokens = random_tokens(12, 37, 1);
  Decoder decoder(small_transformer(), Strategy{.max_seq_len = 20, .prefill_chunk = 3});
  decoder.append(std::span(tokens).first(4));
  const auto before = copied(decoder.logits());

  const Index n_run = Strategy::kKeepsCache ? 8 : 12;  // Recompute starts from nothing
  std::vector<Index> heard;
  auto stop = [&](Index done, Index total) {
    CHECK(total == n_run);
    heard.push_back(done);
    return done < 6;
  };
  CHECK(decoder.append(std::span(tokens).subspan(4), stop).empty());
  CHECK(heard == std::vector<Index>{3, 6});
  CHECK(decoder.kv_len() == 4);
  check_same_bits(copied(decoder.logits()), before);

  heard.clear();
  auto never_at_the_end = [&](Index done, Index total) {
    heard.push_back(done);
    return done < total;  // comes too late to stop anything
  };
  const auto logits = copied(decoder.append(std::span(tokens).subspan(4), never_at_the_end));
  CHECK(heard.back() == n_run);
  Decoder fresh(small_transformer(), Strategy{.max_seq_len = 20});
  check_same_bits(logits, copied(fresh.append(tokens)));
}

TEST_CASE_TEMPLATE("decoder: what cannot be truncated stays", Strategy, EVERY_STRATEGY) {
  Decoder decoder(small_transformer(), Strategy{.max_seq_len = 20});
  CHECK_THROWS_WITH_AS(decoder.logits(), "decoder: an empty sequence has no logits", Error);
  decoder.append(random_tokens(5, 37, 1));
  check_unchanged(decoder, ErrorCode::kBadArgument, "decoder: cannot truncate to 6 tokens, kv_len 5",
                  [&] { decoder.truncate(6); });
  check_unchanged(decoder, ErrorCode::kBadArgument, "decoder: cannot truncate to -1 tokens, kv_len 5",
                  [&] { decoder.truncate(-1); });
  decoder.truncate(0);
  CHECK_THROWS_WITH_AS(decoder.logits(), "decoder: an empty sequence has no logits", Error);
}

TEST_CASE("decoder: learned positions end where they end") {
  Decoder decoder(small_transformer("learned"), Cached<>{.max_seq_len = 5000});
  CHECK(decoder.max_seq_len() == 320);
  decoder.append(random_tokens(320, 37, 1));
  CHECK_THROWS_WITH_AS(decoder.step(1), "KV cache full: max_seq_len 320, kv_len 320, n_new 1", Error);
}

/// Tries f(decoder) on a copy of the decoder for every allocation that it makes, which fails.
/// @return how many there were
template <class D, class F>
Index fail_each_allocation(const D& original, const F& f) {
  for (Index which = 0; which < 1000; ++which) {
    D decoder = original.fork();
    decoder.logits();
    const std::vector<TokenId> tokens(decoder.tokens().begin(), decoder.tokens().end());
    CAPTURE(which);
    if (!kvdecode_test::is_refused(which, [&] { f(decoder); })) return which;
    CHECK(std::vector<TokenId>(decoder.tokens().begin(), decoder.tokens().end()) == tokens);
    CHECK(decoder.kv_len() == static_cast<Index>(tokens.size()));
    D untouched = original.fork();
    check_same_bits(copied(decoder.logits()), copied(untouched.logits()));
    f(decoder);
    f(untouched);
    check_same_bits(copied(decoder.logits()), copied(untouched.logits()));
  }
  FAIL("allocates without end");
  return 0;
}

TEST_CASE_TEMPLATE("decoder: an allocation that fails leaves everything as it was", Strategy,
                   EVERY_STRATEGY) {
  const auto tokens = random_tokens(100, 37, 1);
  for (const Index chunk : {4, 512}) {  // small passes: the last one alone needs room for logits
    CAPTURE(chunk);
    Decoder decoder(small_transformer("gqa mixed_sinks"),
                    Strategy{.max_seq_len = 320, .prefill_chunk = chunk});
    decoder.append(random_tokens(60, 37, 2));
    const Index n = fail_each_allocation(decoder, [&](auto& d) { d.append(tokens); });
    if (chunk == 512 || std::is_same_v<Strategy, CachedGrowing>) CHECK(n > 0);
  }
}

TEST_CASE_TEMPLATE("decoder: one that cannot be made or forked throws, and nothing leaks", Strategy,
                   EVERY_STRATEGY) {
  const auto transformer = small_transformer();
  const auto count = [](const auto& f) {
    for (Index which = 0; which < 1000; ++which)
      if (!kvdecode_test::is_refused(which, f)) return which;
    return Index{-1};
  };
  CHECK(count([&] { Decoder decoder(transformer, Strategy{.max_seq_len = 20}); }) > 0);
  Decoder decoder(transformer, Strategy{.max_seq_len = 20});
  decoder.append(random_tokens(5, 37, 1));
  CHECK(count([&] { decoder.fork(); }) > 0);
  CHECK(decoder.kv_len() == 5);
}

TEST_CASE_TEMPLATE("decoder: a record is what it takes to go on elsewhere", Strategy, EVERY_STRATEGY) {
  using Other = Decoder<Transformer<float>, Strategy>;
  const auto tokens = random_tokens(12, 37, 1);
  Decoder decoder(small_transformer(), Strategy{.max_seq_len = 20});
  const auto logits = copied(decoder.append(std::span(tokens).first(9)));
  const auto record = decoder.record();
  CHECK(record.model == decoder.transformer().fingerprint());
  CHECK(record.cache.kv_len == (Strategy::kKeepsCache ? 9 : 0));
  check_same_bits(copied(record.logits), logits);

  Other other(small_transformer(), Strategy{.max_seq_len = 14, .prefill_chunk = 2});
  other.append(random_tokens(5, 37, 2));
  other.restore(record);
  CHECK(other.statistics().n_tokens_run == 5);  // nothing ran again
  check_same_bits(copied(other.logits()), logits);
  check_same_bits(copied(other.append(std::span(tokens).subspan(9))),
                  copied(decoder.append(std::span(tokens).subspan(9))));

  // What changes the sequence makes the logits that came along others'.
  other.restore(decoder.record());
  other.truncate(9);
  check_same_bits(copied(other.logits()), logits);
  other.restore(other.record());
  decoder.truncate(9);
  CHECK(decoder.record().logits.empty());
  Other third(small_transformer(), Strategy{});
  third.restore(decoder.record());  // without logits: the last token runs again
  check_same_bits(copied(third.logits()), logits);
  other.clear();
  CHECK_THROWS_WITH_AS(other.logits(), "decoder: an empty sequence has no logits", Error);
}

TEST_CASE_TEMPLATE("decoder: a record that does not fit is refused, and changes nothing", Strategy,
                   EVERY_STRATEGY) {
  Decoder source(small_transformer(), Strategy{});
  source.append(random_tokens(9, 37, 1));
  Decoder decoder(small_transformer(), Strategy{.max_seq_len = 9});
  decoder.append(random_tokens(5, 37, 2));
  const auto refuse = [&](ErrorCode code, const std::string& message, const auto& change) {
    auto record = source.record();
    change(record);
    check_unchanged(decoder, code, message, [&] { decoder.restore(record); });
  };
  refuse(ErrorCode::kMismatch, "decoder: the record is of another model, whose config or weights differ",
         [](auto& r) { r.model ^= 1; });
  refuse(ErrorCode::kMismatch, "decoder: the record is of activations \"int8\", this decoder's are exact",
         [](auto& r) { r.activations = "int8"; });
  const auto ten = random_tokens(10, 37, 1);
  refuse(ErrorCode::kCacheFull, "KV cache full: max_seq_len 9, the record has 10 tokens",
         [&](auto& r) { r.tokens = ten; });
  std::vector<TokenId> wrong(9, 36);
  wrong[8] = 37;
  refuse(ErrorCode::kBadArgument, "decoder: the record has token id 37, outside the vocabulary of 37",
         [&](auto& r) { r.tokens = wrong; });
  refuse(ErrorCode::kBadArgument, "decoder: the record has 36 logits after 9 tokens, expected 37",
         [](auto& r) { r.logits = r.logits.first(36); });
  refuse(ErrorCode::kBadArgument, "decoder: the record has 8 tokens and a cache of 9", [](auto& r) {
    r.tokens = r.tokens.first(8);
    r.cache.kv_len = 9;
  });
  refuse(ErrorCode::kBadArgument, "decoder: the record has 37 logits after 0 tokens, expected 0",
         [](auto& r) {
           r.tokens = {};
           r.cache.kv_len = 0;
         });
}

/// A cache that takes no records.
class Stubborn : public ContiguousCache<F32> {
 public:
  using ContiguousCache::ContiguousCache;
  void restore(const CacheRecord&) = delete;
  Stubborn fork() const { return Stubborn(ContiguousCache::fork()); }

 private:
  explicit Stubborn(ContiguousCache&& base) : ContiguousCache(std::move(base)) {}
};

TEST_CASE("AnyDecoder: its record goes anywhere, but into a cache that takes none") {
  const auto transformer = small_transformer();
  AnyDecoder<float> stubborn(Decoder(transformer, Cached<Stubborn>{.max_seq_len = 20}));
  const auto logits = copied(stubborn.append(random_tokens(9, 37, 1)));
  AnyDecoder<float> any = make_decoder(transformer);
  any.restore(stubborn.record());
  CHECK(any.kv_len() == 9);
  check_same_bits(copied(any.logits()), logits);
  any.step(1);
  CHECK_THROWS_WITH_AS(stubborn.restore(any.record()), "decoder: its cache takes no record", Error);
  CHECK(stubborn.kv_len() == 9);
}

TEST_CASE_TEMPLATE("decoder: a model's claim of a great length costs nothing before it is used", Strategy,
                   CachedGrowing, RecomputeGrowing) {
  RandomModel model("gqa");
  model.config.max_seq_len = Index{1} << 30;
  const Transformer<float> transformer(model.config, model.weights);
  AllocationHook hook;
  const ScopedAllocationHook scope(hook);
  Decoder decoder(transformer, Strategy{});
  CHECK(decoder.max_seq_len() == Index{1} << 30);
  decoder.append(random_tokens(20, model.config.vocab_size, 1));
  decoder.fork();
  CHECK(hook.n_bytes < (Index{16} << 20));
}

TEST_CASE_TEMPLATE("decoder: works in any scalar", S, float, double, Counting<float>, Counting<double>) {
  const RandomModel model("gqa");
  const Transformer<S> transformer(model.config, model.weights);
  const auto tokens = random_tokens(5, 37, 1);
  Decoder cached(transformer, Cached<>{});
  Decoder recompute(transformer, Recompute<>{});
  check_same_bits(copied(cached.append(tokens)), copied(recompute.append(tokens)));
  static_assert(std::is_same_v<typename decltype(cached)::cache_type, GrowingCache<Native<S>>>);
}

TEST_CASE("AnyDecoder: does what the decoder in it does") {
  const auto transformer = small_transformer();
  const auto tokens = random_tokens(9, 37, 1);
  using Options = DecodeOptions;
  for (const auto strategy : {Options::Strategy::kCached, Options::Strategy::kRecompute})
    for (const auto format :
         {Options::CacheFormat::kNative, Options::CacheFormat::kF16, Options::CacheFormat::kInt8HadInt4}) {
      AnyDecoder<float> any = make_decoder(
          transformer, {.strategy = strategy, .cache_format = format, .max_seq_len = 12, .prefill_chunk = 4});
      CHECK(any.max_seq_len() == 12);
      const auto logits = copied(any.append(tokens));
      CHECK(any.kv_len() == 9);
      CHECK(std::vector<TokenId>(any.tokens().begin(), any.tokens().end()) == tokens);
      CHECK(any.can_append(3));
      CHECK_FALSE(any.can_append(4));
      CHECK_FALSE(any.can_append(-1));
      CHECK(any.statistics().n_tokens_run == 9);
      CHECK((any.statistics().cache_bytes > 0) == (strategy == Options::Strategy::kCached));
      AnyDecoder<float> fork = any.fork();
      any.step(5);
      CHECK(any.kv_len() == 10);
      CHECK(fork.kv_len() == 9);
      check_same_bits(copied(fork.logits()), logits);
      any.truncate(9);
      check_same_bits(copied(any.logits()), logits);
      any.clear();
      CHECK(any.kv_len() == 0);
      CHECK_THROWS_AS(any.logits(), Error);
      any.append(tokens);
      any = std::move(fork);
      check_same_bits(copied(any.logits()), logits);
      CHECK_THROWS_WITH_AS(any.append(random_tokens(4, 37, 1)),
                           "KV cache full: max_seq_len 12, kv_len 9, n_new 4", Error);
    }
}

TEST_CASE("AnyDecoder: takes over any decoder") {
  AnyDecoder<double> any(
      Decoder(small_transformer<double>(), Cached<ContiguousCache<F64, F16>>{.max_seq_len = 9}));
  CHECK(any.max_seq_len() == 9);
  CHECK(any.statistics().cache_bytes ==
        ContiguousCache<F64, F16>::required_bytes(small_transformer<double>().kv_shape(), 9));
}

TEST_CASE(
    "decoder: on one team, within its tasks and on several threads at once, each gives what it gives alone") {
  const auto transformer = small_transformer("gqa");
  const std::vector<TokenId> tokens = random_tokens(60, 37, 5);
  const auto logits_by = [&](kvdecode::ExecutorRef exec, Index chunk) {
    Decoder decoder(transformer, Cached<>{.prefill_chunk = chunk}, exec);
    decoder.append(std::span(tokens).first(40));
    for (std::size_t i = 40; i < 59; ++i) decoder.step(tokens[i]);
    const auto last = decoder.step(tokens[59]);
    return std::vector<float>(last.begin(), last.end());
  };
  const std::vector<float> alone = logits_by({}, 512);
  kvdecode::ThreadTeam team(2);
  check_same_bits(logits_by(team, 7), alone);
  // Each task of a step of the team decodes on the team.
  std::vector<std::vector<float>> nested(3);
  auto task = [&](Index i) noexcept { nested[static_cast<std::size_t>(i)] = logits_by(team, 3 + i); };
  team.parallel_for(3, task);
  for (const std::vector<float>& logits : nested) check_same_bits(logits, alone);
  // Whoever finds the team busy runs its own tasks.
  std::vector<std::vector<float>> concurrent(3);
  const auto work = [&](std::size_t i) {
    for (int round = 0; round < 5; ++round) concurrent[i] = logits_by(team, 5);
  };
  std::thread second(work, 1), third(work, 2);
  work(0);
  second.join();
  third.join();
  for (const std::vector<float>& logits : concurrent) check_same_bits(logits, alone);
}

TEST_CASE("decoder: sequences of one pool share the pages of their prompt") {
  using Cache = PagedCache<4>;
  const auto transformer = small_transformer();
  const auto prompt = random_tokens(14, 37, 21), rest = random_tokens(9, 37, 22);
  PagePool pool(Cache::page_bytes(transformer.kv_shape()));
  {
    Decoder first(transformer, Cached<Cache>{.max_seq_len = 40, .cache = {.pool = &pool}});
    first.append(prompt);
    CHECK(pool.pages_in_use() == 4);
    Decoder second = first.fork();
    CHECK(pool.pages_in_use() == 4);
    Decoder alone(transformer, Cached<>{.max_seq_len = 40});
    alone.append(prompt);
    check_same_bits(copied(second.append(rest)), copied(alone.append(rest)));
    CHECK(pool.pages_in_use() == 4 + 3);  // its own: the last one of the prompt, and two more
    alone.truncate(14);
    check_same_bits(copied(first.logits()), copied(alone.logits()));
    first.clear();
    CHECK(pool.pages_in_use() == 6);
  }
  CHECK(pool.pages_in_use() == 0);
  PagePool small(Cache::page_bytes(transformer.kv_shape()), {.max_pages = 3});
  Decoder decoder(transformer, Cached<Cache>{.max_seq_len = 40, .cache = {.pool = &small}});
  CHECK_THROWS_WITH_AS(decoder.append(prompt), "page pool full: max_pages 3, in use 0, n_new 4", Error);
  CHECK(decoder.kv_len() == 0);
  CHECK_NOTHROW(decoder.append(rest));
}

}  // namespace

// SPDX-License-Identifier: MIT
// Latent attention over caches: what they keep, in which formats, and what it costs. That its logits are right is for
// transformer_test.cpp and tests/golden/, that nothing else changes them for tests/laws/.
#include <support/compare.hpp>
#include <support/forward.hpp>
#include <support/model.hpp>
#include <support/names.hpp>
#include <support/random.hpp>
#include <support/thread_counts.hpp>

#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/sink.hpp>
#include <kvdecode/cache/sliding_window.hpp>
#include <kvdecode/core/cache_formats.hpp>
#include <kvdecode/core/counting.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/model/cache_bytes.hpp>
#include <kvdecode/model/cost.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace kvdecode;
using kvdecode_test::all_logits;
using kvdecode_test::check_same_bits;
using kvdecode_test::flat;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;

/// DeepSeek-V2 and V3's sizes of attention, in a model that is small otherwise.
ModelConfig deepseek_sized() {
  ModelConfig config = kvdecode_test::config_of("mla interleaved");
  config.n_heads = 3;
  config.kv_lora_rank = 512;
  config.qk_nope_head_dim = config.v_head_dim = 128;
  config.head_dim = 192;
  return config;
}

template <class Cache, class S>
void check_layout(const Transformer<S>& transformer, std::span<const TokenId> tokens,
                  const std::vector<S>& expected) {
  check_same_bits(flat(all_logits<S, Cache>(transformer, tokens)), expected);
}

/// Every layout, in calls of many tokens and of one.
template <class F, class S>
void check_format(const RandomModel& model, std::span<const TokenId> tokens) {
  const Transformer<S> transformer(model.config, model.weights);
  const std::vector<S> expected = flat(all_logits<S, ContiguousCache<F>>(transformer, tokens));
  CHECK(std::none_of(expected.begin(), expected.end(), [](S x) { return x != x; }));
  check_layout<GrowingCache<F>>(transformer, tokens, expected);
  check_layout<PagedCache<1, F>>(transformer, tokens, expected);
  check_layout<PagedCache<16, F>>(transformer, tokens, expected);
  check_layout<SlidingWindowCache<F>>(transformer, tokens, expected);
  check_layout<SinkCache<F>>(transformer, tokens, expected);
  PagedCache<3, F> cache(transformer.kv_shape(), static_cast<Index>(tokens.size()));
  Workspace<S> workspace;
  std::vector<S> steps;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto row = kvdecode_test::forward(transformer, workspace, cache, tokens.subspan(i, 1))[0];
    steps.insert(steps.end(), row.begin(), row.end());
  }
  check_same_bits(steps, expected);
}

TEST_CASE_TEMPLATE("latent attention: within a format all layouts give the same bits", S, float, double) {
  const RandomModel model("mla_q interleaved yarn sinks best_groups", {.seed = 5, .format = FormatId::kBF16});
  const std::vector<TokenId> tokens = random_tokens(37, 37, 6);
  check_format<Native<S>, S>(model, tokens);
  check_format<F16, S>(model, tokens);
  check_format<Int8, S>(model, tokens);
  check_format<Asym4, S>(model, tokens);
  check_format<Int3, S>(model, tokens);
}

TEST_CASE_TEMPLATE("latent attention: no number of threads and tiles shows", S, float, double) {
  kvdecode_test::check_thread_counts<S>(RandomModel("mla_q interleaved mixed_sinks"), {2, 3, 7, 33});
}

TEST_CASE("latent attention: a position costs its latent and the key that turns, once") {
  const KvShape shape = deepseek_sized().kv_shape();
  CHECK(payload_bytes<F16>(shape, 10) == 10 * 2 * 576 * 2);
  CHECK(payload_bytes<Int8>(shape, 10) == 10 * 2 * (576 / 32 * 34));
  CHECK(ContiguousCache<F32>::required_bytes(shape, 10) == payload_bytes<F32>(shape, 10));
  const auto refusal = [&](auto&& make) -> std::string {
    try {
      make();
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kUnsupported);
      return error.what();
    }
    return {};
  };
  const std::string in_keys = "KV cache: layer 0 has values that are a part of its keys, but ";
  CHECK(refusal([&] { GrowingCache<HadInt4>(shape, 8); }) ==
        in_keys + "a row of format had_int4 cannot be read in part");
  CHECK(refusal([&] { GrowingCache<Int8, HadInt4>(shape, 8); }) ==
        in_keys + "keys are stored as int8, values as had_int4");
  CHECK(refusal([&] { GrowingCache<Turbo4>(shape, 8); }) ==
        in_keys + "a row of format turbo4 cannot be read in part");
}

TEST_CASE(
    "latent attention: multiplies what its absorbed form multiplies, however many tokens come at once") {
  using S = Counting<float>;
  const RandomModel model("mla_q");
  const Transformer<S> transformer(model.config, model.weights);
  const MultiplyAdds expected = model_cost(model.config).forward(0, 12, 0).multiply_adds;
  const std::vector<TokenId> tokens = random_tokens(12, model.config.vocab_size, 1);
  for (const std::size_t chunk : {12u, 3u, 1u}) {
    CAPTURE(chunk);
    GrowingCache<Native<S>> cache(transformer.kv_shape(), 12);
    Workspace<S> workspace;
    take_work_counters();
    for (std::size_t i = 0; i < tokens.size(); i += chunk)
      kvdecode_test::forward(transformer, workspace, cache, std::span(tokens).subspan(i, chunk), Rows::kNone);
    const WorkCounters work = take_work_counters();
    CHECK(static_cast<double>(work[Work::kLinear]) == expected.linear());
    CHECK(static_cast<double>(work[Work::kScores]) == expected.scores);
    CHECK(static_cast<double>(work[Work::kValues]) == expected.values);
  }
}

}  // namespace

// SPDX-License-Identifier: MIT
// Rings at the edges of windows: sequences of one position less than the window, as many, one more and twice as many,
// in one call and in many, with and without slack. And sequences longer than any that the model was made for.
#include <laws/axes.hpp>
#include <laws/laws.hpp>
#include <support/compare.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace {

using namespace kvdecode_laws;
using kvdecode::AttentionSpan;
using kvdecode::Cached;
using kvdecode::Transformer;

/// A small model whose layers have these spans, the first one for the first layer, and so on in turn.
Transformer<float> model_of(std::string_view words, const std::vector<AttentionSpan>& spans) {
  kvdecode::ModelConfig config = kvdecode_test::config_of(words);
  config.spans.clear();
  for (Index layer = 0; layer < config.n_layers; ++layer)
    config.spans.push_back(spans[static_cast<std::size_t>(layer) % spans.size()]);
  const kvdecode_test::RandomModel model(config);
  return Transformer<float>(model.config, model.weights);
}

/// Checks all laws at the lengths around a window.
template <class Cache>
void check_around(const Transformer<float>& transformer, Index window,
                  const std::vector<typename Cache::Options>& options) {
  const std::vector<TokenId> all =
      kvdecode_test::random_tokens(2 * window + 1, transformer.config().vocab_size, 31);
  Answers<float> answers;
  add_answers<typename Cache::KeyFormat, typename Cache::ValueFormat>(
      answers, transformer, std::span<const TokenId>(all), lengths_up_to(2 * window + 1));
  for (const Index n : {window - 1, window, window + 1, 2 * window + 1}) {
    if (n < 1) continue;
    const auto tokens = std::span<const TokenId>(all).first(static_cast<std::size_t>(n));
    for (const Index chunk : {Index{1}, Index{3}, n})
      for (const typename Cache::Options& o : options) {
        CAPTURE(n);
        CAPTURE(chunk);
        CAPTURE(o.slack);
        CAPTURE(o.max_append);
        const Setting<Transformer<float>> setting{transformer, {}, tokens, answers, chunk};
        const Cached<Cache> strategy{.max_seq_len = n, .prefill_chunk = n, .cache = o};
        for (const Violation& v : violated_by_strategy(setting, strategy))
          FAIL_CHECK(v.law << ": " << v.difference);
        for (const Violation& v : violated_by_cache<Cache>(setting, {o}))
          FAIL_CHECK(v.law << ": " << v.difference);
      }
  }
}

TEST_CASE_TEMPLATE("windows: the laws hold around every window, whichever layer has it", Cache,
                   SlidingWindowCache<F32>, SlidingWindowCache<F16, F32>) {
  for (const Index window : {1, 2, 5}) {
    CAPTURE(window);
    const AttentionSpan span{.window = window}, full{}, sinks{.window = window, .n_sink = 2},
        chunk{.chunk = window};
    for (const std::vector<AttentionSpan>& spans :
         {std::vector{span}, {span, full}, {full, span}, {sinks, full}, {span, sinks}, {chunk, span}})
      check_around<Cache>(
          model_of("gqa", spans), window,
          {{.slack = 0, .max_append = 1}, {.slack = 1, .max_append = 2}, {.slack = 0, .max_append = 7}});
  }
}

TEST_CASE("windows: the laws hold around every window for sinks, within the window and at their distance") {
  for (const char* words : {"gqa", "gqa sinks_within"})
    for (const Index window : {1, 3, 6}) {
      CAPTURE(window);
      check_around<SinkCache<F32>>(
          model_of(words, {{.window = window, .n_sink = 3}, {.window = window, .n_sink = 1}}), window,
          {{.slack = 0, .max_append = 1}, {.slack = 2, .max_append = 3}});
    }
}

TEST_CASE("windows: a stream longer than the model's context, in rings, has the bits of the whole sequence") {
  kvdecode::ModelConfig config = kvdecode_test::config_of("gqa");
  config.max_seq_len = 24;
  const kvdecode_test::RandomModel model(kvdecode::with_streaming(config, 2, 7));
  const Transformer<float> transformer(model.config, model.weights);
  const std::vector<TokenId> tokens = kvdecode_test::random_tokens(150, config.vocab_size, 32);
  kvdecode::Decoder ring(transformer, Cached<SinkCache<F32>>{.max_seq_len = Index{1} << 60,
                                                             .cache = {.slack = 1, .max_append = 4}});
  kvdecode::Decoder whole(transformer, Cached<ContiguousCache<F32>>{.max_seq_len = 150});
  const Index bytes = ring.statistics().cache_bytes;
  for (Index begin = 0, n = 1; begin < 150; begin += n, n = 1 + (3 * n) % 11) {
    n = std::min(n, 150 - begin);
    const auto part = std::span<const TokenId>(tokens).subspan(static_cast<std::size_t>(begin),
                                                               static_cast<std::size_t>(n));
    const auto a = ring.append(part), b = whole.append(part);
    kvdecode_test::check_same_bits(std::vector<float>(a.begin(), a.end()),
                                   std::vector<float>(b.begin(), b.end()));
  }
  CHECK(ring.kv_len() == 150);
  CHECK(ring.statistics().cache_bytes == bytes);
  CHECK(whole.statistics().cache_bytes > 10 * bytes);
  // Back by more than the slack: the tokens run again, and the answer is the same.
  ring.truncate(100);
  whole.truncate(100);
  const auto a = ring.logits(), b = whole.logits();
  kvdecode_test::check_same_bits(std::vector<float>(a.begin(), a.end()),
                                 std::vector<float>(b.begin(), b.end()));
  // The last logits again, where a step that was stopped has overwritten what the last position sees.
  kvdecode::Decoder tight(transformer,
                          Cached<SinkCache<F32>>{.max_seq_len = 150, .cache = {.slack = 0, .max_append = 2}});
  const std::span<const TokenId> all(tokens);
  tight.append(all.first(100));
  const auto stop = [](Index, Index) { return false; };
  CHECK(tight.append(all.subspan(100, 4), stop).empty());
  CHECK(tight.cache().kv_len() == 100);
  CHECK(!tight.cache().can_truncate(99));
  const auto c = tight.logits();
  kvdecode_test::check_same_bits(std::vector<float>(c.begin(), c.end()),
                                 std::vector<float>(b.begin(), b.end()));
}

}  // namespace

// SPDX-License-Identifier: MIT
// Laws that relate two models, two formats or two scalars: different descriptions of the same computation
// give the same bits.
#include <laws/axes.hpp>
#include <laws/laws.hpp>
#include <support/compare.hpp>

#include <kvdecode/core/counting.hpp>
#include <kvdecode/decode/any_decoder.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace {

using namespace kvdecode_laws;
using kvdecode::AttentionSpan;
using kvdecode::Cached;
using kvdecode::Counting;
using kvdecode::MatrixView;
using kvdecode::ModelConfig;
using kvdecode::Native;
using kvdecode::Raw;
using kvdecode::Recompute;
using kvdecode::Transformer;
using kvdecode::VectorView;
using kvdecode::Weights;
using kvdecode_test::check_same_bits;
using kvdecode_test::config_of;
using kvdecode_test::OffsetBytes;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;

constexpr Index kNTokens = 40;

template <class S>
struct DefaultCache {
  using type = GrowingCache<Native<S>>;
};
/// Logits after every token, token by token. [n, vocab_size]
template <class S, class Cache = typename DefaultCache<S>::type>
std::vector<S> stepped_logits(const ModelConfig& config, const Weights& weights,
                              std::span<const TokenId> tokens) {
  kvdecode::Decoder decoder(Transformer<S>(config, weights), Cached<Cache>{});
  std::vector<S> all;
  for (const TokenId token : tokens) {
    const auto logits = decoder.step(token);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}
template <class S, class Cache = typename DefaultCache<S>::type>
std::vector<S> stepped_logits(const RandomModel& model, Index n = kNTokens) {
  return stepped_logits<S, Cache>(model.config, model.weights, random_tokens(n, model.config.vocab_size, 9));
}

// ---- Weights -----------------------------------------------------------------------------------------------

/// A copy of a matrix with stored row r taken from row from(r).
template <class From>
MatrixView rows_of(Weights& weights, const MatrixView& w, Index rows, const From& from) {
  const OffsetBytes bytes(rows * w.stride, 0);
  weights.owners.push_back(bytes.owner());
  for (Index r = 0; r < rows; ++r)
    std::memcpy(bytes.data() + r * w.stride, w.data + from(r) * w.stride, static_cast<std::size_t>(w.stride));
  MatrixView view = w;
  view.data = bytes.data();
  view.rows = rows;
  return view;
}

TEST_CASE_TEMPLATE("model laws: grouped queries are multi-head attention with each KV head repeated", S,
                   float, double) {
  for (const std::string words :
       {"gqa", "mqa hd12", "gqa hd5 partial interleaved mixed_sinks", "mqa learned hd16"}) {
    CAPTURE(words);
    const RandomModel gqa(words);
    ModelConfig config = gqa.config;
    Weights weights = gqa.weights;
    config.n_kv_heads = config.n_heads;
    for (kvdecode::LayerWeights& layer : weights.layers) {
      const auto repeat = [&](Index row) {
        return row / config.head_dim / gqa.config.group_size() * config.head_dim + row % config.head_dim;
      };
      for (MatrixView* w : {&layer.w_k.matrix, &layer.w_v.matrix})
        *w = rows_of(weights, *w, config.n_heads * config.head_dim, repeat);
    }
    const auto tokens = random_tokens(kNTokens, config.vocab_size, 9);
    check_same_bits(stepped_logits<S>(config, weights, tokens), stepped_logits<S>(gqa));
  }
}

/// The same numbers as `to`, which can hold them all.
VectorView decoded(Weights& weights, const VectorView& v, FormatId to) {
  if (v.empty()) return v;
  const Index element_bytes = kvdecode_reference::binary_format(to).n_bytes();
  const OffsetBytes bytes(v.size * element_bytes, 0);
  weights.owners.push_back(bytes.owner());
  for (Index i = 0; i < v.size; ++i)
    kvdecode_reference::store_bits(to, kvdecode_reference::encode(to, kvdecode_reference::element(v, i)),
                                   bytes.data() + i * element_bytes);
  return {to, bytes.data(), v.size};
}
MatrixView decoded(Weights& weights, const MatrixView& w, FormatId to) {
  if (w.empty()) return w;
  const Index element_bytes = kvdecode_reference::binary_format(to).n_bytes();
  const OffsetBytes bytes(w.rows * w.cols * element_bytes, 0);
  weights.owners.push_back(bytes.owner());
  for (Index r = 0; r < w.rows; ++r)
    for (Index c = 0; c < w.cols; ++c)
      kvdecode_reference::store_bits(to, kvdecode_reference::encode(to, kvdecode_reference::element(w, r, c)),
                                     bytes.data() + (r * w.cols + c) * element_bytes);
  return {to, bytes.data(), w.rows, w.cols, w.cols * element_bytes, false};
}
Weights decoded(Weights weights, FormatId to) {
  const auto linear = [&](kvdecode::LinearWeights& w) {
    w.matrix = decoded(weights, w.matrix, to);
    w.bias = decoded(weights, w.bias, to);
  };
  const auto norm = [&](kvdecode::NormWeights& w) {
    w.weight = decoded(weights, w.weight, to);
    w.bias = decoded(weights, w.bias, to);
  };
  weights.token_embedding = decoded(weights, weights.token_embedding, to);
  weights.position_embedding = decoded(weights, weights.position_embedding, to);
  for (kvdecode::LayerWeights& layer : weights.layers) {
    for (kvdecode::LinearWeights* w :
         {&layer.w_q, &layer.w_k, &layer.w_v, &layer.w_o, &layer.w_gate, &layer.w_up, &layer.w_down})
      linear(*w);
    norm(layer.attention_norm);
    norm(layer.feed_forward_norm);
  }
  norm(weights.final_norm);
  linear(weights.head);
  return weights;
}

TEST_CASE_TEMPLATE("model laws: a narrow weight is the number that it decodes to", S, float, double) {
  for (const std::string words : {"gqa", "mqa hd12 layer_norm relu plain parallel learned tied"})
    for (const FormatId format : {FormatId::kF16, FormatId::kBF16, FormatId::kF32})
      for (const bool transposed : {false, true}) {
        CAPTURE(words);
        CAPTURE(std::string(to_string(format)));
        CAPTURE(transposed);
        const RandomModel narrow(words,
                                 {.seed = 3, .format = format, .biases = true, .transposed = transposed});
        const auto expected = stepped_logits<S>(narrow);
        const auto tokens = random_tokens(kNTokens, narrow.config.vocab_size, 9);
        for (const FormatId wide : {FormatId::kF32, FormatId::kF64})
          check_same_bits(stepped_logits<S>(narrow.config, decoded(narrow.weights, wide), tokens), expected);
      }
}

TEST_CASE_TEMPLATE("model laws: a head tied to the embedding is a head with its numbers", S, float, double) {
  const RandomModel tied("tied");
  ModelConfig config = tied.config;
  config.tied_head = false;
  Weights weights = tied.weights;
  weights.head.matrix = weights.token_embedding;
  check_same_bits(stepped_logits<S>(config, weights, random_tokens(kNTokens, config.vocab_size, 9)),
                  stepped_logits<S>(tied));
}

TEST_CASE_TEMPLATE("model laws: a default that is written out changes nothing", S, float, double) {
  const RandomModel model("hd16");
  const auto expected = stepped_logits<S>(model);
  const auto with = [&](const auto& change) {
    ModelConfig config = model.config;
    change(config);
    return stepped_logits<S>(config, model.weights, random_tokens(kNTokens, config.vocab_size, 9));
  };
  check_same_bits(with([](ModelConfig& c) { c.attention_scale = 0.25; }), expected);
  check_same_bits(with([](ModelConfig& c) { c.rotary.dim = 16; }), expected);
  check_same_bits(with([](ModelConfig& c) {
                    c.rotary.scaling = {.kind = kvdecode::RotaryScalingKind::kLinear, .factor = 1.0};
                  }),
                  expected);
  check_same_bits(with([](ModelConfig& c) { c.spans.resize(2); }), expected);
}

// ---- Spans -------------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("model laws: a span that hides nothing is the full span", S, float, double) {
  for (const std::string words : {"gqa", "mqa hd12 interleaved", "learned hd16", "no_positions"}) {
    CAPTURE(words);
    const RandomModel model(words);
    for (const Index n : {Index{1}, Index{17}, Index{40}, Index{257}}) {
      CAPTURE(n);
      const auto expected = stepped_logits<S>(model, n);
      const auto tokens = random_tokens(n, model.config.vocab_size, 9);
      const auto with = [&](AttentionSpan span, kvdecode::SinkRotation rotation) {
        ModelConfig config = model.config;
        config.spans.assign(2, span);
        config.sink_rotation = rotation;
        return stepped_logits<S>(config, model.weights, tokens);
      };
      using kvdecode::SinkRotation;
      check_same_bits(with({.window = n}, SinkRotation::kAbsolute), expected);
      check_same_bits(with({.window = n + 5}, SinkRotation::kAbsolute), expected);
      check_same_bits(with({.chunk = n}, SinkRotation::kAbsolute), expected);
      check_same_bits(with({.window = 1, .n_sink = n}, SinkRotation::kAbsolute), expected);
      if (n > 4) {
        check_same_bits(with({.window = n - 3, .n_sink = 3}, SinkRotation::kAbsolute), expected);
        // Until its cache overflows, a stream is an ordinary sequence.
        check_same_bits(stepped_logits<S>(with_streaming(model.config, 4, n - 4), model.weights, tokens),
                        expected);
        check_same_bits(stepped_logits<S>(with_streaming(model.config, 0, n), model.weights, tokens),
                        expected);
      }
      if (n > 5) {  // and no longer: the law can fail
        const auto one_less =
            stepped_logits<S>(with_streaming(model.config, 4, n - 5), model.weights, tokens);
        const auto last = static_cast<std::size_t>((n - 1) * model.config.vocab_size);
        CHECK(std::memcmp(one_less.data(), expected.data(), last * sizeof(S)) == 0);
        CHECK(std::memcmp(one_less.data() + last, expected.data() + last, 37 * sizeof(S)) != 0);
      }
    }
  }
}

// With rotary positions this holds for real numbers only: the same differences of angles come from other
// angles, which are rounded. And a chunk has to begin where the lanes and tiles of sums begin.
TEST_CASE_TEMPLATE("model laws: without positions, chunks of 2^n are sequences of their own", S, float,
                   double) {
  for (const Index chunk : {1, 2, 4, 8, 16, 32, 128}) {
    CAPTURE(chunk);
    ModelConfig config = config_of("hd16 no_positions");
    config.max_seq_len = 512;
    const RandomModel separate(config);
    config.spans.assign(2, {.chunk = chunk});
    const auto tokens = random_tokens(3 * chunk + 1, config.vocab_size, 9);
    const auto together = stepped_logits<S>(config, separate.weights, tokens);
    std::vector<S> parts;
    for (Index begin = 0; begin < static_cast<Index>(tokens.size()); begin += chunk) {
      const Index n = std::min(chunk, static_cast<Index>(tokens.size()) - begin);
      const auto part = stepped_logits<S>(
          separate.config, separate.weights,
          std::span(tokens).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(n)));
      parts.insert(parts.end(), part.begin(), part.end());
    }
    check_same_bits(together, parts);
  }
}

// ---- Formats and scalars -----------------------------------------------------------------------------------

TEST_CASE("model laws: a cache format that holds every scalar rounds nothing") {
  for (const std::string words : {"gqa", "mqa hd12 mixed_sinks"}) {
    CAPTURE(words);
    const RandomModel model(words);
    const auto expected = stepped_logits<float>(model);
    check_same_bits(stepped_logits<float, ContiguousCache<F32>>(model), expected);
    check_same_bits(stepped_logits<float, ContiguousCache<F64>>(model), expected);
    check_same_bits(stepped_logits<float, ContiguousCache<Raw<float>>>(model), expected);
    check_same_bits(stepped_logits<float, GrowingCache<F64, Raw<float>>>(model), expected);
    check_same_bits(stepped_logits<double, ContiguousCache<Raw<double>>>(model),
                    stepped_logits<double>(model));
    // The others round: they would hide a law that compares nothing.
    CHECK(stepped_logits<float, ContiguousCache<F16>>(model) != expected);
    CHECK(stepped_logits<float, ContiguousCache<BF16>>(model) != expected);
  }
}

template <class T>
void check_counting(const RandomModel& model) {
  const auto expected = stepped_logits<T>(model);
  const auto check = [&]<class Cache>(std::type_identity<Cache>) {
    const auto counted = stepped_logits<Counting<T>, Cache>(model);
    std::vector<T> values;
    for (const Counting<T>& value : counted) values.push_back(static_cast<T>(value));
    check_same_bits(values, expected);
  };
  check(std::type_identity<GrowingCache<Raw<Counting<T>>>>{});
  check(std::type_identity<ContiguousCache<Native<T>>>{});
}

TEST_CASE("model laws: a scalar that counts has the bits of the scalar that it counts") {
  for (const std::string_view words : kvdecode_test::kSmallConfigs) {
    CAPTURE(std::string(words));
    const RandomModel model(words, {.seed = 8, .format = FormatId::kBF16, .biases = true});
    check_counting<float>(model);
    check_counting<double>(model);
  }
}

// ---- Run-time choices --------------------------------------------------------------------------------------

template <class S, class Cache>
void check_any_decoder(kvdecode::DecodeOptions::CacheFormat format) {
  using Options = kvdecode::DecodeOptions;
  const RandomModel model("gqa mixed");
  const Transformer<S> transformer(model.config, model.weights);
  const auto tokens = random_tokens(20, model.config.vocab_size, 9);
  Answers<S> answers;
  add_answers<typename Cache::KeyFormat, typename Cache::ValueFormat>(answers, transformer, tokens,
                                                                      lengths_up_to(20));
  for (const auto strategy : {Options::Strategy::kCached, Options::Strategy::kRecompute}) {
    auto any = make_decoder(transformer, {.strategy = strategy, .cache_format = format, .prefill_chunk = 3});
    Comparison compare(answers);
    compare(7, any.append(std::span(tokens).first(7)), "AnyDecoder: append");
    auto fork = any.fork();
    for (std::size_t n = 8; n <= 20; ++n)
      compare(static_cast<Index>(n), any.step(tokens[n - 1]), "AnyDecoder: step");
    any.truncate(4);
    compare(4, any.logits(), "AnyDecoder: truncate");
    compare(20, fork.append(std::span(tokens).subspan(7)), "AnyDecoder: fork");
    any.clear();
    compare(20, any.append(tokens), "AnyDecoder: clear");
    CHECK_MESSAGE(!compare.failed(), compare.text());
  }
}

TEST_CASE_TEMPLATE("model laws: a decoder chosen at run time gives what its types give", S, float, double) {
  using Format = kvdecode::DecodeOptions::CacheFormat;
  check_any_decoder<S, GrowingCache<Native<S>>>(Format::kNative);
  check_any_decoder<S, GrowingCache<F16>>(Format::kF16);
  check_any_decoder<S, GrowingCache<BF16>>(Format::kBF16);
  check_any_decoder<S, GrowingCache<Int8, HadInt4>>(Format::kInt8HadInt4);
  check_any_decoder<S, GrowingCache<Turbo3>>(Format::kTurbo3);
}

// ---- Caches that take few rows a step ----------------------------------------------------------------------

TEST_CASE("model laws: forward cuts a call into steps that every cache of the batch can take") {
  const RandomModel model("gqa mixed");
  const Transformer<float> transformer(model.config, model.weights);
  using Cache = SmallSteps<GrowingCache<F32>, 3>;
  const auto tokens = random_tokens(11, model.config.vocab_size, 9);
  Answers<float> answers;
  add_answers<F32>(answers, transformer, tokens, lengths_up_to(11));
  kvdecode::Workspace<float> workspace;
  for (const Rows first_rows : {Rows::kNone, Rows::kLast, Rows::kAll})
    for (const Rows second_rows : {Rows::kNone, Rows::kLast, Rows::kAll}) {
      Cache first(transformer.kv_shape(), 11), second(transformer.kv_shape(), 11);
      const std::span<const TokenId> all(tokens);
      const kvdecode::Segment<Cache> segments[] = {{&first, all.first(4), first_rows},
                                                   {&second, all, second_rows}};
      const auto rows =
          transformer.forward(workspace, {}, std::span<const kvdecode::Segment<Cache>>(segments));
      CHECK(first.kv_len() == 4);
      CHECK(second.kv_len() == 11);
      CHECK(first.widest_step() == 3);
      CHECK(second.widest_step() == 3);
      Comparison compare(answers);
      Index row = 0;
      for (const auto& segment : segments) {
        const Index n = static_cast<Index>(segment.tokens.size());
        const Index n_rows = segment.logits == Rows::kAll ? n : segment.logits == Rows::kLast ? 1 : 0;
        for (Index r = 0; r < n_rows; ++r)
          compare(n - n_rows + r + 1, {rows.row(row++), static_cast<std::size_t>(rows.cols)},
                  "in steps of 3");
      }
      CHECK(rows.rows == row);
      CHECK_MESSAGE(!compare.failed(), compare.text());
    }
}

}  // namespace

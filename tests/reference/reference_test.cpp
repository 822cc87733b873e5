// SPDX-License-Identifier: MIT
// The reference itself, held against numbers worked out by hand, against identities, and against a second
// formulation where there is one.
#include <reference/model.hpp>
#include <support/compare.hpp>
#include <support/model.hpp>
#include <support/random.hpp>

#include <kvdecode/model/config.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace kvdecode_reference;
using kvdecode_test::check_close;
using kvdecode_test::check_same_bits;
using kvdecode_test::config_of;
using kvdecode_test::magnitude;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;
using kvdecode_test::small_config;
using kvdecode_test::SplitMix64;
using kvdecode_test::tolerance;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Vector normals(Index n, SplitMix64& random) {
  Vector result;
  for (Index i = 0; i < n; ++i) result.push_back(random.normal());
  return result;
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// What one layer of the streaming model keeps: keys as they were before rotation, and values.
struct StreamingRows {
  Rows keys;    // [kv_len, n_kv_heads * head_dim]
  Rows values;  // [kv_len, n_kv_heads * head_dim]
};

// Xiao 2023, section 3.2, to the letter: token by token; n_sink first and `window` newest rows are kept; keys
// are rotated by their place in the cache, the query by that of its own row, the last.
Rows logits_by_cache_positions(const ModelConfig& config, const Weights& weights,
                               const std::vector<TokenId>& tokens, Index n_sink, Index window) {
  std::vector<StreamingRows> cache(weights.layers.size());
  Rows result;
  for (const TokenId token : tokens) {
    Rows x = embed(config, weights, std::vector<TokenId>{token});
    for (std::size_t layer = 0; layer < cache.size(); ++layer) {
      const LayerWeights& w = weights.layers[layer];
      const Rows normed = norm(config, w.attention_norm, x);
      StreamingRows& rows = cache[layer];
      rows.keys.push_back(linear(w.w_k, normed)[0]);
      rows.values.push_back(linear(w.w_v, normed)[0]);
      if (static_cast<Index>(rows.keys.size()) > n_sink + window) {
        rows.keys.erase(rows.keys.begin() + n_sink);
        rows.values.erase(rows.values.begin() + n_sink);
      }
      const Vector q = linear(w.w_q, normed)[0];
      const auto kv_len = static_cast<Index>(rows.keys.size());
      Vector heads;
      for (Index h = 0; h < config.n_heads; ++h) {
        const Index kv_head = h / config.group_size();
        const Vector query = rotate(head_of(q, h, config.head_dim), kv_len - 1, config.rotary);
        Vector scores;
        for (Index r = 0; r < kv_len; ++r) {
          const Vector key = head_of(rows.keys[at(r)], kv_head, config.head_dim);
          scores.push_back(dot(query, rotate(key, r, config.rotary)) /
                           std::sqrt(static_cast<double>(config.head_dim)));
        }
        const Vector probs = softmax(scores);
        for (Index c = 0; c < config.head_dim; ++c) {
          double value = 0.0;
          for (Index r = 0; r < kv_len; ++r)
            value += probs[at(r)] * rows.values[at(r)][at(kv_head * config.head_dim + c)];
          heads.push_back(value);
        }
      }
      x = sum(x, linear(w.w_o, Rows{heads}));
      x = sum(x, feed_forward_block(config, w, norm(config, w.feed_forward_norm, x)));
    }
    result.push_back(head_block(config, weights, x)[0]);
  }
  return result;
}

TEST_CASE("reference numbers: known bit patterns have known values") {
  CHECK(decode(FormatId::kF16, 0x3c00) == 1.0);
  CHECK(decode(FormatId::kF16, 0xc000) == -2.0);
  CHECK(decode(FormatId::kF16, 0x7bff) == 65504.0);
  CHECK(decode(FormatId::kF16, 0x0001) == 0x1p-24);
  CHECK(decode(FormatId::kF16, 0x03ff) == 0x1.ff8p-15);
  CHECK(decode(FormatId::kF16, 0xfc00) == -kInfinity);
  CHECK(std::isnan(decode(FormatId::kF16, 0x7c01)));
  CHECK(decode(FormatId::kBF16, 0x3f80) == 1.0);
  CHECK(decode(FormatId::kBF16, 0x4049) == 3.140625);
  CHECK(decode(FormatId::kF32, 0x40490fdb) == 0x1.921fb6p1);
  CHECK(decode(FormatId::kF64, 0x400921fb54442d18) == std::numbers::pi);
  CHECK(std::signbit(decode(FormatId::kBF16, 0x8000)));
}

TEST_CASE("reference numbers: f32 and f64 agree with the machine's own") {
  for (const kvdecode_test::FloatClass c : kvdecode_test::kFloatClasses) {
    CAPTURE(to_string(c));
    for (const float x : kvdecode_test::draws<float>(500, 11, c)) {
      const double value = decode(FormatId::kF32, std::bit_cast<std::uint32_t>(x));
      CHECK((std::isnan(x) ? std::isnan(value) : value == static_cast<double>(x)));
    }
    for (const double x : kvdecode_test::draws<double>(500, 12, c)) {
      const double value = decode(FormatId::kF64, std::bit_cast<std::uint64_t>(x));
      CHECK((std::isnan(x) ? std::isnan(value) : value == x));
      const auto rounded = static_cast<float>(x);
      if (!std::isnan(x)) CHECK(encode(FormatId::kF32, x) == std::bit_cast<std::uint32_t>(rounded));
    }
  }
}

TEST_CASE("reference numbers: every 16-bit pattern survives decode and encode") {
  for (const FormatId id : {FormatId::kF16, FormatId::kBF16}) {
    CAPTURE(to_string(id));
    Index n_changed = 0;
    for (std::uint64_t bits = 0; bits < 0x10000; ++bits) {
      const double value = decode(id, bits);
      if (!std::isnan(value) && encode(id, value) != bits) ++n_changed;
    }
    CHECK(n_changed == 0);
  }
}

TEST_CASE("reference numbers: rounding goes to the nearest, ties to even") {
  CHECK(encode(FormatId::kF16, 1.0 + 0x1p-11) == 0x3c00);
  CHECK(encode(FormatId::kF16, 1.0 + 0x1.8p-10) == 0x3c02);
  CHECK(encode(FormatId::kF16, 1.0 + 0x1.000001p-11) == 0x3c01);
  CHECK(encode(FormatId::kF16, 65519.999) == 0x7bff);
  CHECK(encode(FormatId::kF16, 65520.0) == 0x7c00);
  CHECK(encode(FormatId::kF16, 0x1p-25) == 0);
  CHECK(encode(FormatId::kF16, 0x1.000001p-25) == 1);
  CHECK(encode(FormatId::kF16, 0x1.ffffp-15) == 0x0400);
  CHECK(encode(FormatId::kBF16, -1.00390625) == 0xbf80);
}

TEST_CASE("reference numbers: a matrix reads the same by rows, transposed, padded and misaligned") {
  for (const FormatId id : {FormatId::kF64, FormatId::kF32, FormatId::kF16, FormatId::kBF16}) {
    CAPTURE(to_string(id));
    kvdecode_test::RandomNumbers plain({.seed = 5, .format = id});
    kvdecode_test::RandomNumbers padded({.seed = 5, .format = id, .offset = 1, .row_padding = 3});
    const Rows expected = read(plain.matrix(3, 5, 1.0, false));
    REQUIRE(expected.size() == 3);
    REQUIRE(expected[0].size() == 5);
    check_close(read(padded.matrix(3, 5, 1.0, true)), expected, 0.0);
  }
  // In memory 1 2 3 4 5 6: W is [2, 3] by rows, or [3, 2] transposed.
  const std::vector<float> numbers{1, 2, 3, 4, 5, 6};
  const auto bytes = kvdecode_test::offset_bytes(numbers);
  const MatrixView by_rows{FormatId::kF32, bytes.data(), 2, 3, 12, false};
  const MatrixView transposed{FormatId::kF32, bytes.data(), 3, 2, 12, true};
  check_close(read(by_rows), Rows{{1, 2, 3}, {4, 5, 6}}, 0.0);
  check_close(read(transposed), Rows{{1, 4}, {2, 5}, {3, 6}}, 0.0);
  CHECK(read(MatrixView{}).empty());
  CHECK(read(VectorView{}).empty());
}

TEST_CASE("reference linear: a product by hand") {
  const Rows w{{1, 2, 3}, {-1, 0, 0.5}};
  check_close(linear(w, Vector{}, Vector{1, 1, 2}), Vector{9, 0}, 0.0);
  check_close(linear(w, Vector{10, 20}, Vector{1, 1, 2}), Vector{19, 20}, 0.0);
}

TEST_CASE("reference norms: rows by hand") {
  const double bound = tolerance<double>(4);
  // rms of (3, 4) is sqrt(12.5); of (1, 7) with eps 24, sqrt(25 + 24) = 7.
  check_close(rms_norm({3, 4}, {}, {}, 0.0), Vector{3 / std::sqrt(12.5), 4 / std::sqrt(12.5)}, bound);
  check_close(rms_norm({1, 7}, {7, 2}, {0, 1}, 24.0), Vector{1, 3}, bound);
  // (1, 3): mean 2, variance 1; with eps 3 the deviation is 2.
  check_close(layer_norm({1, 3}, {}, {}, 0.0), Vector{-1, 1}, bound);
  check_close(layer_norm({1, 3}, {2, 4}, {10, 20}, 3.0), Vector{9, 22}, bound);
}

TEST_CASE("reference activations: known values") {
  const double bound = tolerance<double>(4);
  CHECK(silu(0.0) == 0.0);
  CHECK(std::abs(silu(std::log(3.0)) - 0.75 * std::log(3.0)) <= bound);
  CHECK(gelu(0.0) == 0.0);
  CHECK(std::abs(gelu(1.0) - 0.84134474606854294859) <= bound);   // Phi(1)
  CHECK(std::abs(gelu(-1.0) + 0.15865525393145705141) <= bound);  // -Phi(-1)
  CHECK(relu(-2.0) == 0.0);
  CHECK(relu(2.0) == 2.0);
  CHECK(relu_squared(-3.0) == 0.0);
  CHECK(relu_squared(3.0) == 9.0);
  for (double x = -6.0; x <= 6.0; x += 0.125) {
    CAPTURE(x);
    CHECK(std::abs(gelu_tanh(x) - gelu(x)) < 5e-4);  // an approximation, and no better
    CHECK(std::abs(silu(x) - silu(-x) - x) <= tolerance<double>(4, 6.0));
    CHECK(std::abs(gelu(x) - gelu(-x) - x) <= tolerance<double>(4, 6.0));
  }
  CHECK(std::abs(gelu_tanh(2.0) - gelu(2.0)) > 5e-5);
}

TEST_CASE("reference softmax: sums to one, ignores a shift, by hand") {
  check_close(softmax({0.0, std::log(3.0)}), Vector{0.25, 0.75}, tolerance<double>(4));
  check_close(softmax({7.0}), Vector{1.0}, 0.0);
  SplitMix64 random(3);
  Vector x = normals(33, random);
  const Vector p = softmax(x);
  double total = 0.0;
  for (const double value : p) total += value;
  CHECK(std::abs(total - 1.0) <= tolerance<double>(33));
  for (double& value : x) value += 1000.0;
  check_close(softmax(x), p, tolerance<double>(4, 1000.0));
}

TEST_CASE("reference rotary: frequencies by hand") {
  RotaryConfig rotary;
  rotary.theta = 10000.0;
  check_close(inv_freq(rotary, 8), Vector{1.0, 0.1, 0.01, 0.001}, tolerance<double>(4));
  rotary.dim = 4;
  check_close(inv_freq(rotary, 8), Vector{1.0, 0.01}, tolerance<double>(4));
  rotary.scaling = {.kind = kvdecode::RotaryScalingKind::kLinear, .factor = 4.0};
  check_close(inv_freq(rotary, 8), Vector{0.25, 0.0025}, tolerance<double>(4));
}

TEST_CASE("reference rotary: a pair turns by the known angle") {
  const double root = std::sqrt(0.5);
  RotaryConfig rotary;
  rotary.dim = 4;
  rotary.theta = 4.0;  // frequencies 1 and 1/2 radians a position
  rotary.scaling = {.kind = kvdecode::RotaryScalingKind::kLinear, .factor = 1.0 / (0.5 * std::numbers::pi)};
  // Now a quarter and an eighth of a circle a position; the fifth element stays.
  const double bound = tolerance<double>(8, 4.0);
  check_close(rotate({1, 1, 0, 0, 9}, 1, rotary), Vector{0, root, 1, root, 9}, bound);
  check_close(rotate({1, 1, 0, 0, 9}, 2, rotary), Vector{-1, 0, 0, 1, 9}, bound);
  check_close(rotate({1, 1, 0, 0, 9}, 0, rotary), Vector{1, 1, 0, 0, 9}, 0.0);
  rotary.pairs = RotaryPairs::kInterleaved;
  check_close(rotate({1, 0, 1, 0, 9}, 1, rotary), Vector{0, 1, root, root, 9}, bound);
}

TEST_CASE("reference rotary: a score depends on the distance alone") {
  SplitMix64 random(4);
  for (const RotaryPairs pairs : {RotaryPairs::kHalves, RotaryPairs::kInterleaved}) {
    RotaryConfig rotary;
    rotary.pairs = pairs;
    const Vector q = normals(12, random);
    const Vector k = normals(12, random);
    const double near = dot(rotate(q, 7, rotary), rotate(k, 3, rotary));
    const double far = dot(rotate(q, 1007, rotary), rotate(k, 1003, rotary));
    CHECK(std::abs(near - far) <= tolerance<double>(16, 1007.0 * magnitude(q) * magnitude(k)));
    CHECK(std::abs(near - dot(q, k)) > 0.01);
  }
}

TEST_CASE("reference rotary: llama3 keeps high, divides low frequencies and rises between") {
  const RotaryScaling scaling{.kind = kvdecode::RotaryScalingKind::kLlama3,
                              .factor = 8.0,
                              .low_freq_factor = 1.0,
                              .high_freq_factor = 4.0,
                              .original_max_seq_len = 100};
  const double turn = 2.0 * std::numbers::pi / 100.0;  // the frequency of one turn in 100 positions
  const auto scaled_turns = [&](double turns) { return scaled_frequency(turns * turn, scaling) / turn; };
  const double bound = tolerance<double>(8, 8.0);
  CHECK(std::abs(scaled_turns(5.0) - 5.0) <= bound);
  CHECK(std::abs(scaled_turns(4.0) - 4.0) <= bound);
  CHECK(std::abs(scaled_turns(1.0) - 1.0 / 8.0) <= bound);
  CHECK(std::abs(scaled_turns(0.5) - 0.5 / 8.0) <= bound);
  CHECK(std::abs(scaled_turns(2.5) - (0.5 * 2.5 / 8.0 + 0.5 * 2.5)) <= bound);  // s = 1/2
  double previous = 0.0;
  for (double turns = 0.05; turns < 6.0; turns += 0.05) {
    CAPTURE(turns);
    const double scaled = scaled_turns(turns);
    CHECK(scaled > previous);
    CHECK(scaled <= turns * (1.0 + tolerance<double>(4)));
    CHECK(scaled >= turns / 8.0 * (1.0 - tolerance<double>(4)));
    previous = scaled;
  }
}

TEST_CASE(
    "reference rotary: yarn keeps pairs that turn often, divides those that turn rarely, a line between") {
  // theta 16, 8 pairs: pair x turns 1024 * 2^(-x / 2) / (2 pi) times in 1024 positions.
  RotaryConfig rotary;
  rotary.theta = 16.0;
  rotary.scaling = {.kind = kvdecode::RotaryScalingKind::kYarn,
                    .factor = 4.0,
                    .original_max_seq_len = 1024,
                    .beta_fast = 1024.0 / (2.0 * std::numbers::pi * 2.0),   // that is pair 2
                    .beta_slow = 1024.0 / (2.0 * std::numbers::pi * 8.0)};  // that is pair 6
  const auto divided_parts = [&] {
    Vector parts;
    for (Index i = 0; i < 8; ++i) parts.push_back(yarn_divided_part(rotary, 16, i));
    return parts;
  };
  rotary.scaling.round_bounds = false;
  const double bound = tolerance<double>(64);
  check_close(divided_parts(), Vector{0, 0, 0, 0.25, 0.5, 0.75, 1, 1}, bound);
  const Vector frequencies = inv_freq(rotary, 16);
  for (Index i = 0; i < 8; ++i)
    CHECK(std::abs(frequencies[at(i)] - std::exp2(-0.5 * static_cast<double>(i)) *
                                            (1.0 - 0.75 * divided_parts()[at(i)])) <= bound);
  // Bounds between pairs, 2.7 and 5.3: rounded outwards they are 2 and 6.
  rotary.scaling.beta_fast *= std::exp2(-0.35);
  rotary.scaling.beta_slow *= std::exp2(0.35);
  check_close(divided_parts(), Vector{0, 0, 0, 0.3 / 2.6, 0.5, 2.3 / 2.6, 1, 1}, bound);
  rotary.scaling.round_bounds = true;
  check_close(divided_parts(), Vector{0, 0, 0, 0.25, 0.5, 0.75, 1, 1}, bound);
  // Bounds do not leave the dimensions: from pair -2 and to 20 it is from 0 to 15.
  rotary.scaling.beta_fast = 1024.0 / (2.0 * std::numbers::pi) * 2.0;
  rotary.scaling.beta_slow = 1024.0 / (2.0 * std::numbers::pi) / 1024.0;
  Vector line;
  for (int i = 0; i < 8; ++i) line.push_back(i / 15.0);
  check_close(divided_parts(), line, bound);
}

TEST_CASE("reference rotary: dynamic and longrope angles by the length of the sequence") {
  RotaryConfig rotary;
  rotary.theta = 100.0;
  rotary.scaling = {.kind = kvdecode::RotaryScalingKind::kDynamic, .factor = 3.0, .original_max_seq_len = 10};
  CHECK(epoch_of(rotary, 10) == 0);
  CHECK(epoch_of(rotary, 11) == 1);
  CHECK(epoch_of(rotary, 25) == 15);
  const double bound = tolerance<double>(32);
  check_close(inv_freq(rotary, 4), Vector{1.0, 0.1}, bound);
  // 20 positions: theta times (3 * 2 - 2)^(4 / 2) = 16.
  check_close(inv_freq(rotary, 4, 10), Vector{1.0, 0.1 / 4}, bound);

  rotary.scaling = {.kind = kvdecode::RotaryScalingKind::kLongrope,
                    .original_max_seq_len = 10,
                    .magnitude = 2.0,
                    .short_factors = {2.0, 4.0},
                    .long_factors = {5.0, 10.0}};
  CHECK(epoch_of(rotary, 10) == 0);
  CHECK(epoch_of(rotary, 11) == 1);
  CHECK(epoch_of(rotary, 25) == 1);
  check_close(inv_freq(rotary, 4), Vector{0.5, 0.025}, bound);
  check_close(inv_freq(rotary, 4, 1), Vector{0.2, 0.01}, bound);
  // The magnitude: of what turns, and of nothing else.
  check_close(rotate({1, 2, 3, 4}, 0, rotary), Vector{2, 4, 6, 8}, bound);
  rotary.dim = 2;
  check_close(rotate({1, 2, 3, 4}, 0, rotary), Vector{2, 4, 3, 4}, bound);

  rotary = {.theta = 100.0};
  rotary.scaling = {.kind = kvdecode::RotaryScalingKind::kDivisors, .short_factors = {2.0, 4.0}};
  CHECK(epoch_of(rotary, 1000) == 0);
  check_close(inv_freq(rotary, 4), Vector{0.5, 0.025}, bound);

  // Of four pairs two turn, as far apart as among four.
  rotary = {.theta = 10000.0};
  rotary.scaling = {.kind = kvdecode::RotaryScalingKind::kProportional, .factor = 2.0, .n_turning = 2};
  CHECK(epoch_of(rotary, 1000) == 0);
  check_close(inv_freq(rotary, 8), Vector{0.5, 0.05, 0.0, 0.0}, bound);
  const Vector x{1, 2, 3, 4, 5, 6, 7, 8}, y = rotate(x, 3, rotary);
  for (const std::size_t i : {2u, 3u, 6u, 7u}) CHECK(y[i] == x[i]);
  for (const std::size_t i : {0u, 1u, 4u, 5u}) CHECK(y[i] != x[i]);
  rotary.enabled = false;
  check_close(rotate({1, 2, 3, 4}, 7, rotary), Vector{1, 2, 3, 4}, 0.0);
}

TEST_CASE("reference attention: two positions by hand") {
  const Rows keys{{1, 0}, {0, 1}};
  const Rows values{{10, 20}, {30, 60}};
  const double bound = tolerance<double>(8, 60.0);
  // Position 0 sees itself alone.
  check_close(attention({5, 5}, keys, values, 0, {}, 1.0), Vector{10, 20}, 0.0);
  // Scores 0 and ln 3: probabilities 1/4 and 3/4.
  check_close(attention({0, std::log(3.0)}, keys, values, 1, {}, 1.0), Vector{25, 50}, bound);
  // The scale doubles them: 0 and ln 9.
  check_close(attention({0, std::log(3.0)}, keys, values, 1, {}, 2.0), Vector{28, 56}, bound);
  // A window of 1 leaves position 1 alone with itself.
  check_close(attention({0, 1}, keys, values, 1, {.window = 1}, 1.0), Vector{30, 60}, 0.0);
  // The first position, a sink, meets the query's other rotation: scores ln 9 and ln 3.
  check_close(
      attention({0, std::log(3.0)}, {std::log(9.0), 0}, keys, values, 1, {.window = 1, .n_sink = 1}, 1.0),
      Vector{15, 30}, bound);
  // A cap of 1: 0 and tanh(1).
  const double p = 1.0 / (1.0 + std::exp(std::tanh(1.0)));
  check_close(attention({0, 1}, keys, values, 1, {}, 1.0, 1.0), Vector{30 - 20 * p, 60 - 40 * p}, bound);
}

TEST_CASE("reference attention: what a position sees, listed") {
  const auto seen = [](const AttentionSpan& span, Index i) {
    std::string text;
    for (Index j = 0; j < 10; ++j) text += visible(span, i, j) ? 'x' : '.';
    return text;
  };
  CHECK(seen({}, 7) == "xxxxxxxx..");
  CHECK(seen({.window = 3}, 1) == "xx........");
  CHECK(seen({.window = 3}, 7) == ".....xxx..");
  CHECK(seen({.window = 3, .n_sink = 2}, 7) == "xx...xxx..");
  CHECK(seen({.window = 3, .n_sink = 2}, 0) == "x.........");
  CHECK(seen({.window = 3, .n_sink = 2}, 3) == "xxxx......");
  CHECK(seen({.chunk = 4}, 3) == "xxxx......");
  CHECK(seen({.chunk = 4}, 4) == "....x.....");
  CHECK(seen({.chunk = 4}, 6) == "....xxx...");
  const AttentionSpan span{.window = 3, .n_sink = 2};
  for (Index i = 0; i < 9; ++i) {
    CHECK(sink_position(span, SinkRotation::kAbsolute, i) == i);
    CHECK(sink_position(span, SinkRotation::kWithinWindow, i) == (i < 4 ? i : 4));
  }
}

TEST_CASE("reference attention: invisible keys and values do not matter") {
  SplitMix64 random(6);
  Rows keys;
  Rows values;
  for (int j = 0; j < 12; ++j) {
    keys.push_back(normals(5, random));
    values.push_back(normals(5, random));
  }
  const Vector q = normals(5, random);
  for (const AttentionSpan& span : {AttentionSpan{}, AttentionSpan{.window = 5},
                                    AttentionSpan{.window = 4, .n_sink = 2}, AttentionSpan{.chunk = 4}}) {
    const Vector expected = attention(q, keys, values, 9, span, 0.5);
    Rows spoilt_keys = keys;
    Rows spoilt_values = values;
    for (Index j = 0; j < 12; ++j)
      if (!visible(span, 9, j)) spoilt_keys[at(j)] = spoilt_values[at(j)] = Vector(5, std::nan(""));
    check_same_bits(attention(q, spoilt_keys, spoilt_values, 9, span, 0.5), expected);
  }
}

TEST_CASE("reference model: one layer without attention and feed-forward is embedding, norm and head") {
  ModelConfig config = config_of("no_positions");
  config.n_layers = 1;
  config.d_model = 2;
  config.vocab_size = 2;
  config.norm_eps = 0.0;
  RandomModel model(config, {.format = FormatId::kF64});
  // w_o and w_down are zero: both branches add nothing.
  const std::vector<double> zeros(200, 0.0);
  const auto zero_bytes = kvdecode_test::offset_bytes(zeros);
  model.weights.layers[0].w_o.matrix.data = zero_bytes.data();
  model.weights.layers[0].w_down.matrix.data = zero_bytes.data();
  const std::vector<double> embedding{3, 4, 1, -1};
  const auto embedding_bytes = kvdecode_test::offset_bytes(embedding);
  model.weights.token_embedding.data = embedding_bytes.data();
  model.weights.token_embedding.stride = 16;
  const std::vector<double> head{1, 0, 2, 1};
  const auto head_bytes = kvdecode_test::offset_bytes(head);
  model.weights.head.matrix.data = head_bytes.data();
  model.weights.head.matrix.stride = 16;
  const std::vector<double> ones{1, 1};
  const auto ones_bytes = kvdecode_test::offset_bytes(ones);
  model.weights.final_norm.weight.data = ones_bytes.data();
  const double rms = std::sqrt(12.5);
  check_close(logits(config, model.weights, std::vector<TokenId>{1, 0}), Rows{{1, 1}, {3 / rms, 10 / rms}},
              tolerance<double>(8, 3.0));
  // After token 1 the two logits are equal: the lower token is chosen.
  CHECK(greedy(config, model.weights, std::vector<TokenId>{1}, 3) == std::vector<TokenId>{0, 1, 0});
}

TEST_CASE("reference model: every small config runs, with logits of order one that obey causality") {
  for (const std::string_view name : kvdecode_test::kSmallConfigs) {
    CAPTURE(name);
    const RandomModel model(name, {.seed = 7, .biases = name.find("layer_norm") != name.npos});
    REQUIRE_NOTHROW(model.config.validate());
    std::vector<TokenId> tokens = random_tokens(13, model.config.vocab_size, 8);
    const Rows all = logits(model.config, model.weights, tokens);
    REQUIRE(all.size() == 13);
    REQUIRE(static_cast<Index>(all[0].size()) == model.config.vocab_size);
    CHECK(magnitude(all) > 0.5);
    CHECK(magnitude(all) < 50.0);
    CHECK(magnitude(hidden_states(model.config, model.weights, tokens)) < 50.0);
    tokens.resize(6);
    check_same_bits(logits(model.config, model.weights, tokens)[5], all[5]);
  }
}

TEST_CASE("reference model: every switch changes the logits") {
  const std::vector<TokenId> tokens = random_tokens(13, 37, 9);
  const auto last = [&](std::string_view words) {
    const RandomModel model(words, {.seed = 10});
    return logits(model.config, model.weights, tokens).back();
  };
  const auto differ = [&](std::string_view a, std::string_view b) {
    CAPTURE(a);
    CAPTURE(b);
    const Vector x = last(a);
    const Vector y = last(b);
    double distance = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) distance = std::max(distance, std::abs(x[i] - y[i]));
    // gelu and its approximation are near each other; anything else is far.
    CHECK(distance > (a == "gelu" ? 1e-6 : 1e-3));
  };
  differ("", "layer_norm");
  differ("", "gelu");
  differ("gelu", "gelu_tanh");
  differ("gelu", "relu");
  differ("relu", "relu2");
  differ("", "parallel");
  differ("parallel", "shared");
  differ("", "no_positions");
  differ("", "interleaved");
  differ("", "partial");
  differ("", "linear");
  differ("", "llama3");
  differ("", "scale");
  differ("", "tied");
  differ("", "sliding");
  differ("", "chunk");
  differ("", "mixed");
  differ("", "yarn");
  differ("", "dynamic");
  differ("", "longrope");
  differ("", "divisors");
  differ("", "standing");
  differ("", "value_norm");
  differ("", "layer_inputs");
  differ("", "own_head_dims");
  differ("", "own_angles");
  differ("", "half_turned");
  differ("", "both_norms");
  differ("both_norms", "post_norms");
  differ("", "head_norms");
  differ("head_norms", "whole_norms");
  differ("", "capped");
  differ("", "scaled_embedding");
  differ("", "experts");
  differ("experts", "raw_experts");
  differ("experts", "some_experts");
  differ("mqa", "mla");
  differ("mla", "mla_q");
  differ("mla", "mla best_groups");
  differ("best_groups", "balanced_experts");
  differ("sinks", "sinks_within");
  differ("sliding", "sinks");
}

TEST_CASE("reference model: every row of a model whose angles depend on the length is a fresh pass") {
  for (const std::string_view words : {"dynamic", "longrope own_angles"}) {
    CAPTURE(words);
    const RandomModel model(words, {.seed = 29});
    const std::vector<TokenId> tokens = random_tokens(14, model.config.vocab_size, 30);
    const Rows rows = logits(model.config, model.weights, tokens);
    for (std::size_t n = 1; n <= tokens.size(); ++n)
      check_same_bits(logits(model.config, model.weights, std::span(tokens).first(n)).back(), rows[n - 1]);
    // Position 9 is the first that is beyond the 9 trained on; those before it do not know.
    ModelConfig unscaled = model.config;
    for (kvdecode::RotaryConfig* rotary : {&unscaled.rotary}) rotary->scaling.original_max_seq_len = 100;
    for (kvdecode::RotaryConfig& rotary : unscaled.layer_rotary) rotary.scaling.original_max_seq_len = 100;
    const Rows plain = logits(unscaled, model.weights, tokens);
    for (std::size_t n = 0; n < 9; ++n) check_same_bits(plain[n], rows[n]);
    for (std::size_t n = 9; n < 14; ++n)
      CHECK(!kvdecode_test::describe_distance({plain[n]}, {rows[n]}, 1e-6).empty());
  }
}

TEST_CASE("reference model: a norm offset is a part of the weights, a scaled embedding a part of the table") {
  const std::vector<TokenId> tokens = random_tokens(9, 37, 31);
  const auto with = [](std::string_view words) {
    return RandomModel(words, {.seed = 32, .format = FormatId::kF64});
  };
  // The same numbers but for the ones in all norms' weights: rounding aside, the same model.
  const RandomModel plain = with("head_norms both_norms"),
                    less_one = with("head_norms both_norms norm_offset");
  const Rows expected = logits(plain.config, plain.weights, tokens);
  check_close(logits(less_one.config, less_one.weights, tokens), expected, 1e-12);
  ModelConfig wrong = less_one.config;
  wrong.norm_weight_offset = 0.0;
  CHECK(!kvdecode_test::describe_distance(logits(wrong, less_one.weights, tokens), expected, 1e-3).empty());

  RandomModel scaled = with("");
  Vector table;
  for (const Vector& row : read(scaled.weights.token_embedding))
    for (const double value : row) table.push_back(5.65 * value);
  const auto bytes = kvdecode_test::offset_bytes(table);
  const RandomModel by_switch = with("scaled_embedding");
  scaled.weights.token_embedding.data = bytes.data();
  const Rows rows = logits(scaled.config, scaled.weights, tokens);
  const Rows switched = logits(by_switch.config, by_switch.weights, tokens);
  for (std::size_t i = 0; i < rows.size(); ++i) check_same_bits(switched[i], rows[i]);
}

TEST_CASE("reference model: norms of queries and keys by hand") {
  ModelConfig config;
  config.head_dim = 2;
  config.norm_eps = 0.0;
  const std::vector<double> numbers{2, 1, 1, 1};
  const auto bytes = kvdecode_test::offset_bytes(numbers);
  const Vector row{3, 4, 0, 5};
  const double bound = tolerance<double>(8, 5.0);
  check_close(qk_normed(config, {{FormatId::kF64, bytes.data(), 4}, {}}, row), row, 0.0);
  config.qk_norm = QkNormKind::kPerHead;  // rms sqrt(12.5) of each head
  const double rms = std::sqrt(12.5);
  check_close(qk_normed(config, {{FormatId::kF64, bytes.data(), 2}, {}}, row),
              Vector{6 / rms, 4 / rms, 0, 5 / rms}, bound);
  config.qk_norm = QkNormKind::kWhole;  // rms sqrt(50 / 4) of all: the same, other weights
  check_close(qk_normed(config, {{FormatId::kF64, bytes.data(), 4}, {}}, row),
              Vector{6 / rms, 4 / rms, 0, 5 / rms}, bound);
  check_close(qk_normed(config, {{FormatId::kF64, bytes.data(), 4}, {}}, {3, 4, 0, 0}),
              Vector{6 / 2.5, 4 / 2.5, 0, 0}, bound);
}

TEST_CASE("reference model: experts that are all alike and all used are one feed-forward layer") {
  const std::vector<TokenId> tokens = random_tokens(9, 37, 33);
  ModelConfig config = config_of("experts");
  config.n_experts_used = config.n_experts;
  config.d_expert = config.d_ff;
  RandomModel model(config, {.seed = 34, .format = FormatId::kF64});
  RandomModel dense("", {.seed = 34, .format = FormatId::kF64});
  for (std::size_t layer = 0; layer < 2; ++layer) {
    LayerWeights& w = model.weights.layers[layer];
    for (kvdecode::ExpertWeights& expert : w.experts) expert = w.experts[2];
    dense.weights.layers[layer] = w;
    dense.weights.layers[layer].w_gate = w.experts[2].w_gate;
    dense.weights.layers[layer].w_up = w.experts[2].w_up;
    dense.weights.layers[layer].w_down = w.experts[2].w_down;
  }
  model.weights.token_embedding = dense.weights.token_embedding;
  model.weights.head = dense.weights.head;
  model.weights.final_norm = dense.weights.final_norm;
  const Rows expected = logits(dense.config, dense.weights, tokens);
  check_close(logits(config, model.weights, tokens), expected, 1e-12);
  // As they are, all probabilities sum to one as well; those of some do not.
  config.normalize_expert_weights = false;
  check_close(logits(config, model.weights, tokens), expected, 1e-12);
  config.n_experts_used = 2;
  CHECK(!kvdecode_test::describe_distance(logits(config, model.weights, tokens), expected, 1e-3).empty());
  config.normalize_expert_weights = true;
  check_close(logits(config, model.weights, tokens), expected, 1e-12);
}

TEST_CASE("reference model: the router's choice by hand") {
  ModelConfig config = config_of("raw_experts plain relu");
  config.d_model = 1;
  config.n_experts = 4;
  config.n_experts_used = 2;
  config.d_expert = 1;
  config.n_layers = 1;
  RandomModel model(config, {.format = FormatId::kF64});
  LayerWeights& w = model.weights.layers[0];
  // Router logits 0, ln 2, ln 4, ln 2: probabilities 1, 2, 4, 2 of 9. Expert e makes 10^e of a 1.
  const std::vector<double> numbers{0, std::log(2.0), std::log(4.0), std::log(2.0), 1, 10, 100, 1000};
  const auto bytes = kvdecode_test::offset_bytes(numbers);
  w.router.matrix.data = bytes.data();
  w.router.matrix.stride = 8;
  for (std::size_t e = 0; e < 4; ++e) {
    w.experts[e].w_up.matrix.data = bytes.data() + 8 * 4;
    w.experts[e].w_down.matrix.data = bytes.data() + 8 * (4 + e);
  }
  const double bound = tolerance<double>(8, 100.0);
  // Experts 2 and, of the two that are as likely, 1.
  check_close(experts_block(config, w, {{1}}), Rows{{(4 * 100 + 2 * 10) / 9.0}}, bound);
  config.normalize_expert_weights = true;
  check_close(experts_block(config, w, {{1}}), Rows{{(4 * 100 + 2 * 10) / 6.0}}, bound);
  config.n_experts_used = 1;
  check_close(experts_block(config, w, {{1}}), Rows{{100}}, bound);
}

TEST_CASE("reference model: the choice among groups of experts by hand") {
  ModelConfig config = config_of("");
  config.n_experts = 6;
  const auto order = [&](Index n_groups, Index n_used, kvdecode::ExpertGroupScore score,
                         const Vector& scores) {
    config.n_expert_groups = n_groups;
    config.n_expert_groups_used = n_used;
    config.expert_group_score = score;
    return expert_order(config, scores);
  };
  using Order = std::vector<std::size_t>;
  using Score = kvdecode::ExpertGroupScore;
  const Vector scores{1, 5, 4,
                      3, 2, 2};  // of pairs: best 5, 4, 2, and two best 6, 7, 4; of threes 5, 3 and 9, 5
  CHECK(order(1, 1, Score::kMaximum, scores) == Order{1, 2, 3, 4, 5, 0});
  CHECK(order(3, 1, Score::kMaximum, scores) == Order{1, 0});
  CHECK(order(3, 1, Score::kTopTwo, scores) == Order{2, 3});
  CHECK(order(3, 2, Score::kTopTwo, scores) == Order{1, 2, 3, 0});
  CHECK(order(2, 1, Score::kTopTwo, scores) == Order{1, 2, 0});
  // Of equal groups and of equal experts the lower one.
  CHECK(order(3, 2, Score::kMaximum, {2, 1, 2, 2, 1, 2}) == Order{0, 2, 3, 1});
  CHECK(order(3, 1, Score::kTopTwo, {-1, -2, -2, -1, -3, 0}) == Order{0, 1});
}

TEST_CASE("reference model: sigmoids, a bias for the choice, a scale and a shared expert by hand") {
  ModelConfig config = config_of("raw_experts plain relu");
  config.d_model = 1;
  config.n_experts = 4;
  config.n_experts_used = 2;
  config.d_expert = config.d_shared_expert = 1;
  config.n_layers = 1;
  config.expert_score = kvdecode::ExpertScore::kSigmoid;
  RandomModel model(config, {.format = FormatId::kF64});
  LayerWeights& w = model.weights.layers[0];
  // Router logits 0, ln 3, -ln 3, ln 3: sigmoids 2, 3, 1, 3 of 4. Expert e makes 10^e of a 1, the shared one 7.
  const double log3 = std::log(3.0);
  const std::vector<double> numbers{0, log3, -log3, log3, 1, 10, 100, 1000, 7, 0, 0, 0.3, 0};
  const auto bytes = kvdecode_test::offset_bytes(numbers);
  w.router.matrix.data = bytes.data();
  w.router.matrix.stride = 8;
  for (std::size_t e = 0; e < 4; ++e) {
    w.experts[e].w_up.matrix.data = bytes.data() + 8 * 4;
    w.experts[e].w_down.matrix.data = bytes.data() + 8 * (4 + e);
  }
  w.shared_expert.w_up.matrix.data = bytes.data() + 8 * 4;
  w.shared_expert.w_down.matrix.data = bytes.data() + 8 * 8;
  w.choice_bias = {FormatId::kF64, bytes.data() + 8 * 9, 4};
  const double bound = tolerance<double>(8, 1000.0);
  check_close(experts_block(config, w, {{1}}), Rows{{0.75 * 10 + 0.75 * 1000 + 7}}, bound);
  config.expert_weight_scale = 2.0;
  check_close(experts_block(config, w, {{1}}), Rows{{1.5 * 10 + 1.5 * 1000 + 7}}, bound);
  // With 0.6 on top, expert 2 comes first, and counts as much as before.
  std::vector<double> biased = numbers;
  biased[11] = 0.6;
  const auto biased_bytes = kvdecode_test::offset_bytes(biased);
  w.choice_bias.data = biased_bytes.data() + 8 * 9;
  check_close(experts_block(config, w, {{1}}), Rows{{0.5 * 100 + 1.5 * 10 + 7}}, bound);
  config.normalize_expert_weights = true;
  check_close(experts_block(config, w, {{1}}), Rows{{2 * (0.25 * 100 + 0.75 * 10) + 7}}, bound);
}

TEST_CASE("reference model: attention over a latent by hand") {
  ModelConfig config = config_of("no_positions");
  config.d_model = config.n_heads = config.n_kv_heads = config.v_head_dim = config.qk_nope_head_dim = 1;
  config.kv_lora_rank = config.head_dim = 2;
  config.latent_norm_eps = 0.0;
  config.norm_eps = 0.5;  // of others
  config.attention_scale = 1.0;
  RandomModel model(config, {.format = FormatId::kF64});
  LayerWeights& w = model.weights.layers[0];
  // Of x = 1: c = [3, 4] normed, by weights 1 and 2, k_rope = 0.5; k_nope = c_0 + 2 c_1, v = c_0 - c_1, q = [0.2, 0.1].
  const std::vector<double> numbers{3, 4, 0.5, 1, 2, 1, 2, 1, -1, 0.2, 0.1, 10};
  const auto bytes = kvdecode_test::offset_bytes(numbers);
  const auto at_number = [&](kvdecode::MatrixView& view, Index i) {
    view.data = bytes.data() + 8 * i;
    view.stride = 8 * view.stored_cols();
  };
  at_number(w.w_kv_a.matrix, 0);
  w.kv_a_norm.weight = {FormatId::kF64, bytes.data() + 8 * 3, 2};
  at_number(w.w_k_b[0], 5);
  at_number(w.w_v_b[0], 7);
  at_number(w.w_q.matrix, 9);
  at_number(w.w_o.matrix, 11);
  const double rms = std::sqrt(12.5), k_nope = (3 + 2 * 8) / rms, v = (3 - 8) / rms;
  const Rows y = latent_attention_block(config, w, {}, {}, 0, {{1}, {-2}});
  // The norm leaves of a latent its direction alone: position 1 has -k_nope and -v, but k_rope = -1.
  const double to_first = -0.4 * k_nope - 0.2 * 0.5, to_second = 0.4 * k_nope + 0.2 * 1.0;
  const double p = 1.0 / (1.0 + std::exp(to_first - to_second));  // of the second
  check_close(y, Rows{{10 * v}, {10 * ((1 - p) * v - p * v)}}, tolerance<double>(16, 20.0));
}

TEST_CASE("reference model: keys and values that another layer has made, values normed, by hand") {
  ModelConfig config = config_of("no_positions value_norm");
  config.d_model = config.n_heads = config.n_kv_heads = 1;
  config.head_dim = 2;
  config.norm_eps = 0.5;
  config.attention_scale = 1.0;
  RandomModel model(config, {.format = FormatId::kF64});
  LayerWeights& w = model.weights.layers[0];
  const std::vector<double> numbers{0.2, 0.1, 3, 4, 10, 20};  // W_q, W_k and W_v alike, W_o
  const auto bytes = kvdecode_test::offset_bytes(numbers);
  const auto at_number = [&](kvdecode::MatrixView& view, Index i) {
    view.data = bytes.data() + 8 * i;
    view.stride = 8 * view.stored_cols();
  };
  at_number(w.w_q.matrix, 0);
  at_number(w.w_k.matrix, 2);
  at_number(w.w_v.matrix, 2);
  at_number(w.w_o.matrix, 4);
  const double rms = std::sqrt(12.5 + 0.5);
  const double bound = tolerance<double>(8, 50.0);
  const KeysAndValues made = keys_and_values(config, w, {{1}, {-1}});
  check_close(made.k, Rows{{3, 4}, {-3, -4}}, bound);
  check_close(made.v, Rows{{3 / rms, 4 / rms}, {-3 / rms, -4 / rms}}, bound);
  // Queries are of what this layer reads, keys and values are the other's, whatever that was.
  const KeysAndValues others{{{1, 0}, {0, 1}}, {{1, 0}, {0, 2}}};
  const Rows y = attention_block(config, w, {}, {}, 0, {{5}, {10}}, others);
  const double p = 1.0 / (1.0 + std::exp(2.0 - 1.0));  // of the second: scores 10 * 0.2 and 10 * 0.1
  check_close(y, Rows{{10}, {10 * (1 - p) + 20 * 2 * p}}, bound);
}

TEST_CASE(
    "reference model: a layer has its part of the inputs, from both embeddings, and lets them through a "
    "gate") {
  ModelConfig config = config_of("layer_inputs relu");
  config.d_model = 1;
  config.d_layer_input = 2;
  config.layer_embedding_scale = 3.0;
  config.norm_eps = 0.5;
  RandomModel model(config, {.format = FormatId::kF64});
  const std::vector<double> numbers{3,   4,   5,   12,   // W of both layers, and what multiplies it
                                    1,   2,              // the norm of either part
                                    0,   0,   0,   0,    // the second embedding: token 0
                                    0.1, 0.2, 0.3, 0.4,  // token 1
                                    1,   -1,             // W_gate
                                    2,   7,              // W_out
                                    6};                  // the norm behind it
  const auto bytes = kvdecode_test::offset_bytes(numbers);
  const auto at_number = [&](auto& view, Index i) { view.data = bytes.data() + 8 * i; };
  Weights& weights = model.weights;
  weights.w_layer_inputs.matrix = {FormatId::kF64, bytes.data(), 4, 1, 8, false};
  weights.w_layer_inputs.scale = 2.0;
  at_number(weights.layer_input_norm.weight, 4);
  weights.layer_embedding = {FormatId::kF64, bytes.data() + 8 * 6, 2, 4, 32, false};
  const double bound = tolerance<double>(8, 10.0);
  const std::vector<Rows> inputs = layer_inputs(config, weights, std::vector<TokenId>{1, 0}, {{0.5}, {-1}});
  REQUIRE(inputs.size() == 2);
  // 2 W x = 3, 4 and 5, 12 for the first token, -6, -8 and -10, -24 for the second.
  const auto rms = [](double a, double b) { return std::sqrt((a * a + b * b) / 2 + 0.5); };
  const double root = std::sqrt(2.0);
  check_close(inputs[0],
              Rows{{(3 / rms(3, 4) + 0.3) / root, (2 * 4 / rms(3, 4) + 0.6) / root},
                   {-6 / rms(6, 8) / root, -2 * 8 / rms(6, 8) / root}},
              bound);
  check_close(inputs[1],
              Rows{{(5 / rms(5, 12) + 0.9) / root, (2 * 12 / rms(5, 12) + 1.2) / root},
                   {-10 / rms(10, 24) / root, -2 * 24 / rms(10, 24) / root}},
              bound);
  LayerWeights& w = weights.layers[0];
  w.w_input_gate.matrix = {FormatId::kF64, bytes.data() + 8 * 14, 2, 1, 8, false};
  w.w_input_out.matrix = {FormatId::kF64, bytes.data() + 8 * 16, 1, 2, 16, false};
  at_number(w.input_post_norm.weight, 18);
  // x = 3 opens the first, x = -1 the second one.
  const double first = 2 * 3 * 0.25, second = 7 * 1 * 0.5;
  check_close(
      layer_input_block(config, w, {{3}, {-1}}, {{0.25, 8}, {8, 0.5}}),
      Rows{{6 * first / std::sqrt(first * first + 0.5)}, {6 * second / std::sqrt(second * second + 0.5)}},
      bound);
}

TEST_CASE("reference model: the scale of a layer multiplies all that it leaves") {
  RandomModel model("gqa", {.seed = 41});
  const std::vector<TokenId> tokens = random_tokens(5, 37, 42);
  const Rows plain = hidden_states(model.config, model.weights, tokens);
  model.weights.layers[1].scale = -3.0;
  Rows scaled = hidden_states(model.config, model.weights, tokens);
  for (Vector& row : scaled)
    for (double& x : row) x /= -3.0;
  check_close(scaled, plain, tolerance<double>(2, magnitude(plain)));
  model.weights.layers[1].scale = 1.0;
  model.weights.layers[0].scale = -3.0;
  const Rows other = hidden_states(model.config, model.weights, tokens);
  CHECK(!kvdecode_test::describe_distance(other, plain, 1e-3).empty());
}

TEST_CASE("reference model: soft caps bound scores and logits, and are the identity far below") {
  const std::vector<TokenId> tokens = random_tokens(9, 37, 35);
  RandomModel model("capped", {.seed = 36});
  const Rows capped = logits(model.config, model.weights, tokens);
  CHECK(magnitude(capped) <= 2.5);
  model.config.logit_soft_cap = 0.0;
  const Rows uncapped = logits(model.config, model.weights, tokens);
  CHECK(magnitude(uncapped) > 2.5);
  for (std::size_t i = 0; i < capped.size(); ++i)
    for (std::size_t c = 0; c < capped[i].size(); ++c)
      CHECK(std::abs(capped[i][c] - 2.5 * std::tanh(uncapped[i][c] / 2.5)) <= tolerance<double>(4, 2.5));
  model.config.attention_soft_cap = 1e9;
  ModelConfig none = model.config;
  none.attention_soft_cap = 0.0;
  check_close(logits(model.config, model.weights, tokens), logits(none, model.weights, tokens), 1e-9);
}

TEST_CASE("reference model: biases reach the logits") {
  ModelConfig config = config_of("layer_norm");
  const std::vector<TokenId> tokens = random_tokens(5, config.vocab_size, 12);
  RandomModel model(config, {.seed = 13, .biases = true});
  const Vector with_all = logits(config, model.weights, tokens).back();
  LayerWeights& layer = model.weights.layers[1];
  for (VectorView* bias :
       {&layer.attention_norm.bias, &layer.w_q.bias, &layer.w_k.bias, &layer.w_v.bias, &layer.w_o.bias,
        &layer.feed_forward_norm.bias, &layer.w_gate.bias, &layer.w_up.bias, &layer.w_down.bias,
        &model.weights.final_norm.bias, &model.weights.head.bias}) {
    const VectorView kept = std::exchange(*bias, VectorView{});
    CHECK(magnitude(kept.empty() ? Vector{} : read(kept)) > 0.0);
    // A bias of the keys adds the same to all scores only without rotation: here it counts too.
    CHECK(!kvdecode_test::describe_distance({logits(config, model.weights, tokens).back()}, {with_all}, 1e-4)
               .empty());
    *bias = kept;
  }
}

TEST_CASE("reference model: storage of the weights does not matter") {
  const std::vector<TokenId> tokens = random_tokens(9, 37, 14);
  for (const FormatId id : {FormatId::kF64, FormatId::kF32, FormatId::kF16, FormatId::kBF16}) {
    CAPTURE(to_string(id));
    const RandomModel plain("tied", {.seed = 15, .format = id, .biases = true});
    const RandomModel other(
        "tied",
        {.seed = 15, .format = id, .biases = true, .transposed = true, .offset = 1, .row_padding = 5});
    const Rows expected = logits(plain.config, plain.weights, tokens);
    const Rows actual = logits(other.config, other.weights, tokens);
    for (std::size_t i = 0; i < expected.size(); ++i) check_same_bits(actual[i], expected[i]);
  }
}

TEST_CASE("reference model: a span that is never reached is full attention") {
  const RandomModel model("", {.seed = 16});
  const std::vector<TokenId> tokens = random_tokens(11, model.config.vocab_size, 17);
  const Rows full = logits(model.config, model.weights, tokens);
  for (const AttentionSpan& span : {AttentionSpan{.window = 11}, AttentionSpan{.window = 40, .n_sink = 3},
                                    AttentionSpan{.window = 8, .n_sink = 3}, AttentionSpan{.chunk = 11}}) {
    ModelConfig config = model.config;
    config.spans.assign(2, span);
    config.sink_rotation = SinkRotation::kWithinWindow;
    const Rows actual = logits(config, model.weights, tokens);
    for (std::size_t i = 0; i < full.size(); ++i) check_same_bits(actual[i], full[i]);
  }
  ModelConfig config = model.config;
  config.spans.assign(2, AttentionSpan{.window = 10});
  CHECK(logits(config, model.weights, tokens)[9] == full[9]);
  CHECK(logits(config, model.weights, tokens)[10] != full[10]);
}

TEST_CASE("reference model: equal key and value heads for all queries are MHA with copies") {
  const RandomModel grouped("", {.seed = 18, .format = FormatId::kF64});
  const std::vector<TokenId> tokens = random_tokens(7, grouped.config.vocab_size, 19);
  ModelConfig config = grouped.config;
  config.n_kv_heads = config.n_heads;
  Weights weights = grouped.weights;
  for (LayerWeights& layer : weights.layers) {
    for (MatrixView* w : {&layer.w_k.matrix, &layer.w_v.matrix}) {
      const Rows rows = read(*w);
      std::vector<double> repeated;
      for (Index h = 0; h < config.n_heads; ++h)
        for (Index r = 0; r < config.head_dim; ++r) {
          const Vector& row = rows[at(h / grouped.config.group_size() * config.head_dim + r)];
          repeated.insert(repeated.end(), row.begin(), row.end());
        }
      const auto bytes = kvdecode_test::offset_bytes(repeated);
      weights.owners.push_back(bytes.owner());
      w->data = bytes.data();
      w->rows = config.n_heads * config.head_dim;
    }
  }
  const Rows expected = logits(grouped.config, grouped.weights, tokens);
  const Rows actual = logits(config, weights, tokens);
  for (std::size_t i = 0; i < expected.size(); ++i) check_same_bits(actual[i], expected[i]);
}

TEST_CASE("reference model: sinks within the window are the paper's positions within the cache") {
  const std::vector<TokenId> tokens = random_tokens(26, 37, 20);
  for (const std::string_view name : {"", "mha interleaved partial", "mqa hd12 llama3"}) {
    for (const AttentionSpan& span : {AttentionSpan{6, 2, 0}, AttentionSpan{3, 4, 0}, AttentionSpan{1, 1, 0},
                                      AttentionSpan{5, 0, 0}, AttentionSpan{25, 1, 0}}) {
      CAPTURE(name);
      CAPTURE(span.n_sink);
      CAPTURE(span.window);
      const RandomModel model(name, {.seed = 21});
      const ModelConfig config = kvdecode::with_streaming(model.config, span.n_sink, span.window);
      const Rows expected =
          logits_by_cache_positions(model.config, model.weights, tokens, span.n_sink, span.window);
      check_close(logits(config, model.weights, tokens), expected, 1e-11);
    }
  }
  // The check can fail: sinks at their true distance are something else.
  const RandomModel model("sinks", {.seed = 21});
  const Rows expected = logits_by_cache_positions(model.config, model.weights, tokens, 2, 6);
  const Rows absolute = logits(model.config, model.weights, tokens);
  CHECK(!kvdecode_test::describe_distance(absolute, expected, 1e-3).empty());
}

TEST_CASE("reference model: greedy appends the largest logit's token") {
  const RandomModel model("", {.seed = 22});
  std::vector<TokenId> tokens = random_tokens(3, model.config.vocab_size, 23);
  const std::vector<TokenId> continuation = greedy(model.config, model.weights, tokens, 4);
  REQUIRE(continuation.size() == 4);
  for (const TokenId token : continuation) {
    const Vector last = logits(model.config, model.weights, tokens).back();
    for (const double logit : last) CHECK(logit <= last[static_cast<std::size_t>(token)]);
    tokens.push_back(token);
  }
  CHECK(greedy(model.config, model.weights, tokens, 0).empty());
}

TEST_CASE("reference model: impossible tokens and positions are refused") {
  ModelConfig config = config_of("learned");
  config.max_seq_len = 4;
  const RandomModel model(config);
  CHECK_NOTHROW(logits(config, model.weights, std::vector<TokenId>{0, 1, 2, 36}));
  CHECK_THROWS(logits(config, model.weights, std::vector<TokenId>{0, 1, 2, 3, 4}));
  CHECK_THROWS(logits(config, model.weights, std::vector<TokenId>{37}));
  CHECK_THROWS(logits(config, model.weights, std::vector<TokenId>{-1}));
}

// The settings of a config, one a switch; empty where another switch makes it meaningless.
std::vector<std::string> settings(const ModelConfig& c) {
  const bool rotary = c.position == PositionKind::kRotary;
  const auto number = [](auto value) { return std::to_string(static_cast<int>(value)); };
  // Scalings that change frequencies in the same way, for all that other switches can see.
  const auto scaling = [](kvdecode::RotaryScalingKind kind) {
    using Kind = kvdecode::RotaryScalingKind;
    switch (kind) {
      case Kind::kNone: return "none";
      case Kind::kLinear:
      case Kind::kDivisors: return "each";
      case Kind::kLlama3:
      case Kind::kYarn: return "blend";
      case Kind::kDynamic:
      case Kind::kLongrope: return "length";
      case Kind::kProportional: return "part";
    }
    return "?";
  };
  std::ostringstream spans;
  for (const AttentionSpan& s : c.spans) spans << s.window << ',' << s.n_sink << ',' << s.chunk << ' ';
  spans << number(c.sink_rotation);
  return {std::to_string(c.n_heads) + "/" + std::to_string(c.n_kv_heads),
          std::to_string(c.head_dim),
          number(c.norm),
          number(c.activation),
          number(c.gated_feed_forward),
          number(c.residual),
          number(c.position),
          rotary ? number(c.rotary.pairs) : "",
          rotary ? (c.rotary.dim == 0 ? "whole" : "partial") : "",
          rotary ? scaling(c.rotary.scaling.kind) : "",
          rotary ? (c.layer_rotary.empty() ? "alike" : number(c.layer_rotary[1].enabled)) : "",
          number(c.tied_head),
          c.spans.empty() ? "0,0,0 0,0,0 0" : spans.str(),
          std::to_string(c.attention_scale),
          number(c.norm_placement),
          number(c.qk_norm),
          number(c.norm_weight_offset),
          std::to_string(c.attention_soft_cap) + " " + std::to_string(c.logit_soft_cap),
          std::to_string(c.embedding_scale),
          number(c.n_experts) + number(c.has_experts.size())};
}

TEST_CASE("small configs: every two settings of different switches meet") {
  std::vector<std::set<std::string>> values(settings(small_config()).size());
  std::set<std::string> met;
  const auto pair_name = [](std::size_t a, const std::string& x, std::size_t b, const std::string& y) {
    return std::to_string(a) + '=' + x + ' ' + std::to_string(b) + '=' + y;
  };
  for (const std::string_view name : kvdecode_test::kSmallConfigs) {
    const ModelConfig config = config_of(name);
    // Not every setting is for them.
    if (config.kv_lora_rank > 0 || config.n_expert_groups > 1 || !config.kv_stores.empty()) continue;
    const std::vector<std::string> s = settings(config);
    for (std::size_t a = 0; a < s.size(); ++a) {
      values[a].insert(s[a]);
      for (std::size_t b = a + 1; b < s.size(); ++b) met.insert(pair_name(a, s[a], b, s[b]));
    }
  }
  const std::vector<std::size_t> n_values{3, 4, 2, 5, 2, 3, 3, 3, 3, 5, 4, 2, 7, 2, 3, 3, 2, 2, 2, 4};
  constexpr std::size_t kHeadDim = 1;
  constexpr std::size_t kResidual = 5;
  constexpr std::size_t kPosition = 6;
  constexpr std::size_t kWhole = 8;
  constexpr std::size_t kNormPlacement = 14;
  const auto is_rotary_detail = [](std::size_t i) { return i >= 7 && i <= 10; };
  const auto name_of = [](auto value) { return std::to_string(static_cast<int>(value)); };
  const std::string rotary = name_of(PositionKind::kRotary);
  for (std::size_t a = 0; a < values.size(); ++a) {
    CAPTURE(a);
    CHECK(values[a].size() == n_values[a]);
    for (std::size_t b = a + 1; b < values.size(); ++b)
      for (const std::string& x : values[a])
        for (const std::string& y : values[b]) {
          // Details of rotation exist with rotation only, and an odd head cannot be rotated whole.
          if (is_rotary_detail(b) && is_rotary_detail(a) && x.empty() != y.empty()) continue;
          if (is_rotary_detail(b) && a == kPosition && y.empty() == (x == rotary)) continue;
          if (a == kHeadDim && x == "5" && b == kWhole && y == "whole") continue;
          // Branches side by side have no norms behind them.
          if (a == kResidual && x != name_of(ResidualKind::kSequential) && b == kNormPlacement &&
              y != name_of(kvdecode::NormPlacement::kPre))
            continue;
          CAPTURE(pair_name(a, x, b, y));
          CHECK(met.count(pair_name(a, x, b, y)) == 1);
        }
  }
  std::set<kvdecode::RotaryScalingKind> scalings;
  for (const std::string_view name : kvdecode_test::kSmallConfigs)
    scalings.insert(config_of(name).rotary.scaling.kind);
  CHECK(scalings.size() == 8);
}

TEST_CASE("random numbers: each class is what it says") {
  using kvdecode_test::FloatClass;
  SplitMix64 random(24);
  double mean = 0.0;
  double variance = 0.0;
  for (int i = 0; i < 4000; ++i) {
    const double x = random.normal();
    mean += x / 4000.0;
    variance += x * x / 4000.0;
  }
  CHECK(std::abs(mean) < 0.1);
  CHECK(std::abs(variance - 1.0) < 0.1);
  for (const FormatId id : {FormatId::kF64, FormatId::kF32, FormatId::kF16, FormatId::kBF16}) {
    CAPTURE(to_string(id));
    const BinaryFormat format = binary_format(id);
    const double smallest_normal = std::ldexp(1.0, 1 - format.bias());
    bool subnormal = false;
    bool positive_zero = false;
    bool negative_zero = false;
    bool nan = false;
    for (int i = 0; i < 20000; ++i) {
      const double tiny = decode(id, draw_bits(random, id, FloatClass::kTiny));
      CHECK(std::abs(tiny) < 4.0 * smallest_normal);
      subnormal = subnormal || (tiny != 0.0 && std::abs(tiny) < smallest_normal);
      const double huge = decode(id, draw_bits(random, id, FloatClass::kHuge));
      CHECK(std::isfinite(huge));
      CHECK(std::abs(huge) >= std::ldexp(1.0, format.bias() - 7));
      CHECK(std::isfinite(decode(id, draw_bits(random, id, FloatClass::kWide))));
      const double zero = decode(id, draw_bits(random, id, FloatClass::kSignedZeros));
      positive_zero = positive_zero || (zero == 0.0 && !std::signbit(zero));
      negative_zero = negative_zero || (zero == 0.0 && std::signbit(zero));
      nan = nan || std::isnan(decode(id, draw_bits(random, id, FloatClass::kAnyBits)));
    }
    CHECK(subnormal);
    CHECK(positive_zero);
    CHECK(negative_zero);
    CHECK(nan);
  }
  const auto bytes = kvdecode_test::offset_bytes(std::vector<double>{1.0, 2.0});
  CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % 64 == 1);
  CHECK(element(VectorView{FormatId::kF64, bytes.data(), 2}, 1) == 2.0);
}

TEST_CASE("comparisons: report the place and the values") {
  using kvdecode_test::describe_bits;
  using kvdecode_test::describe_distance;
  CHECK(describe_distance({{1, 2}}, {{1, 2.5}}, 0.5).empty());
  CHECK(describe_distance({{kInfinity}}, {{kInfinity}}, 0.0).empty());
  CHECK(!describe_distance({{kInfinity}}, {{-kInfinity}}, 1.0).empty());
  CHECK(!describe_distance({{std::nan("")}}, {{0.0}}, 1e9).empty());
  CHECK(describe_distance({{1}}, {{1}, {2}}, 0.0) == "1 rows, expected 2");
  CHECK(describe_distance({{1}}, {{1, 2}}, 0.0) == "row 0 has 1 columns, expected 2");
  CHECK(describe_distance({{1, 2}, {3, 9}}, {{1, 3}, {3, 4}}, 0.5) ==
        "2 numbers further than 0.5 from the expected ones\n"
        "  first: row 0, column 1: 2, expected 3, distance 1\n"
        "  worst: row 1, column 1: 9, expected 4, distance 5");
  const float a[] = {1.0f, 0.0f, 3.0f};
  const float b[] = {1.0f, -0.0f, 2.0f};
  CHECK(describe_bits(a, 3, a, 3).empty());
  CHECK(describe_bits(a, 3, b, 3) ==
        "2 of 3 elements differ\n  first: index 1: 0x00000000, expected 0x80000000 (0, expected -0)");
  CHECK(describe_bits(a, 3, b, 2) == "3 elements, expected 2");
  CHECK(tolerance<float>(2, 3) == 6.0 * 0x1p-23);
  const float numbers[] = {1, 2, 0, 3, 4, 0};
  check_close(kvdecode::RowsView<const float>{numbers, 2, 2, 3}, Rows{{1, 2}, {3, 4}}, 0.0);
}

}  // namespace

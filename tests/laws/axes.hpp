// SPDX-License-Identifier: MIT
// <laws/axes.hpp> - what the laws are tried on, as lists: one more cache, strategy, format, executor, model or
// length is one more line here. A Row takes one value of each axis; rows_in_pairs() makes a list of rows in
// which every two values of different axes meet.
#pragma once

#include <laws/caches.hpp>
#include <laws/executors.hpp>
#include <support/fp_mode.hpp>
#include <support/model.hpp>
#include <support/random.hpp>

#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/sink.hpp>
#include <kvdecode/cache/sliding_window.hpp>
#include <kvdecode/core/cache_formats.hpp>
#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/decode/strategies.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode_laws {

using kvdecode::Asym4;
using kvdecode::BF16;
using kvdecode::ContiguousCache;
using kvdecode::F16;
using kvdecode::F64;
using kvdecode::FormatId;
using kvdecode::GrowingCache;
using kvdecode::HadInt3;
using kvdecode::HadInt4;
using kvdecode::Int3;
using kvdecode::Int4;
using kvdecode::Int8;
using kvdecode::PagedCache;
using kvdecode::SinkCache;
using kvdecode::SlidingWindowCache;
using kvdecode::Turbo2;
using kvdecode::Turbo3;
using kvdecode::Turbo4;
using kvdecode_test::kFpModes;
using kvdecode_test::SplitMix64;

template <class... Ts>
struct TypeList {
  static constexpr std::size_t size = sizeof...(Ts);
};

// ---- Models ------------------------------------------------------------------------------------------------

/// Switches of config_of(), the spans of the layers in turn, and a rotary scaling.
struct WideModel {
  std::string_view words;
  kvdecode::AttentionSpan even{};
  kvdecode::AttentionSpan odd{};
  kvdecode::RotaryScaling scaling{};
};

using Scaling = kvdecode::RotaryScalingKind;

/// Spans that tell positions around 256 apart.
inline const WideModel kWideModels[] = {
    {"gqa"},
    {"hd16"},
    {"mqa hd16 layer_norm interleaved", {.window = 100}, {.window = 256}},
    {"mha hd16 plain gelu", {.window = 257}, {.window = 255}},
    {"hd16 parallel partial sinks", {.window = 40, .n_sink = 4}, {.window = 3, .n_sink = 258}},
    {"hd16 sinks_within", {.window = 200, .n_sink = 4}, {.window = 250, .n_sink = 17}},
    {"mqa hd16 shared llama3", {.chunk = 128}, {.chunk = 257}},
    {"hd16 layer_norm relu2 plain", {.chunk = 100}, {}},
    {"mha hd16 learned tied", {}, {.window = 16}},
    {"hd16 no_positions scale", {.window = 64}, {}},
    {"mla_q interleaved", {}, {.window = 100}},
    {"mla interleaved balanced_experts", {.window = 40, .n_sink = 4}, {.window = 200, .n_sink = 17}},
    {"borrowed hd16 own_head_dims standing value_norm layer_inputs", {.window = 100}, {}},
    // Every length has angles of its own: old tokens have to be run again.
    {"hd16", {}, {.window = 30}, {.kind = Scaling::kDynamic, .factor = 4.0, .original_max_seq_len = 256}},
    {"mqa hd8 interleaved",
     {},
     {},
     {.kind = Scaling::kLongrope,
      .original_max_seq_len = 256,
      .magnitude = 1.19,
      .short_factors = {1.0, 1.5, 2.0, 3.0},
      .long_factors = {1.0, 2.5, 6.0, 20.0}}},
};

/// The small configs, then the wide ones.
inline constexpr Index kNSmallModels = static_cast<Index>(std::size(kvdecode_test::kSmallConfigs));
inline constexpr Index kNModels = kNSmallModels + static_cast<Index>(std::size(kWideModels));

inline std::string_view model_words(Index model) {
  return model < kNSmallModels ? kvdecode_test::kSmallConfigs[model]
                               : kWideModels[model - kNSmallModels].words;
}
inline kvdecode::ModelConfig model_config(Index model) {
  kvdecode::ModelConfig config = kvdecode_test::config_of(model_words(model));
  if (model >= kNSmallModels) {
    const WideModel& wide = kWideModels[model - kNSmallModels];
    config.spans.clear();
    for (Index layer = 0; layer < config.n_layers; ++layer)
      config.spans.push_back(layer % 2 == 0 ? wide.even : wide.odd);
    if (wide.scaling.kind != Scaling::kNone) config.rotary.scaling = wide.scaling;
  }
  return config;
}

/// Those of the full product: every kind of span, of positions and of heads, small ones first.
inline std::vector<Index> product_models() {
  constexpr std::string_view small[] = {
      "gqa",
      "mqa hd16 layer_norm relu2 both_norms interleaved yarn own_angles head_norms tied sliding capped",
      "mqa hd5 relu plain post_norms interleaved partial own_angles whole_norms sinks scaled_embedding "
      "experts",
      "mha gelu_tanh both_norms interleaved whole_norms sinks_within scaled_embedding norm_offset "
      "some_experts",
      "shared interleaved yarn own_angles whole_norms tied chunk capped scaled_embedding experts",
      "hd16 layer_norm plain post_norms mixed scale capped some_experts",
      "mqa hd12 gelu shared interleaved partial head_norms tied mixed_sinks capped scaled_embedding",
      "mqa hd12 layer_norm relu parallel learned tied capped norm_offset some_experts",
      "mha hd12 relu2 post_norms no_positions whole_norms tied capped norm_offset experts",
      "hd16 relu plain shared interleaved longrope half_turned head_norms tied chunk capped experts",
      "mla interleaved best_groups",
      "mla_q mixed_sinks tied",
      "borrowed mqa layer_norm plain interleaved partial chunk whole_norms layer_inputs some_experts",
      "mla layer_norm gelu plain both_norms interleaved partial own_angles sinks_within scaled_embedding "
      "norm_offset balanced_experts",
  };
  // Full, sliding, both kinds of sinks, chunked, latent, of layers that read another's keys and values, by epochs.
  constexpr Index wide[] = {1, 2, 4, 5, 6, 10, 12, 13};
  std::vector<Index> models;
  for (const std::string_view words : small) {
    const auto* const found =
        std::find(std::begin(kvdecode_test::kSmallConfigs), std::end(kvdecode_test::kSmallConfigs), words);
    if (found == std::end(kvdecode_test::kSmallConfigs))
      throw std::invalid_argument("no small config \"" + std::string(words) + "\"");
    models.push_back(found - std::begin(kvdecode_test::kSmallConfigs));
  }
  for (const Index model : wide) models.push_back(kNSmallModels + model);
  return models;
}

// ---- Caches ------------------------------------------------------------------------------------------------

/// Every cache in every format, and mixed ones.
using Caches = TypeList<  //
    ContiguousCache<F64>, ContiguousCache<F32>, ContiguousCache<F16>, ContiguousCache<BF16>,
    ContiguousCache<F16, BF16>, ContiguousCache<F64, F16>,                        //
    GrowingCache<F64>, GrowingCache<F32>, GrowingCache<F16>, GrowingCache<BF16>,  //
    GrowingCache<F32, BF16>, GrowingCache<BF16, F64>,                             //
    PagedCache<16, F32>, PagedCache<1, F16>, PagedCache<3, F32, BF16>,            //
    SlidingWindowCache<F32>, SlidingWindowCache<F16, BF16>, SinkCache<F32>,       //
    SmallSteps<GrowingCache<F32>, 3>, SmallPages<F32, F16>,                       //
    ContiguousCache<Int8, HadInt4>, GrowingCache<Int4, Asym4>, ContiguousCache<HadInt3, Int3>,
    GrowingCache<Turbo4, Int8>, SmallPages<Turbo3, Turbo2>, GrowingCache<HadInt4, Turbo3>>;

/// Whether the cache can be made for a model: some are for windows only, some formats for rows of some lengths.
template <class Cache>
bool can_hold(const kvdecode::KvShape& shape) {
  for (const kvdecode::LayerKvShape& layer : shape.layers)
    if (!kvdecode::takes_rows<typename Cache::KeyFormat, typename Cache::ValueFormat>(layer)) return false;
  if constexpr (requires { Cache::can_hold(shape); })
    return Cache::can_hold(shape);
  else
    return true;
}

/// The same for a cache of the list and a model of the list.
template <class... Cs>
bool can_hold(TypeList<Cs...>, Index cache, Index model) {
  static const std::vector<kvdecode::KvShape> shapes = [] {
    std::vector<kvdecode::KvShape> all;
    for (Index i = 0; i < kNModels; ++i) all.push_back(model_config(i).kv_shape());
    return all;
  }();
  Index i = 0;
  return ((i++ == cache && can_hold<Cs>(shapes[static_cast<std::size_t>(model)])) || ...);
}

/// The options of a cache that the laws compare with one another.
template <class Cache>
std::vector<typename Cache::Options> options_of() {
  if constexpr (requires(typename Cache::Options o) { o.initial_positions; })
    return {{}, {.initial_positions = 1}, {.initial_positions = 3}, {.initial_positions = 1000}};
  else if constexpr (requires(typename Cache::Options o) { o.slack; })
    return {{.slack = 1, .max_append = 2}, {.slack = 0, .max_append = 1}, {.slack = 3, .max_append = 5}, {}};
  else
    return {{}};
}

// ---- Strategies --------------------------------------------------------------------------------------------

template <template <class> class Strategy>
struct StrategyTemplate {
  template <class Cache>
  using type = Strategy<Cache>;
};
using Strategies = TypeList<StrategyTemplate<kvdecode::Cached>, StrategyTemplate<kvdecode::Recompute>>;

// ---- Weights -----------------------------------------------------------------------------------------------

using WeightOptions = kvdecode_test::RandomWeightsOptions;

/// Formats and places of the matrices. The answers are those of the same numbers, row by row from alignment.
inline constexpr WeightOptions kWeights[] = {
    {.seed = 11},
    {.seed = 12, .biases = true, .offset = 1, .row_padding = 3},
    {.seed = 13, .format = FormatId::kF16, .transposed = true, .offset = 1},
    {.seed = 14, .format = FormatId::kBF16, .biases = true, .row_padding = 1},
    {.seed = 15, .format = FormatId::kF64, .transposed = true, .row_padding = 5},
    {.seed = 16, .format = FormatId::kF64, .offset = 1},
    {.seed = 17, .biases = true, .transposed = true, .offset = 3},
};

// ---- Cuts --------------------------------------------------------------------------------------------------

inline constexpr Index kChunks[] = {1, 2, 3, 5, 7, 16, 64};

/// Tokens of a sequence: every short length, and those around the 256 positions of an attention tile.
inline constexpr Index kLengths[] = {1,  2,  3,  4,  5,  6,  7,   8,   9,   10, 11,
                                     12, 13, 14, 15, 16, 17, 255, 256, 257, 300};
inline constexpr Index kNShortLengths = 17;
inline constexpr Index kLongest = 300;

// ---- Rows --------------------------------------------------------------------------------------------------

enum Axis : std::size_t {
  kModelAxis,
  kWeightsAxis,
  kScalarAxis,
  kCacheAxis,
  kStrategyAxis,
  kExecutorAxis,
  kChunkAxis,
  kLengthAxis,
  kFpModeAxis,
  kNAxes
};

/// A value of each axis, by its place in the list.
using Row = std::array<Index, kNAxes>;

/// Whether two values of different axes can be in one row.
inline bool can_meet(std::size_t a, Index value_a, std::size_t b, Index value_b) {
  if (a == kCacheAxis && b == kModelAxis) return can_meet(b, value_b, a, value_a);
  return !(a == kModelAxis && b == kCacheAxis) || can_hold(Caches{}, value_b, value_a);
}

inline constexpr std::string_view kScalarNames[] = {"float", "double"};

/// Values [begin, end) of each axis.
struct Ranges {
  Row begin;
  Row end;

  Index size(std::size_t axis) const { return end[axis] - begin[axis]; }
};

inline Ranges all_values() {
  const auto size = [](const auto& list) { return static_cast<Index>(std::size(list)); };
  return {{},
          {kNModels, size(kWeights), size(kScalarNames), static_cast<Index>(Caches::size),
           static_cast<Index>(Strategies::size), static_cast<Index>(executors().size()), size(kChunks),
           size(kLengths), size(kFpModes)}};
}
/// Every small model and short sequences.
inline Ranges short_ranges() {
  Ranges ranges = all_values();
  ranges.end[kModelAxis] = kNSmallModels;
  ranges.end[kLengthAxis] = kNShortLengths;
  return ranges;
}
/// Wide models and long sequences.
inline Ranges long_ranges() {
  Ranges ranges = all_values();
  ranges.begin[kModelAxis] = kNSmallModels;
  ranges.begin[kLengthAxis] = kNShortLengths;
  return ranges;
}

/// Which pairs of values of different axes have met.
class Pairs {
 public:
  explicit Pairs(const Ranges& ranges) {
    Index start = 0;
    for (std::size_t axis = 0; axis < kNAxes; ++axis) {
      starts_[axis] = start - ranges.begin[axis];
      start += ranges.size(axis);
    }
    total_ = start;
    met_.assign(static_cast<std::size_t>(total_ * total_), false);
    for (std::size_t a = 0; a < kNAxes; ++a)
      for (std::size_t b = a + 1; b < kNAxes; ++b) n_left_ += ranges.size(a) * ranges.size(b);
  }

  bool met(std::size_t a, Index value_a, std::size_t b, Index value_b) const {
    return met_[place(a, value_a, b, value_b)];
  }
  void meet(const Row& row) {
    for (std::size_t a = 0; a < kNAxes; ++a)
      for (std::size_t b = a + 1; b < kNAxes; ++b) {
        if (met(a, row[a], b, row[b])) continue;
        met_[place(a, row[a], b, row[b])] = true;
        --n_left_;
      }
  }
  Index n_left() const { return n_left_; }

 private:
  std::size_t place(std::size_t a, Index value_a, std::size_t b, Index value_b) const {
    if (a > b) return place(b, value_b, a, value_a);
    return static_cast<std::size_t>((starts_[a] + value_a) * total_ + starts_[b] + value_b);
  }

  Row starts_{};
  Index total_ = 0;
  Index n_left_ = 0;
  std::vector<bool> met_;
};

/// Rows, always the same ones, in which every two values of different axes meet that can. Each row starts from a pair
/// that has not met and takes on every other axis the value that meets most of the others for the first time.
inline std::vector<Row> rows_in_pairs(const Ranges& ranges) {
  Pairs pairs(ranges);
  std::vector<Row> rows;
  SplitMix64 random(2024);
  for (std::size_t a = 0; a < kNAxes; ++a)
    for (std::size_t b = a + 1; b < kNAxes; ++b)
      for (Index i = ranges.begin[a]; i < ranges.end[a]; ++i)
        for (Index j = ranges.begin[b]; j < ranges.end[b]; ++j) {
          if (pairs.met(a, i, b, j) || !can_meet(a, i, b, j)) continue;
          Row row;
          row.fill(-1);
          row[a] = i;
          row[b] = j;
          for (std::size_t axis = 0; axis < kNAxes; ++axis) {
            if (row[axis] >= 0) continue;
            const Index size = ranges.size(axis),
                        first = random.below(size);  // not always the front of the list
            Index best = -1, most = -1;
            for (Index k = 0; k < size; ++k) {
              const Index value = ranges.begin[axis] + (first + k) % size;
              Index n = 0;
              bool fits = true;
              for (std::size_t other = 0; other < kNAxes; ++other)
                fits = fits && (row[other] < 0 || can_meet(axis, value, other, row[other]));
              if (!fits) continue;
              for (std::size_t other = 0; other < kNAxes; ++other)
                if (other != axis && row[other] >= 0 && !pairs.met(axis, value, other, row[other])) ++n;
              if (n > most) {
                most = n;
                best = value;
              }
            }
            row[axis] = best;
          }
          pairs.meet(row);
          rows.push_back(row);
        }
  return rows;
}

/// The rows of every day.
inline std::vector<Row> everyday_rows() {
  std::vector<Row> rows = rows_in_pairs(short_ranges());
  const std::vector<Row> long_rows = rows_in_pairs(long_ranges());
  rows.insert(rows.end(), long_rows.begin(), long_rows.end());
  return rows;
}

/// The row in words.
inline std::string describe(const Row& row) {
  const WeightOptions& weights = kWeights[row[kWeightsAxis]];
  std::ostringstream text;
  text << "model " << row[kModelAxis] << " \"" << model_words(row[kModelAxis]) << "\", weights "
       << to_string(weights.format) << " seed " << weights.seed << (weights.biases ? " biases" : "")
       << (weights.transposed ? " transposed" : "") << " offset " << weights.offset << " padding "
       << weights.row_padding << ", " << kScalarNames[row[kScalarAxis]] << ", cache " << row[kCacheAxis]
       << ", strategy " << row[kStrategyAxis] << ", executor " << executors()[row[kExecutorAxis]].name
       << ", chunk " << kChunks[row[kChunkAxis]] << ", length " << kLengths[row[kLengthAxis]] << ", "
       << "floating point " << to_string(kFpModes[row[kFpModeAxis]]);
  return text.str();
}

}  // namespace kvdecode_laws

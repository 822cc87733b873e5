// SPDX-License-Identifier: MIT
// The rows of the everyday run cover what they claim to cover.
#include <laws/axes.hpp>

#include <doctest/doctest.h>

#include <set>
#include <type_traits>
#include <vector>

namespace {

using namespace kvdecode_laws;

Index n_pairs_missing(const std::vector<Row>& rows, const Ranges& ranges) {
  Index missing = 0;
  for (std::size_t a = 0; a < kNAxes; ++a)
    for (std::size_t b = a + 1; b < kNAxes; ++b) {
      std::set<std::pair<Index, Index>> met;
      for (const Row& row : rows) met.insert({row[a], row[b]});
      for (Index i = ranges.begin[a]; i < ranges.end[a]; ++i)
        for (Index j = ranges.begin[b]; j < ranges.end[b]; ++j)
          missing += met.contains({i, j}) || !can_meet(a, i, b, j) ? 0 : 1;
    }
  return missing;
}

TEST_CASE("rows: every two values of different axes meet, with all models and short sequences") {
  const std::vector<Row> rows = rows_in_pairs(short_ranges());
  CHECK(n_pairs_missing(rows, short_ranges()) == 0);
  // No list can do with fewer than the two longest axes have pairs.
  CHECK(static_cast<Index>(rows.size()) >= kNSmallModels * kNShortLengths);
  CHECK(static_cast<Index>(rows.size()) < 2 * kNSmallModels * kNShortLengths);
}

TEST_CASE("rows: every two values of different axes meet, with wide models and long sequences") {
  const std::vector<Row> rows = rows_in_pairs(long_ranges());
  CHECK(n_pairs_missing(rows, long_ranges()) == 0);
  CHECK(rows.size() < 400);
}

TEST_CASE("rows: only a model and a cache that cannot hold its rows never meet") {
  const auto number_of = [](std::string_view words) {
    for (Index model = 0; model < kNSmallModels; ++model)
      if (model_words(model).starts_with(words)) return model;
    FAIL("no such model");
    return Index{0};
  };
  const Index five = number_of("mha hd5 gelu plain"), cache = static_cast<Index>(Caches::size) - 1;
  CHECK(!can_meet(kModelAxis, five, kCacheAxis, cache));
  CHECK(!can_meet(kCacheAxis, cache, kModelAxis, five));
  CHECK(can_meet(kModelAxis, five, kCacheAxis, 0));
  CHECK(can_meet(kModelAxis, five, kLengthAxis, cache));
  const auto is_sink_cache = []<class... Cs>(TypeList<Cs...>, Index c) {
    Index i = 0;
    return ((i++ == c && std::is_same_v<Cs, SinkCache<F32>>) || ...);
  };
  Index n_apart = 0;
  for (Index model = 0; model < kNModels; ++model) {
    const kvdecode::ModelConfig config = model_config(model);
    const Index dim = config.head_dim;
    for (Index c = 0; c < static_cast<Index>(Caches::size); ++c) {
      const bool meets = can_meet(kModelAxis, model, kCacheAxis, c);
      CHECK((meets || dim == 5 || dim == 12 || config.is_latent() || is_sink_cache(Caches{}, c)));
      n_apart += meets ? 0 : 1;
    }
  }
  CHECK(n_apart > 0);
  for (const Row& row : everyday_rows())
    CHECK(can_meet(kModelAxis, row[kModelAxis], kCacheAxis, row[kCacheAxis]));
}

TEST_CASE("rows: one row less and a pair is missing") {
  // The coverage test can fail: the pairs of the last row that was added are met nowhere else.
  std::vector<Row> rows = rows_in_pairs(long_ranges());
  rows.pop_back();
  CHECK(n_pairs_missing(rows, long_ranges()) > 0);
}

TEST_CASE("rows: are the same ones each time") { CHECK(everyday_rows() == everyday_rows()); }

TEST_CASE("rows: the models of the full product are there, each once, and have every kind of span") {
  const std::vector<Index> models = product_models();
  CHECK(std::set<Index>(models.begin(), models.end()).size() == 22);
  bool sees_all = false, slides = false, keeps_sinks = false, is_chunked = false, has_epochs = false;
  for (const Index model : models) {
    const kvdecode::ModelConfig config = model_config(model);
    for (const kvdecode::AttentionSpan& span : config.spans) {
      sees_all |= span == kvdecode::AttentionSpan{};
      slides |= span.window > 0 && span.n_sink == 0;
      keeps_sinks |= span.n_sink > 0;
      is_chunked |= span.chunk > 0;
    }
    has_epochs |= config.rotary_epoch(1) != config.rotary_epoch(300);
  }
  CHECK(sees_all);
  CHECK(slides);
  CHECK(keeps_sinks);
  CHECK(is_chunked);
  CHECK(has_epochs);
}

TEST_CASE("rows: describe() names what a row is made of") {
  Row row{};
  row[kModelAxis] = 4;
  row[kWeightsAxis] = 2;
  row[kExecutorAxis] = 4;
  row[kLengthAxis] = 17;
  const std::string text = describe(row);
  for (const char* part : {"mha hd5 gelu plain", "f16 seed 13 transposed offset 1", "float", "team of 3",
                           "chunk 1", "length 255", "default"})
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
}

}  // namespace

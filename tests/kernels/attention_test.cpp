// SPDX-License-Identifier: MIT
#include <reference/attention.hpp>
#include <support/cache_formats.hpp>
#include <support/canonical.hpp>
#include <support/compare.hpp>
#include <support/guarded.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/kvdecode.hpp>  // with extern templates where kvdecode::compiled is linked

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace {

using kvdecode::AttentionSpan;
using kvdecode::BF16;
using kvdecode::F16;
using kvdecode::F32;
using kvdecode::F64;
using kvdecode::Index;
using kvdecode::kernels::AttentionPiece;
using kvdecode::kernels::kTilePositions;
using kvdecode_test::check_close;
using kvdecode_test::check_same_bits;
using kvdecode_test::draws;
using kvdecode_test::Guarded;
using kvdecode_test::OffsetBytes;
using kvdecode_test::SplitMix64;
using kvdecode_test::tolerance;

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// Keys or values of positions 0 … n-1 in format F, some bytes apart, at an odd address; and what they decode
/// to.
template <class F, class S>
struct StoredRows {
  Index n, dim, stride;
  OffsetBytes bytes;
  std::vector<std::vector<S>> decoded;

  StoredRows(Index n_rows, Index row_dim, std::uint64_t seed)
      : n(n_rows), dim(row_dim), stride(F::row_bytes(row_dim) + 5), bytes(n_rows * stride, 1) {
    const std::vector<double> numbers = draws<double>(n * dim, seed);
    decoded.resize(at(n));
    for (Index i = 0; i < n; ++i) {
      std::vector<S> row;
      for (Index c = 0; c < dim; ++c) row.push_back(static_cast<S>(numbers[at(i * dim + c)]));
      F::encode(row.data(), dim, bytes.data() + i * stride);
      for (Index c = 0; c < dim; ++c)
        decoded[at(i)].push_back(kvdecode::decode_number<F, S>(bytes.data() + i * stride, c, dim));
    }
  }
  const std::byte* row(Index i) const { return bytes.data() + i * stride; }
  /// Makes every number of the row NaN (all bits of its exponent set) or infinite.
  void poison(Index i) { std::memset(bytes.data() + i * stride, 0xff, static_cast<std::size_t>(stride)); }
};

/// Visible positions, as runs [begin, end) in rising order.
using Runs = std::vector<std::pair<Index, Index>>;

Runs runs_of(const AttentionSpan& span, Index query) {
  Runs runs;
  for (Index j = 0; j <= query; ++j) {
    if (!span.sees(query, j)) continue;
    if (!runs.empty() && runs.back().second == j)
      ++runs.back().second;
    else
      runs.push_back({j, j + 1});
  }
  return runs;
}

/// The runs cut at tiles, and into pieces of at most `longest` rows (or, with 0, of random lengths).
template <class KRows, class VRows>
std::vector<std::vector<AttentionPiece>> tiles_of(const Runs& runs, const KRows& keys, const VRows& values,
                                                  Index longest, Index n_sink = 0) {
  SplitMix64 random(static_cast<std::uint64_t>(keys.n));
  std::vector<std::vector<AttentionPiece>> tiles;
  Index last_tile = -1;
  for (const auto& [run_begin, run_end] : runs)
    for (Index begin = run_begin; begin < run_end;) {
      const Index tile = begin / kTilePositions;
      const Index most = longest == 0 ? 1 + random.below(random.below(4) == 0 ? 2 : 90) : longest;
      Index end = std::min({run_end, (tile + 1) * kTilePositions, begin + most});
      if (begin < n_sink) end = std::min(end, n_sink);
      if (tile != last_tile) tiles.emplace_back();
      last_tile = tile;
      tiles.back().push_back({begin, end - begin, keys.row(begin), keys.stride, values.row(begin),
                              values.stride, begin < n_sink ? 1 : 0});
      begin = end;
    }
  return tiles;
}

/// [group_size, v_dim]
template <class KFormat, class VFormat, class S>
std::vector<S> attend(const std::vector<std::vector<AttentionPiece>>& tiles, const S* queries,
                      Index rotation_stride, Index group_size, Index k_dim, Index v_dim, S scale,
                      S cap = S(0.0f)) {
  Guarded<S> maximum(group_size), sum(group_size), output(group_size * v_dim);
  Guarded<S> scratch(kvdecode::kernels::attention_scratch(group_size, v_dim));
  kvdecode::kernels::AttentionState<S> state{group_size, v_dim,         maximum.data(),
                                             sum.data(), output.data(), true};
  for (const std::vector<AttentionPiece>& tile : tiles)
    kvdecode::kernels::attend_tile<KFormat, VFormat>(std::span<const AttentionPiece>(tile), queries,
                                                     rotation_stride, k_dim, scale, state, scratch.data(),
                                                     cap);
  kvdecode::kernels::finish_attention(state, state.output);
  CHECK(maximum.is_intact());
  CHECK(sum.is_intact());
  CHECK(output.is_intact());
  CHECK(scratch.is_intact());
  return std::vector<S>(output.data(), output.data() + group_size * v_dim);
}

/// The design's formula, head by head.
template <class S, class KRows, class VRows>
std::vector<S> by_formula(const Runs& runs, const KRows& keys, const VRows& values, const S* queries,
                          Index rotation_stride, Index group_size, S scale, Index n_sink = 0, S cap = S(0)) {
  const auto sees = [&](Index j) {
    return std::any_of(runs.begin(), runs.end(),
                       [&](const auto& run) { return run.first <= j && j < run.second; });
  };
  std::vector<S> result;
  for (Index g = 0; g < group_size; ++g) {
    const auto query = [&](Index j) { return queries + (j < n_sink ? rotation_stride : 0) + g * keys.dim; };
    const std::vector<S> head = kvdecode_test::canonical_attention(
        keys.n, keys.dim, values.dim, scale, sees, query, [&](Index j) { return keys.decoded[at(j)].data(); },
        [&](Index j) { return values.decoded[at(j)].data(); }, cap);
    result.insert(result.end(), head.begin(), head.end());
  }
  return result;
}

template <class KFormat, class VFormat, class S>
void check_formula(const Runs& runs, Index n, Index group_size, Index k_dim, Index v_dim, S scale) {
  CAPTURE(n);
  CAPTURE(group_size);
  CAPTURE(k_dim);
  CAPTURE(v_dim);
  const StoredRows<KFormat, S> keys(n, k_dim, static_cast<std::uint64_t>(n));
  const StoredRows<VFormat, S> values(n, v_dim, static_cast<std::uint64_t>(n + 1));
  const std::vector<S> queries = draws<S>(group_size * k_dim, static_cast<std::uint64_t>(n + 2));
  const std::vector<S> expected = by_formula(runs, keys, values, queries.data(), 0, group_size, scale);
  for (const Index longest : {kTilePositions, Index{0}, Index{1}, Index{7}}) {
    CAPTURE(longest);
    check_same_bits(attend<KFormat, VFormat>(tiles_of(runs, keys, values, longest), queries.data(), 0,
                                             group_size, k_dim, v_dim, scale),
                    expected);
  }
}

const Index kLengths[] = {1, 2, 3, 5, 15, 16, 17, 33, 100, 255, 256, 257, 300, 511, 512, 513, 700};

TEST_CASE_TEMPLATE("attention: has the bits of the formula for every length, in one piece or many", S, float,
                   double) {
  using F = kvdecode::Native<S>;
  for (const Index n : kLengths) {
    check_formula<F, F, S>({{0, n}}, n, 1, 8, 8, S(0.35));
    check_formula<F, F, S>({{0, n}}, n, 3, 20, 17, S(0.25));
  }
}

TEST_CASE_TEMPLATE("attention: for every group size, key and value dimension", S, float, double) {
  using F = kvdecode::Native<S>;
  const Runs runs{{0, 3}, {20, 300}};
  for (Index group_size = 1; group_size <= 9; ++group_size)
    check_formula<F, F, S>(runs, 300, group_size, 12, 16, S(0.3));
  for (const Index k_dim : {1, 5, 8, 12, 16, 20, 64, 80})
    check_formula<F, F, S>(runs, 300, 1 + k_dim % 4, k_dim, 5, S(0.3));
  for (const Index v_dim : {1, 5, 8, 12, 16, 20, 32, 48, 64, 80, 96})
    check_formula<F, F, S>(runs, 300, 1 + v_dim % 5, 8, v_dim, S(0.3));
}

TEST_CASE("attention: for every format of keys and values") {
  const Runs runs{{0, 2}, {100, 280}};
  check_formula<F64, F64, float>(runs, 280, 2, 20, 33, 0.3f);
  check_formula<F16, F16, float>(runs, 280, 5, 20, 33, 0.3f);
  check_formula<BF16, F16, float>(runs, 280, 2, 16, 64, 0.3f);
  check_formula<F16, F32, double>(runs, 280, 3, 20, 33, 0.3);
  check_formula<F32, BF16, double>(runs, 280, 2, 16, 40, 0.3);
}

TEST_CASE_TEMPLATE("attention: for every format of caches, of short and odd rows too", F,
                   KVDECODE_TEST_CACHE_FORMATS) {
  const Runs runs{{0, 2}, {100, 280}};
  for (const Index dim : {16, 64}) {
    check_formula<F, F, float>(runs, 280, 3, dim, dim, 0.3f);
    check_formula<F, F, double>(runs, 280, 1, dim, dim, 0.3);
  }
  check_formula<F, F16, float>(runs, 280, 4, 8, 33, 0.3f);
  check_formula<F16, F, double>(runs, 280, 2, 20, 32, 0.3);
  if constexpr (kvdecode::transform_of<F>() == kvdecode::RowTransform::kNone) {
    check_formula<F, F, float>(runs, 280, 2, 20, 33, 0.3f);
    check_formula<F, F, double>(runs, 280, 5, 80, 48, 0.3);
  }
}

/// A row as it was before it was stored, but for what that lost.
template <class F, class S>
std::vector<double> turned_back(const std::vector<S>& stored) {
  std::vector<double> row(stored.begin(), stored.end());
  kvdecode::turn_row_back(kvdecode::transform_of<F>(), row.data(), static_cast<Index>(row.size()));
  return row;
}

TEST_CASE_TEMPLATE("attention: of turned rows is that of the rows turned back", F,
                   KVDECODE_TEST_CACHE_FORMATS) {
  constexpr kvdecode::RowTransform transform = kvdecode::transform_of<F>();
  const auto check = [&]<class S>(S scale) {
    for (const Index n : {1, 60, 300}) {
      CAPTURE(n);
      const StoredRows<F, S> keys(n, 32, 24), values(n, 64, 25);
      const std::vector<S> query = draws<S>(32, 26);
      std::vector<S> turned = query;
      kvdecode::turn_row(transform, turned.data(), 32);
      std::vector<S> actual =
          attend<F, F>(tiles_of({{0, n}}, keys, values, kTilePositions), turned.data(), 0, 1, 32, 64, scale);
      kvdecode::turn_row_back(transform, actual.data(), 64);
      kvdecode_reference::Rows key_rows, value_rows;
      for (Index i = 0; i < n; ++i) {
        key_rows.push_back(turned_back<F>(keys.decoded[at(i)]));
        value_rows.push_back(turned_back<F>(values.decoded[at(i)]));
      }
      // As near the reference as plain rows are, and 6 sums and a product more for each number of query and output.
      check_close(actual,
                  kvdecode_reference::attention(kvdecode_reference::Vector(query.begin(), query.end()),
                                                kvdecode_reference::Vector(), key_rows, value_rows, n - 1,
                                                AttentionSpan{}, static_cast<double>(scale)),
                  tolerance<S>(60));
    }
  };
  check(0.25f);
  check(0.25);
}

TEST_CASE_TEMPLATE("attention: for every span, at queries around its edges", S, float, double) {
  using F = kvdecode::Native<S>;
  for (const AttentionSpan span :
       {AttentionSpan{.window = 1}, AttentionSpan{.window = 7}, AttentionSpan{.window = 256},
        AttentionSpan{.window = 300}, AttentionSpan{.window = 9, .n_sink = 4},
        AttentionSpan{.window = 300, .n_sink = 1}, AttentionSpan{.chunk = 5}, AttentionSpan{.chunk = 256},
        AttentionSpan{.chunk = 300}}) {
    CAPTURE(span.window);
    CAPTURE(span.n_sink);
    CAPTURE(span.chunk);
    for (const Index query : {0, 5, 8, 255, 256, 262, 299, 300, 511, 512, 560})
      check_formula<F, F, S>(runs_of(span, query), query + 1, 2, 8, 8, S(0.35));
  }
}

TEST_CASE_TEMPLATE("attention: tiles merge in order, whichever has the larger maximum", S, float, double) {
  using F = kvdecode::Native<S>;
  // One-dimensional keys that rise, fall, or alternate from tile to tile make every branch of the merge.
  for (const int pattern : {0, 1, 2, 3}) {
    CAPTURE(pattern);
    constexpr Index n = 5 * kTilePositions;
    StoredRows<F, S> keys(n, 1, 1);
    const StoredRows<F, S> values(n, 20, 2);
    for (Index j = 0; j < n; ++j) {
      const Index tile = j / kTilePositions;
      const Index level = pattern == 0 ? tile : pattern == 1 ? -tile : pattern == 2 ? (tile * 3) % 5 : 0;
      // Equal maxima in the last pattern: m <= M takes the first branch.
      S key = static_cast<S>(level) + (pattern == 3 ? S(j % 16 == 3 ? 1 : 0) : keys.decoded[at(j)][0] / S(8));
      keys.decoded[at(j)][0] = key;
      F::encode(&key, 1, keys.bytes.data() + j * keys.stride);
    }
    for (const S scale : {S(1), S(-1), S(40)}) {  // with 40, all but one tile vanish
      const std::vector<S> queries{S(1), S(0.5)};
      const Runs runs{{0, n}};
      check_same_bits(attend<F, F>(tiles_of(runs, keys, values, 0), queries.data(), 0, 2, 1, 20, scale),
                      by_formula(runs, keys, values, queries.data(), 0, 2, scale));
    }
  }
}

TEST_CASE_TEMPLATE("attention: heads of a group together are each head alone", S, float, double) {
  using F = kvdecode::Native<S>;
  const StoredRows<F16, S> keys(270, 12, 3);
  const StoredRows<F, S> values(270, 20, 4);
  const std::vector<S> queries = draws<S>(9 * 12, 5);
  const auto tiles = tiles_of({{0, 270}}, keys, values, 0);
  for (Index group_size = 1; group_size <= 9; ++group_size) {
    std::vector<S> alone;
    for (Index g = 0; g < group_size; ++g) {
      const std::vector<S> head = attend<F16, F>(tiles, queries.data() + g * 12, 0, 1, 12, 20, S(0.3));
      alone.insert(alone.end(), head.begin(), head.end());
    }
    check_same_bits(attend<F16, F>(tiles, queries.data(), 0, group_size, 12, 20, S(0.3)), alone);
  }
}

TEST_CASE_TEMPLATE("attention: rows that are not visible may hold anything", S, float, double) {
  using F = kvdecode::Native<S>;
  const AttentionSpan span{.window = 40, .n_sink = 3};
  const Runs runs = runs_of(span, 299);
  StoredRows<F, S> keys(301, 8, 6), values(301, 20, 7);
  const std::vector<S> queries = draws<S>(2 * 8, 8);
  const std::vector<S> expected =
      attend<F, F>(tiles_of(runs, keys, values, 0), queries.data(), 0, 2, 8, 20, S(0.3));
  for (Index j = 0; j < 301; ++j)
    if (!span.sees(299, j)) keys.poison(j), values.poison(j);
  check_same_bits(attend<F, F>(tiles_of(runs, keys, values, 0), queries.data(), 0, 2, 8, 20, S(0.3)),
                  expected);
}

TEST_CASE_TEMPLATE("attention: pieces may meet another rotation of the query", S, float, double) {
  using F = kvdecode::Native<S>;
  const AttentionSpan span{.window = 30, .n_sink = 5};
  const StoredRows<F, S> keys(300, 12, 9), values(300, 9, 10);
  const std::vector<S> queries = draws<S>(2 * 3 * 12 + 4, 11);
  const Index stride = 3 * 12 + 4;
  for (const Index query : {4, 20, 34, 35, 200, 299}) {
    CAPTURE(query);
    const Runs runs = runs_of(span, query);
    const StoredRows<F, S> shorter_keys(query + 1, 12, 9), shorter_values(query + 1, 9, 10);
    check_same_bits(attend<F, F>(tiles_of(runs, shorter_keys, shorter_values, 0, 5), queries.data(), stride,
                                 3, 12, 9, S(0.3)),
                    by_formula(runs, shorter_keys, shorter_values, queries.data(), stride, 3, S(0.3), 5));
  }
}

TEST_CASE_TEMPLATE("attention: scores may be softly capped", S, float, double) {
  using F = kvdecode::Native<S>;
  const StoredRows<F, S> keys(300, 12, 21), values(300, 20, 22);
  const std::vector<S> queries = draws<S>(3 * 12, 23);
  const Runs runs{{0, 2}, {100, 300}};
  for (const S cap : {S(0.5), S(50)})
    for (const Index longest : {Index{0}, kTilePositions}) {
      CAPTURE(cap);
      check_same_bits(
          attend<F, F>(tiles_of(runs, keys, values, longest), queries.data(), 0, 3, 12, 20, S(0.7), cap),
          by_formula(runs, keys, values, queries.data(), 0, 3, S(0.7), 0, cap));
    }
}

TEST_CASE_TEMPLATE("attention: is near the reference", S, float, double) {
  using F = kvdecode::Native<S>;
  for (const AttentionSpan span :
       {AttentionSpan{}, AttentionSpan{.window = 20, .n_sink = 2}, AttentionSpan{.chunk = 70}})
    for (const Index n : {1, 60, 256, 257, 600}) {
      CAPTURE(n);
      const StoredRows<F, S> keys(n, 16, 12), values(n, 24, 13);
      const std::vector<S> query = draws<S>(16, 14);
      const std::vector<S> actual = attend<F, F>(tiles_of(runs_of(span, n - 1), keys, values, kTilePositions),
                                                 query.data(), 0, 1, 16, 24, S(0.25));
      const kvdecode_reference::Vector q(query.begin(), query.end());
      // A score has 2 roundings of its chain, 4 of the tree and the scale, each of |q||k|/4 ~ 4; the weights
      // have the relative error that the score has absolutely, and a chain of n roundings of falling weight.
      check_close(actual,
                  kvdecode_reference::attention(q, kvdecode_test::as_rows(keys.decoded),
                                                kvdecode_test::as_rows(values.decoded), n - 1, span, 0.25),
                  tolerance<S>(40));
    }
}

TEST_CASE("attention: no pieces, no change; one position, its value") {
  const StoredRows<F32, float> keys(300, 8, 15), values(300, 8, 16);
  const std::vector<float> query = draws<float>(8, 17);
  auto tiles = tiles_of({{7, 9}, {280, 300}}, keys, values, 20);
  const std::vector<float> expected = attend<F32, F32>(tiles, query.data(), 0, 1, 8, 8, 0.3f);
  for (const Index place : {2, 1, 0}) tiles.insert(tiles.begin() + place, std::vector<AttentionPiece>{});
  check_same_bits(attend<F32, F32>(tiles, query.data(), 0, 1, 8, 8, 0.3f), expected);
  check_same_bits(attend<F32, F32>(tiles_of({{299, 300}}, keys, values, 1), query.data(), 0, 1, 8, 8, 0.3f),
                  values.decoded[299]);
}

TEST_CASE("attention: a scalar of one's own has the bits of its base, and counts scores and values") {
  using S = kvdecode::Counting<float>;
  using Raw = kvdecode::Raw<S>;
  const Runs runs{{0, 2}, {10, 300}};
  const Index n_visible = 292, k_dim = 12, v_dim = 20, group_size = 3;
  const StoredRows<F32, float> keys(300, k_dim, 18), values(300, v_dim, 19);
  const std::vector<float> queries = draws<float>(group_size * k_dim, 20);
  const std::vector<float> expected =
      attend<F32, F32>(tiles_of(runs, keys, values, 0), queries.data(), 0, group_size, k_dim, v_dim, 0.3f);
  const StoredRows<Raw, S> keys_s(300, k_dim, 18), values_s(300, v_dim, 19);
  const std::vector<S> queries_s(queries.begin(), queries.end());
  const auto tiles = tiles_of(runs, keys_s, values_s, 0);
  kvdecode::take_work_counters();
  std::vector<float> actual;
  for (const S x : attend<Raw, Raw>(tiles, queries_s.data(), 0, group_size, k_dim, v_dim, S(0.3f)))
    actual.push_back(static_cast<float>(x));
  const kvdecode::WorkCounters counters = kvdecode::take_work_counters();
  check_same_bits(actual, expected);
  CHECK(counters[kvdecode::Work::kScores] == group_size * n_visible * k_dim);
  CHECK(counters[kvdecode::Work::kValues] == group_size * n_visible * v_dim);
  CHECK(counters[kvdecode::Work::kLinear] == 0);
}

}  // namespace

// SPDX-License-Identifier: MIT
// Cross-attention over encoder outputs: near the textbook, the bits of the canonical formula, and none that depends on how
// outputs and rows were cut, on company, layout or threads.
#include <reference/attention.hpp>
#include <reference/linear.hpp>
#include <reference/norms.hpp>
#include <support/cache_formats.hpp>
#include <support/canonical.hpp>
#include <support/compare.hpp>
#include <support/executors.hpp>
#include <support/fp_mode.hpp>
#include <support/model.hpp>
#include <support/names.hpp>
#include <support/random.hpp>
#include <support/refusal.hpp>

#include <kvdecode/core/formats/q8_0.hpp>
#include <kvdecode/kvdecode.hpp>  // with extern templates where kvdecode::compiled is linked

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace kvdecode;
using kvdecode_reference::at;
using kvdecode_test::check_close;
using kvdecode_test::check_refused;
using kvdecode_test::check_same_bits;
using kvdecode_test::draws;
using kvdecode_test::RandomWeightsOptions;

/// Groups of two heads of 32 numbers, a whole block of every format; the encoder has other rows than the decoder.
CrossAttentionConfig small_config() {
  return {.n_layers = 2, .d_model = 24, .d_encoder = 20, .n_heads = 4, .n_kv_heads = 2, .head_dim = 32};
}

CrossAttentionWeights random_weights(const CrossAttentionConfig& config,
                                     const RandomWeightsOptions& options = {.biases = true}) {
  kvdecode_test::RandomNumbers numbers(options);
  const Index q_dim = config.n_heads * config.head_dim, kv_dim = config.n_kv_heads * config.head_dim;
  ModelConfig norms;
  norms.norm = config.norm;
  CrossAttentionWeights weights;
  for (Index i = 0; i < config.n_layers; ++i) {
    CrossAttentionLayerWeights layer;
    layer.w_q = numbers.linear(q_dim, config.d_model);
    layer.w_k = numbers.linear(kv_dim, config.d_encoder);
    layer.w_v = numbers.linear(kv_dim, config.d_encoder);
    layer.w_o = numbers.linear(config.d_model, q_dim);
    if (config.qk_norm != QkNormKind::kNone) {
      const bool is_whole = config.qk_norm == QkNormKind::kWhole;
      layer.q_norm = numbers.norm(norms, is_whole ? q_dim : config.head_dim);
      layer.k_norm = numbers.norm(norms, is_whole ? kv_dim : config.head_dim);
    }
    weights.layers.push_back(layer);
  }
  weights.owners = numbers.take_owners();
  return weights;
}

/// Rows one after another.
template <class S>
RowsView<const S> rows_of(const std::vector<S>& numbers, Index cols) {
  return {numbers.data(), static_cast<Index>(numbers.size()) / cols, cols, cols};
}

/// Fills a cache, in calls of at most n_at_once outputs.
template <class S, class Cache>
void fill(const CrossAttention<S>& cross, const std::vector<S>& encoder, Cache& cache,
          Index n_at_once = Index{1} << 20, ExecutorRef exec = {}) {
  Workspace<S> workspace;
  const RowsView<const S> rows = rows_of(encoder, cross.config().d_encoder);
  for (Index done = 0; done < rows.rows; done += n_at_once)
    cross.fill(
        workspace, exec,
        RowsView<const S>{rows.row(done), std::min(n_at_once, rows.rows - done), rows.cols, rows.stride},
        cache);
}

/// What rows x see in a cache, in calls of at most n_at_once rows.
template <class S, class Cache>
std::vector<S> seen(const CrossAttention<S>& cross, Index layer, const Cache& cache, const std::vector<S>& x,
                    Index n_at_once = Index{1} << 20, ExecutorRef exec = {}) {
  Workspace<S> workspace;
  const Index cols = cross.config().d_model;
  const RowsView<const S> rows = rows_of(x, cols);
  std::vector<S> y(x.size(), S(777));
  for (Index done = 0; done < rows.rows; done += n_at_once) {
    const Index n = std::min(n_at_once, rows.rows - done);
    cross.forward(workspace, exec, layer, cache, RowsView<const S>{rows.row(done), n, cols, cols},
                  RowsView<S>{y.data() + done * cols, n, cols, cols});
  }
  return y;
}

// ---- The textbook ------------------------------------------------------------------------------------------

template <class S>
kvdecode_reference::Rows doubles(const RowsView<const S>& rows) {
  kvdecode_reference::Rows result;
  for (Index i = 0; i < rows.rows; ++i) result.emplace_back(rows.row(i), rows.row(i) + rows.cols);
  return result;
}

/// Each part of a row by itself, as long as the weight is; an empty weight is no norm.
kvdecode_reference::Vector normed(const CrossAttentionConfig& config, const NormWeights& w,
                                  kvdecode_reference::Vector row) {
  const kvdecode_reference::Vector weight = kvdecode_reference::read(w.weight),
                                   bias = kvdecode_reference::read(w.bias);
  for (std::size_t i = 0; !weight.empty() && i < row.size(); i += weight.size()) {
    const kvdecode_reference::Vector part(row.begin() + static_cast<Index>(i),
                                          row.begin() + static_cast<Index>(i + weight.size()));
    const auto result = config.norm == NormKind::kRms
                            ? kvdecode_reference::rms_norm(part, weight, bias, config.norm_eps)
                            : kvdecode_reference::layer_norm(part, weight, bias, config.norm_eps);
    std::copy(result.begin(), result.end(), row.begin() + static_cast<Index>(i));
  }
  return row;
}

/// Part `head` of a row.
template <class T>
std::vector<T> head_of(const std::vector<T>& row, Index head, Index dim) {
  return std::vector<T>(row.begin() + head * dim, row.begin() + (head + 1) * dim);
}

/// Keys, values, queries and outputs anew for all rows, nothing kept.
kvdecode_reference::Rows textbook(const CrossAttentionConfig& config, const CrossAttentionLayerWeights& layer,
                                  const kvdecode_reference::Rows& encoder,
                                  const kvdecode_reference::Rows& x) {
  using kvdecode_reference::linear;
  using kvdecode_reference::read;
  using kvdecode_reference::Vector;
  const Index n = static_cast<Index>(encoder.size()), dim = config.head_dim;
  const double scale =
      config.attention_scale != 0.0 ? config.attention_scale : 1.0 / std::sqrt(static_cast<double>(dim));
  kvdecode_reference::Rows keys, values, y;
  for (const Vector& output : encoder) {
    keys.push_back(
        normed(config, layer.k_norm, linear(read(layer.w_k.matrix), read(layer.w_k.bias), output)));
    values.push_back(linear(read(layer.w_v.matrix), read(layer.w_v.bias), output));
  }
  for (const Vector& row : x) {
    const Vector q = normed(config, layer.q_norm, linear(read(layer.w_q.matrix), read(layer.w_q.bias), row));
    Vector all;
    for (Index head = 0; head < config.n_heads; ++head) {
      const Index kv_head = head / (config.n_heads / config.n_kv_heads);
      kvdecode_reference::Rows k, v;
      for (Index j = 0; j < n; ++j) {
        k.push_back(head_of(keys[at(j)], kv_head, dim));
        v.push_back(head_of(values[at(j)], kv_head, dim));
      }
      for (const double number : kvdecode_reference::attention(head_of(q, head, dim), k, v, n - 1, {}, scale))
        all.push_back(number);
    }
    y.push_back(linear(read(layer.w_o.matrix), read(layer.w_o.bias), all));
  }
  return y;
}

TEST_CASE_TEMPLATE("cross-attention: near the textbook, for any heads, norms, scales and lengths", S, float,
                   double) {
  struct Heads {
    Index n_heads, n_kv_heads, head_dim;
  };
  std::uint64_t seed = 1;
  for (const Heads heads : {Heads{4, 2, 8}, Heads{3, 3, 5}, Heads{4, 1, 16}})
    for (const QkNormKind qk_norm : {QkNormKind::kNone, QkNormKind::kPerHead, QkNormKind::kWhole})
      for (const NormKind norm : {NormKind::kRms, NormKind::kLayer})
        for (const Index n_encoder : {1, 7, 255, 256, 257, 600}) {
          CAPTURE(heads.n_kv_heads);
          CAPTURE(static_cast<int>(qk_norm));
          CAPTURE(n_encoder);
          CrossAttentionConfig config = small_config();
          config.n_heads = heads.n_heads;
          config.n_kv_heads = heads.n_kv_heads;
          config.head_dim = heads.head_dim;
          config.qk_norm = qk_norm;
          config.norm = norm;
          config.attention_scale = ++seed % 3 == 0 ? 1.0 : 0.0;
          const CrossAttentionWeights weights =
              random_weights(config, {.seed = seed, .biases = seed % 2 == 0, .transposed = seed % 5 == 0});
          const CrossAttention<S> cross(config, weights);
          const std::vector<S> encoder = draws<S>(n_encoder * config.d_encoder, seed),
                               x = draws<S>(3 * config.d_model, seed + 1);
          CrossAttentionCache<Native<S>> cache(cross.kv_shape(), n_encoder);
          fill(cross, encoder, cache);
          cache.seal();
          for (const Index layer : {0, 1}) {
            const auto expected =
                textbook(config, weights.layers[at(layer)], doubles(rows_of(encoder, config.d_encoder)),
                         doubles(rows_of(x, config.d_model)));
            const std::vector<S> y = seen(cross, layer, cache, x);
            check_close(rows_of(y, config.d_model), expected, kvdecode_test::tolerance<S>(100.0, 4.0));
          }
        }
}

// ---- The bits ----------------------------------------------------------------------------------------------

template <class S>
std::vector<S> canonical_linear(const LinearWeights& w, const S* x) {
  std::vector<S> y;
  for (Index r = 0; r < w.matrix.rows; ++r) {
    std::vector<S> row;
    for (Index c = 0; c < w.matrix.cols; ++c)
      row.push_back(static_cast<S>(kvdecode_reference::element(w.matrix, r, c)));
    const S dot = kvdecode_test::canonical_dot(row.data(), x, w.matrix.cols);
    y.push_back(w.bias.empty() ? dot : dot + static_cast<S>(kvdecode_reference::element(w.bias, r)));
  }
  return y;
}

/// One head of a row as format F stores it, turned where it turns rows.
template <class F, class S>
std::vector<S> stored(const std::vector<S>& row, Index head, Index dim) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(F::row_bytes(dim)));
  F::encode(row.data() + head * dim, dim, bytes.data());
  std::vector<S> numbers;
  for (Index i = 0; i < dim; ++i) numbers.push_back(decode_number<F, S>(bytes.data(), i, dim));
  return numbers;
}

/// The rows that x sees, one operation after another: keys and values are computed from all encoder outputs for every row
/// anew, and stored in the formats.
template <class K, class V, class S>
std::vector<S> canonical(const CrossAttentionConfig& config, const CrossAttentionLayerWeights& layer,
                         const std::vector<S>& encoder, const std::vector<S>& x) {
  const Index dim = config.head_dim, group_size = config.n_heads / config.n_kv_heads;
  const RowsView<const S> outputs = rows_of(encoder, config.d_encoder), rows = rows_of(x, config.d_model);
  const S scale = S(1.0 / std::sqrt(static_cast<double>(dim)));
  std::vector<std::vector<std::vector<S>>> k(at(config.n_kv_heads)), v(k);  // [n_kv_heads, n, head_dim]
  for (Index j = 0; j < outputs.rows; ++j)
    for (Index head = 0; head < config.n_kv_heads; ++head) {
      k[at(head)].push_back(stored<K>(canonical_linear(layer.w_k, outputs.row(j)), head, dim));
      v[at(head)].push_back(stored<V>(canonical_linear(layer.w_v, outputs.row(j)), head, dim));
    }
  std::vector<S> y;
  for (Index i = 0; i < rows.rows; ++i) {
    const std::vector<S> queries = canonical_linear(layer.w_q, rows.row(i));
    std::vector<S> all;
    for (Index head = 0; head < config.n_heads; ++head) {
      std::vector<S> q = head_of(queries, head, dim);
      turn_row(transform_of<K>(), q.data(), dim);
      const auto& k_rows = k[at(head / group_size)];
      const auto& v_rows = v[at(head / group_size)];
      std::vector<S> out = kvdecode_test::canonical_attention<S>(
          outputs.rows, dim, dim, scale, [](Index) { return true; }, [&](Index) { return q.data(); },
          [&](Index j) { return k_rows[at(j)].data(); }, [&](Index j) { return v_rows[at(j)].data(); });
      turn_row_back(transform_of<V>(), out.data(), dim);
      all.insert(all.end(), out.begin(), out.end());
    }
    const std::vector<S> row = canonical_linear(layer.w_o, all.data());
    y.insert(y.end(), row.begin(), row.end());
  }
  return y;
}

/// Holds a cache of formats K and V against the canonical formula, however it is filled and asked.
template <class K, class V, class S>
void check_bits(Index n_encoder) {
  CAPTURE(n_encoder);
  using Cache = CrossAttentionCache<K, V>;
  const CrossAttentionConfig config = small_config();
  const CrossAttentionWeights weights = random_weights(config);
  const CrossAttention<S> cross(config, weights);
  const std::vector<S> encoder = draws<S>(n_encoder * config.d_encoder, 3),
                       x = draws<S>(4 * config.d_model, 4);
  for (const Index layer : {0, 1}) {
    const std::vector<S> expected = canonical<K, V>(config, weights.layers[at(layer)], encoder, x);
    CHECK(std::none_of(expected.begin(), expected.end(), [](S number) { return number != number; }));
    for (const Index n_at_once : {Index{1}, Index{100}, n_encoder}) {
      Cache cache(cross.kv_shape(), n_encoder);
      fill(cross, encoder, cache, n_at_once);
      check_same_bits(seen(cross, layer, cache, x), expected);
      cache.seal();
      check_same_bits(seen(cross, layer, cache.fork(), x, 1), expected);  // row by row
      for (const Index n_threads : {2, 3, 4, 7}) {
        CAPTURE(n_threads);
        const kvdecode_test::BackwardsExecutor exec{n_threads};
        check_same_bits(seen(cross, layer, cache, x, 4, exec), expected);
        check_same_bits(seen(cross, layer, cache, x, 3, exec), expected);
        check_same_bits(seen(cross, layer, cache, x, 1, exec), expected);
      }
    }
  }
}

TEST_CASE_TEMPLATE("cross-attention: the bits of the canonical formula, in every format", F, F64, F32, F16,
                   BF16, KVDECODE_TEST_CACHE_FORMATS) {
  for (const Index n_encoder : {1, 37, 256, 300}) check_bits<F, F, float>(n_encoder);
}

TEST_CASE("cross-attention: likewise where keys and values have formats of their own, and in double") {
  check_bits<Int8, HadInt4, float>(530);
  check_bits<HadInt3, F16, float>(100);
  check_bits<F64, F64, double>(300);
  check_bits<F32, Turbo4, double>(300);
}

TEST_CASE("cross-attention: more outputs than a pass takes, on threads, give what one by one gives") {
  const CrossAttentionConfig config = small_config();
  const CrossAttention<float> cross(config, random_weights(config));
  const std::vector<float> encoder = draws<float>(1100 * config.d_encoder, 3),
                           x = draws<float>(config.d_model, 4);
  CrossAttentionCache<F16> one_by_one(cross.kv_shape(), 1100);
  fill(cross, encoder, one_by_one, 1);
  const CacheRecord expected = record_of(one_by_one);
  const std::vector<float> y = seen(cross, 1, one_by_one, x);
  for (const Index n_threads : {1, 2, 3, 4}) {
    CAPTURE(n_threads);
    ThreadTeam team(n_threads);
    for (const Index n_at_once : {7, 511, 1100}) {
      CrossAttentionCache<F16> cache(cross.kv_shape(), 1100);
      fill(cross, encoder, cache, n_at_once, team);
      const CacheRecord record = record_of(cache);
      REQUIRE(record.stores.size() == 2);
      for (std::size_t i = 0; i < 2; ++i) {
        check_same_bits(record.stores[i].keys, expected.stores[i].keys);
        check_same_bits(record.stores[i].values, expected.stores[i].values);
      }
      check_same_bits(seen(cross, 1, cache, x, 1, team), y);
    }
  }
}

/// Some layout, filled by as many outputs as it takes at a time, and forked.
template <class Cache>
void check_layout(const CrossAttention<float>& cross, const std::vector<float>& encoder,
                  const std::vector<float>& x, const std::vector<float>& expected,
                  const typename Cache::Options& options = {}) {
  Cache cache(cross.kv_shape(), 300, options);
  fill(cross, encoder, cache);
  check_same_bits(seen(cross, 1, cache, x), expected);
  const kvdecode_test::BackwardsExecutor exec{5};
  check_same_bits(seen(cross, 1, cache.fork(), x, 2, exec), expected);
}

TEST_CASE(
    "cross-attention: within a format all layouts give the same bits, and caches go from one to another") {
  const CrossAttentionConfig config = small_config();
  const CrossAttention<float> cross(config, random_weights(config));
  const std::vector<float> encoder = draws<float>(290 * config.d_encoder, 3),
                           x = draws<float>(3 * config.d_model, 4);
  CrossAttentionCache<Int8, F32> cache(cross.kv_shape(), 300);
  fill(cross, encoder, cache);
  const std::vector<float> expected = seen(cross, 1, cache, x);
  check_layout<ContiguousCache<Int8, F32>>(cross, encoder, x, expected);
  check_layout<GrowingCache<Int8, F32>>(cross, encoder, x, expected);
  check_layout<PagedCache<3, Int8, F32>>(cross, encoder, x, expected);
  check_layout<SlidingWindowCache<Int8, F32>>(cross, encoder, x, expected, {.max_append = 17});
  CrossAttentionCache<Int8, F32> restored(cross.kv_shape(), 400);
  restored.restore(record_of(cache));
  check_same_bits(seen(cross, 1, restored, x), expected);
  // The host's rounding mode is none of its concerns.
  for (const kvdecode_test::FpMode mode : kvdecode_test::kFpModes) {
    CAPTURE(to_string(mode));
    CrossAttentionCache<Int8, F32> again(cross.kv_shape(), 300);
    std::vector<float> y;
    {
      const kvdecode_test::ScopedFpMode scope(mode);
      fill(cross, encoder, again);
      y = seen(cross, 1, again, x);
    }
    check_same_bits(y, expected);
  }
  // A step in progress is not seen.
  restored.reserve(5);
  const std::vector<float> row(64, 100.0f);
  for (const Index layer : {0, 1})
    restored.append(layer, RowsView<const float>{row.data(), 1, 64, 64},
                    RowsView<const float>{row.data(), 1, 64, 64});
  check_same_bits(seen(cross, 1, restored, x), expected);
}

TEST_CASE("cross-attention: a row sees the same in any company, of its own sequence and of others") {
  using Cache = CrossAttentionCache<F16>;
  const CrossAttentionConfig config = small_config();
  const CrossAttention<float> cross(config, random_weights(config));
  const Index d = config.d_model;
  std::vector<Cache> caches;
  for (const Index n : {270, 1, 600}) {
    caches.emplace_back(cross.kv_shape(), n);
    fill(cross, draws<float>(n * config.d_encoder, static_cast<std::uint64_t>(n)), caches.back());
    caches.back().seal();
  }
  caches.push_back(caches[0].fork());
  const std::vector<float> x = draws<float>(7 * d, 4);
  const std::vector<CrossSegment<Cache>> segments{{&caches[2], 2}, {&caches[0], 1}, {&caches[1], 0},
                                                  {&caches[1], 1}, {&caches[0], 1}, {&caches[3], 2}};
  std::vector<float> expected;
  Index first = 0;
  for (const CrossSegment<Cache>& segment : segments) {
    const std::vector<float> mine(x.begin() + first * d, x.begin() + (first + segment.n_rows) * d);
    const std::vector<float> y = seen(cross, 1, *segment.cache, mine, 1);
    expected.insert(expected.end(), y.begin(), y.end());
    first += segment.n_rows;
  }
  for (const Index n_threads : {1, 2, 4, 9}) {
    CAPTURE(n_threads);
    const kvdecode_test::BackwardsExecutor exec{n_threads};
    Workspace<float> workspace;
    std::vector<float> y(x.size());
    cross.forward(workspace, exec, 1, std::span<const CrossSegment<Cache>>(segments), rows_of(x, d),
                  RowsView<float>{y.data(), 7, d, d});
    check_same_bits(y, expected);
  }
}

TEST_CASE("cross-attention: rounded activations and rows of any stride keep the law") {
  const CrossAttentionConfig config{
      .n_layers = 1, .d_model = 32, .d_encoder = 64, .n_heads = 2, .n_kv_heads = 1, .head_dim = 32};
  const std::vector<float> encoder = draws<float>(40 * 64, 3), x = draws<float>(5 * 32, 4);
  CrossAttentionWeights weights = random_weights(config);
  // Matrices of random bytes in blocks of 32, with a scale of 2^-7.
  kvdecode_test::SplitMix64 random(5);
  std::vector<std::vector<std::byte>> blocks;
  for (LinearWeights* w : {&weights.layers[0].w_q, &weights.layers[0].w_k, &weights.layers[0].w_v}) {
    MatrixView& matrix = w->matrix;
    const Index n_bytes = matrix.rows * Q8_0::row_bytes(matrix.cols);
    std::vector<std::byte>& bytes = blocks.emplace_back();
    for (Index i = 0; i < n_bytes; ++i) bytes.push_back(static_cast<std::byte>(random.below(256)));
    for (std::size_t i = 0; i < bytes.size(); i += 34)
      bytes[i] = std::byte{0}, bytes[i + 1] = std::byte{0x20};
    matrix.format = FormatId::kQ8_0;
    matrix.data = bytes.data();
    matrix.stride = Q8_0::row_bytes(matrix.cols);
  }
  const CrossAttention<float, Int8Activations, FormatList<F32, Q8_0>> cross(config, weights);
  const auto run = [&](Index n_fill, Index n_rows, ExecutorRef exec) {
    Workspace<float> workspace;
    CrossAttentionCache<F16> cache(cross.kv_shape(), 40);
    for (Index done = 0; done < 40; done += n_fill)
      cross.fill(workspace, exec,
                 RowsView<const float>{encoder.data() + done * 64, std::min(n_fill, 40 - done), 64, 64},
                 cache);
    std::vector<float> y(5 * 40, 5.0f);  // 8 numbers between two rows
    for (Index done = 0; done < 5; done += n_rows)
      cross.forward(workspace, exec, 0, cache,
                    RowsView<const float>{x.data() + done * 32, std::min(n_rows, 5 - done), 32, 32},
                    RowsView<float>{y.data() + done * 40, std::min(n_rows, 5 - done), 32, 40});
    return y;
  };
  const std::vector<float> expected = run(40, 5, {});
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK((expected[i] == 5.0f) == (i % 40 >= 32));
  const kvdecode_test::BackwardsExecutor exec{3};
  check_same_bits(run(1, 1, {}), expected);
  check_same_bits(run(16, 2, exec), expected);
}

TEST_CASE("cross-attention: a step allocates nothing, once the workspace has seen such a call") {
  const CrossAttentionConfig config = small_config();
  const CrossAttention<float> cross(config, random_weights(config));
  const std::vector<float> encoder = draws<float>(300 * config.d_encoder, 3),
                           x = draws<float>(3 * config.d_model, 4);
  CrossAttentionCache<F16> cache(cross.kv_shape(), 300);
  fill(cross, encoder, cache);
  cache.seal();
  Workspace<float> workspace;
  std::vector<float> y(x.size());
  const auto step = [&](Index layer) {
    cross.forward(workspace, {}, layer, cache, rows_of(x, config.d_model),
                  RowsView<float>{y.data(), 3, config.d_model, config.d_model});
  };
  step(0);
  AllocationHook hook;
  const ScopedAllocationHook scope(hook);
  for (const Index layer : {0, 1, 0}) step(layer);
  CHECK(hook.n_allocations == 0);
}

// ---- Refusals ----------------------------------------------------------------------------------------------

TEST_CASE("cross-attention: configs that cannot be, and weights that do not fit, are refused by name") {
  const auto check = [](ErrorCode code, const std::string& text, auto&& change) {
    CrossAttentionConfig config = small_config();
    CrossAttentionWeights weights = random_weights(config);
    change(config, weights.layers);
    check_refused(code, text, [&] { CrossAttention<float>(config, weights); });
  };
  using Config = CrossAttentionConfig;
  using Layers = std::vector<CrossAttentionLayerWeights>;
  constexpr ErrorCode kBad = ErrorCode::kBadArgument, kMismatch = ErrorCode::kMismatch;
  check(kBad, "model config: d_encoder must be positive, got 0", [](Config& c, Layers&) { c.d_encoder = 0; });
  check(kBad, "model config: n_heads 4 is not a multiple of n_kv_heads 3",
        [](Config& c, Layers&) { c.n_kv_heads = 3; });
  check(kBad, "model config: head_dim 4611686018427387904 is beyond any model (2^30)",
        [](Config& c, Layers&) { c.head_dim = Index{1} << 62; });
  check(kBad, "model config: attention_scale must be in [0, 1e6], got -1",
        [](Config& c, Layers&) { c.attention_scale = -1.0; });
  check(kBad, "model config: norm_eps must be in [0, 1], got 2",
        [](Config& c, Layers&) { c.norm_eps = 2.0; });
  check(kMismatch, "weights: 1 layers of cross-attention, expected 2",
        [](Config&, Layers& l) { l.pop_back(); });
  check(kMismatch, "weights: cross-attention layer 1 w_k is [64, 19], expected [64, 20]",
        [](Config&, Layers& l) { l[1].w_k.matrix.cols = 19; });
  check(kMismatch, "weights: cross-attention layer 0 w_o is missing",
        [](Config&, Layers& l) { l[0].w_o = {}; });
  check(kMismatch, "weights: cross-attention layer 0 w_v bias has 3 elements, expected 64",
        [](Config&, Layers& l) { l[0].w_v.bias.size = 3; });
  check(kMismatch, "weights: cross-attention layer 0 q_norm is missing",
        [](Config& c, Layers&) { c.qk_norm = QkNormKind::kPerHead; });
  check(ErrorCode::kUnsupported,
        "weights: cross-attention layer 0 w_q is stored as q8_0, which is not in this transformer's list of "
        "formats",
        [](Config&, Layers& l) { l[0].w_q.matrix.format = FormatId::kQ8_0; });
}

TEST_CASE("cross-attention: calls that cannot be are refused, and change nothing") {
  using Cache = CrossAttentionCache<>;
  const CrossAttentionConfig config = small_config();
  const CrossAttention<float> cross(config, random_weights(config));
  const std::vector<float> encoder = draws<float>(9 * config.d_encoder, 3),
                           x = draws<float>(3 * config.d_model, 4);
  const RowsView<const float> outputs = rows_of(encoder, config.d_encoder), rows = rows_of(x, config.d_model);
  std::vector<float> numbers(x.size(), 5.0f);
  RowsView<float> y{numbers.data(), 3, config.d_model, config.d_model};
  Workspace<float> workspace;
  Cache cache(cross.kv_shape(), 20), empty(cross.kv_shape(), 20);
  fill(cross, encoder, cache);
  Cache other(KvShape{{cross.kv_shape().layers[0]}}, 20);
  constexpr ErrorCode kBad = ErrorCode::kBadArgument, kMismatch = ErrorCode::kMismatch;

  check_refused(kBad, "cross-attention: the encoder's outputs have 24 columns, expected 20",
                [&] { cross.fill(workspace, {}, rows, cache); });
  check_refused(kMismatch, "cross-attention: the cache of segment 0 was made for another KvShape",
                [&] { cross.fill(workspace, {}, outputs, other); });
  check_refused(ErrorCode::kCacheFull, "KV cache full: max_seq_len 20, kv_len 18, n_new 9", [&] {
    fill(cross, encoder, cache);
    fill(cross, encoder, cache);
  });
  CHECK(cache.kv_len() == 18);
  cache.seal();
  check_refused(ErrorCode::kUnsupported,
                "KV cache: cannot append 9 positions to the encoder outputs of cross-attention, which were "
                "sealed at kv_len 18; clear() makes room for others",
                [&] { cross.fill(workspace, {}, outputs, cache); });
  cross.fill(workspace, {}, RowsView<const float>{encoder.data(), 0, config.d_encoder, config.d_encoder},
             cache);
  CHECK(cache.kv_len() == 18);

  for (const Index layer : {-1, 2})
    check_refused(kBad, "cross-attention: layer " + std::to_string(layer) + " is not one of 2",
                  [&] { cross.forward(workspace, {}, layer, cache, rows, y); });
  check_refused(kBad, "cross-attention: x has 20 columns, expected 24",
                [&] { cross.forward(workspace, {}, 0, cache, outputs, y); });
  check_refused(kBad, "cross-attention: y has 23 columns, expected 24", [&] {
    cross.forward(workspace, {}, 0, cache, rows, RowsView<float>{numbers.data(), 3, 23, 24});
  });
  check_refused(kBad, "cross-attention: x has 3 rows, y 2, the segments 3", [&] {
    cross.forward(workspace, {}, 0, cache, rows, RowsView<float>{numbers.data(), 2, 24, 24});
  });
  check_refused(kBad, "cross-attention: the cache of segment 0 has no encoder outputs",
                [&] { cross.forward(workspace, {}, 0, empty, rows, y); });
  check_refused(kMismatch, "cross-attention: the cache of segment 0 was made for another KvShape",
                [&] { cross.forward(workspace, {}, 0, other, rows, y); });
  const auto check_segments = [&](const std::string& text, const std::vector<CrossSegment<Cache>>& segments) {
    check_refused(kBad, text, [&] {
      cross.forward(workspace, {}, 0, std::span<const CrossSegment<Cache>>(segments), rows, y);
    });
  };
  check_segments("cross-attention: segment 1 has no cache", {{&cache, 1}, {nullptr, 2}});
  check_segments("cross-attention: segment 1 has 3 rows, x has 2 left", {{&cache, 1}, {&cache, 3}});
  check_segments("cross-attention: segment 1 has -1 rows, x has 2 left", {{&cache, 1}, {&cache, -1}});
  check_segments("cross-attention: x has 3 rows, y 3, the segments 2", {{&cache, 2}});
  CHECK(numbers == std::vector<float>(x.size(), 5.0f));
  cross.forward(workspace, {}, 0, cache, rows, y);
  CHECK(numbers != std::vector<float>(x.size(), 5.0f));
}

TEST_CASE("cross-attention: as README.md shows it") {
  const CrossAttentionConfig config = small_config();
  const CrossAttentionWeights weights = random_weights(config);
  constexpr Index n_outputs = 30;
  const std::vector<float> encoder = draws<float>(n_outputs * config.d_encoder, 3),
                           row = draws<float>(config.d_model, 4);
  const RowsView<const float> outputs = rows_of(encoder, config.d_encoder), x = rows_of(row, config.d_model);
  std::vector<float> numbers(row.size());
  const RowsView<float> y{numbers.data(), 1, config.d_model, config.d_model};
  const ExecutorRef exec;
  const Index layer = 1;
  // [readme]
  const kvdecode::CrossAttention<float> cross(config, weights);
  kvdecode::CrossAttentionCache<kvdecode::F16> encoding(cross.kv_shape(), n_outputs);
  kvdecode::Workspace<float> workspace;
  cross.fill(workspace, exec, outputs, encoding);  // [n_outputs, d_encoder], in one call or in several
  encoding.seal();
  const auto beam = encoding.fork();                  // refers to the same rows
  cross.forward(workspace, exec, layer, beam, x, y);  // [n_new, d_model], in every layer of every step
  // [readme]
  check_same_bits(numbers, canonical<F16, F16>(config, weights.layers[1], encoder, row));
}

}  // namespace

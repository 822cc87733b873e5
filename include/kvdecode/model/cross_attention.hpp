// SPDX-License-Identifier: MIT
// <kvdecode/model/cross_attention.hpp> - the cross-attention of all layers of an encoder-decoder model, by itself: a
// program that has an encoder and the rest of a decoder fills a cache with it once, and asks it layer by layer.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/simd/fp_env.hpp>
#include <kvdecode/layers/cross_attention.hpp>
#include <kvdecode/model/check_weights.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/decode_weights.hpp>
#include <kvdecode/model/weights.hpp>
#include <kvdecode/model/workspace.hpp>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// The sizes of cross-attention, alike in all layers. `validate()` says whether it can be run.
struct CrossAttentionConfig {
  Index n_layers = 0;
  Index d_model = 0;    // of the decoder's rows
  Index d_encoder = 0;  // of the encoder's outputs
  Index n_heads = 0;
  Index n_kv_heads = 0;  // divides n_heads
  Index head_dim = 0;
  double attention_scale = 0.0;  // of the scores; 0: 1 / sqrt(head_dim)
  QkNormKind qk_norm = QkNormKind::kNone;
  NormKind norm = NormKind::kRms;  // of queries and keys
  double norm_eps = 1e-5;

  /// @throws Error kBadArgument that says what cannot be
  void validate() const;

  /// What a cache has to hold. @pre validate() passes
  KvShape kv_shape() const {
    KvShape shape;
    for (Index layer = 0; layer < n_layers; ++layer)
      shape.layers.push_back({n_kv_heads, head_dim, head_dim, {}, layer});
    return shape;
  }
};

/// One layer. What the config has no use for is empty.
struct CrossAttentionLayerWeights {
  LinearWeights w_q;   // [n_heads * head_dim, d_model]
  LinearWeights w_k;   // [n_kv_heads * head_dim, d_encoder]
  LinearWeights w_v;   // [n_kv_heads * head_dim, d_encoder]
  LinearWeights w_o;   // [d_model, n_heads * head_dim]
  NormWeights q_norm;  // [head_dim] or [n_heads * head_dim]
  NormWeights k_norm;  // [head_dim] or [n_kv_heads * head_dim]
};

/// All layers. Copies share the numbers: `owners` keeps the mapped files or heap blocks alive.
struct CrossAttentionWeights {
  std::vector<CrossAttentionLayerWeights> layers;
  std::vector<std::shared_ptr<const void>> owners{};
};

/// Some rows of one sequence of the decoder, and the cache of the encoder outputs that they see.
template <class Cache>
struct CrossSegment {
  const Cache* cache = nullptr;
  Index n_rows = 1;
};

inline void CrossAttentionConfig::validate() const {
  detail::require_sane(n_layers, "n_layers");
  detail::require_sane(d_model, "d_model");
  detail::require_sane(d_encoder, "d_encoder");
  detail::require_sane(n_heads, "n_heads");
  detail::require_sane(n_kv_heads, "n_kv_heads");
  detail::require_sane(head_dim, "head_dim");
  detail::require_sane(n_heads * head_dim, "n_heads * head_dim");
  detail::require_sane_product({n_layers, std::max(d_model, d_encoder), n_heads, head_dim},
                               "n_layers * (d_model or d_encoder) * n_heads * head_dim");
  if (n_heads % n_kv_heads != 0) [[unlikely]]
    detail::raise(ErrorCode::kBadArgument, "model config: n_heads ", n_heads,
                  " is not a multiple of n_kv_heads ", n_kv_heads);
  if (!(attention_scale >= 0.0) || attention_scale > 1e6) [[unlikely]]
    detail::raise(ErrorCode::kBadArgument, "model config: attention_scale must be in [0, 1e6], got ",
                  attention_scale);
  if (!(norm_eps >= 0.0) || norm_eps > 1.0) [[unlikely]]
    detail::raise(ErrorCode::kBadArgument, "model config: norm_eps must be in [0, 1], got ", norm_eps);
}

namespace detail {

/// Throws Error (kMismatch, kUnsupported) that names the first matrix or vector that does not fit the config.
template <class Formats>
void check_cross_attention(const CrossAttentionConfig& config, const CrossAttentionWeights& weights) {
  if (static_cast<Index>(weights.layers.size()) != config.n_layers) [[unlikely]]
    raise(ErrorCode::kMismatch, "weights: ", weights.layers.size(), " layers of cross-attention, expected ",
          config.n_layers);
  const Index q_dim = config.n_heads * config.head_dim, kv_dim = config.n_kv_heads * config.head_dim;
  const bool is_whole = config.qk_norm == QkNormKind::kWhole;
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const CrossAttentionLayerWeights& layer = weights.layers[i];
    const WeightChecker<Formats> at("cross-attention layer " + std::to_string(i) + " ");
    at.linear("w_q", layer.w_q, q_dim, config.d_model);
    at.linear("w_k", layer.w_k, kv_dim, config.d_encoder);
    at.linear("w_v", layer.w_v, kv_dim, config.d_encoder);
    at.linear("w_o", layer.w_o, config.d_model, q_dim);
    if (config.qk_norm == QkNormKind::kNone) continue;
    at.norm("q_norm", layer.q_norm, config.norm, is_whole ? q_dim : config.head_dim);
    at.norm("k_norm", layer.k_norm, config.norm, is_whole ? kv_dim : config.head_dim);
  }
}

}  // namespace detail

/// Cross-attention that computes in scalars S. A handle: copies share the weights and are cheap; any threads may use them
/// at the same time, each with its own workspace.
///
/// Outputs do not depend, in a single bit, on how encoder outputs were cut into calls of fill(), how rows are cut into
/// calls of forward(), what other rows are in the call, the cache's layout, or the threads.
///
/// @tparam Activations  what is done to activations before a product: ExactActivations or Int8Activations
/// @tparam Formats      the storage formats that matrices may have
template <Scalar S = float, ActivationPolicy Activations = ExactActivations, class Formats = CoreFormats>
class CrossAttention {
 public:
  using scalar = S;

  /// Matrices stay where they are; vectors (norms, biases) are copied to S.
  /// @throws Error kBadArgument (the config cannot be run), kMismatch or kUnsupported (the weights do not fit it)
  CrossAttention(const CrossAttentionConfig& config, CrossAttentionWeights weights) {
    config.validate();
    detail::check_cross_attention<Formats>(config, weights);
    model_ = with_default_fp_env([&] { return std::make_shared<const Model>(config, std::move(weights)); });
  }

  const CrossAttentionConfig& config() const noexcept { return model_->config; }
  const KvShape& kv_shape() const noexcept { return model_->kv_shape; }

  /// Appends the keys and values that all layers make of encoder outputs: once for all steps of a decoder, in one call or
  /// several. 2 flops a weight of w_k and w_v and an output.
  ///
  /// A call that throws leaves the cache as it was. What the workspace held is lost.
  /// @param encoder  [n, d_encoder]
  /// @throws Error kBadArgument (other columns), kCacheFull, kMismatch (a cache of another shape), kUnsupported (a sealed
  /// one), std::bad_alloc
  template <KvCacheFor<S> Cache>
  void fill(Workspace<S>& workspace, ExecutorRef exec, RowsView<const S> encoder, Cache& cache) const {
    with_default_fp_env([&] {
      check_shape(cache.shape(), 0);
      check_cols("the encoder's outputs have ", encoder.cols, model_->config.d_encoder);
      const Index at_once = std::max<Index>(0, std::min({encoder.rows, cache.max_append(), kRowsAtOnce}));
      WorkspaceSizes sizes;
      sizes.k_dim = sizes.v_dim = model_->config.n_kv_heads * model_->config.head_dim;
      prepare(workspace, exec, at_once, {model_->config.d_encoder}, sizes);
      workspace.segments().assign(1, PassSegment{});
      cache.reserve(encoder.rows);
      const Segment<Cache> segment{&cache};
      const KvPort<S> kv{&segment, &detail::append_rows<S, Segment<Cache>>};
      for (Index done = 0; done < encoder.rows;) {
        const Index n = std::min(at_once, encoder.rows - done);
        workspace.segments().front().n_rows = n;
        const Pass<S> pass{exec, workspace.segments(), kv, {}, workspace.buffers(n)};
        for (const CrossAttentionLayer<S>& layer : model_->layers)
          layer.template fill<Products>(pass, {encoder.row(done), n, encoder.cols, encoder.stride});
        cache.commit();
        done += n;
      }
    });
  }

  /// What rows of the decoder see in the encoder's outputs that their caches have, in one layer: all of them, whatever the
  /// rows' own positions are. O(kv_len) a row; allocates nothing once the workspace has seen such a call.
  ///
  /// The caches are read, not changed: segments may have the same one, and any threads may read it. What the workspace held
  /// is lost.
  /// @param x, y  [N, d_model], the segments' rows one after another; apart
  /// @throws Error kBadArgument (a layer, segments or rows that are not there, an empty cache), kMismatch (a cache of
  /// another shape), std::bad_alloc: y is unchanged
  template <KvCacheFor<S> Cache>
  void forward(Workspace<S>& workspace, ExecutorRef exec, Index layer,
               std::span<const CrossSegment<Cache>> segments, RowsView<const S> x, RowsView<S> y) const {
    with_default_fp_env([&] {
      const CrossAttentionConfig& config = model_->config;
      if (layer < 0 || layer >= config.n_layers) [[unlikely]]
        detail::raise(ErrorCode::kBadArgument, "cross-attention: layer ", layer, " is not one of ",
                      config.n_layers);
      check_cols("x has ", x.cols, config.d_model);
      check_cols("y has ", y.cols, config.d_model);
      plan(workspace, segments, x.rows, y.rows);
      if (x.rows == 0) return;
      WorkspaceSizes sizes;
      sizes.q_dim = sizes.attention_dim = config.n_heads * config.head_dim;
      const Index group_size = config.n_heads / config.n_kv_heads;
      sizes.scratch = attention_layer_scratch(group_size, config.head_dim);
      sizes.tile_states = attention_tile_states(group_size, config.head_dim, exec.concurrency());
      prepare(workspace, exec, x.rows, {config.d_model, sizes.q_dim}, sizes);
      const KvPort<S> kv{segments.data(), nullptr, &detail::attend_row<S, CrossSegment<Cache>>,
                         transform_of<typename Cache::KeyFormat>(),
                         transform_of<typename Cache::ValueFormat>()};
      const Pass<S> pass{exec, workspace.segments(), kv, {}, workspace.buffers(x.rows)};
      model_->layers[static_cast<std::size_t>(layer)].template forward<Products>(pass, x, y);
    });
  }
  /// The rows of one sequence.
  template <KvCacheFor<S> Cache>
  void forward(Workspace<S>& workspace, ExecutorRef exec, Index layer, const Cache& cache,
               RowsView<const S> x, RowsView<S> y) const {
    const CrossSegment<Cache> segment{&cache, x.rows};
    forward(workspace, exec, layer, std::span<const CrossSegment<Cache>>(&segment, 1), x, y);
  }

 private:
  using Products = kvdecode::Products<Activations, Formats>;

  /// Encoder outputs of one pass: the workspace does not grow with their number.
  static constexpr Index kRowsAtOnce = 512;

  struct Model {
    Model(const CrossAttentionConfig& c, CrossAttentionWeights w)
        : config(c), weights(std::move(w)), kv_shape(config.kv_shape()) {
      for (const CrossAttentionLayerWeights& layer : weights.layers)
        layers.push_back({heads(static_cast<Index>(layers.size())), linear(layer.w_q), linear(layer.w_k),
                          linear(layer.w_v), linear(layer.w_o), norm(layer.q_norm), norm(layer.k_norm)});
    }

    static LinearLayer<S> linear(const LinearWeights& w) { return detail::linear_layer<Formats, S>(w); }
    NormLayer<S> norm(const NormWeights& w) const {
      if (config.qk_norm == QkNormKind::kNone) return {};
      return detail::norm_layer<Formats, S>(w, config.norm, config.norm_eps);
    }
    AttentionHeads<S> heads(Index layer) const {
      using kvdecode::sqrt;
      AttentionHeads<S> heads;
      heads.layer = layer;
      heads.n_heads = config.n_heads;
      heads.n_kv_heads = config.n_kv_heads;
      heads.k_dim = heads.v_dim = config.head_dim;
      heads.scale = S(config.attention_scale != 0.0 ? config.attention_scale
                                                    : 1.0 / sqrt(static_cast<double>(config.head_dim)));
      heads.is_causal = false;
      return heads;
    }

    CrossAttentionConfig config;
    CrossAttentionWeights weights;
    KvShape kv_shape;
    std::vector<CrossAttentionLayer<S>> layers;
  };

  void check_shape(const KvShape& shape, std::size_t segment) const {
    if (!(shape == model_->kv_shape)) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, "cross-attention: the cache of segment ", segment,
                    " was made for another KvShape");
  }
  static void check_cols(const char* what, Index cols, Index expected) {
    if (cols != expected) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "cross-attention: ", what, cols, " columns, expected ",
                    expected);
  }

  /// Checks the segments and lists them in the workspace.
  template <class Cache>
  void plan(Workspace<S>& workspace, std::span<const CrossSegment<Cache>> segments, Index x_rows,
            Index y_rows) const {
    workspace.segments().clear();
    Index n_rows = 0;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const CrossSegment<Cache>& segment = segments[i];
      if (segment.cache == nullptr) [[unlikely]]
        detail::raise(ErrorCode::kBadArgument, "cross-attention: segment ", i, " has no cache");
      check_shape(segment.cache->shape(), i);
      const Index kv_len = segment.cache->kv_len();
      if (kv_len == 0) [[unlikely]]
        detail::raise(ErrorCode::kBadArgument, "cross-attention: the cache of segment ", i,
                      " has no encoder outputs");
      if (segment.n_rows < 0 || segment.n_rows > x_rows - n_rows) [[unlikely]]
        detail::raise(ErrorCode::kBadArgument, "cross-attention: segment ", i, " has ", segment.n_rows,
                      " rows, x has ", x_rows - n_rows, " left");
      workspace.segments().push_back({.first_row = n_rows, .n_rows = segment.n_rows, .position = kv_len - 1});
      n_rows += segment.n_rows;
    }
    if (n_rows != x_rows || y_rows != x_rows) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "cross-attention: x has ", x_rows, " rows, y ", y_rows,
                    ", the segments ", n_rows);
  }

  /// Room for products of rows of some lengths, and for what else the sizes say.
  static void prepare(Workspace<S>& workspace, ExecutorRef exec, Index n_rows,
                      std::initializer_list<Index> d_ins, WorkspaceSizes sizes) {
    sizes.n_rows = n_rows;
    sizes.concurrency = exec.concurrency();
    for (const Index d_in : d_ins) {
      sizes.scratch = std::max(sizes.scratch, Activations::template scratch<S>(d_in, n_rows));
      sizes.rounded_bytes =
          std::max(sizes.rounded_bytes, Activations::template rounded_bytes<S>(d_in, n_rows));
    }
    workspace.prepare(sizes);
  }

  std::shared_ptr<const Model> model_;
};

}  // namespace kvdecode

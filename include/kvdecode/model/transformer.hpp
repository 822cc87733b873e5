// SPDX-License-Identifier: MIT
// <kvdecode/model/transformer.hpp> - a decoder-only transformer: config and weights, ready to run new tokens
// of one or many sequences against their caches. Immutable; what changes between calls is in the caches.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/layers/decoder_layer.hpp>
#include <kvdecode/layers/embedding.hpp>
#include <kvdecode/layers/layer_inputs.hpp>
#include <kvdecode/model/check_weights.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/decode_weights.hpp>
#include <kvdecode/model/fingerprint.hpp>
#include <kvdecode/model/rotary_frequencies.hpp>
#include <kvdecode/model/weights.hpp>
#include <kvdecode/model/workspace.hpp>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <span>

namespace kvdecode::inline KVDECODE_ABI {

/// A model that computes in scalars S. A handle: copies share the weights and are cheap; any threads may use
/// them at the same time, each with its own workspace and caches.
///
/// @tparam Activations  what is done to activations before a product: ExactActivations or Int8Activations
/// @tparam Formats      the storage formats that matrices may have
template <Scalar S = float, ActivationPolicy Activations = ExactActivations, class Formats = CoreFormats>
class Transformer {
 public:
  using scalar = S;
  using activations = Activations;
  using formats = Formats;

  /// Matrices stay where they are; vectors (norms, biases) are copied to S.
  /// @throws Error kBadArgument (the config cannot be run), kMismatch or kUnsupported (the weights do not fit
  /// it)
  Transformer(ModelConfig config, Weights weights) {
    config.validate();
    check_weights<Formats>(config, weights);
    model_ = with_default_fp_env(
        [&] { return std::make_shared<const Model>(std::move(config), std::move(weights)); });
  }

  const ModelConfig& config() const noexcept { return model_->config; }
  const Weights& weights() const noexcept { return model_->weights; }
  const KvShape& kv_shape() const noexcept { return model_->kv_shape; }
  /// The number that stands for config and weights, never 0. The first call on any of the handles that share them reads
  /// all weights, which takes as long as a few tokens; later ones are O(1).
  std::uint64_t fingerprint() const {
    std::uint64_t value = model_->fingerprint.load(std::memory_order_relaxed);
    if (value != 0) return value;
    value = kvdecode::fingerprint<Formats>(config(), weights());  // threads that meet here find the same
    model_->fingerprint.store(value, std::memory_order_relaxed);
    return value;
  }

  /// Runs the segments' tokens through all layers, appends their keys and values to their caches and returns
  /// the rows of logits asked for, in the order of the segments: [n_rows, vocab_size], in the workspace until
  /// its next use.
  ///
  /// Row i of a segment is the distribution of the token after its token i. Every row passes through every
  /// layer; `Segment::logits` limits only the final norm and the head. Cost: 2 flops a weight and new token,
  /// and O(kv_len + n_new) a new token in attention. Allocates nothing once the workspace has seen such a
  /// call.
  ///
  /// Plan, then run: a call that throws leaves caches and sequences as they were.
  /// @throws Error kBadArgument (token id, empty segment, position, epoch, the same cache twice), kCacheFull,
  /// kMismatch (a cache of another shape), std::bad_alloc
  template <KvCacheFor<S> Cache>
  RowsView<const S> forward(Workspace<S>& workspace, ExecutorRef exec,
                            std::span<const Segment<Cache>> segments) const {
    return with_default_fp_env([&] {
      plan(workspace, exec, segments);
      run(workspace, exec, segments);
      return RowsView<const S>(workspace.logits());
    });
  }
  /// One sequence: a batch of one.
  template <KvCacheFor<S> Cache>
  RowsView<const S> forward(Workspace<S>& workspace, ExecutorRef exec, const Segment<Cache>& segment) const {
    return forward(workspace, exec, std::span<const Segment<Cache>>(&segment, 1));
  }

 private:
  using Products = kvdecode::Products<Activations, Formats>;

  struct Model {
    Model(ModelConfig c, Weights w)
        : config(std::move(c)), weights(std::move(w)), kv_shape(config.kv_shape()) {
      limits.push_back(std::numeric_limits<Index>::max());
      embedding = {weights.token_embedding, weights.position_embedding, config.embedding_scale};
      final_norm = norm(weights.final_norm);
      head = linear(weights.head);
      if (config.tied_head) head.w = weights.token_embedding;
      if (config.d_layer_input > 0)
        layer_inputs = {weights.layer_embedding, S(config.layer_embedding_scale),
                        linear(weights.w_layer_inputs), norm(weights.layer_input_norm)};
      layers.reserve(weights.layers.size());
      for (Index i = 0; i < config.n_layers; ++i) layers.push_back(layer(i));
    }

    NormLayer<S> norm(const NormWeights& w) const {
      NormLayer<S> result = detail::norm_layer<Formats, S>(w, config.norm, config.norm_eps);
      if (config.norm_weight_offset != 0.0)
        for (S& weight : result.weight) weight = weight + S(config.norm_weight_offset);
      return result;
    }
    static LinearLayer<S> linear(const LinearWeights& w) { return detail::linear_layer<Formats, S>(w); }
    DecoderLayer<S> layer(Index i) {
      const LayerWeights& w = weights.layers[static_cast<std::size_t>(i)];
      DecoderLayer<S> result;
      result.residual = config.residual;
      result.attention_norm = norm(w.attention_norm);
      result.attention_post_norm = norm(w.attention_post_norm);
      result.feed_forward_norm = norm(w.feed_forward_norm);
      result.feed_forward_post_norm = norm(w.feed_forward_post_norm);
      if (config.is_latent())
        result.latent_attention = latent_attention(i, w);
      else
        result.attention = attention(i, w);
      if (config.d_layer_input > 0) {
        result.inputs = {i, config.activation, linear(w.w_input_gate), linear(w.w_input_out)};
        result.input_post_norm = norm(w.input_post_norm);
      }
      result.scale = S(w.scale);
      result.is_scaled = w.scale != 1.0;
      if (!config.layer_has_experts(i)) {
        result.feed_forward = feed_forward({w.w_gate, w.w_up, w.w_down});
        return result;
      }
      result.experts.n_used = config.n_experts_used;
      result.experts.normalize = config.normalize_expert_weights;
      result.experts.score = config.expert_score;
      result.experts.n_groups = config.n_expert_groups;
      result.experts.n_groups_used = config.n_expert_groups_used;
      result.experts.group_score = config.expert_group_score;
      result.experts.scale = S(config.expert_weight_scale);
      result.experts.is_scaled = config.expert_weight_scale != 1.0;
      result.experts.router = linear(w.router);
      result.experts.choice_bias = detail::decode_vector<Formats, S>(w.choice_bias);
      for (const ExpertWeights& expert : w.experts) result.experts.experts.push_back(feed_forward(expert));
      if (config.d_shared_expert > 0) result.experts.shared = feed_forward(w.shared_expert);
      return result;
    }
    AttentionHeads<S> attention_heads(Index i) {
      using kvdecode::sqrt;
      AttentionHeads<S> heads;
      heads.layer = i;
      heads.n_heads = config.n_heads;
      heads.n_kv_heads = config.n_kv_heads;
      const Index head_dim = config.head_dim_of(i);
      heads.k_dim = config.k_dim(head_dim);
      heads.v_dim = config.v_dim(head_dim);
      heads.scale = S(config.attention_scale != 0.0 ? config.attention_scale
                                                    : 1.0 / sqrt(static_cast<double>(head_dim)));
      heads.span = config.span(i);
      heads.soft_cap = S(config.attention_soft_cap);
      heads.rotary = rotary_number(config.rotary_of(i), config.rotary_dim_of(i));
      heads.n_pairs = config.rotary_dim_of(i) / 2;
      heads.pairs = config.rotary_of(i).pairs;
      heads.sink_limit = heads.n_pairs == 0 ? 0 : sink_limit(heads.span);
      return heads;
    }
    AttentionLayer<S> attention(Index i, const LayerWeights& w) {
      AttentionLayer<S> result;
      result.heads = attention_heads(i);
      result.w_q = linear(w.w_q);
      result.q_norm = norm(w.q_norm);
      result.w_o = linear(w.w_o);
      if (!config.owns_store(i)) return result;
      result.w_k = linear(w.w_k);
      result.w_v = linear(w.w_v);
      result.k_norm = norm(w.k_norm);
      if (config.value_norm)
        result.v_norm = {NormKind::kRms,
                         S(config.norm_eps),
                         Vector<S>(static_cast<std::size_t>(result.heads.v_dim), S(1.0f)),
                         {}};
      return result;
    }
    LatentAttentionLayer<S> latent_attention(Index i, const LayerWeights& w) {
      LatentAttentionLayer<S> result;
      result.heads = attention_heads(i);
      result.qk_nope_head_dim = config.qk_nope_head_dim;
      result.v_head_dim = config.v_head_dim;
      if (config.q_lora_rank > 0) result.w_q_a = linear(w.w_q_a);
      result.q_a_norm = norm(w.q_a_norm);
      result.w_q = linear(w.w_q);
      result.w_kv_a = linear(w.w_kv_a);
      result.kv_a_norm = norm(w.kv_a_norm);
      result.q_a_norm.eps = result.kv_a_norm.eps = S(config.latent_norm_eps);
      result.w_k_b.assign(w.w_k_b.begin(), w.w_k_b.end());
      result.w_v_b.assign(w.w_v_b.begin(), w.w_v_b.end());
      result.w_o = linear(w.w_o);
      return result;
    }
    FeedForwardLayer<S> feed_forward(const ExpertWeights& w) const {
      return {config.activation, config.gated_feed_forward,
              config.gated_feed_forward ? linear(w.w_gate) : LinearLayer<S>{}, linear(w.w_up),
              linear(w.w_down)};
    }
    /// The number of a rotary config among those that differ, in themselves or in how many elements they turn.
    Index rotary_number(const RotaryConfig& rotary, Index dim) {
      for (std::size_t i = 0; i < rotaries.size(); ++i)
        if (rotaries[i].config == rotary && rotaries[i].dim == dim) return static_cast<Index>(i);
      rotaries.push_back({rotary, dim, Vector<double>(static_cast<std::size_t>(dim / 2))});
      rotary_frequencies(rotary, dim, 0, rotaries.back().frequencies.data());
      n_angles = std::max(n_angles, dim / 2);
      return static_cast<Index>(rotaries.size()) - 1;
    }
    /// The number of the position at which queries of such a layer stand for sinks; 0 where it is their own.
    Index sink_limit(const AttentionSpan& span) {
      if (config.sink_rotation != SinkRotation::kWithinWindow || span.n_sink == 0) return 0;
      const Index limit = span.n_sink + span.window - 1;
      const auto found = std::find(limits.begin() + 1, limits.end(), limit);
      if (found == limits.end()) {
        limits.push_back(limit);
        return static_cast<Index>(limits.size()) - 1;
      }
      return static_cast<Index>(found - limits.begin());
    }

    ModelConfig config;
    Weights weights;
    KvShape kv_shape;
    struct Rotary {
      RotaryConfig config;
      Index dim;                   // elements of a head that turn
      Vector<double> frequencies;  // [dim / 2], of epoch 0
    };
    Vector<Rotary> rotaries;  // those of the layers, each once
    Index n_angles = 0;       // the most pairs of one of them
    Vector<Index> limits;     // positions beyond which a query does not stand: none, then those of sinks
    EmbeddingLayer embedding;
    LayerInputs<S> layer_inputs;
    std::vector<DecoderLayer<S>> layers;
    NormLayer<S> final_norm;
    LinearLayer<S> head;
    mutable std::atomic<std::uint64_t> fingerprint{0};  // 0: not known yet
  };

  /// Rows of logits that a segment asks for in a pass of n_rows of its tokens.
  static Index logit_rows(Rows logits, Index n_rows, bool has_last) noexcept {
    if (logits == Rows::kAll) return n_rows;
    return logits == Rows::kLast && has_last ? 1 : 0;
  }

  /// Checks the whole call, makes room in the workspace and in every cache. Throws with nothing changed.
  template <class Cache>
  void plan(Workspace<S>& workspace, ExecutorRef exec, std::span<const Segment<Cache>> segments) const {
    WorkspaceSizes sizes;
    workspace.shifts().assign(1, 0);
    workspace.segments().clear();
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const Segment<Cache>& segment = segments[i];
      check_cache(segments, i);
      const Cache& cache = *segment.cache;
      workspace.segments().push_back(
          {segment.tokens, segment.logits, cache.epoch(), 0, 0, 0, cache.kv_len()});
      check_tokens(workspace.segments().back(), i);
      const Index n = static_cast<Index>(segment.tokens.size()), n_rows = std::min(n, cache.max_append());
      sizes.n_rows += n_rows;
      sizes.n_logit_rows += logit_rows(segment.logits, n, true);
      sizes.n_head_rows += logit_rows(segment.logits, n_rows, true);
      collect_shifts(cache, workspace.shifts());
    }
    prepare(workspace, exec, sizes);
    std::size_t reserved = 0;
    try {
      for (; reserved < segments.size(); ++reserved)
        segments[reserved].cache->reserve(static_cast<Index>(segments[reserved].tokens.size()));
    } catch (...) {
      while (reserved-- > 0) segments[reserved].cache->abandon();
      throw;
    }
  }

  template <class Cache>
  void check_cache(std::span<const Segment<Cache>> segments, std::size_t i) const {
    if (segments[i].cache == nullptr) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "forward: segment ", i, " has no cache");
    for (std::size_t j = 0; j < i; ++j)
      if (segments[j].cache == segments[i].cache) [[unlikely]]
        detail::raise(ErrorCode::kBadArgument, "forward: segments ", j, " and ", i, " share a cache");
    if (!(segments[i].cache->shape() == model_->kv_shape)) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, "forward: the cache of segment ", i,
                    " was made for another model's KvShape");
  }

  void check_tokens(const PassSegment& segment, std::size_t i) const {
    const ModelConfig& config = model_->config;
    if (segment.tokens.empty()) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "forward: segment ", i, " has no tokens");
    for (const TokenId token : segment.tokens)
      if (token < 0 || token >= config.vocab_size) [[unlikely]]
        detail::raise(ErrorCode::kBadArgument, "token id ", token, " is outside the vocabulary of ",
                      config.vocab_size);
    const Index n = segment.n_tokens(), kv_len = segment.position;
    if (config.position == PositionKind::kLearned && n > config.max_seq_len - kv_len) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "the model has learned positions up to max_seq_len ",
                    config.max_seq_len, ", kv_len ", kv_len, ", n_new ", n);
    for (Index row = n - logit_rows(segment.logits, n, true); row < n; ++row)
      if (config.rotary_epoch(kv_len + row + 1) != segment.epoch) [[unlikely]]
        detail::raise(ErrorCode::kBadArgument, "forward: logits at position ", kv_len + row,
                      " belong to rotary epoch ", config.rotary_epoch(kv_len + row + 1),
                      ", the cache to epoch ", segment.epoch);
  }

  /// Adds the rotation shifts of the cache's runs that are not in the list yet.
  template <class Cache>
  static void collect_shifts(const Cache& cache, Vector<Index>& shifts) {
    for (Index layer = 0; layer < cache.shape().n_layers(); ++layer)
      for (const auto& run : cache.keys(layer, 0))
        if (std::find(shifts.begin(), shifts.end(), run.rotation_shift) == shifts.end())
          shifts.push_back(run.rotation_shift);
  }

  /// Room for a call whose rows are counted.
  void prepare(Workspace<S>& workspace, ExecutorRef exec, WorkspaceSizes sizes) const {
    const ModelConfig& config = model_->config;
    sizes.d_model = config.d_model;
    const Index head_dim = config.max_head_dim(), k_dim = config.k_dim(head_dim),
                v_dim = config.v_dim(head_dim);
    sizes.q_dim = config.n_heads * k_dim;
    sizes.k_dim = config.n_kv_heads * k_dim;
    sizes.v_dim = config.n_kv_heads * v_dim;
    sizes.values_in_keys = config.is_latent();
    sizes.attention_dim = config.n_heads * v_dim;
    sizes.layer_inputs_dim = config.n_layers * config.d_layer_input;
    sizes.q_lora_rank = config.q_lora_rank;
    if (config.is_latent()) sizes.by_head_dim = config.n_heads * std::max(config.head_dim, config.v_head_dim);
    sizes.d_ff = std::max({config.d_ff, config.d_expert, config.d_shared_expert, config.d_layer_input});
    sizes.n_experts = config.n_experts;
    sizes.n_experts_used = config.n_experts_used;
    sizes.n_expert_groups = config.n_expert_groups;
    sizes.vocab_size = config.vocab_size;
    sizes.n_angles = model_->n_angles;
    const Index n_shifts = static_cast<Index>(workspace.shifts().size());
    const Index n_limits = static_cast<Index>(model_->limits.size());
    sizes.n_tables = static_cast<Index>(model_->rotaries.size()) * n_limits * n_shifts;
    sizes.n_rotations = n_shifts * std::min<Index>(2, n_limits);
    sizes.concurrency = exec.concurrency();
    sizes.scratch = attention_layer_scratch(config.group_size(), v_dim);
    sizes.tile_states = attention_tile_states(config.group_size(), v_dim, sizes.concurrency);
    const auto multiply = [&](Index d_in) {
      if (d_in == 0) return;
      const Index n = std::max(sizes.n_rows, sizes.n_head_rows);
      sizes.scratch = std::max(sizes.scratch, Activations::template scratch<S>(d_in, n));
      sizes.rounded_bytes = std::max(sizes.rounded_bytes, Activations::template rounded_bytes<S>(d_in, n));
    };
    for (const Index d_in :
         {sizes.d_model, config.o_dim(), config.d_ff, config.d_expert, config.d_shared_expert,
          config.d_layer_input, config.q_lora_rank, config.qk_nope_head_dim, config.kv_lora_rank})
      multiply(d_in);
    for (const Index dim : config.layer_head_dim) multiply(config.o_dim(dim));  // fewer may need more scratch
    workspace.frequencies().resize(static_cast<std::size_t>(model_->n_angles));
    workspace.prepare(sizes);
  }

  /// All passes of a planned call.
  template <class Cache>
  void run(Workspace<S>& workspace, ExecutorRef exec,
           std::span<const Segment<Cache>> segments) const noexcept {
    const KvPort<S> kv = kv_port<S>(segments);
    while (true) {
      Index n_rows = 0;
      for (std::size_t i = 0; i < segments.size(); ++i) {
        PassSegment& segment = workspace.segments()[i];
        segment.n_done += segment.n_rows;
        segment.first_row = n_rows;
        segment.n_rows = std::min(segment.n_tokens() - segment.n_done, segments[i].cache->max_append());
        segment.position = segments[i].cache->kv_len();
        n_rows += segment.n_rows;
      }
      if (n_rows == 0) return;
      run_pass(workspace, exec, kv, n_rows);
      for (std::size_t i = 0; i < segments.size(); ++i)
        if (workspace.segments()[i].n_rows > 0) segments[i].cache->commit();
    }
  }

  void run_pass(Workspace<S>& workspace, ExecutorRef exec, const KvPort<S>& kv, Index n_rows) const noexcept {
    const Pass<S> pass{
        exec, workspace.segments(), kv, {model_->limits, workspace.shifts()}, workspace.buffers(n_rows)};
    const PassBuffers<S>& buffers = pass.buffers;
    for (const PassSegment& segment : pass.segments) {
      for_each_row(exec, segment.n_rows, [&](Index r) {
        const Index row = segment.first_row + r;
        model_->embedding.template forward<Formats>(
            segment.tokens[static_cast<std::size_t>(segment.n_done + r)], segment.position + r,
            buffers.branch.row(row), buffers.hidden.row(row));
      });
      set_angles(pass, segment, workspace.frequencies());
    }
    if (!model_->layer_inputs.empty()) model_->layer_inputs.template forward<Products>(pass);
    for (const DecoderLayer<S>& layer : model_->layers) layer.template forward<Products>(pass);

    // Rows that were asked for go through the head together where their places are next to one another: all of them,
    // unless a call of several segments takes several passes.
    Index n_together = 0, first = 0, place = 0;
    for (const PassSegment& segment : pass.segments) {
      const bool has_last = segment.n_rows > 0 && segment.n_done + segment.n_rows == segment.n_tokens();
      const Index n = logit_rows(segment.logits, segment.n_rows, has_last);
      const Index to = place + (segment.logits == Rows::kAll ? segment.n_done : 0);
      place += logit_rows(segment.logits, segment.n_tokens(), true);
      if (n == 0) continue;
      if (n_together > 0 && first + n_together != to) {
        run_head(pass, workspace, first, n_together);
        n_together = 0;
      }
      if (n_together == 0) first = to;
      const Index from = segment.first_row + segment.n_rows - n;
      for_each_row(exec, n, [&](Index r) {
        model_->final_norm.apply(buffers.hidden.row(from + r), workspace.head_rows().row(n_together + r));
      });
      n_together += n;
    }
    if (n_together > 0) run_head(pass, workspace, first, n_together);
  }

  /// The logits of the first n rows that the final norm has left, to rows [first, first + n) of the result.
  void run_head(const Pass<S>& pass, Workspace<S>& workspace, Index first, Index n) const noexcept {
    const RowsView<S> rows = workspace.head_rows(), all = workspace.logits();
    const RowsView<S> logits{all.row(first), n, all.cols, all.stride};
    run_linear<Products>(pass, std::array{model_->head.job({rows.data, n, rows.cols, rows.stride}, logits)});
    if (model_->config.logit_soft_cap == 0.0) return;
    for_each_row(pass.exec, n, [&](Index r) {
      kernels::soft_cap(S(model_->config.logit_soft_cap), logits.cols, logits.row(r));
    });
  }

  /// The angles of a segment's rows, in every table of the pass.
  void set_angles(const Pass<S>& pass, const PassSegment& segment,
                  Vector<double>& epoch_frequencies) const noexcept {
    Index table = 0;
    for (const typename Model::Rotary& rotary : model_->rotaries) {
      const double* frequencies = rotary.frequencies.data();
      if (segment.epoch != 0) {
        rotary_frequencies(rotary.config, rotary.dim, segment.epoch, epoch_frequencies.data());
        frequencies = epoch_frequencies.data();
      }
      for (const Index limit : pass.stands.limits)
        for (const Index shift : pass.stands.shifts) {
          const Index first = table++ * pass.n_rows() + segment.first_row;
          for_each_row(pass.exec, segment.n_rows, [&](Index r) {
            const Index at = (first + r) * pass.buffers.n_angles;
            kernels::rotary_angles(std::min(segment.position + r, limit) - shift, frequencies, rotary.dim / 2,
                                   pass.buffers.cosines + at, pass.buffers.sines + at,
                                   rotary.config.scaling.magnitude);
          });
        }
    }
  }

  std::shared_ptr<const Model> model_;
};

}  // namespace kvdecode

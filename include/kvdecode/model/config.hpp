// SPDX-License-Identifier: MIT
// <kvdecode/model/config.hpp> - what a model is, as data: sizes, and one switch for each way in which
// decoders differ.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/kv_shape.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/kernels/activation.hpp>
#include <kvdecode/kernels/norm.hpp>
#include <kvdecode/kernels/rotary.hpp>
#include <kvdecode/layers/expert_score.hpp>
#include <kvdecode/layers/residual.hpp>

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

enum class PositionKind {
  kRotary,   ///< queries and keys are rotated by their position (Su 2021)
  kLearned,  ///< a learned vector a position is added to the embedding
  kNone,     ///< causal order alone
};

enum class RotaryScalingKind {
  kNone,
  kLinear,    ///< every frequency divided by `factor` (Chen 2023)
  kDynamic,   ///< theta grows with the sequence's length beyond original_max_seq_len: an angle epoch a length
  kYarn,      ///< low frequencies divided by `factor`, high ones kept, a ramp between (Peng 2023)
  kLongrope,  ///< each frequency divided by its own factor, one list up to original_max_seq_len, one beyond
  kLlama3,    ///< low frequencies divided by `factor`, high ones kept, a blend by wave length between
  kDivisors,  ///< each frequency divided by its own entry of short_factors
  kProportional,  ///< the first n_turning pairs turn, their frequencies divided by `factor`; the others do not
};

/// How the rotary frequencies are stretched for contexts longer than those trained on.
struct RotaryScaling {
  RotaryScalingKind kind = RotaryScalingKind::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;    // kLlama3
  double high_freq_factor = 4.0;   // kLlama3
  Index original_max_seq_len = 0;  // kDynamic, kYarn, kLongrope, kLlama3: the length trained on, in positions
  double beta_fast = 32.0;         // kYarn: pairs that turn more often than this keep their frequency
  double beta_slow = 1.0;          // kYarn: pairs that turn less often are divided by factor
  bool round_bounds = true;        // kYarn: the ramp starts and ends at whole dimensions
  double magnitude = 1.0;          // cosines and sines are multiplied by it (attention factor)
  std::vector<double> short_factors{};  // kLongrope, kDivisors: [rotary_dim / 2]
  std::vector<double> long_factors{};   // kLongrope: [rotary_dim / 2], beyond original_max_seq_len
  Index n_turning = 0;                  // kProportional: pairs

  friend bool operator==(const RotaryScaling&, const RotaryScaling&) = default;
};

/// Rotary position embedding: pair i turns by position * theta^(-2 i / rotary_dim) radians.
struct RotaryConfig {
  bool enabled = true;  // false: nothing turns
  Index dim = 0;  // elements of a head that turn, even; 0: all of the layer's head_dim, or qk_rope_head_dim
  double theta = 10000.0;
  RotaryPairs pairs = RotaryPairs::kHalves;
  RotaryScaling scaling{};

  friend bool operator==(const RotaryConfig&, const RotaryConfig&) = default;
};

/// What a model is. `validate()` says whether it can be run.
struct ModelConfig {
  Index n_layers = 0;
  Index d_model = 0;
  Index n_heads = 0;
  Index n_kv_heads =
      0;  // divides n_heads: == n_heads is MHA, 1 is MQA (Shazeer 2019), between is GQA (Ainslie 2023)
  Index head_dim = 0;
  Index d_ff = 0;
  Index vocab_size = 0;
  Index max_seq_len = 0;  // positions the model is made for; a hard limit with learned positions

  NormKind norm = NormKind::kRms;
  double norm_eps = 1e-5;
  double norm_weight_offset = 0.0;  // added to the weights of every norm: 1 where they are stored as w - 1
  NormPlacement norm_placement = NormPlacement::kPre;
  QkNormKind qk_norm = QkNormKind::kNone;
  bool value_norm = false;  // each head's values are divided by their root mean square, without weights
  Activation activation = Activation::kSilu;
  bool gated_feed_forward = true;  // down(act(gate(x)) * up(x)); else down(act(up(x)))
  ResidualKind residual = ResidualKind::kSequential;
  PositionKind position = PositionKind::kRotary;
  RotaryConfig rotary{};
  double embedding_scale = 1.0;     // the token's vector is multiplied by it
  double attention_scale = 0.0;     // of the scores; 0: 1 / sqrt(head_dim) of the layer
  double attention_soft_cap = 0.0;  // scores become cap * tanh(score / cap); 0: none
  double logit_soft_cap = 0.0;      // likewise the logits
  bool tied_head = false;           // the token embedding is the head

  // Latent attention (DeepSeek-AI 2024, MLA): the keys and values of all heads are made of one latent a position, which is
  // what a cache keeps, beside a part of the keys that turns and is the same for all heads. n_kv_heads is 1, head_dim
  // qk_nope_head_dim + qk_rope_head_dim. A rank of 0 is attention like any other.
  Index kv_lora_rank = 0;      // numbers of the latent
  Index q_lora_rank = 0;       // numbers behind a norm that queries are made of; 0: they are made of d_model
  Index qk_nope_head_dim = 0;  // elements of a query that meet the latent; the others, behind them, turn
  Index v_head_dim = 0;        // elements of a head's value
  double latent_norm_eps = 1e-6;  // of the norms of both latents

  // Mixture of experts (Shazeer 2017; Fedus 2021): 0 experts is a feed-forward layer like any other.
  Index n_experts = 0;
  Index n_experts_used = 0;              // of the best router scores, a token
  Index d_expert = 0;                    // d_ff of an expert
  bool normalize_expert_weights = true;  // scores of those used are divided by their sum
  double expert_weight_scale = 1.0;      // and multiplied by it
  ExpertScore expert_score = ExpertScore::kSoftmax;
  Index n_expert_groups = 1;       // experts are in groups of one size, one after another
  Index n_expert_groups_used = 1;  // a token's experts are chosen from so many of them
  ExpertGroupScore expert_group_score = ExpertGroupScore::kMaximum;
  Index d_shared_expert = 0;  // d_ff of one more expert, for every token (Dai 2024); 0: none

  // Inputs of the layers (per-layer embeddings of Gemma 3n and 4): each layer has d_layer_input numbers of every token, made
  // of a row of a second embedding and a product of the first one, and adds to the stream at its end what a gate lets
  // through of them.
  Index d_layer_input = 0;             // 0: none
  double layer_embedding_scale = 1.0;  // the token's row of the second embedding is multiplied by it

  // One entry a layer, or none at all: then all layers are alike.
  std::vector<AttentionSpan> spans{};        // none: every layer sees everything
  std::vector<RotaryConfig> layer_rotary{};  // none: `rotary` in every layer
  std::vector<unsigned char> has_experts{};  // none: every layer, if there are experts
  std::vector<Index> layer_head_dim{};       // none: head_dim in every layer
  // The layer whose keys and values each layer reads (Brandon 2024): itself, or an earlier one that has its own and is like
  // it in head_dim, span and rotary positions. None: itself in every layer.
  std::vector<Index> kv_stores{};
  SinkRotation sink_rotation = SinkRotation::kAbsolute;

  Index group_size() const noexcept { return n_heads / n_kv_heads; }
  bool is_latent() const noexcept { return kv_lora_rank > 0; }
  /// Elements of a head's query and key that may turn.
  Index qk_rope_head_dim() const noexcept { return head_dim - qk_nope_head_dim; }
  /// head_dim of a layer, and of the layer that has most.
  Index head_dim_of(Index layer) const noexcept {
    return layer_head_dim.empty() ? head_dim : layer_head_dim[static_cast<std::size_t>(layer)];
  }
  Index max_head_dim() const noexcept {
    return layer_head_dim.empty() ? head_dim
                                  : *std::max_element(layer_head_dim.begin(), layer_head_dim.end());
  }
  /// The layer whose keys and values a layer reads.
  Index store_of(Index layer) const noexcept {
    return kv_stores.empty() ? layer : kv_stores[static_cast<std::size_t>(layer)];
  }
  bool owns_store(Index layer) const noexcept { return store_of(layer) == layer; }
  /// Elements of a row of keys, and of one of values, in a head of `dim` elements.
  Index k_dim(Index dim) const noexcept { return is_latent() ? kv_lora_rank + qk_rope_head_dim() : dim; }
  Index v_dim(Index dim) const noexcept { return is_latent() ? kv_lora_rank : dim; }
  /// Elements that the attention's output matrix reads.
  Index o_dim(Index dim) const noexcept { return n_heads * (is_latent() ? v_head_dim : dim); }
  Index k_dim() const noexcept { return k_dim(head_dim); }
  Index o_dim() const noexcept { return o_dim(head_dim); }
  const RotaryConfig& rotary_of(Index layer) const noexcept {
    return layer_rotary.empty() ? rotary : layer_rotary[static_cast<std::size_t>(layer)];
  }
  /// Elements of a head that turn, of `dim` that may.
  Index rotary_dim(const RotaryConfig& config, Index dim) const noexcept {
    if (position != PositionKind::kRotary || !config.enabled) return 0;
    return config.dim == 0 ? dim : config.dim;
  }
  Index rotary_dim(const RotaryConfig& config) const noexcept {
    return rotary_dim(config, qk_rope_head_dim());
  }
  Index rotary_dim() const noexcept { return rotary_dim(rotary); }
  /// The same of a layer.
  Index rotary_dim_of(Index layer) const noexcept {
    return rotary_dim(rotary_of(layer), head_dim_of(layer) - qk_nope_head_dim);
  }
  bool layer_has_experts(Index layer) const noexcept {
    return n_experts > 0 && (has_experts.empty() || has_experts[static_cast<std::size_t>(layer)] != 0);
  }
  AttentionSpan span(Index layer) const noexcept {
    return spans.empty() ? AttentionSpan{} : spans[static_cast<std::size_t>(layer)];
  }

  /// Throws Error (kBadArgument) that names the first field with which the model cannot be run.
  void validate() const;

  /// What a cache has to hold for this model. @pre validate() passes
  KvShape kv_shape() const;

  /// The angle table that a sequence of seq_len positions is computed with. 0 for every scaling that does not
  /// depend on the length; a cache whose keys were rotated in another epoch cannot be continued.
  Index rotary_epoch(Index seq_len) const noexcept {
    if (layer_rotary.empty()) return rotary_epoch(rotary, seq_len);
    Index epoch = 0;  // at most one rotary config of a model depends on the length: see validate()
    for (const RotaryConfig& config : layer_rotary) epoch = std::max(epoch, rotary_epoch(config, seq_len));
    return epoch;
  }

 private:
  Index rotary_epoch(const RotaryConfig& config, Index seq_len) const noexcept {
    if (rotary_dim(config) == 0) return 0;
    const Index beyond = std::max<Index>(0, seq_len - config.scaling.original_max_seq_len);
    if (config.scaling.kind == RotaryScalingKind::kDynamic) return beyond;
    return config.scaling.kind == RotaryScalingKind::kLongrope && beyond > 0 ? 1 : 0;
  }
  void validate_rotary(const RotaryConfig& config, Index most) const;
  void validate_head_dims() const;
  void validate_stores() const;
  void validate_layer_inputs() const;
  void validate_latent() const;
  void validate_experts() const;
};

namespace detail {

inline void require_positive(Index value, const char* name) {
  if (value <= 0) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: ", name, " must be positive, got ", value);
}
inline void require_sane(Index value, const char* name) {
  require_positive(value, name);
  if (value > (Index{1} << 30)) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: ", name, " ", value, " is beyond any model (2^30)");
}

/// Keeps rotary angles, which are made of quotients and powers of such numbers, finite.
inline void require_moderate(double value, const char* name) {
  if (!(value >= 1e-30) || value > 1e30) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: ", name, " must be in [1e-30, 1e30], got ", value);
}
/// Keeps the model's numbers in bytes, and sums of such, far from overflow. @pre the sizes are positive
inline void require_sane_product(std::initializer_list<Index> sizes, const char* name) {
  constexpr Index kMax = Index{1} << 56;
  Index product = 1;
  for (const Index size : sizes) {
    if (size > kMax / product) [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: ", name, " is beyond any model (2^56)");
    product *= size;
  }
}

}  // namespace detail

/// The same model attending to the first n_sink and the last `window` positions only, for streams without an
/// end (StreamingLLM, Xiao 2023): sinks are seen at their distance within a cache of n_sink + window
/// positions.
/// @throws Error kBadArgument unless window > 0, n_sink >= 0 and config.n_layers > 0
inline ModelConfig with_streaming(ModelConfig config, Index n_sink, Index window) {
  if (window <= 0 || n_sink < 0) [[unlikely]]
    detail::raise(ErrorCode::kBadArgument, "streaming needs window > 0 and n_sink >= 0, got window ", window,
                  ", n_sink ", n_sink);
  detail::require_sane(config.n_layers, "n_layers");
  config.spans.assign(static_cast<std::size_t>(config.n_layers), AttentionSpan{window, n_sink, 0});
  config.sink_rotation = SinkRotation::kWithinWindow;
  return config;
}

inline void ModelConfig::validate() const {
  using detail::raise;
  detail::require_sane(n_layers, "n_layers");
  detail::require_sane(d_model, "d_model");
  detail::require_sane(n_heads, "n_heads");
  detail::require_sane(n_kv_heads, "n_kv_heads");
  detail::require_sane(head_dim, "head_dim");
  detail::require_sane(d_ff, "d_ff");
  detail::require_sane(vocab_size, "vocab_size");
  detail::require_sane(max_seq_len, "max_seq_len");
  detail::require_sane(n_heads * head_dim, "n_heads * head_dim");
  detail::require_sane_product({vocab_size, d_model}, "vocab_size * d_model");
  detail::require_sane_product({max_seq_len, d_model}, "max_seq_len * d_model");
  detail::require_sane_product({n_layers, d_model, d_ff}, "n_layers * d_model * d_ff");
  detail::require_sane_product({n_layers, d_model, n_heads, head_dim},
                               "n_layers * d_model * n_heads * head_dim");
  if (n_heads % n_kv_heads != 0) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: n_heads ", n_heads, " is not a multiple of n_kv_heads ",
          n_kv_heads);
  detail::require_sane_product({n_layers, max_seq_len, n_kv_heads, head_dim},
                               "n_layers * max_seq_len * n_kv_heads * head_dim");
  if (!(norm_eps >= 0.0) || norm_eps > 1.0) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: norm_eps must be in [0, 1], got ", norm_eps);
  if (!(attention_scale >= 0.0) || attention_scale > 1e6) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: attention_scale must be in [0, 1e6], got ",
          attention_scale);
  if (!(attention_soft_cap >= 0.0) || !(logit_soft_cap >= 0.0) || attention_soft_cap > 1e30 ||
      logit_soft_cap > 1e30) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: soft caps must not be negative, got ", attention_soft_cap,
          " and ", logit_soft_cap);
  if (!(embedding_scale > 0.0) || embedding_scale > 1e30) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: embedding_scale must be positive, got ", embedding_scale);
  if (!(norm_weight_offset >= -1e6) || norm_weight_offset > 1e6) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: norm_weight_offset must be a moderate number, got ",
          norm_weight_offset);
  if (norm_placement != NormPlacement::kPre && residual != ResidualKind::kSequential) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: norms after the branches need a sequential residual");
  if (n_experts != 0) validate_experts();
  validate_latent();
  const auto one_a_layer = [&](std::size_t n, const char* name) {
    if (n != 0 && static_cast<Index>(n) != n_layers) [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: ", n, " ", name, " for ", n_layers, " layers");
  };
  one_a_layer(spans.size(), "attention spans");
  one_a_layer(layer_rotary.size(), "rotary configs");
  one_a_layer(has_experts.size(), "entries of has_experts");
  one_a_layer(layer_head_dim.size(), "head dimensions");
  one_a_layer(kv_stores.size(), "stores of keys and values");
  validate_head_dims();
  validate_layer_inputs();
  validate_rotary(rotary, qk_rope_head_dim());
  if (!layer_rotary.empty() || !layer_head_dim.empty())
    for (Index layer = 0; layer < n_layers; ++layer)
      validate_rotary(rotary_of(layer), head_dim_of(layer) - qk_nope_head_dim);
  const RotaryConfig* by_length = nullptr;
  for (const RotaryConfig& config : layer_rotary) {
    if (config.scaling.kind != RotaryScalingKind::kDynamic &&
        config.scaling.kind != RotaryScalingKind::kLongrope)
      continue;
    if (by_length != nullptr && !(config == *by_length)) [[unlikely]]
      raise(ErrorCode::kBadArgument,
            "model config: layers differ in a rotary scaling that depends on the length");
    by_length = &config;
  }
  for (const AttentionSpan& span : spans) {
    if (span.window < 0 || span.n_sink < 0 || span.chunk < 0) [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: an attention span has a negative field");
    constexpr Index kMaxSpan = Index{1} << 48;  // in positions; some configs write a huge window for none
    if (span.window > kMaxSpan || span.n_sink > kMaxSpan || span.chunk > kMaxSpan) [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: an attention span of window ", span.window, ", n_sink ",
            span.n_sink, " and chunk ", span.chunk, " is beyond any sequence (2^48)");
    if (span.n_sink > 0 && span.window == 0) [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: n_sink ", span.n_sink, " needs a window");
    if (span.chunk > 0 && (span.window > 0 || span.n_sink > 0)) [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: a chunked span (", span.chunk,
            ") excludes window and sinks");
  }
  validate_stores();
}

inline void ModelConfig::validate_head_dims() const {
  for (const Index dim : layer_head_dim) {
    detail::require_sane(dim, "layer_head_dim");
    detail::require_sane(n_heads * dim, "n_heads * layer_head_dim");
    detail::require_sane_product({n_layers, d_model, n_heads, dim},
                                 "n_layers * d_model * n_heads * layer_head_dim");
    detail::require_sane_product({n_layers, max_seq_len, n_kv_heads, dim},
                                 "n_layers * max_seq_len * n_kv_heads * layer_head_dim");
  }
  if (is_latent() && !layer_head_dim.empty()) [[unlikely]]
    detail::raise(ErrorCode::kBadArgument, "model config: latent attention has one head_dim for all layers");
}

inline void ModelConfig::validate_stores() const {
  using detail::raise;
  for (Index layer = 0; layer < static_cast<Index>(kv_stores.size()); ++layer) {
    const Index store = store_of(layer);
    if (store == layer) continue;
    if (store < 0 || store > layer || !owns_store(store)) [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: layer ", layer, " reads the keys and values of layer ",
            store, ", which is no earlier layer that has its own");
    const char* const difference = head_dim_of(layer) != head_dim_of(store)  ? "head_dim"
                                   : !(span(layer) == span(store))           ? "its attention span"
                                   : !(rotary_of(layer) == rotary_of(store)) ? "its rotary positions"
                                                                             : nullptr;
    if (difference != nullptr) [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: layer ", layer, " reads the keys and values of layer ",
            store, ", but differs from it in ", difference);
    if (is_latent()) [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: layer ", layer, " reads the keys and values of layer ",
            store, ", but latents are not shared");
  }
}

inline void ModelConfig::validate_layer_inputs() const {
  if (d_layer_input == 0) return;
  detail::require_sane(d_layer_input, "d_layer_input");
  detail::require_sane(n_layers * d_layer_input, "n_layers * d_layer_input");
  detail::require_sane_product({vocab_size, n_layers, d_layer_input},
                               "vocab_size * n_layers * d_layer_input");
  detail::require_sane_product({d_model, n_layers, d_layer_input}, "d_model * n_layers * d_layer_input");
  if (!(layer_embedding_scale > 0.0) || layer_embedding_scale > 1e30) [[unlikely]]
    detail::raise(ErrorCode::kBadArgument, "model config: layer_embedding_scale must be positive, got ",
                  layer_embedding_scale);
}

inline void ModelConfig::validate_latent() const {
  using detail::raise;
  if (kv_lora_rank == 0) {
    if (q_lora_rank != 0 || qk_nope_head_dim != 0 || v_head_dim != 0) [[unlikely]]
      raise(ErrorCode::kBadArgument,
            "model config: q_lora_rank, qk_nope_head_dim and v_head_dim need a kv_lora_rank, got ",
            q_lora_rank, ", ", qk_nope_head_dim, " and ", v_head_dim);
    return;
  }
  detail::require_sane(kv_lora_rank, "kv_lora_rank");
  detail::require_sane(qk_nope_head_dim, "qk_nope_head_dim");
  detail::require_sane(v_head_dim, "v_head_dim");
  if (q_lora_rank != 0) detail::require_sane(q_lora_rank, "q_lora_rank");
  if (qk_nope_head_dim >= head_dim) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: qk_nope_head_dim ", qk_nope_head_dim,
          " leaves no elements of head_dim ", head_dim, " that turn");
  if (n_kv_heads != 1) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: the heads of a latent are one KV head, got n_kv_heads ",
          n_kv_heads);
  if (qk_norm != QkNormKind::kNone || value_norm) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: latent attention has no norms of queries, keys and values");
  if (!(latent_norm_eps >= 0.0) || latent_norm_eps > 1.0) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: latent_norm_eps must be in [0, 1], got ", latent_norm_eps);
  detail::require_sane(n_heads * k_dim(), "n_heads * (kv_lora_rank + qk_rope_head_dim)");
  detail::require_sane(n_heads * v_head_dim, "n_heads * v_head_dim");
  detail::require_sane_product({n_layers, d_model, n_heads, v_head_dim},
                               "n_layers * d_model * n_heads * v_head_dim");
  detail::require_sane_product({n_layers, kv_lora_rank, n_heads, qk_nope_head_dim + v_head_dim},
                               "n_layers * kv_lora_rank * n_heads * (qk_nope_head_dim + v_head_dim)");
  detail::require_sane_product({n_layers, max_seq_len, k_dim()},
                               "n_layers * max_seq_len * (kv_lora_rank + qk_rope_head_dim)");
  if (q_lora_rank != 0)
    detail::require_sane_product({n_layers, q_lora_rank, std::max(d_model, n_heads * head_dim)},
                                 "n_layers * q_lora_rank * (d_model or n_heads * head_dim)");
}

inline void ModelConfig::validate_experts() const {
  using detail::raise;
  detail::require_sane(n_experts, "n_experts");
  detail::require_sane(d_expert, "d_expert");
  detail::require_sane_product({n_layers, n_experts, d_model, d_expert},
                               "n_layers * n_experts * d_model * d_expert");
  if (n_experts_used < 1 || n_experts_used > n_experts) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: n_experts_used must be in [1, n_experts ", n_experts,
          "], got ", n_experts_used);
  if (d_shared_expert != 0) {
    detail::require_sane(d_shared_expert, "d_shared_expert");
    detail::require_sane_product({n_layers, d_model, d_shared_expert},
                                 "n_layers * d_model * d_shared_expert");
  }
  if (!(expert_weight_scale > 0.0) || expert_weight_scale > 1e30) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: expert_weight_scale must be positive, got ",
          expert_weight_scale);
  if (n_expert_groups < 1 || n_experts % n_expert_groups != 0) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: n_expert_groups must divide n_experts ", n_experts,
          ", got ", n_expert_groups);
  const Index size = n_experts / n_expert_groups;
  if (n_expert_groups_used < 1 || n_expert_groups_used > n_expert_groups) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: n_expert_groups_used must be in [1, n_expert_groups ",
          n_expert_groups, "], got ", n_expert_groups_used);
  if (n_experts_used > n_expert_groups_used * size) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: ", n_expert_groups_used, " groups of ", size,
          " experts have not n_experts_used ", n_experts_used);
  if (expert_group_score == ExpertGroupScore::kTopTwo && size < 2 && n_expert_groups_used < n_expert_groups)
      [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: groups of ", size, " expert have no best two");
}

// most: elements of a head that may turn.
inline void ModelConfig::validate_rotary(const RotaryConfig& config, Index most) const {
  using detail::raise;
  if (position != PositionKind::kRotary || !config.enabled) return;
  const Index dim = rotary_dim(config, most);
  if (config.dim < 0 || dim > most || dim % 2 != 0) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: the rotary dimension must be even and at most ",
          is_latent() ? "qk_rope_head_dim " : "head_dim ", most, ", got ", dim);
  detail::require_moderate(config.theta, "rotary theta");
  const RotaryScaling& scaling = config.scaling;
  detail::require_moderate(scaling.magnitude, "rotary magnitude");
  if (scaling.kind == RotaryScalingKind::kNone) return;
  detail::require_moderate(scaling.factor, "rotary scaling factor");
  const bool needs_length = scaling.kind != RotaryScalingKind::kLinear &&
                            scaling.kind != RotaryScalingKind::kDivisors &&
                            scaling.kind != RotaryScalingKind::kProportional;
  if (needs_length && scaling.original_max_seq_len <= 0) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: this rotary scaling needs a positive original length, got ",
          scaling.original_max_seq_len);
  if (needs_length) detail::require_sane(scaling.original_max_seq_len, "original_max_seq_len");
  if (scaling.kind == RotaryScalingKind::kLlama3 &&
      (!(scaling.low_freq_factor > 0.0) || !(scaling.high_freq_factor > scaling.low_freq_factor) ||
       scaling.high_freq_factor > 1e30)) [[unlikely]]
    raise(ErrorCode::kBadArgument,
          "model config: llama3 rotary scaling needs 0 < low_freq_factor < high_freq_factor, got ",
          scaling.low_freq_factor, " and ", scaling.high_freq_factor);
  if (scaling.kind == RotaryScalingKind::kYarn) {
    detail::require_moderate(scaling.beta_fast, "yarn's beta_fast");
    detail::require_moderate(scaling.beta_slow, "yarn's beta_slow");
    if (config.theta == 1.0) [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: yarn needs a rotary theta other than 1");
  }
  if (scaling.kind == RotaryScalingKind::kDynamic && dim <= 2) [[unlikely]]
    raise(ErrorCode::kBadArgument,
          "model config: dynamic rotary scaling needs a rotary dimension above 2, got ", dim);
  if (scaling.kind == RotaryScalingKind::kProportional &&
      (scaling.n_turning < 0 || scaling.n_turning > dim / 2)) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: of ", dim / 2, " rotary pairs ", scaling.n_turning,
          " cannot turn");
  const auto check_factors = [&](const std::vector<double>& factors, const char* name) {
    if (static_cast<Index>(factors.size()) != dim / 2) [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: ", name, " has ", factors.size(), " entries, expected ",
            dim / 2);
    for (const double factor : factors) detail::require_moderate(factor, name);
  };
  if (scaling.kind == RotaryScalingKind::kLongrope || scaling.kind == RotaryScalingKind::kDivisors)
    check_factors(scaling.short_factors, "short_factors");
  if (scaling.kind == RotaryScalingKind::kLongrope) check_factors(scaling.long_factors, "long_factors");
}

inline KvShape ModelConfig::kv_shape() const {
  KvShape shape;
  shape.layers.reserve(static_cast<std::size_t>(n_layers));
  for (Index layer = 0; layer < n_layers; ++layer)
    shape.layers.push_back({n_kv_heads, k_dim(head_dim_of(layer)), v_dim(head_dim_of(layer)), span(layer),
                            store_of(layer), is_latent()});
  return shape;
}

}  // namespace kvdecode

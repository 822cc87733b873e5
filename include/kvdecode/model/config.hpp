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
#include <kvdecode/layers/residual.hpp>

#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

enum class PositionKind {
  kRotary,   ///< queries and keys are rotated by their position (Su 2021)
  kLearned,  ///< a learned vector a position is added to the embedding
  kNone,     ///< causal order alone
};

enum class RotaryScalingKind {
  kNone,
  kLinear,  ///< every frequency divided by `factor`
  kLlama3,  ///< low frequencies divided by `factor`, high ones kept, a blend between
};

/// How the rotary frequencies are stretched for contexts longer than those trained on.
struct RotaryScaling {
  RotaryScalingKind kind = RotaryScalingKind::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;    // kLlama3
  double high_freq_factor = 4.0;   // kLlama3
  Index original_max_seq_len = 0;  // kLlama3: the length trained on, in positions
};

/// Rotary position embedding: pair i turns by position * theta^(-2 i / rotary_dim) radians.
struct RotaryConfig {
  Index dim = 0;  // elements of a head that turn, even; 0: all of head_dim
  double theta = 10000.0;
  RotaryPairs pairs = RotaryPairs::kHalves;
  RotaryScaling scaling{};
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
  Activation activation = Activation::kSilu;
  bool gated_feed_forward = true;  // down(act(gate(x)) * up(x)); else down(act(up(x)))
  ResidualKind residual = ResidualKind::kSequential;
  PositionKind position = PositionKind::kRotary;
  RotaryConfig rotary{};
  double attention_scale = 0.0;  // of the scores; 0: 1 / sqrt(head_dim)
  bool tied_head = false;        // the token embedding is the head

  std::vector<AttentionSpan> spans{};  // one a layer; empty: every layer sees everything
  SinkRotation sink_rotation = SinkRotation::kAbsolute;

  Index group_size() const noexcept { return n_heads / n_kv_heads; }
  Index rotary_dim() const noexcept {
    return position == PositionKind::kRotary ? (rotary.dim == 0 ? head_dim : rotary.dim) : 0;
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
  Index rotary_epoch([[maybe_unused]] Index seq_len) const noexcept { return 0; }
};

/// The same model attending to the first n_sink and the last `window` positions only, for streams without an
/// end (StreamingLLM, Xiao 2023): sinks are seen at their distance within a cache of n_sink + window
/// positions.
/// @throws Error kBadArgument unless window > 0 and n_sink >= 0
inline ModelConfig with_streaming(ModelConfig config, Index n_sink, Index window) {
  if (window <= 0 || n_sink < 0) [[unlikely]]
    detail::raise(ErrorCode::kBadArgument, "streaming needs window > 0 and n_sink >= 0, got window ", window,
                  ", n_sink ", n_sink);
  config.spans.assign(static_cast<std::size_t>(config.n_layers), AttentionSpan{window, n_sink, 0});
  config.sink_rotation = SinkRotation::kWithinWindow;
  return config;
}

namespace detail {

inline void require_positive(Index value, const char* name) {
  if (value <= 0) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: ", name, " must be positive, got ", value);
}
/// Keeps every product of two sizes, in bytes, far from overflow.
inline void require_sane(Index value, const char* name) {
  require_positive(value, name);
  if (value > (Index{1} << 30)) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: ", name, " ", value, " is beyond any model (2^30)");
}

}  // namespace detail

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
  if (n_heads % n_kv_heads != 0) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: n_heads ", n_heads, " is not a multiple of n_kv_heads ",
          n_kv_heads);
  if (!(norm_eps >= 0.0) || norm_eps > 1.0) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: norm_eps must be in [0, 1], got ", norm_eps);
  if (!(attention_scale >= 0.0) || attention_scale > 1e6) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: attention_scale must be in [0, 1e6], got ",
          attention_scale);
  if (position == PositionKind::kRotary) {
    if (rotary.dim < 0 || rotary_dim() > head_dim || rotary_dim() % 2 != 0) [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: the rotary dimension must be even and at most head_dim ",
            head_dim, ", got ", rotary_dim());
    if (!(rotary.theta > 0.0) || rotary.theta > 1e30) [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: rotary theta must be positive, got ", rotary.theta);
    const RotaryScaling& scaling = rotary.scaling;
    if (scaling.kind != RotaryScalingKind::kNone && (!(scaling.factor > 0.0) || scaling.factor > 1e30))
        [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: rotary scaling factor must be positive, got ",
            scaling.factor);
    if (scaling.kind == RotaryScalingKind::kLlama3 &&
        (!(scaling.low_freq_factor > 0.0) || !(scaling.high_freq_factor > scaling.low_freq_factor) ||
         scaling.high_freq_factor > 1e30 || scaling.original_max_seq_len <= 0)) [[unlikely]]
      raise(ErrorCode::kBadArgument,
            "model config: llama3 rotary scaling needs 0 < low_freq_factor < high_freq_factor ",
            "and a positive original length, got ", scaling.low_freq_factor, ", ", scaling.high_freq_factor,
            ", ", scaling.original_max_seq_len);
  }
  if (!spans.empty() && static_cast<Index>(spans.size()) != n_layers) [[unlikely]]
    raise(ErrorCode::kBadArgument, "model config: ", spans.size(), " attention spans for ", n_layers,
          " layers");
  for (const AttentionSpan& span : spans) {
    if (span.window < 0 || span.n_sink < 0 || span.chunk < 0) [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: an attention span has a negative field");
    if (span.n_sink > 0 && span.window == 0) [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: n_sink ", span.n_sink, " needs a window");
    if (span.chunk > 0 && (span.window > 0 || span.n_sink > 0)) [[unlikely]]
      raise(ErrorCode::kBadArgument, "model config: a chunked span (", span.chunk,
            ") excludes window and sinks");
  }
}

inline KvShape ModelConfig::kv_shape() const {
  KvShape shape;
  shape.layers.reserve(static_cast<std::size_t>(n_layers));
  for (Index layer = 0; layer < n_layers; ++layer)
    shape.layers.push_back({n_kv_heads, head_dim, head_dim, span(layer), layer});
  return shape;
}

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gemma4.hpp> - Gemma 4, text only and dense: Gemma 3 whose last layers read the keys and values
// of earlier ones, whose layers without a window have longer heads that turn in part, and whose layers have inputs and a
// scale of their own.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/common.hpp>
#include <kvdecode/io/architectures/decoder_weights.hpp>
#include <kvdecode/io/architectures/fields.hpp>
#include <kvdecode/io/architectures/gemma.hpp>
#include <kvdecode/io/json_object.hpp>
#include <kvdecode/io/tensor_binder.hpp>

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/simd/fp_env.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// Of experts, which no layer has where enable_moe_block is false; and of layers whose values are their keys.
inline constexpr std::string_view kGemma4HarmlessFields[] = {
    "cache_implementation",       "moe_intermediate_size", "num_experts",
    "num_global_key_value_heads", "top_k_experts",
};

inline constexpr NeutralField kGemma4NeutralFields[] = {
    {"attention_k_eq_v", "false"},
    {"enable_moe_block", "false"},
    {"partial_rotary_factor", "1.0"},
    {"use_double_wide_mlp", "false"},
};

/// Throws Error if the object has a field that nobody has read.
inline void require_all_read(const JsonObject& object) {
  if (const std::vector<std::string> unread = object.unread(); !unread.empty()) [[unlikely]]
    raise(ErrorCode::kUnsupported, object.source(), ": the field ", in_quotes(object.name_of(unread.front())),
          " is not known and might change the result");
}

/// Which layers see a window: those that layer_types calls so, five of six without it, but never the last one.
inline std::vector<bool> read_gemma4_sliding(JsonObject& fields, const ModelConfig& model,
                                             const std::optional<Index>& window) {
  const auto is_sliding = [&](Index layer) { return (layer + 1) % 6 != 0 && layer + 1 != model.n_layers; };
  std::vector<bool> sliding = read_sliding_layers(fields, model, window, is_sliding);
  if (sliding.back()) [[unlikely]]
    raise(
        ErrorCode::kUnsupported, fields.source(),
        ": layer_types: the last layer of this architecture is one of full_attention, got sliding_attention");
  return sliding;
}

/// The length of each layer's heads: per_layer_config, which names layers by number, or global_head_dim for all that have
/// no window.
inline void read_gemma4_head_dims(JsonObject& fields, const std::vector<bool>& sliding, ModelConfig& model) {
  std::optional<JsonObject> layers = fields.as_object("per_layer_config");
  const std::optional<Index> global = fields.as_positive_integer("global_head_dim");
  std::vector<Index> dims(sliding.size(), model.head_dim);
  for (std::size_t layer = 0; layer < dims.size(); ++layer) {
    if (!layers) {
      if (!sliding[layer]) dims[layer] = global.value_or(512);
      continue;
    }
    if (std::optional<JsonObject> own = layers->as_object(std::to_string(layer)); own) {
      dims[layer] = own->positive_integer("head_dim", model.head_dim);
      const Index n_kv_heads = own->positive_integer("num_key_value_heads", model.n_kv_heads);
      if (n_kv_heads != model.n_kv_heads) [[unlikely]]
        raise(ErrorCode::kUnsupported, fields.source(), ": ", own->name_of("num_key_value_heads"), " ",
              n_kv_heads, " of one layer is supported only if it is that of all, ", model.n_kv_heads);
      require_all_read(*own);
    }
    if (global && !sliding[layer] && dims[layer] != *global) [[unlikely]]
      raise(ErrorCode::kUnsupported, fields.source(), ": global_head_dim ", *global, " and ",
            layers->name_of(std::to_string(layer)), ".head_dim ", dims[layer], " contradict one another");
  }
  if (layers) require_all_read(*layers);
  if (std::any_of(dims.begin(), dims.end(), [&](Index dim) { return dim != model.head_dim; }))
    model.layer_head_dim = std::move(dims);
}

/// One kind of layers' rotary positions. Of those that are proportional a part of the pairs turns, the first ones of a head.
inline RotaryConfig read_gemma4_rotary(JsonObject& rope, Index head_dim) {
  RotaryConfig rotary;
  rotary.theta = rope.positive_number("rope_theta");
  const std::string type = rope.string("rope_type", "default");
  if (type == "proportional") {
    const double part = rope.positive_number("partial_rotary_factor", 1.0);
    if (part > 1.0) [[unlikely]]
      raise(ErrorCode::kBadFile, rope.source(), ": ", rope.name_of("partial_rotary_factor"),
            " must be at most 1, got ", part);
    rotary.scaling.kind = RotaryScalingKind::kProportional;
    rotary.scaling.factor = rope.positive_number("factor", 1.0);
    rotary.scaling.n_turning = static_cast<Index>(mul(part, static_cast<double>(head_dim)) / 2.0);
  } else if (type != "default") {
    raise(ErrorCode::kUnsupported, rope.source(), ": ", rope.name_of("rope_type"), " ", in_quotes(type),
          " is not supported for this architecture, only default and proportional are");
  }
  require_all_read(rope);
  return rotary;
}

/// rope_parameters by type of layer. @pre the layers' head dimensions are read
inline void read_gemma4_rotaries(JsonObject& fields, const std::vector<bool>& sliding, ModelConfig& model) {
  std::optional<JsonObject> parameters = fields.as_object("rope_parameters");
  std::optional<JsonObject> full, local;
  if (parameters) {
    full = parameters->as_object("full_attention");
    local = parameters->as_object("sliding_attention");
    require_all_read(*parameters);
  }
  for (std::size_t i = 0; i < sliding.size(); ++i) {
    const Index head_dim = model.head_dim_of(static_cast<Index>(i));
    std::optional<JsonObject>& own = sliding[i] ? local : full;
    if (own) {
      model.layer_rotary.push_back(read_gemma4_rotary(*own, head_dim));
    } else if (parameters) {
      raise(ErrorCode::kBadFile, fields.source(), ": ",
            parameters->name_of(sliding[i] ? "sliding_attention" : "full_attention"), " is missing");
    } else {
      RotaryConfig& rotary = model.layer_rotary.emplace_back();
      if (sliding[i]) continue;
      rotary.theta = 1e6;
      rotary.scaling = {.kind = RotaryScalingKind::kProportional, .n_turning = head_dim / 8};
    }
  }
}

/// The last num_kv_shared_layers layers read the keys and values of the last layer of their type before them.
inline void read_gemma4_stores(JsonObject& fields, const std::vector<bool>& sliding, ModelConfig& model) {
  constexpr std::string_view kName = "num_kv_shared_layers";
  const Index n_shared = fields.as_natural(kName).value_or(0);
  if (n_shared == 0) return;
  if (n_shared >= model.n_layers) [[unlikely]]
    raise(ErrorCode::kBadFile, fields.source(), ": ", kName, " ", n_shared, " of ", model.n_layers,
          " layers leaves none that has keys and values");
  if (const Index layer = set_last_stores(sliding, n_shared, model); layer >= 0) [[unlikely]]
    raise(ErrorCode::kBadFile, fields.source(), ": ", kName, " ", n_shared, ": no layer of ",
          sliding[static_cast<std::size_t>(layer)] ? "sliding_attention" : "full_attention",
          " has keys and values that layer ", layer, " could read");
}

inline void read_gemma4_layer_inputs(JsonObject& fields, ModelConfig& model) {
  constexpr std::string_view kSize = "hidden_size_per_layer_input", kVocab = "vocab_size_per_layer_input";
  const Index n_rows = fields.positive_integer(kVocab, 262144);
  model.d_layer_input = fields.contains(kSize) ? fields.as_natural(kSize).value_or(0) : 256;
  if (model.d_layer_input == 0) return;
  if (n_rows != model.vocab_size) [[unlikely]]
    raise(ErrorCode::kUnsupported, fields.source(), ": ", kVocab, " ", n_rows,
          " is supported only if it is vocab_size, ", model.vocab_size);
  model.layer_embedding_scale = sqrt(static_cast<double>(model.d_layer_input));
}

inline void read_gemma4_config(JsonObject& fields, HuggingFaceConfig& config) {
  ModelConfig& model = config.model;
  read_gemma_decoder(fields, {.n_kv_heads = 4, .max_seq_len = 131072}, config);
  model.activation = read_gemma_activation(fields, "hidden_activation", "hidden_act");
  model.norm_weight_offset = 0.0;  // unlike Gemma before it
  model.norm_placement = NormPlacement::kBoth;
  model.qk_norm = QkNormKind::kPerHead;
  model.value_norm = true;
  model.attention_scale = 1.0;
  model.logit_soft_cap = fields.positive_number("final_logit_softcapping", 0.0);

  const std::optional<Index> window = window_of(fields, 512);
  const std::vector<bool> sliding = read_gemma4_sliding(fields, model, window);
  set_spans(sliding, window, model);
  read_gemma4_head_dims(fields, sliding, model);
  read_gemma4_rotaries(fields, sliding, model);
  read_gemma4_stores(fields, sliding, model);
  read_gemma4_layer_inputs(fields, model);
}

inline void bind_gemma4_weights(const HuggingFaceConfig& config, TensorBinder& tensors, Weights& weights) {
  const ModelConfig& model = config.model;
  const Index d = model.d_model, d_input = model.d_layer_input;
  bind_decoder(config, tensors, weights, [&](const std::string& layer, Index i, LayerWeights& w) {
    bind_attention(config, tensors, layer, i, w);
    bind_feed_forward(config, tensors, layer, w);
    w.scale = tensors.values(layer + "layer_scalar", 1).front();
    if (d_input == 0) return;
    w.w_input_gate = tensors.linear(layer + "per_layer_input_gate", d_input, d, false);
    w.w_input_out = tensors.linear(layer + "per_layer_projection", d, d_input, false);
    w.input_post_norm = tensors.norm(layer + "post_per_layer_input_norm", d, false);
  });
  if (d_input == 0) return;
  const Index n_inputs = model.n_layers * d_input;
  weights.layer_embedding = tensors.matrix("model.embed_tokens_per_layer.weight", model.vocab_size, n_inputs);
  weights.w_layer_inputs = tensors.linear("model.per_layer_model_projection", n_inputs, d, false);
  weights.w_layer_inputs.scale = with_default_fp_env([d] { return 1.0 / sqrt(static_cast<double>(d)); });
  weights.layer_input_norm = tensors.norm("model.per_layer_projection_norm", d_input, false);
}

}  // namespace detail

/// Gemma4ForCausalLM.
inline constexpr HuggingFaceArchitecture kGemma4Architecture{
    .name = "Gemma4ForCausalLM",
    .model_type = "gemma4_text",
    .harmless_fields = detail::kGemma4HarmlessFields,
    .neutral_fields = detail::kGemma4NeutralFields,
    .default_bos_token_id = 2,
    .default_eos_token_id = 1,
    .read_config = &detail::read_gemma4_config,
    .bind_weights = &detail::bind_gemma4_weights,
};

}  // namespace kvdecode

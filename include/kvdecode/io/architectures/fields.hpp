// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/fields.hpp> - fields of config.json that many families share: sizes, activations,
// attention windows, and what is known not to change what a model computes.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/common.hpp>
#include <kvdecode/io/json_object.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// In any family: names, training, storage, outputs that are not logits, and defaults for programs that choose
// tokens (here the caller names the sampler). dtype and torch_dtype: numbers are used as they are stored.
inline constexpr std::string_view kHarmlessFields[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_flash_attn_2_enabled",
    "_name_or_path",
    "attention_dropout",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "is_decoder",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "use_bfloat16",
    "use_cache",
};

// In any family.
inline constexpr NeutralField kNeutralFields[] = {
    {"add_cross_attention", "false"}, {"is_encoder_decoder", "false"},          {"pruned_heads", "{}"},
    {"tie_encoder_decoder", "false"}, {"use_bidirectional_attention", "false"},
};

// In families whose heads turn as a whole.
inline constexpr NeutralField kWholeHeadFields[] = {
    {"partial_rotary_factor", "1.0"},
};

/// The activation that transformers calls so.
/// @throws Error kUnsupported
inline Activation read_activation(JsonObject& fields, std::string_view field, std::string_view fallback) {
  const std::string name = fields.string(field, fallback);
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name == "relu") return Activation::kRelu;
  if (name == "relu2") return Activation::kReluSquared;
  raise(ErrorCode::kUnsupported, fields.source(), ": ", fields.name_of(field), " ", in_quotes(name),
        " is not supported, only silu, swish, gelu, gelu_new, gelu_pytorch_tanh, relu and relu2 are");
}

/// One value from two places, which may both give it as long as they agree.
template <class T>
std::optional<T> same_of(const JsonObject& fields, std::string_view name_a, const std::optional<T>& a,
                         std::string_view name_b, const std::optional<T>& b) {
  const auto shown = [](const T& value) {
    if constexpr (std::is_same_v<T, std::string>)
      return printable(value);
    else
      return value;
  };
  if (a && b && *a != *b) [[unlikely]]
    raise(ErrorCode::kUnsupported, fields.source(), ": ", name_a, " ", shown(*a), " and ", name_b, " ",
          shown(*b), " contradict one another");
  return a ? a : b;
}

/// What a family takes where its config is silent. Fields that are null count as derived.
struct DecoderDefaults {
  Index n_kv_heads = 0;  // 0: as many as heads
  Index head_dim = 0;    // 0: hidden_size / num_attention_heads
  Index max_seq_len = 2048;
  std::string_view norm_eps_field = "rms_norm_eps";
  double norm_eps = 1e-6;
  std::string_view activation = "silu";
  bool tied_head = false;
};

/// Sizes, norm, activation and head, as Llama calls them and most others. Sizes have to be there.
inline void read_decoder(JsonObject& fields, const DecoderDefaults& defaults, ModelConfig& model) {
  const auto size_or = [&](std::string_view name, Index absent) {
    return fields.contains(name) ? fields.positive_integer(name, 0) : absent;
  };
  model.vocab_size = fields.positive_integer("vocab_size");
  model.d_model = fields.positive_integer("hidden_size");
  model.d_ff = fields.positive_integer("intermediate_size");
  model.n_layers = fields.positive_integer("num_hidden_layers");
  model.n_heads = fields.positive_integer("num_attention_heads");
  model.n_kv_heads = size_or("num_key_value_heads", defaults.n_kv_heads);
  if (model.n_kv_heads == 0) model.n_kv_heads = model.n_heads;
  model.head_dim = size_or("head_dim", defaults.head_dim);
  if (model.head_dim == 0) {
    if (model.d_model % model.n_heads != 0) [[unlikely]]
      raise(ErrorCode::kBadFile, fields.source(), ": hidden_size ", model.d_model,
            " is not a multiple of num_attention_heads ", model.n_heads, ", and there is no head_dim");
    model.head_dim = model.d_model / model.n_heads;
  }
  model.max_seq_len = fields.positive_integer("max_position_embeddings", defaults.max_seq_len);
  model.norm_eps = fields.positive_number(defaults.norm_eps_field, defaults.norm_eps);
  model.activation = read_activation(fields, "hidden_act", defaults.activation);
  model.tied_head = fields.boolean("tie_word_embeddings", defaults.tied_head);
}

/// Before anything with one entry a layer is made.
inline void require_few_layers(const JsonObject& fields, const ModelConfig& model) {
  if (model.n_layers > kMaxDifferingLayers) [[unlikely]]
    raise(ErrorCode::kBadFile, fields.source(), ": num_hidden_layers ", model.n_layers,
          " is beyond any model whose layers differ (", kMaxDifferingLayers, ")");
}

/// Which layers see a window only: those that layer_types calls so or, without it, those that
/// is_sliding(layer) names. `window` is what the config has for them.
template <class IsSliding>
std::vector<bool> read_sliding_layers(JsonObject& fields, const ModelConfig& model,
                                      const std::optional<Index>& window, IsSliding&& is_sliding) {
  require_few_layers(fields, model);
  std::vector<bool> sliding;
  if (const auto types = fields.as_strings("layer_types"); types) {
    if (static_cast<Index>(types->size()) != model.n_layers) [[unlikely]]
      raise(ErrorCode::kBadFile, fields.source(), ": layer_types has ", types->size(), " entries for ",
            model.n_layers, " layers");
    for (const std::string& type : *types) {
      if (type != "sliding_attention" && type != "full_attention") [[unlikely]]
        raise(ErrorCode::kUnsupported, fields.source(), ": layer_types: ", in_quotes(type),
              " is not supported, only full_attention and sliding_attention are");
      sliding.push_back(type == "sliding_attention");
    }
  } else {
    for (Index layer = 0; layer < model.n_layers; ++layer) sliding.push_back(is_sliding(layer));
  }
  if (!window && std::find(sliding.begin(), sliding.end(), true) != sliding.end()) [[unlikely]]
    raise(ErrorCode::kBadFile, fields.source(),
          ": there are layers of sliding_attention, but no sliding_window is in use");
  return sliding;
}

/// sliding_window, where null is none and `absent` what the family takes if there is no such field.
inline std::optional<Index> window_of(JsonObject& fields, std::optional<Index> absent) {
  return fields.contains("sliding_window") ? fields.as_positive_integer("sliding_window") : absent;
}

/// The window of a family that has it in every layer.
inline void read_window(JsonObject& fields, std::optional<Index> absent, ModelConfig& model) {
  const std::optional<Index> window = window_of(fields, absent);
  if (!window) return;
  require_few_layers(fields, model);
  model.spans.assign(static_cast<std::size_t>(model.n_layers), {*window, 0, 0});
}

}  // namespace detail
}  // namespace kvdecode

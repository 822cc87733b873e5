// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/fields.hpp> - fields of config.json that many families share: activations,
// rotary positions as transformers 4 and 5 write them, and what is known not to change what a model computes.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/json_object.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/model/config.hpp>

#include <optional>
#include <string>
#include <string_view>
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
  if (a && b && *a != *b) [[unlikely]]
    raise(ErrorCode::kUnsupported, fields.source(), ": ", name_a, " ", *a, " and ", name_b, " ", *b,
          " contradict one another");
  return a ? a : b;
}

/// Rotary positions: rope_theta and rope_scaling (transformers 4) or rope_parameters (5), which holds both.
/// @throws Error kUnsupported, naming what is not known
inline void read_rotary(JsonObject& fields, RotaryConfig& rotary) {
  std::optional<JsonObject> scaling = fields.as_object("rope_scaling");
  std::optional<JsonObject> parameters = fields.as_object("rope_parameters");
  if (scaling && !scaling->empty() && parameters && !parameters->empty()) [[unlikely]]
    raise(ErrorCode::kUnsupported, fields.source(),
          ": rope_scaling and rope_parameters are both there; transformers 4 and 5 would not agree");
  JsonObject* const rope = parameters && !parameters->empty() ? &*parameters : scaling ? &*scaling : nullptr;
  std::optional<double> theta = fields.as_positive_number("rope_theta");
  if (rope != nullptr) {
    theta = same_of(fields, "rope_theta", theta, rope->name_of("rope_theta"),
                    rope->as_positive_number("rope_theta"));
    const std::string type = same_of(fields, rope->name_of("rope_type"), rope->as_string("rope_type"),
                                     rope->name_of("type"), rope->as_string("type"))
                                 .value_or("default");
    if (type == "linear") {
      rotary.scaling.kind = RotaryScalingKind::kLinear;
      rotary.scaling.factor = rope->positive_number("factor");
    } else if (type == "llama3") {
      rotary.scaling.kind = RotaryScalingKind::kLlama3;
      rotary.scaling.factor = rope->positive_number("factor");
      rotary.scaling.low_freq_factor = rope->positive_number("low_freq_factor");
      rotary.scaling.high_freq_factor = rope->positive_number("high_freq_factor");
      rotary.scaling.original_max_seq_len = rope->positive_integer("original_max_position_embeddings");
    } else if (type != "default") {
      raise(ErrorCode::kUnsupported, fields.source(), ": ", rope->name_of("rope_type"), " ", in_quotes(type),
            " is not supported, only default, linear and llama3 are");
    }
    if (rope->as_positive_number("partial_rotary_factor").value_or(1.0) != 1.0) [[unlikely]]
      raise(ErrorCode::kUnsupported, fields.source(), ": ", rope->name_of("partial_rotary_factor"),
            " other than 1 is not supported for this architecture");
    if (const std::vector<std::string> unread = rope->unread(); !unread.empty()) [[unlikely]]
      raise(ErrorCode::kUnsupported, fields.source(), ": the field ",
            in_quotes(rope->name_of(unread.front())), " is not known to rotary scaling ", in_quotes(type),
            " and might change the result");
  }
  rotary.theta = theta.value_or(rotary.theta);
}

}  // namespace detail
}  // namespace kvdecode

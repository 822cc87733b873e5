// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/architecture.hpp> - what a family of Hugging Face models has to say about
// itself: how its config.json reads, and what its tensors are called.
#pragma once

#include <kvdecode/io/json_object.hpp>
#include <kvdecode/io/tensor_binder.hpp>

#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// What config.json and generation_config.json say.
struct HuggingFaceConfig {
  std::string architecture;  // "LlamaForCausalLM"
  ModelConfig model;
  std::vector<TokenId> bos_token_ids;       // usually one; empty: none
  std::vector<TokenId> eos_token_ids;       // each ends a text
  bool attention_bias = false;              // queries, keys and values have biases
  bool attention_output_bias = false;       // so has the attention's output
  bool feed_forward_bias = false;           // so have the feed-forward's matrices
  Index n_further_layers = 0;               // stored behind those of the model, which has no use for them
  std::vector<std::string> ignored_fields;  // present, and known not to change what the model computes
};

/// A field that is accepted with one value only, which changes nothing.
struct NeutralField {
  std::string_view name;
  std::string_view value;  // JSON
};

/// One family. Whatever read_config() does not read, and neither this nor the common lists know as harmless,
/// is refused by name: it might change the result.
struct HuggingFaceArchitecture {
  std::string_view name;        // in "architectures"
  std::string_view model_type;  // in "model_type"
  std::span<const std::string_view> harmless_fields;
  std::span<const NeutralField> neutral_fields;
  TokenId default_bos_token_id;  // of a config that does not mention it; negative: none
  TokenId default_eos_token_id;
  void (*read_config)(JsonObject& fields, HuggingFaceConfig& config);
  void (*bind_weights)(const HuggingFaceConfig& config, TensorBinder& tensors, Weights& weights);
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/io/huggingface_model.hpp> - loads a model from a Hugging Face folder: config.json and
// model.safetensors, or the shards that model.safetensors.index.json lists. Matrices are used where they lie.
#pragma once

#include <kvdecode/io/architectures.hpp>
#include <kvdecode/io/huggingface_config.hpp>
#include <kvdecode/io/json.hpp>
#include <kvdecode/io/json_object.hpp>
#include <kvdecode/io/loaded_model.hpp>
#include <kvdecode/io/safetensors.hpp>
#include <kvdecode/io/tensor_binder.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// The names of the tensors of each shard, as the index gives them; `source` names it in errors.
inline std::map<std::string, std::vector<std::string>> read_safetensors_index(const nlohmann::json& json,
                                                                              const std::string& source) {
  JsonObject fields(json, source);
  const nlohmann::json* const map = fields.find("weight_map");
  if (map == nullptr || !map->is_object() || map->empty()) [[unlikely]]
    raise(ErrorCode::kBadFile, source, ": weight_map must be an object of file names by tensor");
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) [[unlikely]]
      raise(ErrorCode::kBadFile, source, ": weight_map: tensor ", in_quotes(tensor),
            " must have a file name, got ", described(file));
    const std::string& name = file.get_ref<const std::string&>();
    if (!name.ends_with(".safetensors") ||
        name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) [[unlikely]]
      raise(ErrorCode::kBadFile, source, ": weight_map: ", in_quotes(name), " of tensor ", in_quotes(tensor),
            " must be the name of a .safetensors file in the same folder");
    shards[name].push_back(tensor);
  }
  return shards;
}

/// The shards of a folder, checked against the index: each tensor in its file, and no other.
inline TensorBinder open_shards(const std::filesystem::path& folder, const std::filesystem::path& index) {
  TensorBinder tensors(index.string());
  for (const auto& [name, expected] : read_safetensors_index(load_json(index), index.string())) {
    const SafetensorsFile file(folder / name);
    for (const std::string& tensor : expected)
      if (file.find(tensor) == nullptr) [[unlikely]]
        raise(ErrorCode::kMismatch, file.source(), ": tensor ", in_quotes(tensor),
              " is missing, the index places it there");
    // The index has each name once, in alphabetical order, as the file has.
    for (const SafetensorsTensor& tensor : file.tensors())
      if (!std::binary_search(expected.begin(), expected.end(), tensor.name)) [[unlikely]]
        raise(ErrorCode::kMismatch, file.source(), ": tensor ", in_quotes(tensor.name),
              " is not where the index places it");
    tensors.add(file);
  }
  return tensors;
}

inline TensorBinder open_tensors(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path whole = folder / "model.safetensors";
  const std::filesystem::path index = folder / "model.safetensors.index.json";
  if (!std::filesystem::exists(whole, error)) {
    if (std::filesystem::exists(index, error)) return open_shards(folder, index);
    raise(ErrorCode::kBadFile, folder.string(),
          ": has neither model.safetensors nor model.safetensors.index.json");
  }
  TensorBinder tensors(whole.string());
  tensors.add(SafetensorsFile(whole));
  return tensors;
}

}  // namespace detail

/// Loads a model of one of kHuggingFaceArchitectures. O(headers): the weights are read when they are used.
/// @throws Error kBadFile: a file is missing, malformed or lies; kUnsupported: an architecture, config field
/// or dtype that cannot be honoured; kMismatch: a tensor is missing, has another shape, or has no place
inline LoadedModel load_huggingface_model(const std::filesystem::path& folder) {
  HuggingFaceConfig config = load_huggingface_config(folder);
  TensorBinder tensors = detail::open_tensors(folder);
  LoadedModel model;
  find_huggingface_architecture(config.architecture)->bind_weights(config, tensors, model.weights);
  tensors.finish(model.weights, model.report);
  model.report.architecture = std::move(config.architecture);
  model.report.ignored_fields = std::move(config.ignored_fields);
  model.config = std::move(config.model);
  model.bos_token_ids = std::move(config.bos_token_ids);
  model.eos_token_ids = std::move(config.eos_token_ids);
  return model;
}

}  // namespace kvdecode

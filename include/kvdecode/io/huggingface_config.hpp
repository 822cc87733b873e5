// SPDX-License-Identifier: MIT
// <kvdecode/io/huggingface_config.hpp> - reads config.json, as transformers 4 and 5 write it. A field that
// would have to be ignored and might change the result is refused by name.
#pragma once

#include <kvdecode/io/architectures.hpp>
#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/fields.hpp>
#include <kvdecode/io/json.hpp>
#include <kvdecode/io/json_object.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/simd/fp_env.hpp>
#include <kvdecode/core/types.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// The family that the config names, which model_type must not contradict.
inline const HuggingFaceArchitecture& read_architecture(JsonObject& fields) {
  const nlohmann::json* const names = fields.find("architectures");
  if (names == nullptr || !names->is_array() || names->size() != 1 || !names->front().is_string())
      [[unlikely]]
    raise(ErrorCode::kBadFile, fields.source(), ": architectures must be a list of one name, got ",
          names == nullptr ? "nothing" : described(*names));
  const std::string& name = names->front().get_ref<const std::string&>();
  const HuggingFaceArchitecture* const architecture = find_huggingface_architecture(name);
  if (architecture == nullptr) [[unlikely]] {
    std::string known;
    for (const HuggingFaceArchitecture& each : kHuggingFaceArchitectures)
      known.append(known.empty() ? "" : ", ").append(each.name);
    raise(ErrorCode::kUnsupported, fields.source(), ": architecture ", in_quotes(name),
          " is not supported (supported: ", known, ")");
  }
  const std::string model_type = fields.string("model_type", architecture->model_type);
  if (model_type != architecture->model_type) [[unlikely]]
    raise(ErrorCode::kUnsupported, fields.source(), ": model_type ", in_quotes(model_type),
          " with architecture ", in_quotes(name), ", whose own is ", in_quotes(architecture->model_type));
  return *architecture;
}

/// The token ids of a field; the default if the config does not mention it, none if it is null.
inline std::vector<TokenId> read_token_ids(JsonObject& fields, std::string_view name, Index vocab_size,
                                           const std::vector<TokenId>& fallback) {
  if (!fields.contains(name)) return fallback;
  std::vector<TokenId> ids;
  for (const Index id : fields.as_indices(name, vocab_size).value_or(std::vector<Index>{}))
    ids.push_back(static_cast<TokenId>(id));
  return ids;
}

inline std::vector<TokenId> default_token_ids(TokenId id, Index vocab_size) {
  return id >= 0 && id < vocab_size ? std::vector<TokenId>{id} : std::vector<TokenId>{};
}

/// Accepts the field if it has the value that changes nothing.
inline void read_neutral(JsonObject& fields, const NeutralField& field, std::vector<std::string>& ignored) {
  const nlohmann::json* const value = fields.find(field.name);
  if (value == nullptr) return;
  const bool is_empty = value->is_structured() && value->empty();
  if (!is_empty && *value != nlohmann::json::parse(field.value)) [[unlikely]]
    raise(ErrorCode::kUnsupported, fields.source(), ": ", field.name, " is supported as ", field.value,
          " only, got ", described(*value));
  ignored.emplace_back(field.name);
}

/// Whatever was not read has to be known as harmless.
inline std::vector<std::string> read_leftovers(JsonObject& fields,
                                               const HuggingFaceArchitecture& architecture) {
  if (const std::optional<JsonObject> quantization = fields.as_object("quantization_config"); quantization)
      [[unlikely]]
    raise(ErrorCode::kUnsupported, fields.source(),
          ": quantization_config: quantized checkpoints of this kind are not supported");
  std::vector<std::string> ignored;
  for (const NeutralField& field : kNeutralFields) read_neutral(fields, field, ignored);
  for (const NeutralField& field : architecture.neutral_fields) read_neutral(fields, field, ignored);
  const auto is_in = [](const auto& list, std::string_view name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const std::string& name : fields.unread()) {
    if (!is_in(std::span(kHarmlessFields), name) && !is_in(architecture.harmless_fields, name)) [[unlikely]]
      raise(ErrorCode::kUnsupported, fields.source(), ": the field ", in_quotes(name), " is not known for ",
            architecture.name, " and might change the result");
    ignored.push_back(name);
  }
  std::sort(ignored.begin(), ignored.end());
  return ignored;
}

inline HuggingFaceConfig read_huggingface_config(const nlohmann::json& json, std::string_view source) {
  JsonObject fields(json, std::string(source));
  const HuggingFaceArchitecture& architecture = read_architecture(fields);
  HuggingFaceConfig config;
  config.architecture = architecture.name;
  with_default_fp_env([&] { architecture.read_config(fields, config); });
  try {
    config.model.validate();
  } catch (const Error& error) {
    raise(ErrorCode::kBadFile, source, ": ", error.what());
  }
  const Index vocab_size = config.model.vocab_size;
  config.bos_token_ids = read_token_ids(fields, "bos_token_id", vocab_size,
                                        default_token_ids(architecture.default_bos_token_id, vocab_size));
  config.eos_token_ids = read_token_ids(fields, "eos_token_id", vocab_size,
                                        default_token_ids(architecture.default_eos_token_id, vocab_size));
  config.ignored_fields = read_leftovers(fields, architecture);
  return config;
}

/// generation_config.json: its token ids stand above those of config.json. The rest of it is for samplers,
/// which the caller names.
inline void read_generation_config(const nlohmann::json& json, std::string_view source,
                                   HuggingFaceConfig& config) {
  JsonObject fields(json, std::string(source));
  const Index vocab_size = config.model.vocab_size;
  if (fields.find("bos_token_id") != nullptr)
    config.bos_token_ids = read_token_ids(fields, "bos_token_id", vocab_size, {});
  if (fields.find("eos_token_id") != nullptr)
    config.eos_token_ids = read_token_ids(fields, "eos_token_id", vocab_size, {});
}

}  // namespace detail

/// What a config.json says; `source` names it in errors.
/// @throws Error kBadFile: malformed, incomplete or impossible; kUnsupported: another architecture, or a
/// field that is not known and might change the result
inline HuggingFaceConfig parse_huggingface_config(std::string_view json,
                                                  std::string_view source = "config.json") {
  return detail::read_huggingface_config(parse_json(json, source), source);
}

/// What config.json and, if it is there, generation_config.json of a folder say.
/// @throws Error as parse_huggingface_config(), naming the file
inline HuggingFaceConfig load_huggingface_config(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) [[unlikely]]
    detail::raise(ErrorCode::kBadFile, folder.string(), ": is not a folder");
  const std::filesystem::path path = folder / "config.json";
  HuggingFaceConfig config = detail::read_huggingface_config(load_json(path), path.string());
  if (const std::filesystem::path generation = folder / "generation_config.json";
      std::filesystem::exists(generation, error))
    detail::read_generation_config(load_json(generation), generation.string(), config);
  return config;
}

}  // namespace kvdecode

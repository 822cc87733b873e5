// SPDX-License-Identifier: MIT
// <kvdecode/io/gguf_model.hpp> - loads a model from a GGUF file, or from all files of a split. Matrices are
// used where they lie, in the formats they are stored in.
#pragma once

#include <kvdecode/io/architectures/gguf_fields.hpp>
#include <kvdecode/io/gguf.hpp>
#include <kvdecode/io/gguf_architectures.hpp>
#include <kvdecode/io/gguf_tensor_binder.hpp>
#include <kvdecode/io/loaded_model.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/simd/fp_env.hpp>
#include <kvdecode/core/types.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline const GgufArchitecture& read_gguf_architecture(const GgufMetadata& metadata) {
  const std::optional<std::string_view> type = metadata.as_string("general.type");
  if (type && *type != "model") [[unlikely]]
    raise(ErrorCode::kUnsupported, metadata.source(), ": general.type ", in_quotes(*type),
          " is not supported, only model is");
  const std::optional<std::string_view> name = metadata.as_string("general.architecture");
  if (!name) [[unlikely]]
    raise(ErrorCode::kBadFile, metadata.source(), ": general.architecture is missing");
  if (const GgufArchitecture* const architecture = find_gguf_architecture(*name)) return *architecture;
  std::string known;
  for (const GgufArchitecture& each : kGgufArchitectures)
    known.append(known.empty() ? "" : ", ").append(each.name);
  raise(ErrorCode::kUnsupported, metadata.source(), ": architecture ", in_quotes(*name),
        " is not supported (supported: ", known, ")");
}

/// The tokens that these keys name, each once.
inline std::vector<TokenId> read_gguf_token_ids(const GgufMetadata& metadata,
                                                std::span<const std::string_view> keys, Index vocab_size) {
  std::vector<TokenId> ids;
  for (const std::string_view key : keys) {
    const std::optional<std::int64_t> id = metadata.as_integer(key);
    if (!id) continue;
    if (*id < 0 || *id >= vocab_size) [[unlikely]]
      raise(ErrorCode::kBadFile, metadata.source(), ": ", key, " ", *id, " is not a token, there are ",
            vocab_size);
    if (std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

/// What was not read: keys of the architecture have to be known as harmless, others describe where the file
/// comes from. The tokenizer's and the split's are for others to read.
inline std::vector<std::string> read_gguf_leftovers(const GgufFields& fields, const GgufMetadata& metadata,
                                                    const GgufArchitecture& architecture) {
  std::vector<std::string> ignored;
  for (const std::string& key : fields.unread()) {
    const std::string_view name = std::string_view(key).substr(architecture.name.size() + 1);
    if (std::find(architecture.harmless_keys.begin(), architecture.harmless_keys.end(), name) ==
        architecture.harmless_keys.end()) [[unlikely]]
      raise(ErrorCode::kUnsupported, fields.source(), ": the key ", in_quotes(key), " is not known for ",
            architecture.name, " and might change the result");
    ignored.push_back(key);
  }
  constexpr std::string_view read_elsewhere[] = {"tokenizer.", "split.", "general.alignment",
                                                 "general.architecture", "general.type"};
  for (const auto& [key, value] : metadata.entries()) {
    const auto is_prefix = [k = key](std::string_view prefix) { return k.starts_with(prefix); };
    if (!key.starts_with(fields.name_of("")) &&
        std::none_of(std::begin(read_elsewhere), std::end(read_elsewhere), is_prefix))
      ignored.emplace_back(key);
  }
  std::sort(ignored.begin(), ignored.end());
  return ignored;
}

inline LoadedModel read_gguf_model(std::span<const GgufFile> files) {
  const GgufFile& first = files.front();
  const GgufMetadata& metadata = first.metadata();
  const GgufArchitecture& architecture = read_gguf_architecture(metadata);
  GgufTensorBinder tensors(first.source());
  for (const GgufFile& file : files) tensors.add(file);
  GgufFields fields(metadata, architecture.name);
  LoadedModel model;
  architecture.read_config(fields, tensors, model.config);
  try {
    model.config.validate();
  } catch (const Error& error) {
    raise(ErrorCode::kBadFile, first.source(), ": ", error.what());
  }
  model.report.ignored_fields = read_gguf_leftovers(fields, metadata, architecture);
  architecture.bind_weights(model.config, tensors, model.weights);
  tensors.finish(model.weights, model.report);
  model.report.architecture = architecture.name;

  constexpr std::string_view bos[] = {"tokenizer.ggml.bos_token_id"};
  // A turn of a conversation may end with a token of its own.
  constexpr std::string_view eos[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                      "tokenizer.ggml.eom_token_id"};
  model.bos_token_ids = read_gguf_token_ids(metadata, bos, model.config.vocab_size);
  model.eos_token_ids = read_gguf_token_ids(metadata, eos, model.config.vocab_size);
  return model;
}

}  // namespace detail

/// Loads a model of one of kGgufArchitectures, to be computed by a Transformer over GgufFormats. O(metadata,
/// tensors): the weights are read when they are used.
/// @param path  the file, or any one of a split
/// @throws Error kBadFile: a file is missing, malformed or lies; kUnsupported: an architecture, key or tensor
/// type that cannot be honoured; kMismatch: a tensor is missing, has another shape, or has no place
inline LoadedModel load_gguf_model(const std::filesystem::path& path) {
  return with_default_fp_env([&] { return detail::read_gguf_model(open_gguf_files(path)); });
}

}  // namespace kvdecode

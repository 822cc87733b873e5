// SPDX-License-Identifier: MIT
// <kvdecode/pipeline/load_model.hpp> - a model's weights and config, whatever the files are.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/io/huggingface_model.hpp>
#include <kvdecode/io/loaded_model.hpp>

#include <filesystem>
#include <system_error>

namespace kvdecode::inline KVDECODE_ABI {

/// A model's weights and config, without a tokenizer: from a Hugging Face folder.
/// @throws Error kBadFile, kUnsupported, kMismatch, naming file and field or tensor
inline LoadedModel load_model(const std::filesystem::path& path) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) [[unlikely]]
    detail::raise(ErrorCode::kBadFile,
                  path.empty() ? "a model's path is empty" : path.string() + ": does not exist");
  if (!std::filesystem::is_directory(path, error)) [[unlikely]]
    detail::raise(
        ErrorCode::kUnsupported, path.string(),
        ": is a single file; models are read from Hugging Face folders (config.json, model.safetensors)");
  return load_huggingface_model(path);
}

}  // namespace kvdecode

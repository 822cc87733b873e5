// SPDX-License-Identifier: MIT
// <kvdecode/pipeline/load_model.hpp> - a model's weights and config, whatever the files are.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/io/gguf_model.hpp>
#include <kvdecode/io/huge_pages.hpp>
#include <kvdecode/io/huggingface_model.hpp>
#include <kvdecode/io/loaded_model.hpp>

#include <filesystem>
#include <system_error>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {

/// A model's weights and config, without a tokenizer: from a Hugging Face folder or a GGUF file. To be computed
/// by a FileTransformer.
/// @throws Error kBadFile, kUnsupported, kMismatch, naming file and field or tensor; std::bad_alloc
inline LoadedModel load_model(const std::filesystem::path& path, const LoadOptions& options = {}) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) [[unlikely]]
    detail::raise(ErrorCode::kBadFile,
                  path.empty() ? "a model's path is empty" : path.string() + ": does not exist");
  if (path.extension() != ".gguf" && std::filesystem::is_regular_file(path, error) &&
      std::filesystem::exists(path.parent_path() / "config.json", error)) [[unlikely]]
    detail::raise(ErrorCode::kBadArgument, path.string(),
                  ": is one file of a Hugging Face folder, which is loaded by the folder's path");
  LoadedModel model =
      std::filesystem::is_directory(path, error) ? load_huggingface_model(path) : load_gguf_model(path);
  if (options.huge_pages) model.weights = copy_to_huge_pages(std::move(model.weights));
  return model;
}

}  // namespace kvdecode

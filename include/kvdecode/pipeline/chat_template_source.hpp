// SPDX-License-Identifier: MIT
// <kvdecode/pipeline/chat_template_source.hpp> - where a model keeps its chat template: the source text, not
// parsed, so that a template beyond what ChatTemplate serves does not keep a model from loading.
#pragma once

#include <kvdecode/io/gguf.hpp>
#include <kvdecode/io/gguf_metadata.hpp>
#include <kvdecode/io/mapped_file.hpp>
#include <kvdecode/text/detail/json_document.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

inline std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace detail

/// The chat template in the text of a tokenizer_config.json: `chat_template`, of several named ones the one
/// called "default"; empty if there is none.
/// @throws Error kBadFile if it is neither a text nor a list of named texts
inline std::string read_chat_template(std::string_view text) {
  const detail::Json document = detail::parse_json(text, "tokenizer_config.json");
  const detail::JsonView root(document, "tokenizer_config.json");
  if (!root.has("chat_template")) return "";
  const detail::JsonView found = root.at("chat_template");
  if (found.value().is_string()) return found.string();
  if (!found.value().is_array()) found.expected("a text or a list of named texts");
  std::string source;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::string& candidate = found[i].at("template").string();
    if (found[i].at("name").string() == "default") source = candidate;
  }
  return source;
}

/// The chat template of a GGUF file; empty if there is none. @throws Error kBadFile if it is no string
inline std::string read_chat_template(const GgufMetadata& metadata) {
  return std::string(metadata.as_string("tokenizer.chat_template").value_or(""));
}

/// The chat template of a GGUF file, or of a Hugging Face folder: chat_template.jinja, else what
/// tokenizer_config.json says; empty if there is none. @throws Error kBadFile, naming the file
inline std::string load_chat_template(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error))
    return read_chat_template(open_gguf_files(path).front().metadata());
  const std::filesystem::path own = path / "chat_template.jinja";
  if (std::filesystem::exists(own, error)) return std::string(detail::text_of(MappedFile(own)));
  const std::filesystem::path config = path / "tokenizer_config.json";
  if (std::filesystem::exists(config, error)) return read_chat_template(detail::text_of(MappedFile(config)));
  return "";
}

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/pipeline/text_model.hpp> - a model with its tokenizer, from what people have on their disks.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/io/gguf.hpp>
#include <kvdecode/io/loaded_model.hpp>
#include <kvdecode/io/mapped_file.hpp>
#include <kvdecode/pipeline/chat_template_source.hpp>
#include <kvdecode/pipeline/gguf_tokenizer.hpp>
#include <kvdecode/pipeline/load_model.hpp>
#include <kvdecode/text/tokenizer.hpp>
#include <kvdecode/text/tokenizer_json.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// A model that reads and writes text: weights, tokenizer and chat template. A cheap
/// handle.
class TextModel {
 public:
  TextModel(LoadedModel model, Tokenizer tokenizer, std::string chat_template = {})
      : model_(std::move(model)), tokenizer_(std::move(tokenizer)), chat_template_(std::move(chat_template)) {
    if (tokenizer_.vocab_size() > model_.config.vocab_size) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, "the tokenizer has ", tokenizer_.vocab_size(),
                    " tokens, the model only ", model_.config.vocab_size);
    stop_tokens_ = model_.eos_token_ids;
    if (const auto eos = tokenizer_.eos_id();
        eos && std::find(stop_tokens_.begin(), stop_tokens_.end(), *eos) == stop_tokens_.end())
      stop_tokens_.push_back(*eos);
  }

  /// The model, computing in S: shares the weights, copies only norms and biases.
  template <Scalar S = float, ActivationPolicy Activations = ExactActivations>
  FileTransformer<S, Activations> transformer() const {
    return FileTransformer<S, Activations>(model_.config, model_.weights);
  }
  const Tokenizer& tokenizer() const noexcept { return tokenizer_; }
  const ModelConfig& config() const noexcept { return model_.config; }
  const LoadReport& report() const noexcept { return model_.report; }
  /// The tokens that end a text, as model and tokenizer name them.
  const std::vector<TokenId>& stop_tokens() const noexcept { return stop_tokens_; }
  /// The source text of the model's chat template, as ChatTemplate parses it; empty if it has none.
  const std::string& chat_template() const noexcept { return chat_template_; }

 private:
  LoadedModel model_;
  Tokenizer tokenizer_;
  std::string chat_template_;
  std::vector<TokenId> stop_tokens_;
};

/// The tokenizer of a GGUF file, or of a Hugging Face folder: tokenizer.json, and the names of first and last
/// token in tokenizer_config.json, if it is there. @throws Error kBadFile, kUnsupported
inline TokenizerSpec load_tokenizer_spec(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error))
    return read_gguf_tokenizer(open_gguf_files(path).front().metadata());
  TokenizerSpec spec = read_tokenizer_json(detail::text_of(MappedFile(path / "tokenizer.json")));
  const std::filesystem::path config = path / "tokenizer_config.json";
  if (std::filesystem::exists(config, error))
    apply_tokenizer_config(spec, detail::text_of(MappedFile(config)));
  return spec;
}

/// Loads a model, its tokenizer and its chat template, from a Hugging Face folder or a GGUF file. Where the
/// tokenizer names no first or last token, the model's are taken.
/// @throws Error kBadFile, kUnsupported, kMismatch, naming file and field or tensor; kUnsupported for a file
/// without a tokenizer, which load_model() reads
inline TextModel load_text_model(const std::filesystem::path& path, const LoadOptions& options = {}) {
  LoadedModel model = load_model(path, options);
  TokenizerSpec spec = load_tokenizer_spec(path);
  std::error_code error;
  if (!std::filesystem::is_directory(path, error))  // GGUF files do not name all that a folder's config does
    for (const TokenId id : find_end_of_turn_tokens(spec))
      if (std::find(model.eos_token_ids.begin(), model.eos_token_ids.end(), id) == model.eos_token_ids.end())
        model.eos_token_ids.push_back(id);
  if (!spec.bos_id && !model.bos_token_ids.empty()) spec.bos_id = model.bos_token_ids.front();
  if (!spec.eos_id && !model.eos_token_ids.empty()) spec.eos_id = model.eos_token_ids.front();
  return TextModel(std::move(model), Tokenizer(std::move(spec)), load_chat_template(path));
}

}  // namespace kvdecode

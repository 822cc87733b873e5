// SPDX-License-Identifier: MIT
#include <kvdecode/pipeline/text_model.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace {

namespace fs = std::filesystem;

const fs::path kShipped = fs::path(KVDECODE_EXAMPLE_DATA_DIR) / "tiny-shakespeare";

/// A copy of the shipped model's folder, which a test may spoil.
struct ScratchFolder {
  explicit ScratchFolder(const char* name) : path(fs::temp_directory_path() / name) {
    fs::remove_all(path);
    fs::create_directories(path);
    for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"})
      fs::copy_file(kShipped / file, path / file);
  }
  ~ScratchFolder() { fs::remove_all(path); }

  fs::path path;
};

std::string message_of(const fs::path& folder) {
  try {
    kvdecode::load_text_model(folder);
  } catch (const kvdecode::Error& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("load_text_model: the shipped model comes with its sizes, its tokenizer and its last token") {
  const kvdecode::TextModel model = kvdecode::load_text_model(kShipped);
  CHECK(model.config().n_layers == 6);
  CHECK(model.config().vocab_size == 1024);
  CHECK(model.tokenizer().vocab_size() == 1024);
  CHECK(model.tokenizer().eos_id() == kvdecode::TokenId{0});
  CHECK(model.stop_tokens() == std::vector<kvdecode::TokenId>{0});
  CHECK(model.transformer().config().d_model == 128);
  CHECK(model.transformer<double>().config().d_model == 128);
}

TEST_CASE("load_text_model: handles share the weights and outlive the model they came from") {
  auto model = std::make_unique<kvdecode::TextModel>(kvdecode::load_text_model(kShipped));
  const kvdecode::FileTransformer<float> first = model->transformer(), second = model->transformer();
  model.reset();
  CHECK(first.weights().token_embedding.data == second.weights().token_embedding.data);
  CHECK(first.weights().token_embedding.data[0] == second.weights().token_embedding.data[0]);
}

TEST_CASE("load_text_model: what is missing or does not belong together is named") {
  CHECK(message_of("no/such/folder") == "no/such/folder: does not exist");
  CHECK(message_of("") == "a model's path is empty");
  CHECK(contains(message_of(kShipped / "config.json"), "is one file of a Hugging Face folder"));
  ScratchFolder folder("kvdecode_text_model_test");
  fs::remove(folder.path / "tokenizer.json");
  CHECK(contains(message_of(folder.path), "tokenizer.json"));
  std::ofstream(folder.path / "tokenizer.json") << "{\"model\": ";
  CHECK(contains(message_of(folder.path), "tokenizer.json"));
  fs::copy_file(kShipped / "tokenizer.json", folder.path / "tokenizer.json",
                fs::copy_options::overwrite_existing);
  CHECK(message_of(folder.path) == "");
  fs::remove(folder.path / "model.safetensors");
  CHECK(contains(message_of(folder.path), "has neither model.safetensors"));
}

TEST_CASE("load_text_model: the chat template comes with the model, if it has one") {
  const ScratchFolder folder("kvdecode_text_model_chat_test");
  CHECK(kvdecode::load_text_model(folder.path).chat_template().empty());
  std::ofstream(folder.path / "tokenizer_config.json") << R"({"chat_template": "{{ messages }}"})";
  CHECK(kvdecode::load_text_model(folder.path).chat_template() == "{{ messages }}");
}

TEST_CASE("load_text_model: a tokenizer with more tokens than the model is refused") {
  kvdecode::LoadedModel model = kvdecode::load_model(kShipped);
  model.config.vocab_size = 1000;
  const kvdecode::Tokenizer tokenizer(kvdecode::load_tokenizer_spec(kShipped));
  CHECK_THROWS_WITH_AS(kvdecode::TextModel(model, tokenizer),
                       "the tokenizer has 1024 tokens, the model only 1000", kvdecode::Error);
}

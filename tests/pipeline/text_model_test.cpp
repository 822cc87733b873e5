// SPDX-License-Identifier: MIT
#include <kvdecode/pipeline/text_model.hpp>

#include <kvdecode/io/gguf.hpp>

#include <doctest/doctest.h>
#include <io/gguf_support.hpp>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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

/// A GGUF model of 80 tokens without a tokenizer.
const fs::path kGgufModel =
    fs::path(KVDECODE_TEST_DATA_DIR) / "gguf" / "models" / "llama-gqa-tied" / "model.gguf";

/// Writes that model to `path` with a tokenizer of its own: what `add` writes.
void write_gguf(const fs::path& path, const std::function<void(io_test::GgufWriter&)>& add) {
  const kvdecode::GgufFile file(kGgufModel);
  const auto text_of = [](std::span<const std::byte> bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  io_test::GgufWriter writer;
  for (const auto& [key, value] : file.metadata().entries())
    if (!key.starts_with("tokenizer.")) {
      REQUIRE_FALSE(value.is_array);
      writer.raw_value(key, static_cast<std::uint32_t>(value.type), text_of(value.bytes));
    }
  for (const kvdecode::GgufTensor& tensor : file.tensors())
    writer.tensor(tensor.name, {tensor.shape().begin(), tensor.shape().end()}, tensor.type->number,
                  text_of(tensor.bytes));
  add(writer);
  std::ofstream(path, std::ios::binary) << writer.bytes();
}

/// Marks, the bytes of "ab" and a word; ids 4 and 5 end a turn, the file names the first of them.
void add_tokenizer(io_test::GgufWriter& writer) {
  writer.value("tokenizer.ggml.model", "gpt2");
  writer.value("tokenizer.ggml.pre", "gpt-2");
  writer.array("tokenizer.ggml.tokens",
               std::vector<std::string>{"<|start|>", "a", "b", "ab", "<|eot_id|>", "<|im_end|>"});
  writer.array("tokenizer.ggml.token_type", std::vector<std::int32_t>{3, 1, 1, 1, 3, 3});
  writer.array("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  writer.value("tokenizer.ggml.bos_token_id", std::uint32_t{0});
  writer.value("tokenizer.ggml.eos_token_id", std::uint32_t{4});
  writer.value("tokenizer.ggml.add_bos_token", true);
  writer.value("tokenizer.chat_template", "{{ bos_token }}");
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

TEST_CASE("load_text_model: huge pages take the matrices out of the file, and nothing else changes") {
  const kvdecode::LoadedModel mapped = kvdecode::load_model(kShipped),
                              copied = kvdecode::load_model(kShipped, {.huge_pages = true});
  CHECK(copied.weights.owners.size() == mapped.weights.owners.size() + 1);
  CHECK(copied.report.n_bytes == mapped.report.n_bytes);
  const kvdecode::TextModel model = kvdecode::load_text_model(kShipped, {.huge_pages = true});
  const kvdecode::MatrixView &a = mapped.weights.layers[0].w_q.matrix,
                             b = model.transformer().weights().layers[0].w_q.matrix;
  CHECK(std::memcmp(a.data, b.data, static_cast<std::size_t>(a.rows * a.stride)) == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(b.data) % kvdecode::kCacheLine == 0);
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

TEST_CASE(
    "load_text_model: a GGUF file brings its tokenizer, its chat template and all tokens that end a turn") {
  const ScratchFolder folder("kvdecode_text_model_gguf_test");
  write_gguf(folder.path / "model.gguf", add_tokenizer);
  const kvdecode::TextModel model = kvdecode::load_text_model(folder.path / "model.gguf");
  CHECK(model.config().vocab_size == 80);
  CHECK(model.tokenizer().vocab_size() == 6);
  CHECK(model.tokenizer().encode("ab<|im_end|>") == std::vector<kvdecode::TokenId>{0, 3, 5});
  CHECK(model.tokenizer().decode(std::vector<kvdecode::TokenId>{0, 3, 1}) == "aba");
  CHECK(model.stop_tokens() == std::vector<kvdecode::TokenId>{4, 5});
  CHECK(model.chat_template() == "{{ bos_token }}");
}

TEST_CASE("load_text_model: a GGUF file without a tokenizer is a model, but not of texts") {
  CHECK(kvdecode::load_model(kGgufModel).config.vocab_size == 80);
  CHECK(contains(message_of(kGgufModel), "model.gguf: has no tokenizer (tokenizer.ggml.model is \"none\")"));
  const ScratchFolder folder("kvdecode_text_model_none_test");
  write_gguf(folder.path / "model.gguf", [](io_test::GgufWriter&) {});
  CHECK(kvdecode::load_model(folder.path / "model.gguf").config.vocab_size == 80);
  CHECK(contains(message_of(folder.path / "model.gguf"),
                 "model.gguf: has no tokenizer (tokenizer.ggml.model is missing)"));
}

TEST_CASE("load_text_model: a tokenizer with more tokens than the model is refused") {
  kvdecode::LoadedModel model = kvdecode::load_model(kShipped);
  model.config.vocab_size = 1000;
  const kvdecode::Tokenizer tokenizer(kvdecode::load_tokenizer_spec(kShipped));
  CHECK_THROWS_WITH_AS(kvdecode::TextModel(model, tokenizer),
                       "the tokenizer has 1024 tokens, the model only 1000", kvdecode::Error);
}

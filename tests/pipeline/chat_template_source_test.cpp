// SPDX-License-Identifier: MIT
#include <kvdecode/pipeline/chat_template_source.hpp>

#include <kvdecode/io/gguf.hpp>

#include <doctest/doctest.h>
#include <io/gguf_support.hpp>

#include <filesystem>
#include <fstream>
#include <string>

namespace {

namespace fs = std::filesystem;

/// An empty folder of the test's own.
struct ScratchFolder {
  explicit ScratchFolder(const char* name) : path(fs::temp_directory_path() / name) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~ScratchFolder() { fs::remove_all(path); }

  void write(const char* file, std::string_view text) const {
    std::ofstream(path / file, std::ios::binary) << text;
  }

  fs::path path;
};

std::string message_of(std::string_view tokenizer_config) {
  try {
    kvdecode::read_chat_template(tokenizer_config);
  } catch (const kvdecode::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("chat_template_source: a tokenizer_config.json has a text, named texts or none") {
  using kvdecode::read_chat_template;
  CHECK(read_chat_template(R"({"chat_template": "{{ messages }}\n"})") == "{{ messages }}\n");
  CHECK(read_chat_template(R"({"chat_template": [{"name": "tool_use", "template": "a"},
                                                 {"name": "default", "template": "b"},
                                                 {"name": "rag", "template": "c"}]})") == "b");
  CHECK(read_chat_template(R"({"chat_template": [{"name": "tool_use", "template": "a"}]})").empty());
  CHECK(read_chat_template(R"({"chat_template": null})").empty());
  CHECK(read_chat_template(R"({"bos_token": "<s>"})").empty());
}

TEST_CASE("chat_template_source: a template that is none is an error that says where") {
  CHECK(message_of(R"({"chat_template": 1})") ==
        "tokenizer_config.json.chat_template: expected a text or a list of named texts, got number");
  CHECK(message_of(R"({"chat_template": [{"name": "default"}]})") ==
        "tokenizer_config.json.chat_template[0]: has no \"template\"");
  CHECK(message_of(R"({"chat_template": [{"template": "a"}]})") ==
        "tokenizer_config.json.chat_template[0]: has no \"name\"");
  CHECK(message_of(R"({"chat_template": ["a"]})") ==
        "tokenizer_config.json.chat_template[0]: expected an object, got string");
}

TEST_CASE("chat_template_source: a file of its own goes before the tokenizer's") {
  const ScratchFolder folder("kvdecode_chat_template_source_test");
  CHECK(kvdecode::load_chat_template(folder.path).empty());
  folder.write("tokenizer_config.json", R"({"chat_template": "from the config"})");
  CHECK(kvdecode::load_chat_template(folder.path) == "from the config");
  folder.write("chat_template.jinja", "of its own\n");
  CHECK(kvdecode::load_chat_template(folder.path) == "of its own\n");
}

TEST_CASE("chat_template_source: a GGUF file has it among its metadata") {
  const ScratchFolder folder("kvdecode_chat_template_source_gguf_test");
  io_test::GgufWriter none, some, wrong;
  none.value("general.architecture", "llama");
  some.value("tokenizer.chat_template", "{{ bos_token }}");
  wrong.value("tokenizer.chat_template", std::uint32_t{1});
  folder.write("none.gguf", none.bytes());
  folder.write("some.gguf", some.bytes());
  folder.write("wrong.gguf", wrong.bytes());
  const auto read = [&](const char* file) {
    const kvdecode::GgufFile gguf(folder.path / file);
    return kvdecode::read_chat_template(gguf.metadata());
  };
  CHECK(read("none.gguf").empty());
  CHECK(read("some.gguf") == "{{ bos_token }}");
  CHECK_THROWS_WITH_AS(read("wrong.gguf"),
                       doctest::Contains("tokenizer.chat_template must be a string, got 1"), kvdecode::Error);
}

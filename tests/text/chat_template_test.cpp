// SPDX-License-Identifier: MIT
#include <kvdecode/core/error.hpp>
#include <kvdecode/text/chat_template.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

using kvdecode::ChatInput;
using kvdecode::ChatJson;
using kvdecode::ChatTemplate;
using kvdecode::Error;
using kvdecode::ErrorCode;

namespace kvdecode_test {

inline ChatInput conversation() {
  ChatInput input;
  input.messages = ChatJson::parse(
      R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "<b>Hi</b> & \"you\" é"}])");
  input.add_generation_prompt = true;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  return input;
}

constexpr std::string_view kPlainTemplate = R"({{- bos_token }}
{%- for message in messages %}
    {{- '<|' + message.role + '|>' + message.content | trim + eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' }}
{%- endif %}
)";

inline ErrorCode code_of(std::string_view source, const ChatInput& input) {
  try {
    const std::string text = ChatTemplate(source).render(input);
    FAIL("expected an error, got the text ", text);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kMismatch;
}

}  // namespace kvdecode_test

using namespace kvdecode_test;

TEST_CASE("ChatTemplate: a conversation becomes the model's text") {
  const ChatTemplate chat(kPlainTemplate);
  ChatInput input = conversation();
  CHECK(chat.render(input) == "<s><|system|>Be brief.</s><|user|><b>Hi</b> & \"you\" é</s><|assistant|>");
  input.add_generation_prompt = false;
  input.messages.erase(0);
  const ChatTemplate copy = chat;
  CHECK(copy.render(input) == "<s><|user|><b>Hi</b> & \"you\" é</s>");
}

TEST_CASE("ChatTemplate: what is not given is not defined, or none") {
  ChatInput input;
  CHECK(ChatTemplate("{{ bos_token is defined }}{{ tools }}{{ documents is none }}{{ add_generation_prompt }}"
                     "{{ messages }}{{ strftime_now is defined }}")
            .render(input) == "FalseNoneTrueFalse[]False");
  input.bos_token = "";
  CHECK(ChatTemplate("{{ bos_token is defined }}").render(input) == "True");
}

TEST_CASE("ChatTemplate: variables, tools and documents reach the template in their order") {
  ChatInput input = conversation();
  input.tools = ChatJson::parse(R"([{"z": 1, "a": {"y": "<é>", "b": null}}])");
  input.documents = ChatJson::parse(R"([{"title": "T"}])");
  input.variables = ChatJson::parse(R"({"enable_thinking": false, "bos_token": "[B]"})");
  CHECK(ChatTemplate("{{ bos_token }}{{ tools | tojson }}{{ documents[0].title }}{{ enable_thinking }}")
            .render(input) == R"([B][{"z": 1, "a": {"y": "<é>", "b": null}}]TFalse)");
  for (const char* name : {"messages", "tools", "documents", "add_generation_prompt"}) {
    input.variables = ChatJson{{name, 1}};
    CHECK(code_of("x", input) == ErrorCode::kBadArgument);
  }
  input.variables = ChatJson::array();
  CHECK(code_of("x", input) == ErrorCode::kBadArgument);
  input.variables = {};
  CHECK(ChatTemplate("x").render(input) == "x");
  input.messages = "Hi";
  CHECK(code_of("x", input) == ErrorCode::kBadArgument);
}

TEST_CASE("ChatTemplate: a message's reasoning is found under both names") {
  const ChatTemplate chat("{% for m in messages %}{{ m.thinking }}|{{ m.reasoning_content }};{% endfor %}");
  ChatInput input;
  input.messages = ChatJson::parse(R"([{"reasoning": "r"}, {"thinking": "t", "reasoning": "r"},
                                       {"thinking": "t", "reasoning_content": "c"}, {"content": "x"}, "text"])");
  CHECK(chat.render(input) == "r|r;t|t;c|c;|;|;");
}

TEST_CASE("ChatTemplate: the time is the caller's") {
  ChatInput input;
  input.clock = [] {
    std::tm time{};
    time.tm_year = 124;
    time.tm_mon = 6;
    time.tm_mday = 26;
    return time;
  };
  CHECK(ChatTemplate("{{ strftime_now('%d %b %Y') }}").render(input) == "26 Jul 2024");
}

TEST_CASE("ChatTemplate: errors carry the template's message") {
  const ChatInput input = conversation();
  try {
    ChatTemplate("{{ raise_exception('Roles must alternate: ' ~ messages[0].role) }}").render(input);
    FAIL("expected an error");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kBadArgument);
    CHECK(std::string(error.what()) == "Roles must alternate: system");
  }
  CHECK(code_of("{{ messages[0].nope.x }}", input) == ErrorCode::kBadArgument);
  CHECK(code_of("{% if %}", input) == ErrorCode::kBadFile);
  CHECK(code_of("{% extends 'x' %}", input) == ErrorCode::kUnsupported);
  CHECK(code_of("{{ messages | random }}", input) == ErrorCode::kUnsupported);
}

#ifdef KVDECODE_CHAT_DIR

namespace kvdecode_test {

inline ChatInput input_of(const ChatJson& record) {
  ChatInput input;
  input.messages = record.at("messages");
  input.add_generation_prompt = record.at("add_generation_prompt").get<bool>();
  if (record.at("bos_token").is_string()) input.bos_token = record.at("bos_token").get<std::string>();
  if (record.at("eos_token").is_string()) input.eos_token = record.at("eos_token").get<std::string>();
  if (record.contains("tools")) input.tools = record.at("tools");
  if (record.contains("documents")) input.documents = record.at("documents");
  if (record.contains("kwargs")) input.variables = record.at("kwargs");
  if (record.contains("now") && record.at("now").is_string()) {
    std::tm time{};
    std::istringstream text(record.at("now").get<std::string>());
    char mark = 0;
    text >> time.tm_year >> time.tm_mon >> time.tm_mday >> mark >> time.tm_hour >> mark >> time.tm_min >>
        mark >> time.tm_sec;
    time.tm_year -= 1900;
    time.tm_mon = -time.tm_mon - 1;  // the hyphens were read as signs
    time.tm_mday = -time.tm_mday;
    REQUIRE(text);
    input.clock = [time] { return time; };
  }
  return input;
}

inline std::string file_text(const std::string& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file, path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace kvdecode_test

TEST_CASE("ChatTemplate: the templates of models give the reference's text or its error") {
  const std::string folder = KVDECODE_CHAT_DIR;
  const ChatJson records = ChatJson::parse(file_text(folder + "/vectors.json"));
  std::map<std::string, ChatTemplate> templates;
  for (const ChatJson& record : records) {
    const std::string name = record.at("template").get<std::string>();
    if (templates.find(name) == templates.end()) templates.emplace(name, file_text(folder + "/" + name));
    CAPTURE(name);
    CAPTURE(record.at("name").get<std::string>());
    try {
      const std::string text = templates.at(name).render(input_of(record));
      REQUIRE(record.contains("expected"));
      CHECK(text == record.at("expected").get<std::string>());
    } catch (const Error& error) {
      REQUIRE(record.contains("expected_error"));
      CHECK(error.code() == ErrorCode::kBadArgument);
      CHECK(error.what() == record.at("expected_error").at("message").get<std::string>());
    }
  }
}

TEST_CASE("ChatTemplate: the templates of models, cut anywhere, give a text or an error") {
  const std::string folder = KVDECODE_CHAT_DIR;
  const ChatJson records = ChatJson::parse(file_text(folder + "/vectors.json"));
  std::map<std::string, ChatInput> inputs;
  for (const ChatJson& record : records) inputs[record.at("template").get<std::string>()] = input_of(record);
  std::size_t n_errors = 0;
  for (const auto& [name, input] : inputs) {
    const std::string source = file_text(folder + "/" + name);
    const std::size_t stride = source.size() > 4096 ? 13 : 1;  // the work grows with the square of the length
    for (std::size_t length = 0; length < source.size(); length += stride) {
      try {
        ChatTemplate(std::string_view(source).substr(0, length)).render(input);
      } catch (const Error&) {
        ++n_errors;
      }
    }
  }
  CHECK(n_errors > 1000);
}

#endif

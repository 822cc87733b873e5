// SPDX-License-Identifier: MIT
#include <kvdecode/pipeline/conversation.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace {

namespace fs = std::filesystem;

using kvdecode::Conversation;
using kvdecode::Error;
using kvdecode::ErrorCode;

Conversation sample() {
  return {"Be \"brief\".\n",
          {{"user", "Grüße, \\ / \t 你好 🙂"},
           {"assistant", std::string("a\0b\x1b[1m", 7)},
           {"user", ""},
           {"assistant", "\n"}}};
}

/// The error of a text with `fields` in the place of those after format and version.
std::string message_of(const std::string& fields, ErrorCode code = ErrorCode::kBadFile) {
  try {
    kvdecode::parse_conversation(R"({"format": "kvdecode conversation", "version": 1, )" + fields + "}",
                                 "c.json");
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("conversation: what is saved is what is loaded") {
  const fs::path path = fs::temp_directory_path() / "kvdecode_conversation_test.json";
  for (const Conversation& conversation :
       {sample(), Conversation{}, Conversation{"only a system text", {}}}) {
    save_conversation(conversation, path);
    CHECK(kvdecode::load_conversation(path) == conversation);
    CHECK(kvdecode::parse_conversation(conversation_text(conversation), "text") == conversation);
  }
  fs::remove(path);
}

TEST_CASE("conversation: the file is the one that the header documents") {
  const Conversation conversation{"Answer briefly.",
                                  {{"user", "Who wrote Hamlet?"}, {"assistant", "Shakespeare."}}};
  CHECK(conversation_text(conversation) == R"({
  "format": "kvdecode conversation",
  "version": 1,
  "system": "Answer briefly.",
  "messages": [
    {
      "role": "user",
      "content": "Who wrote Hamlet?"
    },
    {
      "role": "assistant",
      "content": "Shakespeare."
    }
  ]
}
)");
}

TEST_CASE("conversation: a malformed file is refused in one line that names the field") {
  CHECK(message_of(R"("messages": [])") == "");
  CHECK(message_of(R"("system": null, "messages": [])") == "");
  CHECK(message_of(R"("system": 1, "messages": [])") == "c.json: system must be a string, got 1");
  CHECK(message_of(R"("system": "")") == "c.json: messages must be a list, got nothing");
  CHECK(message_of(R"("messages": {})") == "c.json: messages must be a list, got an object");
  CHECK(message_of(R"("messages": ["Hi"])") == R"(c.json: messages[0] must be an object, got "Hi")");
  CHECK(message_of(R"("messages": [{"content": "x"}])") ==
        "c.json: messages[0].role is missing, expected a string");
  CHECK(message_of(R"("messages": [{"role": "user", "content": "x"}, {"role": "assistant"}])") ==
        "c.json: messages[1].content is missing, expected a string");
  CHECK(message_of(R"("messages": [{"role": "user", "content": ["x"]}])") ==
        "c.json: messages[0].content must be a string, got a list");
  CHECK(message_of(R"("messages": [{"role": "user", "content": "x", "name": "y"}])",
                   ErrorCode::kUnsupported) == "c.json: messages[0].name is no field of a conversation");
  CHECK(message_of(R"("messages": [], "tools": [])", ErrorCode::kUnsupported) ==
        "c.json: tools is no field of a conversation");
  CHECK(message_of("\"messages\": [], \"s\x7fstem\": \"\"", ErrorCode::kUnsupported) ==
        R"(c.json: s\x7fstem is no field of a conversation)");
  CHECK(message_of(R"("messages": [], ")" + std::string(3000, 'x') + R"(": "")", ErrorCode::kUnsupported) ==
        "c.json: " + std::string(200, 'x') + "... is no field of a conversation");
  CHECK(message_of(R"("messages": [{"role": "system", "content": "x"}])", ErrorCode::kBadArgument) ==
        R"(c.json: messages[0].role is "system", expected "user")");
  CHECK(message_of(R"("messages": [{"role": "user", "content": "x"}, {"role": "user", "content": "x"}])",
                   ErrorCode::kBadArgument) == R"(c.json: messages[1].role is "user", expected "assistant")");
  CHECK(message_of(R"("messages": [{"role": "user", "content": "x"}])", ErrorCode::kBadArgument) ==
        "c.json: messages[0] is a question without an answer");
  CHECK(message_of("\"messages\": [{\"role\": \"user\", \"content\": \"\xff\"}]") != "");
}

TEST_CASE("conversation: other files and later versions are told apart") {
  const auto message = [](std::string_view text) -> std::string {
    try {
      kvdecode::parse_conversation(text, "c.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message(R"({"version": 1, "messages": []})") == "c.json: format is missing, expected a string");
  CHECK(message(R"({"format": "other", "version": 1, "messages": []})") ==
        R"(c.json: format is "other", expected "kvdecode conversation")");
  CHECK(message(R"({"format": "kvdecode conversation", "version": 2, "messages": []})") ==
        "c.json: version is 2, expected 1");
  CHECK(message(R"({"format": "kvdecode conversation", "messages": []})") ==
        "c.json: version is missing, expected a positive integer");
  for (const char* text : {"", "x", "[]", "{", "null", "{\"format\": \"kvdecode conversation\""}) {
    const std::string error = message(text);
    CHECK(error.substr(0, 6) == "c.json");
    CHECK(error.find('\n') == std::string::npos);
  }
}

TEST_CASE("conversation: one that cannot be read again is not written") {
  const fs::path path = fs::temp_directory_path() / "kvdecode_conversation_test.json";
  save_conversation(sample(), path);
  Conversation bad = sample();
  bad.messages[2].content = "\xc3";
  CHECK_THROWS_WITH_AS(save_conversation(bad, path), "conversation: messages[2].content is not valid UTF-8",
                       Error);
  bad = sample();
  bad.system = "\x80";
  CHECK_THROWS_WITH_AS(save_conversation(bad, path), "conversation: system is not valid UTF-8", Error);
  bad = sample();
  bad.messages.pop_back();
  CHECK_THROWS_AS(save_conversation(bad, path), Error);
  CHECK(kvdecode::load_conversation(path) == sample());
  fs::remove(path);
  CHECK_THROWS_AS(kvdecode::load_conversation(path), Error);
}

// SPDX-License-Identifier: MIT
// <kvdecode/pipeline/conversation.hpp> - what was asked and answered, and the JSON file that keeps it:
//
//   {
//     "format": "kvdecode conversation",
//     "version": 1,
//     "system": "Answer briefly.",
//     "messages": [
//       {"role": "user", "content": "Who wrote Hamlet?"},
//       {"role": "assistant", "content": "Shakespeare."}
//     ]
//   }
//
// `system` may be absent. Messages alternate, a question (user) first, and each question has its answer
// (assistant). A field that is not listed here is refused: it would be lost.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/io/atomic_file.hpp>
#include <kvdecode/io/json.hpp>
#include <kvdecode/io/json_object.hpp>
#include <kvdecode/io/mapped_file.hpp>
#include <kvdecode/text/detail/utf8.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

struct ChatMessage {
  std::string role;     // "user" or "assistant"
  std::string content;  // UTF-8

  bool operator==(const ChatMessage&) const = default;
};

/// Questions with their answers, and what the model is told before them.
struct Conversation {
  std::string system = {};                 // empty: nothing
  std::vector<ChatMessage> messages = {};  // [2 * n_exchanges] user, assistant, user, …

  bool operator==(const Conversation&) const = default;
};

/// @param source what errors call the conversation, a file's name for instance
/// @throws Error kBadArgument unless roles alternate as they should and all texts are UTF-8
inline void check_conversation(const Conversation& conversation, std::string_view source = "conversation") {
  using detail::raise;
  constexpr std::array<std::string_view, 2> kRoles{"user", "assistant"};
  if (!detail::is_utf8(conversation.system)) [[unlikely]]
    raise(ErrorCode::kBadArgument, source, ": system is not valid UTF-8");
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatMessage& message = conversation.messages[i];
    if (message.role != kRoles[i % 2]) [[unlikely]]
      raise(ErrorCode::kBadArgument, source, ": messages[", i, "].role is ", detail::in_quotes(message.role),
            ", expected ", detail::in_quotes(kRoles[i % 2]));
    if (!detail::is_utf8(message.content)) [[unlikely]]
      raise(ErrorCode::kBadArgument, source, ": messages[", i, "].content is not valid UTF-8");
  }
  if (conversation.messages.size() % 2 != 0) [[unlikely]]
    raise(ErrorCode::kBadArgument, source, ": messages[", conversation.messages.size() - 1,
          "] is a question without an answer");
}

namespace detail {

constexpr std::string_view kConversationFormat = "kvdecode conversation";
constexpr Index kConversationVersion = 1;

inline std::string required_string(JsonObject& object, std::string_view name) {
  std::optional<std::string> value = object.as_string(name);
  if (!value) [[unlikely]]
    raise(ErrorCode::kBadFile, object.source(), ": ", object.name_of(name), " is missing, expected a string");
  return *std::move(value);
}

inline void refuse_unread(const JsonObject& object) {
  if (const std::vector<std::string> unread = object.unread(); !unread.empty()) [[unlikely]]
    raise(ErrorCode::kUnsupported, object.source(), ": ", printable(object.name_of(unread.front())),
          " is no field of a conversation");
}

}  // namespace detail

/// The conversation of a JSON text; `source` names it in errors.
/// @throws Error kBadFile, kUnsupported (a later version, an unknown field), kBadArgument as
/// check_conversation() does; naming the field
inline Conversation parse_conversation(std::string_view text, std::string_view source) {
  using detail::raise;
  const nlohmann::json document = parse_json(text, source);
  JsonObject root(document, std::string(source));
  if (const std::string format = detail::required_string(root, "format");
      format != detail::kConversationFormat) [[unlikely]]
    raise(ErrorCode::kBadFile, source, ": format is ", detail::in_quotes(format), ", expected ",
          detail::in_quotes(detail::kConversationFormat));
  if (const Index version = root.positive_integer("version"); version != detail::kConversationVersion)
      [[unlikely]]
    raise(ErrorCode::kUnsupported, source, ": version is ", version, ", expected ",
          detail::kConversationVersion);
  Conversation conversation;
  conversation.system = root.string("system", "");
  const nlohmann::json* const messages = root.find("messages");
  if (messages == nullptr || !messages->is_array()) [[unlikely]]
    raise(ErrorCode::kBadFile, source, ": messages must be a list, got ",
          messages == nullptr ? "nothing" : detail::described(*messages));
  detail::refuse_unread(root);
  conversation.messages.reserve(messages->size());
  for (const nlohmann::json& item : *messages) {
    const std::string name = "messages[" + std::to_string(conversation.messages.size()) + "]";
    if (!item.is_object()) [[unlikely]]
      raise(ErrorCode::kBadFile, source, ": ", name, " must be an object, got ", detail::described(item));
    JsonObject message(item, std::string(source), name + ".");
    std::string role = detail::required_string(message, "role");
    std::string content = detail::required_string(message, "content");
    detail::refuse_unread(message);
    conversation.messages.push_back({std::move(role), std::move(content)});
  }
  check_conversation(conversation, source);
  return conversation;
}

/// The JSON text of a conversation, which parse_conversation() reads.
/// @throws Error kBadArgument as check_conversation() does
inline std::string conversation_text(const Conversation& conversation) {
  check_conversation(conversation);
  nlohmann::ordered_json document{{"format", detail::kConversationFormat},
                                  {"version", detail::kConversationVersion}};
  if (!conversation.system.empty()) document["system"] = conversation.system;
  nlohmann::ordered_json& messages = document["messages"] = nlohmann::ordered_json::array();
  for (const ChatMessage& message : conversation.messages)
    messages.push_back({{"role", message.role}, {"content", message.content}});
  return document.dump(2) + "\n";
}

/// @throws Error kBadFile, kUnsupported, kBadArgument as parse_conversation() does
inline Conversation load_conversation(const std::filesystem::path& path) {
  const MappedFile file(path);
  return parse_conversation({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()},
                            file.path());
}

/// Writes the file as a whole or not at all. @throws Error kBadFile, kBadArgument as check_conversation() does
inline void save_conversation(const Conversation& conversation, const std::filesystem::path& path) {
  const std::string text = conversation_text(conversation);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  write_file_atomically(path, {&bytes, 1});
}

}  // namespace kvdecode

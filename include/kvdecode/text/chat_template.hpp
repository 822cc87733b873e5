// SPDX-License-Identifier: MIT
// <kvdecode/text/chat_template.hpp> - a model's chat template: the messages of a conversation to the text that
// the model was trained on. Templates come with models from strangers and are run inside limits.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/text/jinja/json_text.hpp>
#include <kvdecode/text/jinja/meter.hpp>
#include <kvdecode/text/jinja/template.hpp>

#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {

/// JSON that keeps the order of its keys: templates print it.
using ChatJson = jinja::Json;

/// What one template may ask for.
using ChatTemplateLimits = jinja::Limits;

/// What a conversation gives to its template.
struct ChatInput {
  ChatJson messages = ChatJson::array();  ///< objects: role, content, tool_calls, …
  bool add_generation_prompt = false;     ///< end with what begins an answer
  std::optional<std::string> bos_token = {};
  std::optional<std::string> eos_token = {};
  ChatJson tools = {};                      ///< a list of functions, or null
  ChatJson documents = {};                  ///< a list, or null
  ChatJson variables = ChatJson::object();  ///< further names, such as enable_thinking; they hide the tokens
  std::function<std::tm()> clock = {};      ///< the time for strftime_now, which is not defined without
};

/// A parsed chat template (the Jinja subset that models use, sandboxed). A cheap handle on an immutable state:
/// copies may be used on any threads.
class ChatTemplate {
 public:
  /// @throws Error kBadFile with the line for text that is no template, kUnsupported beyond the limits or for
  /// what needs other templates.
  explicit ChatTemplate(std::string_view source, const ChatTemplateLimits& limits = {})
      : template_(source, limits) {}

  /// The text of a conversation. A message's reasoning (reasoning_content, thinking or reasoning, the first
  /// that is there) is found under both of the first two names.
  /// @throws Error kBadArgument with the template's own message if it refuses the conversation or fails,
  /// kUnsupported beyond the limits.
  std::string render(const ChatInput& input) const {
    if (!input.messages.is_array()) {
      detail::raise(ErrorCode::kBadArgument, "chat template: messages are ", input.messages.type_name(),
                    ", expected a list");
    }
    ChatJson context = ChatJson::object();
    if (input.bos_token) context["bos_token"] = *input.bos_token;
    if (input.eos_token) context["eos_token"] = *input.eos_token;
    if (!input.variables.is_null() && !input.variables.is_object()) {
      detail::raise(ErrorCode::kBadArgument, "chat template: variables are ", input.variables.type_name(),
                    ", expected an object");
    }
    for (auto item = input.variables.begin(); item != input.variables.end(); ++item) {
      const std::string& name = item.key();
      if (name == "messages" || name == "tools" || name == "documents" || name == "add_generation_prompt") {
        detail::raise(ErrorCode::kBadArgument, "chat template: the variable ", name,
                      " has a member of its own");
      }
      context[name] = item.value();
    }
    context["messages"] = with_reasoning(input.messages);
    context["tools"] = input.tools;
    context["documents"] = input.documents;
    context["add_generation_prompt"] = input.add_generation_prompt;
    return template_.render(context, input.clock);
  }

 private:
  static ChatJson with_reasoning(ChatJson messages) {
    for (ChatJson& message : messages) {
      if (!message.is_object()) continue;
      for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
        const auto found = message.find(name);
        if (found == message.end()) continue;
        const ChatJson reasoning = *found;
        message["thinking"] = reasoning;
        message["reasoning_content"] = reasoning;
        break;
      }
    }
    return messages;
  }

  jinja::Template template_;
};

}  // namespace kvdecode

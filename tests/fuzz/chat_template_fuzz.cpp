// SPDX-License-Identifier: MIT
// A chat template and, behind a zero byte, what it is rendered with: a JSON object.
#include <kvdecode/text/chat_template.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "fuzz.hpp"

using kvdecode::ChatInput;
using kvdecode::ChatJson;
using kvdecode::ChatTemplate;

namespace {

constexpr kvdecode::ChatTemplateLimits kLimits{
    .max_template_bytes = 1 << 14, .max_steps = 1 << 16, .max_memory_bytes = 1 << 20};

/// The text; none if the template refuses. What it says then is its own.
std::optional<std::string> rendered(const ChatTemplate& chat, const ChatInput& input) {
  try {
    return chat.render(input);
  } catch (const kvdecode::Error& error) {
    fuzz::require(error.code() == kvdecode::ErrorCode::kBadArgument ||
                      error.code() == kvdecode::ErrorCode::kUnsupported,
                  "rendering fails with one of two codes");
    return std::nullopt;
  }
}

void render(std::string_view source, std::string_view context) {
  ChatInput input;
  const ChatJson json = ChatJson::parse(context, nullptr, false);
  if (json.is_object()) {
    input.messages = json.value("messages", ChatJson::array());
    input.tools = json.value("tools", ChatJson());
    input.add_generation_prompt = json.contains("add_generation_prompt");
    for (const auto& [name, value] : json.items())
      if (name != "messages" && name != "tools" && name != "documents" && name != "add_generation_prompt")
        input.variables[name] = value;
  }
  input.bos_token = "<s>";
  input.clock = [] { return std::tm{}; };
  std::optional<ChatTemplate> chat;
  try {
    chat.emplace(source, kLimits);
  } catch (const kvdecode::Error&) {
    return;
  }
  const std::optional<std::string> text = rendered(*chat, input);
  fuzz::require(!text || text->size() <= kLimits.max_memory_bytes, "the text is within the limit");
  fuzz::require(text == rendered(*chat, input), "a template gives the same text again");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::HeapBytes heap({data, size});
  const std::string_view input = fuzz::as_text(heap.bytes);
  const std::size_t end = std::min(input.find('\0'), size);
  // Twice the limit for values and the text in them; the rest is the parsed template and the context.
  fuzz::within(512 * size + 2 * kLimits.max_memory_bytes + (std::size_t{1} << 20),
               [&] { render(input.substr(0, end), end < size ? input.substr(end + 1) : "{}"); });
  return 0;
}

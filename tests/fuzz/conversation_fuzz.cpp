// SPDX-License-Identifier: MIT
// The file that keeps a conversation, and what is written of it again.
#include <kvdecode/pipeline/conversation.hpp>

#include <cstddef>
#include <cstdint>

#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::HeapBytes heap({data, size});
  fuzz::within(128 * size + 65536, [&] {
    fuzz::accepts([&] {
      const kvdecode::Conversation conversation =
          kvdecode::parse_conversation(fuzz::as_text(heap.bytes), "fuzz.json");
      const std::string text = kvdecode::conversation_text(conversation);
      fuzz::require(kvdecode::parse_conversation(text, "written.json") == conversation,
                    "what is written is read again");
    });
  });
  return 0;
}

// SPDX-License-Identifier: MIT
// The tokenizer and the chat template in the metadata of a GGUF file; general.name is the text to encode.
#include <kvdecode/io/gguf.hpp>
#include <kvdecode/pipeline/chat_template_source.hpp>
#include <kvdecode/pipeline/gguf_tokenizer.hpp>
#include <kvdecode/text/chat_template.hpp>
#include <kvdecode/text/tokenizer.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz.hpp"
#include "use_tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::HeapBytes heap({data, size});
  fuzz::within(1024 * size + (std::size_t{32} << 20), [&] {
    fuzz::accepts([&] {
      const kvdecode::GgufFile file(heap.bytes, heap.owner, "fuzz.gguf");
      const kvdecode::GgufMetadata& metadata = file.metadata();
      fuzz::accepts([&] { kvdecode::read_chat_template(metadata); });
      const kvdecode::TokenizerSpec spec = kvdecode::read_gguf_tokenizer(metadata);
      const kvdecode::Tokenizer tokenizer(spec);
      fuzz::require(tokenizer.vocab_size() == static_cast<kvdecode::Index>(spec.tokens.size()),
                    "every token of the file is one");
      for (const kvdecode::TokenId id : kvdecode::find_end_of_turn_tokens(spec))
        fuzz::require(!tokenizer.piece(id).empty(), "ends of turns are tokens");
      fuzz::use_tokenizer(tokenizer, metadata.as_string("general.name").value_or("a b"));
    });
  });
  return 0;
}

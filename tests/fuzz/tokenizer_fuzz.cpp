// SPDX-License-Identifier: MIT
// tokenizer.json and, behind a zero byte, a text to encode; without one, the file itself is the text.
#include <kvdecode/text/tokenizer.hpp>
#include <kvdecode/text/tokenizer_json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz.hpp"
#include "use_tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMaxText = 2000;  // bytes
  const fuzz::HeapBytes heap({data, size});
  const std::string_view input = fuzz::as_text(heap.bytes);
  const std::size_t end = std::min(input.find('\0'), size);
  const std::string_view file = input.substr(0, end);
  const std::string_view text = (end < size ? input.substr(end + 1) : file).substr(0, kMaxText);
  // Some tables have an entry for each of 65536 ids, and an expression may have 16 MiB to match with.
  fuzz::within(1024 * size + (std::size_t{32} << 20), [&] {
    fuzz::accepts(
        [&] { fuzz::use_tokenizer(kvdecode::Tokenizer(kvdecode::read_tokenizer_json(file)), text); });
  });
  return 0;
}

// SPDX-License-Identifier: MIT
// safetensors: a file, what is written of it again, and the index of a model in several files.
#include <kvdecode/io/huggingface_model.hpp>
#include <kvdecode/io/safetensors.hpp>
#include <kvdecode/io/safetensors_writer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "fuzz.hpp"

using kvdecode::SafetensorsFile;
using kvdecode::SafetensorsTensor;

namespace {

bool same(const SafetensorsTensor& a, const SafetensorsTensor& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape &&
         std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end());
}

void read_file(const fuzz::HeapBytes& heap) {
  const SafetensorsFile file(heap.bytes, heap.owner, "fuzz.safetensors");
  for (const SafetensorsTensor& tensor : file.tensors())
    fuzz::require(file.find(tensor.name) == &tensor, "a name finds its tensor");
  const std::map<std::string, std::string> metadata(file.metadata().begin(), file.metadata().end());
  const auto written = std::make_shared<std::string>();
  std::string head;
  for (const std::span<const std::byte> part :
       kvdecode::detail::safetensors_parts(file.tensors(), metadata, head))
    *written += fuzz::as_text(part);
  const SafetensorsFile again(std::as_bytes(std::span(*written)), written, "written.safetensors");
  fuzz::require(std::equal(file.tensors().begin(), file.tensors().end(), again.tensors().begin(),
                           again.tensors().end(), same),
                "what is written is read again");
  fuzz::require(std::equal(file.metadata().begin(), file.metadata().end(), again.metadata().begin(),
                           again.metadata().end()),
                "metadata that is written is read again");
}

void read_index(const fuzz::HeapBytes& heap) {
  const nlohmann::json json = kvdecode::parse_json(fuzz::as_text(heap.bytes), "fuzz.index.json");
  for (const auto& [file, tensors] : kvdecode::detail::read_safetensors_index(json, "fuzz.index.json")) {
    fuzz::require(file.find('/') == std::string::npos && file.ends_with(".safetensors"),
                  "shards lie in the folder of their index");
    fuzz::require(std::is_sorted(tensors.begin(), tensors.end()), "tensors of a shard are in order");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::HeapBytes heap({data, size});
  fuzz::within(128 * size + 65536, [&] {
    fuzz::accepts([&] { read_file(heap); });
    fuzz::accepts([&] { read_index(heap); });
  });
  return 0;
}

// SPDX-License-Identifier: MIT
// GGUF: the container, every value and tensor of it, and the model that it may be.
#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/io/gguf_model.hpp>
#include <kvdecode/model/check_weights.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fuzz.hpp"

namespace {

void read_all(const kvdecode::GgufFile& file) {
  const kvdecode::GgufMetadata& metadata = file.metadata();
  for (const auto& [key, value] : metadata.entries()) {
    fuzz::require(metadata.find(key) == &value, "a key finds its value");
    fuzz::touch(value.bytes);
    const std::string shown = kvdecode::detail::described(value);
    fuzz::require(shown.size() < 1000, "values are shown shortly");
    // Errors repeat a key as it was asked for, and nobody asks for these.
    if (!fuzz::is_plain(key)) continue;
    fuzz::accepts([&, k = key] { metadata.as_string(k); });
    fuzz::accepts([&, k = key] { metadata.as_integer(k); });
    fuzz::accepts([&, k = key] { metadata.as_number(k); });
    fuzz::accepts([&, k = key] { metadata.as_boolean(k); });
    fuzz::accepts([&, k = key] { metadata.as_integers(k); });
    fuzz::accepts([&, k = key] { metadata.as_numbers(k); });
    fuzz::accepts([&, k = key] {
      const auto texts = metadata.as_strings(k);
      for (const std::string_view text : *texts) fuzz::touch(std::as_bytes(std::span(text)));
    });
  }
  for (const kvdecode::GgufTensor& tensor : file.tensors()) {
    fuzz::require(file.find(tensor.name) == &tensor, "a name finds its tensor");
    fuzz::touch(tensor.bytes);
  }
}

void touch_matrix(const kvdecode::MatrixView& w) {
  fuzz::touch({w.data, static_cast<std::size_t>(w.rows * w.stride)});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::HeapBytes heap({data, size});
  // Families whose layers differ have an entry for each of at most 4096.
  fuzz::within(16 * size + (std::size_t{2} << 20), [&] {
    fuzz::accepts([&] {
      const kvdecode::GgufFile file(heap.bytes, heap.owner, "fuzz.gguf");
      read_all(file);
      const kvdecode::LoadedModel model = kvdecode::with_default_fp_env(
          [&] { return kvdecode::detail::read_gguf_model(std::span(&file, 1)); });
      model.config.validate();
      kvdecode::check_weights<kvdecode::GgufFormats>(model.config, model.weights);
      touch_matrix(model.weights.token_embedding);
      for (const kvdecode::LayerWeights& layer : model.weights.layers)
        for (const kvdecode::LinearWeights* const linear : {&layer.w_q, &layer.w_k, &layer.w_v, &layer.w_o})
          touch_matrix(linear->matrix);
    });
  });
  return 0;
}

// SPDX-License-Identifier: MIT
// config.json of every family and, behind a zero byte, generation_config.json.
#include <kvdecode/io/huggingface_model.hpp>
#include <kvdecode/model/rotary_frequencies.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fuzz.hpp"

using kvdecode::Index;

namespace {

void check_tokens(const std::vector<kvdecode::TokenId>& ids, Index vocab_size) {
  for (const kvdecode::TokenId id : ids)
    fuzz::require(id >= 0 && id < vocab_size, "special tokens are tokens");
}

/// Computes the angles of a config that was accepted, unless it asks for very many.
void check_rotary(const kvdecode::ModelConfig& model, const kvdecode::RotaryConfig& config, Index dim) {
  if (dim > 512) return;
  std::vector<double> frequencies(static_cast<std::size_t>(dim / 2));
  for (const Index epoch : {Index{0}, model.rotary_epoch(4 * model.max_seq_len)}) {
    kvdecode::rotary_frequencies(config, dim, epoch, frequencies.data());
    for (const double f : frequencies)
      fuzz::require(std::isfinite(f), "angles of a valid config are numbers");
  }
}

void read_config(std::string_view config_json, std::string_view generation_json) {
  kvdecode::HuggingFaceConfig config = kvdecode::parse_huggingface_config(config_json);
  const kvdecode::ModelConfig& model = config.model;
  model.validate();
  check_tokens(config.bos_token_ids, model.vocab_size);
  check_tokens(config.eos_token_ids, model.vocab_size);
  check_rotary(model, model.rotary, model.rotary_dim());
  for (Index i = 0; i < std::min<Index>(model.n_layers, 8); ++i)
    check_rotary(model, model.rotary_of(i), model.rotary_dim_of(i));

  const kvdecode::HuggingFaceArchitecture* const architecture =
      kvdecode::find_huggingface_architecture(config.architecture);
  fuzz::require(architecture != nullptr, "an architecture that was read is known");
  kvdecode::TensorBinder tensors("fuzz.safetensors");
  kvdecode::Weights weights;
  fuzz::require(!fuzz::accepts([&] { architecture->bind_weights(config, tensors, weights); }),
                "no model is made of no tensors");

  fuzz::accepts([&] {
    kvdecode::detail::read_generation_config(kvdecode::parse_json(generation_json, "generation_config.json"),
                                             "generation_config.json", config);
    check_tokens(config.bos_token_ids, model.vocab_size);
    check_tokens(config.eos_token_ids, model.vocab_size);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::HeapBytes heap({data, size});
  const std::string_view text = fuzz::as_text(heap.bytes);
  const std::size_t end = std::min(text.find('\0'), size);
  const std::string_view generation = end < size ? text.substr(end + 1) : "{}";
  // Families whose layers differ have an entry for each of at most 4096.
  fuzz::within(128 * size + (std::size_t{4} << 20),
               [&] { fuzz::accepts([&] { read_config(text.substr(0, end), generation); }); });
  return 0;
}

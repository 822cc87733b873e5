// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures.hpp> - the families of Hugging Face models that can be loaded. A new one is a
// header in architectures/ and a line here.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/llama.hpp>

#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

inline constexpr HuggingFaceArchitecture kHuggingFaceArchitectures[] = {
    kLlamaArchitecture,
};

/// The family of that name ("LlamaForCausalLM"); nullptr if there is none.
constexpr const HuggingFaceArchitecture* find_huggingface_architecture(std::string_view name) {
  for (const HuggingFaceArchitecture& architecture : kHuggingFaceArchitectures)
    if (architecture.name == name) return &architecture;
  return nullptr;
}

}  // namespace kvdecode

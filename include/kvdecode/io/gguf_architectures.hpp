// SPDX-License-Identifier: MIT
// <kvdecode/io/gguf_architectures.hpp> - the families of GGUF models that can be loaded. A new one is a header
// in architectures/ and a line here.
#pragma once

#include <kvdecode/io/architectures/gguf_architecture.hpp>
#include <kvdecode/io/architectures/gguf_llama.hpp>

#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

inline constexpr GgufArchitecture kGgufArchitectures[] = {
    kGgufLlama,
};

/// The family of that name ("llama"); nullptr if there is none.
constexpr const GgufArchitecture* find_gguf_architecture(std::string_view name) {
  for (const GgufArchitecture& architecture : kGgufArchitectures)
    if (architecture.name == name) return &architecture;
  return nullptr;
}

}  // namespace kvdecode

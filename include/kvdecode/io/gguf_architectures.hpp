// SPDX-License-Identifier: MIT
// <kvdecode/io/gguf_architectures.hpp> - the families of GGUF models that can be loaded. A new one is a header
// in architectures/ and a line here.
#pragma once

#include <kvdecode/io/architectures/gguf_architecture.hpp>
#include <kvdecode/io/architectures/gguf_gemma.hpp>
#include <kvdecode/io/architectures/gguf_gemma2.hpp>
#include <kvdecode/io/architectures/gguf_gemma3.hpp>
#include <kvdecode/io/architectures/gguf_gemma4.hpp>
#include <kvdecode/io/architectures/gguf_gpt2.hpp>
#include <kvdecode/io/architectures/gguf_llama.hpp>
#include <kvdecode/io/architectures/gguf_olmo2.hpp>
#include <kvdecode/io/architectures/gguf_phi3.hpp>
#include <kvdecode/io/architectures/gguf_qwen2.hpp>
#include <kvdecode/io/architectures/gguf_qwen3.hpp>
#include <kvdecode/io/architectures/gguf_qwen3moe.hpp>
#include <kvdecode/io/architectures/gguf_stablelm.hpp>

#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

inline constexpr GgufArchitecture kGgufArchitectures[] = {
    kGgufLlama,  kGgufQwen2,  kGgufQwen3, kGgufQwen3Moe, kGgufGemma, kGgufGemma2,
    kGgufGemma3, kGgufGemma4, kGgufPhi3,  kGgufStableLm, kGgufOlmo2, kGgufGpt2,
};

/// The family of that name ("llama"); nullptr if there is none.
constexpr const GgufArchitecture* find_gguf_architecture(std::string_view name) {
  for (const GgufArchitecture& architecture : kGgufArchitectures)
    if (architecture.name == name) return &architecture;
  return nullptr;
}

}  // namespace kvdecode

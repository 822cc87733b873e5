// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures.hpp> - the families of Hugging Face models that can be loaded. A new one is a
// header in architectures/ and a line here.
#pragma once

#include <kvdecode/io/architectures/architecture.hpp>
#include <kvdecode/io/architectures/deepseek_v2.hpp>
#include <kvdecode/io/architectures/deepseek_v3.hpp>
#include <kvdecode/io/architectures/gemma.hpp>
#include <kvdecode/io/architectures/gemma2.hpp>
#include <kvdecode/io/architectures/gemma3.hpp>
#include <kvdecode/io/architectures/gemma4.hpp>
#include <kvdecode/io/architectures/gpt2.hpp>
#include <kvdecode/io/architectures/llama.hpp>
#include <kvdecode/io/architectures/mistral.hpp>
#include <kvdecode/io/architectures/mixtral.hpp>
#include <kvdecode/io/architectures/olmo2.hpp>
#include <kvdecode/io/architectures/phi3.hpp>
#include <kvdecode/io/architectures/qwen2.hpp>
#include <kvdecode/io/architectures/qwen3.hpp>
#include <kvdecode/io/architectures/qwen3_moe.hpp>
#include <kvdecode/io/architectures/stablelm.hpp>

#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

inline constexpr HuggingFaceArchitecture kHuggingFaceArchitectures[] = {
    kLlamaArchitecture,  kMistralArchitecture,  kMixtralArchitecture,    kQwen2Architecture,
    kQwen3Architecture,  kQwen3MoeArchitecture, kGemmaArchitecture,      kGemma2Architecture,
    kGemma3Architecture, kGemma4Architecture,   kPhi3Architecture,       kStableLmArchitecture,
    kOlmo2Architecture,  kGpt2Architecture,     kDeepseekV2Architecture, kDeepseekV3Architecture,
};

/// The family of that name ("LlamaForCausalLM"); nullptr if there is none.
constexpr const HuggingFaceArchitecture* find_huggingface_architecture(std::string_view name) {
  for (const HuggingFaceArchitecture& architecture : kHuggingFaceArchitectures)
    if (architecture.name == name) return &architecture;
  return nullptr;
}

}  // namespace kvdecode

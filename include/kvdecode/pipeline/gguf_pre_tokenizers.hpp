// SPDX-License-Identifier: MIT
// <kvdecode/pipeline/gguf_pre_tokenizers.hpp> - the pre-tokenizers that GGUF files only name: how a text is
// normalized and divided before the merges of a byte-level vocabulary apply. Other names are refused.
#pragma once

#include <kvdecode/text/detail/pre_tokenizer.hpp>
#include <kvdecode/text/tokenizer_spec.hpp>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

// The patterns of the models' own tokenizer.json files.
constexpr std::string_view kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseekV3Ideographs = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+)";
constexpr std::string_view kDeepseekV3Words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseekIdeographs = R"([\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]+)";
// Letters that have a case, though not all of them: the list is the model's.
constexpr std::string_view kDeepseekLlmWords =
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A})"
    R"(\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556})"
    R"(\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF})"
    R"(\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D})"
    R"(\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D})"
    R"(\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC})"
    R"(\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC})"
    R"(\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128})"
    R"(\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183})"
    R"(\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})"
    R"(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF})"
    R"(\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F})"
    R"(\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2})"
    R"(\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)";
constexpr std::string_view kDeepseekLlmSymbols =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";

using PreTokenizerSteps = std::vector<PreTokenizerStep>;

/// Divides at each pattern in turn, keeping its matches as pieces.
inline PreTokenizerSteps split_at(std::initializer_list<std::string_view> patterns) {
  PreTokenizerSteps steps;
  for (const std::string_view pattern : patterns)
    steps.push_back({.kind = PreTokenizerStep::Kind::kSplit, .pattern = {std::string(pattern), true}});
  return steps;
}
inline PreTokenizerSteps digits_apart(PreTokenizerSteps steps, bool individual_digits) {
  steps.push_back({.kind = PreTokenizerStep::Kind::kDigits, .individual_digits = individual_digits});
  return steps;
}
inline PreTokenizerSteps to_bytes(PreTokenizerSteps steps, bool use_regex = false) {
  steps.push_back({.kind = PreTokenizerStep::Kind::kByteLevel, .use_regex = use_regex});
  return steps;
}

inline PreTokenizerSteps gpt2_steps() { return to_bytes({}, true); }
inline PreTokenizerSteps digits_gpt2_steps() { return to_bytes(digits_apart({}, true), true); }
inline PreTokenizerSteps llama3_steps() { return to_bytes(split_at({kLlama3Words})); }
inline PreTokenizerSteps qwen2_steps() { return to_bytes(split_at({kQwen2Words})); }
inline PreTokenizerSteps qwen35_steps() { return to_bytes(split_at({kQwen35Words})); }
inline PreTokenizerSteps deepseek_v3_steps() {
  return to_bytes(split_at({R"(\p{N}{1,3})", kDeepseekV3Ideographs, kDeepseekV3Words}));
}
inline PreTokenizerSteps deepseek_llm_steps() {
  return to_bytes(digits_apart(
      split_at({R"([\r\n])", kDeepseekLlmWords, kDeepseekLlmSymbols, R"(\s+$)", kDeepseekIdeographs}), true));
}
inline PreTokenizerSteps deepseek_coder_steps() {
  return to_bytes(
      digits_apart(split_at({R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekIdeographs}), true));
}
inline PreTokenizerSteps falcon_steps() {
  PreTokenizerSteps steps = {
      {.kind = PreTokenizerStep::Kind::kPunctuation, .behavior = SplitBehavior::kContiguous}};
  steps = digits_apart(to_bytes(std::move(steps), true), false);
  steps.push_back(split_at({"[0-9][0-9][0-9]"}).front());
  return steps;
}
// What converters meant that did not know the model.
inline PreTokenizerSteps default_steps() {
  return to_bytes(split_at({R"([\p{P}$+<=>^~|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}));
}

}  // namespace detail

/// What a name in tokenizer.ggml.pre stands for.
struct GgufPreTokenizer {
  std::string_view name;
  std::vector<PreTokenizerStep> (*steps)() = nullptr;
  bool normalizes_nfc = false;
  bool ignores_merges = false;  ///< a piece that is a token is that token, merges or not
  bool adds_bos = false;        ///< unless the file says otherwise
};

/// All that are known, by name.
inline constexpr GgufPreTokenizer kGgufPreTokenizers[] = {
    {.name = "command-r", .steps = &detail::digits_gpt2_steps, .normalizes_nfc = true},
    {.name = "dbrx", .steps = &detail::llama3_steps},
    {.name = "deepseek-coder", .steps = &detail::deepseek_coder_steps},
    {.name = "deepseek-llm", .steps = &detail::deepseek_llm_steps},
    {.name = "deepseek-r1-qwen", .steps = &detail::qwen2_steps, .normalizes_nfc = true},
    {.name = "deepseek-v3", .steps = &detail::deepseek_v3_steps},
    {.name = "default", .steps = &detail::default_steps},
    {.name = "falcon", .steps = &detail::falcon_steps},
    {.name = "gpt-2", .steps = &detail::gpt2_steps},
    {.name = "llama-bpe", .steps = &detail::llama3_steps, .ignores_merges = true, .adds_bos = true},
    {.name = "llama-v3", .steps = &detail::llama3_steps, .ignores_merges = true, .adds_bos = true},
    {.name = "llama3", .steps = &detail::llama3_steps, .ignores_merges = true, .adds_bos = true},
    {.name = "mpt", .steps = &detail::gpt2_steps, .normalizes_nfc = true},
    {.name = "olmo", .steps = &detail::gpt2_steps, .normalizes_nfc = true},
    {.name = "phi-2", .steps = &detail::gpt2_steps},
    {.name = "qwen2", .steps = &detail::qwen2_steps, .normalizes_nfc = true},
    {.name = "qwen35", .steps = &detail::qwen35_steps, .normalizes_nfc = true},
    {.name = "refact", .steps = &detail::digits_gpt2_steps},
    {.name = "smaug-bpe", .steps = &detail::llama3_steps},
    {.name = "smollm", .steps = &detail::digits_gpt2_steps},
    {.name = "starcoder", .steps = &detail::digits_gpt2_steps},
};

/// The pre-tokenizer of that name; nullptr if it is not known.
constexpr const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name) {
  const auto found = std::find_if(std::begin(kGgufPreTokenizers), std::end(kGgufPreTokenizers),
                                  [name](const GgufPreTokenizer& each) { return each.name == name; });
  return found != std::end(kGgufPreTokenizers) ? found : nullptr;
}

}  // namespace kvdecode

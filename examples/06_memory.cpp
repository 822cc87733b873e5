// SPDX-License-Identifier: MIT
// 6. What does the cache cost in memory, and what makes it smaller?
//
//   bytes = 2 * n_layers * n_kv_heads * T * head_dim * bytes of a number         (2: keys and values)
//
//   a token and layer has to keep …                                             DeepSeek-AI 2024 (DeepSeek-V2), Table 1
//   MHA  2 n_heads head_dim       every query head has keys and values of its own       Vaswani 2017
//   GQA  2 n_kv_heads head_dim    some query heads share them                           Ainslie 2023
//   MQA  2 head_dim               all share one                                         Shazeer 2019
//   MLA  d_c + d_rope             d_c numbers, from which all heads' are made, and      DeepSeek-AI 2024
//                                 d_rope that carry the position
//   a window keeps min(T, window) tokens; a narrow format makes each number smaller.
//
// Run: build/examples/06_memory
#include <kvdecode/kvdecode.hpp>

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

using kvdecode::F16;
using kvdecode::Index;

namespace {

/// "131,072"
std::string with_commas(Index n) {
  std::string digits = std::to_string(n);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

/// "1.50 GiB"
std::string size(Index bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024.0 && unit < 3; ++unit) value /= 1024.0;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return text;
}

kvdecode::ModelConfig shape_of(Index n_layers, Index n_kv_heads, Index head_dim, Index window = 0) {
  kvdecode::ModelConfig config{.n_layers = n_layers, .n_kv_heads = n_kv_heads, .head_dim = head_dim};
  if (window > 0) config.spans.assign(static_cast<std::size_t>(n_layers), {.window = window});
  return config;
}

}  // namespace

int main() {
  bool all_true = true;
  const auto claim = [&](bool is_true, const char* sentence) {
    std::printf("  %-7s %s\n", is_true ? "[true]" : "[FALSE]", sentence);
    all_true = all_true && is_true;
  };

  // MLA keeps one row of 512 + 64 numbers for all heads of a layer, and no values beside it.
  const auto mla_bytes = [](Index n_layers, Index T) {
    return n_layers * T * (512 + 64) * F16::row_bytes(1);
  };

  struct Model {
    const char* name;
    const char* kept;  // in a layer
    kvdecode::ModelConfig config;
    Index longest;  // tokens it is made for
    bool is_mla = false;
  };
  const std::vector<Model> models{
      {"GPT-2", "12 heads of 64 (MHA)", shape_of(12, 12, 64), 1024},
      {"Llama-2-7B", "32 heads of 128 (MHA)", shape_of(32, 32, 128), 4096},
      {"Mistral-7B-v0.1", "8 heads of 128, window", shape_of(32, 8, 128, 4096), 32768},
      {"Llama-3.1-8B", "8 heads of 128 (GQA)", shape_of(32, 8, 128), 131072},
      {"DeepSeek-V3", "512 + 64 for all (MLA)", shape_of(61, 1, 1), 131072, true},
  };
  bool is_formula = true;
  std::printf("Keys and values of one sequence, two bytes a number (f16)\n\n");
  std::printf("  %-16s %6s  %-22s %11s %13s %9s %12s\n", "model", "layers", "kept of a token", "a token",
              "1,024 tokens", "longest", "that takes");
  for (const Model& m : models) {
    const auto bytes = [&](Index T) {
      return m.is_mla ? mla_bytes(m.config.n_layers, T)
                      : kvdecode::payload_bytes<F16>(m.config.kv_shape(), T);
    };
    std::printf("  %-16s %6td  %-22s %11s %13s %9s %12s\n", m.name, m.config.n_layers, m.kept,
                size(bytes(1)).c_str(), size(bytes(1024)).c_str(), with_commas(m.longest).c_str(),
                size(bytes(m.longest)).c_str());
    if (!m.is_mla)
      is_formula = is_formula &&
                   bytes(1024) == 2 * m.config.n_layers * m.config.n_kv_heads * 1024 * m.config.head_dim * 2;
  }

  // One shape, all ways to make its cache smaller: 32 layers of 32 query heads of 128 numbers.
  constexpr Index T = 131072;
  const auto mha = shape_of(32, 32, 128).kv_shape(), gqa = shape_of(32, 8, 128).kv_shape();
  const auto mqa = shape_of(32, 1, 128).kv_shape(), window = shape_of(32, 8, 128, 4096).kv_shape();
  // [readme]
  using kvdecode::payload_bytes, kvdecode::Int8, kvdecode::HadInt4;
  struct Way {
    const char* name;
    Index bytes;
  };
  const Way ways[]{
      {"MHA: 32 heads keep keys and values", payload_bytes<F16>(mha, T)},
      {"GQA: 8 do, four query heads share them", payload_bytes<F16>(gqa, T)},
      {"MQA: one does, all share it", payload_bytes<F16>(mqa, T)},
      {"MLA: 512 + 64 numbers for all heads", mla_bytes(32, T)},
      {"GQA, window of 4,096 in every layer", payload_bytes<F16>(window, T)},
      {"GQA, int8", payload_bytes<Int8>(gqa, T)},
      {"GQA, keys int8, values had_int4", payload_bytes<Int8, HadInt4>(gqa, T)},
  };
  // [readme]
  std::printf(
      "\n32 layers of 32 query heads of 128 numbers, 131,072 tokens (the weights of such a model: 15 "
      "GiB)\n\n");
  for (const Way& way : ways)
    std::printf("  %-42s %10s   1 / %5.1f\n", way.name, size(way.bytes).c_str(),
                static_cast<double>(ways[0].bytes) / static_cast<double>(way.bytes));
  std::printf(
      "\n  Batches multiply this: each sequence has a cache of its own. Memory, not arithmetic, limits "
      "how\n");
  std::printf("  many conversations a machine can hold.\n");

  // Allocated, where it fits: what the cache asks of memory, seen by the hook through which all of it comes.
  std::printf("\nAllocated\n\n");
  bool is_allocated = true;
  for (const Model& m : models) {
    if (m.is_mla || !m.config.spans.empty()) continue;
    constexpr Index n = 256;
    kvdecode::AllocationHook hook;
    Index held = 0;
    {
      const kvdecode::ScopedAllocationHook scope(hook);
      held = kvdecode::ContiguousCache<F16>(m.config.kv_shape(), n).bytes();
    }
    const Index expected = kvdecode::payload_bytes<F16>(m.config.kv_shape(), n);
    std::printf("  ContiguousCache<F16> for 256 tokens of %-14s %12s bytes, by the formula %12s\n", m.name,
                with_commas(held).c_str(), with_commas(expected).c_str());
    is_allocated = is_allocated && held == expected && hook.n_bytes >= held && hook.n_bytes < held + 4096;
  }
  std::printf("\n");
  claim(is_formula, "payload_bytes is the formula at the top of this program");
  claim(is_allocated, "a cache allocates that and not a page more");
  claim(ways[0].bytes == 4 * ways[1].bytes && ways[1].bytes == 8 * ways[2].bytes,
        "fewer KV heads, by as much less memory");
  claim(ways[3].bytes * 4 == ways[2].bytes * 9,
        "MLA's 512 + 64 numbers are worth two and a quarter KV heads");
  claim(ways[4].bytes * 32 == ways[1].bytes, "a window of 1 / 32 of the text takes 1 / 32 of the memory");
  return all_true ? 0 : 1;
}

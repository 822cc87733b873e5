// SPDX-License-Identifier: MIT
// Writes what the fuzz targets begin with, made of tests/data: OUTPUT/TARGET/NAME.
// usage: kvdecode_write_fuzz_seeds DATA OUTPUT
#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/sliding_window.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/decode/record.hpp>
#include <kvdecode/decode/samplers.hpp>
#include <kvdecode/io/session.hpp>
#include <kvdecode/pipeline/gguf_pre_tokenizers.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/session_model.hpp"
#include "io/gguf_support.hpp"

namespace {

namespace fs = std::filesystem;
using io_test::GgufWriter;
using Json = nlohmann::ordered_json;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path.string() + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error(path.string() + " cannot be written");
}

/// Calls f(path, name) for the files below a folder that are called so, or end so; names are unique.
void for_each_file(const fs::path& folder, std::string_view end,
                   const std::function<void(const fs::path&, const std::string&)>& f) {
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename().string().ends_with(end))
      f(entry.path(),
        entry.path().parent_path().filename().string() + "-" + entry.path().filename().string());
}

using Shape = std::vector<kvdecode::Index>;
using Tensors = std::vector<std::pair<std::string, Shape>>;

/// The tensors of a layer by family: d_model 8, two heads of 4 and one of keys and values, d_ff 12, two experts of 4.
std::map<std::string, Tensors> gguf_layers() {
  const auto all_of = [](std::initializer_list<Tensors> parts) {
    Tensors all;
    for (const Tensors& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const Tensors pre{{"attn_norm.weight", {8}}, {"ffn_norm.weight", {8}}},
      pre_biases{{"attn_norm.bias", {8}}, {"ffn_norm.bias", {8}}},
      post{{"post_attention_norm.weight", {8}}, {"post_ffw_norm.weight", {8}}},
      head_norms{{"attn_q_norm.weight", {4}}, {"attn_k_norm.weight", {4}}},
      whole_norms{{"attn_q_norm.weight", {8}}, {"attn_k_norm.weight", {4}}},
      qkv{{"attn_q.weight", {8, 8}}, {"attn_k.weight", {4, 8}}, {"attn_v.weight", {4, 8}}},
      qkv_biases{{"attn_q.bias", {8}}, {"attn_k.bias", {4}}, {"attn_v.bias", {4}}},
      fused{{"attn_qkv.weight", {16, 8}}}, output{{"attn_output.weight", {8, 8}}},
      gated{{"ffn_gate.weight", {12, 8}}, {"ffn_up.weight", {12, 8}}, {"ffn_down.weight", {8, 12}}},
      fused_gate{{"ffn_up.weight", {24, 8}}, {"ffn_down.weight", {8, 12}}},
      plain{{"ffn_up.weight", {12, 8}}, {"ffn_down.weight", {8, 12}}},
      gpt2_biases{
          {"attn_qkv.bias", {16}}, {"attn_output.bias", {8}}, {"ffn_up.bias", {12}}, {"ffn_down.bias", {8}}},
      experts{{"ffn_gate_inp.weight", {2, 8}},
              {"ffn_gate_exps.weight", {2, 4, 8}},
              {"ffn_up_exps.weight", {2, 4, 8}},
              {"ffn_down_exps.weight", {2, 8, 4}}};
  return {{"llama", all_of({pre, qkv, output, gated})},
          {"qwen2", all_of({pre, qkv, qkv_biases, output, gated})},
          {"qwen3", all_of({pre, qkv, head_norms, output, gated})},
          {"qwen3moe", all_of({pre, qkv, head_norms, output, experts})},
          {"gemma", all_of({pre, qkv, output, gated})},
          {"gemma2", all_of({pre, post, qkv, output, gated})},
          {"gemma3", all_of({pre, post, qkv, head_norms, output, gated})},
          {"phi3", all_of({pre, fused, output, fused_gate})},
          {"stablelm", all_of({pre, pre_biases, qkv, output, gated})},
          {"olmo2", all_of({post, qkv, whole_norms, output, gated})},
          {"gpt2", all_of({pre, pre_biases, fused, output, plain, gpt2_biases})}};
}

/// A model of one layer of a family, in a rotary scaling.
std::string gguf_model(const std::string& family, const Tensors& layer, std::string_view scaling) {
  GgufWriter writer;
  const auto text = [&](const std::string& key, std::string_view value) {
    writer.value(family + "." + key, value);
  };
  const auto count = [&](const std::string& key, std::uint32_t value) {
    writer.value(family + "." + key, value);
  };
  const auto number = [&](const std::string& key, float value) { writer.value(family + "." + key, value); };
  const bool has_layer_norm = family == "gpt2" || family == "stablelm", is_gpt2 = family == "gpt2",
             is_gemma = family.starts_with("gemma");
  writer.value("general.architecture", std::string_view(family));
  writer.value("general.name", std::string_view("seed"));
  count("block_count", 1);
  count("context_length", 32);
  count("embedding_length", 8);
  count("feed_forward_length", 12);
  count("attention.head_count", 2);
  count("attention.head_count_kv", 1);
  count("attention.key_length", 4);
  count("attention.value_length", 4);
  count("vocab_size", 3);
  number(has_layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 0.25f);
  if (!is_gpt2) {
    count("rope.dimension_count", 4);
    number("rope.freq_base", 500.0f);
    text("rope.scaling.type", scaling);
    number("rope.scaling.factor", 4.0f);
    count("rope.scaling.original_context_length", 16);
    number("rope.scaling.attn_factor", 1.25f);
    if (scaling == "yarn") {
      number("rope.scaling.yarn_attn_factor", 1.5f);
      number("rope.scaling.yarn_ext_factor", 1.0f);
      number("rope.scaling.yarn_beta_fast", 24.0f);
      number("rope.scaling.yarn_beta_slow", 2.0f);
    }
  }
  if (is_gemma || family == "phi3") count("attention.sliding_window", 8);
  if (family == "gemma3") number("rope.freq_base_swa", 100.0f);
  if (family == "qwen3moe") {
    count("expert_count", 2);
    count("expert_used_count", 1);
    count("expert_feed_forward_length", 4);
  }
  const auto tensor = [&](const std::string& name, const Shape& shape) {
    std::size_t n = 2;  // bytes of an F16
    for (const kvdecode::Index extent : shape) n *= static_cast<std::size_t>(extent);
    writer.tensor(name, shape, 1, std::string(n, '\x3c'));  // not zero
  };
  tensor("token_embd.weight", {3, 8});
  tensor("output_norm.weight", {8});
  if (!is_gemma) tensor("output.weight", {3, 8});
  if (has_layer_norm) tensor("output_norm.bias", {8});
  if (is_gpt2) tensor("position_embd.weight", {32, 8});
  if (scaling == "none" && !is_gpt2) tensor("rope_freqs.weight", {2});
  if (scaling == "longrope") {
    tensor("rope_factors_short.weight", {2});
    tensor("rope_factors_long.weight", {2});
  }
  for (const auto& [name, shape] : layer) tensor("blk.0." + name, shape);
  return writer.bytes();
}

void write_gguf(const fs::path& data, const fs::path& seeds) {
  for_each_file(data / "gguf/hostile", ".gguf",
                [&](const fs::path& path, const std::string& name) { write(seeds / name, read(path)); });
  for (const auto& [family, layer] : gguf_layers())
    for (const std::string scaling : {"none", "linear", "yarn", "longrope"})
      write(seeds / (family + "-" + scaling), gguf_model(family, layer, scaling));
}

void write_gguf_tokenizer(const fs::path& seeds) {
  const auto common = [](std::string_view model) {
    GgufWriter writer;
    writer.value("general.name", std::string_view("ab  <s>a<|im_end|> b\n1234 \u00e9\u4f60"));
    writer.value("tokenizer.ggml.model", model);
    writer.value("tokenizer.ggml.bos_token_id", std::uint32_t{1});
    writer.value("tokenizer.ggml.eos_token_id", std::uint32_t{2});
    writer.value("tokenizer.ggml.add_bos_token", true);
    writer.value("tokenizer.ggml.add_eos_token", false);
    writer.value("tokenizer.chat_template", std::string_view("{{ messages }}"));
    return writer;
  };
  for (const kvdecode::GgufPreTokenizer& pre : kvdecode::kGgufPreTokenizers) {
    GgufWriter writer = common("gpt2");
    writer.value("tokenizer.ggml.pre", pre.name);
    writer.array("tokenizer.ggml.tokens",
                 std::vector<std::string_view>{"?", "<s>", "<|im_end|>", "a", "b", "ab", "\u0120", "\u0120a",
                                               "1", "2", "12", "\u00c3", "\u00a9", "\u010a"});
    writer.array("tokenizer.ggml.token_type",
                 std::vector<std::int32_t>{2, 3, 3, 1, 1, 1, 1, 1, 4, 1, 1, 1, 1, 1});
    writer.array("tokenizer.ggml.merges", std::vector<std::string_view>{"a b", "\u0120 a", "1 2"});
    write(seeds / ("gpt2-" + std::string(pre.name)), writer.bytes());
  }
  for (const bool adds_space : {true, false}) {
    GgufWriter writer = common("llama");
    writer.value("tokenizer.ggml.add_space_prefix", adds_space);
    writer.array("tokenizer.ggml.tokens",
                 std::vector<std::string_view>{"<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "a", "b", "ab",
                                               "\u2581", "\u2581a", "<|im_end|>"});
    writer.array("tokenizer.ggml.token_type", std::vector<std::int32_t>{2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 4});
    writer.array("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, 0, 0, -5, -6, -1, -4, -2, 0});
    write(seeds / ("llama-" + std::to_string(adds_space)), writer.bytes());
  }
}

void write_conversation(const fs::path& seeds) {
  write(seeds / "short", R"({"format":"kvdecode conversation","version":1,"messages":[]})");
  write(seeds / "long", R"({"format":"kvdecode conversation","version":1,"system":"Be brief.","messages":[)"
                        R"({"role":"user","content":"a\n\u00e9"},{"role":"assistant","content":"b"}]})");
}

/// Appends n positions to all layers.
template <class Cache>
void append(Cache& cache, kvdecode::Index n) {
  const std::vector<float> row(2, 0.5f);
  const kvdecode::RowsView<const float> rows{row.data(), 1, 2, 2};
  for (kvdecode::Index i = 0; i < n; ++i) {
    cache.reserve(1);
    for (kvdecode::Index layer = 0; layer < cache.shape().n_layers(); ++layer)
      cache.append(layer, rows, rows);
    cache.commit();
  }
}

void write_session(const fs::path& seeds) {
  const auto transformer = fuzz::session_model();
  const std::vector<kvdecode::TokenId> tokens{0, 1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1};
  const std::vector<float> logits(4, 0.25f);
  const auto write_record = [&](const std::string& name, kvdecode::CacheRecord cache, bool has_logits,
                                bool has_sampling) {
    using State = kvdecode::SessionState<kvdecode::Sampling<>>;
    std::vector<kvdecode::detail::NamedWords> states;
    if (has_sampling) states.push_back({State::name(), State::words(kvdecode::Sampling<>())});
    const auto n = static_cast<std::size_t>(cache.kv_len);
    kvdecode::DecoderRecord<float> record{
        transformer.fingerprint(), "exact", std::span(tokens).first(n), {}, std::move(cache)};
    if (has_logits) record.logits = logits;
    std::string file;
    const kvdecode::detail::SessionImage image(record, std::move(states));
    for (const std::span<const std::byte> part : image.parts())
      file.append(reinterpret_cast<const char*>(part.data()), part.size());
    write(seeds / name, file);
  };
  kvdecode::ContiguousCache<> whole(transformer.kv_shape(), 40);
  write_record("empty", record_of(whole), false, false);
  append(whole, 12);
  write_record("whole", record_of(whole), true, false);
  write_record("sampling", record_of(whole), true, true);
  kvdecode::SlidingWindowCache<> ring(transformer.kv_shape(), 40, {.slack = 0, .max_append = 1});
  append(ring, 12);
  write_record("ring", record_of(ring), true, false);
  whole.shift(4, -2);
  whole.shift(8, -1);
  write_record("shifted", record_of(whole), false, false);
}

void write_safetensors(const fs::path& data, const fs::path& seeds) {
  for_each_file(data / "gguf/quant", ".safetensors",
                [&](const fs::path& path, const std::string& name) { write(seeds / name, read(path)); });
  std::string header = R"({"__metadata__":{"format":"pt","\u00e9":""},"b":{"dtype":"F32","shape":[2,3],)"
                       R"("data_offsets":[0,24]},"a":{"dtype":"BF16","shape":[],"data_offsets":[24,26]},)"
                       R"("c":{"dtype":"U8","shape":[4,0],"data_offsets":[26,26]}})";
  const std::uint64_t n = header.size();
  std::string file(sizeof n, '\0');
  std::memcpy(file.data(), &n, sizeof n);
  write(seeds / "small", file + header + std::string(26, 'x'));
  write(
      seeds / "index",
      R"({"metadata":{"total_size":50},"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})");
}

void write_config(const fs::path& data, const fs::path& seeds) {
  for_each_file(data / "golden", "config.json", [&](const fs::path& path, const std::string& name) {
    write(seeds / name, read(path) + '\0' + R"({"bos_token_id":1,"eos_token_id":[2,3],"top_p":0.9})");
  });
}

void write_tokenizer(const fs::path& data, const fs::path& seeds) {
  for_each_file(data / "tokenizers/synthetic", "tokenizer.json",
                [&](const fs::path& path, const std::string& name) {
                  write(seeds / name, read(path) + '\0' + "Hello,  wörld <|im_start|> 123\n 你");
                });
  // Each component in a tokenizer that is as small as one can be.
  const Json small =
      Json::parse(R"({"added_tokens":[{"id":5,"content":"<s>","special":true}],"model":{"type":"BPE",
    "unk_token":"?","vocab":{"?":0,"a":1,"b":2,"ab":3,"<0x41>":4},"merges":["a b"]}})");
  for (const auto& [file, member] :
       {std::pair("normalizers", "normalizer"), std::pair("pre_tokenizers", "pre_tokenizer"),
        std::pair("decoders", "decoder")}) {
    int i = 0;
    for (const Json& record :
         Json::parse(read(data / "tokenizers/components" / (file + std::string(".json"))))) {
      Json tokenizer = small;
      tokenizer[member] = record.at("config");
      if (const std::string text = tokenizer.dump(); text.size() < 2000)
        write(seeds / (member + std::to_string(i++)), text + '\0' + "ab <s> aB1 é");
    }
  }
}

void write_chat_template(const fs::path& data, const fs::path& seeds) {
  const Json cases = Json::parse(read(data / "chat/jinja/cases.json"));
  const std::string context = cases.at(0).at("context").dump();
  for (std::size_t i = 1; i < cases.size(); ++i)
    write(seeds / std::to_string(i), cases.at(i).at("template").get<std::string>() + '\0' + context);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: kvdecode_write_fuzz_seeds DATA OUTPUT\n");
    return 2;
  }
  try {
    const fs::path data = argv[1], output = argv[2];
    write_gguf(data, output / "gguf");
    write_gguf_tokenizer(output / "gguf_tokenizer");
    write_conversation(output / "conversation");
    write_session(output / "session");
    write_safetensors(data, output / "safetensors");
    write_config(data, output / "config");
    write_tokenizer(data, output / "tokenizer");
    write_chat_template(data, output / "chat_template");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kvdecode_write_fuzz_seeds: %s\n", error.what());
    return 1;
  }
}

// SPDX-License-Identifier: MIT
// Writes what the fuzz targets begin with, made of tests/data: OUTPUT/TARGET/NAME.
// usage: kvdecode_write_fuzz_seeds DATA OUTPUT
#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

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

/// A model of one layer with all that a file may say about it: `n_experts` of them, and a rotary scaling.
std::string gguf_model(std::uint32_t n_experts, std::string_view scaling) {
  GgufWriter writer;
  const auto text = [&](std::string_view key, std::string_view value) { writer.value(key, value); };
  const auto count = [&](std::string_view key, std::uint32_t value) { writer.value(key, value); };
  const auto number = [&](std::string_view key, float value) { writer.value(key, value); };
  text("general.architecture", "llama");
  text("general.name", "seed");
  count("llama.block_count", 1);
  count("llama.context_length", 32);
  count("llama.embedding_length", 8);
  count("llama.feed_forward_length", 12);
  count("llama.attention.head_count", 2);
  count("llama.attention.head_count_kv", 1);
  count("llama.attention.key_length", 4);
  count("llama.attention.value_length", 4);
  count("llama.vocab_size", 3);
  count("llama.rope.dimension_count", 4);
  number("llama.rope.freq_base", 500.0f);
  number("llama.attention.layer_norm_rms_epsilon", 0.25f);
  text("llama.rope.scaling.type", scaling);
  number("llama.rope.scaling.factor", 4.0f);
  count("llama.rope.scaling.original_context_length", 16);
  if (scaling == "yarn") {
    number("llama.rope.scaling.yarn_attn_factor", 1.5f);
    number("llama.rope.scaling.yarn_ext_factor", 1.0f);
    number("llama.rope.scaling.yarn_beta_fast", 24.0f);
    number("llama.rope.scaling.yarn_beta_slow", 2.0f);
  }
  if (n_experts > 0) {
    count("llama.expert_count", n_experts);
    count("llama.expert_used_count", 1);
    count("llama.expert_feed_forward_length", 4);
  }
  text("tokenizer.ggml.model", "llama");
  writer.array("tokenizer.ggml.tokens", std::vector<std::string_view>{"<s>", "a", "</s>"});
  writer.array("tokenizer.ggml.scores", std::vector<float>{0.0f, -1.0f, 0.0f});
  writer.array("tokenizer.ggml.token_type", std::vector<std::int32_t>{3, 1, 3});
  count("tokenizer.ggml.bos_token_id", 0);
  count("tokenizer.ggml.eos_token_id", 2);
  writer.value("tokenizer.ggml.add_bos_token", true);
  const auto tensor = [&](std::string_view name, std::vector<kvdecode::Index> shape) {
    std::size_t n = 2;  // bytes of an F16
    for (const kvdecode::Index extent : shape) n *= static_cast<std::size_t>(extent);
    writer.tensor(name, std::move(shape), 1, std::string(n, '\0'));
  };
  tensor("token_embd.weight", {3, 8});
  tensor("output.weight", {3, 8});
  tensor("output_norm.weight", {8});
  if (scaling == "none") tensor("rope_freqs.weight", {2});
  tensor("blk.0.attn_norm.weight", {8});
  tensor("blk.0.attn_q.weight", {8, 8});
  tensor("blk.0.attn_q.bias", {8});
  tensor("blk.0.attn_k.weight", {4, 8});
  tensor("blk.0.attn_v.weight", {4, 8});
  tensor("blk.0.attn_output.weight", {8, 8});
  tensor("blk.0.ffn_norm.weight", {8});
  if (n_experts == 0) {
    tensor("blk.0.ffn_gate.weight", {12, 8});
    tensor("blk.0.ffn_up.weight", {12, 8});
    tensor("blk.0.ffn_down.weight", {8, 12});
  } else {
    tensor("blk.0.ffn_gate_inp.weight", {n_experts, 8});
    tensor("blk.0.ffn_gate_exps.weight", {n_experts, 4, 8});
    tensor("blk.0.ffn_up_exps.weight", {n_experts, 4, 8});
    tensor("blk.0.ffn_down_exps.weight", {n_experts, 8, 4});
  }
  return writer.bytes();
}

void write_gguf(const fs::path& data, const fs::path& seeds) {
  for_each_file(data / "gguf/hostile", ".gguf",
                [&](const fs::path& path, const std::string& name) { write(seeds / name, read(path)); });
  for (const std::string scaling : {"none", "linear", "yarn"})
    for (const std::uint32_t n_experts : {0u, 2u})
      write(seeds / (scaling + std::to_string(n_experts)), gguf_model(n_experts, scaling));
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
    write_safetensors(data, output / "safetensors");
    write_config(data, output / "config");
    write_tokenizer(data, output / "tokenizer");
    write_chat_template(data, output / "chat_template");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kvdecode_write_fuzz_seeds: %s\n", error.what());
    return 1;
  }
}

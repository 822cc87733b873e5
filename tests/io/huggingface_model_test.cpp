// SPDX-License-Identifier: MIT
#include <kvdecode/io/huggingface_model.hpp>
#include <kvdecode/io/safetensors_writer.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support.hpp"
#include "variant.hpp"

using io_test::check_error;
using io_test::kGolden;
using io_test::Variant;
using kvdecode::ErrorCode;
using kvdecode::FormatId;
using kvdecode::Index;
using kvdecode::LayerWeights;
using kvdecode::load_huggingface_model;
using kvdecode::LoadedModel;
using kvdecode::MatrixView;
using kvdecode::SafetensorsDtype;
using kvdecode::SafetensorsFile;
using kvdecode::SafetensorsTensor;
using kvdecode::TokenId;
using kvdecode::VectorView;
using nlohmann::json;

namespace {

bool same_bytes(const MatrixView& view, const SafetensorsTensor& tensor) {
  return !view.empty() && !view.transposed && tensor.shape == std::vector<Index>{view.rows, view.cols} &&
         view.format == format_of(tensor.dtype) &&
         view.stride * view.rows == static_cast<Index>(tensor.bytes.size()) &&
         std::equal(tensor.bytes.begin(), tensor.bytes.end(), view.data);
}

bool same_bytes(const VectorView& view, const SafetensorsTensor& tensor) {
  return !view.empty() && tensor.shape == std::vector<Index>{view.size} &&
         view.format == format_of(tensor.dtype) &&
         std::equal(tensor.bytes.begin(), tensor.bytes.end(), view.data);
}

/// Every weight of a Llama model has the bytes of the tensor that is called so.
void check_weights(const LoadedModel& model, const SafetensorsFile& file, bool attention_bias,
                   bool mlp_bias) {
  CHECK(same_bytes(model.weights.token_embedding, file.tensor("model.embed_tokens.weight")));
  CHECK(model.weights.position_embedding.empty());
  CHECK(same_bytes(model.weights.final_norm.weight, file.tensor("model.norm.weight")));
  CHECK(model.weights.final_norm.bias.empty());
  CHECK(model.weights.head.bias.empty());
  if (model.config.tied_head) {
    CHECK(model.weights.head.matrix.empty());
  } else {
    CHECK(same_bytes(model.weights.head.matrix, file.tensor("lm_head.weight")));
  }
  REQUIRE(static_cast<Index>(model.weights.layers.size()) == model.config.n_layers);
  for (Index i = 0; i < model.config.n_layers; ++i) {
    const LayerWeights& w = model.weights.layers[static_cast<std::size_t>(i)];
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    CHECK(same_bytes(w.attention_norm.weight, file.tensor(layer + "input_layernorm.weight")));
    CHECK(w.attention_norm.bias.empty());
    CHECK(same_bytes(w.feed_forward_norm.weight, file.tensor(layer + "post_attention_layernorm.weight")));
    const auto check_linear = [&](const kvdecode::LinearWeights& linear, const std::string& name,
                                  bool has_bias) {
      CAPTURE(name);
      CHECK(same_bytes(linear.matrix, file.tensor(layer + name + ".weight")));
      CHECK(linear.bias.empty() == !has_bias);
      if (has_bias) CHECK(same_bytes(linear.bias, file.tensor(layer + name + ".bias")));
    };
    check_linear(w.w_q, "self_attn.q_proj", attention_bias);
    check_linear(w.w_k, "self_attn.k_proj", attention_bias);
    check_linear(w.w_v, "self_attn.v_proj", attention_bias);
    check_linear(w.w_o, "self_attn.o_proj", attention_bias);
    check_linear(w.w_gate, "mlp.gate_proj", mlp_bias);
    check_linear(w.w_up, "mlp.up_proj", mlp_bias);
    check_linear(w.w_down, "mlp.down_proj", mlp_bias);
  }
}

bool is_first_layer(const std::string& name) { return name.find(".0.") != std::string::npos; }

}  // namespace

TEST_CASE("load_huggingface_model: the weights of every golden model are the tensors of its file") {
  struct Case {
    const char* name;
    FormatId format;
    bool has_bias;
  };
  for (const Case& c :
       {Case{"llama-mha", FormatId::kBF16, false}, Case{"llama-gqa-tied", FormatId::kF16, false},
        Case{"llama-head_dim", FormatId::kBF16, true}, Case{"llama-long", FormatId::kBF16, false},
        Case{"llama-rope-linear", FormatId::kF32, false},
        Case{"llama-rope-llama3", FormatId::kBF16, false}}) {
    CAPTURE(c.name);
    const LoadedModel model = load_huggingface_model(kGolden / c.name);
    const SafetensorsFile file(kGolden / c.name / "model.safetensors");
    check_weights(model, file, c.has_bias, c.has_bias);
    CHECK(model.report.architecture == "LlamaForCausalLM");
    CHECK(model.report.files == std::vector<std::string>{(kGolden / c.name / "model.safetensors").string()});
    CHECK(model.report.n_tensors == static_cast<Index>(file.tensors().size()));
    std::uint64_t n_bytes = 0;
    for (const SafetensorsTensor& tensor : file.tensors()) n_bytes += tensor.bytes.size();
    CHECK(model.report.n_bytes == n_bytes);
    CHECK(model.report.formats ==
          std::vector<kvdecode::FormatUse>{{c.format, model.report.n_tensors, n_bytes}});
    CHECK(model.report.ignored_tensors.empty());
    CHECK(!model.report.ignored_fields.empty());
    CHECK(model.bos_token_ids == std::vector<TokenId>{1});
    CHECK(model.eos_token_ids == std::vector<TokenId>{2});
    CHECK_NOTHROW(model.config.validate());
  }
}

TEST_CASE("load_huggingface_model: the model that ships with the project") {
  const std::filesystem::path folder = std::filesystem::path(KVDECODE_EXAMPLE_DATA_DIR) / "tiny-shakespeare";
  const LoadedModel model = load_huggingface_model(folder);
  check_weights(model, SafetensorsFile(folder / "model.safetensors"), false, false);
  CHECK(model.config.n_layers == 6);
  CHECK(model.config.d_model == 128);
  CHECK(model.config.n_heads == 4);
  CHECK(model.config.n_kv_heads == 2);
  CHECK(model.config.head_dim == 32);
  CHECK(model.config.d_ff == 352);
  CHECK(model.config.tied_head);
  CHECK(model.report.n_parameters == 1'238'656);
  CHECK(model.eos_token_ids == std::vector<TokenId>{0});
}

TEST_CASE("load_huggingface_model: the weights outlive everything else") {
  kvdecode::Weights weights = load_huggingface_model(kGolden / "llama-mha").weights;
  const SafetensorsFile file(kGolden / "llama-mha" / "model.safetensors");
  CHECK(same_bytes(weights.token_embedding, file.tensor("model.embed_tokens.weight")));
}

TEST_CASE("load_huggingface_model: tensors may be stored each in a format of its own, f64 included") {
  Variant variant("llama-mha");
  const std::vector<double> norm(48, 0.5);
  const std::vector<float> embedding(80 * 48, 0.25f);
  variant.tensor("model.norm.weight") = kvdecode::as_tensor<double>("model.norm.weight", {48}, norm);
  variant.tensor("model.embed_tokens.weight") =
      kvdecode::as_tensor<float>("model.embed_tokens.weight", {80, 48}, embedding);
  const LoadedModel model = variant.load();
  CHECK(model.weights.final_norm.weight.format == FormatId::kF64);
  CHECK(std::memcmp(model.weights.final_norm.weight.data, norm.data(), 48 * 8) == 0);
  CHECK(model.weights.token_embedding.format == FormatId::kF32);
  CHECK(model.weights.token_embedding.stride == 48 * 4);
  CHECK(model.report.formats.size() == 3);
}

TEST_CASE("load_huggingface_model: a missing, extra, misshapen or unusable tensor is refused by name") {
  const auto refused = [](ErrorCode code, std::initializer_list<std::string_view> words, const char* name,
                          auto change) {
    Variant variant(name);
    change(variant);
    check_error(code, words, [&] { variant.load(); });
  };
  const SafetensorsFile original(kGolden / "llama-mha" / "model.safetensors");
  for (const SafetensorsTensor& tensor : original.tensors()) {
    CAPTURE(tensor.name);
    const std::string shape = kvdecode::detail::to_text(tensor.shape);
    const std::string name = "\"" + tensor.name + "\"";
    refused(ErrorCode::kMismatch, {"model.safetensors: ", name, "missing", shape}, "llama-mha",
            [&](Variant& variant) { variant.remove(tensor.name); });
    refused(ErrorCode::kMismatch, {"model.safetensors: ", name, "has shape", "expected " + shape},
            "llama-mha", [&](Variant& variant) {
              variant.tensor(tensor.name).shape.front() /= 2;
              variant.tensor(tensor.name).shape.push_back(2);
            });
    refused(ErrorCode::kUnsupported, {"model.safetensors: ", name, "is stored as I16"}, "llama-mha",
            [&](Variant& variant) { variant.tensor(tensor.name).dtype = SafetensorsDtype::kI16; });
  }
  const auto extra = [](const char* name) {
    return [name](Variant& variant) { variant.tensors.push_back({name, SafetensorsDtype::kBF16, {0}, {}}); };
  };
  for (const char* const name : {"model.layers.2.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.bias",
                                 "model.layers.0.self_attn.q_norm.weight", "lm_head.bias", "score.weight"})
    refused(ErrorCode::kMismatch, {"\"" + std::string(name) + "\"", "[0]", "has no place"}, "llama-mha",
            extra(name));
  for (const char* const name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                 "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    const std::string bias = "model.layers.1." + std::string(name) + ".bias";
    refused(ErrorCode::kMismatch, {"\"" + bias + "\"", "missing"}, "llama-head_dim",
            [&](Variant& variant) { variant.remove(bias); });
  }
  refused(ErrorCode::kMismatch, {"model.layers.2.input_layernorm.weight", "missing"}, "llama-mha",
          [](Variant& variant) { variant.config["num_hidden_layers"] = 1 << 30; });
  refused(ErrorCode::kMismatch, {"\"model.embed_tokens.weight\" has shape [80, 48], expected [81, 48]"},
          "llama-mha", [](Variant& variant) { variant.config["vocab_size"] = 81; });
}

TEST_CASE("load_huggingface_model: harmless extras are reported with a reason") {
  Variant variant("llama-gqa-tied");
  const std::vector<float> frequencies(4, 1.0f);
  variant.tensors.push_back(
      kvdecode::as_tensor<float>("model.layers.0.self_attn.rotary_emb.inv_freq", {4}, frequencies));
  SafetensorsTensor head = variant.tensor("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  variant.tensors.push_back(head);
  const LoadedModel model = variant.load();
  CHECK(model.weights.head.matrix.empty());
  REQUIRE(model.report.ignored_tensors.size() == 2);
  CHECK(model.report.ignored_tensors[0].name == "lm_head.weight");
  CHECK(model.report.ignored_tensors[0].reason.find("ties") != std::string::npos);
  CHECK(model.report.ignored_tensors[1].name == "model.layers.0.self_attn.rotary_emb.inv_freq");
  CHECK(model.report.n_tensors == static_cast<Index>(variant.tensors.size()) - 2);

  const std::vector<std::byte> other(head.bytes.size());
  variant.tensors.back().bytes = other;
  check_error(ErrorCode::kMismatch, {"lm_head.weight", "differs"}, [&] { variant.load(); });
}

TEST_CASE("load_huggingface_model: shards are as good as one file") {
  Variant variant("llama-mha");
  variant.write_shards(is_first_layer);
  const LoadedModel model = load_huggingface_model(variant.folder.path());
  check_weights(model, SafetensorsFile(kGolden / "llama-mha" / "model.safetensors"), false, false);
  CHECK(model.report.files ==
        std::vector<std::string>{(variant.folder.path() / "model-1.safetensors").string(),
                                 (variant.folder.path() / "model-2.safetensors").string()});
  CHECK(model.weights.owners.size() == 2);
  CHECK(model.report.n_tensors == static_cast<Index>(variant.tensors.size()));
}

TEST_CASE("load_huggingface_model: an index that lies is refused by name") {
  Variant variant("llama-mha");
  variant.write_shards(is_first_layer);
  const json good = variant.index;
  const auto refused = [&](ErrorCode code, std::initializer_list<std::string_view> words,
                           const auto& change) {
    variant.index = good;
    change(variant.index);
    variant.write_index();
    check_error(code, words, [&] { load_huggingface_model(variant.folder.path()); });
  };
  std::filesystem::create_directory(variant.folder.path() / "inside");
  for (const char* const name : {"../model-1.safetensors", "/etc/passwd", "inside/model-1.safetensors", "..",
                                 ".", "", "model-1.bin", "a\\model-1.safetensors", "/tmp/x.safetensors"})
    refused(ErrorCode::kBadFile, {"index.json", "weight_map", "\"lm_head.weight\"", ".safetensors file"},
            [&](json& index) { index["weight_map"]["lm_head.weight"] = name; });
  refused(ErrorCode::kBadFile, {"weight_map", "\"lm_head.weight\"", ".safetensors file"}, [](json& index) {
    index["weight_map"]["lm_head.weight"] = std::string("model-1\0.safetensors", 20);
  });
  refused(ErrorCode::kBadFile, {"model-0.safetensors", "No such file"},
          [](json& index) { index["weight_map"]["lm_head.weight"] = "model-0.safetensors"; });
  refused(ErrorCode::kMismatch, {"model-1.safetensors", "\"lm_head.weight\" is missing"},
          [](json& index) { index["weight_map"]["lm_head.weight"] = "model-1.safetensors"; });
  refused(ErrorCode::kMismatch, {"model-1.safetensors", "\"not.there\" is missing"},
          [](json& index) { index["weight_map"]["not.there"] = "model-1.safetensors"; });
  refused(ErrorCode::kMismatch,
          {"model-2.safetensors", "\"lm_head.weight\"", "not where the index places it"},
          [](json& index) { index["weight_map"].erase("lm_head.weight"); });
  refused(ErrorCode::kBadFile, {"\"lm_head.weight\" must have a file name, got 1"},
          [](json& index) { index["weight_map"]["lm_head.weight"] = 1; });
  refused(ErrorCode::kBadFile, {"weight_map must be an object"},
          [](json& index) { index["weight_map"] = 1; });
  refused(ErrorCode::kBadFile, {"weight_map must be an object"},
          [](json& index) { index["weight_map"] = json::object(); });
  refused(ErrorCode::kBadFile, {"weight_map must be an object"},
          [](json& index) { index.erase("weight_map"); });
  refused(ErrorCode::kBadFile, {"must be an object"}, [](json& index) { index = json::array(); });
}

TEST_CASE("load_huggingface_model: a tensor in two shards is refused") {
  Variant variant("llama-mha");
  variant.write_shards(is_first_layer);
  std::vector<SafetensorsTensor> first;
  for (const SafetensorsTensor& tensor : variant.tensors)
    if (is_first_layer(tensor.name) || tensor.name == "lm_head.weight") first.push_back(tensor);
  kvdecode::write_safetensors(variant.folder.path() / "model-1.safetensors", first);
  check_error(ErrorCode::kMismatch,
              {"model-1.safetensors", "\"lm_head.weight\"", "not where the index places it"},
              [&] { load_huggingface_model(variant.folder.path()); });
}

TEST_CASE("load_huggingface_model: one whole file is preferred to an index beside it") {
  Variant variant("llama-mha");
  variant.write_shards(is_first_layer);
  const LoadedModel model = variant.load();
  CHECK(model.report.files ==
        std::vector<std::string>{(variant.folder.path() / "model.safetensors").string()});
}

TEST_CASE("load_huggingface_model: a folder without weights, or with broken ones, is refused by name") {
  Variant variant("llama-mha");
  variant.write_config();
  check_error(ErrorCode::kBadFile, {variant.folder.path().string(), "neither model.safetensors nor"},
              [&] { load_huggingface_model(variant.folder.path()); });
  variant.folder.write("model.safetensors", "short");
  check_error(ErrorCode::kBadFile, {"model.safetensors", "too few"},
              [&] { load_huggingface_model(variant.folder.path()); });
  variant.folder.write("model.safetensors", "");
  check_error(ErrorCode::kBadFile, {"model.safetensors", "empty"},
              [&] { load_huggingface_model(variant.folder.path()); });
}

// SPDX-License-Identifier: MIT
#include <kvdecode/io/huggingface_config.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "support.hpp"

using io_test::check_error;
using kvdecode::Activation;
using kvdecode::ErrorCode;
using kvdecode::HuggingFaceConfig;
using kvdecode::parse_huggingface_config;
using kvdecode::RotaryScalingKind;
using kvdecode::TokenId;
using nlohmann::json;

namespace {

const std::filesystem::path kGolden = std::filesystem::path(KVDECODE_TEST_DATA_DIR) / "golden";

/// A config with nothing in it that could be left out.
json minimal() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", 80},
          {"hidden_size", 48},
          {"intermediate_size", 64},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 6}};
}

HuggingFaceConfig parse(const json& config) { return parse_huggingface_config(config.dump()); }

/// The minimal config with one field more, or another.
json with(const std::string& field, const json& value) {
  json config = minimal();
  config[field] = value;
  return config;
}

void check_refused(ErrorCode code, std::initializer_list<std::string_view> words, const json& config) {
  CAPTURE(config.dump());
  check_error(code, words, [&] { parse(config); });
}

}  // namespace

TEST_CASE("parse_huggingface_config: absent fields have the defaults of the family") {
  const HuggingFaceConfig config = parse(minimal());
  CHECK(config.architecture == "LlamaForCausalLM");
  CHECK(config.model.vocab_size == 80);
  CHECK(config.model.d_model == 48);
  CHECK(config.model.d_ff == 64);
  CHECK(config.model.n_layers == 2);
  CHECK(config.model.n_heads == 6);
  CHECK(config.model.n_kv_heads == 6);
  CHECK(config.model.head_dim == 8);
  CHECK(config.model.max_seq_len == 2048);
  CHECK(config.model.norm_eps == 1e-6);
  CHECK(config.model.activation == Activation::kSilu);
  CHECK(config.model.gated_feed_forward);
  CHECK(config.model.rotary.theta == 10000.0);
  CHECK(config.model.rotary.scaling.kind == RotaryScalingKind::kNone);
  CHECK(!config.model.tied_head);
  CHECK(!config.attention_bias);
  CHECK(!config.attention_output_bias);
  CHECK(!config.feed_forward_bias);
  CHECK(config.bos_token_ids == std::vector<TokenId>{1});
  CHECK(config.eos_token_ids == std::vector<TokenId>{2});
  CHECK(config.ignored_fields.empty());
}

TEST_CASE("parse_huggingface_config: null is as good as absent") {
  json config = minimal();
  for (const char* const field :
       {"num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "hidden_act",
        "rope_scaling", "rope_parameters", "rope_theta", "tie_word_embeddings", "attention_bias", "mlp_bias",
        "quantization_config", "sliding_window", "pruned_heads", "pad_token_id", "model_type"})
    config[field] = nullptr;
  const HuggingFaceConfig parsed = parse(config);
  CHECK(parsed.model.n_kv_heads == 6);
  CHECK(parsed.model.head_dim == 8);
  CHECK(parsed.model.rotary.theta == 10000.0);
  CHECK(parsed.bos_token_ids == std::vector<TokenId>{1});
}

TEST_CASE("parse_huggingface_config: rotary positions as transformers 4 and 5 write them") {
  json old_default = minimal();
  old_default["rope_theta"] = 500000;
  old_default["rope_scaling"] = nullptr;
  CHECK(parse(old_default).model.rotary.theta == 500000.0);
  CHECK(parse(with("rope_parameters", {{"rope_theta", 1e5}, {"rope_type", "default"}})).model.rotary.theta ==
        1e5);
  CHECK(parse(with("rope_parameters", json::object())).model.rotary.theta == 10000.0);

  for (const char* const field : {"rope_scaling", "rope_parameters"}) {
    for (const char* const type : {"rope_type", "type"}) {
      const HuggingFaceConfig linear = parse(with(field, {{type, "linear"}, {"factor", 4}}));
      CHECK(linear.model.rotary.scaling.kind == RotaryScalingKind::kLinear);
      CHECK(linear.model.rotary.scaling.factor == 4.0);
      CHECK(linear.model.rotary.theta == 10000.0);
    }
    const HuggingFaceConfig llama3 = parse(with(field, {{"rope_type", "llama3"},
                                                        {"type", "llama3"},
                                                        {"factor", 8.0},
                                                        {"low_freq_factor", 1.5},
                                                        {"high_freq_factor", 4.5},
                                                        {"original_max_position_embeddings", 32},
                                                        {"rope_theta", 5e5},
                                                        {"partial_rotary_factor", 1.0}}));
    CHECK(llama3.model.rotary.scaling.kind == RotaryScalingKind::kLlama3);
    CHECK(llama3.model.rotary.scaling.factor == 8.0);
    CHECK(llama3.model.rotary.scaling.low_freq_factor == 1.5);
    CHECK(llama3.model.rotary.scaling.high_freq_factor == 4.5);
    CHECK(llama3.model.rotary.scaling.original_max_seq_len == 32);
    CHECK(llama3.model.rotary.theta == 5e5);
  }
}

TEST_CASE("parse_huggingface_config: rotary positions that are not known are refused by name") {
  using enum ErrorCode;
  for (const char* const field : {"rope_scaling", "rope_parameters"}) {
    const std::string path = std::string("config.json: ") + field;
    for (const char* const type : {"su", "proportional", "ntk", "Linear", ""})
      check_refused(kUnsupported, {path + ".rope_type \"" + type + "\"", "not supported"},
                    with(field, {{"rope_type", type}, {"factor", 2.0}}));
    check_refused(kUnsupported,
                  {"config.json: the field \"" + std::string(field) + ".factor\"", "might change the result"},
                  with(field, {{"factor", 2.0}}));
    check_refused(kUnsupported, {"config.json: the field \"" + std::string(field) + ".beta_fast\""},
                  with(field, {{"rope_type", "linear"}, {"factor", 2.0}, {"beta_fast", 32}}));
    check_refused(kUnsupported, {"config.json: the field \"" + std::string(field) + ".mrope_section\""},
                  with(field, {{"rope_type", "default"}, {"mrope_section", {1, 2}}}));
    check_refused(kUnsupported, {"config.json: the field \"" + std::string(field) + ".full_attention\""},
                  with(field, {{"full_attention", {{"rope_type", "default"}}}}));
    check_refused(kUnsupported, {path + ".partial_rotary_factor"},
                  with(field, {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}));
    check_refused(kUnsupported, {path + ".rope_type linear", ".type llama3", "contradict"},
                  with(field, {{"rope_type", "linear"}, {"type", "llama3"}, {"factor", 2.0}}));
    check_refused(kUnsupported, {path + ".rope_type linear", ".type \\n\\x1b contradict"},
                  with(field, {{"rope_type", "linear"}, {"type", "\n\x1b"}, {"factor", 2.0}}));
    check_refused(kBadFile, {path + ".factor is missing"}, with(field, {{"rope_type", "linear"}}));
    check_refused(kBadFile, {path + ".factor must be a positive number, got -1"},
                  with(field, {{"rope_type", "linear"}, {"factor", -1}}));
    check_refused(kBadFile, {path + ".factor must be a positive number, got \"2\""},
                  with(field, {{"rope_type", "linear"}, {"factor", "2"}}));
    check_refused(
        kBadFile, {path + ".original_max_position_embeddings is missing"},
        with(field,
             {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}}));
    check_refused(kBadFile, {"config.json: ", "low_freq_factor < high_freq_factor"},
                  with(field, {{"rope_type", "llama3"},
                               {"factor", 8},
                               {"low_freq_factor", 4},
                               {"high_freq_factor", 1},
                               {"original_max_position_embeddings", 32}}));
    check_refused(kBadFile, {path + ".rope_type must be a string"}, with(field, {{"rope_type", 1}}));
    check_refused(kBadFile, {path + " must be an object"}, with(field, "linear"));
  }
  json both_thetas = with("rope_parameters", {{"rope_theta", 1e5}});
  both_thetas["rope_theta"] = 1e4;
  check_refused(kUnsupported, {"rope_theta 10000", "rope_parameters.rope_theta 100000", "contradict"},
                both_thetas);
  both_thetas["rope_theta"] = 1e5;
  CHECK(parse(both_thetas).model.rotary.theta == 1e5);
  json both_scalings = with("rope_parameters", {{"rope_type", "default"}});
  both_scalings["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  check_refused(kUnsupported, {"rope_scaling and rope_parameters"}, both_scalings);
  check_refused(kBadFile, {"rope_theta must be a positive number, got 0"}, with("rope_theta", 0));
}

TEST_CASE("parse_huggingface_config: activations by the names of transformers") {
  const auto activation = [](const char* name) { return parse(with("hidden_act", name)).model.activation; };
  CHECK(activation("silu") == Activation::kSilu);
  CHECK(activation("swish") == Activation::kSilu);
  CHECK(activation("gelu") == Activation::kGelu);
  CHECK(activation("gelu_new") == Activation::kGeluTanh);
  CHECK(activation("gelu_pytorch_tanh") == Activation::kGeluTanh);
  CHECK(activation("relu") == Activation::kRelu);
  CHECK(activation("relu2") == Activation::kReluSquared);
  for (const char* const name : {"mish", "gelu_fast", "quick_gelu", "SiLU", ""})
    check_refused(ErrorCode::kUnsupported, {"hidden_act \"" + std::string(name) + "\""},
                  with("hidden_act", name));
}

TEST_CASE("parse_huggingface_config: biases and the tied head are switches of their own") {
  CHECK(parse(with("attention_bias", true)).attention_bias);
  CHECK(parse(with("attention_bias", true)).attention_output_bias);
  CHECK(!parse(with("attention_bias", true)).feed_forward_bias);
  CHECK(parse(with("mlp_bias", true)).feed_forward_bias);
  CHECK(!parse(with("mlp_bias", true)).attention_bias);
  CHECK(parse(with("tie_word_embeddings", true)).model.tied_head);
}

TEST_CASE("parse_huggingface_config: token ids are one, several or none") {
  CHECK(parse(with("eos_token_id", 5)).eos_token_ids == std::vector<TokenId>{5});
  CHECK(parse(with("eos_token_id", {7, 3})).eos_token_ids == std::vector<TokenId>{7, 3});
  CHECK(parse(with("eos_token_id", json::array())).eos_token_ids.empty());
  CHECK(parse(with("eos_token_id", nullptr)).eos_token_ids.empty());
  CHECK(parse(with("bos_token_id", nullptr)).bos_token_ids.empty());
  CHECK(parse(with("bos_token_id", {4})).bos_token_ids == std::vector<TokenId>{4});
  CHECK(parse(with("vocab_size", 2)).eos_token_ids.empty());
  for (const json& bad :
       {json(80), json(-1), json(1.0), json("</s>"), json({1, 80}), json(true), json({{1}})})
    check_refused(ErrorCode::kBadFile, {"eos_token_id must be an integer from 0 to 79"},
                  with("eos_token_id", bad));
}

TEST_CASE("parse_huggingface_config: sizes must be there, positive, whole and fit one another") {
  using enum ErrorCode;
  for (const char* const field :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    json config = minimal();
    config.erase(field);
    check_refused(kBadFile, {"config.json: " + std::string(field) + " is missing"}, config);
    for (const json& bad :
         {json(0), json(-1), json(2.5), json(2.0), json("2"), json(json::array()), json(true)})
      check_refused(kBadFile, {"config.json: " + std::string(field) + " must be a positive integer, got "},
                    with(field, bad));
    check_refused(kBadFile, {"config.json: "}, with(field, std::uint64_t{1} << 62));
    check_refused(kBadFile, {"config.json: "}, with(field, std::uint64_t{1} << 63));
  }
  check_refused(kBadFile, {"num_key_value_heads must be a positive integer, got 0"},
                with("num_key_value_heads", 0));
  check_refused(kBadFile, {"n_heads 6 is not a multiple of n_kv_heads 4"}, with("num_key_value_heads", 4));
  check_refused(kBadFile, {"hidden_size 50 is not a multiple of num_attention_heads 6"},
                with("hidden_size", 50));
  json free_head_dim = with("hidden_size", 50);
  free_head_dim["head_dim"] = 12;
  CHECK(parse(free_head_dim).model.head_dim == 12);
  check_refused(kBadFile, {"rotary dimension must be even"}, with("head_dim", 7));
  check_refused(kBadFile, {"norm_eps"}, with("rms_norm_eps", 2));
  check_refused(kBadFile, {"rms_norm_eps must be a positive number, got -1e-06"},
                with("rms_norm_eps", -1e-6));
  check_refused(kBadFile, {"tie_word_embeddings must be true or false, got 1"},
                with("tie_word_embeddings", 1));
}

TEST_CASE("parse_huggingface_config: a field that might change the result is refused by name") {
  using enum ErrorCode;
  for (const char* const field :
       {"sliding_window", "attn_logit_softcapping", "logit_scale", "layer_types", "num_experts",
        "original_max_position_embeddings", "auto_map", "rope_ratio"})
    check_refused(kUnsupported, {"config.json: the field \"" + std::string(field) + "\"", "LlamaForCausalLM"},
                  with(field, 4));
  check_refused(kUnsupported, {"quantization_config"},
                with("quantization_config", {{"quant_method", "gptq"}}));
  check_refused(kUnsupported, {"rope_interleaved is supported as false only, got true"},
                with("rope_interleaved", true));
  check_refused(kUnsupported, {"partial_rotary_factor"}, with("partial_rotary_factor", 0.5));
  check_refused(kUnsupported, {"is_encoder_decoder"}, with("is_encoder_decoder", true));
  check_refused(kUnsupported, {"add_cross_attention"}, with("add_cross_attention", true));
  check_refused(kUnsupported, {"pruned_heads"}, with("pruned_heads", {{"0", {1}}}));
}

TEST_CASE("parse_huggingface_config: a field that changes nothing is listed") {
  json config = minimal();
  config["use_cache"] = true;
  config["attention_dropout"] = 0.5;
  config["pretraining_tp"] = 2;
  config["transformers_version"] = "5.24.0";
  config["torch_dtype"] = "bfloat16";
  config["rope_interleaved"] = false;
  config["partial_rotary_factor"] = 1;
  config["pruned_heads"] = json::object();
  CHECK(parse(config).ignored_fields == std::vector<std::string>{"attention_dropout", "partial_rotary_factor",
                                                                 "pretraining_tp", "pruned_heads",
                                                                 "rope_interleaved", "torch_dtype",
                                                                 "transformers_version", "use_cache"});
}

TEST_CASE("parse_huggingface_config: architecture and model type must be known and agree") {
  using enum ErrorCode;
  check_refused(kUnsupported, {"\"FooForCausalLM\"", "supported: LlamaForCausalLM"},
                with("architectures", {"FooForCausalLM"}));
  for (const json& bad : {json(nullptr), json("LlamaForCausalLM"), json(json::array()),
                          json({"LlamaForCausalLM", "LlamaForCausalLM"}), json({1}), json(json::object())})
    check_refused(kBadFile, {"architectures must be a list of one name"}, with("architectures", bad));
  check_refused(kUnsupported, {"model_type \"mistral\"", "\"LlamaForCausalLM\""},
                with("model_type", "mistral"));
  check_refused(kBadFile, {"must be an object"}, json::array());
}

TEST_CASE("load_huggingface_config: the reference's own files") {
  for (const char* const name : {"llama-mha", "llama-gqa-tied", "llama-head_dim", "llama-long",
                                 "llama-rope-linear", "llama-rope-llama3"}) {
    CAPTURE(name);
    const HuggingFaceConfig config = kvdecode::load_huggingface_config(kGolden / name);
    CHECK(config.model.d_model == 48);
    CHECK(config.model.d_ff == 64);
    CHECK(config.model.n_layers == 2);
    CHECK(config.model.n_heads == 6);
    CHECK(config.bos_token_ids == std::vector<TokenId>{1});
    CHECK(config.eos_token_ids == std::vector<TokenId>{2});
  }
  CHECK(kvdecode::load_huggingface_config(kGolden / "llama-gqa-tied").model.rotary.theta == 1e5);
  CHECK(kvdecode::load_huggingface_config(kGolden / "llama-gqa-tied").model.tied_head);
  CHECK(kvdecode::load_huggingface_config(kGolden / "llama-head_dim").model.head_dim == 12);
  CHECK(kvdecode::load_huggingface_config(kGolden / "llama-head_dim").feed_forward_bias);
  CHECK(kvdecode::load_huggingface_config(kGolden / "llama-mha").model.norm_eps == 1e-5);
  CHECK(kvdecode::load_huggingface_config(kGolden / "llama-long").model.max_seq_len == 512);
  CHECK(kvdecode::load_huggingface_config(kGolden / "llama-rope-linear").model.rotary.scaling.factor == 4.0);
  const kvdecode::RotaryConfig rotary =
      kvdecode::load_huggingface_config(kGolden / "llama-rope-llama3").model.rotary;
  CHECK(rotary.theta == 5e5);
  CHECK(rotary.scaling.kind == RotaryScalingKind::kLlama3);
  CHECK(rotary.scaling.original_max_seq_len == 32);
}

TEST_CASE(
    "load_huggingface_config: generation_config.json stands above config.json, where it says something") {
  const io_test::TemporaryFolder folder;
  folder.write("config.json", with("eos_token_id", 5).dump());
  CHECK(kvdecode::load_huggingface_config(folder.path()).eos_token_ids == std::vector<TokenId>{5});
  folder.write("generation_config.json", R"({"eos_token_id":[6,7],"temperature":0.6,"anything":{}})");
  CHECK(kvdecode::load_huggingface_config(folder.path()).eos_token_ids == std::vector<TokenId>{6, 7});
  CHECK(kvdecode::load_huggingface_config(folder.path()).bos_token_ids == std::vector<TokenId>{1});
  folder.write("generation_config.json", R"({"eos_token_id":null,"bos_token_id":9})");
  CHECK(kvdecode::load_huggingface_config(folder.path()).eos_token_ids == std::vector<TokenId>{5});
  CHECK(kvdecode::load_huggingface_config(folder.path()).bos_token_ids == std::vector<TokenId>{9});
  folder.write("generation_config.json", R"({"eos_token_id":80})");
  check_error(ErrorCode::kBadFile, {"generation_config.json: eos_token_id", "got 80"},
              [&] { kvdecode::load_huggingface_config(folder.path()); });
  folder.write("generation_config.json", "{");
  check_error(ErrorCode::kBadFile, {"generation_config.json: ", "not JSON"},
              [&] { kvdecode::load_huggingface_config(folder.path()); });
}

TEST_CASE("load_huggingface_config: what is not a model's folder is an Error that names it") {
  const io_test::TemporaryFolder folder;
  check_error(ErrorCode::kBadFile, {"config.json", "No such file"},
              [&] { kvdecode::load_huggingface_config(folder.path()); });
  check_error(ErrorCode::kBadFile, {"not-there", "is not a folder"},
              [&] { kvdecode::load_huggingface_config(folder.path() / "not-there"); });
  check_error(ErrorCode::kBadFile, {"a-file", "is not a folder"},
              [&] { kvdecode::load_huggingface_config(folder.write("a-file", "text")); });
}

TEST_CASE("parse_huggingface_config, hostile: every cut is an Error, no change of a byte is more than one") {
  for (const char* const name : {"llama-mha", "llama-rope-llama3"}) {
    const std::string text = io_test::read_text(kGolden / name / "config.json");
    const std::size_t end = text.find_last_of('}');
    for (std::size_t n = 0; n <= end; ++n) {
      CAPTURE(n);
      check_error(ErrorCode::kBadFile, {"config.json: "},
                  [&] { parse_huggingface_config(std::string_view(text).substr(0, n)); });
    }
    std::mt19937 random(1);
    for (int round = 0; round < 3000; ++round) {
      std::string changed = text;
      for (int change = 0; change < 2; ++change)
        changed[random() % text.size()] =
            random() % 2 == 0 ? text[random() % text.size()] : static_cast<char>(random() % 256);
      if (const auto error = io_test::error_of([&] { parse_huggingface_config(changed); }))
        CHECK((error->code() == ErrorCode::kBadFile || error->code() == ErrorCode::kUnsupported));
    }
  }
}

TEST_CASE("parse_huggingface_config, hostile: every field with a value of every type") {
  const json config = json::parse(io_test::read_text(kGolden / "llama-rope-llama3" / "config.json"));
  const json values[] = {nullptr,
                         true,
                         false,
                         0,
                         1,
                         -1,
                         2,
                         1e-300,
                         1e300,
                         0.5,
                         std::uint64_t{1} << 31,
                         std::uint64_t{1} << 62,
                         ~std::uint64_t{0},
                         "",
                         "silu",
                         json::array(),
                         json::object(),
                         {1, 2},
                         {{"rope_type", "linear"}}};
  const auto check_one = [](const json& changed) {
    CAPTURE(changed.dump());
    const auto error = io_test::error_of([&] { parse(changed).model.validate(); });
    if (error) CHECK((error->code() == ErrorCode::kBadFile || error->code() == ErrorCode::kUnsupported));
  };
  for (const auto& [name, unused] : config.items()) {
    for (const json& value : values) {
      json changed = config;
      changed[name] = value;
      check_one(changed);
    }
  }
  for (const auto& [name, unused] : config["rope_parameters"].items()) {
    for (const json& value : values) {
      json changed = config;
      changed["rope_parameters"][name] = value;
      check_one(changed);
    }
  }
}

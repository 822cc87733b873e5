// SPDX-License-Identifier: MIT
// Each family's config.json, as transformers 4 and 5 write it, what is refused in it, and where its tensors go.
#include <support/fp_mode.hpp>

#include <kvdecode/io/architectures.hpp>
#include <kvdecode/io/huggingface_config.hpp>
#include <kvdecode/io/huggingface_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "support.hpp"
#include "variant.hpp"

using io_test::check_error;
using io_test::kGolden;
using io_test::Variant;
using kvdecode::AttentionSpan;
using kvdecode::ErrorCode;
using kvdecode::FormatId;
using kvdecode::HuggingFaceConfig;
using kvdecode::Index;
using kvdecode::LayerWeights;
using kvdecode::LoadedModel;
using kvdecode::MatrixView;
using kvdecode::ModelConfig;
using kvdecode::RotaryConfig;
using kvdecode::RotaryScaling;
using kvdecode::RotaryScalingKind;
using kvdecode::SafetensorsFile;
using kvdecode::SafetensorsTensor;
using kvdecode::TokenId;
using kvdecode::VectorView;
using nlohmann::json;

namespace {

HuggingFaceConfig parse(const json& config) { return kvdecode::parse_huggingface_config(config.dump()); }

void check_refused(ErrorCode code, std::initializer_list<std::string_view> words, const json& config) {
  CAPTURE(config.dump());
  check_error(code, words, [&] { parse(config); });
}

/// A config of nothing but sizes.
json minimal(const std::string& architecture, const std::string& model_type) {
  json config{{"architectures", {architecture}}, {"model_type", model_type}, {"vocab_size", 80}};
  if (model_type == "gpt2") {
    config.update({{"n_embd", 48}, {"n_layer", 6}, {"n_head", 6}});
    return config;
  }
  config.update({{"hidden_size", 48},
                 {"intermediate_size", 64},
                 {"num_hidden_layers", 6},
                 {"num_attention_heads", 6},
                 {"num_key_value_heads", 2}});
  if (model_type == "mixtral") config.update({{"num_local_experts", 4}, {"num_experts_per_tok", 2}});
  if (model_type == "qwen3_moe")
    config.update({{"num_experts", 6}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 24}});
  if (model_type == "gemma4_text") config["vocab_size_per_layer_input"] = 80;
  if (model_type.starts_with("deepseek")) {
    config.erase("num_key_value_heads");  // as many as heads
    config.update({{"kv_lora_rank", 16},
                   {"qk_nope_head_dim", 12},
                   {"qk_rope_head_dim", 8},
                   {"v_head_dim", 10},
                   {"num_experts_per_tok", 2},
                   {"moe_intermediate_size", 24}});
  }
  return config;
}

/// Every family, by model_type.
std::map<std::string, json> families() {
  std::map<std::string, json> result;
  for (const kvdecode::HuggingFaceArchitecture& each : kvdecode::kHuggingFaceArchitectures)
    result[std::string(each.model_type)] = minimal(std::string(each.name), std::string(each.model_type));
  return result;
}
json family(const char* model_type) { return families().at(model_type); }

json with(json config, const std::string& field, const json& value) {
  config[field] = value;
  return config;
}
json with(json config, const json& fields) {
  config.update(fields);
  return config;
}

std::string text_of(const RotaryConfig& rotary) {
  std::ostringstream text;
  text.precision(17);
  const RotaryScaling& s = rotary.scaling;
  text << rotary.enabled << ' ' << rotary.dim << ' ' << rotary.theta << ' ' << static_cast<int>(rotary.pairs)
       << ' ' << static_cast<int>(s.kind) << ' ' << s.factor << ' ' << s.low_freq_factor << ' '
       << s.high_freq_factor << ' ' << s.original_max_seq_len << ' ' << s.beta_fast << ' ' << s.beta_slow
       << ' ' << s.round_bounds << ' ' << s.magnitude;
  for (const double f : s.short_factors) text << ' ' << f;
  for (const double f : s.long_factors) text << ' ' << f;
  text << ' ' << s.n_turning;
  return text.str();
}

/// All that a config says, to compare two of them.
std::string text_of(const HuggingFaceConfig& config) {
  std::ostringstream text;
  text.precision(17);
  const ModelConfig& m = config.model;
  const auto number = [](auto value) { return static_cast<int>(value); };
  text << m.n_layers << ' ' << m.d_model << ' ' << m.n_heads << ' ' << m.n_kv_heads << ' ' << m.head_dim
       << ' ' << m.d_ff << ' ' << m.vocab_size << ' ' << m.max_seq_len << "; " << number(m.norm) << ' '
       << m.norm_eps << ' ' << m.norm_weight_offset << ' ' << number(m.norm_placement) << ' '
       << number(m.qk_norm) << m.value_norm << "; " << number(m.activation) << m.gated_feed_forward
       << number(m.residual) << number(m.position) << "; " << text_of(m.rotary) << "; " << m.embedding_scale
       << ' ' << m.attention_scale << ' ' << m.attention_soft_cap << ' ' << m.logit_soft_cap << ' '
       << m.tied_head << "; " << m.n_experts << ' ' << m.n_experts_used << ' ' << m.d_expert << ' '
       << m.normalize_expert_weights << ' ' << m.expert_weight_scale << ' ' << number(m.expert_score) << ' '
       << m.n_expert_groups << ' ' << m.n_expert_groups_used << ' ' << number(m.expert_group_score) << ' '
       << m.d_shared_expert << "; " << m.kv_lora_rank << ' ' << m.q_lora_rank << ' ' << m.qk_nope_head_dim
       << ' ' << m.v_head_dim << ' ' << m.latent_norm_eps << "; ";
  for (const AttentionSpan& s : m.spans) text << s.window << ',' << s.n_sink << ',' << s.chunk << ' ';
  for (const RotaryConfig& r : m.layer_rotary) text << "[" << text_of(r) << "] ";
  for (const unsigned char has : m.has_experts) text << (has != 0 ? 'e' : '-');
  text << "; " << m.d_layer_input << ' ' << m.layer_embedding_scale << ';';
  for (const Index dim : m.layer_head_dim) text << ' ' << dim;
  text << ';';
  for (const Index store : m.kv_stores) text << ' ' << store;
  text << "; " << config.attention_bias << config.attention_output_bias << config.feed_forward_bias << ';';
  for (const TokenId id : config.bos_token_ids) text << ' ' << id;
  text << ';';
  for (const TokenId id : config.eos_token_ids) text << ' ' << id;
  return text.str();
}

std::vector<Index> windows_of(const ModelConfig& model) {
  std::vector<Index> windows;
  for (const AttentionSpan& span : model.spans) windows.push_back(span.window);
  return windows;
}

const char* const kFolders[] = {"gpt2",
                                "llama-mha",
                                "llama-rope-dynamic",
                                "llama-rope-yarn",
                                "mistral-sliding",
                                "qwen2",
                                "qwen3",
                                "gemma",
                                "gemma4",
                                "phi3",
                                "phi3-longrope",
                                "olmo2",
                                "stablelm",
                                "mixtral",
                                "qwen3_moe",
                                "deepseek_v2",
                                "deepseek_v3"};

json config_in(const char* folder) {
  return json::parse(io_test::read_text(kGolden / folder / "config.json"));
}

json gemma2_config() {
  return with(family("gemma2"), {{"query_pre_attn_scalar", 24},
                                 {"sliding_window", 8},
                                 {"attn_logit_softcapping", 5.0},
                                 {"final_logit_softcapping", 3.0},
                                 {"head_dim", 16}});
}
json gemma3_config() {
  return with(family("gemma3_text"), {{"query_pre_attn_scalar", 16},
                                      {"sliding_window", 8},
                                      {"sliding_window_pattern", 3},
                                      {"_sliding_window_pattern", 3},
                                      {"head_dim", 16},
                                      {"rope_theta", 5e5},
                                      {"rope_local_base_freq", 2e4}});
}

}  // namespace

TEST_CASE("architectures: names and model types are unique, and found") {
  std::set<std::string_view> names, types;
  for (const kvdecode::HuggingFaceArchitecture& each : kvdecode::kHuggingFaceArchitectures) {
    CHECK(kvdecode::find_huggingface_architecture(each.name) == &each);
    names.insert(each.name);
    types.insert(each.model_type);
  }
  CHECK(names.size() == std::size(kvdecode::kHuggingFaceArchitectures));
  CHECK(types.size() == names.size());
  CHECK(kvdecode::find_huggingface_architecture("BertModel") == nullptr);
}

TEST_CASE("architectures: where a config is silent, the family's own defaults stand") {
  struct Default {
    const char* model_type;
    Index n_kv_heads, head_dim, max_seq_len;
    double norm_eps, theta;
    bool tied_head;
  };
  for (const Default& d :
       {Default{"llama", 6, 8, 2048, 1e-6, 1e4, false}, Default{"mistral", 8, 8, 131072, 1e-6, 1e4, false},
        Default{"mixtral", 8, 8, 131072, 1e-5, 1e6, false}, Default{"qwen2", 32, 8, 32768, 1e-6, 1e4, false},
        Default{"qwen3", 32, 128, 32768, 1e-6, 1e4, false},
        Default{"qwen3_moe", 4, 8, 32768, 1e-6, 1e4, false}, Default{"gemma", 16, 256, 8192, 1e-6, 1e4, true},
        Default{"gemma2", 4, 256, 8192, 1e-6, 1e4, true},
        Default{"gemma3_text", 4, 256, 131072, 1e-6, 1e6, true},
        Default{"gemma4_text", 4, 256, 131072, 1e-6, 1e4, true},
        Default{"phi3", 6, 8, 4096, 1e-5, 1e4, false}, Default{"stablelm", 32, 8, 4096, 1e-5, 1e4, false},
        Default{"olmo2", 6, 8, 2048, 1e-5, 1e4, false}}) {
    CAPTURE(d.model_type);
    json config = family(d.model_type);
    config.erase("num_key_value_heads");
    // So that the default number of KV heads divides the heads.
    if (d.n_kv_heads > 6 || d.n_kv_heads == 4)
      config.update({{"num_attention_heads", 32}, {"hidden_size", 256}});
    const HuggingFaceConfig parsed = parse(config);
    const ModelConfig& model = parsed.model;
    CHECK(model.n_kv_heads == d.n_kv_heads);
    CHECK(model.head_dim == d.head_dim);
    CHECK(model.max_seq_len == d.max_seq_len);
    CHECK(model.norm_eps == d.norm_eps);
    CHECK(model.rotary.theta == d.theta);
    CHECK(model.tied_head == d.tied_head);
    CHECK(model.rotary.scaling == RotaryScaling{});
    CHECK(parsed.ignored_fields.empty());
    // Null is no default but "as many as heads".
    CHECK(parse(with(config, "num_key_value_heads", nullptr)).model.n_kv_heads == model.n_heads);
  }
  const ModelConfig gpt2 = parse(family("gpt2")).model;
  CHECK(gpt2.d_ff == 4 * 48);
  CHECK(gpt2.head_dim == 8);
  CHECK(gpt2.max_seq_len == 1024);
  CHECK(gpt2.norm_eps == 1e-5);
  CHECK(gpt2.tied_head);
}

TEST_CASE("architectures: token ids that no config names are the family's own, if the vocabulary has them") {
  const auto ids = [](const char* model_type, Index vocab_size) {
    const HuggingFaceConfig config = parse(with(family(model_type), "vocab_size", vocab_size));
    return std::pair(config.bos_token_ids, config.eos_token_ids);
  };
  using Ids = std::pair<std::vector<TokenId>, std::vector<TokenId>>;
  for (const char* const model_type : {"llama", "mistral", "mixtral"})
    CHECK(ids(model_type, 80) == Ids{{1}, {2}});
  for (const char* const model_type : {"gemma", "gemma2", "gemma3_text", "gemma4_text"})
    CHECK(ids(model_type, 80) == Ids{{2}, {1}});
  for (const char* const model_type : {"qwen2", "qwen3", "qwen3_moe"})
    CHECK(ids(model_type, 200000) == Ids{});
  CHECK(ids("deepseek_v2", 80) == Ids{{1}, {2}});
  CHECK(ids("deepseek_v3", 80) == Ids{{0}, {1}});
  CHECK(ids("phi3", 80) == Ids{{1}, {}});
  CHECK(ids("phi3", 32064) == Ids{{1}, {32000}});
  CHECK(ids("stablelm", 80) == Ids{{0}, {0}});
  CHECK(ids("olmo2", 100000) == Ids{{}, {50279}});
  CHECK(ids("gpt2", 50257) == Ids{{50256}, {50256}});
}

TEST_CASE("architectures: what makes each family what it is") {
  using namespace kvdecode;
  const auto model = [](const char* model_type) { return parse(family(model_type)).model; };
  const auto is_llama = [](const ModelConfig& m) {
    CHECK(m.norm == NormKind::kRms);
    CHECK(m.norm_placement == NormPlacement::kPre);
    CHECK(m.norm_weight_offset == 0.0);
    CHECK(m.embedding_scale == 1.0);
    CHECK(m.attention_scale == 0.0);
    CHECK(m.activation == Activation::kSilu);
    CHECK(m.gated_feed_forward);
    CHECK(m.residual == ResidualKind::kSequential);
    CHECK(m.position == PositionKind::kRotary);
    CHECK(m.rotary.pairs == RotaryPairs::kHalves);
  };
  for (const char* const name : {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "phi3"})
    is_llama(model(name));
  CHECK(model("qwen3").qk_norm == QkNormKind::kPerHead);
  CHECK(model("qwen3_moe").qk_norm == QkNormKind::kPerHead);
  CHECK(model("qwen2").qk_norm == QkNormKind::kNone);
  CHECK(parse(family("qwen2")).attention_bias);
  CHECK(!parse(family("qwen2")).attention_output_bias);

  const ModelConfig gpt2 = model("gpt2");
  CHECK(gpt2.norm == NormKind::kLayer);
  CHECK(gpt2.activation == Activation::kGeluTanh);
  CHECK(!gpt2.gated_feed_forward);
  CHECK(gpt2.position == PositionKind::kLearned);
  CHECK(gpt2.attention_scale == 0.0);
  CHECK(parse(with(family("gpt2"), "scale_attn_weights", false)).model.attention_scale == 1.0);
  CHECK(parse(with(family("gpt2"), "n_inner", 50)).model.d_ff == 50);

  for (const char* const name : {"gemma", "gemma2", "gemma3_text"}) {
    const ModelConfig gemma = model(name);
    CHECK(gemma.norm_weight_offset == 1.0);
    CHECK(gemma.embedding_scale == std::sqrt(48.0));
    CHECK(gemma.activation == Activation::kGeluTanh);
    CHECK(gemma.norm_placement ==
          (std::string_view(name) == "gemma" ? NormPlacement::kPre : NormPlacement::kBoth));
    CHECK(gemma.qk_norm ==
          (std::string_view(name) == "gemma3_text" ? QkNormKind::kPerHead : QkNormKind::kNone));
  }
  const ModelConfig gemma2 = model("gemma2");
  CHECK(gemma2.attention_scale == 1.0 / 16.0);
  CHECK(gemma2.attention_soft_cap == 50.0);
  CHECK(gemma2.logit_soft_cap == 30.0);
  CHECK(parse(with(gemma2_config(), "attn_logit_softcapping", nullptr)).model.attention_soft_cap == 0.0);
  CHECK(parse(with(gemma2_config(), "final_logit_softcapping", nullptr)).model.logit_soft_cap == 0.0);
  CHECK(parse(gemma2_config()).model.attention_soft_cap == 5.0);
  CHECK(parse(gemma2_config()).model.logit_soft_cap == 3.0);
  CHECK(parse(gemma2_config()).model.attention_scale == 1.0 / std::sqrt(24.0));
  CHECK(model("gemma3_text").attention_soft_cap == 0.0);
  CHECK(model("gemma3_text").logit_soft_cap == 0.0);
  CHECK(parse(with(gemma3_config(), "final_logit_softcapping", 30.0)).model.logit_soft_cap == 30.0);

  const ModelConfig stablelm = model("stablelm");
  CHECK(stablelm.norm == NormKind::kLayer);
  CHECK(stablelm.rotary.dim == 2);
  CHECK(parse(with(family("stablelm"), "layer_norm_eps", 1e-3)).model.norm_eps == 1e-3);
  CHECK(!parse(family("stablelm")).attention_bias);
  CHECK(parse(with(family("stablelm"), "use_qkv_bias", true)).attention_bias);
  CHECK(!parse(with(family("stablelm"), "use_qkv_bias", true)).attention_output_bias);
  CHECK(parse(with(family("stablelm"), "use_parallel_residual", true)).model.residual ==
        ResidualKind::kParallelSharedNorm);

  const ModelConfig olmo2 = model("olmo2");
  CHECK(olmo2.norm_placement == NormPlacement::kPost);
  CHECK(olmo2.qk_norm == QkNormKind::kWhole);
  for (const char* const name :
       {"qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "gemma4_text", "olmo2"}) {
    CHECK(!parse(family(name)).attention_bias);
    CHECK(parse(with(family(name), "attention_bias", true)).attention_bias);
    CHECK(parse(with(family(name), "attention_bias", true)).attention_output_bias);
  }

  const ModelConfig mixtral = model("mixtral");
  CHECK(mixtral.n_experts == 4);
  CHECK(mixtral.n_experts_used == 2);
  CHECK(mixtral.d_expert == 64);
  CHECK(mixtral.normalize_expert_weights);
  const ModelConfig moe = model("qwen3_moe");
  CHECK(moe.n_experts == 6);
  CHECK(moe.d_expert == 24);
  CHECK(!moe.normalize_expert_weights);
  CHECK(parse(with(family("qwen3_moe"), "norm_topk_prob", true)).model.normalize_expert_weights);
}

namespace {

/// Six layers, of which the third and the sixth have no window.
json gemma4_config() {
  return with(family("gemma4_text"), {{"layer_types",
                                       {"sliding_attention", "sliding_attention", "full_attention",
                                        "sliding_attention", "sliding_attention", "full_attention"}},
                                      {"head_dim", 8},
                                      {"global_head_dim", 16},
                                      {"sliding_window", 8},
                                      {"num_kv_shared_layers", 2},
                                      {"hidden_size_per_layer_input", 8}});
}

}  // namespace

TEST_CASE("architectures: what makes Gemma 4 what it is") {
  using namespace kvdecode;
  using Indices = std::vector<Index>;
  const json config = gemma4_config();
  const ModelConfig m = parse(config).model;
  CHECK(m.norm_weight_offset == 0.0);
  CHECK(m.embedding_scale == std::sqrt(48.0));
  CHECK(m.activation == Activation::kGeluTanh);
  CHECK(m.norm_placement == NormPlacement::kBoth);
  CHECK(m.qk_norm == QkNormKind::kPerHead);
  CHECK(m.value_norm);
  CHECK(m.attention_scale == 1.0);
  CHECK(m.logit_soft_cap == 0.0);
  CHECK(parse(with(config, "final_logit_softcapping", 30.0)).model.logit_soft_cap == 30.0);
  CHECK(windows_of(m) == Indices{8, 8, 0, 8, 8, 0});
  CHECK(windows_of(parse(family("gemma4_text")).model) == Indices{512, 512, 512, 512, 512, 0});
  CHECK(windows_of(parse(with(family("gemma4_text"), "num_hidden_layers", 8)).model) ==
        Indices{512, 512, 512, 512, 512, 0, 512, 0});
  json types = config["layer_types"];
  types[5] = "sliding_attention";
  check_refused(ErrorCode::kUnsupported, {"the last layer", "full_attention"},
                with(config, "layer_types", types));

  // Inputs of layers, none where the field is null or 0.
  CHECK(m.d_layer_input == 8);
  CHECK(m.layer_embedding_scale == std::sqrt(8.0));
  CHECK(parse(family("gemma4_text")).model.d_layer_input == 256);
  for (const json& none : {json(nullptr), json(0)}) {
    const ModelConfig plain =
        parse(with(config, {{"hidden_size_per_layer_input", none}, {"vocab_size_per_layer_input", 9}})).model;
    CHECK(plain.d_layer_input == 0);
    CHECK(plain.layer_embedding_scale == 1.0);
  }

  // What belongs to experts is of no matter where there are none; nor is how many heads there would be for k = v.
  CHECK_NOTHROW(parse(with(config, {{"enable_moe_block", false},
                                    {"num_experts", 8},
                                    {"top_k_experts", 2},
                                    {"moe_intermediate_size", 24},
                                    {"attention_k_eq_v", false},
                                    {"num_global_key_value_heads", 1}})));
}

TEST_CASE("architectures: Gemma 4's layers have heads of their own length") {
  using Indices = std::vector<Index>;
  const json config = gemma4_config();
  const auto dims = [](const json& changed) { return parse(changed).model.layer_head_dim; };
  CHECK(dims(config) == Indices{8, 8, 16, 8, 8, 16});
  CHECK(dims(family("gemma4_text")) == Indices{256, 256, 256, 256, 256, 512});
  CHECK(dims(with(config, "global_head_dim", 8)).empty());
  json by_layer = with(with(config, "global_head_dim", nullptr), "per_layer_config",
                       {{"2", {{"head_dim", 16}}}, {"5", {{"head_dim", 16}, {"num_key_value_heads", 2}}}});
  CHECK(text_of(parse(by_layer)) == text_of(parse(config)));
  CHECK(text_of(parse(with(by_layer, "global_head_dim", 16))) == text_of(parse(config)));
  CHECK(dims(with(by_layer, "per_layer_config", json::object())).empty());
  check_refused(ErrorCode::kUnsupported,
                {"global_head_dim 24", "per_layer_config.2.head_dim 16", "contradict one another"},
                with(by_layer, "global_head_dim", 24));
  const auto refused = [&](ErrorCode code, std::initializer_list<std::string_view> words, const char* layer,
                           const json& value) {
    json changed = by_layer;
    changed["per_layer_config"][layer] = value;
    check_refused(code, words, changed);
  };
  refused(ErrorCode::kUnsupported,
          {"per_layer_config.2.num_key_value_heads 1 of one layer", "that of all, 2"}, "2",
          {{"head_dim", 16}, {"num_key_value_heads", 1}});
  refused(ErrorCode::kUnsupported, {"\"per_layer_config.2.intermediate_size\" is not known"}, "2",
          {{"head_dim", 16}, {"intermediate_size", 32}});
  for (const char* const name : {"6", "-1", "02", "full_attention"})
    refused(ErrorCode::kUnsupported, {"\"per_layer_config." + std::string(name) + "\" is not known"}, name,
            {{"head_dim", 16}});
  refused(ErrorCode::kBadFile, {"per_layer_config.2 must be an object, got 16"}, "2", 16);
  refused(ErrorCode::kBadFile, {"layer 4 reads", "of layer 3, but differs from it in head_dim"}, "4",
          {{"head_dim", 16}});
}

TEST_CASE("architectures: Gemma 4's last layers read the last keys and values of their type before them") {
  using Indices = std::vector<Index>;
  const auto stores = [](Index n_shared) {
    return parse(with(gemma4_config(), "num_kv_shared_layers", n_shared)).model.kv_stores;
  };
  CHECK(stores(0).empty());
  CHECK(stores(1) == Indices{0, 1, 2, 3, 4, 2});
  CHECK(stores(2) == Indices{0, 1, 2, 3, 3, 2});
  CHECK(stores(3) == Indices{0, 1, 2, 1, 1, 2});
  check_refused(
      ErrorCode::kBadFile,
      {"num_kv_shared_layers 4: no layer of full_attention has keys and values that layer 2 could read"},
      with(gemma4_config(), "num_kv_shared_layers", 4));
  for (const Index all : {6, 7})
    check_refused(ErrorCode::kBadFile, {"of 6 layers leaves none"},
                  with(gemma4_config(), "num_kv_shared_layers", all));
}

TEST_CASE("rotary: Gemma 4's layers turn whole heads, or without a window a part of the pairs") {
  const auto rotary = [](const json& config, std::size_t layer) {
    return parse(config).model.layer_rotary.at(layer);
  };
  const json silent = gemma4_config();
  CHECK(rotary(silent, 0) == RotaryConfig{});
  const RotaryConfig full{
      .theta = 1e6, .scaling = {.kind = RotaryScalingKind::kProportional, .factor = 1.0, .n_turning = 2}};
  CHECK(rotary(silent, 2) == full);
  CHECK(rotary(silent, 5) == full);
  const json parameters{
      {"full_attention",
       {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.4}, {"rope_theta", 5e5}, {"factor", 8.0}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 2e4}}}};
  const json spoken = with(silent, "rope_parameters", parameters);
  CHECK(rotary(spoken, 1) == RotaryConfig{.theta = 2e4});
  // 0.4 of 16 numbers are 6.4, three pairs.
  CHECK(rotary(spoken, 2) ==
        RotaryConfig{.theta = 5e5,
                     .scaling = {.kind = RotaryScalingKind::kProportional, .factor = 8.0, .n_turning = 3}});
  CHECK(parse(spoken).model.rotary == RotaryConfig{});  // of no layer
  const auto refused = [&](ErrorCode code, std::initializer_list<std::string_view> words, const char* type,
                           const char* field, const json& value) {
    json changed = spoken;
    changed["rope_parameters"][type][field] = value;
    check_refused(code, words, changed);
  };
  refused(ErrorCode::kBadFile,
          {"rope_parameters.full_attention.partial_rotary_factor must be at most 1, got 1.5"},
          "full_attention", "partial_rotary_factor", 1.5);
  refused(ErrorCode::kBadFile, {"rope_parameters.sliding_attention.rope_theta is missing"},
          "sliding_attention", "rope_theta", nullptr);
  refused(ErrorCode::kUnsupported, {"rope_parameters.full_attention.rope_type \"yarn\" is not supported"},
          "full_attention", "rope_type", "yarn");
  refused(ErrorCode::kUnsupported, {"\"rope_parameters.sliding_attention.factor\" is not known"},
          "sliding_attention", "factor", 8.0);
  refused(ErrorCode::kUnsupported,
          {"\"rope_parameters.sliding_attention.partial_rotary_factor\" is not known"}, "sliding_attention",
          "partial_rotary_factor", 0.5);
  for (const char* const type : {"full_attention", "sliding_attention"}) {
    json changed = spoken;
    changed["rope_parameters"].erase(type);
    check_refused(ErrorCode::kBadFile, {std::string("rope_parameters.") + type + " is missing"}, changed);
  }
  check_refused(ErrorCode::kUnsupported, {"\"rope_parameters.rope_theta\" is not known"},
                with(silent, "rope_parameters", with(parameters, "rope_theta", 1e4)));
  check_refused(ErrorCode::kUnsupported, {"\"rope_scaling\" is not known"},
                with(silent, "rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}));
}

TEST_CASE("architectures: DeepSeek's latent attention") {
  using namespace kvdecode;
  for (const char* const name : {"deepseek_v2", "deepseek_v3"}) {
    CAPTURE(name);
    const json config = family(name);
    const ModelConfig m = parse(config).model;
    CHECK(m.n_heads == 6);
    CHECK(m.n_kv_heads == 1);
    CHECK(m.head_dim == 20);
    CHECK(m.kv_lora_rank == 16);
    CHECK(m.qk_nope_head_dim == 12);
    CHECK(m.v_head_dim == 10);
    CHECK(m.q_lora_rank == 1536);
    CHECK(m.rotary_dim() == 8);
    CHECK(m.rotary.theta == 1e4);
    CHECK(m.rotary.pairs == RotaryPairs::kInterleaved);
    CHECK(m.attention_scale == 0.0);
    CHECK(m.norm_eps == 1e-6);
    CHECK(m.max_seq_len == (std::string_view(name) == "deepseek_v2" ? 2048 : 4096));
    CHECK(parse(with(config, "q_lora_rank", nullptr)).model.q_lora_rank == 0);
    CHECK(parse(with(config, "q_lora_rank", 24)).model.q_lora_rank == 24);
    // Whatever eps the other norms have, those of the latents have their own.
    const ModelConfig coarse = parse(with(config, "rms_norm_eps", 1e-3)).model;
    CHECK(coarse.norm_eps == 1e-3);
    CHECK(coarse.latent_norm_eps == 1e-6);
    CHECK(!parse(config).attention_bias);
    CHECK(parse(with(config, "attention_bias", true)).attention_bias);
    CHECK(parse(with(config, "attention_bias", true)).attention_output_bias);
    for (const char* const same : {"head_dim", "qk_head_dim", "num_key_value_heads"}) {
      const Index expected = std::string_view(same) == "head_dim" ? 8 : same[0] == 'q' ? 20 : 6;
      CHECK_NOTHROW(parse(with(config, same, expected)));
      check_refused(ErrorCode::kUnsupported,
                    {std::string(same) + " 2 is supported only if it is " + std::to_string(expected)},
                    with(config, same, 2));
    }
    for (const char* const size : {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
      json without = config;
      without.erase(size);
      check_refused(ErrorCode::kBadFile, {std::string(size) + " is missing"}, without);
      check_refused(ErrorCode::kBadFile, {std::string(size) + " 4611686018427387904 is beyond any model"},
                    with(config, size, std::uint64_t{1} << 62));
    }
    check_refused(ErrorCode::kBadFile, {"the rotary dimension must be even and at most qk_rope_head_dim 7"},
                  with(config, "qk_rope_head_dim", 7));
    // YaRN: cosines and sines times 0.1 mscale ln s + 1 over the same of mscale_all_dim, scores times its square.
    const json yarn{{"type", "yarn"},  {"factor", 40},          {"original_max_position_embeddings", 256},
                    {"mscale", 0.707}, {"mscale_all_dim", 0.5}, {"beta_fast", 32},
                    {"beta_slow", 1}};
    const ModelConfig stretched = parse(with(config, "rope_scaling", yarn)).model;
    const double all = 0.1 * 0.5 * std::log(40.0) + 1.0, one = 0.1 * 0.707 * std::log(40.0) + 1.0;
    CHECK(stretched.rotary.scaling.kind == RotaryScalingKind::kYarn);
    CHECK(std::abs(stretched.rotary.scaling.magnitude - one / all) < 1e-15);
    CHECK(std::abs(stretched.attention_scale - all * all / std::sqrt(20.0)) < 1e-15);
    json plain = yarn;
    plain.erase("mscale_all_dim");
    CHECK(std::abs(parse(with(config, "rope_scaling", plain)).model.attention_scale - 1 / std::sqrt(20.0)) <
          1e-15);
  }
  CHECK(parse(with(family("deepseek_v3"), "rope_interleave", false)).model.rotary.pairs ==
        RotaryPairs::kHalves);
}

TEST_CASE("architectures: DeepSeek's experts") {
  using namespace kvdecode;
  const auto layers = [](const json& config) {
    const ModelConfig model = parse(config).model;
    std::string text;
    for (Index i = 0; i < model.n_layers; ++i) text += model.layer_has_experts(i) ? 'e' : '-';
    return text;
  };
  const json v2 = family("deepseek_v2"), v3 = family("deepseek_v3");
  CHECK(layers(v2) == "eeeeee");
  CHECK(layers(v3) == "---eee");
  for (const json& config : {v2, v3}) {
    CHECK(layers(with(config, "first_k_dense_replace", 0)) == "eeeeee");
    CHECK(layers(with(config, "first_k_dense_replace", 2)) == "--eeee");
    CHECK(layers(with(with(config, "first_k_dense_replace", 1), "moe_layer_freq", 2)) == "--e-e-");
    CHECK(layers(with(config, "first_k_dense_replace", 6)) == "------");
    // No experts at all.
    const ModelConfig dense = parse(with(config, "n_routed_experts", nullptr)).model;
    CHECK(dense.n_experts == 0);
    CHECK(dense.d_shared_expert == 0);
    CHECK(parse(with(config, "n_shared_experts", nullptr)).model.d_shared_expert == 0);
    CHECK(parse(with(config, "n_shared_experts", 3)).model.d_shared_expert == 72);
    CHECK(parse(with(config, "routed_scaling_factor", 16.0)).model.expert_weight_scale == 16.0);
    json without = config;
    without.erase("moe_intermediate_size");
    check_refused(ErrorCode::kBadFile, {"moe_intermediate_size is missing"}, without);
    check_refused(ErrorCode::kBadFile, {"num_hidden_layers 4097", "4096"},
                  with(with(config, "first_k_dense_replace", 1), "num_hidden_layers", 4097));
    check_refused(ErrorCode::kBadFile, {"n_shared_experts 4611686018427387904 of 24 is beyond any model"},
                  with(config, "n_shared_experts", std::uint64_t{1} << 62));
  }
  json silent = v2;
  silent.erase("num_experts_per_tok");
  check_refused(ErrorCode::kBadFile, {"num_experts_per_tok is missing"}, silent);
  const ModelConfig two = parse(v2).model;
  CHECK(two.n_experts == 64);
  CHECK(two.n_experts_used == 2);
  CHECK(two.d_expert == 24);
  CHECK(two.d_shared_expert == 48);
  CHECK(two.expert_score == ExpertScore::kSoftmax);
  CHECK(!two.normalize_expert_weights);
  CHECK(two.expert_weight_scale == 1.0);
  CHECK(two.n_expert_groups == 1);
  const json groups = with(v2, {{"n_group", 8}, {"topk_group", 3}});
  CHECK(parse(groups).model.n_expert_groups == 1);  // greedy: they say nothing
  const ModelConfig limited = parse(with(groups, "topk_method", "group_limited_greedy")).model;
  CHECK(limited.n_expert_groups == 8);
  CHECK(limited.n_expert_groups_used == 3);
  CHECK(limited.expert_group_score == ExpertGroupScore::kMaximum);
  check_refused(ErrorCode::kBadFile, {"n_group is missing"}, with(v2, "topk_method", "group_limited_greedy"));
  check_refused(ErrorCode::kUnsupported, {"topk_method \"noaux_tc\" is not supported"},
                with(v2, "topk_method", "noaux_tc"));
  check_refused(ErrorCode::kBadFile, {"n_expert_groups must divide n_experts 64, got 7"},
                with(with(groups, "n_group", 7), "topk_method", "group_limited_greedy"));

  json bare = v3;
  bare.erase("num_experts_per_tok");
  const ModelConfig three = parse(bare).model;
  CHECK(three.n_experts == 256);
  CHECK(three.n_experts_used == 8);
  CHECK(three.d_shared_expert == 24);
  CHECK(three.expert_score == ExpertScore::kSigmoid);
  CHECK(three.normalize_expert_weights);
  CHECK(three.expert_weight_scale == 2.5);
  CHECK(three.n_expert_groups == 8);
  CHECK(three.n_expert_groups_used == 4);
  CHECK(three.expert_group_score == ExpertGroupScore::kTopTwo);
  CHECK(!parse(with(v3, "norm_topk_prob", false)).model.normalize_expert_weights);
  CHECK(parse(with(v3, {{"n_group", 4}, {"topk_group", 2}})).model.n_expert_groups_used == 2);
  CHECK_NOTHROW(parse(with(v3, {{"topk_method", "noaux_tc"}, {"scoring_func", "sigmoid"}, {"ep_size", 1}})));
  CHECK_NOTHROW(parse(with(v2, {{"scoring_func", "softmax"}, {"aux_loss_alpha", 0.001}, {"seq_aux", true}})));
}

TEST_CASE("architectures: transformers 4 and 5 write the same model differently") {
  for (const char* const name : kFolders) {
    CAPTURE(name);
    const json config = config_in(name);
    const std::string expected = text_of(parse(config));
    if (config["model_type"] == "gemma4_text") continue;  // which 4 does not know
    json other = config;
    if (config.contains("rope_parameters")) {  // 5 -> 4
      json rope = config["rope_parameters"];
      other.erase("rope_parameters");
      other["rope_theta"] = rope["rope_theta"];
      rope.erase("rope_theta");
      if (rope.contains("partial_rotary_factor")) {
        other["partial_rotary_factor"] = rope["partial_rotary_factor"];
        rope.erase("partial_rotary_factor");
      }
      other["rope_scaling"] = rope["rope_type"] == "default" ? json(nullptr) : rope;
      other["torch_dtype"] = other["dtype"];
      other.erase("dtype");
    } else if (config.contains("rope_theta")) {  // 4 -> 5
      json rope = config["rope_scaling"].is_null() ? json{{"rope_type", "default"}} : config["rope_scaling"];
      rope["rope_theta"] = config["rope_theta"];
      if (config.contains("partial_rotary_factor")) {
        rope["partial_rotary_factor"] = config["partial_rotary_factor"];
        other.erase("partial_rotary_factor");
      }
      other.erase("rope_scaling");
      other.erase("rope_theta");
      other["rope_parameters"] = rope;
    }
    if (config.contains("num_local_experts") && config["model_type"] == "qwen3_moe") {
      other["num_experts"] = config["num_local_experts"];
      other.erase("num_local_experts");
    }
    CHECK(text_of(parse(other)) == expected);
  }
  // Gemma 3 has two sets of rotary positions, and patterns instead of types of layers.
  json old = with(gemma3_config(), "rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}});
  json young = old;
  for (const char* const gone : {"rope_scaling", "rope_theta", "rope_local_base_freq",
                                 "sliding_window_pattern", "_sliding_window_pattern"})
    young.erase(gone);
  young["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 5e5}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 2e4}}}};
  young["layer_types"] = {"sliding_attention", "sliding_attention", "full_attention",
                          "sliding_attention", "sliding_attention", "full_attention"};
  CHECK(text_of(parse(young)) == text_of(parse(old)));
  const ModelConfig model = parse(old).model;
  CHECK(windows_of(model) == std::vector<Index>{8, 8, 0, 8, 8, 0});
  REQUIRE(model.layer_rotary.size() == 6);
  CHECK(model.layer_rotary[0].theta == 2e4);
  CHECK(model.layer_rotary[0].scaling == RotaryScaling{});
  CHECK(model.layer_rotary[2].theta == 5e5);
  CHECK(model.layer_rotary[2].scaling.kind == RotaryScalingKind::kLinear);
  CHECK(model.layer_rotary[2].scaling.factor == 8.0);
  const ModelConfig silent = parse(family("gemma3_text")).model;
  CHECK(windows_of(silent) == std::vector<Index>{4096, 4096, 4096, 4096, 4096, 0});
  CHECK(silent.layer_rotary[0].theta == 1e4);
  CHECK(silent.layer_rotary[5].theta == 1e6);
}

TEST_CASE("rotary scalings: yarn") {
  const auto yarn = [](const json& fields) {
    json rope{{"rope_type", "yarn"}, {"factor", 4.0}};
    rope.update(fields);
    return parse(with(with(family("llama"), "max_position_embeddings", 256), "rope_scaling", rope))
        .model.rotary.scaling;
  };
  const RotaryScaling plain = yarn(json::object());
  CHECK(plain.kind == RotaryScalingKind::kYarn);
  CHECK(plain.factor == 4.0);
  CHECK(plain.original_max_seq_len == 256);
  CHECK(plain.beta_fast == 32.0);
  CHECK(plain.beta_slow == 1.0);
  CHECK(plain.round_bounds);
  CHECK(std::abs(plain.magnitude - (0.1 * std::log(4.0) + 1.0)) < 1e-15);

  CHECK(yarn({{"original_max_position_embeddings", 64}}).original_max_seq_len == 64);
  const RotaryScaling by_length = yarn({{"factor", nullptr}, {"original_max_position_embeddings", 32}});
  CHECK(by_length.factor == 8.0);
  CHECK(std::abs(by_length.magnitude - (0.1 * std::log(8.0) + 1.0)) < 1e-15);
  CHECK(yarn({{"beta_fast", 16}, {"beta_slow", 2.5}}).beta_fast == 16.0);
  CHECK(yarn({{"beta_fast", 16}, {"beta_slow", 2.5}}).beta_slow == 2.5);
  CHECK(!yarn({{"truncate", false}}).round_bounds);
  CHECK(yarn({{"attention_factor", 0.75}}).magnitude == 0.75);
  CHECK(yarn({{"factor", 0.5}}).magnitude == 1.0);
  // Both logarithms scaled: their quotient. One of them alone, or 0, is none.
  const double quotient = (0.1 * 0.7 * std::log(4.0) + 1.0) / (0.1 * 0.5 * std::log(4.0) + 1.0);
  CHECK(std::abs(yarn({{"mscale", 0.7}, {"mscale_all_dim", 0.5}}).magnitude - quotient) < 1e-15);
  CHECK(yarn({{"mscale", 1.0}, {"mscale_all_dim", 1.0}}).magnitude == 1.0);
  CHECK(yarn({{"mscale", 0.7}}).magnitude == plain.magnitude);
  CHECK(yarn({{"mscale", 0.7}, {"mscale_all_dim", 0}}).magnitude == plain.magnitude);
  CHECK(yarn({{"mscale", 0.7}, {"mscale_all_dim", 0.5}, {"attention_factor", 0.75}}).magnitude == 0.75);

  const auto refused = [](ErrorCode code, std::initializer_list<std::string_view> words, const json& fields) {
    json rope{{"rope_type", "yarn"}, {"factor", 4.0}};
    rope.update(fields);
    check_refused(code, words, with(family("llama"), "rope_scaling", rope));
  };
  refused(ErrorCode::kBadFile, {"rope_scaling.beta_fast must be a positive number, got 0"},
          {{"beta_fast", 0}});
  refused(ErrorCode::kBadFile, {"rope_scaling.mscale must be a number of at least 0, got -1"},
          {{"mscale", -1}});
  refused(ErrorCode::kBadFile, {"rope_scaling.attention_factor must be a positive number"},
          {{"attention_factor", -0.5}});
  refused(ErrorCode::kBadFile, {"rope_scaling.truncate must be true or false"}, {{"truncate", 1}});
  refused(ErrorCode::kUnsupported, {"the field \"rope_scaling.finetuned\"", "\"yarn\""},
          {{"finetuned", true}});
  refused(ErrorCode::kUnsupported, {"the field \"rope_scaling.short_factor\""}, {{"short_factor", {1.0}}});
}

TEST_CASE("architectures: what a config comes to does not depend on the host's floating-point environment") {
  std::vector<json> configs{gemma2_config(), gemma3_config()};
  for (const char* const name : kFolders) configs.push_back(config_in(name));
  configs.push_back(with(family("llama"), "rope_scaling", {{"rope_type", "yarn"}, {"factor", 3.7}}));
  for (const json& config : configs) {
    const std::string text = config.dump(), expected = text_of(parse(config));
    for (const kvdecode_test::FpMode mode : kvdecode_test::kFpModes) {
      HuggingFaceConfig actual;
      {
        const kvdecode_test::ScopedFpMode scope(mode);
        actual = kvdecode::parse_huggingface_config(text);
      }
      CHECK(text_of(actual) == expected);
    }
  }
}

TEST_CASE("rotary scalings: dynamic grows beyond max_position_embeddings") {
  const json config = with(family("llama"), "max_position_embeddings", 256);
  const json rope{{"type", "dynamic"}, {"factor", 3.0}};
  const RotaryScaling scaling = parse(with(config, "rope_scaling", rope)).model.rotary.scaling;
  CHECK(scaling.kind == RotaryScalingKind::kDynamic);
  CHECK(scaling.factor == 3.0);
  CHECK(scaling.original_max_seq_len == 256);
  CHECK(scaling.magnitude == 1.0);
  CHECK_NOTHROW(parse(with(config, "rope_scaling", with(rope, "original_max_position_embeddings", 256))));
  check_refused(ErrorCode::kUnsupported,
                {"rope_scaling.original_max_position_embeddings 128", "max_position_embeddings, 256"},
                with(config, "rope_scaling", with(rope, "original_max_position_embeddings", 128)));
  check_refused(ErrorCode::kUnsupported, {"the field \"rope_scaling.alpha\""},
                with(config, "rope_scaling", with(rope, "alpha", 1000.0)));
}

TEST_CASE("rotary scalings: longrope, in Phi-3 by several names") {
  const json factors{{"short_factor", {1.0, 1.1, 1.2, 1.3}}, {"long_factor", {1.5, 2, 3, 4}}};
  const auto phi3 = [&](const json& fields, const json& rope = json::object()) {
    json scaling = with({{"type", "longrope"}}, factors);
    scaling.update(rope);
    return with(with(with(family("phi3"), "max_position_embeddings", 128), "rope_scaling", scaling), fields);
  };
  const RotaryScaling scaling = parse(phi3({{"original_max_position_embeddings", 16}})).model.rotary.scaling;
  CHECK(scaling.kind == RotaryScalingKind::kLongrope);
  CHECK(scaling.short_factors == std::vector<double>{1.0, 1.1, 1.2, 1.3});
  CHECK(scaling.long_factors == std::vector<double>{1.5, 2.0, 3.0, 4.0});
  CHECK(scaling.original_max_seq_len == 16);
  CHECK(std::abs(scaling.magnitude - std::sqrt(1.0 + std::log(8.0) / std::log(16.0))) < 1e-15);
  const json sixteen{{"original_max_position_embeddings", 16}};
  for (const char* const name : {"su", "yarn"})
    CHECK(parse(phi3(sixteen, {{"type", name}})).model.rotary.scaling == scaling);
  CHECK(parse(phi3(sixteen, {{"attention_factor", 1.25}})).model.rotary.scaling.magnitude == 1.25);
  const double by_factor = parse(phi3(sixteen, {{"factor", 32.0}})).model.rotary.scaling.magnitude;
  CHECK(std::abs(by_factor - std::sqrt(1.0 + std::log(32.0) / std::log(16.0))) < 1e-15);
  // Not longer than trained on: nothing to make up for. Phi-3 was trained on 4096, unless it says otherwise.
  const RotaryScaling silent = parse(phi3(json::object())).model.rotary.scaling;
  CHECK(silent.original_max_seq_len == 4096);
  CHECK(silent.magnitude == 1.0);
  check_refused(ErrorCode::kUnsupported,
                {"original_max_position_embeddings 16", "rope_scaling.original_max_position_embeddings 32",
                 "contradict"},
                phi3(sixteen, {{"original_max_position_embeddings", 32}}));
  // Elsewhere it is max_position_embeddings.
  const json llama = with(family("llama"), "max_position_embeddings", 64);
  CHECK(parse(with(llama, "rope_parameters", with(factors, "rope_type", "longrope")))
            .model.rotary.scaling.original_max_seq_len == 64);

  check_refused(ErrorCode::kBadFile, {"rope_scaling.short_factor must be a list of positive numbers, got 1"},
                phi3(sixteen, {{"short_factor", 1}}));
  check_refused(ErrorCode::kBadFile, {"rope_scaling.long_factor must be a list of positive numbers, got -2"},
                phi3(sixteen, {{"long_factor", {1, -2, 3, 4}}}));
  check_refused(ErrorCode::kBadFile, {"rope_scaling.long_factor is missing"},
                phi3(sixteen, {{"long_factor", nullptr}}));
  check_refused(ErrorCode::kBadFile, {"short_factors has 3 entries, expected 4"},
                phi3(sixteen, {{"short_factor", {1, 2, 3}}}));
  check_refused(ErrorCode::kUnsupported, {"rope_scaling.rope_type \"linear\"", "only default and longrope"},
                with(family("phi3"), "rope_scaling", {{"type", "linear"}, {"factor", 2.0}}));
}

TEST_CASE("rotary positions: a part of each head in families that have it") {
  const auto dim = [](const json& config) { return parse(config).model.rotary.dim; };
  const json phi3 = with(family("phi3"), "head_dim", 24);
  CHECK(dim(phi3) == 24);
  CHECK(dim(with(phi3, "partial_rotary_factor", 0.75)) == 18);
  CHECK(dim(with(phi3, "rope_parameters", {{"partial_rotary_factor", 0.75}})) == 18);
  CHECK(dim(with(with(phi3, "rope_parameters", {{"partial_rotary_factor", 0.75}}), "partial_rotary_factor",
                 0.75)) == 18);
  CHECK(dim(with(family("stablelm"), "partial_rotary_factor", 0.5)) == 4);
  check_refused(
      ErrorCode::kUnsupported,
      {"partial_rotary_factor 0.5", "rope_parameters.partial_rotary_factor 0.75", "contradict"},
      with(with(phi3, "rope_parameters", {{"partial_rotary_factor", 0.75}}), "partial_rotary_factor", 0.5));
  for (const double bad : {1.5, 0.01, 1e300})
    check_refused(ErrorCode::kBadFile, {"partial_rotary_factor"}, with(phi3, "partial_rotary_factor", bad));
  check_refused(ErrorCode::kBadFile, {"rotary dimension must be even"},
                with(phi3, "partial_rotary_factor", 0.9));
  for (const char* const name :
       {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text",
        "gemma4_text", "olmo2", "deepseek_v2", "deepseek_v3"}) {
    CAPTURE(name);
    CHECK_NOTHROW(parse(with(family(name), "partial_rotary_factor", 1.0)));
    check_refused(ErrorCode::kUnsupported, {"partial_rotary_factor is supported as 1.0 only, got 0.5"},
                  with(family(name), "partial_rotary_factor", 0.5));
  }
}

TEST_CASE("windows: Mistral, Mixtral and Phi-3 have them in every layer") {
  const std::vector<Index> none, all(6, 8);
  for (const char* const name : {"mistral", "mixtral", "phi3"}) {
    CAPTURE(name);
    CHECK(windows_of(parse(with(family(name), "sliding_window", 8)).model) == all);
    CHECK(windows_of(parse(with(family(name), "sliding_window", nullptr)).model) == none);
    CHECK(windows_of(parse(family(name)).model) ==
          (std::string_view(name) == "mistral" ? std::vector<Index>(6, 4096) : none));
    check_refused(ErrorCode::kBadFile, {"sliding_window must be a positive integer, got 0"},
                  with(family(name), "sliding_window", 0));
    check_refused(ErrorCode::kBadFile, {"num_hidden_layers 4097", "4096"},
                  with(with(family(name), "sliding_window", 8), "num_hidden_layers", 4097));
  }
}

TEST_CASE("windows: Qwen has them on request, in the upper layers or where layer_types says so") {
  const std::vector<Index> none;
  const json types{"full_attention",    "sliding_attention", "full_attention",
                   "sliding_attention", "sliding_attention", "full_attention"};
  for (const char* const name : {"qwen2", "qwen3"}) {
    CAPTURE(name);
    const json off = with(with(family(name), "sliding_window", 8), "max_window_layers", 4);
    const json on = with(off, "use_sliding_window", true);
    CHECK(windows_of(parse(off).model) == none);
    CHECK(windows_of(parse(on).model) == std::vector<Index>{0, 0, 0, 0, 8, 8});
    CHECK(windows_of(parse(with(on, "max_window_layers", 0)).model) == std::vector<Index>(6, 8));
    CHECK(windows_of(parse(with(on, "max_window_layers", 6)).model) == none);
    CHECK(windows_of(parse(with(on, "max_window_layers", nullptr)).model) == none);  // 28
    CHECK(windows_of(parse(with(on, "layer_types", types)).model) == std::vector<Index>{0, 8, 0, 8, 8, 0});
    CHECK(windows_of(parse(with(with(on, "layer_types", types), "sliding_window", 9)).model)[1] == 9);
    check_refused(ErrorCode::kBadFile, {"sliding_attention", "no sliding_window is in use"},
                  with(off, "layer_types", types));
    check_refused(ErrorCode::kBadFile, {"sliding_attention", "no sliding_window is in use"},
                  with(with(on, "layer_types", types), "sliding_window", nullptr));
    check_refused(ErrorCode::kBadFile, {"layer_types has 2 entries for 6 layers"},
                  with(on, "layer_types", {"full_attention", "full_attention"}));
    json unknown = types;
    unknown[3] = "chunked_attention";
    check_refused(ErrorCode::kUnsupported, {"layer_types: \"chunked_attention\" is not supported"},
                  with(on, "layer_types", unknown));
    unknown[3] = 1;
    check_refused(ErrorCode::kBadFile, {"layer_types must be a list of strings, got 1"},
                  with(on, "layer_types", unknown));
    check_refused(ErrorCode::kBadFile, {"max_window_layers must be an integer of at least 0, got -1"},
                  with(on, "max_window_layers", -1));
  }
  const json moe = with(family("qwen3_moe"), {{"use_sliding_window", true}, {"sliding_window", 8}});
  CHECK(windows_of(parse(moe).model) == std::vector<Index>(6, 8));
  CHECK(windows_of(parse(with(moe, "use_sliding_window", false)).model) == none);
  CHECK(windows_of(parse(with(with(moe, "use_sliding_window", false), "max_window_layers", 4)).model) ==
        none);
  check_refused(ErrorCode::kUnsupported, {"max_window_layers 4 beside use_sliding_window"},
                with(moe, "max_window_layers", 4));
}

TEST_CASE("windows: Gemma 2 in every second layer, Gemma 3 in all but every sixth, or as layer_types says") {
  CHECK(windows_of(parse(gemma2_config()).model) == std::vector<Index>{8, 0, 8, 0, 8, 0});
  CHECK(windows_of(parse(family("gemma2")).model)[0] == 4096);
  const json types{"full_attention", "full_attention",    "full_attention",
                   "full_attention", "sliding_attention", "full_attention"};
  CHECK(windows_of(parse(with(gemma2_config(), "layer_types", types)).model) ==
        std::vector<Index>{0, 0, 0, 0, 8, 0});
  CHECK(windows_of(parse(with(gemma3_config(), "layer_types", types)).model) ==
        std::vector<Index>{0, 0, 0, 0, 8, 0});
  const ModelConfig gemma3 = parse(with(gemma3_config(), "layer_types", types)).model;
  CHECK(gemma3.layer_rotary[3].theta == 5e5);
  CHECK(gemma3.layer_rotary[4].theta == 2e4);
  for (const json& config : {gemma2_config(), gemma3_config()})
    check_refused(ErrorCode::kBadFile, {"sliding_attention", "no sliding_window"},
                  with(config, "sliding_window", nullptr));
  check_refused(ErrorCode::kUnsupported,
                {"sliding_window_pattern 3", "_sliding_window_pattern 4", "contradict"},
                with(gemma3_config(), "_sliding_window_pattern", 4));
}

TEST_CASE("experts: which layers have them, and how many there are") {
  const json moe = family("qwen3_moe");
  const auto layers = [](const json& config) {
    const ModelConfig model = parse(config).model;
    std::string text;
    for (Index i = 0; i < model.n_layers; ++i) text += model.layer_has_experts(i) ? 'e' : '-';
    return text;
  };
  CHECK(layers(moe) == "eeeeee");
  CHECK(layers(with(moe, "mlp_only_layers", json::array())) == "eeeeee");
  CHECK(layers(with(moe, "mlp_only_layers", {0, 4})) == "-eee-e");
  CHECK(layers(with(moe, "decoder_sparse_step", 2)) == "-e-e-e");
  CHECK(layers(with(with(moe, "decoder_sparse_step", 2), "mlp_only_layers", {1, 2})) == "---e-e");
  CHECK(layers(with(moe, "decoder_sparse_step", 7)) == "------");
  check_refused(ErrorCode::kBadFile, {"mlp_only_layers must be an integer from 0 to 5"},
                with(moe, "mlp_only_layers", {6}));
  check_refused(ErrorCode::kBadFile, {"decoder_sparse_step must be a positive integer, got 0"},
                with(moe, "decoder_sparse_step", 0));
  json five = with(moe, "num_local_experts", 6);
  CHECK(parse(five).model.n_experts == 6);
  five.erase("num_experts");
  CHECK(parse(five).model.n_experts == 6);
  check_refused(ErrorCode::kUnsupported, {"num_experts 6", "num_local_experts 5", "contradict"},
                with(moe, "num_local_experts", 5));
  for (const char* const field : {"num_experts", "num_experts_per_tok", "moe_intermediate_size"}) {
    json config = moe;
    config.erase(field);
    check_refused(ErrorCode::kBadFile, {std::string(field) + " is missing"}, config);
  }
  for (const char* const field : {"num_local_experts", "num_experts_per_tok"}) {
    json config = family("mixtral");
    config.erase(field);
    check_refused(ErrorCode::kBadFile, {std::string(field) + " is missing"}, config);
  }
  check_refused(ErrorCode::kBadFile, {"n_experts_used must be in [1, n_experts 6], got 7"},
                with(moe, "num_experts_per_tok", 7));
}

TEST_CASE("architectures: what would have to be ignored and changes the result is refused by name") {
  struct Refusal {
    const char* model_type;
    const char* field;
    json value;
  };
  const Refusal refusals[] = {{"gpt2", "scale_attn_by_inverse_layer_idx", true},
                              {"gpt2", "add_cross_attention", true},
                              {"gpt2", "rope_theta", 1e4},
                              {"gpt2", "activation_function", "quick_gelu"},
                              {"mistral", "attention_bias", true},
                              {"mistral", "layer_types", {"full_attention"}},
                              {"mistral", "qk_norm", true},
                              {"mixtral", "shared_expert_intermediate_size", 8},
                              {"mixtral", "norm_topk_prob", false},
                              {"qwen2", "attention_bias", false},
                              {"qwen2", "use_mrope", true},
                              {"qwen3", "num_experts", 4},
                              {"qwen3_moe", "layer_types", {"full_attention"}},
                              {"qwen3_moe", "shared_expert_intermediate_size", 8},
                              {"gemma", "attn_logit_softcapping", 50.0},
                              {"gemma", "use_bidirectional_attention", true},
                              {"gemma2", "rope_local_base_freq", 1e4},
                              {"gemma2", "use_bidirectional_attention", true},
                              {"gemma3_text", "attn_logit_softcapping", 50.0},
                              {"gemma3_text", "use_bidirectional_attention", true},
                              {"gemma4_text", "attention_k_eq_v", true},
                              {"gemma4_text", "attn_logit_softcapping", 50.0},
                              {"gemma4_text", "enable_moe_block", true},
                              {"gemma4_text", "laurel_rank", 64},
                              {"gemma4_text", "query_pre_attn_scalar", 256},
                              {"gemma4_text", "rope_theta", 1e6},
                              {"gemma4_text", "use_bidirectional_attention", "vision"},
                              {"gemma4_text", "use_double_wide_mlp", true},
                              {"gemma4_text", "vocab_size_per_layer_input", 79},
                              {"phi3", "lm_head_bias", true},
                              {"phi3", "attention_bias", true},
                              {"phi3", "mlp_bias", true},
                              {"phi3", "num_experts", 4},
                              {"stablelm", "qk_layernorm", true},
                              {"stablelm", "rms_norm_eps", 1e-5},
                              {"olmo2", "clip_qkv", 8.0},
                              {"olmo2", "sliding_window", 8},
                              {"olmo2", "logit_scale", 0.5},
                              {"deepseek_v2", "norm_topk_prob", true},
                              {"deepseek_v2", "scoring_func", "sigmoid"},
                              {"deepseek_v2", "rope_interleave", false},
                              {"deepseek_v2", "sliding_window", 8},
                              {"deepseek_v3", "topk_method", "greedy"},
                              {"deepseek_v3", "scoring_func", "softmax"},
                              {"deepseek_v3", "mlp_bias", true},
                              {"deepseek_v3", "index_topk", 2048}};
  for (const Refusal& r : refusals) {
    CAPTURE(r.model_type);
    CAPTURE(r.field);
    check_refused(ErrorCode::kUnsupported, {"config.json: ", r.field},
                  with(family(r.model_type), r.field, r.value));
  }
  const std::map<std::string, json> all = families();
  for (const auto& each : all) {
    const json& config = each.second;
    CAPTURE(each.first);
    check_refused(ErrorCode::kUnsupported, {"the field \"not_a_field\" is not known for"},
                  with(config, "not_a_field", 1));
    check_refused(ErrorCode::kUnsupported, {"quantization_config"},
                  with(config, "quantization_config", {{"quant_method", "awq"}}));
    check_refused(ErrorCode::kUnsupported, {"model_type \"t5\""}, with(config, "model_type", "t5"));
    check_refused(ErrorCode::kUnsupported, {"is_encoder_decoder"}, with(config, "is_encoder_decoder", true));
    CHECK_NOTHROW(parse(with(config, "use_cache", true)));
  }
  check_refused(ErrorCode::kUnsupported, {"hidden_act \"gelu\"", "hidden_activation \"gelu_pytorch_tanh\""},
                with(family("gemma"), {{"hidden_act", "gelu"}, {"hidden_activation", "gelu_pytorch_tanh"}}));
  check_refused(ErrorCode::kUnsupported, {"hidden_activation \"gelu_pytorch_tanh\"", "hidden_act \"gelu\""},
                with(family("gemma2"), "hidden_act", "gelu"));
  CHECK_NOTHROW(parse(with(family("gemma2"), "hidden_act", "gelu_pytorch_tanh")));
  check_refused(ErrorCode::kUnsupported, {"the field \"rope_parameters.rope_theta\" is not known"},
                with(family("gemma3_text"), "rope_parameters", {{"rope_theta", 1e6}}));
  check_refused(ErrorCode::kUnsupported,
                {"the field \"rope_parameters.sliding_attention.factor\" is not known to rotary scaling"},
                with(family("gemma3_text"), "rope_parameters",
                     {{"sliding_attention", {{"rope_type", "default"}, {"factor", 8.0}}}}));
  check_refused(ErrorCode::kUnsupported, {"longrope"},
                with(family("gemma3_text"), "rope_scaling",
                     {{"rope_type", "longrope"}, {"short_factor", {1, 2}}, {"long_factor", {1, 2}}}));
  check_refused(ErrorCode::kBadFile, {"n_embd 48 is not a multiple of n_head 5"},
                with(family("gpt2"), "n_head", 5));
}

namespace {

bool same_bytes(const MatrixView& view, const SafetensorsTensor& tensor, Index first_row = 0) {
  const Index cols = tensor.shape.back();
  const Index row_bytes = cols * static_cast<Index>(tensor.bytes.size()) /
                          static_cast<Index>(*kvdecode::n_elements(tensor.shape));
  return !view.empty() && !view.transposed && view.cols == cols && view.stride == row_bytes &&
         view.format == format_of(tensor.dtype) &&
         first_row * row_bytes + view.rows * row_bytes <= static_cast<Index>(tensor.bytes.size()) &&
         std::memcmp(view.data, tensor.bytes.data() + first_row * row_bytes,
                     static_cast<std::size_t>(view.rows * row_bytes)) == 0;
}
bool same_bytes(const VectorView& view, const SafetensorsTensor& tensor) {
  return !view.empty() && tensor.shape == std::vector<Index>{view.size} &&
         view.format == format_of(tensor.dtype) &&
         std::equal(tensor.bytes.begin(), tensor.bytes.end(), view.data);
}

struct Loaded {
  explicit Loaded(const char* name)
      : file(kGolden / name / "model.safetensors"), model(kvdecode::load_huggingface_model(kGolden / name)) {}
  const LayerWeights& layer(std::size_t i) const { return model.weights.layers.at(i); }
  SafetensorsFile file;
  LoadedModel model;
};

}  // namespace

TEST_CASE("weights: GPT-2's matrices lie transposed, its queries, keys and values side by side") {
  const Loaded gpt2("gpt2");
  const auto is_columns = [&](const MatrixView& view, const std::string& name, Index begin) {
    const SafetensorsTensor& tensor = gpt2.file.tensor("transformer.h.1." + name + ".weight");
    CAPTURE(name);
    REQUIRE(view.format == FormatId::kBF16);
    CHECK(view.transposed);
    CHECK(view.cols == tensor.shape[0]);
    CHECK(view.stride == 2 * tensor.shape[1]);
    CHECK(begin + view.rows <= tensor.shape[1]);
    CHECK(view.data ==
          gpt2.model.weights.layers[1].w_q.matrix.data +
              (tensor.bytes.data() - gpt2.file.tensor("transformer.h.1.attn.c_attn.weight").bytes.data()) +
              2 * begin);
  };
  const LayerWeights& w = gpt2.layer(1);
  is_columns(w.w_q.matrix, "attn.c_attn", 0);
  is_columns(w.w_k.matrix, "attn.c_attn", 48);
  is_columns(w.w_v.matrix, "attn.c_attn", 96);
  is_columns(w.w_o.matrix, "attn.c_proj", 0);
  is_columns(w.w_up.matrix, "mlp.c_fc", 0);
  is_columns(w.w_down.matrix, "mlp.c_proj", 0);
  CHECK(w.w_up.matrix.rows == 192);
  CHECK(w.w_down.matrix.rows == 48);
  const SafetensorsTensor& bias = gpt2.file.tensor("transformer.h.1.attn.c_attn.bias");
  CHECK(std::memcmp(w.w_q.bias.data, bias.bytes.data(), 96) == 0);
  CHECK(std::memcmp(w.w_k.bias.data, bias.bytes.data() + 96, 96) == 0);
  CHECK(std::memcmp(w.w_v.bias.data, bias.bytes.data() + 192, 96) == 0);
  CHECK(w.w_v.bias.size == 48);
  CHECK(same_bytes(w.w_up.bias, gpt2.file.tensor("transformer.h.1.mlp.c_fc.bias")));
  CHECK(same_bytes(w.attention_norm.bias, gpt2.file.tensor("transformer.h.1.ln_1.bias")));
  CHECK(same_bytes(w.feed_forward_norm.weight, gpt2.file.tensor("transformer.h.1.ln_2.weight")));
  CHECK(same_bytes(gpt2.model.weights.position_embedding, gpt2.file.tensor("transformer.wpe.weight")));
  CHECK(same_bytes(gpt2.model.weights.final_norm.bias, gpt2.file.tensor("transformer.ln_f.bias")));
  CHECK(gpt2.model.report.n_tensors == static_cast<Index>(gpt2.file.tensors().size()));
}

TEST_CASE("weights: GPT-2 as it was first published, without prefix and with its masks") {
  Variant variant("gpt2");
  for (SafetensorsTensor& tensor : variant.tensors) tensor.name.erase(0, std::string("transformer.").size());
  const std::vector<float> mask(64, 1.0f);
  for (const char* const name : {"h.0.attn.bias", "h.2.attn.masked_bias"})
    variant.tensors.push_back(kvdecode::as_tensor<float>(name, {1, 1, 8, 8}, mask));
  const LoadedModel model = variant.load();
  CHECK(model.report.ignored_tensors.size() == 2);
  CHECK(model.report.n_tensors == static_cast<Index>(variant.tensors.size()) - 2);
  // A head that equals the embedding may be there, and has to be if it is not tied.
  SafetensorsTensor head = variant.tensor("wte.weight");
  head.name = "lm_head.weight";
  variant.tensors.push_back(head);
  CHECK(variant.load().weights.head.matrix.empty());
  variant.config["tie_word_embeddings"] = false;
  CHECK(same_bytes(variant.load().weights.head.matrix, head));
}

TEST_CASE("weights: Phi-3's queries, keys and values are rows of one matrix, its gate and up of another") {
  const Loaded phi3("phi3");
  const LayerWeights& w = phi3.layer(1);
  const SafetensorsTensor& qkv = phi3.file.tensor("model.layers.1.self_attn.qkv_proj.weight");
  CHECK(w.w_q.matrix.rows == 48);
  CHECK(w.w_k.matrix.rows == 16);
  CHECK(w.w_v.matrix.rows == 16);
  CHECK(same_bytes(w.w_q.matrix, qkv, 0));
  CHECK(same_bytes(w.w_k.matrix, qkv, 48));
  CHECK(same_bytes(w.w_v.matrix, qkv, 64));
  const SafetensorsTensor& gate_up = phi3.file.tensor("model.layers.1.mlp.gate_up_proj.weight");
  CHECK(w.w_gate.matrix.rows == 64);
  CHECK(same_bytes(w.w_gate.matrix, gate_up, 0));
  CHECK(same_bytes(w.w_up.matrix, gate_up, 64));
  CHECK(same_bytes(w.w_down.matrix, phi3.file.tensor("model.layers.1.mlp.down_proj.weight")));
}

TEST_CASE("weights: norms are where the family has them") {
  const Loaded olmo2("olmo2");
  CHECK(olmo2.layer(1).attention_norm.weight.empty());
  CHECK(olmo2.layer(1).feed_forward_norm.weight.empty());
  CHECK(same_bytes(olmo2.layer(1).attention_post_norm.weight,
                   olmo2.file.tensor("model.layers.1.post_attention_layernorm.weight")));
  CHECK(same_bytes(olmo2.layer(1).feed_forward_post_norm.weight,
                   olmo2.file.tensor("model.layers.1.post_feedforward_layernorm.weight")));
  CHECK(
      same_bytes(olmo2.layer(1).q_norm.weight, olmo2.file.tensor("model.layers.1.self_attn.q_norm.weight")));
  CHECK(
      same_bytes(olmo2.layer(1).k_norm.weight, olmo2.file.tensor("model.layers.1.self_attn.k_norm.weight")));
  const Loaded stablelm("stablelm");
  CHECK(same_bytes(stablelm.layer(0).attention_norm.bias,
                   stablelm.file.tensor("model.layers.0.input_layernorm.bias")));
  CHECK(same_bytes(stablelm.layer(0).feed_forward_norm.weight,
                   stablelm.file.tensor("model.layers.0.post_attention_layernorm.weight")));
  CHECK(same_bytes(stablelm.layer(0).w_v.bias, stablelm.file.tensor("model.layers.0.self_attn.v_proj.bias")));
  CHECK(stablelm.layer(0).w_o.bias.empty());
  const Loaded qwen2("qwen2");
  CHECK(same_bytes(qwen2.layer(1).w_k.bias, qwen2.file.tensor("model.layers.1.self_attn.k_proj.bias")));
  CHECK(qwen2.layer(1).w_o.bias.empty());
  // Gemma 2: Llama's tensors, with four norms by these names.
  Variant variant("gemma");
  variant.config["architectures"] = {"Gemma2ForCausalLM"};
  variant.config["model_type"] = "gemma2";
  for (const char* const part : {"pre", "post"})
    for (const char* const layer : {"0", "1"}) {
      SafetensorsTensor norm = variant.tensor("model.norm.weight");
      norm.name = std::string("model.layers.") + layer + "." + part + "_feedforward_layernorm.weight";
      variant.tensors.push_back(norm);
    }
  const LoadedModel gemma2 = variant.load();
  const LayerWeights& w = gemma2.weights.layers[1];
  CHECK(same_bytes(w.attention_norm.weight, variant.tensor("model.layers.1.input_layernorm.weight")));
  CHECK(same_bytes(w.attention_post_norm.weight,
                   variant.tensor("model.layers.1.post_attention_layernorm.weight")));
  CHECK(same_bytes(w.feed_forward_norm.weight, variant.tensor("model.norm.weight")));
  CHECK(same_bytes(w.feed_forward_post_norm.weight, variant.tensor("model.norm.weight")));
  // Side by side behind one norm, StableLM has no other.
  Variant parallel("stablelm");
  parallel.config["use_parallel_residual"] = true;
  check_error(ErrorCode::kMismatch, {"post_attention_layernorm", "has no place"}, [&] { parallel.load(); });
  for (const char* const layer : {"0", "1"})
    for (const char* const part : {"weight", "bias"})
      parallel.remove(std::string("model.layers.") + layer + ".post_attention_layernorm." + part);
  CHECK(parallel.load().weights.layers[0].feed_forward_norm.weight.empty());
}

TEST_CASE("weights: experts by their families' names") {
  const Loaded mixtral("mixtral");
  REQUIRE(mixtral.layer(1).experts.size() == 4);
  const std::string block = "model.layers.1.block_sparse_moe.";
  CHECK(same_bytes(mixtral.layer(1).router.matrix, mixtral.file.tensor(block + "gate.weight")));
  CHECK(same_bytes(mixtral.layer(1).experts[3].w_gate.matrix,
                   mixtral.file.tensor(block + "experts.3.w1.weight")));
  CHECK(same_bytes(mixtral.layer(1).experts[3].w_down.matrix,
                   mixtral.file.tensor(block + "experts.3.w2.weight")));
  CHECK(same_bytes(mixtral.layer(1).experts[3].w_up.matrix,
                   mixtral.file.tensor(block + "experts.3.w3.weight")));
  CHECK(mixtral.layer(1).w_gate.matrix.empty());
  const Loaded moe("qwen3_moe");
  CHECK(moe.layer(0).experts.empty());
  CHECK(same_bytes(moe.layer(0).w_gate.matrix, moe.file.tensor("model.layers.0.mlp.gate_proj.weight")));
  REQUIRE(moe.layer(1).experts.size() == 6);
  const std::string mlp = "model.layers.1.mlp.";
  CHECK(same_bytes(moe.layer(1).router.matrix, moe.file.tensor(mlp + "gate.weight")));
  CHECK(
      same_bytes(moe.layer(1).experts[5].w_gate.matrix, moe.file.tensor(mlp + "experts.5.gate_proj.weight")));
  CHECK(same_bytes(moe.layer(1).experts[5].w_up.matrix, moe.file.tensor(mlp + "experts.5.up_proj.weight")));
  CHECK(
      same_bytes(moe.layer(1).experts[5].w_down.matrix, moe.file.tensor(mlp + "experts.5.down_proj.weight")));
}

TEST_CASE("weights: latent attention and its experts by DeepSeek's names") {
  const Loaded v3("deepseek_v3");
  const LayerWeights& w = v3.layer(1);
  const std::string attention = "model.layers.1.self_attn.", mlp = "model.layers.1.mlp.";
  CHECK(same_bytes(w.w_q_a.matrix, v3.file.tensor(attention + "q_a_proj.weight")));
  CHECK(same_bytes(w.q_a_norm.weight, v3.file.tensor(attention + "q_a_layernorm.weight")));
  CHECK(same_bytes(w.w_q.matrix, v3.file.tensor(attention + "q_b_proj.weight")));
  CHECK(same_bytes(w.w_kv_a.matrix, v3.file.tensor(attention + "kv_a_proj_with_mqa.weight")));
  CHECK(same_bytes(w.kv_a_norm.weight, v3.file.tensor(attention + "kv_a_layernorm.weight")));
  CHECK(same_bytes(w.w_o.matrix, v3.file.tensor(attention + "o_proj.weight")));
  // Rows of 16 floats: 12 of keys, then 10 of values, of each head in turn; in place.
  const SafetensorsTensor& kv_b = v3.file.tensor(attention + "kv_b_proj.weight");
  REQUIRE(w.w_k_b.size() == 6);
  REQUIRE(w.w_v_b.size() == 6);
  CHECK(std::memcmp(w.w_k_b[0].data, kv_b.bytes.data(), kv_b.bytes.size()) == 0);
  for (std::size_t h = 0; h < 6; ++h) {
    CHECK(w.w_k_b[h].data == w.w_k_b[0].data + 22 * 64 * h);
    CHECK(w.w_k_b[h].rows == 16);
    CHECK(w.w_k_b[h].cols == 12);
    CHECK(w.w_k_b[h].transposed);
    CHECK(w.w_v_b[h].data == w.w_k_b[h].data + 12 * 64);
    CHECK(w.w_v_b[h].rows == 10);
    CHECK(w.w_v_b[h].cols == 16);
    CHECK(!w.w_v_b[h].transposed);
  }
  CHECK(same_bytes(w.router.matrix, v3.file.tensor(mlp + "gate.weight")));
  CHECK(same_bytes(w.choice_bias, v3.file.tensor(mlp + "gate.e_score_correction_bias")));
  REQUIRE(w.experts.size() == 8);
  CHECK(same_bytes(w.experts[7].w_down.matrix, v3.file.tensor(mlp + "experts.7.down_proj.weight")));
  CHECK(same_bytes(w.shared_expert.w_gate.matrix, v3.file.tensor(mlp + "shared_experts.gate_proj.weight")));
  CHECK(same_bytes(w.shared_expert.w_up.matrix, v3.file.tensor(mlp + "shared_experts.up_proj.weight")));
  CHECK(same_bytes(w.shared_expert.w_down.matrix, v3.file.tensor(mlp + "shared_experts.down_proj.weight")));
  CHECK(same_bytes(v3.layer(0).w_up.matrix, v3.file.tensor("model.layers.0.mlp.up_proj.weight")));
  CHECK(Loaded("deepseek_v2").layer(1).choice_bias.empty());

  // Queries without a rank of their own.
  Variant direct("deepseek_v2");
  direct.config["q_lora_rank"] = nullptr;
  for (const char* const layer : {"0", "1"}) {
    const std::string name = std::string("model.layers.") + layer + ".self_attn.";
    direct.remove(name + "q_a_proj.weight");
    direct.remove(name + "q_a_layernorm.weight");
    SafetensorsTensor& q = direct.tensor(name + "q_b_proj.weight");
    q.name = name + "q_proj.weight";
    q.shape = {60, 48};  // half the heads
  }
  check_error(ErrorCode::kMismatch, {"self_attn.q_proj.weight\" has shape [60, 48], expected [120, 48]"},
              [&] { direct.load(); });

  // Layers behind the last one are left aside, as many as the config speaks of.
  Variant further("deepseek_v3");
  SafetensorsTensor extra = further.tensor("model.norm.weight");
  extra.name = "model.layers.2.enorm.weight";
  further.tensors.push_back(extra);
  const LoadedModel model = further.load();
  REQUIRE(model.report.ignored_tensors.size() == 1);
  CHECK(model.report.ignored_tensors[0].name == "model.layers.2.enorm.weight");
  further.config["num_nextn_predict_layers"] = 0;
  check_error(ErrorCode::kMismatch, {"model.layers.2.enorm.weight", "has no place"}, [&] { further.load(); });
}

TEST_CASE("weights: Gemma 4's layers have inputs, a scale, and their own keys and values or none") {
  const Loaded gemma("gemma4");
  const kvdecode::Weights& weights = gemma.model.weights;
  CHECK(same_bytes(weights.layer_embedding, gemma.file.tensor("model.embed_tokens_per_layer.weight")));
  CHECK(same_bytes(weights.w_layer_inputs.matrix,
                   gemma.file.tensor("model.per_layer_model_projection.weight")));
  CHECK(weights.w_layer_inputs.scale == doctest::Approx(1.0 / std::sqrt(48.0)).epsilon(1e-15));
  CHECK(same_bytes(weights.layer_input_norm.weight,
                   gemma.file.tensor("model.per_layer_projection_norm.weight")));
  const std::string layer = "model.layers.4.";
  const LayerWeights& w = gemma.layer(4);
  CHECK(same_bytes(w.w_input_gate.matrix, gemma.file.tensor(layer + "per_layer_input_gate.weight")));
  CHECK(same_bytes(w.w_input_out.matrix, gemma.file.tensor(layer + "per_layer_projection.weight")));
  CHECK(same_bytes(w.input_post_norm.weight, gemma.file.tensor(layer + "post_per_layer_input_norm.weight")));
  CHECK(same_bytes(w.q_norm.weight, gemma.file.tensor(layer + "self_attn.q_norm.weight")));
  CHECK(w.w_k.matrix.empty());
  CHECK(w.w_v.matrix.empty());
  CHECK(w.k_norm.weight.empty());
  CHECK(gemma.layer(2).w_k.matrix.rows == 32);
  CHECK(gemma.layer(3).w_k.matrix.rows == 16);
  CHECK(w.scale == 1.0);

  Variant variant("gemma4");
  const std::vector<float> half{0.5f};
  variant.tensor(layer + "layer_scalar") = kvdecode::as_tensor<float>(layer + "layer_scalar", {1}, half);
  CHECK(variant.load().weights.layers[4].scale == 0.5);
  // Files may have keys and values that nobody reads.
  for (const char* const name : {"k_proj", "v_proj", "k_norm"}) {
    SafetensorsTensor extra = variant.tensor("model.layers.3.self_attn." + std::string(name) + ".weight");
    extra.name = layer + "self_attn." + name + ".weight";
    variant.tensors.push_back(extra);
  }
  const LoadedModel model = variant.load();
  REQUIRE(model.report.ignored_tensors.size() == 3);
  for (const kvdecode::IgnoredTensor& tensor : model.report.ignored_tensors)
    CHECK(tensor.reason == "the layer reads the keys and values of layer 3");
  CHECK(model.weights.layers[4].w_k.matrix.empty());
  // Without inputs their tensors have no place.
  variant.config["hidden_size_per_layer_input"] = 0;
  check_error(ErrorCode::kMismatch, {"has no place in this model"}, [&] { variant.load(); });
  for (const char* const part :
       {"per_layer_input", "per_layer_projection", "per_layer_model", "embed_tokens_per"})
    std::erase_if(variant.tensors,
                  [&](const SafetensorsTensor& t) { return t.name.find(part) != t.name.npos; });
  CHECK(variant.load().weights.layer_embedding.empty());
}

TEST_CASE("weights: experts may lie in two tensors a layer, as transformers 5 holds them") {
  struct Names {
    const char *folder, *block, *gate, *up, *down;
  };
  for (const Names& names : {Names{"mixtral", "block_sparse_moe.", "w1", "w3", "w2"},
                             Names{"qwen3_moe", "mlp.", "gate_proj", "up_proj", "down_proj"}}) {
    CAPTURE(names.folder);
    const Loaded original(names.folder);
    Variant variant(names.folder);
    std::vector<std::vector<std::byte>> owned;
    for (std::size_t i = 0; i < original.model.weights.layers.size(); ++i) {
      const LayerWeights& w = original.layer(i);
      if (w.experts.empty()) continue;
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      std::vector<std::byte> gate_up, down;
      const auto append = [](std::vector<std::byte>& to, const MatrixView& view) {
        to.insert(to.end(), view.data, view.data + view.rows * view.stride);
      };
      for (std::size_t e = 0; e < w.experts.size(); ++e) {
        append(gate_up, w.experts[e].w_gate.matrix);
        append(gate_up, w.experts[e].w_up.matrix);
        append(down, w.experts[e].w_down.matrix);
        for (const char* const name : {names.gate, names.up, names.down})
          variant.remove(layer + names.block + "experts." + std::to_string(e) + "." + name + ".weight");
      }
      const auto n = static_cast<Index>(w.experts.size());
      const Index d = original.model.config.d_model, d_expert = original.model.config.d_expert;
      SafetensorsTensor& router = variant.tensor(layer + names.block + "gate.weight");
      router.name = layer + "mlp.gate.weight";
      const auto dtype = router.dtype;
      owned.push_back(std::move(gate_up));
      variant.tensors.push_back(
          {layer + "mlp.experts.gate_up_proj", dtype, {n, 2 * d_expert, d}, owned.back()});
      owned.push_back(std::move(down));
      variant.tensors.push_back({layer + "mlp.experts.down_proj", dtype, {n, d, d_expert}, owned.back()});
    }
    const LoadedModel fused = variant.load();
    CHECK(fused.report.n_parameters == original.model.report.n_parameters);
    for (std::size_t i = 0; i < fused.weights.layers.size(); ++i) {
      REQUIRE(fused.weights.layers[i].experts.size() == original.layer(i).experts.size());
      for (std::size_t e = 0; e < original.layer(i).experts.size(); ++e) {
        const auto same = [](const MatrixView& a, const MatrixView& b) {
          return a.rows == b.rows && a.cols == b.cols && a.stride == b.stride && a.format == b.format &&
                 std::memcmp(a.data, b.data, static_cast<std::size_t>(a.rows * a.stride)) == 0;
        };
        const kvdecode::ExpertWeights& actual = fused.weights.layers[i].experts[e];
        const kvdecode::ExpertWeights& expected = original.layer(i).experts[e];
        CHECK(same(actual.w_gate.matrix, expected.w_gate.matrix));
        CHECK(same(actual.w_up.matrix, expected.w_up.matrix));
        CHECK(same(actual.w_down.matrix, expected.w_down.matrix));
      }
    }
    // One expert less than the config says.
    for (SafetensorsTensor& tensor : variant.tensors)
      if (tensor.name.ends_with("experts.down_proj")) {
        tensor.bytes = tensor.bytes.first(tensor.bytes.size() / static_cast<std::size_t>(tensor.shape[0]) *
                                          static_cast<std::size_t>(tensor.shape[0] - 1));
        --tensor.shape[0];
      }
    check_error(ErrorCode::kMismatch, {"experts.down_proj\" has shape", "expected"}, [&] { variant.load(); });
  }
}

TEST_CASE("weights: every tensor of every family is used, and missed by name") {
  for (const char* const name : {"gpt2", "mistral-sliding", "qwen2", "qwen3", "gemma", "gemma4", "phi3",
                                 "olmo2", "stablelm", "mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3"}) {
    CAPTURE(name);
    const Loaded loaded(name);
    CHECK(loaded.model.report.n_tensors == static_cast<Index>(loaded.file.tensors().size()));
    CHECK(loaded.model.report.ignored_tensors.empty());
    for (const SafetensorsTensor& tensor : loaded.file.tensors()) {
      CAPTURE(tensor.name);
      Variant variant(name);
      variant.remove(tensor.name);
      check_error(ErrorCode::kMismatch, {"tensor \"" + tensor.name + "\" is missing"},
                  [&] { variant.load(); });
    }
    Variant variant(name);
    variant.tensors.push_back({"model.layers.0.extra.weight", kvdecode::SafetensorsDtype::kBF16, {0}, {}});
    check_error(ErrorCode::kMismatch, {"\"model.layers.0.extra.weight\"", "has no place"},
                [&] { variant.load(); });
  }
}

TEST_CASE("architectures, hostile: every field of every family with a value of every type") {
  const json values[] = {nullptr,
                         true,
                         false,
                         0,
                         1,
                         -1,
                         2,
                         7,
                         4096,
                         1e-300,
                         1e300,
                         0.5,
                         std::uint64_t{1} << 31,
                         std::uint64_t{1} << 62,
                         ~std::uint64_t{0},
                         "",
                         "silu",
                         "full_attention",
                         json::array(),
                         json::object(),
                         {1, 2},
                         {"full_attention", "sliding_attention"},
                         {{"rope_type", "yarn"}, {"factor", 1e300}},
                         {{"rope_type", "longrope"}, {"short_factor", {1}}, {"long_factor", {1}}},
                         {{"rope_type", "dynamic"}, {"factor", 1e-300}}};
  const auto check_one = [](const json& changed) {
    CAPTURE(changed.dump());
    const auto error = io_test::error_of([&] { parse(changed).model.validate(); });
    if (error) CHECK((error->code() == ErrorCode::kBadFile || error->code() == ErrorCode::kUnsupported));
  };
  std::vector<json> configs{with(gemma2_config(), "layer_types", nullptr), gemma3_config()};
  for (const char* const name : kFolders) configs.push_back(config_in(name));
  for (const json& config : configs) {
    for (const auto& [name, unused] : config.items())
      for (const json& value : values) check_one(with(config, name, value));
    for (const char* const outer : {"rope_scaling", "rope_parameters", "per_layer_config"}) {
      if (!config.contains(outer) || !config[outer].is_object()) continue;
      for (const auto& [name, unused] : config[outer].items())
        for (const json& value : values) check_one(with(config, outer, with(config[outer], name, value)));
    }
    // Two fields at once, among those that multiply.
    std::mt19937 random(3);
    std::vector<std::string> names;
    for (const auto& [name, unused] : config.items()) names.push_back(name);
    for (int round = 0; round < 300; ++round) {
      json changed = config;
      for (int change = 0; change < 2; ++change)
        changed[names[random() % names.size()]] = values[random() % std::size(values)];
      check_one(changed);
    }
  }
}

// SPDX-License-Identifier: MIT
// Each family of GGUF models: what its keys say, what is refused in them, and where its tensors go.
#include <kvdecode/io/gguf_architectures.hpp>
#include <kvdecode/io/gguf_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf_support.hpp"
#include "support.hpp"

using io_test::check_error;
using io_test::GgufWriter;
using io_test::TemporaryFolder;
using kvdecode::Activation;
using kvdecode::AttentionSpan;
using kvdecode::ErrorCode;
using kvdecode::ExpertWeights;
using kvdecode::FormatId;
using kvdecode::Index;
using kvdecode::LayerWeights;
using kvdecode::load_gguf_model;
using kvdecode::LoadedModel;
using kvdecode::MatrixView;
using kvdecode::ModelConfig;
using kvdecode::NormKind;
using kvdecode::NormPlacement;
using kvdecode::NormWeights;
using kvdecode::PositionKind;
using kvdecode::QkNormKind;
using kvdecode::ResidualKind;
using kvdecode::RotaryConfig;
using kvdecode::RotaryPairs;
using kvdecode::RotaryScalingKind;
using kvdecode::VectorView;

namespace {

using Shape = std::vector<Index>;
using Tensors = std::map<std::string, Shape>;

// d_model 8, two heads of 16 and one of keys and values, d_ff 12, three experts of 6, 8 tokens, 32 positions.
const Tensors kPreNorms{{"attn_norm.weight", {8}}, {"ffn_norm.weight", {8}}};
const Tensors kPreNormBiases{{"attn_norm.bias", {8}}, {"ffn_norm.bias", {8}}};
const Tensors kPostNorms{{"post_attention_norm.weight", {8}}, {"post_ffw_norm.weight", {8}}};
const Tensors kHeadNorms{{"attn_q_norm.weight", {16}}, {"attn_k_norm.weight", {16}}};
const Tensors kWholeNorms{{"attn_q_norm.weight", {32}}, {"attn_k_norm.weight", {16}}};
const Tensors kAttention{{"attn_q.weight", {32, 8}},
                         {"attn_k.weight", {16, 8}},
                         {"attn_v.weight", {16, 8}},
                         {"attn_output.weight", {8, 32}}};
const Tensors kQkvBiases{{"attn_q.bias", {32}}, {"attn_k.bias", {16}}, {"attn_v.bias", {16}}};
const Tensors kFusedAttention{{"attn_qkv.weight", {64, 8}}, {"attn_output.weight", {8, 32}}};
const Tensors kFeedForward{
    {"ffn_gate.weight", {12, 8}}, {"ffn_up.weight", {12, 8}}, {"ffn_down.weight", {8, 12}}};
const Tensors kExperts{{"ffn_gate_inp.weight", {3, 8}},
                       {"ffn_gate_exps.weight", {3, 6, 8}},
                       {"ffn_up_exps.weight", {3, 6, 8}},
                       {"ffn_down_exps.weight", {3, 8, 6}}};
const Tensors kLayerScale{{"layer_output_scale.weight", {1}}};
const Tensors kPhi3FeedForward{{"ffn_up.weight", {24, 8}}, {"ffn_down.weight", {8, 12}}};
const Tensors kGpt2Biases{
    {"attn_qkv.bias", {64}}, {"attn_output.bias", {8}}, {"ffn_up.bias", {12}}, {"ffn_down.bias", {8}}};
const Tensors kPlainFeedForward{{"ffn_up.weight", {12, 8}}, {"ffn_down.weight", {8, 12}}};

Tensors all_of(std::initializer_list<Tensors> parts) {
  Tensors all;
  for (const Tensors& part : parts) all.insert(part.begin(), part.end());
  return all;
}

/// The tensors of a layer, by architecture.
const std::map<std::string, Tensors, std::less<>> kLayers{
    {"llama", all_of({kPreNorms, kAttention, kFeedForward})},
    {"qwen2", all_of({kPreNorms, kAttention, kQkvBiases, kFeedForward})},
    {"qwen3", all_of({kPreNorms, kAttention, kHeadNorms, kFeedForward})},
    {"qwen3moe", all_of({kPreNorms, kAttention, kHeadNorms, kExperts})},
    {"gemma", all_of({kPreNorms, kAttention, kFeedForward})},
    {"gemma2", all_of({kPreNorms, kPostNorms, kAttention, kFeedForward})},
    {"gemma3", all_of({kPreNorms, kPostNorms, kAttention, kHeadNorms, kFeedForward})},
    {"gemma4", all_of({kPreNorms, kPostNorms, kAttention, kHeadNorms, kFeedForward, kLayerScale})},
    {"phi3", all_of({kPreNorms, kFusedAttention, kPhi3FeedForward})},
    {"stablelm", all_of({kPreNorms, kPreNormBiases, kAttention, kFeedForward})},
    {"olmo2", all_of({kPostNorms, kAttention, kWholeNorms, kFeedForward})},
    {"gpt2", all_of({kPreNorms, kPreNormBiases, kFusedAttention, kPlainFeedForward, kGpt2Biases})},
};

bool has_layer_norm(std::string_view name) { return name == "gpt2" || name == "stablelm"; }

/// Keys under an architecture's name, but for those that are left out.
struct DecoderKeys {
  GgufWriter& writer;
  std::string name;
  const std::set<std::string, std::less<>>& absent;

  template <class T>
  void operator()(const std::string& key, const T& x) const {
    if (absent.find(key) == absent.end()) writer.value(name + "." + key, x);
  }
  /// Those that all have.
  void write_sizes(std::uint32_t n_layers) const {
    (*this)("block_count", n_layers);
    (*this)("context_length", std::uint32_t{32});
    (*this)("embedding_length", std::uint32_t{8});
    (*this)("vocab_size", std::uint32_t{8});
    (*this)("feed_forward_length", std::uint32_t{12});
    (*this)("attention.head_count", std::uint32_t{2});
    (*this)("attention.head_count_kv", std::uint32_t{1});
    (*this)("attention.key_length", std::uint32_t{16});
  }
};

/// A model of an architecture with all that it needs and no more, but for what a test changes. Its numbers are all
/// different: tensor after tensor, by name, counts on.
struct TinyModel {
  std::string name;                                            // of the architecture
  std::set<std::string, std::less<>> absent{};                 // keys and tensors that are left out
  std::function<void(GgufWriter&)> more = [](GgufWriter&) {};  // and what is added
  std::uint32_t n_layers = 2;
  std::uint32_t n_layers_written = n_layers;

  Tensors tensors() const {
    Tensors all{{"token_embd.weight", {8, 8}}, {"output.weight", {8, 8}}, {"output_norm.weight", {8}}};
    if (has_layer_norm(name)) all["output_norm.bias"] = {8};
    if (name == "gpt2") all["position_embd.weight"] = {32, 8};
    for (std::uint32_t i = 0; i < n_layers_written; ++i)
      for (const auto& [tensor, shape] : kLayers.find(name)->second)
        all["blk." + std::to_string(i) + "." + tensor] = shape;
    for (const std::string& each : absent) all.erase(each);
    return all;
  }
  std::string bytes() const {
    GgufWriter writer;
    writer.value("general.architecture", std::string_view(name));
    const DecoderKeys value{writer, name, absent};
    value.write_sizes(n_layers);
    value("attention.value_length", std::uint32_t{16});
    value(has_layer_norm(name) ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 0.25f);
    if (name == "qwen3moe") {
      value("expert_count", std::uint32_t{3});
      value("expert_used_count", std::uint32_t{2});
      value("expert_feed_forward_length", std::uint32_t{6});
    }
    float next = 1.0f;
    for (const auto& [tensor, shape] : tensors()) {
      std::size_t n = 1;
      for (const Index extent : shape) n *= static_cast<std::size_t>(extent);
      std::vector<float> numbers(n);
      for (float& number : numbers) number = next++;
      writer.tensor(tensor, shape, 0,
                    {reinterpret_cast<const char*>(numbers.data()), sizeof(float) * numbers.size()});
    }
    more(writer);
    return writer.bytes();
  }
  LoadedModel load() const {
    const TemporaryFolder folder;
    return load_gguf_model(folder.write("tiny.gguf", bytes()));
  }
  ModelConfig config() const { return load().config; }
};

void check_refused(const TinyModel& model, ErrorCode code, std::initializer_list<std::string_view> words) {
  CAPTURE(model.name);
  check_error(code, words, [&] { model.load(); });
}

/// A function that adds a value to a file.
template <class T>
std::function<void(GgufWriter&)> with(std::string key, T x) {
  return [key = std::move(key), x](GgufWriter& writer) { writer.value(key, x); };
}
std::function<void(GgufWriter&)> with_tensor(std::string name, Shape shape, std::vector<float> numbers) {
  return [=](GgufWriter& writer) {
    writer.tensor(name, shape, 0,
                  {reinterpret_cast<const char*>(numbers.data()), sizeof(float) * numbers.size()});
  };
}
std::function<void(GgufWriter&)> both(std::function<void(GgufWriter&)> a,
                                      std::function<void(GgufWriter&)> b) {
  return [=](GgufWriter& writer) {
    a(writer);
    b(writer);
  };
}

/// The first number of a tensor of the model.
float first_of(const TinyModel& model, std::string_view name) {
  float next = 1.0f;
  for (const auto& [tensor, shape] : model.tensors()) {
    if (tensor == name) return next;
    std::size_t n = 1;
    for (const Index extent : shape) n *= static_cast<std::size_t>(extent);
    next += static_cast<float>(n);
  }
  return 0.0f;
}
/// The view is of the shape and begins with that number.
bool is(const MatrixView& view, Index rows, Index cols, float first) {
  float number = 0.0f;
  if (view.data != nullptr) std::memcpy(&number, view.data, sizeof number);
  return view.rows == rows && view.cols == cols && view.stride == 4 * cols && !view.transposed &&
         view.format == FormatId::kF32 && number == first;
}
bool is(const VectorView& view, Index size, float first) {
  float number = 0.0f;
  if (view.data != nullptr) std::memcpy(&number, view.data, sizeof number);
  return view.size == size && view.format == FormatId::kF32 && number == first;
}

std::vector<Index> windows_of(const ModelConfig& model) {
  std::vector<Index> windows;
  for (const AttentionSpan& span : model.spans) windows.push_back(span.window);
  return windows;
}

}  // namespace

TEST_CASE("GGUF architectures: names are unique, and found") {
  std::set<std::string_view> names;
  for (const kvdecode::GgufArchitecture& each : kvdecode::kGgufArchitectures) {
    CHECK(kvdecode::find_gguf_architecture(each.name) == &each);
    CHECK(kLayers.find(each.name) != kLayers.end());
    names.insert(each.name);
  }
  CHECK(names.size() == std::size(kvdecode::kGgufArchitectures));
  CHECK(names.size() == kLayers.size());
  CHECK(kvdecode::find_gguf_architecture("bert") == nullptr);
}

TEST_CASE("GGUF architectures: what makes each family what it is") {
  for (const auto& entry : kLayers) {
    const std::string& name = entry.first;
    CAPTURE(name);
    const ModelConfig m = TinyModel{name}.config();
    CHECK(m.n_layers == 2);
    CHECK(m.d_model == 8);
    CHECK(m.d_ff == 12);
    CHECK(m.n_heads == 2);
    CHECK(m.n_kv_heads == 1);
    CHECK(m.head_dim == 16);
    CHECK(m.vocab_size == 8);
    CHECK(m.max_seq_len == 32);
    CHECK(m.norm_eps == 0.25);
    CHECK(!m.tied_head);
    CHECK(TinyModel{name, {"output.weight"}}.config().tied_head);

    const bool is_gemma = name.starts_with("gemma"), is_gpt2 = name == "gpt2";
    CHECK(m.norm == (has_layer_norm(name) ? NormKind::kLayer : NormKind::kRms));
    // Conversion has added what other files leave out.
    CHECK(m.norm_weight_offset == 0.0);
    const bool is_gemma4 = name == "gemma4";
    CHECK(m.norm_placement == (name == "olmo2"                                     ? NormPlacement::kPost
                               : name == "gemma2" || name == "gemma3" || is_gemma4 ? NormPlacement::kBoth
                                                                                   : NormPlacement::kPre));
    CHECK(m.qk_norm == (name == "olmo2" ? QkNormKind::kWhole
                        : name == "qwen3" || name == "qwen3moe" || name == "gemma3" || is_gemma4
                            ? QkNormKind::kPerHead
                            : QkNormKind::kNone));
    CHECK(m.value_norm == is_gemma4);
    CHECK(m.activation == (is_gemma || is_gpt2 ? Activation::kGeluTanh : Activation::kSilu));
    CHECK(m.gated_feed_forward == !is_gpt2);
    CHECK(m.residual == ResidualKind::kSequential);
    CHECK(m.position == (is_gpt2 ? PositionKind::kLearned : PositionKind::kRotary));
    if (!is_gpt2)
      CHECK(m.rotary ==
            RotaryConfig{.dim = 16,
                         .pairs = name == "llama" ? RotaryPairs::kInterleaved : RotaryPairs::kHalves});
    CHECK(m.embedding_scale == (is_gemma ? std::sqrt(8.0) : 1.0));
    CHECK(m.attention_scale == (is_gemma4 ? 1.0 : 0.0));
    CHECK(m.attention_soft_cap == (name == "gemma2" ? 50.0 : 0.0));
    CHECK(m.logit_soft_cap == (name == "gemma2" || is_gemma4 ? 30.0 : 0.0));
    CHECK(m.n_experts == (name == "qwen3moe" ? 3 : 0));
    CHECK(m.normalize_expert_weights);
    CHECK(windows_of(m) == (name == "gemma2" ? std::vector<Index>{4096, 0} : std::vector<Index>{}));
    CHECK(m.layer_rotary.empty());
    CHECK(m.has_experts.empty());
  }
}

TEST_CASE("GGUF architectures: keys that are missing, unknown or of another kind are refused by name") {
  for (const auto& entry : kLayers) {
    const std::string& name = entry.first;
    CAPTURE(name);
    for (const std::string key :
         {"block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count"})
      check_refused({name, {key}}, ErrorCode::kBadFile, {name + "." + key + " is missing"});
    check_refused({name, {"attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"}},
                  ErrorCode::kBadFile,
                  {has_layer_norm(name) ? ".layer_norm_epsilon" : ".layer_norm_rms_epsilon"});
    for (const std::string key :
         {"novelty", "attention.scale", "attention.key_length_swa", "leading_dense_block_count",
          "expert_weights_scale", "rope.scaling.yarn_log_multiplier"})
      if (name != "gemma4" || key != "attention.key_length_swa")
        check_refused({name, {}, with(name + "." + key, 1.0f)}, ErrorCode::kUnsupported,
                      {"\"" + name + "." + key + "\" is not known for " + name});
    for (const std::string key : {"feed_forward_length", "attention.head_count", "attention.head_count_kv"})
      check_refused({name,
                     {key},
                     [&](GgufWriter& w) {
                       w.array(name + "." + key, std::vector<std::uint32_t>{2, 1});
                     }},
                    ErrorCode::kBadFile, {name + "." + key, "got an array of 2"});
    const LoadedModel model = TinyModel{name, {}, with(name + ".rope.scaling.finetuned", true)}.load();
    CHECK(model.report.ignored_fields == std::vector<std::string>{name + ".rope.scaling.finetuned"});
  }
  // Families without windows must not be given one, nor one without rotary positions a base.
  for (const std::string name : {"llama", "qwen2", "qwen3", "qwen3moe", "gemma", "stablelm", "gpt2"})
    check_refused({name, {}, with(name + ".attention.sliding_window", std::uint32_t{8})},
                  ErrorCode::kUnsupported, {".attention.sliding_window\" is not known for " + name});
  check_refused({"gpt2", {}, with("gpt2.rope.freq_base", 1e4f)}, ErrorCode::kUnsupported,
                {"\"gpt2.rope.freq_base\" is not known"});
  check_refused({"gemma2", {}, with("gemma2.rope.freq_base_swa", 1e4f)}, ErrorCode::kUnsupported,
                {"\"gemma2.rope.freq_base_swa\" is not known"});
  check_refused({"gemma3", {}, with("gemma3.attn_logit_softcapping", 50.0f)}, ErrorCode::kUnsupported,
                {"\"gemma3.attn_logit_softcapping\" is not known"});
}

TEST_CASE("GGUF architectures: every tensor is needed, in its shape, and no other has a place") {
  for (const auto& entry : kLayers) {
    const std::string& name = entry.first;
    const TinyModel whole{name};
    CHECK(whole.load().report.n_tensors == static_cast<Index>(whole.tensors().size()));
    for (const auto& each : whole.tensors()) {
      const std::string& tensor = each.first;
      const Shape& shape = each.second;
      CAPTURE(tensor);
      // Without output.weight the head is tied; without attn_qkv there would have to be three matrices.
      if (tensor != "output.weight")
        check_refused(
            {name, {tensor}}, ErrorCode::kMismatch,
            {tensor.find("attn_qkv.weight") == std::string::npos ? tensor : "attn_q.weight", "is missing"});
      Shape other = shape;
      ++other.front();
      std::size_t n = 1;
      for (const Index extent : other) n *= static_cast<std::size_t>(extent);
      check_refused({name, {tensor}, with_tensor(tensor, other, std::vector<float>(n))}, ErrorCode::kMismatch,
                    {"\"" + tensor + "\" has shape"});
    }
    for (const std::string extra :
         {"blk.0.novelty.weight", "blk.2.attn_norm.weight", "rope_factors_long.weight",
          "blk.1.attn_sinks.weight", "blk.0.ffn_gate_shexp.weight", "blk.0.attn_q_norm.bias"})
      check_refused({name, {}, with_tensor(extra, {1}, {1.0f})}, ErrorCode::kMismatch,
                    {"\"" + extra + "\" of shape [1] has no place"});
    if (!has_layer_norm(name))
      check_refused({name, {}, with_tensor("output_norm.bias", {8}, std::vector<float>(8))},
                    ErrorCode::kMismatch, {"\"output_norm.bias\" of shape [8] has no place"});
  }
}

TEST_CASE("GGUF architectures: each tensor goes where it belongs") {
  for (const auto& entry : kLayers) {
    const std::string& name = entry.first;
    const Tensors& layer = entry.second;
    CAPTURE(name);
    const TinyModel file{name};
    const TemporaryFolder folder;
    const LoadedModel model = load_gguf_model(folder.write("tiny.gguf", file.bytes()));
    const auto first = [&](std::string_view tensor) { return first_of(file, tensor); };
    CHECK(is(model.weights.token_embedding, 8, 8, first("token_embd.weight")));
    CHECK(is(model.weights.head.matrix, 8, 8, first("output.weight")));
    CHECK(is(model.weights.final_norm.weight, 8, first("output_norm.weight")));
    if (name == "gpt2") CHECK(is(model.weights.position_embedding, 32, 8, first("position_embd.weight")));
    REQUIRE(model.weights.layers.size() == 2);
    for (const std::string block : {"blk.0.", "blk.1."}) {
      CAPTURE(block);
      const LayerWeights& w = model.weights.layers[block == "blk.1."];
      const auto norm = [&](const NormWeights& weights, const std::string& tensor, Index size) {
        CHECK(weights.weight.empty() == (layer.count(tensor + ".weight") == 0));
        CHECK(weights.bias.empty() == (layer.count(tensor + ".bias") == 0));
        if (!weights.weight.empty()) CHECK(is(weights.weight, size, first(block + tensor + ".weight")));
        if (!weights.bias.empty()) CHECK(is(weights.bias, size, first(block + tensor + ".bias")));
      };
      norm(w.attention_norm, "attn_norm", 8);
      norm(w.feed_forward_norm, "ffn_norm", 8);
      norm(w.attention_post_norm, "post_attention_norm", 8);
      norm(w.feed_forward_post_norm, "post_ffw_norm", 8);
      norm(w.q_norm, "attn_q_norm", name == "olmo2" ? 32 : 16);
      norm(w.k_norm, "attn_k_norm", 16);
      CHECK(is(w.w_o.matrix, 8, 32, first(block + "attn_output.weight")));
      if (layer.count("attn_qkv.weight") != 0) {
        const float qkv = first(block + "attn_qkv.weight");
        CHECK(is(w.w_q.matrix, 32, 8, qkv));
        CHECK(is(w.w_k.matrix, 16, 8, qkv + 32 * 8));
        CHECK(is(w.w_v.matrix, 16, 8, qkv + 48 * 8));
      } else {
        CHECK(is(w.w_q.matrix, 32, 8, first(block + "attn_q.weight")));
        CHECK(is(w.w_k.matrix, 16, 8, first(block + "attn_k.weight")));
        CHECK(is(w.w_v.matrix, 16, 8, first(block + "attn_v.weight")));
      }
      if (name == "qwen2") {
        CHECK(is(w.w_q.bias, 32, first(block + "attn_q.bias")));
        CHECK(is(w.w_k.bias, 16, first(block + "attn_k.bias")));
        CHECK(is(w.w_v.bias, 16, first(block + "attn_v.bias")));
      } else if (name == "gpt2") {
        const float qkv = first(block + "attn_qkv.bias");
        CHECK(is(w.w_q.bias, 32, qkv));
        CHECK(is(w.w_k.bias, 16, qkv + 32));
        CHECK(is(w.w_v.bias, 16, qkv + 48));
        CHECK(is(w.w_o.bias, 8, first(block + "attn_output.bias")));
        CHECK(is(w.w_up.bias, 12, first(block + "ffn_up.bias")));
        CHECK(is(w.w_down.bias, 8, first(block + "ffn_down.bias")));
      } else {
        for (const kvdecode::LinearWeights* each :
             {&w.w_q, &w.w_k, &w.w_v, &w.w_o, &w.w_gate, &w.w_up, &w.w_down})
          CHECK(each->bias.empty());
      }
      if (name == "qwen3moe") {
        CHECK(is(w.router.matrix, 3, 8, first(block + "ffn_gate_inp.weight")));
        REQUIRE(w.experts.size() == 3);
        float offset = 0.0f;
        for (const ExpertWeights& expert : w.experts) {
          CHECK(is(expert.w_gate.matrix, 6, 8, first(block + "ffn_gate_exps.weight") + offset));
          CHECK(is(expert.w_up.matrix, 6, 8, first(block + "ffn_up_exps.weight") + offset));
          CHECK(is(expert.w_down.matrix, 8, 6, first(block + "ffn_down_exps.weight") + offset));
          offset += 48.0f;
        }
        continue;
      }
      const float up = first(block + "ffn_up.weight");
      CHECK(is(w.w_down.matrix, 8, 12, first(block + "ffn_down.weight")));
      CHECK(is(w.w_up.matrix, 12, 8, name == "phi3" ? up + 12 * 8 : up));
      if (name == "phi3")
        CHECK(is(w.w_gate.matrix, 12, 8, up));
      else if (name == "gpt2")
        CHECK(w.w_gate.matrix.empty());
      else
        CHECK(is(w.w_gate.matrix, 12, 8, first(block + "ffn_gate.weight")));
    }
  }
}

TEST_CASE("GGUF architectures: biases that a family need not have are used where they are") {
  const auto bias = [](const std::string& name, Index size) {
    return with_tensor("blk.1." + name + ".bias", {size},
                       std::vector<float>(static_cast<std::size_t>(size), -3.0f));
  };
  for (const auto& entry : kLayers) {
    const std::string& name = entry.first;
    if (name == "gpt2") continue;
    CAPTURE(name);
    const TemporaryFolder folder;
    const LoadedModel model =
        load_gguf_model(folder.write("tiny.gguf", TinyModel{name, {}, bias("attn_output", 8)}.bytes()));
    CHECK(model.weights.layers[0].w_o.bias.empty());
    CHECK(is(model.weights.layers[1].w_o.bias, 8, -3.0f));
  }
  const TemporaryFolder folder;
  const LoadedModel stablelm =
      load_gguf_model(folder.write("tiny.gguf", TinyModel{"stablelm", {}, bias("attn_k", 16)}.bytes()));
  CHECK(is(stablelm.weights.layers[1].w_k.bias, 16, -3.0f));
  const LoadedModel moe =
      load_gguf_model(folder.write("moe.gguf", TinyModel{"qwen3moe", {}, bias("ffn_gate_inp", 3)}.bytes()));
  CHECK(is(moe.weights.layers[1].router.bias, 3, -3.0f));
}

TEST_CASE("GGUF architectures: queries, keys and values may be one matrix in any family") {
  std::vector<float> numbers(64 * 8);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = -static_cast<float>(i) - 1.0f;
  const std::vector<float> biases(numbers.begin(), numbers.begin() + 64);
  const std::set<std::string, std::less<>> apart{"blk.1.attn_q.weight", "blk.1.attn_k.weight",
                                                 "blk.1.attn_v.weight", "blk.1.attn_q.bias",
                                                 "blk.1.attn_k.bias",   "blk.1.attn_v.bias"};
  const auto fused = with_tensor("blk.1.attn_qkv.weight", {64, 8}, numbers);
  const TemporaryFolder folder;
  const LoadedModel model = load_gguf_model(folder.write(
      "tiny.gguf",
      TinyModel{"qwen2", apart, both(fused, with_tensor("blk.1.attn_qkv.bias", {64}, biases))}.bytes()));
  const LayerWeights& w = model.weights.layers[1];
  CHECK(is(w.w_q.matrix, 32, 8, -1.0f));
  CHECK(is(w.w_k.matrix, 16, 8, -1.0f - 32 * 8));
  CHECK(is(w.w_v.matrix, 16, 8, -1.0f - 48 * 8));
  CHECK(is(w.w_q.bias, 32, -1.0f));
  CHECK(is(w.w_k.bias, 16, -33.0f));
  CHECK(is(w.w_v.bias, 16, -49.0f));
  // This family has the biases for certain, and a part of a block is none.
  check_refused({"qwen2", apart, fused}, ErrorCode::kMismatch, {"\"blk.1.attn_qkv.bias\" is missing"});
  check_refused({"qwen2", apart,
                 both(fused,
                      [](GgufWriter& writer) {
                        writer.tensor("blk.1.attn_qkv.bias", {64}, 8, std::string(68, '\0'));
                      })},
                ErrorCode::kUnsupported, {"\"blk.1.attn_qkv.bias\" is stored as q8_0", "cannot be divided"});
  check_refused({"qwen2", {}, fused}, ErrorCode::kMismatch, {"\"blk.1.attn_qkv.bias\" is missing"});
  check_refused({"llama", {}, fused}, ErrorCode::kMismatch,
                {"\"blk.1.attn_k.weight\" of shape [16, 8] has no place"});
}

TEST_CASE("GGUF architectures: experts") {
  const ModelConfig model = TinyModel{"qwen3moe"}.config();
  CHECK(model.n_experts == 3);
  CHECK(model.n_experts_used == 2);
  CHECK(model.d_expert == 6);
  check_refused({"qwen3moe", {"expert_count"}}, ErrorCode::kBadFile, {"qwen3moe.expert_count is missing"});
  check_refused({"qwen3moe", {"expert_used_count"}}, ErrorCode::kBadFile,
                {"qwen3moe.expert_used_count is missing"});
  check_refused({"qwen3", {}, with("qwen3.expert_count", std::uint32_t{3})}, ErrorCode::kUnsupported,
                {"\"qwen3.expert_count\" is not known"});
  // Gates and ups in one tensor, an expert's gate before its up.
  std::vector<float> numbers(3 * 12 * 8);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = -static_cast<float>(i) - 1.0f;
  const TemporaryFolder folder;
  const LoadedModel fused = load_gguf_model(
      folder.write("tiny.gguf", TinyModel{"qwen3moe",
                                          {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"},
                                          with_tensor("blk.0.ffn_gate_up_exps.weight", {3, 12, 8}, numbers)}
                                    .bytes()));
  REQUIRE(fused.weights.layers[0].experts.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const ExpertWeights& expert = fused.weights.layers[0].experts[i];
    CHECK(is(expert.w_gate.matrix, 6, 8, -1.0f - 96.0f * static_cast<float>(i)));
    CHECK(is(expert.w_up.matrix, 6, 8, -49.0f - 96.0f * static_cast<float>(i)));
  }
}

TEST_CASE(
    "GGUF architectures: a scale beside a matrix multiplies its products, the inputs' one is left aside") {
  const TemporaryFolder folder;
  const auto load = [&](const TinyModel& model) {
    return load_gguf_model(folder.write("tiny.gguf", model.bytes()));
  };
  CHECK(load({"llama"}).weights.layers[1].w_q.scale == 1.0);
  const LoadedModel llama = load({"llama",
                                  {},
                                  both(both(with_tensor("blk.1.attn_q.scale", {1}, {0.25f}),
                                            with_tensor("blk.1.ffn_down.scale", {}, {-3.0f})),
                                       both(with_tensor("blk.1.attn_q.input_scale", {1}, {7.0f}),
                                            with_tensor("output.scale", {1}, {2.0f})))});
  CHECK(llama.weights.layers[1].w_q.scale == 0.25);
  CHECK(llama.weights.layers[1].w_down.scale == -3.0);
  CHECK(llama.weights.layers[1].w_k.scale == 1.0);
  CHECK(llama.weights.layers[0].w_q.scale == 1.0);
  CHECK(llama.weights.head.scale == 2.0);
  REQUIRE(llama.report.ignored_tensors.size() == 1);
  CHECK(llama.report.ignored_tensors[0].name == "blk.1.attn_q.input_scale");
  // Parts of a matrix have the scale of all of it.
  const LoadedModel phi3 = load({"phi3",
                                 {},
                                 both(with_tensor("blk.0.attn_qkv.scale", {1}, {0.5f}),
                                      with_tensor("blk.0.ffn_up.scale", {1}, {0.75f}))});
  CHECK(phi3.weights.layers[0].w_k.scale == 0.5);
  CHECK(phi3.weights.layers[0].w_gate.scale == 0.75);
  CHECK(phi3.weights.layers[0].w_up.scale == 0.75);
  CHECK(phi3.weights.layers[0].w_down.scale == 1.0);
  // One for each expert.
  const LoadedModel moe = load({"qwen3moe",
                                {},
                                both(with_tensor("blk.1.ffn_up_exps.scale", {3}, {1.5f, 2.5f, 3.5f}),
                                     with_tensor("blk.1.ffn_gate_inp.scale", {1}, {0.5f}))});
  const LayerWeights& w = moe.weights.layers[1];
  for (std::size_t e = 0; e < 3; ++e) {
    CHECK(w.experts[e].w_up.scale == 1.5 + static_cast<double>(e));
    CHECK(w.experts[e].w_gate.scale == 1.0);
    CHECK(w.experts[e].w_down.scale == 1.0);
  }
  CHECK(w.router.scale == 0.5);

  check_refused({"llama", {}, with_tensor("blk.1.attn_q.scale", {2}, {1.0f, 1.0f})}, ErrorCode::kMismatch,
                {"tiny.gguf", "\"blk.1.attn_q.scale\" has shape [2], expected [1]"});
  check_refused({"qwen3moe", {}, with_tensor("blk.1.ffn_up_exps.scale", {1}, {1.0f})}, ErrorCode::kMismatch,
                {"\"blk.1.ffn_up_exps.scale\" has shape [1], expected [3]"});
  check_refused(
      {"llama", {}, with_tensor("blk.1.attn_q.scale", {1}, {std::numeric_limits<float>::quiet_NaN()})},
      ErrorCode::kBadFile, {"tiny.gguf", "\"blk.1.attn_q.scale\" has the value", "expected finite"});
  check_refused(
      {"qwen3moe",
       {},
       with_tensor("blk.1.ffn_down_exps.scale", {3}, {1.0f, 1.0f, std::numeric_limits<float>::infinity()})},
      ErrorCode::kBadFile, {"\"blk.1.ffn_down_exps.scale\" has the value inf"});
  check_refused({"llama", {}, with_tensor("token_embd.scale", {1}, {1.0f})}, ErrorCode::kMismatch,
                {"\"token_embd.scale\" of shape [1] has no place"});
}

TEST_CASE("GGUF architectures: windows, and which layers have them") {
  const auto windows = [](const std::string& name, std::uint32_t n_layers,
                          std::function<void(GgufWriter&)> more) {
    return windows_of(TinyModel{name, {}, std::move(more), n_layers}.config());
  };
  const auto window = [](const std::string& name, std::uint32_t n) {
    return with(name + ".attention.sliding_window", n);
  };
  using Windows = std::vector<Index>;
  CHECK(windows("gemma2", 5, window("gemma2", 8)) == Windows{8, 0, 8, 0, 8});
  CHECK(windows("gemma2", 3, [](GgufWriter&) {}) == Windows{4096, 0, 4096});
  CHECK(windows("gemma3", 7, window("gemma3", 8)) == Windows{8, 8, 8, 8, 8, 0, 8});
  CHECK(windows("olmo2", 5, window("olmo2", 8)) == Windows{8, 8, 8, 0, 8});
  CHECK(windows("phi3", 3, window("phi3", 8)) == Windows{8, 8, 8});
  for (const std::string name : {"gemma3", "olmo2", "phi3"})
    CHECK(windows(name, 7, [](GgufWriter&) {}).empty());
  for (const std::string name : {"gemma2", "gemma3", "olmo2", "phi3"}) {
    CAPTURE(name);
    CHECK(windows(name, 7, window(name, 0)).empty());
    const std::string pattern = name + ".attention.sliding_window_pattern";
    CHECK(windows(name, 4, both(window(name, 8), with(pattern, std::uint32_t{3}))) == Windows{8, 8, 0, 8});
    CHECK(windows(name, 4, both(window(name, 8), with(pattern, std::uint32_t{1}))).empty());
    const auto list = [&](std::vector<bool> layers) {
      return [=](GgufWriter& writer) { writer.array(pattern, layers); };
    };
    CHECK(windows(name, 4, both(window(name, 8), list({false, true, true, false}))) == Windows{0, 8, 8, 0});
    CHECK(windows(name, 4, both(window(name, 8), list({false, false, false, false}))).empty());
    check_refused({name, {}, both(window(name, 8), list({true, false, true}))}, ErrorCode::kBadFile,
                  {pattern + " has 3 entries for 2 layers"});
    check_refused({name,
                   {},
                   both(window(name, 8),
                        [&](GgufWriter& w) {
                          w.array(pattern, std::vector<float>{1, 0});
                        })},
                  ErrorCode::kBadFile, {pattern + " must be an array of booleans"});
    check_refused({name, {}, both(window(name, 8), with(pattern, std::uint32_t{0}))}, ErrorCode::kBadFile,
                  {pattern + " must be a positive integer, got 0"});
    check_refused({name, {}, both(window(name, 8), with(pattern, true))}, ErrorCode::kBadFile,
                  {pattern + " must be an integer, got true"});
    check_refused({name, {}, with(name + ".attention.sliding_window", std::int32_t{-1})}, ErrorCode::kBadFile,
                  {".attention.sliding_window must be an integer of at least 0, got -1"});
    // A few bytes must not make much memory.
    check_refused({name, {}, window(name, 8), 1u << 30, 1}, ErrorCode::kBadFile,
                  {name + ".block_count 1073741824 is beyond any model whose layers differ (4096)"});
  }
}

namespace {

/// Six layers, of which the third and the sixth have no window.
ModelConfig gemma4_config(
    std::function<void(GgufWriter&)> more = [](GgufWriter&) {},
    std::set<std::string, std::less<>> absent = {}) {
  // Read from a file without its tensors: what it is refused for comes before they are looked for.
  GgufWriter writer;
  writer.value("general.architecture", std::string_view("gemma4"));
  const DecoderKeys value{writer, "gemma4", absent};
  value.write_sizes(6);
  value("attention.key_length_swa", std::uint32_t{8});
  value("attention.layer_norm_rms_epsilon", 0.25f);
  value("rope.freq_base", 1e6f);
  value("attention.sliding_window", std::uint32_t{8});
  if (absent.find("attention.sliding_window_pattern") == absent.end())
    writer.array("gemma4.attention.sliding_window_pattern",
                 std::vector<bool>{true, true, false, true, true, false});
  more(writer);
  const TemporaryFolder folder;
  const kvdecode::GgufFile file(folder.write("tiny.gguf", writer.bytes()));
  kvdecode::GgufTensorBinder tensors(file.source());
  tensors.add(file);
  kvdecode::GgufFields fields(file.metadata(), "gemma4");
  ModelConfig config;
  kvdecode::kGgufGemma4.read_config(fields, tensors, config);
  config.validate();
  CHECK(fields.unread().empty());
  return config;
}

}  // namespace

TEST_CASE("GGUF architectures: Gemma 4's layers that slide have heads of their own, others turn in part") {
  const auto divisors = [](std::vector<float> numbers) {
    return with_tensor("rope_freqs.weight", {8}, numbers);
  };
  const ModelConfig config = gemma4_config(divisors({1, 1, 1, 1e30f, 1e30f, 1e30f, 1e30f, 1e30f}));
  CHECK(windows_of(config) == std::vector<Index>{8, 8, 0, 8, 8, 0});
  CHECK(config.layer_head_dim == std::vector<Index>{8, 8, 16, 8, 8, 16});
  CHECK(config.layer_rotary.at(1) == RotaryConfig{.dim = 8});
  const RotaryConfig full{
      .dim = 16, .theta = 1e6, .scaling = {.kind = RotaryScalingKind::kProportional, .n_turning = 3}};
  CHECK(config.layer_rotary.at(2) == full);
  CHECK(config.rotary == full);
  CHECK(gemma4_config().layer_rotary.at(2) == RotaryConfig{.dim = 16, .theta = 1e6});
  CHECK(gemma4_config(divisors(std::vector<float>(8, 1.0f))).rotary.scaling.n_turning == 8);
  const ModelConfig own = gemma4_config([](GgufWriter& writer) {
    writer.value("gemma4.rope.freq_base_swa", 2e4f);
    writer.value("gemma4.rope.dimension_count_swa", std::uint32_t{4});
    writer.value("gemma4.final_logit_softcapping", 3.0f);
  });
  CHECK(own.layer_rotary.at(0) == RotaryConfig{.dim = 4, .theta = 2e4});
  CHECK(own.logit_soft_cap == 3.0);
  CHECK(own.d_layer_input == 0);
  const ModelConfig inputs = gemma4_config(with("gemma4.embedding_length_per_layer_input", std::uint32_t{3}));
  CHECK(inputs.d_layer_input == 3);
  CHECK(inputs.layer_embedding_scale == std::sqrt(3.0));

  const auto refused = [](ErrorCode code, std::initializer_list<std::string_view> words,
                          std::function<void(GgufWriter&)> more,
                          std::set<std::string, std::less<>> absent = {}) {
    check_error(code, words, [&] { gemma4_config(more, absent); });
  };
  for (const std::vector<float>& other : {std::vector<float>{1, 2, 1e30f, 1e30f, 1e30f, 1e30f, 1e30f, 1e30f},
                                          {1, 1e30f, 1, 1e30f, 1e30f, 1e30f, 1e30f, 1e30f}})
    refused(ErrorCode::kUnsupported, {"rope_freqs.weight", "other than 1 and, behind them, 1e30"},
            divisors(other));
  refused(ErrorCode::kUnsupported, {"keys of 8 and values of 4 elements"},
          with("gemma4.attention.value_length_swa", std::uint32_t{4}));
  refused(ErrorCode::kBadFile, {"gemma4.attention.sliding_window_pattern is missing"}, [](GgufWriter&) {},
          {"attention.sliding_window_pattern"});
}

TEST_CASE(
    "GGUF architectures: Gemma 4's last layers read the last keys and values of their kind before them") {
  const auto shared = [](std::uint32_t n) { return with("gemma4.attention.shared_kv_layers", n); };
  CHECK(gemma4_config(shared(0)).kv_stores.empty());
  CHECK(gemma4_config(shared(2)).kv_stores == std::vector<Index>{0, 1, 2, 3, 3, 2});
  CHECK(gemma4_config(shared(3)).kv_stores == std::vector<Index>{0, 1, 2, 1, 1, 2});
  CHECK(gemma4_config(shared(5), {"attention.sliding_window", "attention.key_length_swa",
                                  "attention.sliding_window_pattern"})
            .kv_stores == std::vector<Index>(6, 0));
  check_error(ErrorCode::kBadFile, {"gemma4.attention.shared_kv_layers 4", "that layer 2 could read"},
              [&] { gemma4_config(shared(4)); });
  check_error(ErrorCode::kBadFile, {"gemma4.attention.shared_kv_layers 6 of 6 layers leaves none"},
              [&] { gemma4_config(shared(6)); });
  // A few bytes must not make much memory.
  check_refused({"gemma4", {}, with("gemma4.attention.shared_kv_layers", std::uint32_t{1}), 1u << 30, 1},
                ErrorCode::kBadFile,
                {"gemma4.block_count 1073741824 is beyond any model whose layers differ (4096)"});
  // What makes keys and values is left aside where nobody reads it.
  const TinyModel last{"gemma4", {}, shared(1)};
  const LoadedModel model = last.load();
  CHECK(model.report.ignored_tensors.size() == 3);
  CHECK(model.weights.layers[1].w_k.matrix.empty());
  CHECK(model.weights.layers[1].scale == first_of(last, "blk.1.layer_output_scale.weight"));
}

TEST_CASE("GGUF architectures: Gemma 4's inputs of layers go where they belong") {
  const auto tensor = [](const std::string& name, Shape shape, float first) {
    std::size_t n = 1;
    for (const Index extent : shape) n *= static_cast<std::size_t>(extent);
    return with_tensor(name, shape, std::vector<float>(n, first));
  };
  std::function<void(GgufWriter&)> more = with("gemma4.embedding_length_per_layer_input", std::uint32_t{3});
  for (const char* const block : {"blk.0.", "blk.1."}) {
    more = both(more, tensor(std::string(block) + "inp_gate.weight", {3, 8}, -1.0f));
    more = both(more, tensor(std::string(block) + "proj.weight", {8, 3}, -2.0f));
    more = both(more, tensor(std::string(block) + "post_norm.weight", {8}, -3.0f));
  }
  more = both(more, tensor("per_layer_token_embd.weight", {8, 6}, -4.0f));
  more = both(more, tensor("per_layer_model_proj.weight", {6, 8}, -5.0f));
  more = both(more, tensor("per_layer_proj_norm.weight", {3}, -6.0f));
  const TemporaryFolder folder;
  const LoadedModel model = load_gguf_model(folder.write("tiny.gguf", TinyModel{"gemma4", {}, more}.bytes()));
  const LayerWeights& w = model.weights.layers[1];
  CHECK(is(w.w_input_gate.matrix, 3, 8, -1.0f));
  CHECK(is(w.w_input_out.matrix, 8, 3, -2.0f));
  CHECK(is(w.input_post_norm.weight, 8, -3.0f));
  CHECK(is(model.weights.layer_embedding, 8, 6, -4.0f));
  CHECK(is(model.weights.w_layer_inputs.matrix, 6, 8, -5.0f));
  CHECK(model.weights.w_layer_inputs.scale == doctest::Approx(1.0 / std::sqrt(8.0)).epsilon(1e-15));
  CHECK(is(model.weights.layer_input_norm.weight, 3, -6.0f));
}

TEST_CASE("GGUF architectures: layers with a window turn by a base of their own, and are not scaled") {
  const auto config = [](const std::string& name, std::function<void(GgufWriter&)> more) {
    return TinyModel{name,
                     {},
                     [&](GgufWriter& writer) {
                       writer.value(name + ".attention.sliding_window", std::uint32_t{8});
                       writer.value(name + ".attention.sliding_window_pattern", std::uint32_t{2});
                       more(writer);
                     }}
        .config();
  };
  const ModelConfig gemma = config("gemma3", [](GgufWriter& writer) {
    writer.value("gemma3.rope.freq_base", 1e6f);
    writer.value("gemma3.rope.scaling.type", std::string_view("linear"));
    writer.value("gemma3.rope.scaling.factor", 8.0f);
  });
  REQUIRE(gemma.layer_rotary.size() == 2);
  CHECK(gemma.layer_rotary[0] == RotaryConfig{.dim = 16});
  CHECK(gemma.layer_rotary[1] == gemma.rotary);
  CHECK(gemma.rotary.theta == 1e6);
  CHECK(gemma.rotary.scaling.kind == RotaryScalingKind::kLinear);
  CHECK(gemma.rotary.scaling.factor == 8.0);
  CHECK(config("gemma3", with("gemma3.rope.freq_base_swa", 5e5f)).layer_rotary.at(0).theta == 5e5);
  CHECK(config("gemma3", with("gemma3.rope.freq_base_swa", 5e5f)).layer_rotary.at(1).theta == 1e4);
  CHECK(config("gemma3", [](GgufWriter&) {}).layer_rotary.empty());

  const auto yarn = [](GgufWriter& writer) {
    writer.value("olmo2.rope.freq_base", 5e5f);
    writer.value("olmo2.rope.scaling.type", std::string_view("yarn"));
    writer.value("olmo2.rope.scaling.factor", 8.0f);
    writer.value("olmo2.rope.scaling.original_context_length", std::uint32_t{8});
  };
  const ModelConfig olmo = config("olmo2", yarn);
  REQUIRE(olmo.layer_rotary.size() == 2);
  CHECK(olmo.layer_rotary[0] == RotaryConfig{.dim = 16, .theta = 5e5});
  CHECK(olmo.layer_rotary[1] == olmo.rotary);
  CHECK(olmo.rotary.scaling.kind == RotaryScalingKind::kYarn);
  CHECK(olmo.rotary.scaling.magnitude == doctest::Approx(0.1 * std::log(8.0) + 1.0));
  // Written by some conversions: what the model's own config calls attention_factor.
  CHECK(config("olmo2", both(yarn, with("olmo2.rope.scaling.attn_factor", 1.25f))).rotary.scaling.magnitude ==
        1.25);
  CHECK(config("olmo2", with("olmo2.rope.freq_base", 5e5f)).layer_rotary.empty());
  CHECK(config("olmo2", with("olmo2.rope.freq_base_swa", 2e4f)).layer_rotary.at(0).theta == 2e4);
}

TEST_CASE("GGUF architectures: soft caps, and the scale of the largest Gemmas") {
  const ModelConfig gemma2 = TinyModel{"gemma2",
                                       {},
                                       both(with("gemma2.attn_logit_softcapping", 5.0f),
                                            with("gemma2.final_logit_softcapping", 3.0f))}
                                 .config();
  CHECK(gemma2.attention_soft_cap == 5.0);
  CHECK(gemma2.logit_soft_cap == 3.0);
  CHECK(TinyModel{"gemma3", {}, with("gemma3.final_logit_softcapping", 3.0f)}.config().logit_soft_cap == 3.0);
  for (const auto& [name, n_layers] : {std::pair<std::string, std::uint32_t>("gemma2", 46), {"gemma3", 62}}) {
    CHECK(TinyModel{name, {}, [](GgufWriter&) {}, n_layers}.config().attention_scale == 0.5);
    CHECK(TinyModel{name, {}, [](GgufWriter&) {}, n_layers - 1}.config().attention_scale == 0.0);
  }
}

TEST_CASE("GGUF architectures: StableLM side by side has one norm for both branches") {
  const std::function<void(GgufWriter&)> parallel = with("stablelm.use_parallel_residual", true);
  const ModelConfig model = TinyModel{"stablelm",
                                      {"blk.0.ffn_norm.weight", "blk.0.ffn_norm.bias",
                                       "blk.1.ffn_norm.weight", "blk.1.ffn_norm.bias"},
                                      parallel}
                                .config();
  CHECK(model.residual == ResidualKind::kParallelSharedNorm);
  check_refused({"stablelm", {}, parallel}, ErrorCode::kMismatch,
                {"\"blk.0.ffn_norm.bias\" of shape [8] has no place"});
  check_refused({"stablelm", {}, with_tensor("blk.0.attn_q_norm.weight", {2, 16}, std::vector<float>(32))},
                ErrorCode::kMismatch, {"\"blk.0.attn_q_norm.weight\" of shape [2, 16] has no place"});
  CHECK(TinyModel{"stablelm", {}, with("stablelm.use_parallel_residual", false)}.config().residual ==
        ResidualKind::kSequential);
  CHECK(TinyModel{"stablelm", {}, with("stablelm.rope.dimension_count", std::uint32_t{4})}
            .config()
            .rotary_dim() == 4);
}

TEST_CASE("GGUF architectures: LongRoPE's factors are tensors") {
  const auto short_factors = with_tensor("rope_factors_short.weight", {2}, {1.0f, 2.0f});
  const auto long_factors = with_tensor("rope_factors_long.weight", {2}, {4.0f, 8.0f});
  const std::function<void(GgufWriter&)> keys = [](GgufWriter& writer) {
    writer.value("phi3.rope.dimension_count", std::uint32_t{4});
    writer.value("phi3.rope.scaling.original_context_length", std::uint32_t{16});
    writer.value("phi3.rope.scaling.attn_factor", 1.5f);
  };
  const std::function<void(GgufWriter&)> factors = both(short_factors, long_factors);
  const RotaryConfig rotary = TinyModel{"phi3", {}, both(keys, factors)}.config().rotary;
  CHECK(rotary.dim == 4);
  CHECK(rotary.scaling.kind == RotaryScalingKind::kLongrope);
  CHECK(rotary.scaling.original_max_seq_len == 16);
  CHECK(rotary.scaling.short_factors == std::vector<double>{1.0, 2.0});
  CHECK(rotary.scaling.long_factors == std::vector<double>{4.0, 8.0});
  CHECK(rotary.scaling.magnitude == 1.5);
  const auto type = with("phi3.rope.scaling.type", std::string_view("longrope"));
  CHECK(TinyModel{"phi3", {}, both(type, both(keys, factors))}.config().rotary == rotary);
  // The length trained on is there without them too, and means nothing then.
  const auto length = with("phi3.rope.scaling.original_context_length", std::uint32_t{16});
  CHECK(TinyModel{"phi3", {}, length}.config().rotary == RotaryConfig{.dim = 16});

  check_refused({"phi3", {}, both(keys, short_factors)}, ErrorCode::kMismatch,
                {"\"rope_factors_long.weight\" is missing, expected one of shape [2]"});
  check_refused({"phi3", {}, both(keys, long_factors)}, ErrorCode::kMismatch,
                {"\"rope_factors_long.weight\" of shape [2] has no place"});
  check_refused({"phi3", {}, both(keys, type)}, ErrorCode::kMismatch,
                {"\"rope_factors_short.weight\" is missing"});
  check_refused({"phi3", {}, both(factors, with("phi3.rope.dimension_count", std::uint32_t{4}))},
                ErrorCode::kBadFile, {"phi3.rope.scaling.original_context_length is missing"});
  check_refused({"phi3", {}, both(keys, both(factors, with_tensor("rope_freqs.weight", {2}, {1.0f, 1.0f})))},
                ErrorCode::kUnsupported, {"\"longrope\" beside divisors"});
}

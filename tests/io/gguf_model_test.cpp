// SPDX-License-Identifier: MIT
// io/gguf_model.hpp, io/gguf_tensor_binder.hpp and the families in io/architectures/gguf_*.hpp.
#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/io/gguf_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gguf_support.hpp"
#include "support.hpp"

using io_test::check_error;
using io_test::GgufWriter;
using io_test::TemporaryFolder;
using kvdecode::ErrorCode;
using kvdecode::FormatId;
using kvdecode::GgufFile;
using kvdecode::GgufTensor;
using kvdecode::Index;
using kvdecode::load_gguf_model;
using kvdecode::LoadedModel;
using kvdecode::MatrixView;
using kvdecode::RotaryScalingKind;
using kvdecode::TokenId;
using kvdecode::VectorView;

namespace {

const std::filesystem::path kModels = std::filesystem::path(KVDECODE_TEST_DATA_DIR) / "gguf/models";
const std::filesystem::path kHostile = std::filesystem::path(KVDECODE_TEST_DATA_DIR) / "gguf/hostile";

/// The bytes of a view are those of the tensor of that name, in place.
bool is_in_place(const MatrixView& view, const GgufFile& file, std::string_view name) {
  const GgufTensor* const tensor = file.find(name);
  return tensor != nullptr && view.data != nullptr && !view.transposed &&
         view.format == tensor->type->format &&
         view.rows * view.stride == static_cast<Index>(tensor->bytes.size()) &&
         std::equal(tensor->bytes.begin(), tensor->bytes.end(), view.data);
}
bool is_in_place(const VectorView& view, const GgufFile& file, std::string_view name) {
  const GgufTensor* const tensor = file.find(name);
  return tensor != nullptr && view.data != nullptr && view.format == tensor->type->format &&
         std::equal(tensor->bytes.begin(), tensor->bytes.end(), view.data);
}

/// A Llama of one layer: d_model 8, two heads of 4 and one of keys and values, d_ff 12, 8 tokens.
struct TinyLlama {
  std::set<std::string, std::less<>> absent{};                 // keys and tensors that are left out
  std::function<void(GgufWriter&)> more = [](GgufWriter&) {};  // and what is added
  std::uint32_t type = 0;                                      // of the matrices: F32 or F64

  std::string bytes() const {
    GgufWriter writer;
    const auto value = [&](std::string_view key, const auto& x) {
      if (absent.find(key) == absent.end()) writer.value(key, x);
    };
    value("general.architecture", std::string_view("llama"));
    value("llama.block_count", std::uint32_t{1});
    value("llama.context_length", std::uint32_t{32});
    value("llama.embedding_length", std::uint32_t{8});
    value("llama.feed_forward_length", std::uint32_t{12});
    value("llama.attention.head_count", std::uint32_t{2});
    value("llama.attention.head_count_kv", std::uint32_t{1});
    value("llama.attention.layer_norm_rms_epsilon", 0.25f);
    value("llama.vocab_size", std::uint32_t{8});
    const auto tensor = [&](std::string_view name, const std::vector<Index>& shape, std::uint32_t number) {
      if (absent.find(name) != absent.end()) return;
      std::size_t n = number == 28 ? 8 : 4;
      for (const Index extent : shape) n *= static_cast<std::size_t>(extent);
      writer.tensor(name, shape, number, std::string(n, '\0'));
    };
    tensor("token_embd.weight", {8, 8}, type);
    tensor("output.weight", {8, 8}, type);
    tensor("output_norm.weight", {8}, 0);
    tensor("blk.0.attn_norm.weight", {8}, 0);
    tensor("blk.0.attn_q.weight", {8, 8}, type);
    tensor("blk.0.attn_k.weight", {4, 8}, type);
    tensor("blk.0.attn_v.weight", {4, 8}, type);
    tensor("blk.0.attn_output.weight", {8, 8}, type);
    tensor("blk.0.ffn_norm.weight", {8}, 0);
    tensor("blk.0.ffn_gate.weight", {12, 8}, type);
    tensor("blk.0.ffn_up.weight", {12, 8}, type);
    tensor("blk.0.ffn_down.weight", {8, 12}, type);
    more(writer);
    return writer.bytes();
  }
  LoadedModel load() const {
    const TemporaryFolder folder;
    return load_gguf_model(folder.write("tiny.gguf", bytes()));
  }
};

void check_refused(const TinyLlama& model, ErrorCode code, std::initializer_list<std::string_view> words) {
  check_error(code, words, [&] { model.load(); });
}

std::string floats(std::initializer_list<float> values) {
  std::string bytes(4 * values.size(), '\0');
  std::memcpy(bytes.data(), values.begin(), bytes.size());
  return bytes;
}

}  // namespace

TEST_CASE("load_gguf_model: config, weights in place, and the report") {
  const LoadedModel model = load_gguf_model(kModels / "llama-quant-legacy/model.gguf");
  const GgufFile file(kModels / "llama-quant-legacy/model.gguf");
  CHECK(model.config.n_layers == 2);
  CHECK(model.config.d_model == 256);
  CHECK(model.config.n_heads == 4);
  CHECK(model.config.n_kv_heads == 2);
  CHECK(model.config.head_dim == 64);
  CHECK(model.config.vocab_size == 64);
  CHECK(model.config.max_seq_len == 256);
  CHECK(model.config.rotary.pairs == kvdecode::RotaryPairs::kInterleaved);
  CHECK(model.config.rotary.scaling.kind == RotaryScalingKind::kNone);
  CHECK(!model.config.tied_head);
  CHECK(model.config.n_experts == 0);
  CHECK(is_in_place(model.weights.token_embedding, file, "token_embd.weight"));
  CHECK(is_in_place(model.weights.head.matrix, file, "output.weight"));
  CHECK(is_in_place(model.weights.final_norm.weight, file, "output_norm.weight"));
  REQUIRE(model.weights.layers.size() == 2);
  const kvdecode::LayerWeights& w = model.weights.layers[1];
  CHECK(is_in_place(w.attention_norm.weight, file, "blk.1.attn_norm.weight"));
  CHECK(is_in_place(w.w_q.matrix, file, "blk.1.attn_q.weight"));
  CHECK(is_in_place(w.w_k.matrix, file, "blk.1.attn_k.weight"));
  CHECK(is_in_place(w.w_v.matrix, file, "blk.1.attn_v.weight"));
  CHECK(is_in_place(w.w_o.matrix, file, "blk.1.attn_output.weight"));
  CHECK(is_in_place(w.feed_forward_norm.weight, file, "blk.1.ffn_norm.weight"));
  CHECK(is_in_place(w.w_gate.matrix, file, "blk.1.ffn_gate.weight"));
  CHECK(is_in_place(w.w_up.matrix, file, "blk.1.ffn_up.weight"));
  CHECK(is_in_place(w.w_down.matrix, file, "blk.1.ffn_down.weight"));
  CHECK(w.w_q.bias.empty());
  CHECK(model.report.architecture == "llama");
  CHECK(model.report.n_tensors == static_cast<Index>(file.tensors().size()));
  CHECK(model.report.formats.size() == 8);
  CHECK(model.report.files == std::vector<std::string>{file.source()});
  std::uint64_t n_bytes = 0, n_parameters = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    n_bytes += tensor.bytes.size();
    std::uint64_t n = 1;
    for (const Index extent : tensor.shape()) n *= static_cast<std::uint64_t>(extent);
    n_parameters += n;
  }
  CHECK(model.report.n_bytes == n_bytes);
  CHECK(model.report.n_parameters == n_parameters);
  CHECK(model.report.ignored_tensors.empty());
  CHECK(std::find(model.report.ignored_fields.begin(), model.report.ignored_fields.end(), "general.name") !=
        model.report.ignored_fields.end());
}

TEST_CASE("load_gguf_model: biases are there where their tensors are, the head is tied where it has none") {
  const LoadedModel biased = load_gguf_model(kModels / "llama-head_dim/model.gguf");
  const GgufFile file(kModels / "llama-head_dim/model.gguf");
  const kvdecode::LayerWeights& w = biased.weights.layers[0];
  CHECK(is_in_place(w.w_q.bias, file, "blk.0.attn_q.bias"));
  CHECK(is_in_place(w.w_k.bias, file, "blk.0.attn_k.bias"));
  CHECK(is_in_place(w.w_v.bias, file, "blk.0.attn_v.bias"));
  CHECK(is_in_place(w.w_o.bias, file, "blk.0.attn_output.bias"));
  CHECK(is_in_place(w.w_gate.bias, file, "blk.0.ffn_gate.bias"));
  CHECK(is_in_place(w.w_up.bias, file, "blk.0.ffn_up.bias"));
  CHECK(is_in_place(w.w_down.bias, file, "blk.0.ffn_down.bias"));
  const LoadedModel tied = load_gguf_model(kModels / "llama-gqa-tied/model.gguf");
  CHECK(tied.config.tied_head);
  CHECK(tied.weights.head.matrix.empty());
}

TEST_CASE("load_gguf_model: the experts of a tensor are one matrix each") {
  const LoadedModel model = load_gguf_model(kModels / "mixtral/model.gguf");
  CHECK(model.config.n_experts == 4);
  CHECK(model.config.n_experts_used == 2);
  CHECK(model.config.d_expert == 64);
  const GgufFile file(kModels / "mixtral/model.gguf");
  const kvdecode::LayerWeights& w = model.weights.layers[1];
  REQUIRE(w.experts.size() == 4);
  CHECK(w.w_up.matrix.empty());
  const GgufTensor& up = *file.find("blk.1.ffn_up_exps.weight");
  const std::size_t n = up.bytes.size() / 4;
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(w.experts[i].w_up.matrix.rows == 64);
    CHECK(std::equal(up.bytes.begin() + static_cast<Index>(i * n),
                     up.bytes.begin() + static_cast<Index>((i + 1) * n), w.experts[i].w_up.matrix.data));
  }
}

TEST_CASE("load_gguf_model: a file with what is needed and no more is a model") {
  const LoadedModel model = TinyLlama{}.load();
  CHECK(model.config.head_dim == 4);
  CHECK(model.config.d_ff == 12);
  CHECK(model.config.norm_eps == 0.25);
  CHECK(model.config.rotary.theta == 10000.0);
  CHECK(model.config.rotary_dim() == 4);
  CHECK(model.bos_token_ids.empty());
  CHECK(model.eos_token_ids.empty());
  // Files of old do not say how many tokens there are, nor how many heads of keys and values.
  CHECK(TinyLlama{.absent = {"llama.vocab_size"}}.load().config.vocab_size == 8);
  CHECK(TinyLlama{.type = 28}.load().weights.head.matrix.format == FormatId::kF64);
  const LoadedModel mha = TinyLlama{
      .absent = {"llama.attention.head_count_kv", "blk.0.attn_k.weight", "blk.0.attn_v.weight"},
      .more = [](GgufWriter& writer) {
        writer.tensor("blk.0.attn_k.weight", {8, 8}, 0, std::string(256, '\0'));
        // Outermost extents of 1 may be there or not.
        writer.tensor("blk.0.attn_v.weight", {1, 8, 8}, 0, std::string(256, '\0'));
      }}.load();
  CHECK(mha.config.n_kv_heads == 2);
}

TEST_CASE("load_gguf_model: first and last tokens come from the tokenizer's keys") {
  const LoadedModel model = TinyLlama{.more = [](GgufWriter& writer) {
                              writer.value("tokenizer.ggml.bos_token_id", std::uint32_t{1});
                              writer.value("tokenizer.ggml.eos_token_id", std::uint32_t{2});
                              writer.value("tokenizer.ggml.eot_token_id", std::uint32_t{5});
                              writer.value("tokenizer.ggml.eom_token_id", std::uint32_t{2});
                            }}.load();
  CHECK(model.bos_token_ids == std::vector<TokenId>{1});
  CHECK(model.eos_token_ids == std::vector<TokenId>{2, 5});
  check_refused({.more = [](GgufWriter& w) { w.value("tokenizer.ggml.eos_token_id", std::uint32_t{8}); }},
                ErrorCode::kBadFile, {"tokenizer.ggml.eos_token_id 8 is not a token, there are 8"});
}

TEST_CASE("load_gguf_model: rotary scalings") {
  const auto with = [](std::function<void(GgufWriter&)> more) {
    return TinyLlama{.more = std::move(more)}.load().config.rotary;
  };
  const auto linear = with([](GgufWriter& w) {
    w.value("llama.rope.scaling.type", std::string_view("linear"));
    w.value("llama.rope.scaling.factor", 4.0f);
    w.value("llama.rope.freq_base", 500.0f);
    w.value("llama.rope.dimension_count", std::uint32_t{2});
    w.value("llama.rope.scaling.finetuned", true);
  });
  CHECK(linear.scaling.kind == RotaryScalingKind::kLinear);
  CHECK(linear.scaling.factor == 4.0);
  CHECK(linear.theta == 500.0);
  CHECK(linear.dim == 2);
  const auto old = with([](GgufWriter& w) { w.value("llama.rope.scale_linear", 2.0f); });
  CHECK(old.scaling.kind == RotaryScalingKind::kLinear);
  CHECK(old.scaling.factor == 2.0);
  const auto none = with([](GgufWriter& w) {
    w.value("llama.rope.scaling.type", std::string_view("none"));
    w.value("llama.rope.scaling.factor", 4.0f);
  });
  CHECK(none.scaling.kind == RotaryScalingKind::kNone);
  const auto divisors = with([](GgufWriter& w) {
    w.tensor("rope_freqs.weight", {2}, 0, floats({1.0f, 8.0f}));
  });
  CHECK(divisors.scaling.kind == RotaryScalingKind::kDivisors);
  CHECK(divisors.scaling.short_factors == std::vector<double>{1.0, 8.0});
  const auto yarn = [&](std::optional<float> magnitude) {
    return with([magnitude](GgufWriter& w) {
             w.value("llama.rope.scaling.type", std::string_view("yarn"));
             w.value("llama.rope.scaling.factor", 4.0f);
             w.value("llama.rope.scaling.original_context_length", std::uint32_t{16});
             w.value("llama.rope.scaling.yarn_beta_fast", 24.0f);
             w.value("llama.rope.scaling.yarn_beta_slow", 2.0f);
             if (magnitude) w.value("llama.rope.scaling.yarn_attn_factor", *magnitude);
           })
        .scaling;
  };
  CHECK(yarn({}).kind == RotaryScalingKind::kYarn);
  CHECK(yarn({}).original_max_seq_len == 16);
  CHECK(yarn({}).beta_fast == 24.0);
  CHECK(yarn({}).beta_slow == 2.0);
  CHECK(yarn({}).magnitude == doctest::Approx(0.1 * std::log(4.0) + 1.0));
  CHECK(yarn(1.5f).magnitude == 1.5);
  check_refused(
      {.more = [](GgufWriter& w) { w.value("llama.rope.scaling.type", std::string_view("dynamic")); }},
      ErrorCode::kUnsupported, {"llama.rope.scaling.type \"dynamic\" is not supported"});
  check_refused({.more =
                     [](GgufWriter& w) {
                       w.value("llama.rope.scaling.factor", 4.0f);
                       w.tensor("rope_freqs.weight", {2}, 0, floats({1.0f, 8.0f}));
                     }},
                ErrorCode::kUnsupported, {"rope_freqs.weight"});
  check_refused({.more =
                     [](GgufWriter& w) {
                       w.tensor("rope_freqs.weight", {2}, 0, floats({0.0f, 1.0f}));
                     }},
                ErrorCode::kBadFile, {"short_factors must be in [1e-30, 1e30], got 0"});
  check_refused({.more =
                     [](GgufWriter& w) {
                       w.tensor("rope_freqs.weight", {3}, 0, floats({1, 1, 1}));
                     }},
                ErrorCode::kMismatch, {"\"rope_freqs.weight\" has shape [3], expected [2]"});
}

TEST_CASE("load_gguf_model: what cannot be honoured is refused by name") {
  check_refused({.more = [](GgufWriter& w) { w.value("llama.attention.novelty", 1.0f); }},
                ErrorCode::kUnsupported, {"\"llama.attention.novelty\" is not known for llama"});
  check_refused({.more = [](GgufWriter& w) { w.value("general.type", std::string_view("adapter")); }},
                ErrorCode::kUnsupported, {"general.type \"adapter\""});
  check_refused({.absent = {"general.architecture"}}, ErrorCode::kBadFile,
                {"general.architecture is missing"});
  check_refused({.absent = {"general.architecture"},
                 .more = [](GgufWriter& w) { w.value("general.architecture", std::string_view("mamba")); }},
                ErrorCode::kUnsupported, {"architecture \"mamba\" is not supported (supported: llama"});
  check_refused({.more = [](GgufWriter& w) { w.value("llama.attention.value_length", std::uint32_t{8}); }},
                ErrorCode::kUnsupported, {"keys of 4 and values of 8"});
  for (const std::string_view key :
       {"llama.block_count", "llama.context_length", "llama.embedding_length", "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"})
    check_refused({.absent = {std::string(key)}}, ErrorCode::kBadFile, {key, "is missing"});
  for (const std::string_view name :
       {"token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.weight",
        "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_output.weight", "blk.0.ffn_norm.weight",
        "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"})
    check_refused({.absent = {std::string(name)}}, ErrorCode::kMismatch, {name, "is missing"});
  check_refused({.more =
                     [](GgufWriter& w) {
                       w.tensor("blk.0.attn_q.novelty", {2}, 0, floats({1, 1}));
                     }},
                ErrorCode::kMismatch, {"\"blk.0.attn_q.novelty\" of shape [2] has no place"});
  check_refused({.absent = {"output.weight"},
                 .more =
                     [](GgufWriter& w) {
                       w.tensor("output.weight", {8, 9}, 0, std::string(288, '\0'));
                     }},
                ErrorCode::kMismatch, {"\"output.weight\" has shape [8, 9], expected [8, 8]"});
  check_refused({.absent = {"output.weight"},
                 .more =
                     [](GgufWriter& w) {
                       w.tensor("output.weight", {8, 8}, 26, std::string(256, '\0'));
                     }},
                ErrorCode::kUnsupported, {"\"output.weight\" is stored as I32, which is not supported"});
  CHECK_NOTHROW(TinyLlama{.more = [](GgufWriter& w) {
                  w.value("general.quantized_by", std::string_view("somebody"));
                  w.value("somebody.quantize.version", std::uint32_t{1});
                }}.load());
}

TEST_CASE("load_gguf_model, hostile: every file that must be refused is") {
  int n_refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kHostile)) {
    if (entry.path().extension() != ".gguf") continue;
    const std::string name = entry.path().stem().string();
    CAPTURE(name);
    if (name == "valid" || name == "valid-version-2") {
      CHECK_NOTHROW(load_gguf_model(entry.path()));
      continue;
    }
    const auto error = io_test::error_of([&] { load_gguf_model(entry.path()); });
    REQUIRE(error);
    CHECK((error->code() == ErrorCode::kBadFile || error->code() == ErrorCode::kUnsupported));
    ++n_refused;
  }
  CHECK(n_refused == 22);
  const auto refused = [](std::string_view name, std::initializer_list<std::string_view> words) {
    check_error(ErrorCode::kBadFile, words,
                [&] { load_gguf_model(kHostile / (std::string(name) + ".gguf")); });
  };
  refused("wrong-type-array", {"llama.embedding_length must be an integer, got an array of"});
  refused("n_head_kv-zero", {"llama.attention.head_count_kv must be a positive integer, got 0"});
  refused("block_count-huge", {"n_layers 4294967295"});
  refused("rope-dimension-too-large", {"rotary dimension", "at most head_dim 4, got 64"});
}

TEST_CASE("load_gguf_model: a tensor that stands in two files of a split is an Error") {
  const TemporaryFolder folder;
  const auto part = [](std::uint16_t number) {
    return [number](GgufWriter& writer) {
      writer.value("split.no", number);
      writer.value("split.count", std::uint16_t{2});
      writer.value("split.tensors.count", std::int32_t{24});
    };
  };
  const auto first = folder.write("m-00001-of-00002.gguf", TinyLlama{.more = part(0)}.bytes());
  folder.write("m-00002-of-00002.gguf", TinyLlama{.more = part(1)}.bytes());
  check_error(ErrorCode::kBadFile, {"m-00002-of-00002.gguf", "stands in another file too"},
              [&] { load_gguf_model(first); });
}

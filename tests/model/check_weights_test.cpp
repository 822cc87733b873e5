// SPDX-License-Identifier: MIT
#include <support/model.hpp>

#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/model/check_weights.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>
#include <string_view>

namespace {

using kvdecode::CoreFormats;
using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::FormatId;
using kvdecode::MatrixView;
using kvdecode::ModelConfig;
using kvdecode::VectorView;
using kvdecode::Weights;
using kvdecode_test::config_of;
using kvdecode_test::kSmallConfigs;
using kvdecode_test::RandomModel;

template <class Formats = CoreFormats>
std::string refusal(const ModelConfig& config, const Weights& weights,
                    ErrorCode code = ErrorCode::kMismatch) {
  try {
    kvdecode::check_weights<Formats>(config, weights);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return {};
}

/// A config in which every tensor occurs.
constexpr std::string_view kEverything = "layer_norm learned parallel";

struct MatrixCase {
  const char* name;
  MatrixView& (*in)(Weights&);
  const char* shape;  // that it has to have
};
const MatrixCase kMatrices[] = {
    {"token_embedding", [](Weights& w) -> MatrixView& { return w.token_embedding; }, "[37, 32]"},
    {"position_embedding", [](Weights& w) -> MatrixView& { return w.position_embedding; }, "[320, 32]"},
    {"head", [](Weights& w) -> MatrixView& { return w.head.matrix; }, "[37, 32]"},
    {"layer 1 w_q", [](Weights& w) -> MatrixView& { return w.layers[1].w_q.matrix; }, "[48, 32]"},
    {"layer 0 w_k", [](Weights& w) -> MatrixView& { return w.layers[0].w_k.matrix; }, "[16, 32]"},
    {"layer 1 w_v", [](Weights& w) -> MatrixView& { return w.layers[1].w_v.matrix; }, "[16, 32]"},
    {"layer 1 w_o", [](Weights& w) -> MatrixView& { return w.layers[1].w_o.matrix; }, "[32, 48]"},
    {"layer 0 w_gate", [](Weights& w) -> MatrixView& { return w.layers[0].w_gate.matrix; }, "[44, 32]"},
    {"layer 1 w_up", [](Weights& w) -> MatrixView& { return w.layers[1].w_up.matrix; }, "[44, 32]"},
    {"layer 1 w_down", [](Weights& w) -> MatrixView& { return w.layers[1].w_down.matrix; }, "[32, 44]"},
};

struct VectorCase {
  const char* name;
  VectorView& (*in)(Weights&);
  const char* size;
  bool is_required;
};
const VectorCase kVectors[] = {
    {"final_norm", [](Weights& w) -> VectorView& { return w.final_norm.weight; }, "32", true},
    {"final_norm bias", [](Weights& w) -> VectorView& { return w.final_norm.bias; }, "32", false},
    {"head bias", [](Weights& w) -> VectorView& { return w.head.bias; }, "37", false},
    {"layer 1 attention_norm", [](Weights& w) -> VectorView& { return w.layers[1].attention_norm.weight; },
     "32", true},
    {"layer 0 feed_forward_norm",
     [](Weights& w) -> VectorView& { return w.layers[0].feed_forward_norm.weight; }, "32", true},
    {"layer 1 feed_forward_norm bias",
     [](Weights& w) -> VectorView& { return w.layers[1].feed_forward_norm.bias; }, "32", false},
    {"layer 1 w_q bias", [](Weights& w) -> VectorView& { return w.layers[1].w_q.bias; }, "48", false},
    {"layer 0 w_k bias", [](Weights& w) -> VectorView& { return w.layers[0].w_k.bias; }, "16", false},
    {"layer 0 w_v bias", [](Weights& w) -> VectorView& { return w.layers[0].w_v.bias; }, "16", false},
    {"layer 0 w_o bias", [](Weights& w) -> VectorView& { return w.layers[0].w_o.bias; }, "32", false},
    {"layer 0 w_gate bias", [](Weights& w) -> VectorView& { return w.layers[0].w_gate.bias; }, "44", false},
    {"layer 0 w_up bias", [](Weights& w) -> VectorView& { return w.layers[0].w_up.bias; }, "44", false},
    {"layer 0 w_down bias", [](Weights& w) -> VectorView& { return w.layers[0].w_down.bias; }, "32", false},
};

TEST_CASE("check weights: random weights fit every small config") {
  for (const std::string_view words : kSmallConfigs) {
    CAPTURE(words);
    const RandomModel model(words);
    CHECK(refusal(model.config, model.weights).empty());
  }
}

TEST_CASE("check weights: a matrix that is missing, misshapen or in no format of the list is named") {
  const RandomModel model(kEverything, {.biases = true});
  for (const MatrixCase& c : kMatrices) {
    const std::string name = c.name;
    CAPTURE(name);
    Weights weights = model.weights;
    c.in(weights) = {};
    CHECK(refusal(model.config, weights) == "weights: " + name + " is missing");
    weights = model.weights;
    c.in(weights).rows = 3;
    const std::string cols = std::to_string(c.in(weights).cols);
    CHECK(refusal(model.config, weights) ==
          "weights: " + name + " is [3, " + cols + "], expected " + c.shape);
    weights = model.weights;
    c.in(weights).cols = 5;
    const std::string rows = std::to_string(c.in(weights).rows);
    CHECK(refusal(model.config, weights) ==
          "weights: " + name + " is [" + rows + ", 5], expected " + c.shape);
    weights = model.weights;
    c.in(weights).format = FormatId::kRaw;
    CHECK(refusal(model.config, weights, ErrorCode::kUnsupported) ==
          "weights: " + name + " is stored as raw, which is not in this transformer's list of formats");
  }
}

TEST_CASE("check weights: a vector of the wrong size or format is named; biases may be missing, norms not") {
  const RandomModel model(kEverything, {.biases = true});
  for (const VectorCase& c : kVectors) {
    const std::string name = c.name;
    CAPTURE(name);
    Weights weights = model.weights;
    c.in(weights) = {};
    CHECK(refusal(model.config, weights) ==
          (c.is_required ? "weights: " + name + " is missing" : std::string()));
    weights = model.weights;
    c.in(weights).size = 3;
    CHECK(refusal(model.config, weights) == "weights: " + name + " has 3 elements, expected " + c.size);
    weights = model.weights;
    c.in(weights).format = FormatId::kRaw;
    CHECK(refusal(model.config, weights, ErrorCode::kUnsupported) ==
          "weights: " + name + " is stored as raw, which is not in this transformer's list of formats");
  }
}

TEST_CASE("check weights: norms of queries and keys, norms behind branches, routers and experts are named") {
  using Fault = void (*)(Weights&);
  struct Case {
    const char* words;
    Fault fault;
    const char* text;
  };
  const Case cases[] = {
      {"head_norms", [](Weights& w) { w.layers[0].q_norm = {}; }, "layer 0 q_norm is missing"},
      {"head_norms", [](Weights& w) { w.layers[1].k_norm.weight.size = 16; },
       "layer 1 k_norm has 16 elements, expected 8"},
      {"whole_norms", [](Weights& w) { w.layers[0].q_norm.weight.size = 8; },
       "layer 0 q_norm has 8 elements, expected 48"},
      {"whole_norms", [](Weights& w) { w.layers[0].k_norm.weight.size = 8; },
       "layer 0 k_norm has 8 elements, expected 16"},
      {"post_norms", [](Weights& w) { w.layers[1].attention_post_norm = {}; },
       "layer 1 attention_post_norm is missing"},
      {"both_norms", [](Weights& w) { w.layers[0].feed_forward_post_norm.weight.size = 31; },
       "layer 0 feed_forward_post_norm has 31 elements, expected 32"},
      {"both_norms", [](Weights& w) { w.layers[0].feed_forward_norm = {}; },
       "layer 0 feed_forward_norm is missing"},
      {"experts", [](Weights& w) { w.layers[0].router = {}; }, "layer 0 router is missing"},
      {"experts", [](Weights& w) { w.layers[0].router.matrix.rows = 4; },
       "layer 0 router is [4, 32], expected [5, 32]"},
      {"experts", [](Weights& w) { w.layers[1].experts.pop_back(); }, "layer 1 has 4 experts, expected 5"},
      {"experts", [](Weights& w) { w.layers[1].experts[4].w_gate = {}; },
       "layer 1 expert 4 w_gate is missing"},
      {"experts", [](Weights& w) { w.layers[1].experts[3].w_up.matrix.cols = 3; },
       "layer 1 expert 3 w_up is [20, 3], expected [20, 32]"},
      {"experts", [](Weights& w) { w.layers[1].experts[0].w_down.matrix.rows = 3; },
       "layer 1 expert 0 w_down is [3, 20], expected [32, 20]"},
      {"some_experts", [](Weights& w) { w.layers[0].w_up = {}; }, "layer 0 w_up is missing"},
      {"best_groups", [](Weights& w) { w.layers[1].shared_expert.w_up = {}; },
       "layer 1 shared expert w_up is missing"},
      {"best_groups", [](Weights& w) { w.layers[1].shared_expert.w_down.matrix.cols = 12; },
       "layer 1 shared expert w_down is [32, 12], expected [32, 26]"},
      {"balanced_experts", [](Weights& w) { w.layers[1].choice_bias.size = 7; },
       "layer 1 choice_bias has 7 elements, expected 8"},
      {"mla", [](Weights& w) { w.layers[0].w_q.matrix.cols = 21; },
       "layer 0 w_q is [65, 21], expected [65, 32]"},
      {"mla_q", [](Weights& w) { w.layers[0].w_q.matrix.cols = 32; },
       "layer 0 w_q is [65, 32], expected [65, 21]"},
      {"mla_q", [](Weights& w) { w.layers[0].w_q_a = {}; }, "layer 0 w_q_a is missing"},
      {"mla_q", [](Weights& w) { w.layers[0].q_a_norm.weight.size = 20; },
       "layer 0 q_a_norm has 20 elements, expected 21"},
      {"mla", [](Weights& w) { w.layers[1].w_kv_a.matrix.rows = 18; },
       "layer 1 w_kv_a is [18, 32], expected [24, 32]"},
      {"mla", [](Weights& w) { w.layers[1].kv_a_norm = {}; }, "layer 1 kv_a_norm is missing"},
      {"mla", [](Weights& w) { w.layers[1].w_k_b.pop_back(); }, "layer 1 w_k_b has 4 matrices, expected 5"},
      {"mla", [](Weights& w) { w.layers[1].w_k_b[4].rows = 7; },
       "layer 1 head 4 w_k_b is [7, 7], expected [18, 7]"},
      {"mla", [](Weights& w) { w.layers[1].w_v_b[0] = {}; }, "layer 1 head 0 w_v_b is missing"},
      {"mla", [](Weights& w) { w.layers[1].w_v_b[2].cols = 9; },
       "layer 1 head 2 w_v_b is [9, 9], expected [9, 18]"},
      {"mla", [](Weights& w) { w.layers[1].w_o.matrix.cols = 65; },
       "layer 1 w_o is [32, 65], expected [32, 45]"},
      {"borrowed own_head_dims", [](Weights& w) { w.layers[0].w_k = {}; }, "layer 0 w_k is missing"},
      {"borrowed own_head_dims", [](Weights& w) { w.layers[2].w_q = {}; }, "layer 2 w_q is missing"},
      {"borrowed own_head_dims", [](Weights& w) { w.layers[1].w_q.matrix.rows = 48; },
       "layer 1 w_q is [48, 32], expected [96, 32]"},
      {"borrowed own_head_dims", [](Weights& w) { w.layers[1].w_v.matrix.rows = 16; },
       "layer 1 w_v is [16, 32], expected [32, 32]"},
      {"borrowed own_head_dims", [](Weights& w) { w.layers[1].w_o.matrix.cols = 48; },
       "layer 1 w_o is [32, 48], expected [32, 96]"},
      {"own_head_dims head_norms", [](Weights& w) { w.layers[1].k_norm.weight.size = 8; },
       "layer 1 k_norm has 8 elements, expected 16"},
      {"own_head_dims whole_norms", [](Weights& w) { w.layers[1].q_norm.weight.size = 48; },
       "layer 1 q_norm has 48 elements, expected 96"},
      {"layer_inputs", [](Weights& w) { w.layer_embedding.cols = 6; },
       "layer_embedding is [37, 6], expected [37, 12]"},
      {"layer_inputs", [](Weights& w) { w.w_layer_inputs = {}; }, "w_layer_inputs is missing"},
      {"layer_inputs", [](Weights& w) { w.layer_input_norm.weight.size = 12; },
       "layer_input_norm has 12 elements, expected 6"},
      {"layer_inputs", [](Weights& w) { w.layers[1].w_input_gate.matrix.rows = 5; },
       "layer 1 w_input_gate is [5, 32], expected [6, 32]"},
      {"layer_inputs", [](Weights& w) { w.layers[0].w_input_out = {}; }, "layer 0 w_input_out is missing"},
      {"layer_inputs", [](Weights& w) { w.layers[0].input_post_norm = {}; },
       "layer 0 input_post_norm is missing"},
      {"some_experts", [](Weights& w) { w.layers[1].experts.clear(); }, "layer 1 has 0 experts, expected 5"}};
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const RandomModel model(c.words);
    Weights weights = model.weights;
    CHECK(refusal(model.config, weights).empty());
    c.fault(weights);
    CHECK(refusal(model.config, weights) == "weights: " + std::string(c.text));
  }
}

TEST_CASE("check weights: a scale that is not finite is named") {
  const double infinite = std::numeric_limits<double>::infinity();
  Weights weights = RandomModel("experts").weights;
  weights.layers[1].experts[2].w_up.scale = infinite;
  CHECK(refusal(config_of("experts"), weights) ==
        "weights: layer 1 expert 2 w_up scale is inf, expected a finite number");
  weights = RandomModel("gqa").weights;
  weights.layers[0].w_o.scale = -infinite;
  CHECK(refusal(config_of("gqa"), weights) == "weights: layer 0 w_o scale is -inf, expected a finite number");
  weights = RandomModel("gqa").weights;
  weights.layers[1].scale = infinite;
  CHECK(refusal(config_of("gqa"), weights) == "weights: layer 1 scale is inf, expected a finite number");
  weights = RandomModel("gqa").weights;
  weights.head.scale = infinite;
  CHECK(refusal(config_of("gqa"), weights) == "weights: head scale is inf, expected a finite number");
}

TEST_CASE("check weights: a bias that RMSNorm would have to ignore is refused") {
  const RandomModel model("gqa");
  const RandomModel other(kEverything, {.biases = true});
  Weights weights = model.weights;
  weights.layers[1].attention_norm.bias = other.weights.final_norm.bias;
  CHECK(refusal(model.config, weights) ==
        "weights: layer 1 attention_norm bias is given, but RMSNorm has none");
}

TEST_CASE("check weights: the number of layers") {
  const RandomModel model("gqa");
  Weights weights = model.weights;
  weights.layers.pop_back();
  CHECK(refusal(model.config, weights) == "weights: 1 layers, expected 2");
}

TEST_CASE("check weights: a list of fewer formats refuses the others") {
  const RandomModel model("gqa", {.format = FormatId::kF16});
  CHECK(refusal<kvdecode::FormatList<kvdecode::F32, kvdecode::F16>>(model.config, model.weights).empty());
  CHECK(refusal<kvdecode::FormatList<kvdecode::F32>>(model.config, model.weights, ErrorCode::kUnsupported) ==
        "weights: token_embedding is stored as f16, which is not in this transformer's list of formats");
}

TEST_CASE("check weights: tensors that the config has no use for may be missing") {
  for (const char* words : {"plain", "shared", "tied", "rotary"}) {
    CAPTURE(words);
    const ModelConfig config = config_of(words);
    Weights weights = RandomModel(kEverything).weights;
    const std::string_view word = words;
    if (word == "plain") weights.layers[0].w_gate = {};
    if (word == "shared") weights.layers[1].feed_forward_norm = {};
    if (word == "tied") weights.head = {};
    if (word == "rotary") weights.position_embedding = {};
    CHECK(refusal(config, weights).empty());
  }
}

}  // namespace

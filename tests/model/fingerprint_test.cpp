// SPDX-License-Identifier: MIT
#include <support/model.hpp>

#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/model/fingerprint.hpp>
#include <kvdecode/model/transformer.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace kvdecode;
using kvdecode_test::RandomModel;
using kvdecode_test::RandomWeightsOptions;

std::uint64_t fingerprint_of(const ModelConfig& config, const Weights& weights) {
  return fingerprint<CoreFormats>(config, weights);
}

TEST_CASE("fingerprint: every field of a config counts") {
  const Weights none;
  const std::vector<std::function<void(ModelConfig&)>> changes = {
      [](ModelConfig& c) { ++c.n_layers; },
      [](ModelConfig& c) { ++c.d_model; },
      [](ModelConfig& c) { ++c.n_heads; },
      [](ModelConfig& c) { ++c.n_kv_heads; },
      [](ModelConfig& c) { ++c.head_dim; },
      [](ModelConfig& c) { ++c.d_ff; },
      [](ModelConfig& c) { ++c.vocab_size; },
      [](ModelConfig& c) { ++c.max_seq_len; },
      [](ModelConfig& c) { c.norm = NormKind::kLayer; },
      [](ModelConfig& c) { c.norm_eps = 1e-6; },
      [](ModelConfig& c) { c.norm_weight_offset = 1.0; },
      [](ModelConfig& c) { c.norm_placement = NormPlacement::kPost; },
      [](ModelConfig& c) { c.qk_norm = QkNormKind::kWhole; },
      [](ModelConfig& c) { c.value_norm = true; },
      [](ModelConfig& c) { c.activation = Activation::kGelu; },
      [](ModelConfig& c) { c.gated_feed_forward = false; },
      [](ModelConfig& c) { c.residual = ResidualKind::kParallel; },
      [](ModelConfig& c) { c.position = PositionKind::kNone; },
      [](ModelConfig& c) { c.rotary.enabled = false; },
      [](ModelConfig& c) { c.rotary.dim = 4; },
      [](ModelConfig& c) { c.rotary.theta = 500.0; },
      [](ModelConfig& c) { c.rotary.pairs = RotaryPairs::kInterleaved; },
      [](ModelConfig& c) { c.rotary.scaling.kind = RotaryScalingKind::kLinear; },
      [](ModelConfig& c) { c.rotary.scaling.factor = 2.0; },
      [](ModelConfig& c) { c.rotary.scaling.low_freq_factor = 2.0; },
      [](ModelConfig& c) { c.rotary.scaling.high_freq_factor = 2.0; },
      [](ModelConfig& c) { c.rotary.scaling.original_max_seq_len = 2; },
      [](ModelConfig& c) { c.rotary.scaling.beta_fast = 2.0; },
      [](ModelConfig& c) { c.rotary.scaling.beta_slow = 2.0; },
      [](ModelConfig& c) { c.rotary.scaling.round_bounds = false; },
      [](ModelConfig& c) { c.rotary.scaling.magnitude = 2.0; },
      [](ModelConfig& c) { c.rotary.scaling.short_factors = {2.0}; },
      [](ModelConfig& c) {
        c.rotary.scaling.short_factors = {2.0, 2.0};
      },
      [](ModelConfig& c) { c.rotary.scaling.long_factors = {2.0}; },
      [](ModelConfig& c) { ++c.rotary.scaling.n_turning; },
      [](ModelConfig& c) { c.embedding_scale = 2.0; },
      [](ModelConfig& c) { c.attention_scale = 2.0; },
      [](ModelConfig& c) { c.attention_soft_cap = 2.0; },
      [](ModelConfig& c) { c.logit_soft_cap = 2.0; },
      [](ModelConfig& c) { c.tied_head = true; },
      [](ModelConfig& c) { ++c.kv_lora_rank; },
      [](ModelConfig& c) { ++c.q_lora_rank; },
      [](ModelConfig& c) { ++c.qk_nope_head_dim; },
      [](ModelConfig& c) { ++c.v_head_dim; },
      [](ModelConfig& c) { c.latent_norm_eps = 1e-5; },
      [](ModelConfig& c) { ++c.n_experts; },
      [](ModelConfig& c) { ++c.n_experts_used; },
      [](ModelConfig& c) { ++c.d_expert; },
      [](ModelConfig& c) { c.normalize_expert_weights = false; },
      [](ModelConfig& c) { c.expert_weight_scale = 2.0; },
      [](ModelConfig& c) { c.expert_score = ExpertScore::kSigmoid; },
      [](ModelConfig& c) { ++c.n_expert_groups; },
      [](ModelConfig& c) { ++c.n_expert_groups_used; },
      [](ModelConfig& c) { c.expert_group_score = ExpertGroupScore::kTopTwo; },
      [](ModelConfig& c) { ++c.d_shared_expert; },
      [](ModelConfig& c) { ++c.d_layer_input; },
      [](ModelConfig& c) { c.layer_embedding_scale = 2.0; },
      [](ModelConfig& c) {
        c.spans = {{}, {}};
      },
      [](ModelConfig& c) {
        c.spans = {{.window = 2}, {}};
      },
      [](ModelConfig& c) {
        c.spans = {{}, {.window = 2}};
      },
      [](ModelConfig& c) {
        c.spans = {{.n_sink = 2}, {}};
      },
      [](ModelConfig& c) {
        c.spans = {{.chunk = 2}, {}};
      },
      [](ModelConfig& c) {
        c.layer_rotary = {c.rotary, c.rotary};
      },
      [](ModelConfig& c) {
        c.has_experts = {0, 1};
      },
      [](ModelConfig& c) {
        c.has_experts = {1, 0};
      },
      [](ModelConfig& c) {
        c.layer_head_dim = {8, 8};
      },
      [](ModelConfig& c) {
        c.kv_stores = {0, 0};
      },
      [](ModelConfig& c) {
        c.kv_stores = {0, 1};
      },
      [](ModelConfig& c) { c.sink_rotation = SinkRotation::kWithinWindow; },
  };
  const ModelConfig config = kvdecode_test::small_config();
  std::set<std::uint64_t> seen{fingerprint_of(config, none)};
  CHECK(seen.count(0) == 0);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    ModelConfig changed = config;
    changes[i](changed);
    CHECK_MESSAGE(seen.insert(fingerprint_of(changed, none)).second, "change ", i);
  }
}

/// Calls f with the bytes and the number of them of every matrix and vector.
template <class F>
void for_each_tensor(const Weights& weights, Index element_bytes, const F& f) {
  const auto matrix = [&](const MatrixView& m) {
    if (!m.empty()) f(m.data, m.rows * m.cols * element_bytes);
  };
  const auto vector = [&](const VectorView& v) {
    if (!v.empty()) f(v.data, v.size * element_bytes);
  };
  const auto norm = [&](const NormWeights& n) {
    vector(n.weight);
    vector(n.bias);
  };
  const auto linear = [&](const LinearWeights& l) {
    matrix(l.matrix);
    vector(l.bias);
  };
  matrix(weights.token_embedding);
  matrix(weights.position_embedding);
  matrix(weights.layer_embedding);
  linear(weights.w_layer_inputs);
  norm(weights.layer_input_norm);
  for (const LayerWeights& w : weights.layers) {
    for (const NormWeights* n : {&w.attention_norm, &w.q_norm, &w.k_norm, &w.attention_post_norm,
                                 &w.feed_forward_norm, &w.feed_forward_post_norm})
      norm(*n);
    for (const LinearWeights* l :
         {&w.w_q, &w.w_k, &w.w_v, &w.w_o, &w.w_q_a, &w.w_kv_a, &w.w_gate, &w.w_up, &w.w_down, &w.router})
      linear(*l);
    for (const auto* matrices : {&w.w_k_b, &w.w_v_b})
      for (const MatrixView& m : *matrices) f(m.data, m.stored_cols() * element_bytes);
    vector(w.choice_bias);
    for (const NormWeights* n : {&w.q_a_norm, &w.kv_a_norm}) norm(*n);
    const auto expert = [&](const ExpertWeights& e) {
      for (const LinearWeights* l : {&e.w_gate, &e.w_up, &e.w_down}) linear(*l);
    };
    for (const ExpertWeights& e : w.experts) expert(e);
    expert(w.shared_expert);
    for (const LinearWeights* l : {&w.w_input_gate, &w.w_input_out}) linear(*l);
    norm(w.input_post_norm);
  }
  norm(weights.final_norm);
  linear(weights.head);
}

TEST_CASE("fingerprint: the first and the last byte of every tensor count") {
  for (const std::string_view words :
       {"learned layer_norm both_norms head_norms some_experts", "gqa plain tied",
        "mqa raw_experts whole_norms", "mla_q balanced_experts", "borrowed head_norms layer_inputs"}) {
    const RandomModel model(words, {.format = FormatId::kBF16, .biases = true});
    std::set<std::uint64_t> seen{fingerprint_of(model.config, model.weights)};
    Index n_tensors = 0;
    for_each_tensor(model.weights, 2, [&](const std::byte* bytes, Index n) {
      ++n_tensors;
      for (const Index i : {Index{0}, n - 1}) {
        auto& byte = const_cast<std::byte&>(bytes[i]);
        byte ^= std::byte{1};
        CHECK(seen.insert(fingerprint_of(model.config, model.weights)).second);
        byte ^= std::byte{1};
      }
    });
    CHECK(n_tensors > 15);
    CHECK_FALSE(seen.insert(fingerprint_of(model.config, model.weights)).second);
  }
}

TEST_CASE("fingerprint: what is a number of the model counts beside its tensors' bytes") {
  RandomModel model("gqa");
  const std::uint64_t before = fingerprint_of(model.config, model.weights);
  model.weights.layers[1].w_up.scale = 2.0;
  CHECK(fingerprint_of(model.config, model.weights) != before);
  model.weights.layers[1].w_up.scale = 1.0;
  model.weights.layers[1].scale = 2.0;
  CHECK(fingerprint_of(model.config, model.weights) != before);
  model.weights.layers[1].scale = 1.0;
  model.weights.layers[1].w_up.matrix.transposed = true;
  CHECK(fingerprint_of(model.config, model.weights) != before);
  model.weights.layers[1].w_up.matrix.transposed = false;
  CHECK(fingerprint_of(model.config, model.weights) == before);
  std::swap(model.weights.layers[0], model.weights.layers[1]);
  CHECK(fingerprint_of(model.config, model.weights) != before);
}

TEST_CASE("fingerprint: where weights lie and which other formats there could be does not count") {
  const auto of = [](const RandomWeightsOptions& options) {
    const RandomModel model("gqa", options);
    return fingerprint_of(model.config, model.weights);
  };
  const std::uint64_t plain = of({});
  CHECK(of({.offset = 1}) == plain);
  CHECK(of({.row_padding = 3}) == plain);
  CHECK(of({.format = FormatId::kBF16}) != plain);
  CHECK(of({.transposed = true}) != plain);
  const RandomModel model("gqa");
  CHECK(fingerprint<GgufFormats>(model.config, model.weights) == plain);
}

TEST_CASE("fingerprint: a transformer reads its weights for it once") {
  const RandomModel model("gqa");
  const Transformer<float> transformer(model.config, model.weights), copy = transformer;
  const std::uint64_t value = transformer.fingerprint();
  CHECK(value == fingerprint_of(model.config, model.weights));
  CHECK(Transformer<double>(model.config, model.weights).fingerprint() == value);
  const_cast<std::byte&>(model.weights.token_embedding.data[0]) ^= std::byte{1};  // nobody looks
  CHECK(transformer.fingerprint() == value);
  CHECK(copy.fingerprint() == value);
  CHECK(Transformer<float>(model.config, model.weights).fingerprint() != value);
}

}  // namespace

// SPDX-License-Identifier: MIT
// <kvdecode/model/random_weights.hpp> - a model of random numbers, the same ones for the same seed on every
// machine: for tests, benches and first steps without a file.
#pragma once

#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/core/simd/fp_env.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <memory>
#include <span>

namespace kvdecode::inline KVDECODE_ABI {

struct RandomWeightsOptions {
  std::uint64_t seed = 1;
  FormatId format = FormatId::kF32;  // of the matrices; one of kF64, kF32, kF16, kBF16
  bool biases = false;               // biases on every linear layer
};

namespace detail {

/// SplitMix64 (Steele 2014): small, fast and the same everywhere.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t operator()() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// Nearly normal, mean 0 and variance 1: the sum of four uniforms, which needs no logarithm.
  double normal() noexcept {
    double total = 0.0;
    for (int i = 0; i < 4; ++i) total = total + static_cast<double>((*this)() >> 11) * 0x1p-53;
    return (total - 2.0) * 0x1.bb67ae8584caap+0;  // sqrt 3
  }

 private:
  std::uint64_t state_;
};

class RandomNumbers {
 public:
  explicit RandomNumbers(const RandomWeightsOptions& options) : options_(options), random_(options.seed) {
    if (options.format == FormatId::kRaw) [[unlikely]]
      raise(ErrorCode::kBadArgument, "random weights are made in f64, f32, f16 or bf16");
  }

  /// [rows, cols] of deviation 1 / sqrt(cols), so that activations keep their size.
  MatrixView matrix(Weights& weights, Index rows, Index cols) {
    MatrixView view;
    view.format = options_.format;
    view.rows = rows;
    view.cols = cols;
    visit_format(FormatList<F64, F32, F16, BF16>{}, options_.format, [&]<class F>() {
      view.stride = F::row_bytes(cols);
      view.data = numbers<F>(weights, rows * cols, 1.0 / sqrt(static_cast<double>(cols)), 0.0);
    });
    return view;
  }
  VectorView vector(Weights& weights, Index size, double mean) {
    return {FormatId::kF32, numbers<F32>(weights, size, 0.1, mean), size};
  }
  LinearWeights linear(Weights& weights, Index rows, Index cols) {
    LinearWeights result;
    result.matrix = matrix(weights, rows, cols);
    if (options_.biases) result.bias = vector(weights, rows, 0.0);
    return result;
  }
  NormWeights norm(Weights& weights, const ModelConfig& config, Index size) {
    NormWeights result;
    result.weight = vector(weights, size, 1.0 - config.norm_weight_offset);
    if (config.norm == NormKind::kLayer) result.bias = vector(weights, size, 0.0);
    return result;
  }

  /// All of it but w_o.
  void latent_attention(Weights& weights, const ModelConfig& config, LayerWeights& layer) {
    const Index d = config.d_model, rank = config.kv_lora_rank, q_rank = config.q_lora_rank;
    if (q_rank > 0) {
      layer.w_q_a = linear(weights, q_rank, d);
      layer.q_a_norm = norm(weights, config, q_rank);
    }
    layer.w_q = linear(weights, config.n_heads * config.head_dim, q_rank > 0 ? q_rank : d);
    layer.w_kv_a = linear(weights, config.k_dim(), d);
    layer.kv_a_norm = norm(weights, config, rank);
    const Index rows = config.n_heads * (config.qk_nope_head_dim + config.v_head_dim);
    set_kv_b(matrix(weights, rows, rank), config.n_heads, config.qk_nope_head_dim, config.v_head_dim, layer);
  }
  ExpertWeights expert(Weights& weights, const ModelConfig& config, Index d_expert) {
    ExpertWeights result;
    if (config.gated_feed_forward) result.w_gate = linear(weights, d_expert, config.d_model);
    result.w_up = linear(weights, d_expert, config.d_model);
    result.w_down = linear(weights, config.d_model, d_expert);
    return result;
  }

 private:
  template <class F>
  const std::byte* numbers(Weights& weights, Index n, double deviation, double mean) {
    auto block = std::make_shared<Block<std::byte>>(F::row_bytes(n));
    for (Index i = 0; i < n; ++i) {
      const double value = mean + mul(deviation, random_.normal());
      F::encode(&value, 1, block->data() + F::row_bytes(i));
    }
    const std::byte* data = block->data();
    weights.owners.push_back(std::move(block));
    return data;
  }

  RandomWeightsOptions options_;
  SplitMix64 random_;
};

}  // namespace detail

/// Random weights for any config. @throws Error kBadArgument if the config cannot be run, std::bad_alloc
inline Weights random_weights(const ModelConfig& config, const RandomWeightsOptions& options = {}) {
  config.validate();
  return with_default_fp_env([&] {
    detail::RandomNumbers random(options);
    Weights weights;
    const Index d = config.d_model, n_inputs = config.n_layers * config.d_layer_input;
    weights.token_embedding = random.matrix(weights, config.vocab_size, d);
    if (config.position == PositionKind::kLearned)
      weights.position_embedding = random.matrix(weights, config.max_seq_len, d);
    for (Index i = 0; i < config.n_layers; ++i) {
      LayerWeights layer;
      const Index head_dim = config.head_dim_of(i), q_dim = config.n_heads * head_dim,
                  kv_dim = config.n_kv_heads * head_dim;
      const bool pre = config.norm_placement != NormPlacement::kPost,
                 post = config.norm_placement != NormPlacement::kPre;
      if (pre) layer.attention_norm = random.norm(weights, config, d);
      if (config.is_latent()) {
        random.latent_attention(weights, config, layer);
      } else {
        layer.w_q = random.linear(weights, q_dim, d);
        if (config.owns_store(i)) {
          layer.w_k = random.linear(weights, kv_dim, d);
          layer.w_v = random.linear(weights, kv_dim, d);
        }
      }
      layer.w_o = random.linear(weights, d, config.o_dim(head_dim));
      if (config.qk_norm != QkNormKind::kNone) {
        const bool whole = config.qk_norm == QkNormKind::kWhole;
        layer.q_norm = random.norm(weights, config, whole ? q_dim : head_dim);
        if (config.owns_store(i)) layer.k_norm = random.norm(weights, config, whole ? kv_dim : head_dim);
      }
      if (post) layer.attention_post_norm = random.norm(weights, config, d);
      if (pre && config.residual != ResidualKind::kParallelSharedNorm)
        layer.feed_forward_norm = random.norm(weights, config, d);
      if (post) layer.feed_forward_post_norm = random.norm(weights, config, d);
      if (!config.layer_has_experts(i)) {
        if (config.gated_feed_forward) layer.w_gate = random.linear(weights, config.d_ff, d);
        layer.w_up = random.linear(weights, config.d_ff, d);
        layer.w_down = random.linear(weights, d, config.d_ff);
      } else {
        layer.router = random.linear(weights, config.n_experts, d);
        if (config.expert_score == ExpertScore::kSigmoid)
          layer.choice_bias = random.vector(weights, config.n_experts, 0.0);
        for (Index e = 0; e < config.n_experts; ++e)
          layer.experts.push_back(random.expert(weights, config, config.d_expert));
        if (config.d_shared_expert > 0)
          layer.shared_expert = random.expert(weights, config, config.d_shared_expert);
      }
      if (config.d_layer_input > 0) {
        layer.w_input_gate = random.linear(weights, config.d_layer_input, d);
        layer.w_input_out = random.linear(weights, d, config.d_layer_input);
        layer.input_post_norm = random.norm(weights, config, d);
      }
      weights.layers.push_back(std::move(layer));
    }
    if (config.d_layer_input > 0) {
      weights.layer_embedding = random.matrix(weights, config.vocab_size, n_inputs);
      weights.w_layer_inputs = random.linear(weights, n_inputs, d);
      weights.layer_input_norm = random.norm(weights, config, config.d_layer_input);
    }
    weights.final_norm = random.norm(weights, config, d);
    if (!config.tied_head) weights.head.matrix = random.matrix(weights, config.vocab_size, d);
    return weights;
  });
}

}  // namespace kvdecode

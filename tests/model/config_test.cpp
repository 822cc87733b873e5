// SPDX-License-Identifier: MIT
#include <support/model.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/rotary_frequencies.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace {

using kvdecode::AttentionSpan;
using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::Index;
using kvdecode::KvShape;
using kvdecode::ModelConfig;
using kvdecode::PositionKind;
using kvdecode::RotaryScalingKind;
using kvdecode_test::config_of;
using kvdecode_test::kSmallConfigs;
using kvdecode_test::small_config;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The text with which the changed small config is refused; empty if it is not.
std::string refusal(const std::function<void(ModelConfig&)>& change) {
  ModelConfig config = small_config();
  change(config);
  try {
    config.validate();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kBadArgument);
    return error.what();
  }
  return {};
}

TEST_CASE("model config: the small ones can all be run") {
  for (const std::string_view words : kSmallConfigs) {
    CAPTURE(words);
    CHECK_NOTHROW(config_of(words).validate());
  }
}

TEST_CASE("model config: every size has to be positive and sane, and is named") {
  struct Field {
    const char* name;
    Index ModelConfig::*member;
  };
  for (const Field field :
       {Field{"n_layers", &ModelConfig::n_layers}, Field{"d_model", &ModelConfig::d_model},
        Field{"n_heads", &ModelConfig::n_heads}, Field{"n_kv_heads", &ModelConfig::n_kv_heads},
        Field{"head_dim", &ModelConfig::head_dim}, Field{"d_ff", &ModelConfig::d_ff},
        Field{"vocab_size", &ModelConfig::vocab_size}, Field{"max_seq_len", &ModelConfig::max_seq_len}}) {
    const std::string name = field.name;
    CAPTURE(name);
    CHECK(refusal([&](ModelConfig& c) { c.*field.member = 0; }) ==
          "model config: " + name + " must be positive, got 0");
    CHECK(refusal([&](ModelConfig& c) { c.*field.member = -4; }) ==
          "model config: " + name + " must be positive, got -4");
    CHECK(refusal([&](ModelConfig& c) { c.*field.member = (Index{1} << 30) + 1; }) ==
          "model config: " + name + " 1073741825 is beyond any model (2^30)");
    CHECK(refusal([&](ModelConfig& c) { c.*field.member = std::numeric_limits<Index>::max(); }) ==
          "model config: " + name + " 9223372036854775807 is beyond any model (2^30)");
  }
  CHECK(refusal([](ModelConfig& c) { c.n_heads = c.n_kv_heads = c.head_dim = 1 << 20; }) ==
        "model config: n_heads * head_dim 1099511627776 is beyond any model (2^30)");
}

TEST_CASE("model config: no product of sizes comes near to overflow") {
  constexpr Index kLarge = Index{1} << 30;
  const auto beyond = [](const std::string& name) {
    return "model config: " + name + " is beyond any model (2^56)";
  };
  CHECK(refusal([](ModelConfig& c) { c.vocab_size = c.d_model = kLarge; }) == beyond("vocab_size * d_model"));
  CHECK(refusal([](ModelConfig& c) { c.max_seq_len = c.d_model = kLarge; }) ==
        beyond("max_seq_len * d_model"));
  CHECK(refusal([](ModelConfig& c) { c.d_ff = c.d_model = kLarge; }) == beyond("n_layers * d_model * d_ff"));
  CHECK(refusal([](ModelConfig& c) { c.n_layers = c.d_ff = kLarge; }) == beyond("n_layers * d_model * d_ff"));
  CHECK(refusal([](ModelConfig& c) {
          c.n_layers = c.n_heads = kLarge / 8;
          c.n_kv_heads = 1;
        }) == beyond("n_layers * d_model * n_heads * head_dim"));
  CHECK(refusal([](ModelConfig& c) { c.n_layers = c.max_seq_len = kLarge; }) ==
        beyond("n_layers * max_seq_len * n_kv_heads * head_dim"));
  CHECK(refusal([](ModelConfig& c) {
          c.n_experts = c.d_expert = kLarge;
          c.n_experts_used = 1;
        }) == beyond("n_layers * n_experts * d_model * d_expert"));
  // 2^56 numbers are allowed, and one power of two more is not.
  const auto embedding = [](Index vocab_size) {
    return refusal([&](ModelConfig& c) {
      c.d_model = Index{1} << 28;
      c.vocab_size = vocab_size;
      c.d_ff = c.max_seq_len = 1;
    });
  };
  CHECK(embedding(Index{1} << 28).empty());
  CHECK(embedding((Index{1} << 28) + 1) == beyond("vocab_size * d_model"));
}

TEST_CASE("model config: an empty one says what is missing first") {
  CHECK_THROWS_WITH_AS(ModelConfig{}.validate(), "model config: n_layers must be positive, got 0", Error);
}

TEST_CASE("model config: heads come in whole groups") {
  CHECK(refusal([](ModelConfig& c) { c.n_kv_heads = 4; }) ==
        "model config: n_heads 6 is not a multiple of n_kv_heads 4");
  CHECK(refusal([](ModelConfig& c) { c.n_kv_heads = 12; }) ==
        "model config: n_heads 6 is not a multiple of n_kv_heads 12");
}

TEST_CASE("model config: numbers have to be numbers, in their range") {
  CHECK(refusal([](ModelConfig& c) { c.norm_eps = -1e-6; }) ==
        "model config: norm_eps must be in [0, 1], got -1e-06");
  CHECK(refusal([](ModelConfig& c) { c.norm_eps = 1.5; }) ==
        "model config: norm_eps must be in [0, 1], got 1.5");
  CHECK(refusal([](ModelConfig& c) { c.norm_eps = kNaN; }) ==
        "model config: norm_eps must be in [0, 1], got nan");
  CHECK(refusal([](ModelConfig& c) { c.norm_eps = 0.0; }).empty());
  CHECK(refusal([](ModelConfig& c) { c.attention_scale = -1.0; }) ==
        "model config: attention_scale must be in [0, 1e6], got -1");
  CHECK(refusal([](ModelConfig& c) { c.attention_scale = kInfinity; }) ==
        "model config: attention_scale must be in [0, 1e6], got inf");
  CHECK(refusal([](ModelConfig& c) { c.attention_scale = kNaN; }) ==
        "model config: attention_scale must be in [0, 1e6], got nan");
}

TEST_CASE("model config: rotary fields are checked where positions are rotary, and only there") {
  const std::function<void(ModelConfig&)> faults[] = {
      [](ModelConfig& c) { c.rotary.dim = 3; },
      [](ModelConfig& c) { c.rotary.dim = 10; },
      [](ModelConfig& c) { c.rotary.dim = -2; },
      [](ModelConfig& c) { c.head_dim = 5; },
      [](ModelConfig& c) { c.rotary.theta = 0.0; },
      [](ModelConfig& c) { c.rotary.theta = kNaN; },
      [](ModelConfig& c) { c.rotary.theta = 1e31; },
      [](ModelConfig& c) { c.rotary.scaling = {.kind = RotaryScalingKind::kLinear, .factor = 0.0}; },
      [](ModelConfig& c) { c.rotary.scaling = {.kind = RotaryScalingKind::kLinear, .factor = kInfinity}; },
      [](ModelConfig& c) { c.rotary.scaling = {.kind = RotaryScalingKind::kLlama3, .factor = 8.0}; }};
  const std::string texts[] = {
      "model config: the rotary dimension must be even and at most head_dim 8, got 3",
      "model config: the rotary dimension must be even and at most head_dim 8, got 10",
      "model config: the rotary dimension must be even and at most head_dim 8, got -2",
      "model config: the rotary dimension must be even and at most head_dim 5, got 5",
      "model config: rotary theta must be in [1e-30, 1e30], got 0",
      "model config: rotary theta must be in [1e-30, 1e30], got nan",
      "model config: rotary theta must be in [1e-30, 1e30], got 1e+31",
      "model config: rotary scaling factor must be in [1e-30, 1e30], got 0",
      "model config: rotary scaling factor must be in [1e-30, 1e30], got inf",
      "model config: this rotary scaling needs a positive original length, got 0"};
  for (std::size_t i = 0; i < std::size(faults); ++i) {
    CHECK(refusal(faults[i]) == texts[i]);
    CHECK(refusal([&](ModelConfig& c) {
            faults[i](c);
            c.position = i % 2 == 0 ? PositionKind::kLearned : PositionKind::kNone;
          }).empty());
  }
  const auto with = [](kvdecode::RotaryScaling scaling) {
    return refusal([&](ModelConfig& c) { c.rotary.scaling = scaling; });
  };
  CHECK(with({.kind = RotaryScalingKind::kLlama3,
              .factor = 8.0,
              .low_freq_factor = 4.0,
              .high_freq_factor = 4.0,
              .original_max_seq_len = 64}) ==
        "model config: llama3 rotary scaling needs 0 < low_freq_factor < high_freq_factor, got 4 and 4");
  CHECK(with({.kind = RotaryScalingKind::kDynamic, .factor = 2.0}) ==
        "model config: this rotary scaling needs a positive original length, got 0");
  CHECK(
      with({.kind = RotaryScalingKind::kYarn, .factor = 2.0, .original_max_seq_len = 64, .beta_fast = 0.0}) ==
      "model config: yarn's beta_fast must be in [1e-30, 1e30], got 0");
  CHECK(
      with({.kind = RotaryScalingKind::kLongrope, .original_max_seq_len = 64, .short_factors = {1, 1, 1}}) ==
      "model config: short_factors has 3 entries, expected 4");
  CHECK(with({.kind = RotaryScalingKind::kLongrope,
              .original_max_seq_len = 64,
              .short_factors = {1, 1, 1, 1},
              .long_factors = {1, 1, 0, 1}}) == "model config: long_factors must be in [1e-30, 1e30], got 0");
  CHECK(with({.kind = RotaryScalingKind::kDivisors, .short_factors = {1, 1, 1, 1, 1}}) ==
        "model config: short_factors has 5 entries, expected 4");
  CHECK(with({.magnitude = 0.0}) == "model config: rotary magnitude must be in [1e-30, 1e30], got 0");
  CHECK(refusal([](ModelConfig& c) {
          c.rotary.dim = 2;
          c.rotary.scaling = {.kind = RotaryScalingKind::kDynamic, .factor = 2.0, .original_max_seq_len = 9};
        }) == "model config: dynamic rotary scaling needs a rotary dimension above 2, got 2");
}

TEST_CASE("model config: numbers of rotary positions at the ends of their ranges give finite angles") {
  using enum RotaryScalingKind;
  const auto refused = [](double x, const std::function<double&(ModelConfig&)>& field) {
    return !refusal([&](ModelConfig& c) {
              c.rotary.scaling = {.kind = kYarn, .factor = 2.0, .original_max_seq_len = 64};
              field(c) = x;
            }).empty();
  };
  for (const auto& field : std::vector<std::function<double&(ModelConfig&)>>{
           [](ModelConfig& c) -> double& { return c.rotary.theta; },
           [](ModelConfig& c) -> double& { return c.rotary.scaling.factor; },
           [](ModelConfig& c) -> double& { return c.rotary.scaling.magnitude; },
           [](ModelConfig& c) -> double& { return c.rotary.scaling.beta_fast; },
           [](ModelConfig& c) -> double& { return c.rotary.scaling.beta_slow; }}) {
    for (const double x : {0.0, 9e-31, 1.1e30, -1.0, 1e-320, kInfinity, kNaN}) CHECK(refused(x, field));
    for (const double x : {1e-30, 0.5, 1e30}) CHECK(!refused(x, field));
  }
  CHECK(refusal([](ModelConfig& c) {
          c.rotary.theta = 1.0;
          c.rotary.scaling = {.kind = kYarn, .factor = 2.0, .original_max_seq_len = 64};
        }) == "model config: yarn needs a rotary theta other than 1");

  for (const RotaryScalingKind kind : {kDynamic, kYarn, kLongrope, kLlama3})
    CHECK(refusal([&](ModelConfig& c) {
            c.rotary.scaling = {.kind = kind, .original_max_seq_len = (Index{1} << 30) + 1};
          }) == "model config: original_max_seq_len 1073741825 is beyond any model (2^30)");

  for (const RotaryScalingKind kind : {kNone, kLinear, kDynamic, kYarn, kLongrope, kLlama3, kDivisors}) {
    for (const double theta : {1e-30, 0.999999999999, 1.0000000000001, 1e30}) {
      for (const double x : {1e-30, 1.0, 1e30}) {
        for (const Index length : {Index{1}, Index{1} << 30}) {
          CAPTURE(theta);
          CAPTURE(x);
          CAPTURE(length);
          ModelConfig config = small_config();
          config.rotary.theta = theta;
          config.rotary.scaling = {.kind = kind,
                                   .factor = x,
                                   .low_freq_factor = x,
                                   .high_freq_factor = 1.5 * x,
                                   .original_max_seq_len = length,
                                   .beta_fast = x,
                                   .beta_slow = x,
                                   .short_factors = {x, x, x, x},
                                   .long_factors = {x, x, x, x}};
          if (kind == kLlama3 && x == 1e30) config.rotary.scaling.high_freq_factor = 1e30;
          try {
            config.validate();
          } catch (const Error&) {
            CHECK(kind == kLlama3);
            continue;
          }
          double frequencies[4];
          for (const Index epoch : {Index{0}, Index{1}}) {
            kvdecode::rotary_frequencies(config.rotary, 8, epoch, frequencies);
            for (const double f : frequencies) CHECK((f >= 0.0 && f < kInfinity));
          }
        }
      }
    }
  }
}

TEST_CASE("model config: what may differ by layer has one entry a layer") {
  CHECK(refusal([](ModelConfig& c) { c.layer_rotary.resize(3); }) ==
        "model config: 3 rotary configs for 2 layers");
  CHECK(refusal([](ModelConfig& c) { c.has_experts = {1}; }) ==
        "model config: 1 entries of has_experts for 2 layers");
  CHECK(refusal([](ModelConfig& c) {
          c.layer_rotary.resize(2);
          c.layer_rotary[1].theta = -1.0;
        }) == "model config: rotary theta must be in [1e-30, 1e30], got -1");
  CHECK(refusal([](ModelConfig& c) {
          c.layer_rotary.resize(2);
          for (auto& rotary : c.layer_rotary)
            rotary.scaling = {.kind = RotaryScalingKind::kDynamic, .factor = 2.0, .original_max_seq_len = 9};
          c.layer_rotary[1].scaling.factor = 3.0;
        }) == "model config: layers differ in a rotary scaling that depends on the length");
}

TEST_CASE("model config: the switches of other families are checked too") {
  CHECK(refusal([](ModelConfig& c) { c.attention_soft_cap = -1.0; }) ==
        "model config: soft caps must not be negative, got -1 and 0");
  CHECK(refusal([](ModelConfig& c) { c.logit_soft_cap = kNaN; }) ==
        "model config: soft caps must not be negative, got 0 and nan");
  CHECK(refusal([](ModelConfig& c) { c.embedding_scale = 0.0; }) ==
        "model config: embedding_scale must be positive, got 0");
  CHECK(refusal([](ModelConfig& c) { c.norm_weight_offset = kInfinity; }) ==
        "model config: norm_weight_offset must be a moderate number, got inf");
  CHECK(refusal([](ModelConfig& c) {
          c.norm_placement = kvdecode::NormPlacement::kBoth;
          c.residual = kvdecode::ResidualKind::kParallel;
        }) == "model config: norms after the branches need a sequential residual");
  CHECK(refusal([](ModelConfig& c) { c.n_experts = -1; }) ==
        "model config: n_experts must be positive, got -1");
  CHECK(refusal([](ModelConfig& c) { c.n_experts = 4; }) == "model config: d_expert must be positive, got 0");
  CHECK(refusal([](ModelConfig& c) {
          c.n_experts = 4;
          c.d_expert = 8;
          c.n_experts_used = 5;
        }) == "model config: n_experts_used must be in [1, n_experts 4], got 5");
}

TEST_CASE("model config: latent attention says what it needs") {
  const auto refusal_of = [](const std::function<void(ModelConfig&)>& change,
                             std::string_view words = "mla_q") {
    return refusal([&](ModelConfig& c) {
      c = config_of(words);
      change(c);
    });
  };
  const std::string alone =
      "model config: q_lora_rank, qk_nope_head_dim and v_head_dim need a kv_lora_rank, got ";
  CHECK(refusal_of([](ModelConfig& c) { c.q_lora_rank = 4; }, "gqa") == alone + "4, 0 and 0");
  CHECK(refusal_of([](ModelConfig& c) { c.qk_nope_head_dim = 4; }, "gqa") == alone + "0, 4 and 0");
  CHECK(refusal_of([](ModelConfig& c) { c.kv_lora_rank = 0; }) == alone + "21, 7 and 9");
  CHECK(refusal_of([](ModelConfig& c) { c.kv_lora_rank = -1; }) ==
        "model config: kv_lora_rank must be positive, got -1");
  CHECK(refusal_of([](ModelConfig& c) { c.q_lora_rank = -1; }) ==
        "model config: q_lora_rank must be positive, got -1");
  CHECK(refusal_of([](ModelConfig& c) { c.v_head_dim = 0; }) ==
        "model config: v_head_dim must be positive, got 0");
  CHECK(refusal_of([](ModelConfig& c) { c.qk_nope_head_dim = 0; }) ==
        "model config: qk_nope_head_dim must be positive, got 0");
  CHECK(refusal_of([](ModelConfig& c) { c.qk_nope_head_dim = 13; }) ==
        "model config: qk_nope_head_dim 13 leaves no elements of head_dim 13 that turn");
  CHECK(refusal_of([](ModelConfig& c) { c.n_kv_heads = 5; }) ==
        "model config: the heads of a latent are one KV head, got n_kv_heads 5");
  CHECK(refusal_of([](ModelConfig& c) { c.qk_norm = kvdecode::QkNormKind::kWhole; }) ==
        "model config: latent attention has no norms of queries, keys and values");
  CHECK(refusal_of([](ModelConfig& c) { c.latent_norm_eps = kNaN; }) ==
        "model config: latent_norm_eps must be in [0, 1], got nan");
  CHECK(refusal_of([](ModelConfig& c) { c.rotary.dim = 8; }) ==
        "model config: the rotary dimension must be even and at most qk_rope_head_dim 6, got 8");
  constexpr Index kLarge = Index{1} << 30;
  const auto beyond = [](const std::string& name, const char* limit) {
    return "model config: " + name + " is beyond any model (" + limit + ")";
  };
  CHECK(refusal_of([](ModelConfig& c) { c.kv_lora_rank = kLarge; }) ==
        beyond("n_heads * (kv_lora_rank + qk_rope_head_dim) 5368709150", "2^30"));
  CHECK(refusal_of([](ModelConfig& c) { c.v_head_dim = kLarge; }) ==
        beyond("n_heads * v_head_dim 5368709120", "2^30"));
  CHECK(refusal_of([](ModelConfig& c) {
          c.n_layers = 1 << 22;
          c.v_head_dim = 1 << 27;
        }) == beyond("n_layers * d_model * n_heads * v_head_dim", "2^56"));
  CHECK(refusal_of([](ModelConfig& c) {
          c.d_model = 1;
          c.kv_lora_rank = c.v_head_dim = 1 << 27;
        }) == beyond("n_layers * kv_lora_rank * n_heads * (qk_nope_head_dim + v_head_dim)", "2^56"));
  CHECK(refusal_of([](ModelConfig& c) {
          c.d_model = c.qk_nope_head_dim = c.v_head_dim = c.n_heads = c.n_kv_heads = 1;
          c.q_lora_rank = 0;
          c.max_seq_len = 1 << 28;
          c.kv_lora_rank = 1 << 29;
        }) == beyond("n_layers * max_seq_len * (kv_lora_rank + qk_rope_head_dim)", "2^56"));
  CHECK(refusal_of([](ModelConfig& c) {
          c.d_model = 1;
          c.n_heads = 1 << 24;
          c.q_lora_rank = kLarge;
        }) == beyond("n_layers * q_lora_rank * (d_model or n_heads * head_dim)", "2^56"));
}

TEST_CASE("model config: groups of experts, their weights and the shared one say what they need") {
  const auto refusal_of = [](const std::function<void(ModelConfig&)>& change) {
    return refusal([&](ModelConfig& c) {
      c = config_of("balanced_experts");
      change(c);
    });
  };
  CHECK(refusal_of([](ModelConfig&) {}).empty());
  for (const Index n : {0, -1, 3, 16})
    CHECK(refusal_of([n](ModelConfig& c) { c.n_expert_groups = n; }) ==
          "model config: n_expert_groups must divide n_experts 8, got " + std::to_string(n));
  for (const Index n : {0, 5})
    CHECK(refusal_of([n](ModelConfig& c) { c.n_expert_groups_used = n; }) ==
          "model config: n_expert_groups_used must be in [1, n_expert_groups 4], got " + std::to_string(n));
  CHECK(refusal_of([](ModelConfig& c) { c.n_expert_groups_used = 1; }) ==
        "model config: 1 groups of 2 experts have not n_experts_used 3");
  CHECK(refusal_of([](ModelConfig& c) {
          c.n_expert_groups = 8;
          c.n_expert_groups_used = 7;
        }) == "model config: groups of 1 expert have no best two");
  CHECK(refusal_of([](ModelConfig& c) { c.n_expert_groups = c.n_expert_groups_used = 8; }).empty());
  for (const double bad : {0.0, -1.0, kNaN, kInfinity})
    CHECK(refusal_of([bad](ModelConfig& c) {
            c.expert_weight_scale = bad;
          }).starts_with("model config: expert_weight_scale must be positive, got "));
  CHECK(refusal_of([](ModelConfig& c) { c.d_shared_expert = -1; }) ==
        "model config: d_shared_expert must be positive, got -1");
  CHECK(refusal_of([](ModelConfig& c) {
          c.d_model = 1 << 27;
          c.vocab_size = c.max_seq_len = c.d_ff = c.d_expert = 1;
          c.n_heads = c.n_kv_heads = c.head_dim = 1;
          c.position = kvdecode::PositionKind::kNone;
          c.d_shared_expert = 1 << 30;
        }) == "model config: n_layers * d_model * d_shared_expert is beyond any model (2^56)");
}

TEST_CASE("model config: the cache of a latent model has rows of the latent and the keys that turn") {
  const kvdecode::KvShape shape = config_of("mla_q mixed_sinks").kv_shape();
  CHECK(shape[1] == kvdecode::LayerKvShape{1, 24, 18, {.window = 6, .n_sink = 2}, 1, true});
  CHECK(config_of("gqa").kv_shape()[1] == kvdecode::LayerKvShape{2, 8, 8, {}, 1, false});
  CHECK(config_of("mla").o_dim() == 45);
  CHECK(config_of("mla").rotary_dim() == 6);
}

TEST_CASE("model config: every rotary scaling says what it needs") {
  using enum RotaryScalingKind;
  const auto with = [](const kvdecode::RotaryScaling& scaling) {
    return refusal([&](ModelConfig& c) { c.rotary.scaling = scaling; });
  };
  const std::vector<double> four{1, 2, 3, 4};
  CHECK(with({.kind = kYarn, .factor = 2.0, .original_max_seq_len = 64}).empty());
  CHECK(with({.kind = kDynamic, .factor = 2.0, .original_max_seq_len = 64}).empty());
  CHECK(with({.kind = kLongrope, .original_max_seq_len = 64, .short_factors = four, .long_factors = four})
            .empty());
  CHECK(with({.kind = kDivisors, .short_factors = four}).empty());
  for (const RotaryScalingKind kind : {kYarn, kDynamic, kLongrope})
    CHECK(with({.kind = kind, .short_factors = four, .long_factors = four}) ==
          "model config: this rotary scaling needs a positive original length, got 0");
  CHECK(with({.kind = kYarn, .original_max_seq_len = 64, .beta_fast = 0.0}) ==
        "model config: yarn's beta_fast must be in [1e-30, 1e30], got 0");
  CHECK(with({.kind = kYarn, .original_max_seq_len = 64, .beta_slow = kNaN}) ==
        "model config: yarn's beta_slow must be in [1e-30, 1e30], got nan");
  CHECK(
      with({.kind = kLongrope, .original_max_seq_len = 64, .short_factors = {1, 2}, .long_factors = four}) ==
      "model config: short_factors has 2 entries, expected 4");
  CHECK(with({.kind = kLongrope, .original_max_seq_len = 64, .short_factors = four}) ==
        "model config: long_factors has 0 entries, expected 4");
  CHECK(with({.kind = kDivisors, .short_factors = {1, 2, 0, 4}}) ==
        "model config: short_factors must be in [1e-30, 1e30], got 0");
  CHECK(with({.kind = kDivisors, .short_factors = {1, 2, 3, kInfinity}}) ==
        "model config: short_factors must be in [1e-30, 1e30], got inf");
  CHECK(with({.magnitude = 0.0}) == "model config: rotary magnitude must be in [1e-30, 1e30], got 0");
  CHECK(with({.magnitude = kInfinity}) == "model config: rotary magnitude must be in [1e-30, 1e30], got inf");
  CHECK(refusal([](ModelConfig& c) {
          c.rotary.dim = 2;
          c.rotary.scaling = {.kind = kDynamic, .original_max_seq_len = 64};
        }) == "model config: dynamic rotary scaling needs a rotary dimension above 2, got 2");
}

TEST_CASE(
    "model config: layers may differ in their rotary positions, but not in how they depend on the length") {
  CHECK(refusal([](ModelConfig& c) { c.layer_rotary.resize(1); }) ==
        "model config: 1 rotary configs for 2 layers");
  CHECK(refusal([](ModelConfig& c) {
          c.layer_rotary.resize(2);
          c.layer_rotary[1].theta = -1.0;
        }) == "model config: rotary theta must be in [1e-30, 1e30], got -1");
  ModelConfig config = config_of("dynamic own_angles");
  CHECK_NOTHROW(config.validate());
  CHECK(config.rotary_epoch(9) == 0);
  CHECK(config.rotary_epoch(12) == 3);
  config.layer_rotary[1] = config.layer_rotary[0];
  CHECK_NOTHROW(config.validate());
  config.layer_rotary[1].scaling.factor = 3.0;
  CHECK_THROWS_WITH_AS(config.validate(),
                       "model config: layers differ in a rotary scaling that depends on the length", Error);
}

TEST_CASE("model config: the epoch is a matter of rotary positions") {
  CHECK(config_of("dynamic").rotary_epoch(9) == 0);
  CHECK(config_of("dynamic").rotary_epoch(10) == 1);
  CHECK(config_of("dynamic").rotary_epoch(300) == 291);
  CHECK(config_of("longrope").rotary_epoch(9) == 0);
  CHECK(config_of("longrope").rotary_epoch(10) == 1);
  CHECK(config_of("longrope").rotary_epoch(300) == 1);
  for (const char* const words : {"gqa", "linear", "llama3", "yarn", "divisors", "dynamic learned",
                                  "longrope no_positions", "own_angles"}) {
    CAPTURE(words);
    CHECK(config_of(words).rotary_epoch(300) == 0);
  }
}

TEST_CASE("model config: norms, caps, scales and experts are checked") {
  CHECK(refusal([](ModelConfig& c) {
          c.norm_placement = kvdecode::NormPlacement::kPost;
          c.residual = kvdecode::ResidualKind::kParallel;
        }) == "model config: norms after the branches need a sequential residual");
  CHECK(refusal([](ModelConfig& c) { c.norm_weight_offset = kNaN; }) ==
        "model config: norm_weight_offset must be a moderate number, got nan");
  CHECK(refusal([](ModelConfig& c) { c.attention_soft_cap = -1.0; }) ==
        "model config: soft caps must not be negative, got -1 and 0");
  CHECK(refusal([](ModelConfig& c) { c.logit_soft_cap = kInfinity; }) ==
        "model config: soft caps must not be negative, got 0 and inf");
  CHECK(refusal([](ModelConfig& c) { c.embedding_scale = 0.0; }) ==
        "model config: embedding_scale must be positive, got 0");
  const auto experts = [](Index n, Index n_used, Index d_expert) {
    return refusal([&](ModelConfig& c) {
      c.n_experts = n;
      c.n_experts_used = n_used;
      c.d_expert = d_expert;
    });
  };
  CHECK(experts(4, 4, 8).empty());
  CHECK(experts(-1, 1, 8) == "model config: n_experts must be positive, got -1");
  CHECK(experts(4, 1, 0) == "model config: d_expert must be positive, got 0");
  CHECK(experts(4, 0, 8) == "model config: n_experts_used must be in [1, n_experts 4], got 0");
  CHECK(experts(4, 5, 8) == "model config: n_experts_used must be in [1, n_experts 4], got 5");
  CHECK(refusal([](ModelConfig& c) { c.has_experts = {1}; }) ==
        "model config: 1 entries of has_experts for 2 layers");
  const ModelConfig config = config_of("some_experts");
  CHECK(!config.layer_has_experts(0));
  CHECK(config.layer_has_experts(1));
  CHECK(config_of("experts").layer_has_experts(0));
  CHECK(!config_of("gqa").layer_has_experts(0));
}

TEST_CASE("model config: attention spans fit the layers and one another") {
  const auto with = [](std::vector<AttentionSpan> spans) {
    return refusal([&](ModelConfig& c) { c.spans = spans; });
  };
  CHECK(with({{}, {}}).empty());
  CHECK(with({{}}) == "model config: 1 attention spans for 2 layers");
  CHECK(with({{}, {}, {}}) == "model config: 3 attention spans for 2 layers");
  CHECK(with({{}, {.window = -1}}) == "model config: an attention span has a negative field");
  CHECK(with({{}, {.window = 4, .n_sink = -1}}) == "model config: an attention span has a negative field");
  CHECK(with({{.chunk = -1}, {}}) == "model config: an attention span has a negative field");
  constexpr Index kLarge = Index{1} << 48, kMax = std::numeric_limits<Index>::max();
  CHECK(with({{.window = kLarge, .n_sink = kLarge}, {.chunk = kLarge}}).empty());
  CHECK(with({{.window = kMax}, {}}) ==
        "model config: an attention span of window 9223372036854775807, n_sink 0 and chunk 0 is beyond any "
        "sequence (2^48)");
  CHECK(with({{}, {.window = 4, .n_sink = kLarge + 1}}).find("n_sink 281474976710657") != std::string::npos);
  CHECK(with({{}, {.chunk = kLarge + 1}}).find("chunk 281474976710657") != std::string::npos);
  CHECK(with({{.n_sink = 2}, {}}) == "model config: n_sink 2 needs a window");
  CHECK(with({{.window = 4, .chunk = 8}, {}}) ==
        "model config: a chunked span (8) excludes window and sinks");
}

TEST_CASE("model config: what follows from its fields") {
  ModelConfig config = small_config();
  CHECK(config.group_size() == 3);
  CHECK(config.rotary_dim() == 8);
  config.rotary.dim = 4;
  CHECK(config.rotary_dim() == 4);
  config.position = PositionKind::kNone;
  CHECK(config.rotary_dim() == 0);
  CHECK(config.span(1) == AttentionSpan{});
  CHECK(config.rotary_epoch(1000000) == 0);
  config.spans = {{.window = 3}, {.chunk = 2}};
  CHECK(config.span(1) == AttentionSpan{.chunk = 2});
}

TEST_CASE("model config: kv_shape is what a cache has to hold, layer by layer") {
  const KvShape shape = config_of("mixed").kv_shape();
  CHECK(shape == KvShape{{{2, 8, 8, {.window = 5}, 0}, {2, 8, 8, {}, 1}}});
  CHECK(config_of("mqa hd12 learned").kv_shape() == KvShape{{{1, 12, 12, {}, 0}, {1, 12, 12, {}, 1}}});
}

TEST_CASE(
    "model config: layers may have heads of their own length, and read the keys and values of earlier ones") {
  const ModelConfig config = config_of("borrowed own_head_dims mixed");
  CHECK(config.kv_shape() ==
        KvShape{{{2, 8, 8, {.window = 5}, 0}, {2, 16, 16, {}, 1}, {2, 8, 8, {.window = 5}, 0}}});
  CHECK(config.max_head_dim() == 16);
  CHECK(config.rotary_dim_of(0) == 8);
  CHECK(config.rotary_dim_of(1) == 16);
  CHECK(config.owns_store(1));
  CHECK(!config.owns_store(2));
  CHECK(config_of("gqa").max_head_dim() == 8);
  const auto refused = [](std::string_view words, const std::function<void(ModelConfig&)>& change) {
    return refusal([&](ModelConfig& c) {
      c = config_of(words);
      change(c);
    });
  };
  const std::string reads = "model config: layer 2 reads the keys and values of layer ";
  const auto stores = [&](std::vector<Index> kv_stores) {
    return refused("borrowed", [&](ModelConfig& c) { c.kv_stores = kv_stores; });
  };
  CHECK(stores({0, 0, 0}).empty());
  CHECK(stores({0, 1, 2}).empty());
  CHECK(stores({0, 1}) == "model config: 2 stores of keys and values for 3 layers");
  for (const Index store : {Index{-1}, Index{3}, std::numeric_limits<Index>::max()})
    CHECK(stores({0, 1, store}) ==
          reads + std::to_string(store) + ", which is no earlier layer that has its own");
  CHECK(stores({2, 1, 2}) ==
        "model config: layer 0 reads the keys and values of layer 2, which is no earlier layer that has its "
        "own");
  CHECK(stores({0, 0, 1}) == reads + "1, which is no earlier layer that has its own");
  CHECK(refused("borrowed mixed", [](ModelConfig& c) {
          c.kv_stores = {0, 1, 1};
        }) == reads + "1, but differs from it in its attention span");
  CHECK(refused("borrowed own_angles", [](ModelConfig& c) {
          c.kv_stores = {0, 1, 1};
        }) == reads + "1, but differs from it in its rotary positions");
  CHECK(refused("borrowed own_head_dims", [](ModelConfig& c) {
          c.kv_stores = {0, 1, 1};
        }) == reads + "1, but differs from it in head_dim");
  CHECK(refused("borrowed mla", [](ModelConfig&) {}) == reads + "0, but latents are not shared");

  CHECK(refusal([](ModelConfig& c) { c.layer_head_dim = {8}; }) ==
        "model config: 1 head dimensions for 2 layers");
  CHECK(refusal([](ModelConfig& c) {
          c.layer_head_dim = {8, 0};
        }) == "model config: layer_head_dim must be positive, got 0");
  CHECK(refusal([](ModelConfig& c) {
          c.layer_head_dim = {8, Index{1} << 30};
        }) == "model config: n_heads * layer_head_dim 6442450944 is beyond any model (2^30)");
  CHECK(refusal([](ModelConfig& c) {
          c.layer_head_dim = {8, 1 << 26};
          c.d_model = 1 << 28;
          c.vocab_size = c.max_seq_len = c.d_ff = 1;
        }) == "model config: n_layers * d_model * n_heads * layer_head_dim is beyond any model (2^56)");
  CHECK(refusal([](ModelConfig& c) {
          c.layer_head_dim = {8, 1 << 26};
          c.d_model = 1;
          c.max_seq_len = 1 << 30;
        }) ==
        "model config: n_layers * max_seq_len * n_kv_heads * layer_head_dim is beyond any model (2^56)");
  CHECK(refusal([](ModelConfig& c) {
          c.layer_head_dim = {8, 7};
        }) == "model config: the rotary dimension must be even and at most head_dim 7, got 7");
  CHECK(refusal([](ModelConfig& c) {
          c.layer_head_dim = {8, 6};
          c.rotary.dim = 8;
        }) == "model config: the rotary dimension must be even and at most head_dim 6, got 8");
  CHECK(refused("mla own_head_dims", [](ModelConfig&) {}) ==
        "model config: latent attention has one head_dim for all layers");
  CHECK(refused("mla value_norm", [](ModelConfig&) {}) ==
        "model config: latent attention has no norms of queries, keys and values");
  for (const Index n_turning : {-1, 5})
    CHECK(refused("standing", [&](ModelConfig& c) { c.rotary.scaling.n_turning = n_turning; }) ==
          "model config: of 4 rotary pairs " + std::to_string(n_turning) + " cannot turn");
}

TEST_CASE("model config: inputs of layers are of sane sizes") {
  const auto refused = [](const std::function<void(ModelConfig&)>& change) {
    return refusal([&](ModelConfig& c) {
      c = config_of("layer_inputs");
      change(c);
    });
  };
  CHECK(refused([](ModelConfig& c) { c.d_layer_input = -1; }) ==
        "model config: d_layer_input must be positive, got -1");
  CHECK(refused([](ModelConfig& c) { c.d_layer_input = 1 << 30; }) ==
        "model config: n_layers * d_layer_input 2147483648 is beyond any model (2^30)");
  CHECK(refused([](ModelConfig& c) {
          c.d_layer_input = 1 << 29;
          c.vocab_size = 1 << 27;
          c.d_model = 1;
        }) == "model config: vocab_size * n_layers * d_layer_input is beyond any model (2^56)");
  CHECK(refused([](ModelConfig& c) {
          c.d_layer_input = 1 << 29;
          c.d_model = 1 << 27;
          c.vocab_size = c.max_seq_len = c.d_ff = 1;
          c.n_heads = c.n_kv_heads = 1;
        }) == "model config: d_model * n_layers * d_layer_input is beyond any model (2^56)");
  for (const double bad : {0.0, -1.0, kNaN, kInfinity})
    CHECK(refused([bad](ModelConfig& c) {
            c.layer_embedding_scale = bad;
          }).starts_with("model config: layer_embedding_scale must be positive, got "));
}

TEST_CASE("model config: with_streaming gives every layer the same sinks and window") {
  const ModelConfig config = kvdecode::with_streaming(config_of("mixed"), 4, 60);
  CHECK(config.spans == std::vector<AttentionSpan>(2, {.window = 60, .n_sink = 4}));
  CHECK(config.sink_rotation == kvdecode::SinkRotation::kWithinWindow);
  CHECK_NOTHROW(config.validate());
  CHECK_NOTHROW(kvdecode::with_streaming(small_config(), 0, 1).validate());
  CHECK_THROWS_WITH_AS(kvdecode::with_streaming(small_config(), 4, 0),
                       "streaming needs window > 0 and n_sink >= 0, got window 0, n_sink 4", Error);
  CHECK_THROWS_WITH_AS(kvdecode::with_streaming(small_config(), -1, 9),
                       "streaming needs window > 0 and n_sink >= 0, got window 9, n_sink -1", Error);
  for (const Index n_layers : {Index{-1}, Index{0}, std::numeric_limits<Index>::min()}) {
    ModelConfig negative = small_config();
    negative.n_layers = n_layers;
    CHECK_THROWS_WITH_AS(kvdecode::with_streaming(negative, 4, 60),
                         ("model config: n_layers must be positive, got " + std::to_string(n_layers)).c_str(),
                         Error);
  }
  ModelConfig deep = small_config();
  deep.n_layers = std::numeric_limits<Index>::max();
  CHECK_THROWS_AS(kvdecode::with_streaming(deep, 4, 60), Error);
}

}  // namespace

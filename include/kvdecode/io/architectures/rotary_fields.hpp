// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/rotary_fields.hpp> - rotary positions in config.json: rope_theta and rope_scaling as
// transformers 4 writes them, rope_parameters, which holds both, as transformers 5 does.
#pragma once

#include <kvdecode/io/architectures/fields.hpp>
#include <kvdecode/io/json_object.hpp>

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// What a family has of its own in its rotary positions.
struct RotaryRules {
  double theta = 10000.0;  // of a config that names none
  std::string_view theta_field = "rope_theta";
  double partial = 0.0;            // part of a head that turns if the config is silent; 0: always all of it
  Index original_max_seq_len = 0;  // likewise; 0: max_position_embeddings
  bool longrope_only = false;      // "su" and "yarn" are older names for longrope
};

/// The length trained on: in the object itself, beside it, or the family's default.
inline Index read_original_length(JsonObject& fields, JsonObject& rope, const RotaryRules& rules,
                                  const ModelConfig& model) {
  constexpr std::string_view kName = "original_max_position_embeddings";
  std::optional<Index> beside = fields.as_positive_integer(kName);
  if (!beside && rules.original_max_seq_len != 0) beside = rules.original_max_seq_len;
  return same_of(fields, kName, beside, rope.name_of(kName), rope.as_positive_integer(kName))
      .value_or(model.max_seq_len);
}

/// How much longer than trained on: as given, or by the lengths.
inline double read_factor(JsonObject& rope, const ModelConfig& model, Index original) {
  return rope.positive_number("factor",
                              static_cast<double>(model.max_seq_len) / static_cast<double>(original));
}

/// What cosines and sines are multiplied by. Peng 2023, Eq. 22: sqrt(1/t) = 0.1 ln(s) + 1; DeepSeek scales the
/// logarithm.
inline double yarn_magnitude(double factor, double scale) {
  return factor <= 1.0 ? 1.0 : mul(mul(0.1, scale), log(factor)) + 1.0;
}

inline void read_yarn(JsonObject& fields, JsonObject& rope, const RotaryRules& rules,
                      const ModelConfig& model, RotaryScaling& scaling) {
  scaling.kind = RotaryScalingKind::kYarn;
  scaling.original_max_seq_len = read_original_length(fields, rope, rules, model);
  scaling.factor = read_factor(rope, model, scaling.original_max_seq_len);
  scaling.beta_fast = rope.positive_number("beta_fast", scaling.beta_fast);
  scaling.beta_slow = rope.positive_number("beta_slow", scaling.beta_slow);
  scaling.round_bounds = rope.boolean("truncate", true);
  const double scale = rope.as_number("mscale").value_or(0.0);
  const double scale_all = rope.as_number("mscale_all_dim").value_or(0.0);
  scaling.magnitude = scale != 0.0 && scale_all != 0.0
                          ? yarn_magnitude(scaling.factor, scale) / yarn_magnitude(scaling.factor, scale_all)
                          : yarn_magnitude(scaling.factor, 1.0);
  scaling.magnitude = rope.positive_number("attention_factor", scaling.magnitude);
}

/// Ding 2024 (LongRoPE).
inline void read_longrope(JsonObject& fields, JsonObject& rope, const RotaryRules& rules,
                          const ModelConfig& model, RotaryScaling& scaling) {
  const auto factors = [&](std::string_view name) {
    std::optional<std::vector<double>> list = rope.as_positive_numbers(name);
    if (!list) [[unlikely]]
      raise(ErrorCode::kBadFile, fields.source(), ": ", rope.name_of(name),
            " is missing, expected a list of positive numbers");
    return *std::move(list);
  };
  scaling.kind = RotaryScalingKind::kLongrope;
  scaling.original_max_seq_len = read_original_length(fields, rope, rules, model);
  scaling.short_factors = factors("short_factor");
  scaling.long_factors = factors("long_factor");
  const double factor = read_factor(rope, model, scaling.original_max_seq_len);
  const double by_factor =
      factor <= 1.0 ? 1.0 : sqrt(1.0 + log(factor) / log(static_cast<double>(scaling.original_max_seq_len)));
  scaling.magnitude = rope.positive_number("attention_factor", by_factor);
}

inline void read_scaling(JsonObject& fields, JsonObject& rope, const RotaryRules& rules, std::string type,
                         const ModelConfig& model, RotaryScaling& scaling) {
  if (rules.longrope_only && type != "default") {
    if (type == "su" || type == "yarn") type = "longrope";
    if (type != "longrope") [[unlikely]]
      raise(ErrorCode::kUnsupported, fields.source(), ": ", rope.name_of("rope_type"), " ", in_quotes(type),
            " is not supported for this architecture, only default and longrope are");
  }
  if (type == "linear") {
    scaling.kind = RotaryScalingKind::kLinear;
    scaling.factor = rope.positive_number("factor");
  } else if (type == "dynamic") {
    scaling.kind = RotaryScalingKind::kDynamic;
    scaling.factor = rope.positive_number("factor");
    // It grows beyond max_position_embeddings, whatever length the model was trained on.
    scaling.original_max_seq_len = model.max_seq_len;
    constexpr std::string_view kOriginal = "original_max_position_embeddings";
    if (const Index original = rope.positive_integer(kOriginal, model.max_seq_len);
        original != model.max_seq_len) [[unlikely]]
      raise(ErrorCode::kUnsupported, fields.source(), ": ", rope.name_of(kOriginal), " ", original,
            " of rotary scaling \"dynamic\" is supported only if it is max_position_embeddings, ",
            model.max_seq_len);
  } else if (type == "yarn") {
    read_yarn(fields, rope, rules, model, scaling);
  } else if (type == "longrope") {
    read_longrope(fields, rope, rules, model, scaling);
  } else if (type == "llama3") {
    scaling.kind = RotaryScalingKind::kLlama3;
    scaling.factor = rope.positive_number("factor");
    scaling.low_freq_factor = rope.positive_number("low_freq_factor");
    scaling.high_freq_factor = rope.positive_number("high_freq_factor");
    scaling.original_max_seq_len = rope.positive_integer("original_max_position_embeddings");
  } else if (type != "default") {
    raise(ErrorCode::kUnsupported, fields.source(), ": ", rope.name_of("rope_type"), " ", in_quotes(type),
          " is not supported, only default, linear, dynamic, yarn, longrope and llama3 are");
  }
}

/// The elements of a head that turn. transformers 4 has the part of them beside rope_theta, 5 within `rope`.
inline void read_rotary_dim(JsonObject& fields, JsonObject* rope, const RotaryRules& rules,
                            const ModelConfig& model, RotaryConfig& rotary) {
  constexpr std::string_view kName = "partial_rotary_factor";
  const std::optional<double> within = rope != nullptr ? rope->as_positive_number(kName) : std::nullopt;
  if (rules.partial == 0.0) {
    if (within.value_or(1.0) != 1.0) [[unlikely]]
      raise(ErrorCode::kUnsupported, fields.source(), ": ", rope->name_of(kName),
            " other than 1 is not supported for this architecture");
    return;
  }
  const std::string within_name = rope != nullptr ? rope->name_of(kName) : std::string();
  const double part =
      same_of(fields, kName, fields.as_positive_number(kName), within_name, within).value_or(rules.partial);
  const double n_turning = mul(static_cast<double>(model.head_dim), part);
  if (part > 1.0 || n_turning < 2.0 || n_turning > 0x1p30) [[unlikely]]
    raise(ErrorCode::kBadFile, fields.source(), ": ", kName, " ", part, " of heads of ", model.head_dim,
          " elements must leave some to turn");
  rotary.dim = static_cast<Index>(n_turning);
}

/// One set of rotary parameters: `rope`, if it is there, and what stands beside it in `fields`.
/// @throws Error kUnsupported, naming what is not known
inline void read_rotary_parameters(JsonObject& fields, JsonObject* rope, const RotaryRules& rules,
                                   const ModelConfig& model, RotaryConfig& rotary) {
  std::optional<double> theta = fields.as_positive_number(rules.theta_field);
  if (rope != nullptr)
    theta = same_of(fields, rules.theta_field, theta, rope->name_of("rope_theta"),
                    rope->as_positive_number("rope_theta"));
  rotary.theta = theta.value_or(rules.theta);
  read_rotary_dim(fields, rope, rules, model, rotary);
  if (rope == nullptr) return;
  const std::string type = same_of(fields, rope->name_of("rope_type"), rope->as_string("rope_type"),
                                   rope->name_of("type"), rope->as_string("type"))
                               .value_or("default");
  read_scaling(fields, *rope, rules, type, model, rotary.scaling);
  if (const std::vector<std::string> unread = rope->unread(); !unread.empty()) [[unlikely]]
    raise(ErrorCode::kUnsupported, fields.source(), ": the field ", in_quotes(rope->name_of(unread.front())),
          " is not known to rotary scaling ", in_quotes(type), " and might change the result");
}

/// rope_scaling and rope_parameters, of which only one may have something in it.
struct RotaryObjects {
  std::optional<JsonObject> scaling;
  std::optional<JsonObject> parameters;

  explicit RotaryObjects(JsonObject& fields)
      : scaling(fields.as_object("rope_scaling")), parameters(fields.as_object("rope_parameters")) {
    if (scaling && scaling->empty()) scaling.reset();
    if (parameters && parameters->empty()) parameters.reset();
    if (scaling && parameters) [[unlikely]]
      raise(ErrorCode::kUnsupported, fields.source(),
            ": rope_scaling and rope_parameters are both there; transformers 4 and 5 would not agree");
  }
};

/// The rotary positions of a model whose layers all have the same. @pre sizes and max_seq_len are read
/// @throws Error kUnsupported, naming what is not known
inline void read_rotary(JsonObject& fields, const RotaryRules& rules, ModelConfig& model) {
  model.position = PositionKind::kRotary;
  model.rotary.pairs = RotaryPairs::kHalves;
  RotaryObjects objects(fields);
  JsonObject* const rope = objects.parameters ? &*objects.parameters
                           : objects.scaling  ? &*objects.scaling
                                              : nullptr;
  read_rotary_parameters(fields, rope, rules, model, model.rotary);
}

}  // namespace detail
}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/compiled.hpp> - the templates that most programs use, compiled once: linking the target
// kvdecode::compiled makes <kvdecode/kvdecode.hpp> include this, and the compiler no longer instantiates them
// in every translation unit.
#pragma once

#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/kernels/activation.hpp>
#include <kvdecode/kernels/attention.hpp>
#include <kvdecode/kernels/int8_linear.hpp>
#include <kvdecode/kernels/linear.hpp>
#include <kvdecode/kernels/norm.hpp>
#include <kvdecode/kernels/rotary.hpp>
#include <kvdecode/model/transformer.hpp>

// compiled_float.cpp and compiled_double.cpp define what every other translation unit only declares.
#if defined(KVDECODE_COMPILING_FLOAT)
#define KVDECODE_TEMPLATE_float template
#else
#define KVDECODE_TEMPLATE_float extern template
#endif
#if defined(KVDECODE_COMPILING_DOUBLE)
#define KVDECODE_TEMPLATE_double template
#else
#define KVDECODE_TEMPLATE_double extern template
#endif
#define KVDECODE_TEMPLATE(S) KVDECODE_TEMPLATE_##S

// NOLINTBEGIN(bugprone-macro-parentheses): types, which must not be in parentheses
#define KVDECODE_TEMPLATE_LINEAR(Format, S) \
  KVDECODE_TEMPLATE(S) void linear_rows<Format, S>(const LinearJob<S>&, Range, S*) noexcept;
#define KVDECODE_TEMPLATE_BLOCKS(Format, S) \
  KVDECODE_TEMPLATE_LINEAR(Format, S)       \
  KVDECODE_TEMPLATE(S)                      \
  void int8_linear_rows<Format, S>(const LinearJob<S>&, Range, const RoundedRows<S>&, S*) noexcept;
#define KVDECODE_TEMPLATE_ATTENTION(Format, S)                                                           \
  KVDECODE_TEMPLATE(S)                                                                                   \
  void detail::score_piece<Format, S>(const AttentionPiece&, const S*, Index, Index, S, S, S*) noexcept; \
  KVDECODE_TEMPLATE(S)                                                                                   \
  void detail::value_piece<Format, S>(const AttentionPiece&, const S*, Index, Index, S*) noexcept;
#define KVDECODE_TEMPLATE_KERNELS(S)                                                                \
  KVDECODE_TEMPLATE_LINEAR(F32, S)                                                                  \
  KVDECODE_TEMPLATE_LINEAR(BF16, S)                                                                 \
  KVDECODE_TEMPLATE_LINEAR(F16, S)                                                                  \
  KVDECODE_TEMPLATE_LINEAR(F64, S)                                                                  \
  KVDECODE_TEMPLATE_BLOCKS(Q8_0, S)                                                                 \
  KVDECODE_TEMPLATE_BLOCKS(Q4_0, S)                                                                 \
  KVDECODE_TEMPLATE_BLOCKS(Q4_1, S)                                                                 \
  KVDECODE_TEMPLATE_BLOCKS(Q5_0, S)                                                                 \
  KVDECODE_TEMPLATE_BLOCKS(Q5_1, S)                                                                 \
  KVDECODE_TEMPLATE_BLOCKS(Q2_K, S)                                                                 \
  KVDECODE_TEMPLATE_BLOCKS(Q3_K, S)                                                                 \
  KVDECODE_TEMPLATE_BLOCKS(Q4_K, S)                                                                 \
  KVDECODE_TEMPLATE_BLOCKS(Q5_K, S)                                                                 \
  KVDECODE_TEMPLATE_BLOCKS(Q6_K, S)                                                                 \
  KVDECODE_TEMPLATE_BLOCKS(IQ4_NL, S)                                                               \
  KVDECODE_TEMPLATE_BLOCKS(IQ4_XS, S)                                                               \
  KVDECODE_TEMPLATE_BLOCKS(MXFP4, S)                                                                \
  KVDECODE_TEMPLATE_ATTENTION(F64, S)                                                               \
  KVDECODE_TEMPLATE_ATTENTION(F32, S)                                                               \
  KVDECODE_TEMPLATE_ATTENTION(F16, S)                                                               \
  KVDECODE_TEMPLATE_ATTENTION(BF16, S)                                                              \
  KVDECODE_TEMPLATE(S)                                                                              \
  void detail::attend_tile_by<S>(detail::ScorePiece<S>, detail::ValuePiece<S>,                      \
                                 std::span<const AttentionPiece>, const S*, Index, Index, S,        \
                                 AttentionState<S>&, S*, S) noexcept;                               \
  KVDECODE_TEMPLATE(S) void finish_attention<S>(const AttentionState<S>&, S*) noexcept;             \
  KVDECODE_TEMPLATE(S) void activate<S>(Activation, const S*, const S*, Index, S*) noexcept;        \
  KVDECODE_TEMPLATE(S) void rms_norm<S>(const S*, const S*, S, Index, S*) noexcept;                 \
  KVDECODE_TEMPLATE(S) void layer_norm<S>(const S*, const S*, const S*, S, Index, S*) noexcept;     \
  KVDECODE_TEMPLATE(S) void rotary_angles<S>(Index, const double*, Index, S*, S*, double) noexcept; \
  KVDECODE_TEMPLATE(S) void rotate<S>(RotaryPairs, const S*, const S*, const S*, Index, Index, S*) noexcept;

// The model comes last: its name has commas.
#define KVDECODE_TEMPLATE_FORWARD(Cache, S, ...) \
  KVDECODE_TEMPLATE(S)                           \
  RowsView<const S> __VA_ARGS__::forward(Workspace<S>&, ExecutorRef, std::span<const Segment<Cache>>) const;
#define KVDECODE_TEMPLATE_MODEL(S, ...)                           \
  KVDECODE_TEMPLATE(S) class __VA_ARGS__;                         \
  KVDECODE_TEMPLATE_FORWARD(ContiguousCache<F32>, S, __VA_ARGS__) \
  KVDECODE_TEMPLATE_FORWARD(ContiguousCache<F16>, S, __VA_ARGS__) \
  KVDECODE_TEMPLATE_FORWARD(GrowingCache<F32>, S, __VA_ARGS__)    \
  KVDECODE_TEMPLATE_FORWARD(GrowingCache<F16>, S, __VA_ARGS__)    \
  KVDECODE_TEMPLATE_FORWARD(GrowingCache<BF16>, S, __VA_ARGS__)
#define KVDECODE_TEMPLATE_MODELS(Activations, Formats)                                               \
  KVDECODE_TEMPLATE_MODEL(float, Transformer<float, Activations, Formats>)                           \
  KVDECODE_TEMPLATE_MODEL(double, Transformer<double, Activations, Formats>)                         \
  KVDECODE_TEMPLATE_FORWARD(ContiguousCache<F64>, double, Transformer<double, Activations, Formats>) \
  KVDECODE_TEMPLATE_FORWARD(GrowingCache<F64>, double, Transformer<double, Activations, Formats>)
// NOLINTEND(bugprone-macro-parentheses)

namespace kvdecode::inline KVDECODE_ABI {
namespace kernels {
KVDECODE_TEMPLATE_KERNELS(float)
KVDECODE_TEMPLATE_KERNELS(double)
}  // namespace kernels

KVDECODE_TEMPLATE_MODELS(ExactActivations, CoreFormats)
KVDECODE_TEMPLATE_MODELS(ExactActivations, GgufFormats)
KVDECODE_TEMPLATE_MODELS(Int8Activations, GgufFormats)
}  // namespace kvdecode

#undef KVDECODE_TEMPLATE
#undef KVDECODE_TEMPLATE_float
#undef KVDECODE_TEMPLATE_double
#undef KVDECODE_TEMPLATE_LINEAR
#undef KVDECODE_TEMPLATE_BLOCKS
#undef KVDECODE_TEMPLATE_ATTENTION
#undef KVDECODE_TEMPLATE_KERNELS
#undef KVDECODE_TEMPLATE_FORWARD
#undef KVDECODE_TEMPLATE_MODEL
#undef KVDECODE_TEMPLATE_MODELS

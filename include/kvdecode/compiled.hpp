// SPDX-License-Identifier: MIT
// <kvdecode/compiled.hpp> - the templates that most programs use, compiled once: linking the target
// kvdecode::compiled makes <kvdecode/kvdecode.hpp> include this, and the compiler no longer instantiates them
// in every translation unit.
#pragma once

#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/core/cache_formats.hpp>
#include <kvdecode/decode/any_decoder.hpp>
#include <kvdecode/kernels/activation.hpp>
#include <kvdecode/kernels/attention.hpp>
#include <kvdecode/kernels/int8_linear.hpp>
#include <kvdecode/kernels/linear.hpp>
#include <kvdecode/kernels/norm.hpp>
#include <kvdecode/kernels/rotary.hpp>
#include <kvdecode/model/transformer.hpp>

// A translation unit compiled_SCALAR_PART.cpp defines what every other one only declares.
#ifndef KVDECODE_TEMPLATE_float_linear
#define KVDECODE_TEMPLATE_float_linear extern template
#endif
#ifndef KVDECODE_TEMPLATE_float_k_quants
#define KVDECODE_TEMPLATE_float_k_quants extern template
#endif
#ifndef KVDECODE_TEMPLATE_float_code_books
#define KVDECODE_TEMPLATE_float_code_books extern template
#endif
#ifndef KVDECODE_TEMPLATE_float_int8
#define KVDECODE_TEMPLATE_float_int8 extern template
#endif
#ifndef KVDECODE_TEMPLATE_float_cache_formats
#define KVDECODE_TEMPLATE_float_cache_formats extern template
#endif
#ifndef KVDECODE_TEMPLATE_float_decoders
#define KVDECODE_TEMPLATE_float_decoders extern template
#endif
#ifndef KVDECODE_TEMPLATE_float_model
#define KVDECODE_TEMPLATE_float_model extern template
#endif
#ifndef KVDECODE_TEMPLATE_double_linear
#define KVDECODE_TEMPLATE_double_linear extern template
#endif
#ifndef KVDECODE_TEMPLATE_double_k_quants
#define KVDECODE_TEMPLATE_double_k_quants extern template
#endif
#ifndef KVDECODE_TEMPLATE_double_code_books
#define KVDECODE_TEMPLATE_double_code_books extern template
#endif
#ifndef KVDECODE_TEMPLATE_double_int8
#define KVDECODE_TEMPLATE_double_int8 extern template
#endif
#ifndef KVDECODE_TEMPLATE_double_cache_formats
#define KVDECODE_TEMPLATE_double_cache_formats extern template
#endif
#ifndef KVDECODE_TEMPLATE_double_decoders
#define KVDECODE_TEMPLATE_double_decoders extern template
#endif
#ifndef KVDECODE_TEMPLATE_double_model
#define KVDECODE_TEMPLATE_double_model extern template
#endif
#define KVDECODE_TEMPLATE(S, part) KVDECODE_TEMPLATE_##S##_##part

// NOLINTBEGIN(bugprone-macro-parentheses): types, which must not be in parentheses
#define KVDECODE_TEMPLATE_LINEAR(part, Format, S) \
  KVDECODE_TEMPLATE(S, part) void linear_rows<Format, S>(const LinearJob<S>&, Range, S*) noexcept;
#define KVDECODE_TEMPLATE_BLOCKS(part, Format, S) \
  KVDECODE_TEMPLATE_LINEAR(part, Format, S)       \
  KVDECODE_TEMPLATE(S, int8)                      \
  void int8_linear_rows<Format, S>(const LinearJob<S>&, Range, const RoundedRows<S>&, S*) noexcept;
#define KVDECODE_TEMPLATE_ATTENTION(part, Format, S)                                                     \
  KVDECODE_TEMPLATE(S, part)                                                                             \
  void detail::score_piece<Format, S>(const AttentionPiece&, const S*, Index, Index, S, S, S*) noexcept; \
  KVDECODE_TEMPLATE(S, part)                                                                             \
  void detail::value_piece<Format, S>(const AttentionPiece&, const S*, Index, Index, S*) noexcept;
#define KVDECODE_TEMPLATE_KERNELS(S)                                                                       \
  KVDECODE_TEMPLATE_LINEAR(linear, F32, S)                                                                 \
  KVDECODE_TEMPLATE_LINEAR(linear, BF16, S)                                                                \
  KVDECODE_TEMPLATE_LINEAR(linear, F16, S)                                                                 \
  KVDECODE_TEMPLATE_LINEAR(linear, F64, S)                                                                 \
  KVDECODE_TEMPLATE_BLOCKS(linear, Q8_0, S)                                                                \
  KVDECODE_TEMPLATE_BLOCKS(linear, Q4_0, S)                                                                \
  KVDECODE_TEMPLATE_BLOCKS(linear, Q4_1, S)                                                                \
  KVDECODE_TEMPLATE_BLOCKS(linear, Q5_0, S)                                                                \
  KVDECODE_TEMPLATE_BLOCKS(linear, Q5_1, S)                                                                \
  KVDECODE_TEMPLATE_BLOCKS(k_quants, Q2_K, S)                                                              \
  KVDECODE_TEMPLATE_BLOCKS(k_quants, Q3_K, S)                                                              \
  KVDECODE_TEMPLATE_BLOCKS(k_quants, Q4_K, S)                                                              \
  KVDECODE_TEMPLATE_BLOCKS(k_quants, Q5_K, S)                                                              \
  KVDECODE_TEMPLATE_BLOCKS(k_quants, Q6_K, S)                                                              \
  KVDECODE_TEMPLATE_BLOCKS(linear, IQ4_NL, S)                                                              \
  KVDECODE_TEMPLATE_BLOCKS(k_quants, IQ4_XS, S)                                                            \
  KVDECODE_TEMPLATE_BLOCKS(linear, MXFP4, S)                                                               \
  KVDECODE_TEMPLATE_LINEAR(code_books, IQ1_S, S)                                                           \
  KVDECODE_TEMPLATE_LINEAR(code_books, IQ1_M, S)                                                           \
  KVDECODE_TEMPLATE_LINEAR(code_books, IQ2_XXS, S)                                                         \
  KVDECODE_TEMPLATE_LINEAR(code_books, IQ2_XS, S)                                                          \
  KVDECODE_TEMPLATE_LINEAR(code_books, IQ2_S, S)                                                           \
  KVDECODE_TEMPLATE_LINEAR(code_books, IQ3_XXS, S)                                                         \
  KVDECODE_TEMPLATE_LINEAR(code_books, IQ3_S, S)                                                           \
  KVDECODE_TEMPLATE_LINEAR(code_books, TQ1_0, S)                                                           \
  KVDECODE_TEMPLATE_LINEAR(code_books, TQ2_0, S)                                                           \
  KVDECODE_TEMPLATE_LINEAR(code_books, NVFP4, S)                                                           \
  KVDECODE_TEMPLATE_LINEAR(code_books, Q1_0, S)                                                            \
  KVDECODE_TEMPLATE_LINEAR(code_books, Q2_0, S)                                                            \
  KVDECODE_TEMPLATE_ATTENTION(model, F64, S)                                                               \
  KVDECODE_TEMPLATE_ATTENTION(model, F32, S)                                                               \
  KVDECODE_TEMPLATE_ATTENTION(model, F16, S)                                                               \
  KVDECODE_TEMPLATE_ATTENTION(model, BF16, S)                                                              \
  KVDECODE_TEMPLATE_ATTENTION(cache_formats, Int8, S)                                                      \
  KVDECODE_TEMPLATE_ATTENTION(cache_formats, Int4, S)                                                      \
  KVDECODE_TEMPLATE_ATTENTION(cache_formats, Int3, S)                                                      \
  KVDECODE_TEMPLATE_ATTENTION(cache_formats, Asym4, S)                                                     \
  KVDECODE_TEMPLATE_ATTENTION(cache_formats, HadInt4, S)                                                   \
  KVDECODE_TEMPLATE_ATTENTION(cache_formats, HadInt3, S)                                                   \
  KVDECODE_TEMPLATE_ATTENTION(cache_formats, Turbo4, S)                                                    \
  KVDECODE_TEMPLATE_ATTENTION(cache_formats, Turbo3, S)                                                    \
  KVDECODE_TEMPLATE_ATTENTION(cache_formats, Turbo2, S)                                                    \
  KVDECODE_TEMPLATE(S, model)                                                                              \
  void detail::attend_tile_by<S>(detail::ScorePiece<S>, detail::ValuePiece<S>,                             \
                                 std::span<const AttentionPiece>, const S*, Index, Index, S,               \
                                 AttentionState<S>&, S*, S) noexcept;                                      \
  KVDECODE_TEMPLATE(S, model) void merge_tile<S>(const AttentionState<S>&, AttentionState<S>&) noexcept;   \
  KVDECODE_TEMPLATE(S, model) void finish_attention<S>(const AttentionState<S>&, S*) noexcept;             \
  KVDECODE_TEMPLATE(S, model) void activate<S>(Activation, const S*, const S*, Index, S*) noexcept;        \
  KVDECODE_TEMPLATE(S, model) void rms_norm<S>(const S*, const S*, S, Index, S*) noexcept;                 \
  KVDECODE_TEMPLATE(S, model) void layer_norm<S>(const S*, const S*, const S*, S, Index, S*) noexcept;     \
  KVDECODE_TEMPLATE(S, model) void rotary_angles<S>(Index, const double*, Index, S*, S*, double) noexcept; \
  KVDECODE_TEMPLATE(S, model)                                                                              \
  void rotate<S>(RotaryPairs, const S*, const S*, const S*, Index, Index, S*) noexcept;

#define KVDECODE_TEMPLATE_TURNS(S)                                                \
  KVDECODE_TEMPLATE(S, model) void turn_row<S>(RowTransform, S*, Index) noexcept; \
  KVDECODE_TEMPLATE(S, model) void turn_row_back<S>(RowTransform, S*, Index) noexcept;

// The model comes last: its name has commas.
#define KVDECODE_TEMPLATE_FORWARD(Cache, S, ...) \
  KVDECODE_TEMPLATE(S, model)                    \
  RowsView<const S> __VA_ARGS__::forward(Workspace<S>&, ExecutorRef, std::span<const Segment<Cache>>) const;
#define KVDECODE_TEMPLATE_MODEL(S, ...)                           \
  KVDECODE_TEMPLATE(S, model) class __VA_ARGS__;                  \
  KVDECODE_TEMPLATE_FORWARD(ContiguousCache<F32>, S, __VA_ARGS__) \
  KVDECODE_TEMPLATE_FORWARD(ContiguousCache<F16>, S, __VA_ARGS__) \
  KVDECODE_TEMPLATE_FORWARD(GrowingCache<F32>, S, __VA_ARGS__)    \
  KVDECODE_TEMPLATE_FORWARD(GrowingCache<F16>, S, __VA_ARGS__)    \
  KVDECODE_TEMPLATE_FORWARD(GrowingCache<BF16>, S, __VA_ARGS__)   \
  KVDECODE_TEMPLATE(S, decoders)                                  \
  AnyDecoder<S> make_decoder<__VA_ARGS__>(const __VA_ARGS__&, const DecodeOptions&, ExecutorRef);
#define KVDECODE_TEMPLATE_MODELS(Activations, Formats)                                               \
  KVDECODE_TEMPLATE_MODEL(float, Transformer<float, Activations, Formats>)                           \
  KVDECODE_TEMPLATE_MODEL(double, Transformer<double, Activations, Formats>)                         \
  KVDECODE_TEMPLATE_FORWARD(ContiguousCache<F64>, double, Transformer<double, Activations, Formats>) \
  KVDECODE_TEMPLATE_FORWARD(GrowingCache<F64>, double, Transformer<double, Activations, Formats>)
// NOLINTEND(bugprone-macro-parentheses)

namespace kvdecode::inline KVDECODE_ABI {
KVDECODE_TEMPLATE_TURNS(float)
KVDECODE_TEMPLATE_TURNS(double)
namespace kernels {
KVDECODE_TEMPLATE_KERNELS(float)
KVDECODE_TEMPLATE_KERNELS(double)
}  // namespace kernels

KVDECODE_TEMPLATE_MODELS(ExactActivations, CoreFormats)
KVDECODE_TEMPLATE_MODELS(ExactActivations, GgufFormats)
KVDECODE_TEMPLATE_MODELS(Int8Activations, GgufFormats)
}  // namespace kvdecode

#undef KVDECODE_TEMPLATE
#undef KVDECODE_TEMPLATE_float_linear
#undef KVDECODE_TEMPLATE_float_k_quants
#undef KVDECODE_TEMPLATE_float_code_books
#undef KVDECODE_TEMPLATE_float_int8
#undef KVDECODE_TEMPLATE_float_cache_formats
#undef KVDECODE_TEMPLATE_float_decoders
#undef KVDECODE_TEMPLATE_float_model
#undef KVDECODE_TEMPLATE_double_linear
#undef KVDECODE_TEMPLATE_double_k_quants
#undef KVDECODE_TEMPLATE_double_code_books
#undef KVDECODE_TEMPLATE_double_int8
#undef KVDECODE_TEMPLATE_double_cache_formats
#undef KVDECODE_TEMPLATE_double_decoders
#undef KVDECODE_TEMPLATE_double_model
#undef KVDECODE_TEMPLATE_LINEAR
#undef KVDECODE_TEMPLATE_BLOCKS
#undef KVDECODE_TEMPLATE_ATTENTION
#undef KVDECODE_TEMPLATE_KERNELS
#undef KVDECODE_TEMPLATE_TURNS
#undef KVDECODE_TEMPLATE_FORWARD
#undef KVDECODE_TEMPLATE_MODEL
#undef KVDECODE_TEMPLATE_MODELS

// SPDX-License-Identifier: MIT
// <kvdecode/io/gguf_type.hpp> - the tensor types of GGUF files: number, name, block, and which of them are
// formats that weights can be used in. Others are known by name and size, so that a file that has one beside
// what is needed can be read.
#pragma once

#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/core/format_id.hpp>
#include <kvdecode/core/types.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

/// A tensor type. Rows are whole blocks.
struct GgufType {
  std::uint32_t number;            // in files
  std::string_view name;           // as the field spells it
  Index block;                     // numbers in a block
  Index block_bytes;               // of one
  std::optional<FormatId> format;  // none: not supported
};

namespace detail {

template <class F>
constexpr GgufType gguf_type_of(std::uint32_t number, std::string_view name) {
  return {number, name, F::kBlock, F::row_bytes(F::kBlock), F::kId};
}

inline constexpr GgufType kGgufTypes[] = {
    gguf_type_of<F32>(0, "F32"),
    gguf_type_of<F16>(1, "F16"),
    gguf_type_of<Q4_0>(2, "Q4_0"),
    gguf_type_of<Q4_1>(3, "Q4_1"),
    gguf_type_of<Q5_0>(6, "Q5_0"),
    gguf_type_of<Q5_1>(7, "Q5_1"),
    gguf_type_of<Q8_0>(8, "Q8_0"),
    {9, "Q8_1", 32, 36, {}},
    gguf_type_of<Q2_K>(10, "Q2_K"),
    gguf_type_of<Q3_K>(11, "Q3_K"),
    gguf_type_of<Q4_K>(12, "Q4_K"),
    gguf_type_of<Q5_K>(13, "Q5_K"),
    gguf_type_of<Q6_K>(14, "Q6_K"),
    {15, "Q8_K", 256, 292, {}},
    gguf_type_of<IQ2_XXS>(16, "IQ2_XXS"),
    gguf_type_of<IQ2_XS>(17, "IQ2_XS"),
    gguf_type_of<IQ3_XXS>(18, "IQ3_XXS"),
    gguf_type_of<IQ1_S>(19, "IQ1_S"),
    gguf_type_of<IQ4_NL>(20, "IQ4_NL"),
    gguf_type_of<IQ3_S>(21, "IQ3_S"),
    gguf_type_of<IQ2_S>(22, "IQ2_S"),
    gguf_type_of<IQ4_XS>(23, "IQ4_XS"),
    {24, "I8", 1, 1, {}},
    {25, "I16", 1, 2, {}},
    {26, "I32", 1, 4, {}},
    {27, "I64", 1, 8, {}},
    gguf_type_of<F64>(28, "F64"),
    gguf_type_of<IQ1_M>(29, "IQ1_M"),
    gguf_type_of<BF16>(30, "BF16"),
    gguf_type_of<TQ1_0>(34, "TQ1_0"),
    gguf_type_of<TQ2_0>(35, "TQ2_0"),
    gguf_type_of<MXFP4>(39, "MXFP4"),
    gguf_type_of<NVFP4>(40, "NVFP4"),
    gguf_type_of<Q1_0>(41, "Q1_0"),
    gguf_type_of<Q2_0>(42, "Q2_0"),
};

}  // namespace detail

/// The type of that number; nullptr if there is none.
constexpr const GgufType* find_gguf_type(std::uint32_t number) {
  for (const GgufType& type : detail::kGgufTypes)
    if (type.number == number) return &type;
  return nullptr;
}

}  // namespace kvdecode

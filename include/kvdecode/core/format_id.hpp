// SPDX-License-Identifier: MIT
// <kvdecode/core/format_id.hpp> - the run-time name of a storage format. What a format is, its type says
// (core/formats/); a view of a matrix carries only this tag, and visit_format() leads from the tag to the
// type.
#pragma once

#include <kvdecode/core/types.hpp>

#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

/// How the numbers of a row are stored.
enum class FormatId : std::uint8_t {
  kF64,   ///< IEEE binary64
  kF32,   ///< IEEE binary32
  kF16,   ///< IEEE binary16
  kBF16,  ///< the upper half of a binary32
  kRaw,   ///< objects of a scalar type of the user's own, in memory only
  // Blocks that share scales (core/block_formats.hpp):
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kIQ1_S,
  kIQ1_M,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kTQ1_0,
  kTQ2_0,
  kNVFP4,
  kQ1_0,
  kQ2_0,
  // Rows of caches (core/cache_formats.hpp):
  kInt8,
  kInt4,
  kInt3,
  kAsym4,
  kHadInt4,
  kHadInt3,
  kTurbo4,
  kTurbo3,
  kTurbo2,
};

constexpr std::string_view to_string(FormatId id) {
  switch (id) {
    case FormatId::kF64: return "f64";
    case FormatId::kF32: return "f32";
    case FormatId::kF16: return "f16";
    case FormatId::kBF16: return "bf16";
    case FormatId::kRaw: return "raw";
    case FormatId::kQ8_0: return "q8_0";
    case FormatId::kQ4_0: return "q4_0";
    case FormatId::kQ4_1: return "q4_1";
    case FormatId::kQ5_0: return "q5_0";
    case FormatId::kQ5_1: return "q5_1";
    case FormatId::kQ2_K: return "q2_k";
    case FormatId::kQ3_K: return "q3_k";
    case FormatId::kQ4_K: return "q4_k";
    case FormatId::kQ5_K: return "q5_k";
    case FormatId::kQ6_K: return "q6_k";
    case FormatId::kIQ4_NL: return "iq4_nl";
    case FormatId::kIQ4_XS: return "iq4_xs";
    case FormatId::kMXFP4: return "mxfp4";
    case FormatId::kIQ1_S: return "iq1_s";
    case FormatId::kIQ1_M: return "iq1_m";
    case FormatId::kIQ2_XXS: return "iq2_xxs";
    case FormatId::kIQ2_XS: return "iq2_xs";
    case FormatId::kIQ2_S: return "iq2_s";
    case FormatId::kIQ3_XXS: return "iq3_xxs";
    case FormatId::kIQ3_S: return "iq3_s";
    case FormatId::kTQ1_0: return "tq1_0";
    case FormatId::kTQ2_0: return "tq2_0";
    case FormatId::kNVFP4: return "nvfp4";
    case FormatId::kQ1_0: return "q1_0";
    case FormatId::kQ2_0: return "q2_0";
    case FormatId::kInt8: return "int8";
    case FormatId::kInt4: return "int4";
    case FormatId::kInt3: return "int3";
    case FormatId::kAsym4: return "asym4";
    case FormatId::kHadInt4: return "had_int4";
    case FormatId::kHadInt3: return "had_int3";
    case FormatId::kTurbo4: return "turbo4";
    case FormatId::kTurbo3: return "turbo3";
    case FormatId::kTurbo2: return "turbo2";
  }
  return "?";
}

}  // namespace kvdecode

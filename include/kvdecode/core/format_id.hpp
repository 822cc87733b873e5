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
};

constexpr std::string_view to_string(FormatId id) {
  switch (id) {
    case FormatId::kF64: return "f64";
    case FormatId::kF32: return "f32";
    case FormatId::kF16: return "f16";
    case FormatId::kBF16: return "bf16";
    case FormatId::kRaw: return "raw";
  }
  return "?";
}

}  // namespace kvdecode

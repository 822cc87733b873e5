// SPDX-License-Identifier: MIT
// <kvdecode/decode/cache_format.hpp> - the formats of keys and values that can be chosen at run time, by name: a short
// list, since each is a type of cache of its own. Programs that know what they want name the types, and may pair any
// format of keys with any of values.
//
//                bits a number,
//                of a head of 64
//   native           32, 64     rounds nothing: the scalar's own
//   f16              16         costs nothing that can be seen
//   bf16             16
//   int8              8.5       likewise
//   int8/had_int4     6.5       keys/values: some thousandths of perplexity; the choice where memory counts
//   int8/turbo3       5.9
//   had_int4          4.5
//   asym4             5.0
//   turbo4            4.25
//   int4, int3        4.5, 3.5  where a head's dimension is no power of two, which turned formats need
//   had_int3          3.5
//   turbo3, turbo2    3.25, 2.25
#pragma once

#include <kvdecode/core/cache_formats.hpp>
#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/format_id.hpp>

#include <optional>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

/// How a cache stores keys and values, where that is chosen at run time.
enum class CacheFormat {
  kNative,
  kF16,
  kBF16,
  kInt8,
  kInt8HadInt4,  ///< keys as Int8, values as HadInt4
  kInt8Turbo3,
  kInt4,
  kInt3,
  kAsym4,
  kHadInt4,
  kHadInt3,
  kTurbo4,
  kTurbo3,
  kTurbo2,
};

/// All of them.
inline constexpr CacheFormat kCacheFormats[] = {
    CacheFormat::kNative,      CacheFormat::kF16,        CacheFormat::kBF16,    CacheFormat::kInt8,
    CacheFormat::kInt8HadInt4, CacheFormat::kInt8Turbo3, CacheFormat::kInt4,    CacheFormat::kInt3,
    CacheFormat::kAsym4,       CacheFormat::kHadInt4,    CacheFormat::kHadInt3, CacheFormat::kTurbo4,
    CacheFormat::kTurbo3,      CacheFormat::kTurbo2};

constexpr std::string_view to_string(CacheFormat format) {
  switch (format) {
    case CacheFormat::kNative: return "native";
    case CacheFormat::kF16: return to_string(FormatId::kF16);
    case CacheFormat::kBF16: return to_string(FormatId::kBF16);
    case CacheFormat::kInt8: return to_string(FormatId::kInt8);
    case CacheFormat::kInt8HadInt4: return "int8/had_int4";
    case CacheFormat::kInt8Turbo3: return "int8/turbo3";
    case CacheFormat::kInt4: return to_string(FormatId::kInt4);
    case CacheFormat::kInt3: return to_string(FormatId::kInt3);
    case CacheFormat::kAsym4: return to_string(FormatId::kAsym4);
    case CacheFormat::kHadInt4: return to_string(FormatId::kHadInt4);
    case CacheFormat::kHadInt3: return to_string(FormatId::kHadInt3);
    case CacheFormat::kTurbo4: return to_string(FormatId::kTurbo4);
    case CacheFormat::kTurbo3: return to_string(FormatId::kTurbo3);
    case CacheFormat::kTurbo2: return to_string(FormatId::kTurbo2);
  }
  return "?";
}

/// The one of that name, if there is one.
constexpr std::optional<CacheFormat> cache_format_of(std::string_view name) {
  for (const CacheFormat format : kCacheFormats)
    if (to_string(format) == name) return format;
  return std::nullopt;
}

/// Calls visitor.operator()<KFormat, VFormat>() with the formats of keys and values, for scalars S.
template <class S, class Visitor>
decltype(auto) visit_cache_format(CacheFormat format, Visitor&& visitor) {
  switch (format) {
    case CacheFormat::kNative: break;
    case CacheFormat::kF16: return visitor.template operator()<F16, F16>();
    case CacheFormat::kBF16: return visitor.template operator()<BF16, BF16>();
    case CacheFormat::kInt8: return visitor.template operator()<Int8, Int8>();
    case CacheFormat::kInt8HadInt4: return visitor.template operator()<Int8, HadInt4>();
    case CacheFormat::kInt8Turbo3: return visitor.template operator()<Int8, Turbo3>();
    case CacheFormat::kInt4: return visitor.template operator()<Int4, Int4>();
    case CacheFormat::kInt3: return visitor.template operator()<Int3, Int3>();
    case CacheFormat::kAsym4: return visitor.template operator()<Asym4, Asym4>();
    case CacheFormat::kHadInt4: return visitor.template operator()<HadInt4, HadInt4>();
    case CacheFormat::kHadInt3: return visitor.template operator()<HadInt3, HadInt3>();
    case CacheFormat::kTurbo4: return visitor.template operator()<Turbo4, Turbo4>();
    case CacheFormat::kTurbo3: return visitor.template operator()<Turbo3, Turbo3>();
    case CacheFormat::kTurbo2: return visitor.template operator()<Turbo2, Turbo2>();
  }
  return visitor.template operator()<Native<S>, Native<S>>();
}

}  // namespace kvdecode

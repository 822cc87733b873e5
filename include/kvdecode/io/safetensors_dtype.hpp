// SPDX-License-Identifier: MIT
// <kvdecode/io/safetensors_dtype.hpp> - the element types of safetensors files: name, size, and which of them
// are formats that weights can be used in.
#pragma once

#include <kvdecode/core/format_id.hpp>
#include <kvdecode/core/types.hpp>

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian and are used in place");

enum class SafetensorsDtype : std::uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

namespace detail {

struct SafetensorsDtypeEntry {
  SafetensorsDtype dtype;
  std::string_view name;  // as files spell it
  std::uint64_t bits;     // of an element
};

// In the order of the enumeration.
inline constexpr SafetensorsDtypeEntry kSafetensorsDtypes[] = {
    {SafetensorsDtype::kBool, "BOOL", 8},
    {SafetensorsDtype::kF4, "F4", 4},
    {SafetensorsDtype::kF6E2M3, "F6_E2M3", 6},
    {SafetensorsDtype::kF6E3M2, "F6_E3M2", 6},
    {SafetensorsDtype::kU8, "U8", 8},
    {SafetensorsDtype::kI8, "I8", 8},
    {SafetensorsDtype::kF8E5M2, "F8_E5M2", 8},
    {SafetensorsDtype::kF8E4M3, "F8_E4M3", 8},
    {SafetensorsDtype::kF8E8M0, "F8_E8M0", 8},
    {SafetensorsDtype::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {SafetensorsDtype::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {SafetensorsDtype::kI16, "I16", 16},
    {SafetensorsDtype::kU16, "U16", 16},
    {SafetensorsDtype::kF16, "F16", 16},
    {SafetensorsDtype::kBF16, "BF16", 16},
    {SafetensorsDtype::kI32, "I32", 32},
    {SafetensorsDtype::kU32, "U32", 32},
    {SafetensorsDtype::kF32, "F32", 32},
    {SafetensorsDtype::kC64, "C64", 64},
    {SafetensorsDtype::kF64, "F64", 64},
    {SafetensorsDtype::kI64, "I64", 64},
    {SafetensorsDtype::kU64, "U64", 64},
};

constexpr bool dtypes_are_in_order() {
  std::size_t i = 0;
  for (const SafetensorsDtypeEntry& entry : kSafetensorsDtypes)
    if (static_cast<std::size_t>(entry.dtype) != i++) return false;
  return true;
}
static_assert(dtypes_are_in_order());

constexpr const SafetensorsDtypeEntry& dtype_entry(SafetensorsDtype dtype) noexcept {
  return kSafetensorsDtypes[static_cast<std::size_t>(dtype)];
}

}  // namespace detail

/// The name in files: "BF16".
constexpr std::string_view to_string(SafetensorsDtype dtype) { return detail::dtype_entry(dtype).name; }

/// The type of that name; none if no file may use it.
constexpr std::optional<SafetensorsDtype> safetensors_dtype(std::string_view name) {
  for (const detail::SafetensorsDtypeEntry& entry : detail::kSafetensorsDtypes)
    if (entry.name == name) return entry.dtype;
  return std::nullopt;
}

/// The storage format of such numbers; none for those that no weight is stored in.
constexpr std::optional<FormatId> format_of(SafetensorsDtype dtype) {
  switch (dtype) {
    case SafetensorsDtype::kF64: return FormatId::kF64;
    case SafetensorsDtype::kF32: return FormatId::kF32;
    case SafetensorsDtype::kF16: return FormatId::kF16;
    case SafetensorsDtype::kBF16: return FormatId::kBF16;
    default: return std::nullopt;
  }
}

/// The number of elements of a shape; none if it is negative somewhere or beyond 64 bits.
constexpr std::optional<std::uint64_t> n_elements(std::span<const Index> shape) {
  std::uint64_t n = 1;
  for (const Index extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(n, static_cast<std::uint64_t>(extent), &n)) return std::nullopt;
  }
  return n;
}

/// The bytes of a tensor; none if the shape is beyond 64 bits or ends within a byte.
constexpr std::optional<std::uint64_t> n_bytes(SafetensorsDtype dtype, std::span<const Index> shape) {
  const std::optional<std::uint64_t> n = n_elements(shape);
  std::uint64_t bits = 0;
  if (!n || __builtin_mul_overflow(*n, detail::dtype_entry(dtype).bits, &bits) || bits % 8 != 0)
    return std::nullopt;
  return bits / 8;
}

/// The C++ types that stand for an element type.
template <class T>
concept SafetensorsScalar =
    std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::int64_t> ||
    std::same_as<T, std::uint64_t> || std::same_as<T, std::int32_t> || std::same_as<T, std::uint8_t>;

/// The element type of values of type T.
template <SafetensorsScalar T>
constexpr SafetensorsDtype safetensors_dtype_of() {
  if constexpr (std::same_as<T, float>) return SafetensorsDtype::kF32;
  if constexpr (std::same_as<T, double>) return SafetensorsDtype::kF64;
  if constexpr (std::same_as<T, std::int64_t>) return SafetensorsDtype::kI64;
  if constexpr (std::same_as<T, std::uint64_t>) return SafetensorsDtype::kU64;
  if constexpr (std::same_as<T, std::int32_t>) return SafetensorsDtype::kI32;
  if constexpr (std::same_as<T, std::uint8_t>) return SafetensorsDtype::kU8;
}

}  // namespace kvdecode

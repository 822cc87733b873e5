// SPDX-License-Identifier: MIT
// <kvdecode/core/element_formats.hpp> - the formats that store each number by itself.
//
//   F64      8 bytes   a cache for double; keeps float exactly too
//   F32      4 bytes   weights as trained; the cache that rounds nothing for float
//   F16      2 bytes   half the memory, 11 bits; overflows above 65504
//   BF16     2 bytes   half the memory, 8 bits, the range of F32
//   Raw<T>   sizeof T  objects of a scalar type of one's own, in memory only
//
// Native<S> is the one that rounds nothing for the scalar S.
#pragma once

#include <kvdecode/core/format.hpp>
#include <kvdecode/core/half.hpp>
#include <kvdecode/core/simd/narrow.hpp>
#include <kvdecode/core/simd/widen.hpp>

#include <concepts>
#include <cstring>
#include <type_traits>

namespace kvdecode::inline KVDECODE_ABI {

namespace detail {

template <class T>
KVDECODE_INLINE T load_element(const std::byte* row, Index i) {
  T value;
  std::memcpy(&value, row + i * static_cast<Index>(sizeof(T)), sizeof(T));
  return value;
}
template <class T>
KVDECODE_INLINE void store_element(std::byte* row, Index i, const T& value) {
  std::memcpy(row + i * static_cast<Index>(sizeof(T)), &value, sizeof(T));
}

/// Sixteen scalar decodes: the widening of a format for scalars without packets.
template <class F, class S>
inline Lanes<S> widen_by_element(const std::byte* row, Index first) {
  S t[kLanes];
  for (int j = 0; j < kLanes; ++j) t[j] = F::template decode<S>(row, first + j);
  return Lanes<S>::loadu(t);
}

}  // namespace detail

struct F64 {
  static constexpr FormatId kId = FormatId::kF64;
  static constexpr std::string_view kName = to_string(kId);
  static constexpr Index kBlock = 1;
  static constexpr Index row_bytes(Index n) { return 8 * n; }

  template <class S>
  static S decode(const std::byte* row, Index i) {
    return static_cast<S>(detail::load_element<double>(row, i));
  }
  template <class S>
  static KVDECODE_INLINE Lanes<S> widen(const std::byte* row, Index first) {
    if constexpr (std::is_floating_point_v<S>)
      return simd::convert<S>(simd::load16<double>(row + 8 * first));
    else
      return detail::widen_by_element<F64, S>(row, first);
  }
  template <class S>
  static void encode(const S* values, Index n, std::byte* row) {
    for (Index i = 0; i < n; ++i) detail::store_element(row, i, static_cast<double>(values[i]));
  }
};

struct F32 {
  static constexpr FormatId kId = FormatId::kF32;
  static constexpr std::string_view kName = to_string(kId);
  static constexpr Index kBlock = 1;
  static constexpr Index row_bytes(Index n) { return 4 * n; }

  template <class S>
  static S decode(const std::byte* row, Index i) {
    return static_cast<S>(detail::load_element<float>(row, i));
  }
  template <class S>
  static KVDECODE_INLINE Lanes<S> widen(const std::byte* row, Index first) {
    if constexpr (std::is_floating_point_v<S>)
      return simd::convert<S>(simd::load16<float>(row + 4 * first));
    else
      return detail::widen_by_element<F32, S>(row, first);
  }
  template <class S>
  static void encode(const S* values, Index n, std::byte* row) {
    for (Index i = 0; i < n; ++i)
      detail::store_element(row, i, static_cast<float>(static_cast<double>(values[i])));
  }
};

struct F16 {
  static constexpr FormatId kId = FormatId::kF16;
  static constexpr std::string_view kName = to_string(kId);
  static constexpr Index kBlock = 1;
  static constexpr Index row_bytes(Index n) { return 2 * n; }

  template <class S>
  static S decode(const std::byte* row, Index i) {
    return static_cast<S>(f16_to_f32(detail::load_element<std::uint16_t>(row, i)));
  }
  template <class S>
  static KVDECODE_INLINE Lanes<S> widen(const std::byte* row, Index first) {
    if constexpr (std::is_floating_point_v<S>)
      return simd::convert<S>(simd::widen_f16(row + 2 * first));
    else
      return detail::widen_by_element<F16, S>(row, first);
  }
  template <class S>
  static void encode(const S* values, Index n, std::byte* row) {
    const Index n_whole = std::is_same_v<S, float> ? n / kLanes * kLanes : 0;
    if constexpr (std::is_same_v<S, float>) simd::narrow_row_f16(values, n, row);
    for (Index i = n_whole; i < n; ++i) detail::store_element(row, i, to_f16(static_cast<double>(values[i])));
  }
};

struct BF16 {
  static constexpr FormatId kId = FormatId::kBF16;
  static constexpr std::string_view kName = to_string(kId);
  static constexpr Index kBlock = 1;
  static constexpr Index row_bytes(Index n) { return 2 * n; }

  template <class S>
  static S decode(const std::byte* row, Index i) {
    return static_cast<S>(bf16_to_f32(detail::load_element<std::uint16_t>(row, i)));
  }
  template <class S>
  static KVDECODE_INLINE Lanes<S> widen(const std::byte* row, Index first) {
    if constexpr (std::is_floating_point_v<S>)
      return simd::convert<S>(simd::widen_bf16(row + 2 * first));
    else
      return detail::widen_by_element<BF16, S>(row, first);
  }
  template <class S>
  static void encode(const S* values, Index n, std::byte* row) {
    const Index n_whole = std::is_same_v<S, float> ? n / kLanes * kLanes : 0;
    if constexpr (std::is_same_v<S, float>) simd::narrow_row_bf16(values, n, row);
    for (Index i = n_whole; i < n; ++i)
      detail::store_element(row, i, to_bf16(static_cast<double>(values[i])));
  }
};

/// Objects of type T as they are.
template <class T>
struct Raw {
  static_assert(std::is_trivially_copyable_v<T>,
                "Raw<T> stores the bytes of T: T must be trivially copyable.");
  static constexpr FormatId kId = FormatId::kRaw;
  static constexpr std::string_view kName = to_string(kId);
  static constexpr Index kBlock = 1;
  static constexpr Index row_bytes(Index n) { return static_cast<Index>(sizeof(T)) * n; }

  template <std::same_as<T> S>
  static S decode(const std::byte* row, Index i) {
    return detail::load_element<T>(row, i);
  }
  template <std::same_as<T> S>
  static KVDECODE_INLINE Lanes<S> widen(const std::byte* row, Index first) {
    return simd::load16<T>(row + static_cast<Index>(sizeof(T)) * first);
  }
  static void encode(const T* values, Index n, std::byte* row) {
    std::memcpy(row, values, sizeof(T) * static_cast<std::size_t>(n));
  }
};

namespace detail {
template <class S>
struct NativeFormat {
  using type = Raw<S>;
};
template <>
struct NativeFormat<float> {
  using type = F32;
};
template <>
struct NativeFormat<double> {
  using type = F64;
};
}  // namespace detail

/// The format that stores S without rounding.
template <class S>
using Native = typename detail::NativeFormat<S>::type;

/// The formats of matrices that the core reads.
using CoreFormats = FormatList<F32, BF16, F16, F64>;

static_assert(StoresFrom<F64, float> && StoresFrom<F64, double>);
static_assert(StoresFrom<F32, float> && StoresFrom<F32, double>);
static_assert(StoresFrom<F16, float> && StoresFrom<F16, double>);
static_assert(StoresFrom<BF16, float> && StoresFrom<BF16, double>);
static_assert(StoresFrom<Raw<float>, float> && !DecodesTo<Raw<float>, double>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/core/format.hpp> - the concept of a storage format, and the one switch that leads from a run-time
// tag to it.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/format_id.hpp>
#include <kvdecode/core/hadamard.hpp>
#include <kvdecode/core/simd/lanes.hpp>

#include <concepts>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

/// How the numbers of a row are stored: of a weight matrix, or of one KV head's key or value.
///
/// | expression | meaning |
/// |---|---|
/// | F::kId, F::kName | its tag and its name |
/// | F::kBlock | numbers that are stored together: 1, or a power of two of at least 16 |
/// | F::row_bytes(n) | bytes of a row of n numbers, whole blocks without padding |
/// | F::decode<S>(row, i) | number i of the row as S: the definition of the format |
/// | F::widen<S>(row, i) | numbers i … i+15 as lanes, the same bits; i is a multiple of 16 |
/// | F::encode(values, n, row) | stores n scalars, each rounded to nearest (for caches) |
///
/// and of formats for caches only:
///
/// | expression | meaning |
/// |---|---|
/// | F::decode<S>(row, i, n), F::widen<S>(row, i, n) | instead: where a number depends on how many the row has |
/// | F::kTransform | optional: what was done to a row before; decode gives the row as it is stored, turned |
/// | F::takes(n), F::kTakes | optional: whether a row may have n numbers; in words, which |
///
/// Invariant: no alignment of `row` is assumed. Models: F64, F32, F16, BF16, Raw<T>, BlockFormat<B>, those of
/// core/cache_formats.hpp.
template <class F>
concept Format = requires(Index n) {
  { F::kId } -> std::convertible_to<FormatId>;
  { F::kName } -> std::convertible_to<std::string_view>;
  { F::kBlock } -> std::convertible_to<Index>;
  { F::row_bytes(n) } -> std::same_as<Index>;
};

/// A number of the format depends on how many numbers the row has.
template <class F, class S>
concept DecodesByLength = Format<F> && requires(const std::byte* row, Index i, Index n) {
  { F::template decode<S>(row, i, n) } -> std::same_as<S>;
  { F::template widen<S>(row, i, n) } -> std::same_as<Lanes<S>>;
};

/// The format gives numbers of type S.
template <class F, class S>
concept DecodesTo = DecodesByLength<F, S> ||(Format<F>&& requires(const std::byte* row, Index i) {
  { F::template decode<S>(row, i) } -> std::same_as<S>;
  { F::template widen<S>(row, i) } -> std::same_as<Lanes<S>>;
});

/// Number i of a row of n, of either kind.
template <class F, class S>
requires DecodesTo<F, S> KVDECODE_INLINE S decode_number(const std::byte* row, Index i,
                                                         [[maybe_unused]] Index n) {
  if constexpr (DecodesByLength<F, S>)
    return F::template decode<S>(row, i, n);
  else
    return F::template decode<S>(row, i);
}
/// Numbers i … i+15 of a row of n.
template <class F, class S>
requires DecodesTo<F, S> KVDECODE_INLINE Lanes<S> widen_numbers(const std::byte* row, Index i,
                                                                [[maybe_unused]] Index n) {
  if constexpr (DecodesByLength<F, S>)
    return F::template widen<S>(row, i, n);
  else
    return F::template widen<S>(row, i);
}

/// What the format does to a row before it stores it.
template <Format F>
constexpr RowTransform transform_of() {
  if constexpr (requires { F::kTransform; })
    return F::kTransform;
  else
    return RowTransform::kNone;
}

/// Whether a row of the format may have n numbers.
template <Format F>
constexpr bool takes_rows_of(Index n) {
  if constexpr (requires { F::takes(n); })
    return F::takes(n);
  else
    return n > 0;
}

/// Whether the first numbers of a row are read as they would be if they were all of it.
template <Format F>
constexpr bool reads_parts_of_rows() {
  return transform_of<F>() == RowTransform::kNone && !DecodesByLength<F, float>;
}

/// The format also stores numbers of type S.
template <class F, class S>
concept StoresFrom = DecodesTo<F, S> && requires(const S* values, std::byte* row, Index n) {
  F::encode(values, n, row);
};

/// The byte of a row near which number k is stored: exact where a block is one number. For prefetching.
template <Format F>
constexpr Index byte_near(Index k) {
  return k * F::row_bytes(F::kBlock) / F::kBlock;
}

/// A list of formats: those that a transformer's matrices may have.
template <Format... Fs>
struct FormatList {};

namespace detail {

template <class F, class... Rest, class Visitor>
decltype(auto) visit_format_in(FormatId id, Visitor&& visitor) {
  if constexpr (sizeof...(Rest) > 0) {
    if (id != F::kId) return visit_format_in<Rest...>(id, visitor);
  }
  KVDECODE_EXPECTS(id == F::kId);
  return visitor.template operator()<F>();
}

}  // namespace detail

/// Calls visitor.operator()<F>() with the format of the list that has this tag. @pre the list has it
template <Format... Fs, class Visitor>
decltype(auto) visit_format(FormatList<Fs...>, FormatId id, Visitor&& visitor) {
  return detail::visit_format_in<Fs...>(id, visitor);
}

/// Whether the list has a format with this tag.
template <Format... Fs>
constexpr bool has_format(FormatList<Fs...>, FormatId id) {
  return ((Fs::kId == id) || ...);
}

}  // namespace kvdecode

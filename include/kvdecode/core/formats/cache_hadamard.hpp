// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/cache_hadamard.hpp> - HadInt4 and HadInt3: rows of a cache turned by a Hadamard transform, then
// stored as Int4 and Int3 have them. What is large in one number is spread over all, so that a block's scale fits them.
#pragma once

#include <kvdecode/core/formats/cache_blocks.hpp>
#include <kvdecode/core/hadamard.hpp>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// Blocks of layout B of turned rows; they are read as they are stored.
template <class B>
struct TurnedBlocks : CacheBlocks<B> {
  static constexpr RowTransform kTransform = RowTransform::kHadamard;
  static constexpr std::string_view kTakes = kTurnedRows;
  static constexpr bool takes(Index n) { return can_turn(n); }

  /// Rounds to float first, whatever S is. @pre takes(n)
  template <class S>
  static void encode(const S* values, Index n, std::byte* row) noexcept {
    KVDECODE_EXPECTS(takes(n));
    float turned[kMaxTurnedRow];
    for (Index i = 0; i < n; ++i) turned[i] = as_float(values[i]);
    turn_row(kTransform, turned, n);
    CacheBlocks<B>::encode(turned, n, row);
  }
};

}  // namespace detail

/// 4.5 bits a number.
using HadInt4 = detail::TurnedBlocks<detail::SignedCodes<FormatId::kHadInt4, 4>>;
/// 3.5 bits a number.
using HadInt3 = detail::TurnedBlocks<detail::SignedCodes<FormatId::kHadInt3, 3>>;

static_assert(StoresFrom<HadInt4, float> && StoresFrom<HadInt3, double>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/cache/capacity.hpp> - how many positions a budget of bytes is enough for: required_bytes() asked the other
// way round, before anything is allocated.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>

#include <limits>

namespace kvdecode::inline KVDECODE_ABI {

/// The largest capacity whose C::required_bytes(shape, capacity, options) is within `bytes`: max_seq_len for a decoder, or
/// a cache's second argument. The largest Index where a longer sequence costs nothing more, as in a SinkCache. O(layers)
/// a halving of the capacity.
///
/// It bounds what a cache holds when it is full. A cache that grows (GrowingCache, layers without a span of a
/// SlidingWindowCache) holds its old rows beside the new ones while it moves them: at most twice that, unless
/// reserve_capacity(capacity) has made all room at once.
/// @throws Error kBadArgument if not for one position, and what required_bytes throws for one
template <KvCache C>
Index capacity_within(const KvShape& shape, Index bytes, const typename C::Options& options = {}) {
  constexpr Index kMost = std::numeric_limits<Index>::max();
  const auto fits = [&](Index capacity) {
    try {
      return C::required_bytes(shape, capacity, options) <= bytes;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBadArgument) throw;
      return false;  // beyond the address space
    }
  };
  if (const Index one = C::required_bytes(shape, 1, options); one > bytes) [[unlikely]]
    detail::raise(ErrorCode::kBadArgument, "KV cache: ", bytes, " bytes hold no position, one takes ", one);
  Index within = 1, beyond = 2;  // a capacity that fits, and one that is not known to
  while (fits(beyond)) {
    within = beyond;
    if (beyond == kMost) return kMost;
    beyond = beyond > kMost / 2 ? kMost : 2 * beyond;
  }
  while (beyond - within > 1) {
    const Index middle = within + (beyond - within) / 2;
    (fits(middle) ? within : beyond) = middle;
  }
  return within;
}

}  // namespace kvdecode

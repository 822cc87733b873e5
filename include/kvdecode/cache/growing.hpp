// SPDX-License-Identifier: MIT
// <kvdecode/cache/growing.hpp> - a cache whose memory doubles as the sequence grows. Choose it when the
// length is not known beforehand: it holds at most about twice what the sequence needs, for one copy whenever
// it doubles.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/unfragmented.hpp>

#include <algorithm>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {

/// Keys and values of up to `capacity` positions, [layer][kv_head][position][dim], allocated for as many
/// positions as have been needed so far, rounded up to a doubling of `initial_positions`.
///
/// reserve(n) allocates when the sequence outgrows the rows: O(kv_len) then, O(1) a position on the whole. shift
/// moves rows to their new slots: O(kv_len - first).
template <Format KFormat = F32, Format VFormat = KFormat>
class GrowingCache : public UnfragmentedCache<KFormat, VFormat> {
  using Base = UnfragmentedCache<KFormat, VFormat>;

 public:
  struct Options {
    Index initial_positions = 64;  // rows allocated by the first reserve
  };

  /// @param capacity  positions it may grow to, >= 1
  /// @throws Error kBadArgument, kUnsupported (a format that does not take such rows), std::bad_alloc
  GrowingCache(KvShape shape, Index capacity, Options options = {})
      : Base(std::move(shape), checked(capacity, options)), options_(options) {
    Base::require_rows(Base::shape());
  }

  GrowingCache(GrowingCache&&) noexcept = default;
  GrowingCache& operator=(GrowingCache&&) noexcept = default;

  void reserve(Index n) {
    Base::require_room(n);
    reserve_capacity(Base::kv_len() + n);
    Base::start_step(n);
  }
  /// Makes room for positions [0, n), so that no step allocates before. O(kv_len) if it has to move.
  /// @throws Error kBadArgument if n exceeds capacity(), std::bad_alloc, unchanged
  void reserve_capacity(Index n) {
    if (n > Base::capacity()) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "KV cache: cannot make room for ", n, " positions, max_seq_len ",
                    Base::capacity());
    if (n <= n_slots_) return;
    const Index n_slots = slots_for(n, Base::capacity(), options_);
    Base::make_rows(n_slots);
    n_slots_ = n_slots;
  }
  void restore(const CacheRecord& record) {
    Base::restore_from(record, [this](Index n) { reserve_capacity(n); });
  }
  GrowingCache fork() const {
    GrowingCache copy(Base::shape(), Base::capacity(), options_);
    copy.reserve_capacity(Base::kv_len());
    copy.copy_from(*this);
    return copy;
  }

  /// Bytes of a cache that has grown to its capacity.
  static Index required_bytes(const KvShape& shape, Index capacity, Options = {}) {
    return Base::required_row_bytes(shape, capacity);
  }

 private:
  static Index checked(Index capacity, const Options& options) {
    if (capacity < 1 || options.initial_positions < 1) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument,
                    "KV cache: capacity and initial_positions must be at least 1, got ", capacity, " and ",
                    options.initial_positions);
    return capacity;
  }
  /// The smallest doubling of initial_positions that holds n, no more than the capacity.
  static Index slots_for(Index n, Index capacity, const Options& options) noexcept {
    Index slots = options.initial_positions;
    while (slots < n) slots = slots > capacity / 2 ? capacity : 2 * slots;
    return std::min(slots, capacity);
  }

  Options options_;
  Index n_slots_ = 0;  // positions that there are rows for
};

static_assert(RestorableCache<GrowingCache<F16>>);
static_assert(ShiftableCache<GrowingCache<F32>> && KvCacheFor<GrowingCache<F64, F16>, double>);

}  // namespace kvdecode

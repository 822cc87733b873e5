// SPDX-License-Identifier: MIT
// <kvdecode/cache/growing.hpp> - a cache whose memory doubles as the sequence grows. Choose it when the
// length is not known beforehand: it holds at most about twice what the sequence needs, for one copy whenever
// it doubles.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/cache/head_major_rows.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/rotation_shifts.hpp>
#include <kvdecode/cache/step_ledger.hpp>

#include <algorithm>

namespace kvdecode::inline KVDECODE_ABI {

/// Keys and values of up to `capacity` positions, [layer][kv_head][position][dim], allocated for as many
/// positions as have been needed so far, rounded up to a doubling of `initial_positions`.
///
/// reserve(n) allocates when the sequence outgrows the rows: O(kv_len) then, O(1) a position on the whole. shift
/// moves rows to their new slots: O(kv_len - first).
template <Format KFormat = F32, Format VFormat = KFormat>
class GrowingCache {
 public:
  using KeyFormat = KFormat;
  using ValueFormat = VFormat;
  struct Options {
    Index initial_positions = 64;  // rows allocated by the first reserve
  };

  /// @param capacity  positions it may grow to, >= 1
  /// @throws Error kBadArgument, kUnsupported (a format that does not take such rows), std::bad_alloc
  GrowingCache(KvShape shape, Index capacity, Options options = {})
      : shape_(std::move(shape)), capacity_(capacity), options_(options), ledger_(shape_) {
    if (capacity < 1 || options.initial_positions < 1) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument,
                    "KV cache: capacity and initial_positions must be at least 1, got ", capacity, " and ",
                    options.initial_positions);
    HeadMajorLayout<KFormat, VFormat>::require_rows(shape_);
  }

  GrowingCache(GrowingCache&&) noexcept = default;
  GrowingCache& operator=(GrowingCache&&) noexcept = default;

  // ---- a step ----

  void reserve(Index n) {
    ledger_.require_room(n, capacity_);
    reserve_capacity(ledger_.kv_len() + n);
    ledger_.reserve(n);
  }
  template <class S>
  requires StoresFrom<KFormat, S> && StoresFrom<VFormat, S>
  void append(Index layer, RowsView<const S> k, RowsView<const S> v) noexcept {
    const Index slot = ledger_.length(layer);
    ledger_.append(layer, k.rows);
    rows_.write(shape_[layer], layer, slot, k, v);
  }
  void commit() noexcept { ledger_.commit(); }
  void abandon() noexcept { ledger_.abandon(); }

  ShiftedRuns<KFormat> keys(Index layer, Index kv_head) const noexcept {
    const Index store = shape_[layer].store;
    if (ledger_.length(store) == 0) return {};
    return ShiftedRuns<KFormat>(
        {0, ledger_.length(store), rows_.keys(store, kv_head, 0), rows_.key_bytes(store)}, shifts_);
  }
  ShiftedRuns<VFormat> values(Index layer, Index kv_head) const noexcept {
    const Index store = shape_[layer].store;
    if (ledger_.length(store) == 0) return {};
    return ShiftedRuns<VFormat>(
        {0, ledger_.length(store), rows_.values(store, kv_head, 0), rows_.value_bytes(store)}, shifts_);
  }

  // ---- between steps ----

  /// Makes room for positions [0, n), so that no step allocates before. O(kv_len) if it has to move.
  /// @throws Error kBadArgument if n exceeds capacity(), std::bad_alloc, unchanged
  void reserve_capacity(Index n) {
    if (n > capacity_) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "KV cache: cannot make room for ", n, " positions, max_seq_len ",
                    capacity_);
    if (n <= n_slots_) return;
    const Index n_slots = slots_for(n, capacity_, options_);
    Rows larger(typename Rows::Layout(shape_, n_slots));
    larger.copy_from(rows_, shape_, ledger_.kv_len());
    rows_ = std::move(larger);
    n_slots_ = n_slots;
    ledger_.abandon();
  }
  bool can_truncate(Index new_len) const noexcept { return new_len >= 0 && new_len <= kv_len(); }
  void truncate(Index new_len) {
    if (!can_truncate(new_len)) [[unlikely]]
      ledger_.fail_truncate(new_len);
    ledger_.truncate(new_len);
    shifts_.truncate(new_len);
  }
  bool can_shift(Index first, Index delta) const noexcept { return ledger_.can_shift(first, delta); }
  void shift(Index first, Index delta) {
    if (!can_shift(first, delta)) [[unlikely]]
      ledger_.fail_shift(first, delta);
    shifts_.shift(first, delta, kv_len());
    rows_.move_rows(shape_, first, kv_len(), first + delta);
    ledger_.truncate(kv_len() + delta);
  }
  void clear(Index epoch = 0) noexcept {
    ledger_.clear(epoch);
    shifts_.clear();
  }
  void restore(const CacheRecord& record) {
    detail::require_record(record, shape_, capacity_, detail::record_demands<KFormat, VFormat>());
    detail::require_all_positions(record);
    RotationShifts shifts(record);
    reserve_capacity(record.kv_len);
    // From here on nothing throws.
    ledger_.restore(record.kv_len, record.epoch);
    shifts_ = std::move(shifts);
    rows_.put_all(shape_, record);
  }
  GrowingCache fork() const {
    GrowingCache copy(shape_, capacity_, options_);
    copy.reserve_capacity(kv_len());
    copy.shifts_ = shifts_;
    copy.rows_.copy_from(rows_, shape_, kv_len());
    copy.ledger_ = ledger_;
    copy.ledger_.abandon();
    return copy;
  }

  const KvShape& shape() const noexcept { return shape_; }
  Index kv_len() const noexcept { return ledger_.kv_len(); }
  Index capacity() const noexcept { return capacity_; }
  Index max_append() const noexcept { return capacity_; }
  Index first_position(Index) const noexcept { return 0; }
  RowPlace place(Index, Index position) const noexcept { return {.slot = position}; }
  Index epoch() const noexcept { return ledger_.epoch(); }
  Index bytes() const noexcept { return rows_.bytes(); }
  /// Bytes of a cache that has grown to its capacity.
  static Index required_bytes(const KvShape& shape, Index capacity, Options = {}) {
    return Rows::Layout::required_bytes(shape, capacity);
  }

 private:
  using Rows = HeadMajorRows<KFormat, VFormat>;

  /// The smallest doubling of initial_positions that holds n, no more than the capacity.
  static Index slots_for(Index n, Index capacity, const Options& options) noexcept {
    Index slots = options.initial_positions;
    while (slots < n) slots = slots > capacity / 2 ? capacity : 2 * slots;
    return std::min(slots, capacity);
  }

  KvShape shape_;
  Index capacity_ = 0;
  Options options_;
  StepLedger ledger_;
  Index n_slots_ = 0;  // positions that there are rows for
  Rows rows_;
  RotationShifts shifts_;
};

static_assert(RestorableCache<GrowingCache<F16>>);
static_assert(ShiftableCache<GrowingCache<F32>> && KvCacheFor<GrowingCache<F64, F16>, double>);

}  // namespace kvdecode

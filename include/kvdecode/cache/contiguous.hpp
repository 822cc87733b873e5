// SPDX-License-Identifier: MIT
// <kvdecode/cache/contiguous.hpp> - the plain KV cache: all memory allocated once, position p in slot p.
// Choose it when the longest sequence is known: nothing moves, nothing allocates after construction,
// attention reads one stream a head.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/cache/head_major_rows.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/rotation_shifts.hpp>
#include <kvdecode/cache/step_ledger.hpp>

namespace kvdecode::inline KVDECODE_ABI {

/// Keys and values of up to `capacity` positions in one block, [layer][kv_head][position][dim].
///
/// Bytes: sum over layers of n_kv_heads * capacity * (row_bytes(k_dim) + row_bytes(v_dim)), whatever kv_len
/// is. append costs O(n_new), everything else O(1) or O(layers), fork and restore O(kv_len), shift
/// O(kv_len - first): rows move to their new slots, byte for byte.
///
/// @tparam KFormat, VFormat  how keys and values are stored. Attention reads them back in this format, also the
/// rows of the step in progress: chunking never shows.
template <Format KFormat = F32, Format VFormat = KFormat>
class ContiguousCache {
 public:
  using KeyFormat = KFormat;
  using ValueFormat = VFormat;
  struct Options {};

  /// @param capacity  positions, >= 1
  /// @throws Error kBadArgument, kUnsupported (a format that does not take such rows), std::bad_alloc
  ContiguousCache(KvShape shape, Index capacity, Options = {})
      : shape_(std::move(shape)),
        capacity_(checked(capacity)),
        ledger_(shape_),
        rows_(typename Rows::Layout(shape_, capacity)) {}

  ContiguousCache(ContiguousCache&&) noexcept = default;
  ContiguousCache& operator=(ContiguousCache&&) noexcept = default;

  // ---- a step ----

  void reserve(Index n) {
    ledger_.require_room(n, capacity_);
    ledger_.reserve(n);
  }
  /// @param k  [n, n_kv_heads * k_dim]  @param v  [n, n_kv_heads * v_dim]  @pre n positions are reserved
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
    return ShiftedRuns<KFormat>(
        {0, ledger_.length(store), rows_.keys(store, kv_head, 0), rows_.key_bytes(store)}, shifts_);
  }
  ShiftedRuns<VFormat> values(Index layer, Index kv_head) const noexcept {
    const Index store = shape_[layer].store;
    return ShiftedRuns<VFormat>(
        {0, ledger_.length(store), rows_.values(store, kv_head, 0), rows_.value_bytes(store)}, shifts_);
  }

  // ---- between steps ----

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
    // From here on nothing throws.
    ledger_.restore(record.kv_len, record.epoch);
    shifts_ = std::move(shifts);
    rows_.put_all(shape_, record);
  }
  ContiguousCache fork() const {
    ContiguousCache copy(shape_, capacity_);
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
  static Index required_bytes(const KvShape& shape, Index capacity, Options = {}) {
    return Rows::Layout::required_bytes(shape, capacity);
  }

 private:
  using Rows = HeadMajorRows<KFormat, VFormat>;

  static Index checked(Index capacity) {
    if (capacity < 1) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "KV cache: the capacity must be at least 1 position, got ",
                    capacity);
    return capacity;
  }

  KvShape shape_;
  Index capacity_ = 0;
  StepLedger ledger_;
  Rows rows_;
  RotationShifts shifts_;
};

static_assert(ShiftableCache<ContiguousCache<F32>> && KvCacheFor<ContiguousCache<F16, BF16>, float>);
static_assert(RestorableCache<ContiguousCache<F16>>);
static_assert(!KvCacheFor<ContiguousCache<Raw<float>>, double>, "Raw<float> holds float only.");

}  // namespace kvdecode

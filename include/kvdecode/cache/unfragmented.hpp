// SPDX-License-Identifier: MIT
// <kvdecode/cache/unfragmented.hpp> - what the caches have in common that keep position p in slot p of one block: all
// but when they allocate it.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/cache/head_major_rows.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/rotation_shifts.hpp>
#include <kvdecode/cache/step_ledger.hpp>

#include <utility>

namespace kvdecode::inline KVDECODE_ABI {

/// Keys and values, [layer][kv_head][position][dim]: one stream a head, cut only where a context shift has closed a gap.
/// append is O(n_new), shift O(kv_len - first): rows move to their new slots, byte for byte. ContiguousCache and
/// GrowingCache make the rows.
template <Format KFormat, Format VFormat>
class UnfragmentedCache {
 public:
  using KeyFormat = KFormat;
  using ValueFormat = VFormat;

  // ---- a step ----

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
    const Index store = shape_[layer].store, length = ledger_.length(store);
    if (length == 0) return {};
    return ShiftedRuns<KFormat>({0, length, rows_.keys(store, kv_head, 0), rows_.key_bytes(store)}, shifts_);
  }
  ShiftedRuns<VFormat> values(Index layer, Index kv_head) const noexcept {
    const Index store = shape_[layer].store, length = ledger_.length(store);
    if (length == 0) return {};
    return ShiftedRuns<VFormat>({0, length, rows_.values(store, kv_head, 0), rows_.value_bytes(store)},
                                shifts_);
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

  const KvShape& shape() const noexcept { return shape_; }
  Index kv_len() const noexcept { return ledger_.kv_len(); }
  Index capacity() const noexcept { return capacity_; }
  Index max_append() const noexcept { return capacity_; }
  Index first_position(Index) const noexcept { return 0; }
  RowPlace place(Index, Index position) const noexcept { return {.slot = position}; }
  Index epoch() const noexcept { return ledger_.epoch(); }
  Index bytes() const noexcept { return rows_.bytes(); }

 protected:
  /// Without rows. @pre capacity >= 1
  UnfragmentedCache(KvShape shape, Index capacity)
      : shape_(std::move(shape)), capacity_(capacity), ledger_(shape_) {}
  UnfragmentedCache(UnfragmentedCache&&) noexcept = default;
  UnfragmentedCache& operator=(UnfragmentedCache&&) noexcept = default;
  ~UnfragmentedCache() = default;

  /// Makes rows for positions [0, n_slots), keeps what is committed, and ends a step in progress. O(kv_len).
  /// @throws std::bad_alloc, Error (kBadArgument) if the size cannot be expressed, unchanged
  void make_rows(Index n_slots) {
    Rows rows(typename Rows::Layout(shape_, n_slots));
    rows.copy_from(rows_, shape_, kv_len());
    rows_ = std::move(rows);
    ledger_.abandon();
  }
  void require_room(Index n) const { ledger_.require_room(n, capacity_); }
  /// @pre there are rows for n more positions
  void start_step(Index n) noexcept { ledger_.reserve(n); }
  /// Becomes the sequence of a record. @param make_room  (n), makes rows for so many positions before all else changes
  template <class MakeRoom>
  void restore_from(const CacheRecord& record, const MakeRoom& make_room) {
    detail::require_record(record, shape_, capacity_, detail::record_demands<KFormat, VFormat>());
    detail::require_all_positions(record);
    RotationShifts shifts(record);
    make_room(record.kv_len);
    // From here on nothing throws.
    ledger_.restore(record.kv_len, record.epoch);
    shifts_ = std::move(shifts);
    rows_.put_all(shape_, record);
  }
  /// Becomes what another cache of the same shape has committed. @pre there are rows for it  @throws std::bad_alloc
  void copy_from(const UnfragmentedCache& other) {
    shifts_ = other.shifts_;
    rows_.copy_from(other.rows_, shape_, other.kv_len());
    ledger_ = other.ledger_;
    ledger_.abandon();
  }
  static Index required_row_bytes(const KvShape& shape, Index capacity) {
    return Rows::Layout::required_bytes(shape, capacity);
  }
  static void require_rows(const KvShape& shape) { Rows::Layout::require_rows(shape); }

 private:
  using Rows = HeadMajorRows<KFormat, VFormat>;

  KvShape shape_;
  Index capacity_ = 0;
  StepLedger ledger_;
  Rows rows_;
  RotationShifts shifts_;
};

}  // namespace kvdecode

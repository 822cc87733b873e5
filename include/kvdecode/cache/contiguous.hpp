// SPDX-License-Identifier: MIT
// <kvdecode/cache/contiguous.hpp> - the plain KV cache: all memory allocated once, position p in slot p.
// Choose it when the longest sequence is known: nothing moves, nothing allocates after construction,
// attention reads one stream a head.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/cache/head_major_rows.hpp>
#include <kvdecode/cache/step_ledger.hpp>

#include <span>

namespace kvdecode::inline KVDECODE_ABI {

/// At most one run: the range that keys() and values() of an unfragmented cache return.
template <class F>
class SingleRun {
 public:
  SingleRun() noexcept = default;
  explicit SingleRun(const KvRun<F>& run) noexcept : run_(run) {}

  const KvRun<F>* begin() const noexcept { return &run_; }
  const KvRun<F>* end() const noexcept { return &run_ + (run_.length > 0 ? 1 : 0); }

 private:
  KvRun<F> run_;
};

/// Keys and values of up to `capacity` positions in one block, [layer][kv_head][position][dim].
///
/// Bytes: sum over layers of n_kv_heads * capacity * (row_bytes(k_dim) + row_bytes(v_dim)), whatever kv_len
/// is. append costs O(n_new), everything else O(1) or O(layers), fork O(kv_len).
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
      : shape_(std::move(shape)), ledger_(shape_), rows_(shape_, checked(capacity)) {}

  ContiguousCache(ContiguousCache&&) noexcept = default;
  ContiguousCache& operator=(ContiguousCache&&) noexcept = default;

  // ---- a step ----

  void reserve(Index n) {
    ledger_.require_room(n, capacity());
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

  SingleRun<KFormat> keys(Index layer, Index kv_head) const noexcept {
    const Index store = shape_[layer].store;
    return SingleRun<KFormat>(
        {0, ledger_.length(store), rows_.keys(store, kv_head, 0), rows_.key_bytes(store)});
  }
  SingleRun<VFormat> values(Index layer, Index kv_head) const noexcept {
    const Index store = shape_[layer].store;
    return SingleRun<VFormat>(
        {0, ledger_.length(store), rows_.values(store, kv_head, 0), rows_.value_bytes(store)});
  }

  // ---- between steps ----

  bool can_truncate(Index new_len) const noexcept { return new_len >= 0 && new_len <= kv_len(); }
  void truncate(Index new_len) {
    if (!can_truncate(new_len)) [[unlikely]]
      ledger_.fail_truncate(new_len);
    ledger_.truncate(new_len);
  }
  void clear(Index epoch = 0) noexcept { ledger_.clear(epoch); }
  ContiguousCache fork() const {
    ContiguousCache copy(shape_, capacity());
    copy.rows_.copy_from(rows_, shape_, kv_len());
    copy.ledger_ = ledger_;
    copy.ledger_.abandon();
    return copy;
  }

  const KvShape& shape() const noexcept { return shape_; }
  Index kv_len() const noexcept { return ledger_.kv_len(); }
  Index capacity() const noexcept { return rows_.n_slots(); }
  Index max_append() const noexcept { return capacity(); }
  Index first_position(Index) const noexcept { return 0; }
  Index epoch() const noexcept { return ledger_.epoch(); }
  Index bytes() const noexcept { return rows_.bytes(); }
  static Index required_bytes(const KvShape& shape, Index capacity, Options = {}) {
    return HeadMajorRows<KFormat, VFormat>::required_bytes(shape, capacity);
  }

 private:
  static Index checked(Index capacity) {
    if (capacity < 1) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "KV cache: the capacity must be at least 1 position, got ",
                    capacity);
    return capacity;
  }

  KvShape shape_;
  StepLedger ledger_;
  HeadMajorRows<KFormat, VFormat> rows_;
};

static_assert(KvCache<ContiguousCache<F32>> && KvCacheFor<ContiguousCache<F16, BF16>, float>);
static_assert(!KvCacheFor<ContiguousCache<Raw<float>>, double>, "Raw<float> holds float only.");

}  // namespace kvdecode

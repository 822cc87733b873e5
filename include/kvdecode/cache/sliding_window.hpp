// SPDX-License-Identifier: MIT
// <kvdecode/cache/sliding_window.hpp> - a cache that forgets, layer by layer, what the layer's own span will never let
// a query see again. Choose it for models with windowed or chunked layers: those cost their window, whatever the
// length, and layers that see all positions cost what they cost in a growing cache.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/ring_rows.hpp>
#include <kvdecode/cache/step_ledger.hpp>

namespace kvdecode::inline KVDECODE_ABI {

/// Keys and values of up to `capacity` positions, a ring for each layer that has a window or chunks, and beside it the
/// sinks that its span keeps.
///
/// Bytes of a ring: n_kv_heads * (n_sink + window - 1 + slack + max_append) rows, chunk in place of window, or capacity
/// rows if that is less. The last `slack` positions can always be taken back, more where steps were small:
/// can_truncate says. reserve allocates for full layers only; truncate is O(layers), fork O(bytes).
template <Format KFormat = F32, Format VFormat = KFormat>
class SlidingWindowCache {
 public:
  using KeyFormat = KFormat;
  using ValueFormat = VFormat;
  struct Options {
    Index slack = 32;        // positions, >= 0
    Index max_append = 128;  // positions of one step, >= 1: longer calls are cut
  };

  /// @param capacity  positions, >= 1  @throws Error kBadArgument, std::bad_alloc
  SlidingWindowCache(KvShape shape, Index capacity, Options options = {})
      : shape_(std::move(shape)), ledger_(shape_), rows_(shape_, capacity, checked(capacity, options)) {}

  SlidingWindowCache(SlidingWindowCache&&) noexcept = default;
  SlidingWindowCache& operator=(SlidingWindowCache&&) noexcept = default;

  // ---- a step ----

  void reserve(Index n) {
    ledger_.require_room(n, capacity());
    rows_.grow(shape_, kv_len() + n, kv_len());
    ledger_.reserve(n);
  }
  /// @pre no more than max_append() rows since the last commit
  template <class S>
  requires StoresFrom<KFormat, S> && StoresFrom<VFormat, S>
  void append(Index layer, RowsView<const S> k, RowsView<const S> v) noexcept {
    const Index position = ledger_.length(layer);
    KVDECODE_EXPECTS(position - kv_len() + k.rows <= max_append());
    ledger_.append(layer, k.rows);
    rows_.write(shape_[layer], layer, position, k, v);
  }
  void commit() noexcept { ledger_.commit(); }
  void abandon() noexcept { ledger_.abandon(); }

  RingRuns<KFormat> keys(Index layer, Index kv_head) const noexcept {
    const Index store = shape_[layer].store;
    return rows_.keys(store, kv_head, ledger_.length(store));
  }
  RingRuns<VFormat> values(Index layer, Index kv_head) const noexcept {
    const Index store = shape_[layer].store;
    return rows_.values(store, kv_head, ledger_.length(store));
  }

  // ---- between steps ----

  /// Makes room for positions [0, n), so that no step allocates before. O(kv_len) if full layers have to move.
  /// @throws Error kBadArgument if n exceeds capacity(), std::bad_alloc, unchanged
  void reserve_capacity(Index n) {
    if (n > capacity()) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "KV cache: cannot make room for ", n, " positions, max_seq_len ",
                    capacity());
    if (rows_.grow(shape_, n, kv_len())) ledger_.abandon();
  }
  bool can_truncate(Index new_len) const noexcept {
    return new_len >= 0 && new_len <= kv_len() && rows_.can_truncate(new_len);
  }
  void truncate(Index new_len) {
    if (!can_truncate(new_len)) [[unlikely]]
      fail_truncate(new_len);
    ledger_.truncate(new_len);
    rows_.truncate(new_len);
  }
  void clear(Index epoch = 0) noexcept {
    ledger_.clear(epoch);
    rows_.truncate(0);
  }
  /// Never: a ring forgets by itself what a shift would drop.
  bool can_shift(Index, Index) const noexcept { return false; }
  [[noreturn]] void shift(Index first, Index delta) {
    detail::raise(ErrorCode::kUnsupported, "KV cache: cannot shift positions from ", first, " by ", delta,
                  ": a ring finds rows by their positions, and needs no room for more of them");
  }
  /// Takes of a record what it has slots for: any record that has what queries from its end on see.
  void restore(const CacheRecord& record) {
    detail::require_record(record, shape_, capacity(), detail::record_demands<KFormat, VFormat>());
    rows_.require_visible(record);
    rows_.grow(shape_, record.kv_len, kv_len());
    // From here on nothing throws.
    ledger_.restore(record.kv_len, record.epoch);
    rows_.restore(shape_, record);
  }
  SlidingWindowCache fork() const {
    SlidingWindowCache copy(shape_, capacity(), {rows_.room().slack, rows_.room().max_append});
    copy.rows_.grow(shape_, kv_len(), 0);
    copy.rows_.copy_from(rows_, shape_, kv_len());
    copy.ledger_ = ledger_;
    copy.ledger_.abandon();
    return copy;
  }

  const KvShape& shape() const noexcept { return shape_; }
  Index kv_len() const noexcept { return ledger_.kv_len(); }
  Index capacity() const noexcept { return rows_.capacity(); }
  Index max_append() const noexcept { return rows_.max_append(); }
  Index first_position(Index layer) const noexcept { return rows_.first_position(shape_[layer].store); }
  /// Of a position that is stored.
  RowPlace place(Index layer, Index position) const noexcept {
    return {.slot = rows_.slot_of(shape_[layer].store, position)};
  }
  Index epoch() const noexcept { return ledger_.epoch(); }
  Index bytes() const noexcept { return rows_.bytes(); }
  /// Bytes of a cache whose full layers have grown to its capacity.
  static Index required_bytes(const KvShape& shape, Index capacity, Options options = {}) {
    return RingRows<KFormat, VFormat>::required_bytes(shape, capacity, {options.slack, options.max_append});
  }

 private:
  static RingRoom checked(Index capacity, const Options& options) {
    if (capacity < 1 || options.slack < 0 || options.max_append < 1) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument,
                    "KV cache: capacity and max_append must be at least 1 and slack not negative, got ",
                    capacity, ", ", options.max_append, " and ", options.slack);
    return {options.slack, options.max_append};
  }
  [[noreturn]] void fail_truncate(Index new_len) const {
    if (new_len >= 0 && new_len <= kv_len())
      detail::raise(ErrorCode::kBadArgument, "KV cache: cannot truncate to ", new_len, " positions, kv_len ",
                    kv_len(), ": a ring has overwritten positions that a query there sees; slack ",
                    rows_.room().slack);
    ledger_.fail_truncate(new_len);
  }

  KvShape shape_;
  StepLedger ledger_;
  RingRows<KFormat, VFormat> rows_;
};

static_assert(RestorableCache<SlidingWindowCache<F16>>);
static_assert(KvCacheFor<SlidingWindowCache<>, float> && ShiftableCache<SlidingWindowCache<F16, F64>>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/cache/cross_attention.hpp> - the fixed cache of cross-attention: keys and values of an encoder's outputs,
// computed once, read by every step of the decoder, never grown by it. Choose it beside the decoder's own cache; all
// sequences that read one encoding share its rows.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/cache/head_major_rows.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/rotation_shifts.hpp>
#include <kvdecode/cache/step_ledger.hpp>

#include <memory>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {

/// Keys and values of up to `capacity` encoder outputs, [layer][kv_head][position][dim]; a position is that of an output.
///
/// It is filled like any other cache, in one step or many, and then sealed: from there on its rows are those of all its
/// forks, and nobody writes them. What would change them is refused; clear() gives them up and starts anew.
///
/// |                    | until seal()                     | from then on                          |
/// |--------------------|----------------------------------|---------------------------------------|
/// | reserve(n), append | as in any cache                  | refused, n = 0 excepted               |
/// | truncate(n)        | any n up to kv_len               | n = kv_len only                       |
/// | fork(), reorder()  | copies the rows, O(bytes)        | refers to them: O(layers), no row     |
/// | clear(), restore() | keeps the memory for other rows  | leaves it to the forks                |
/// | shift()            | refused                          | refused                               |
///
/// The first reserve, and the first one after a sealed cache was cleared, allocates rows for `capacity` positions; no other
/// one allocates. Forks may be read and destroyed on different threads.
///
/// @tparam KFormat, VFormat  how keys and values are stored
template <Format KFormat = F32, Format VFormat = KFormat>
class CrossAttentionCache {
 public:
  using KeyFormat = KFormat;
  using ValueFormat = VFormat;
  struct Options {};

  /// @param capacity  encoder outputs, >= 1
  /// @throws Error kBadArgument, kUnsupported (a format that does not take such rows), std::bad_alloc
  CrossAttentionCache(KvShape shape, Index capacity, Options = {})
      : shape_(std::move(shape)), capacity_(capacity), ledger_(shape_) {
    if (capacity < 1) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "KV cache: the capacity must be at least 1 position, got ",
                    capacity);
    required_bytes(shape_, capacity);  // throws if that cannot be expressed or stored
  }

  CrossAttentionCache(CrossAttentionCache&&) noexcept = default;
  CrossAttentionCache& operator=(CrossAttentionCache&&) noexcept = default;

  // ---- a step ----

  /// @throws Error kUnsupported if sealed
  void reserve(Index n) {
    if (is_sealed_ && n > 0) [[unlikely]]
      detail::raise(ErrorCode::kUnsupported, "KV cache: cannot append ", n,
                    " positions to the encoder outputs of cross-attention, which were sealed at kv_len ",
                    kv_len(), "; clear() makes room for others");
    ledger_.require_room(n, capacity_);
    if (n > 0 && rows_ == nullptr) rows_ = new_rows();
    ledger_.reserve(n);
  }
  /// @param k  [n, n_kv_heads * k_dim]  @param v  [n, n_kv_heads * v_dim]  @pre n positions are reserved
  template <class S>
  requires StoresFrom<KFormat, S> && StoresFrom<VFormat, S>
  void append(Index layer, RowsView<const S> k, RowsView<const S> v) noexcept {
    const Index slot = ledger_.length(layer);
    ledger_.append(layer, k.rows);
    if (k.rows > 0) rows_->write(shape_[layer], layer, slot, k, v);
  }
  void commit() noexcept { ledger_.commit(); }
  void abandon() noexcept { ledger_.abandon(); }

  /// Ends the filling, and a step in progress: what is committed stays as it is until clear() or restore(). A sealed cache
  /// may be sealed again. O(layers).
  /// @throws Error kBadArgument if there are no positions: a query must see one
  void seal() {
    if (kv_len() == 0) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument,
                    "KV cache: cannot seal encoder outputs before there are any: kv_len is 0");
    ledger_.abandon();
    is_sealed_ = true;
  }
  bool is_sealed() const noexcept { return is_sealed_; }

  ShiftedRuns<KFormat> keys(Index layer, Index kv_head) const noexcept {
    if (rows_ == nullptr) return {};
    const Index store = shape_[layer].store;
    return one_run<KFormat>(store, rows_->keys(store, kv_head, 0), rows_->key_bytes(store));
  }
  ShiftedRuns<VFormat> values(Index layer, Index kv_head) const noexcept {
    if (rows_ == nullptr) return {};
    const Index store = shape_[layer].store;
    return one_run<VFormat>(store, rows_->values(store, kv_head, 0), rows_->value_bytes(store));
  }

  // ---- between steps ----

  bool can_truncate(Index new_len) const noexcept {
    return is_sealed_ ? new_len == kv_len() : new_len >= 0 && new_len <= kv_len();
  }
  void truncate(Index new_len) {
    if (!can_truncate(new_len)) [[unlikely]]
      fail_truncate(new_len);
    ledger_.truncate(new_len);
  }
  /// Never: encoder outputs have no positions among the decoder's.
  bool can_shift(Index, Index) const noexcept { return false; }
  [[noreturn]] void shift(Index first, Index delta) {
    detail::raise(ErrorCode::kUnsupported, "KV cache: cannot shift positions from ", first, " by ", delta,
                  ": encoder outputs of cross-attention stay where they are, whatever becomes of the text");
  }
  void clear(Index epoch = 0) noexcept {
    if (is_sealed_) rows_ = nullptr;
    is_sealed_ = false;
    ledger_.clear(epoch);
  }
  /// The rows are there, but not sealed: a record does not say whether they are all.
  void restore(const CacheRecord& record) {
    detail::require_record(record, shape_, capacity_, detail::record_demands<KFormat, VFormat>());
    detail::require_all_positions(record);
    if (!record.rotation.empty()) [[unlikely]]
      detail::raise(ErrorCode::kUnsupported,
                    "cache record: has rotation shifts, which encoder outputs do not have");
    std::shared_ptr<Rows> rows = rows_ == nullptr || is_sealed_ ? new_rows() : rows_;
    // From here on nothing throws.
    rows->put_all(shape_, record);
    rows_ = std::move(rows);
    is_sealed_ = false;
    ledger_.restore(record.kv_len, record.epoch);
  }
  CrossAttentionCache fork() const {
    CrossAttentionCache copy(shape_, capacity_);
    if (is_sealed_) {
      copy.rows_ = rows_;
    } else if (kv_len() > 0) {
      copy.rows_ = new_rows();
      copy.rows_->copy_from(*rows_, shape_, kv_len());
    }
    copy.is_sealed_ = is_sealed_;
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
  /// Of the rows that it refers to; forks may refer to them too.
  Index bytes() const noexcept { return rows_ == nullptr ? 0 : rows_->bytes(); }
  /// Bytes of the rows, however many sequences read them.
  static Index required_bytes(const KvShape& shape, Index capacity, Options = {}) {
    return Rows::Layout::required_bytes(shape, capacity);
  }

 private:
  using Rows = HeadMajorRows<KFormat, VFormat>;

  std::shared_ptr<Rows> new_rows() const {
    return std::allocate_shared<Rows>(Allocator<Rows>{}, typename Rows::Layout(shape_, capacity_));
  }
  template <class F>
  ShiftedRuns<F> one_run(Index store, const std::byte* data, Index row_bytes) const noexcept {
    return ShiftedRuns<F>({0, ledger_.length(store), data, row_bytes}, RotationShifts{});
  }
  [[noreturn]] void fail_truncate(Index new_len) const {
    if (new_len >= 0 && new_len <= kv_len())
      detail::raise(ErrorCode::kBadArgument, "KV cache: cannot truncate to ", new_len, " positions, kv_len ",
                    kv_len(), ": encoder outputs of cross-attention stay as they were sealed");
    ledger_.fail_truncate(new_len);
  }

  KvShape shape_;
  Index capacity_ = 0;
  StepLedger ledger_;
  std::shared_ptr<Rows> rows_;  // of this cache alone until it is sealed; null before the first reserve
  bool is_sealed_ = false;
};

static_assert(ShiftableCache<CrossAttentionCache<F32>> && KvCacheFor<CrossAttentionCache<F16, BF16>, float>);
static_assert(RestorableCache<CrossAttentionCache<F16>>);

}  // namespace kvdecode

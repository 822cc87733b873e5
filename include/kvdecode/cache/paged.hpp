// SPDX-License-Identifier: MIT
// <kvdecode/cache/paged.hpp> - a cache in pages of a pool that many sequences share. Choose it for sequences that
// are forked: beams, several answers to one prompt. A fork refers to the pages of its original, and a page is
// copied when one of them writes to it.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/cache/head_major_rows.hpp>
#include <kvdecode/cache/page_pool.hpp>
#include <kvdecode/cache/page_table.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/run_iterator.hpp>
#include <kvdecode/cache/step_ledger.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>

namespace kvdecode::inline KVDECODE_ABI {

/// One run for each part of a page: the range that keys() and values() of a paged cache return.
template <class F>
class PageRuns {
 public:
  using Iterator = RunIterator<PageRuns, F>;

  PageRuns() noexcept = default;
  /// Positions [0, length). @param offset  bytes from the start of a page to the row of its slot 0
  PageRuns(const PageTable& table, Index length, Index offset, Index row_bytes) noexcept
      : table_(&table),
        n_runs_(table.count_before(length)),
        length_(length),
        offset_(offset),
        row_bytes_(row_bytes) {}

  Iterator begin() const noexcept { return {*this, 0}; }
  Iterator end() const noexcept { return {*this, n_runs_}; }
  /// Run i of those between begin() and end().
  KvRun<F> run(Index i) const noexcept {
    const PageTable::Entry& entry = table_->at(i);
    const Index end = i + 1 < n_runs_ ? table_->at(i + 1).position : length_;
    return {entry.position, end - entry.position, entry.page->data() + offset_ + entry.slot * row_bytes_,
            row_bytes_, entry.rotation_shift};
  }

 private:
  const PageTable* table_ = nullptr;
  Index n_runs_ = 0;
  Index length_ = 0;
  Index offset_ = 0;
  Index row_bytes_ = 0;
};

/// Keys and values in pages of page_size positions, [page][layer][kv_head][position][dim].
///
/// reserve(n) takes pages, and copies the last one if somebody else refers to it; append is O(n_new), fork, shift and
/// truncate are O(pages), and give whole pages back. Each shift may leave two pages that are not full.
///
/// @tparam page_size  positions of a page: a run that attention reads at a time
template <Index page_size = 16, Format KFormat = F32, Format VFormat = KFormat>
class PagedCache {
  static_assert(page_size >= 1, "A page holds one position at least.");

 public:
  using KeyFormat = KFormat;
  using ValueFormat = VFormat;
  static constexpr Index kPageSize = page_size;
  struct Options {
    PagePool* pool =
        nullptr;  // of pages of page_bytes(shape), outlives the cache; null: one for it and its forks
  };

  /// @param capacity  positions, >= 1  @throws Error kBadArgument, kMismatch (the pool's pages), std::bad_alloc
  PagedCache(KvShape shape, Index capacity, Options options = {})
      : shape_(std::move(shape)),
        capacity_(capacity),
        layout_(shape_, page_size),
        ledger_(shape_),
        table_(make_table(options.pool, layout_.bytes())) {
    if (capacity < 1) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "KV cache: the capacity must be at least 1 position, got ",
                    capacity);
  }

  PagedCache(PagedCache&&) noexcept = default;
  PagedCache& operator=(PagedCache&&) noexcept = default;

  // ---- a step ----

  /// @throws Error kCacheFull also if the pool has no more pages
  void reserve(Index n) {
    ledger_.require_room(n, capacity_);
    if (n > kAddressable / std::max<Index>(1, layout_.bytes()))
      required_bytes(shape_, kv_len() + n);  // throws
    table_.reserve(kv_len(), n, [&](const std::byte* from, std::byte* to, Index n_slots) noexcept {
      layout_.copy(to, layout_, from, shape_, n_slots);
    });
    ledger_.reserve(n);
  }
  template <class S>
  requires StoresFrom<KFormat, S> && StoresFrom<VFormat, S>
  void append(Index layer, RowsView<const S> k, RowsView<const S> v) noexcept {
    Index position = ledger_.length(layer), done = 0;
    ledger_.append(layer, k.rows);
    while (done < k.rows) {
      const PageTable::Entry& entry = table_.at(table_.count_before(position + 1) - 1);
      const Index slot = entry.slot + position - entry.position;
      const Index n = std::min(k.rows - done, page_size - slot);
      layout_.write(entry.page->data(), shape_[layer], layer, slot,
                    RowsView<const S>{k.row(done), n, k.cols, k.stride},
                    RowsView<const S>{v.row(done), n, v.cols, v.stride});
      position += n;
      done += n;
    }
  }
  void commit() noexcept { ledger_.commit(); }
  void abandon() noexcept { truncate_to(kv_len()); }

  PageRuns<KFormat> keys(Index layer, Index kv_head) const noexcept {
    const Index store = shape_[layer].store;
    return {table_, ledger_.length(store), layout_.keys(store, kv_head, 0), layout_.key_bytes(store)};
  }
  PageRuns<VFormat> values(Index layer, Index kv_head) const noexcept {
    const Index store = shape_[layer].store;
    return {table_, ledger_.length(store), layout_.values(store, kv_head, 0), layout_.value_bytes(store)};
  }

  // ---- between steps ----

  /// Makes sure of free pages for positions [0, n): no step allocates before, unless other caches take them from a
  /// common pool. @throws Error kBadArgument if n exceeds capacity(), kCacheFull, std::bad_alloc, unchanged
  void reserve_capacity(Index n) {
    if (n > capacity_) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "KV cache: cannot make room for ", n, " positions, max_seq_len ",
                    capacity_);
    table_.reserve_capacity(kv_len(), n);
  }
  bool can_truncate(Index new_len) const noexcept { return new_len >= 0 && new_len <= kv_len(); }
  void truncate(Index new_len) {
    if (!can_truncate(new_len)) [[unlikely]]
      ledger_.fail_truncate(new_len);
    truncate_to(new_len);
  }
  bool can_shift(Index first, Index delta) const noexcept { return ledger_.can_shift(first, delta); }
  void shift(Index first, Index delta) {
    if (!can_shift(first, delta)) [[unlikely]]
      ledger_.fail_shift(first, delta);
    table_.shift(first, delta, kv_len());
    ledger_.truncate(kv_len() + delta);
  }
  void clear(Index epoch = 0) noexcept {
    table_.truncate(0);
    ledger_.clear(epoch);
  }
  /// Becomes a sequence of n_pages full pages that others have written, and refers to them: O(pages), copies nothing,
  /// ends a step in progress. For PrefixStore, which knows whose they are.
  /// @pre pages of caches of this type, pool and shape; the epoch is 0; capacity() has room
  /// @param page_at  (i) -> PagePool::Page&, called for i from n_pages - 1 down to 0; noexcept
  /// @throws std::bad_alloc, unchanged
  template <class PageAt>
  void adopt(Index n_pages, const PageAt& page_at) {
    KVDECODE_EXPECTS(epoch() == 0 && n_pages <= capacity_ / page_size);
    table_.adopt(n_pages, page_at);
    ledger_.adopt(n_pages * page_size);
  }
  /// The rows go into pages that nobody else refers to, and take no more of them than as many positions appended.
  /// @throws Error kCacheFull also if the pool has not so many beside those that are given back at the end
  void restore(const CacheRecord& record) {
    detail::require_record(record, shape_, capacity_, detail::record_demands<KFormat, VFormat>());
    detail::require_all_positions(record);
    PageTable table = table_.restored(record);
    // From here on nothing throws.
    for (const StoreRecord& store : record.stores)
      for (Index i = 0; i < table.size(); ++i) {
        const PageTable::Entry& entry = table.at(i);
        const Index end = i + 1 < table.size() ? table.at(i + 1).position : record.kv_len;
        layout_.put(entry.page->data(), shape_[store.layer], entry.slot, store, record.kv_len, entry.position,
                    end - entry.position);
      }
    table_ = std::move(table);
    ledger_.restore(record.kv_len, record.epoch);
  }
  PagedCache fork() const {
    PagedCache copy(shape_, capacity_, Options{&table_.pool()});
    copy.table_ = table_.fork(kv_len());
    copy.ledger_ = ledger_;
    copy.ledger_.abandon();
    return copy;
  }

  const KvShape& shape() const noexcept { return shape_; }
  Index kv_len() const noexcept { return ledger_.kv_len(); }
  Index capacity() const noexcept { return capacity_; }
  Index max_append() const noexcept { return capacity_; }
  Index first_position(Index) const noexcept { return 0; }
  /// Of a position that is stored.
  RowPlace place(Index, Index position) const noexcept {
    const PageTable::Entry& entry = table_.at(table_.count_before(position + 1) - 1);
    return {entry.page->number(), entry.slot + position - entry.position};
  }
  Index epoch() const noexcept { return ledger_.epoch(); }
  /// Of the pages that it refers to; others may refer to them too.
  Index bytes() const noexcept { return table_.n_pages() * layout_.bytes(); }
  /// The pages' pool.
  PagePool& pool() const noexcept { return table_.pool(); }
  const PageTable& pages() const noexcept { return table_; }
  static Index page_bytes(const KvShape& shape) { return Layout::required_bytes(shape, page_size); }
  /// Bytes of the pages of so many positions.
  static Index required_bytes(const KvShape& shape, Index capacity, Options = {}) {
    Layout::required_bytes(shape, capacity);  // throws if that cannot be expressed
    const Index n_pages = capacity / page_size + (capacity % page_size > 0 ? 1 : 0);
    return Layout::required_bytes(shape, n_pages * page_size);
  }

 private:
  using Layout = HeadMajorLayout<KFormat, VFormat>;
  static constexpr Index kAddressable = std::numeric_limits<Index>::max() / 2;

  static PageTable make_table(PagePool* pool, Index page_bytes) {
    if (pool == nullptr) {
      auto own = std::allocate_shared<PagePool>(Allocator<PagePool>{}, page_bytes);
      return PageTable(*own, own, page_size);
    }
    if (pool->page_bytes() != page_bytes) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, "KV cache: a page of ", page_size, " positions has ", page_bytes,
                    " bytes, the pool's have ", pool->page_bytes());
    return PageTable(*pool, nullptr, page_size);
  }
  void truncate_to(Index new_len) noexcept {
    ledger_.truncate(new_len);
    table_.truncate(new_len);
  }

  KvShape shape_;
  Index capacity_ = 0;
  Layout layout_;  // of a page
  StepLedger ledger_;
  PageTable table_;
};

static_assert(RestorableCache<PagedCache<3, F16>>);
static_assert(ShiftableCache<PagedCache<>> && KvCacheFor<PagedCache<1, F16, BF16>, float>);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/cache/page_table.hpp> - which positions of a sequence lie in which pages. It owns references to its
// pages, not what is in them.
#pragma once

#include <kvdecode/cache/page_pool.hpp>
#include <kvdecode/cache/record.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {

/// The pages of one sequence in rising position. Without context shifts position p is in slot p % page_size of entry
/// p / page_size; a shift cuts pages into parts, and what is appended behind it begins a page of its own.
class PageTable {
 public:
  /// A part of a page: slots from `slot` on hold positions from `position` up to that of the next entry.
  struct Entry {
    PagePool::Page* page = nullptr;
    Index position = 0;
    Index slot = 0;
    Index rotation_shift = 0;
  };

  /// @param owner  keeps the pool, if its tables are all that do
  PageTable(PagePool& pool, std::shared_ptr<PagePool> owner, Index page_size) noexcept
      : pool_(&pool), owner_(std::move(owner)), page_size_(page_size) {}
  PageTable(PageTable&& other) noexcept
      : pool_(other.pool_),
        owner_(std::move(other.owner_)),
        page_size_(other.page_size_),
        entries_(std::exchange(other.entries_, {})) {}
  PageTable& operator=(PageTable&& other) noexcept {
    PageTable moved(std::move(other));
    std::swap(pool_, moved.pool_);
    std::swap(owner_, moved.owner_);
    std::swap(page_size_, moved.page_size_);
    std::swap(entries_, moved.entries_);
    return *this;
  }
  ~PageTable() { truncate(0); }

  /// Makes positions [kv_len, kv_len + n) writable: in pages of their own, whose rows below kv_len are copied where
  /// somebody else refers to them. What lay behind kv_len is lost.
  /// @param copy  (from, to, n_slots): copies the first slots of a page; noexcept
  /// @throws Error kCacheFull, std::bad_alloc, unchanged
  template <class Copy>
  void reserve(Index kv_len, Index n, const Copy& copy) {
    const Room room = room_for(kv_len, n);
    grow_room(room.n_kept + room.n_wanted);
    PagePool::Page* chain = pool_->acquire(room.n_pages);
    // From here on nothing throws.
    if (room.is_copied) {
      Entry& tail = entries_[static_cast<std::size_t>(room.n_kept - 1)];
      PagePool::Page* const page = PagePool::take(chain);
      copy(tail.page->data(), page->data(), tail.slot + kv_len - tail.position);
      pool_->release(*std::exchange(tail.page, page));
    }
    drop_from(room.n_kept + room.n_wanted);
    for (Index i = room.n_kept; i < size(); ++i)
      entries_[static_cast<std::size_t>(i)].position = room.end + (i - room.n_kept) * page_size_;
    while (size() < room.n_kept + room.n_wanted)
      entries_.push_back({PagePool::take(chain), room.end + (size() - room.n_kept) * page_size_, 0, 0});
  }
  /// Makes reserve() find what it needs for positions [kv_len, n_positions), allocating nothing. @throws as reserve
  void reserve_capacity(Index kv_len, Index n_positions) {
    const Room room = room_for(kv_len, std::max<Index>(0, n_positions - kv_len));
    grow_room(room.n_kept + room.n_wanted);
    pool_->reserve_free(room.n_pages);
  }
  /// Gives back the pages that hold no position before new_len.
  void truncate(Index new_len) noexcept { drop_from(count_before(new_len)); }
  /// Positions [first + delta, first) go, those from first up to kv_len move down, later ones go too.
  /// @pre delta < 0 <= first + delta, first <= kv_len  @throws std::bad_alloc, unchanged
  void shift(Index first, Index delta, Index kv_len) {
    Vector<Entry> shifted;
    shifted.reserve(std::max(entries_.size() + 1, entries_.capacity()));  // one at most is in both parts
    const Index n = count_before(kv_len), n_before = count_before(first + delta);
    shifted.insert(shifted.end(), entries_.begin(), entries_.begin() + n_before);
    for (Index i = 0; i < size(); ++i) {
      const Entry& entry = at(i);
      const Index end = i + 1 < n ? at(i + 1).position : kv_len;
      const Index begin = std::max(entry.position, first);
      if (i < n && begin < end) {
        shifted.push_back(
            {entry.page, begin + delta, entry.slot + begin - entry.position, entry.rotation_shift + delta});
        if (i < n_before) pool_->share(*entry.page);
      } else if (i >= n_before) {
        pool_->release(*entry.page);
      }
    }
    entries_ = std::move(shifted);
  }
  /// Refers to n pages of others in place of what it had: all slots of page i hold positions from i * page_size on.
  /// @param page_at  (i) -> PagePool::Page&, called for i from n - 1 down to 0; noexcept
  /// @throws std::bad_alloc, unchanged
  template <class PageAt>
  void adopt(Index n, const PageAt& page_at) {
    Vector<Entry> adopted;
    adopted.reserve(std::max(static_cast<std::size_t>(n), entries_.capacity()));  // as much room as before
    adopted.resize(static_cast<std::size_t>(n));
    for (Index i = n; i-- > 0;) {
      PagePool::Page& page = page_at(i);
      pool_->share(page);
      adopted[static_cast<std::size_t>(i)] = {&page, i * page_size_, 0, 0};
    }
    truncate(0);
    entries_ = std::move(adopted);
  }
  /// Another table of the pages that hold positions before kv_len. O(pages). @throws std::bad_alloc
  PageTable fork(Index kv_len) const {
    PageTable copy(*pool_, owner_, page_size_);
    copy.entries_.assign(entries_.begin(), entries_.begin() + count_before(kv_len));
    for (const Entry& entry : copy.entries_) pool_->share(*entry.page);
    return copy;
  }

  /// Another table, of pages of its own for the positions of a checked record, position p in slot p % page_size; where
  /// the rotation shift changes a page has parts. What the pages hold is not set. @throws as reserve
  PageTable restored(const CacheRecord& record) const {
    PageTable table(*pool_, owner_, page_size_);
    table.grow_room(std::max(n_pages(record.kv_len) + static_cast<Index>(record.rotation.size()),
                             static_cast<Index>(entries_.capacity())));
    PagePool::Page* chain = pool_->acquire(n_pages(record.kv_len));
    // From here on nothing throws.
    auto piece = record.rotation.begin();
    Index shift = 0;
    for (Index position = 0, end = 0; position < record.kv_len; position = end) {
      if (piece != record.rotation.end() && piece->position == position) shift = (piece++)->rotation_shift;
      const Index slot = position % page_size_;
      PagePool::Page* const page = slot == 0 ? PagePool::take(chain) : table.entries_.back().page;
      if (slot != 0) pool_->share(*page);
      table.entries_.push_back({page, position, slot, shift});
      end = std::min(record.kv_len, position + page_size_ - slot);
      if (piece != record.rotation.end()) end = std::min(end, piece->position);
    }
    return table;
  }

  PagePool& pool() const noexcept { return *pool_; }
  Index size() const noexcept { return static_cast<Index>(entries_.size()); }
  const Entry& at(Index i) const noexcept { return entries_[static_cast<std::size_t>(i)]; }
  /// Entries that begin before a position; the last of them has the position before it.
  Index count_before(Index position) const noexcept {
    const auto found = std::lower_bound(entries_.begin(), entries_.end(), position,
                                        [](const Entry& entry, Index p) { return entry.position < p; });
    return static_cast<Index>(found - entries_.begin());
  }
  /// Positions of [0, kv_len) before the first one that a shift has moved: they and what they were computed from stand
  /// where they were written, position p in slot p % page_size of entry p / page_size.
  Index unshifted(Index kv_len) const noexcept {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [](const Entry& entry) { return entry.rotation_shift != 0; });
    return found == entries_.end() ? kv_len : std::min(kv_len, found->position);
  }
  /// Pages that it refers to: parts of one page are neighbours.
  Index n_pages() const noexcept {
    Index n = 0;
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (i == 0 || entries_[i].page != entries_[i - 1].page) ++n;
    return n;
  }

 private:
  /// What positions [kv_len, kv_len + n) need.
  struct Room {
    Index n_kept = 0;        // entries that have positions before kv_len
    Index end = 0;           // of the positions that those have slots for, if they can be written
    Index n_wanted = 0;      // entries behind them
    bool is_copied = false;  // the last of those that are kept, which somebody else refers to
    Index n_pages = 0;       // to be acquired: those that there are behind n_kept are taken first
  };
  Room room_for(Index kv_len, Index n) const noexcept {
    Room room{count_before(kv_len), kv_len, 0, false, 0};
    if (room.n_kept > 0 && n > 0) {
      const Entry& tail = at(room.n_kept - 1);
      if (tail.rotation_shift == 0) room.end = std::max(room.end, tail.position + page_size_ - tail.slot);
      room.is_copied = room.end > kv_len && pool_->is_shared(*tail.page);
    }
    room.n_wanted = n_pages(std::max<Index>(0, kv_len + n - room.end));
    room.n_pages = std::max<Index>(0, room.n_wanted - (size() - room.n_kept)) + (room.is_copied ? 1 : 0);
    return room;
  }
  Index n_pages(Index n_positions) const noexcept {
    return n_positions / page_size_ + (n_positions % page_size_ > 0 ? 1 : 0);
  }
  void grow_room(Index n_entries) {
    const auto n = static_cast<std::size_t>(std::max<Index>(0, n_entries));
    if (n > entries_.capacity()) entries_.reserve(std::max(n, 2 * entries_.capacity()));
  }
  void drop_from(Index n_entries) noexcept {
    while (size() > n_entries) {
      pool_->release(*entries_.back().page);
      entries_.pop_back();
    }
  }

  PagePool* pool_;
  std::shared_ptr<PagePool> owner_;
  Index page_size_;
  Vector<Entry> entries_;
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/cache/page_pool.hpp> - pages of memory that caches share: counted references, a free list, a limit.
// It knows no model: a page is so many bytes. Where the limit is met, it asks who holds pages to spare.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/memory.hpp>

#include <memory>
#include <mutex>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {

/// Pages of one size, for any number of caches on any threads: it locks. Must outlive the caches that were given
/// its address.
///
/// Pages that nobody refers to any more are kept for the next one: what it has allocated never shrinks.
class PagePool {
 public:
  /// Who holds a reference may read it; who holds the only one may write it.
  class Page {
   public:
    Page(Index number, Block<std::byte> block) noexcept : number_(number), block_(std::move(block)) {}

    std::byte* data() const noexcept { return block_.data(); }
    /// Counted from 0 in the order in which the pool has allocated its pages.
    Index number() const noexcept { return number_; }

   private:
    friend class PagePool;

    Index number_;
    Index n_references_ = 0;
    Page* next_ = nullptr;  // of the free list, or of a chain
    Block<std::byte> block_;
  };
  struct Options {
    Index max_pages = 0;  // in use at most; 0: no limit
  };
  /// Somebody who holds pages that can be done without: asked for them where the pool would be full.
  class Spare {
   public:
    /// @param give_back  (owner, n): gives back references until n pages are free that were not, or none is left to
    /// give; returns how many are. Called on any thread that acquires; it may release pages, not acquire any
    Spare(void* owner, Index (*give_back)(void* owner, Index n) noexcept) noexcept
        : owner_(owner), give_back_(give_back) {}

   private:
    friend class PagePool;

    void* owner_;
    Index (*give_back_)(void*, Index) noexcept;
    Spare* next_ = nullptr;
  };

  /// @param page_bytes  PagedCache::page_bytes(shape)  @throws Error kBadArgument
  explicit PagePool(Index page_bytes) : PagePool(page_bytes, Options{}) {}
  PagePool(Index page_bytes, Options options) : page_bytes_(page_bytes), options_(options) {
    if (page_bytes < 1 || options.max_pages < 0) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument,
                    "page pool: page_bytes must be at least 1 and max_pages not negative, got ", page_bytes,
                    " and ", options.max_pages);
  }
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  /// A chain of n pages for take(), each with the caller's reference only; what they hold is not set.
  /// @throws Error kCacheFull, std::bad_alloc: none is taken
  Page* acquire(Index n) {
    std::unique_lock lock(mutex_);
    make_free(n, lock);
    Page* chain = nullptr;
    for (Page** end = &chain; n > 0; --n) {
      *end = std::exchange(free_, free_->next_);
      (*end)->n_references_ = 1;
      (*end)->next_ = nullptr;
      end = &(*end)->next_;
      ++n_in_use_;
    }
    return chain;
  }
  /// The next page of a chain. @pre there is one
  static Page* take(Page*& chain) noexcept { return std::exchange(chain, chain->next_); }
  /// One more reference to a page that the caller refers to.
  void share(Page& page) noexcept {
    const std::lock_guard lock(mutex_);
    ++page.n_references_;
  }
  /// One reference less; the last one frees the page.
  void release(Page& page) noexcept {
    const std::lock_guard lock(mutex_);
    if (--page.n_references_ > 0) return;
    page.next_ = std::exchange(free_, &page);
    --n_in_use_;
  }
  /// Whether the caller's reference to a page is not the only one.
  bool is_shared(const Page& page) const noexcept {
    const std::lock_guard lock(mutex_);
    return page.n_references_ > 1;
  }
  /// Allocates until n pages are free, so that acquiring them allocates nothing.
  /// @throws Error kCacheFull, std::bad_alloc: nothing is allocated
  void reserve_free(Index n) {
    std::unique_lock lock(mutex_);
    make_free(n, lock);
  }
  /// From here on `spare` is asked for pages, until it is detached; then no call to it is in progress.
  void attach(Spare& spare) noexcept {
    const std::lock_guard lock(spares_mutex_);
    spare.next_ = std::exchange(spares_, &spare);
  }
  void detach(Spare& spare) noexcept {
    const std::lock_guard lock(spares_mutex_);
    Spare** link = &spares_;
    while (*link != &spare) link = &(*link)->next_;
    *link = spare.next_;
  }

  /// The max_pages that `bytes` are enough for. @throws Error kBadArgument if not for one page
  static Index pages_within(Index page_bytes, Index bytes) {
    if (page_bytes < 1 || bytes < page_bytes) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "page pool: ", bytes, " bytes hold no page of ", page_bytes);
    return bytes / page_bytes;
  }
  Index page_bytes() const noexcept { return page_bytes_; }
  Index max_pages() const noexcept { return options_.max_pages; }
  /// Pages that somebody refers to.
  Index pages_in_use() const noexcept {
    const std::lock_guard lock(mutex_);
    return n_in_use_;
  }
  /// Bytes of all pages, free ones included.
  Index bytes() const noexcept {
    const std::lock_guard lock(mutex_);
    return static_cast<Index>(pages_.size()) * page_bytes_;
  }

 private:
  struct Delete {
    void operator()(Page* page) const noexcept {
      std::destroy_at(page);
      Allocator<Page>{}.deallocate(page, 1);
    }
  };
  using OwnedPage = std::unique_ptr<Page, Delete>;

  OwnedPage new_page() const {
    Block<std::byte> block(page_bytes_);
    return OwnedPage(std::construct_at(Allocator<Page>{}.allocate(1), static_cast<Index>(pages_.size()),
                                       std::move(block)));
  }
  /// Makes the limit leave room for n more pages. @pre mutex_ is locked, as it is again afterwards
  void make_room(Index n, std::unique_lock<std::mutex>& lock) {
    if (options_.max_pages == 0) return;
    for (bool is_hopeless = n > options_.max_pages; n > options_.max_pages - n_in_use_;) {
      if (is_hopeless) [[unlikely]]
        detail::raise(ErrorCode::kCacheFull, "page pool full: max_pages ", options_.max_pages, ", in use ",
                      n_in_use_, ", n_new ", n);
      const Index n_missing = n - (options_.max_pages - n_in_use_);
      lock.unlock();  // who gives back needs it
      is_hopeless = give_back(n_missing) == 0;
      lock.lock();
    }
  }
  /// Asks for n pages; returns how many were freed.
  Index give_back(Index n) noexcept {
    const std::lock_guard lock(spares_mutex_);
    Index freed = 0;
    for (Spare* spare = spares_; spare != nullptr && freed < n; spare = spare->next_)
      freed += spare->give_back_(spare->owner_, n - freed);
    return freed;
  }
  /// Makes n pages free at least. @pre locked  @throws Error, std::bad_alloc, none allocated
  void make_free(Index n, std::unique_lock<std::mutex>& lock) {
    make_room(n, lock);
    const std::size_t n_pages = pages_.size();
    try {
      while (static_cast<Index>(pages_.size()) - n_in_use_ < n) pages_.push_back(new_page());
    } catch (...) {
      pages_.resize(n_pages);
      throw;
    }
    for (std::size_t i = pages_.size(); i > n_pages; --i)
      pages_[i - 1]->next_ = std::exchange(free_, pages_[i - 1].get());
  }

  Index page_bytes_;
  Options options_;
  mutable std::mutex mutex_;
  Vector<OwnedPage> pages_;
  Page* free_ = nullptr;
  Index n_in_use_ = 0;
  std::mutex spares_mutex_;  // locked before mutex_, and before the owners' own
  Spare* spares_ = nullptr;
};

}  // namespace kvdecode

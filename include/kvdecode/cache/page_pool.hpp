// SPDX-License-Identifier: MIT
// <kvdecode/cache/page_pool.hpp> - pages of memory that caches share: counted references, a free list, a limit.
// It knows no model: a page is so many bytes.
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
    const std::lock_guard lock(mutex_);
    make_free(n);
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
    const std::lock_guard lock(mutex_);
    make_free(n);
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
  /// Makes n pages free at least. @pre locked  @throws Error, std::bad_alloc, unchanged
  void make_free(Index n) {
    if (options_.max_pages != 0 && n > options_.max_pages - n_in_use_) [[unlikely]]
      detail::raise(ErrorCode::kCacheFull, "page pool full: max_pages ", options_.max_pages, ", in use ",
                    n_in_use_, ", n_new ", n);
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
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
#include <support/allocation.hpp>

#include <kvdecode/cache/page_pool.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/memory.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <set>
#include <thread>
#include <vector>

namespace {

using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::Index;
using kvdecode::PagePool;
using Page = PagePool::Page;

std::vector<Page*> acquire(PagePool& pool, Index n) {
  std::vector<Page*> pages;
  for (Page* chain = pool.acquire(n); chain != nullptr;) pages.push_back(PagePool::take(chain));
  return pages;
}

TEST_CASE("page pool: its sizes are checked") {
  CHECK_THROWS_WITH_AS(
      PagePool(0), "page pool: page_bytes must be at least 1 and max_pages not negative, got 0 and 0", Error);
  CHECK_THROWS_WITH_AS(PagePool(64, {.max_pages = -1}),
                       "page pool: page_bytes must be at least 1 and max_pages not negative, got 64 and -1",
                       Error);
}

TEST_CASE("page pool: pages are different ones, numbered as they were allocated, and come back") {
  PagePool pool(100);
  CHECK(pool.page_bytes() == 100);
  CHECK(pool.bytes() == 0);
  const std::vector<Page*> pages = acquire(pool, 5);
  REQUIRE(pages.size() == 5);
  for (Index i = 0; i < 5; ++i) {
    Page& page = *pages[static_cast<std::size_t>(i)];
    CHECK(page.number() == i);
    CHECK(!pool.is_shared(page));
    std::memset(page.data(), static_cast<int>(i), 100);
  }
  for (Index i = 0; i < 5; ++i) CHECK(pages[static_cast<std::size_t>(i)]->data()[99] == std::byte(i));
  CHECK(pool.pages_in_use() == 5);
  CHECK(pool.bytes() == 500);
  pool.release(*pages[3]);
  pool.release(*pages[1]);
  CHECK(pool.pages_in_use() == 3);
  CHECK(pool.bytes() == 500);  // kept
  const std::vector<Page*> again = acquire(pool, 3);
  const std::set<Page*> taken(again.begin(), again.end());
  CHECK(taken.contains(pages[1]));
  CHECK(taken.contains(pages[3]));
  CHECK(taken.size() == 3);
  CHECK(pool.bytes() == 600);
  CHECK(pool.pages_in_use() == 6);
  CHECK(acquire(pool, 0).empty());
}

TEST_CASE("page pool: a page is free when the last reference goes") {
  PagePool pool(8);
  Page& page = *pool.acquire(1);
  pool.share(page);
  pool.share(page);
  CHECK(pool.is_shared(page));
  pool.release(page);
  CHECK(pool.is_shared(page));
  pool.release(page);
  CHECK(!pool.is_shared(page));
  CHECK(pool.pages_in_use() == 1);
  pool.release(page);
  CHECK(pool.pages_in_use() == 0);
  CHECK(pool.acquire(1) == &page);
  CHECK(!pool.is_shared(page));
}

TEST_CASE("page pool: the limit is on pages in use, and is kept whole") {
  PagePool pool(8, {.max_pages = 4});
  CHECK(pool.max_pages() == 4);
  const std::vector<Page*> pages = acquire(pool, 3);
  CHECK_THROWS_WITH_AS(pool.acquire(2), "page pool full: max_pages 4, in use 3, n_new 2", Error);
  try {
    pool.reserve_free(2);
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kCacheFull);
  }
  CHECK(pool.pages_in_use() == 3);
  CHECK(pool.bytes() == 24);
  pool.release(*pages[0]);
  CHECK(acquire(pool, 2).size() == 2);
  CHECK_THROWS_AS(pool.acquire(1), Error);
}

TEST_CASE("page pool: reserve_free allocates, and what it has allocated needs no memory later") {
  PagePool pool(64);
  pool.reserve_free(7);
  CHECK(pool.bytes() == 7 * 64);
  CHECK(pool.pages_in_use() == 0);
  kvdecode::AllocationHook hook;
  {
    const kvdecode::ScopedAllocationHook scope(hook);
    const std::vector<Page*> pages = acquire(pool, 7);
    for (Page* page : pages) pool.release(*page);
    pool.reserve_free(7);
  }
  CHECK(hook.n_allocations == 0);
}

TEST_CASE("page pool: a budget of bytes is as many pages as it holds whole") {
  CHECK(PagePool::pages_within(100, 100) == 1);
  CHECK(PagePool::pages_within(100, 199) == 1);
  CHECK(PagePool::pages_within(100, 200) == 2);
  CHECK_THROWS_WITH_AS(PagePool::pages_within(100, 99), "page pool: 99 bytes hold no page of 100", Error);
  CHECK_THROWS_AS(PagePool::pages_within(100, -100), Error);
  CHECK_THROWS_AS(PagePool::pages_within(0, 100), Error);
  PagePool pool(100, {.max_pages = PagePool::pages_within(100, 350)});
  acquire(pool, 3);
  CHECK(pool.bytes() <= 350);
  CHECK_THROWS_AS(pool.acquire(1), Error);
}

/// Holds pages of a pool, and gives back at most `most` each time it is asked.
struct Holder {
  Holder(PagePool& p, Index n, Index at_most) : pool(p), pages(acquire(p, n)), most(at_most) {
    pool.attach(spare);
  }
  static Index give_back(void* self, Index n) noexcept {
    Holder& holder = *static_cast<Holder*>(self);
    holder.asked.push_back(n);
    Index n_given = 0;
    for (; n_given < std::min(n, holder.most) && !holder.pages.empty(); ++n_given) {
      holder.pool.release(*holder.pages.back());
      holder.pages.pop_back();
    }
    return n_given;
  }

  PagePool& pool;
  std::vector<Page*> pages;
  Index most;
  std::vector<Index> asked = {};
  PagePool::Spare spare{this, give_back};
};

TEST_CASE("page pool: before it is full it asks who has pages to spare, for those that it lacks") {
  PagePool pool(8, {.max_pages = 10});
  Holder few(pool, 4, 1), many(pool, 4, 100);  // the last one attached is asked first
  acquire(pool, 2);
  CHECK(few.asked.empty());
  acquire(pool, 3);
  CHECK(many.asked == std::vector<Index>{3});
  CHECK(few.asked.empty());
  CHECK(pool.pages_in_use() == 10);
  pool.reserve_free(2);  // one of each
  CHECK(many.asked == std::vector<Index>{3, 2});
  CHECK(few.asked == std::vector<Index>{1});
  acquire(pool, 2);
  acquire(pool, 2);  // asked as long as somebody gives
  CHECK(many.asked == std::vector<Index>{3, 2, 2, 1});
  CHECK(few.asked == std::vector<Index>{1, 2, 1});
  CHECK_THROWS_WITH_AS(pool.acquire(11), "page pool full: max_pages 10, in use 10, n_new 11", Error);
  CHECK(few.asked.size() == 3);  // in vain: not asked
  CHECK_THROWS_WITH_AS(pool.acquire(2), "page pool full: max_pages 10, in use 9, n_new 2", Error);
  CHECK(few.pages.empty());
  pool.detach(many.spare);
  const std::size_t n_asked = many.asked.size();
  CHECK_THROWS_AS(pool.acquire(2), Error);
  CHECK(many.asked.size() == n_asked);
  pool.detach(few.spare);
  CHECK_THROWS_AS(pool.acquire(2), Error);
}

TEST_CASE("page pool: an allocation that fails, in any place, changes nothing") {
  bool has_failed = true;
  for (Index which = 0; has_failed; ++which) {
    REQUIRE(which < 100);
    PagePool pool(64);
    acquire(pool, 2);
    {
      kvdecode_test::FailingAllocation failing(which);
      try {
        pool.acquire(9);
      } catch (const std::bad_alloc&) {
        CHECK(pool.pages_in_use() == 2);
        CHECK(pool.bytes() == 2 * 64);
      }
      has_failed = failing.has_failed();
    }
    const std::vector<Page*> more = acquire(pool, 5);
    CHECK(std::set<Page*>(more.begin(), more.end()).size() == 5);
  }
}

TEST_CASE("page pool: threads take, share and give back pages of one pool") {
  PagePool pool(sizeof(Index));
  Page& common = *pool.acquire(1);
  constexpr Index kThreads = 4, kRounds = 20000;
  std::atomic<Index> n_ready{0};  // all begin together
  std::vector<int> wrong(kThreads, 0);
  std::vector<std::thread> threads;
  for (Index t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (++n_ready; n_ready < kThreads;) std::this_thread::yield();
      for (Index round = 0; round < kRounds; ++round) {
        pool.share(common);
        std::vector<Page*> pages = acquire(pool, 1 + round % 5);
        for (Page* page : pages) std::memcpy(page->data(), &t, sizeof t);
        for (Page* page : pages) {
          Index held = -1;
          std::memcpy(&held, page->data(), sizeof held);
          wrong[static_cast<std::size_t>(t)] += held != t || pool.is_shared(*page) ? 1 : 0;
          pool.release(*page);
        }
        pool.release(common);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(kThreads, 0));
  CHECK(pool.pages_in_use() == 1);
  CHECK(!pool.is_shared(common));
}

}  // namespace

// SPDX-License-Identifier: MIT
// <support/peak_heap.hpp> - how much of the heap an operation holds at most, and what it does when there is no more,
// whoever asks for it with new. To be included in one translation unit of a program, since it defines operator new and
// delete.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace kvdecode_test {

struct HeapUse {
  std::atomic<std::size_t> n_held{0};  // bytes
  std::atomic<std::size_t> n_peak{0};
  std::atomic<long> n_left{-1};  // allocations before one is refused; negative: none is
};

inline HeapUse& heap_use() {
  static HeapUse use;
  return use;
}

inline void* counted(void* p) {
  if (p == nullptr) throw std::bad_alloc();
  HeapUse& use = heap_use();
  if (use.n_left >= 0 && use.n_left.fetch_sub(1) == 0) {
    std::free(p);
    throw std::bad_alloc();
  }
  const std::size_t n = ::malloc_usable_size(p), n_held = use.n_held.fetch_add(n) + n;
  for (std::size_t peak = use.n_peak; peak < n_held && !use.n_peak.compare_exchange_weak(peak, n_held);) {
  }
  return p;
}
inline void release(void* p) noexcept {
  heap_use().n_held.fetch_sub(::malloc_usable_size(p));
  std::free(p);
}

/// The most bytes that f() holds at a time, beyond what was held before, while no other thread allocates.
template <class F>
std::size_t peak_heap(F&& f) {
  HeapUse& use = heap_use();
  const std::size_t before = use.n_held;
  use.n_peak = before;
  f();
  return use.n_peak - before;
}

/// While it lives, the program's allocation number `which` (from 0) is refused.
class FailingHeap {
 public:
  explicit FailingHeap(long which) { heap_use().n_left = which; }
  FailingHeap(const FailingHeap&) = delete;
  FailingHeap& operator=(const FailingHeap&) = delete;
  ~FailingHeap() { heap_use().n_left = -1; }

  bool has_failed() const { return heap_use().n_left < 0; }
};

}  // namespace kvdecode_test

// Not inlined: gcc would see a pointer from new go to free, and warn.
[[gnu::noinline]] void* operator new(std::size_t size) {
  return kvdecode_test::counted(std::malloc(std::max<std::size_t>(size, 1)));
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto a = static_cast<std::size_t>(alignment);
  return kvdecode_test::counted(std::aligned_alloc(a, (std::max<std::size_t>(size, 1) + a - 1) / a * a));
}
[[gnu::noinline]] void operator delete(void* p) noexcept { kvdecode_test::release(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { kvdecode_test::release(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { kvdecode_test::release(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  kvdecode_test::release(p);
}

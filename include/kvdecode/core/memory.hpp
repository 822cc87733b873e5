// SPDX-License-Identifier: MIT
// <kvdecode/core/memory.hpp> - all memory of the core comes from here: aligned to cache lines, counted by one
// hook, which can also refuse, so that tests see what a failed allocation leaves behind.
#pragma once

#include <kvdecode/core/types.hpp>

#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// Bytes of a cache line; the alignment of all blocks.
inline constexpr std::size_t kCacheLine = 64;

/// Sees every allocation of the thread that installs it. `refuse` is asked before each one: true makes it
/// throw std::bad_alloc.
struct AllocationHook {
  Index n_allocations = 0;
  Index n_bytes = 0;
  void* context = nullptr;
  bool (*refuse)(void* context, std::size_t bytes) = nullptr;
};

namespace detail {

inline AllocationHook*& allocation_hook() noexcept {
  thread_local AllocationHook* hook = nullptr;
  return hook;
}

inline void* allocate(std::size_t bytes) {
  if (AllocationHook* hook = allocation_hook(); hook != nullptr) {
    if (hook->refuse != nullptr && hook->refuse(hook->context, bytes)) throw std::bad_alloc();
    ++hook->n_allocations;
    hook->n_bytes += static_cast<Index>(bytes);
  }
  return ::operator new (bytes, std::align_val_t{kCacheLine});
}
inline void deallocate(void* p) noexcept { ::operator delete (p, std::align_val_t{kCacheLine}); }

}  // namespace detail

/// Installs a hook for this thread while it lives; the previous one is restored.
class ScopedAllocationHook {
 public:
  explicit ScopedAllocationHook(AllocationHook& hook) noexcept
      : previous_(std::exchange(detail::allocation_hook(), &hook)) {}
  ~ScopedAllocationHook() { detail::allocation_hook() = previous_; }
  ScopedAllocationHook(const ScopedAllocationHook&) = delete;
  ScopedAllocationHook& operator=(const ScopedAllocationHook&) = delete;

 private:
  AllocationHook* previous_;
};

/// The standard allocator over this header's memory.
template <class T>
struct Allocator {
  using value_type = T;

  Allocator() noexcept = default;
  template <class U>
  Allocator(const Allocator<U>&) noexcept {}

  T* allocate(std::size_t n) {
    constexpr std::size_t size = sizeof(T);  // NOLINT(bugprone-sizeof-expression): T may be a pointer
    if (n > std::numeric_limits<std::size_t>::max() / 2 / size) throw std::bad_array_new_length();
    return static_cast<T*>(detail::allocate(n * size));
  }
  void deallocate(T* p, std::size_t) noexcept { detail::deallocate(p); }

  friend bool operator==(const Allocator&, const Allocator&) noexcept { return true; }
};

/// std::vector in this header's memory.
template <class T>
using Vector = std::vector<T, Allocator<T>>;

/// A block of n objects of a trivial type, not initialised, owned; movable. For scratch and storage.
template <class T>
class Block {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  Block() noexcept = default;
  /// @throws std::bad_alloc
  explicit Block(Index n)
      : data_(n == 0 ? nullptr : Allocator<T>{}.allocate(static_cast<std::size_t>(n))), size_(n) {
    if constexpr (!std::is_trivially_default_constructible_v<T>)
      std::uninitialized_default_construct_n(data_, n);
  }
  Block(Block&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Block& operator=(Block&& other) noexcept {
    Block moved(std::move(other));
    std::swap(data_, moved.data_);
    std::swap(size_, moved.size_);
    return *this;
  }
  ~Block() {
    if (data_ != nullptr) detail::deallocate(data_);
  }

  /// Makes room for n objects; what it held is lost if it has to grow. @throws std::bad_alloc, unchanged
  void grow(Index n) {
    if (n > size_) *this = Block(n);
  }

  T* data() const noexcept { return data_; }
  Index size() const noexcept { return size_; }
  Index bytes() const noexcept { return size_ * static_cast<Index>(sizeof(T)); }

 private:
  T* data_ = nullptr;
  Index size_ = 0;
};

}  // namespace kvdecode

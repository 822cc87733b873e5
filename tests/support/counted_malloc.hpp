// SPDX-License-Identifier: MIT
// <support/counted_malloc.hpp> - counts every allocation of the program's heap, whoever makes it: malloc and its
// kin, which operator new calls. To be included in one translation unit of a program, since it defines them.
// Nothing is counted (and n_mallocs() stays 0) under the sanitizers, which have allocators of their own, or
// without glibc.
#pragma once

#include <kvdecode/core/types.hpp>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVDECODE_TEST_COUNTS_MALLOCS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define KVDECODE_TEST_COUNTS_MALLOCS 0
#endif
#endif
#if !defined(KVDECODE_TEST_COUNTS_MALLOCS)
#if defined(__GLIBC__)
#define KVDECODE_TEST_COUNTS_MALLOCS 1
#else
#define KVDECODE_TEST_COUNTS_MALLOCS 0
#endif
#endif

namespace kvdecode_test {

inline constexpr bool kCountsMallocs = KVDECODE_TEST_COUNTS_MALLOCS != 0;

inline std::atomic<kvdecode::Index>& malloc_counter() {
  static std::atomic<kvdecode::Index> counter{0};
  return counter;
}
/// Allocations of all threads so far.
inline kvdecode::Index n_mallocs() { return malloc_counter().load(); }

}  // namespace kvdecode_test

#if KVDECODE_TEST_COUNTS_MALLOCS

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t n, std::size_t size);
void* __libc_realloc(void* p, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) {
  kvdecode_test::malloc_counter().fetch_add(1);
  return __libc_malloc(size);
}
void* calloc(std::size_t n, std::size_t size) {
  kvdecode_test::malloc_counter().fetch_add(1);
  return __libc_calloc(n, size);
}
void* realloc(void* p, std::size_t size) {
  kvdecode_test::malloc_counter().fetch_add(1);
  return __libc_realloc(p, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  kvdecode_test::malloc_counter().fetch_add(1);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) { return memalign(alignment, size); }
int posix_memalign(void** p, std::size_t alignment, std::size_t size) {
  *p = memalign(alignment, size);
  return *p == nullptr ? ENOMEM : 0;
}
}

#endif

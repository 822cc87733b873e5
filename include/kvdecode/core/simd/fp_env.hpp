// SPDX-License-Identifier: MIT
// <kvdecode/core/simd/fp_env.hpp> - runs arithmetic in the default floating-point environment, whatever the
// host has set: rounding to nearest, subnormal numbers kept, exceptions masked.
#pragma once

#include <kvdecode/core/types.hpp>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <type_traits>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// Sets the default environment while it lives.
class DefaultFpEnv {
 public:
#if defined(__x86_64__)
  DefaultFpEnv() noexcept : saved_(_mm_getcsr()) {
    if ((saved_ & ~kFlags) != kDefault) [[unlikely]]
      _mm_setcsr(kDefault);
  }
  ~DefaultFpEnv() {
    if ((saved_ & ~kFlags) != kDefault) [[unlikely]]
      _mm_setcsr(saved_);
  }

 private:
  static constexpr unsigned kFlags = 0x3f;       // sticky exception flags
  static constexpr unsigned kDefault = 0x1f80u;  // all exceptions masked, to nearest, no flush to zero
  unsigned saved_;
#elif defined(__aarch64__)
  DefaultFpEnv() noexcept {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    if (saved_ != 0) [[unlikely]] {
      asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}));
    }
  }
  ~DefaultFpEnv() {
    if (saved_ != 0) [[unlikely]] {
      asm volatile("msr fpcr, %0" : : "r"(saved_));
    }
  }

 private:
  std::uint64_t saved_ = 0;
#else
  DefaultFpEnv() noexcept {}
  ~DefaultFpEnv() {}

 private:
#endif
  DefaultFpEnv(const DefaultFpEnv&) = delete;
  DefaultFpEnv& operator=(const DefaultFpEnv&) = delete;
};

/// Compilers move arithmetic across a change of the environment; a call they cannot see into stops them.
template <class F>
[[gnu::noinline]] decltype(auto) call_opaquely(F& f) {
  return f();
}

}  // namespace detail

/// Calls f() in the default floating-point environment and restores the caller's, also when f throws.
template <class F>
decltype(auto) with_default_fp_env(F&& f) {
  const detail::DefaultFpEnv environment;
  asm volatile("" : : : "memory");
  return detail::call_opaquely(f);
}

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <support/fp_mode.hpp> - floating-point environments that a host may have set.
#pragma once

#include <cfenv>
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace kvdecode_test {

enum class FpMode {
  kDefault,
  kUpward,
  kDownward,
  kTowardZero,
  kFlushToZero,  // subnormal operands and results count as zero
  kTrapping,     // inexact results and divisions by zero raise SIGFPE (x86-64; elsewhere the default)
};

inline constexpr FpMode kFpModes[] = {FpMode::kDefault,    FpMode::kUpward,      FpMode::kDownward,
                                      FpMode::kTowardZero, FpMode::kFlushToZero, FpMode::kTrapping};

constexpr const char* to_string(FpMode mode) {
  switch (mode) {
    case FpMode::kDefault: return "default";
    case FpMode::kUpward: return "upward";
    case FpMode::kDownward: return "downward";
    case FpMode::kTowardZero: return "toward zero";
    case FpMode::kFlushToZero: return "flush to zero";
    case FpMode::kTrapping: return "trapping";
  }
  return "?";
}

/// The control bits of this thread's arithmetic: rounding, flushing, trapping; not the sticky flags.
inline std::uint64_t fp_control() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3fu;
#elif defined(__aarch64__)
  std::uint64_t control = 0;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return control;
#else
  return static_cast<std::uint64_t>(std::fegetround());
#endif
}

/// Sets the mode for this thread while it lives.
class ScopedFpMode {
 public:
  explicit ScopedFpMode(FpMode mode) : round_(std::fegetround()), control_(fp_control()) {
    if (mode == FpMode::kUpward) std::fesetround(FE_UPWARD);
    if (mode == FpMode::kDownward) std::fesetround(FE_DOWNWARD);
    if (mode == FpMode::kTowardZero) std::fesetround(FE_TOWARDZERO);
#if defined(__x86_64__)
    if (mode == FpMode::kFlushToZero) _mm_setcsr(_mm_getcsr() | 0x8040u);
    if (mode == FpMode::kTrapping) _mm_setcsr(_mm_getcsr() & ~0x1200u & ~0x3fu);
#elif defined(__aarch64__)
    if (mode == FpMode::kFlushToZero) {
      const std::uint64_t control = control_ | (std::uint64_t{1} << 24);
      asm volatile("msr fpcr, %0" : : "r"(control));
    }
#endif
  }
  ~ScopedFpMode() {
#if defined(__x86_64__)
    _mm_setcsr(static_cast<unsigned>(control_));
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" : : "r"(control_));
#endif
    std::fesetround(round_);
  }
  ScopedFpMode(const ScopedFpMode&) = delete;
  ScopedFpMode& operator=(const ScopedFpMode&) = delete;

 private:
  int round_;
  std::uint64_t control_;
};

}  // namespace kvdecode_test

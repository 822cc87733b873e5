// SPDX-License-Identifier: MIT
// <kvdecode/core/simd/scalar.hpp> - the arithmetic of one number that no compiler may change: a fused
// multiply-add, a product that stays a product, a square root that is IEEE's.
#pragma once

#include <kvdecode/core/types.hpp>

#include <bit>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>

// Seals a rounded value: the compiler no longer sees that it came from a multiplication, so it cannot
// contract it into a later addition. Emits no instruction. (A macro: GCC warns where a packet type is a
// template argument.)
#if defined(__AVX512F__)
#define KVDECODE_SEALED "+v"
#elif defined(__x86_64__)
#define KVDECODE_SEALED "+x"
#elif defined(__aarch64__)
#define KVDECODE_SEALED "+w"
#else
#define KVDECODE_SEALED "+m"
#endif
#define KVDECODE_SEAL(value) asm("" : KVDECODE_SEALED(value))

// Whether one instruction fuses a multiplication and an addition.
#if defined(__FMA__) || defined(__aarch64__)
#define KVDECODE_HAS_FMA 1
#else
#define KVDECODE_HAS_FMA 0
#endif

namespace kvdecode::inline KVDECODE_ABI {

KVDECODE_INLINE float seal(float value) {
  KVDECODE_SEAL(value);
  return value;
}
KVDECODE_INLINE double seal(double value) {
  KVDECODE_SEAL(value);
  return value;
}

/// The rounded product, never fused with what is done with it.
KVDECODE_INLINE float mul(float a, float b) { return seal(a * b); }
KVDECODE_INLINE double mul(double a, double b) { return seal(a * b); }
template <class S>
KVDECODE_INLINE S mul(const S& a, const S& b) {
  return a * b;
}

namespace detail {

/// a * b + c rounded once, for machines without the instruction. The product of two floats is exact in
/// double; the sum is rounded to odd there, which survives the second rounding (Boldo & Melquiond 2008).
inline float software_fma(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = static_cast<double>(c);
  double sum = product + addend;
  const double b_part = sum - product;
  const double error = (product - (sum - b_part)) + (addend - b_part);  // Knuth's TwoSum: exact
  const auto bits = std::bit_cast<std::uint64_t>(sum);
  if (error != 0.0 && (bits & 1u) == 0u && (bits & 0x7ff0000000000000u) != 0x7ff0000000000000u)
    sum = std::bit_cast<double>((error > 0.0) == (sum > 0.0) ? bits + 1 : bits - 1);
  return static_cast<float>(sum);
}

}  // namespace detail

/// The two types that functions here are for which <cmath> has as well. They are templates: who has both in
/// sight calls the plain one, and nothing is ambiguous.
template <class T>
concept BinaryFloat = std::same_as<T, float> || std::same_as<T, double>;

/// a * b + c, rounded once.
template <std::same_as<float> T>
KVDECODE_INLINE T fma(T a, T b, T c) {
#if KVDECODE_HAS_FMA
  return __builtin_fmaf(a, b, c);
#else
  return detail::software_fma(a, b, c);
#endif
}
template <std::same_as<double> T>
KVDECODE_INLINE T fma(T a, T b, T c) {
  return __builtin_fma(a, b, c);
}

template <std::same_as<float> T>
KVDECODE_INLINE T sqrt(T a) {
  return __builtin_sqrtf(a);
}
template <std::same_as<double> T>
KVDECODE_INLINE T sqrt(T a) {
  return __builtin_sqrt(a);
}

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/core/config.hpp> - what a translation unit is compiled for: refuses options that void the bit
// contract, names the instruction set, and tags the namespace with both, so that mixed builds fail at link.
#pragma once

#include <kvdecode/core/version.hpp>

#include <Eigen/Core>

#include <cfloat>

#if defined(__FAST_MATH__)
#error "kvdecode: -ffast-math lets the compiler change results; the bit contract does not hold under it."
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0
#error "kvdecode: -ffinite-math-only breaks infinities; the bit contract does not hold under it."
#endif
#if defined(__ASSOCIATIVE_MATH__)
#error "kvdecode: -fassociative-math reorders sums; the bit contract does not hold under it."
#endif
#if defined(__RECIPROCAL_MATH__)
#error "kvdecode: -freciprocal-math replaces divisions; the bit contract does not hold under it."
#endif
#if FLT_EVAL_METHOD != 0
#error "kvdecode: float arithmetic must be evaluated in float (FLT_EVAL_METHOD 0), as SSE and NEON do."
#endif
#if !EIGEN_VERSION_AT_LEAST(3, 4, 0)
#error "kvdecode needs Eigen 3.4 or newer."
#endif

// 1: preconditions of inner kernels are checked (they end the program); 0: they are assumed.
#if !defined(KVDECODE_CHECKED)
#define KVDECODE_CHECKED 0
#endif

// The instruction set that core/simd/ is compiled for. Eigen's packets are used where Eigen vectorizes.
#if !defined(EIGEN_VECTORIZE)
#define KVDECODE_ISA portable
#elif defined(EIGEN_VECTORIZE_AVX512) && defined(EIGEN_VECTORIZE_FMA)
#define KVDECODE_ISA avx512
#elif defined(EIGEN_VECTORIZE_AVX2) && defined(EIGEN_VECTORIZE_FMA)
#define KVDECODE_ISA avx2_fma
#elif defined(EIGEN_VECTORIZE_AVX) && defined(EIGEN_VECTORIZE_FMA)
#define KVDECODE_ISA avx_fma
#elif defined(EIGEN_VECTORIZE_AVX)
#define KVDECODE_ISA avx
#elif defined(EIGEN_VECTORIZE_SSE4_1)
#define KVDECODE_ISA sse4
#elif defined(EIGEN_VECTORIZE_SSE2)
#define KVDECODE_ISA sse2
#elif defined(EIGEN_VECTORIZE_NEON)
#define KVDECODE_ISA neon
#else
#define KVDECODE_ISA portable
#endif

#define KVDECODE_DETAIL_JOIN_(major, minor, isa, checked) v##major##_##minor##_##isa##_c##checked
#define KVDECODE_DETAIL_JOIN(major, minor, isa, checked) KVDECODE_DETAIL_JOIN_(major, minor, isa, checked)
#define KVDECODE_DETAIL_STRING_(x) #x
#define KVDECODE_DETAIL_STRING(x) KVDECODE_DETAIL_STRING_(x)

// The inline namespace of everything: version, instruction set and KVDECODE_CHECKED are part of each symbol.
#define KVDECODE_ABI \
  KVDECODE_DETAIL_JOIN(KVDECODE_VERSION_MAJOR, KVDECODE_VERSION_MINOR, KVDECODE_ISA, KVDECODE_CHECKED)

// Inlined at every optimisation level: a register that crosses a call is a register in memory.
#define KVDECODE_INLINE __attribute__((always_inline)) inline
#define KVDECODE_INLINE_LAMBDA __attribute__((always_inline))

// A precondition of an inner kernel.
#if KVDECODE_CHECKED
#define KVDECODE_EXPECTS(condition) ((condition) ? static_cast<void>(0) : __builtin_trap())
#else
#define KVDECODE_EXPECTS(condition) static_cast<void>(0)
#endif

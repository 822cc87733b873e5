// SPDX-License-Identifier: MIT
// <kvdecode/core/simd/register.hpp> - what one hardware register can do, for float and double by Eigen's
// packets, for every other scalar as a register of width one. Only operations that IEEE 754 fixes to the last
// bit are here, so that a result never depends on the width.
#pragma once

#include <kvdecode/core/simd/scalar.hpp>

#include <utility>

#if defined(__x86_64__) && defined(EIGEN_VECTORIZE)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(EIGEN_VECTORIZE)
#include <arm_neon.h>
#endif

namespace kvdecode::inline KVDECODE_ABI::simd {

namespace detail {
template <class F, std::size_t... I>
KVDECODE_INLINE constexpr void unroll_each(F&& f, std::index_sequence<I...>) {
  (f(std::integral_constant<int, static_cast<int>(I)>{}), ...);
}
}  // namespace detail

/// Calls f with the constants 0 … N-1. Arrays of registers stay in registers only under constant indices.
template <int N, class F>
KVDECODE_INLINE constexpr void unroll(F&& f) {
  detail::unroll_each(f, std::make_index_sequence<static_cast<std::size_t>(N)>{});
}

/// Whether S has packets on this machine.
#if defined(EIGEN_VECTORIZE)
template <class S>
inline constexpr bool kHasPackets =
    (std::is_same_v<S, float> || std::is_same_v<S, double>)&&Eigen::internal::packet_traits<S>::Vectorizable
    != 0;
#else
template <class S>
inline constexpr bool kHasPackets = false;
#endif

/// One register of width one: a scalar of any type.
template <class S, bool = kHasPackets<S>>
struct Register {
  using scalar = S;
  using type = S;
  static constexpr int width = 1;
  static KVDECODE_INLINE S loadu(const S* p) { return *p; }
  static KVDECODE_INLINE void storeu(S* p, const S& v) { *p = v; }
  static KVDECODE_INLINE S set1(const S& v) { return v; }
  static KVDECODE_INLINE S add(const S& a, const S& b) { return a + b; }
  static KVDECODE_INLINE S sub(const S& a, const S& b) { return a - b; }
  static KVDECODE_INLINE S mul(const S& a, const S& b) { return kvdecode::mul(a, b); }
  static KVDECODE_INLINE S div(const S& a, const S& b) { return a / b; }
  static KVDECODE_INLINE S fma(const S& a, const S& b, const S& c) {
    using kvdecode::fma;
    return fma(a, b, c);
  }
  static KVDECODE_INLINE S abs(const S& a) {
    if constexpr (std::is_same_v<S, float>)
      return __builtin_fabsf(a);
    else if constexpr (std::is_same_v<S, double>)
      return __builtin_fabs(a);
    else
      return a < S(0.0f) ? S(0.0f) - a : a;
  }
  /// a < b ? x : y
  static KVDECODE_INLINE S lt_select(const S& a, const S& b, const S& x, const S& y) { return a < b ? x : y; }
  /// a < b ? b : a
  static KVDECODE_INLINE S max(const S& a, const S& b) { return a < b ? b : a; }
  /// 2^k, where r = 1.5 * 2^23 (2^52) + bias + k holds the exponent field in its lowest bits
  static KVDECODE_INLINE S pow2_biased(const S& r) requires std::is_floating_point_v<S> {
    if constexpr (std::is_same_v<S, float>)
      return std::bit_cast<float>(std::bit_cast<std::uint32_t>(r) << 23);
    else
      return std::bit_cast<double>(std::bit_cast<std::uint64_t>(r) << 52);
  }
  static KVDECODE_INLINE void pin(S&) {}
};

#if defined(EIGEN_VECTORIZE)
/// One register of Eigen's packet type.
template <class S>
struct Register<S, true> {
  using scalar = S;
  using type = typename Eigen::internal::packet_traits<S>::type;
  static constexpr int width = Eigen::internal::packet_traits<S>::size;
  static KVDECODE_INLINE type loadu(const S* p) { return Eigen::internal::ploadu<type>(p); }
  static KVDECODE_INLINE void storeu(S* p, const type& v) { Eigen::internal::pstoreu(p, v); }
  static KVDECODE_INLINE type set1(S v) { return Eigen::internal::pset1<type>(v); }
  static KVDECODE_INLINE type add(const type& a, const type& b) { return Eigen::internal::padd(a, b); }
  static KVDECODE_INLINE type sub(const type& a, const type& b) { return Eigen::internal::psub(a, b); }
  static KVDECODE_INLINE type mul(const type& a, const type& b) {
    type v = Eigen::internal::pmul(a, b);
    KVDECODE_SEAL(v);
    return v;
  }
  static KVDECODE_INLINE type div(const type& a, const type& b) { return Eigen::internal::pdiv(a, b); }
  static KVDECODE_INLINE type fma(const type& a, const type& b, const type& c) {
#if KVDECODE_HAS_FMA
    return Eigen::internal::pmadd(a, b, c);
#else
    S x[width], y[width], z[width];
    storeu(x, a);
    storeu(y, b);
    storeu(z, c);
    for (int i = 0; i < width; ++i) z[i] = kvdecode::fma(x[i], y[i], z[i]);
    return loadu(z);
#endif
  }
  static KVDECODE_INLINE type abs(const type& a) { return Eigen::internal::pabs(a); }
  static KVDECODE_INLINE type lt_select(const type& a, const type& b, const type& x, const type& y) {
    return Eigen::internal::pselect(Eigen::internal::pcmp_lt(a, b), x, y);
  }
  static KVDECODE_INLINE type max(const type& a, const type& b) {
// On NEON pmax is another function; of the AVX-512 intrinsic g++ 12 warns.
#if defined(__x86_64__) && !defined(EIGEN_VECTORIZE_AVX512)
    return Eigen::internal::pmax(a, b);  // a < b ? b : a to the bit
#else
    return lt_select(a, b, b, a);
#endif
  }
  static KVDECODE_INLINE type pow2_biased(const type& r) {
    if constexpr (std::is_same_v<S, float>) {
#if defined(EIGEN_VECTORIZE_AVX512)
      return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, _mm512_castps_si512(r), 23));
#else
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"
      using Integers = typename Eigen::internal::unpacket_traits<type>::integer_packet;
#pragma GCC diagnostic pop
      return Eigen::internal::preinterpret<type>(
          Eigen::internal::plogical_shift_left<23>(Integers(Eigen::internal::preinterpret<Integers>(r))));
#endif
    } else {
#if defined(EIGEN_VECTORIZE_AVX512)
      return _mm512_castsi512_pd(_mm512_maskz_slli_epi64(0xff, _mm512_castpd_si512(r), 52));
#elif defined(EIGEN_VECTORIZE_AVX2)
      return _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(r), 52));
#else
      S t[width];
      storeu(t, r);
      for (int i = 0; i < width; ++i) t[i] = Register<S, false>::pow2_biased(t[i]);
      return loadu(t);
#endif
    }
  }
  /// Keeps a loaded value in a register; GCC would repeat the load in every use.
  static KVDECODE_INLINE void pin(type& v) { KVDECODE_SEAL(v); }
};
#endif

namespace detail {

/// Lanes i and i + h of each 2 h lanes become their sum and their difference.
template <int h, class S, std::size_t... I>
KVDECODE_INLINE typename Register<S>::type butterfly(const typename Register<S>::type& v,
                                                     std::index_sequence<I...>) {
  using R = Register<S>;
  constexpr S signs[] = {(I & h) != 0 ? S(-1) : S(1)...};
  const typename R::type others = __builtin_shufflevector(v, v, (static_cast<int>(I) ^ h)...);
  return R::add(others, R::mul(v, R::loadu(signs)));  // the product is exact
}

template <int h, class S>
KVDECODE_INLINE typename Register<S>::type butterflies_from(const typename Register<S>::type& v) {
  constexpr int width = Register<S>::width;
  if constexpr (h < width)
    return butterflies_from<2 * h, S>(butterfly<h, S>(v, std::make_index_sequence<width>{}));
  else
    return v;
}

}  // namespace detail

/// The Walsh-Hadamard transform of a register's lanes: butterflies of lanes 1, 2, 4 … apart, in that order.
template <class S>
KVDECODE_INLINE typename Register<S>::type butterflies_within(const typename Register<S>::type& v) {
  return detail::butterflies_from<1, S>(v);
}

/// The sums of a register's lanes that lie a multiple of four apart, halves first: what a tree over lanes
/// leaves of it. A register of four lanes or fewer is left as it is.
template <class P>
KVDECODE_INLINE P fold_to_quad(const P& v) {
  return v;
}
#if defined(EIGEN_VECTORIZE_AVX)
KVDECODE_INLINE __m128 fold_to_quad(__m256 v) {
  return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}
#endif
#if defined(EIGEN_VECTORIZE_AVX512)
// By shuffles: g++ 12 warns of its own intrinsics for the halves.
KVDECODE_INLINE __m128 fold_to_quad(__m512 v) {
  return fold_to_quad(_mm256_add_ps(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
                                    __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15)));
}
KVDECODE_INLINE __m256d fold_to_quad(__m512d v) {
  return _mm256_add_pd(__builtin_shufflevector(v, v, 0, 1, 2, 3), __builtin_shufflevector(v, v, 4, 5, 6, 7));
}
#endif

#if defined(EIGEN_VECTORIZE_AVX512)
/// Sixteen registers' sums of lanes, by the tree (i, i+8), (i, i+4), (i, i+2), (i, i+1), as one register: each step halves
/// two registers into one.
KVDECODE_INLINE __m512 tree_sums(const __m512 (&v)[16]) {
  __m512 quads[4];  // quads[e]: four partial sums of v[e], v[e + 4], v[e + 8] and v[e + 12]
  unroll<4>([&](auto e) KVDECODE_INLINE_LAMBDA {
    const auto halves = [&](int a, int b) KVDECODE_INLINE_LAMBDA {
      return _mm512_maskz_add_ps(
          0xffff, __builtin_shufflevector(v[a], v[b], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
          __builtin_shufflevector(v[a], v[b], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
    };
    const __m512 x = halves(e, e + 4), y = halves(e + 8, e + 12);
    quads[e] = _mm512_maskz_add_ps(
        0xffff, __builtin_shufflevector(x, y, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27),
        __builtin_shufflevector(x, y, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31));
  });
  const auto pairs = [&](const __m512& a, const __m512& b) KVDECODE_INLINE_LAMBDA {
    return _mm512_maskz_add_ps(
        0xffff, __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
        __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
  };
  const __m512 a = pairs(quads[0], quads[1]), b = pairs(quads[2], quads[3]);
  return _mm512_maskz_add_ps(
      0xffff, __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30),
      __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31));
}
#endif

/// How many vector registers the machine has.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kVectorRegisters = 32;
#else
inline constexpr int kVectorRegisters = 16;
#endif

/// Tells the core that this thread waits in a loop.
KVDECODE_INLINE void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Asks for the cache line at p.
KVDECODE_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }
KVDECODE_INLINE void prefetch_second_level(const void* p) { __builtin_prefetch(p, 0, 2); }
/// The same for n bytes, a line at a time.
KVDECODE_INLINE void prefetch_second_level(const std::byte* p, Index n) {
  for (Index i = 0; i < n; i += 64) prefetch_second_level(p + i);
}

}  // namespace kvdecode::inline KVDECODE_ABI::simd

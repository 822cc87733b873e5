// SPDX-License-Identifier: MIT
// <kvdecode/core/simd/lanes.hpp> - sixteen lanes, the unit in which every canonical sum of the library is
// written. A wider or narrower register only changes how many lanes one instruction serves, never which lanes
// meet.
#pragma once

#include <kvdecode/core/simd/register.hpp>

namespace kvdecode::inline KVDECODE_ABI {

inline constexpr int kLanes = 16;

/// Sixteen values of S.
template <class S>
struct Lanes {
  using scalar = S;
  using R = simd::Register<S>;
  static constexpr int width = R::width;
  static constexpr int regs = kLanes / width;
  static_assert(kLanes % width == 0);

  typename R::type r[regs];

  /// Calls f with the number of each register. A width of one is a loop: unrolling it only costs compile
  /// time.
  template <class F>
  static KVDECODE_INLINE void each(F&& f) {
    if constexpr (width == 1)
      for (int i = 0; i < regs; ++i) f(i);
    else
      simd::unroll<regs>(f);
  }

  static KVDECODE_INLINE Lanes loadu(const S* p) {
    Lanes v;
    each([&](auto i) KVDECODE_INLINE_LAMBDA { v.r[i] = R::loadu(p + i * width); });
    return v;
  }
  static KVDECODE_INLINE Lanes set1(const S& s) {
    Lanes v;
    each([&](auto i) KVDECODE_INLINE_LAMBDA { v.r[i] = R::set1(s); });
    return v;
  }
  static KVDECODE_INLINE Lanes zero() { return set1(S(0.0f)); }
  /// The first n of sixteen values; the other lanes hold `fill`.
  static KVDECODE_INLINE Lanes load_partial(const S* p, Index n, const S& fill) {
    S t[kLanes];
    for (int i = 0; i < kLanes; ++i) t[i] = i < n ? p[i] : fill;
    return loadu(t);
  }
  KVDECODE_INLINE void storeu(S* p) const {
    each([&](auto i) KVDECODE_INLINE_LAMBDA { R::storeu(p + i * width, r[i]); });
  }
  KVDECODE_INLINE void store_partial(S* p, Index n) const {
    S t[kLanes];
    storeu(t);
    for (Index i = 0; i < n; ++i) p[i] = t[i];
  }
};

namespace detail {

template <class S, class F>
KVDECODE_INLINE Lanes<S> each_register(F&& f) {
  Lanes<S> result;
  Lanes<S>::each([&](auto i) KVDECODE_INLINE_LAMBDA { result.r[i] = f(i); });
  return result;
}

}  // namespace detail

template <class S>
KVDECODE_INLINE Lanes<S> add(const Lanes<S>& a, const Lanes<S>& b) {
  return detail::each_register<S>([&](auto i)
                                      KVDECODE_INLINE_LAMBDA { return Lanes<S>::R::add(a.r[i], b.r[i]); });
}
template <class S>
KVDECODE_INLINE Lanes<S> sub(const Lanes<S>& a, const Lanes<S>& b) {
  return detail::each_register<S>([&](auto i)
                                      KVDECODE_INLINE_LAMBDA { return Lanes<S>::R::sub(a.r[i], b.r[i]); });
}
template <class S>
KVDECODE_INLINE Lanes<S> mul(const Lanes<S>& a, const Lanes<S>& b) {
  return detail::each_register<S>([&](auto i)
                                      KVDECODE_INLINE_LAMBDA { return Lanes<S>::R::mul(a.r[i], b.r[i]); });
}
template <class S>
KVDECODE_INLINE Lanes<S> div(const Lanes<S>& a, const Lanes<S>& b) {
  return detail::each_register<S>([&](auto i)
                                      KVDECODE_INLINE_LAMBDA { return Lanes<S>::R::div(a.r[i], b.r[i]); });
}
/// a < b ? b : a in each lane.
template <class S>
KVDECODE_INLINE Lanes<S> max(const Lanes<S>& a, const Lanes<S>& b) {
  return detail::each_register<S>([&](auto i)
                                      KVDECODE_INLINE_LAMBDA { return Lanes<S>::R::max(a.r[i], b.r[i]); });
}
template <class S>
KVDECODE_INLINE Lanes<S> fma(const Lanes<S>& a, const Lanes<S>& b, const Lanes<S>& c) {
  return detail::each_register<S>(
      [&](auto i) KVDECODE_INLINE_LAMBDA { return Lanes<S>::R::fma(a.r[i], b.r[i], c.r[i]); });
}

/// Calls whole(i) for each register's worth of [0, n), then one(i) for each element that is left.
template <class S, class Whole, class One>
KVDECODE_INLINE void for_each_register(Index n, Whole&& whole, One&& one) {
  constexpr Index width = Lanes<S>::width;
  const Index n_whole = n / width * width;
  for (Index i = 0; i < n_whole; i += width) whole(i);
  for (Index i = n_whole; i < n; ++i) one(i);
}

/// The tree (i, i+8), (i, i+4), (i, i+2), (i, i+1) over sixteen values, by `op`; destroys them.
template <class S, class Op>
KVDECODE_INLINE S tree_reduce(S* lanes, Op op) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] = op(lanes[i], lanes[i + half]);
  return lanes[0];
}

/// Their sum by that tree.
template <class S>
KVDECODE_INLINE S tree_sum(S* lanes) {
  return tree_reduce(lanes, [](const S& a, const S& b) { return a + b; });
}

namespace detail {

/// The tree's first steps, as far as whole registers and Eigen's exact halves go: 4 lanes (2 of a 2-wide
/// register).
template <class S>
KVDECODE_INLINE auto fold_to_quad(const Lanes<S>& v) {
  using L = Lanes<S>;
  L t = v;
  const auto step = [&](auto half) KVDECODE_INLINE_LAMBDA {
    if constexpr (L::regs >= 2 * half.value)
      simd::unroll<half.value>(
          [&](auto i) KVDECODE_INLINE_LAMBDA { t.r[i] = L::R::add(t.r[i], t.r[i + half.value]); });
  };
  step(std::integral_constant<int, 4>{});
  step(std::integral_constant<int, 2>{});
  step(std::integral_constant<int, 1>{});
  return simd::fold_to_quad(t.r[0]);
}

}  // namespace detail

/// The canonical sum of the sixteen lanes.
template <class S>
KVDECODE_INLINE S tree_sum(const Lanes<S>& v) {
  if constexpr (Lanes<S>::width == 1) {
    S t[kLanes];
    v.storeu(t);
    return tree_sum(t);
  } else {
    S t[4];
    const auto quad = detail::fold_to_quad(v);
    Eigen::internal::pstoreu(t, quad);
    if constexpr (Lanes<S>::width == 2)
      return t[0] + t[1];
    else
      return (t[0] + t[2]) + (t[1] + t[3]);
  }
}

/// Four canonical sums at once: out[i] = tree_sum(v[i]).
template <class S>
KVDECODE_INLINE void tree_sum4(const Lanes<S>& a, const Lanes<S>& b, const Lanes<S>& c, const Lanes<S>& d,
                               S* out) {
  if constexpr (Lanes<S>::width >= 4) {
    auto quad = detail::fold_to_quad(a);
    using Quad = decltype(quad);
    Eigen::internal::PacketBlock<Quad, 4> block;
    block.packet[0] = quad;
    block.packet[1] = detail::fold_to_quad(b);
    block.packet[2] = detail::fold_to_quad(c);
    block.packet[3] = detail::fold_to_quad(d);
    Eigen::internal::ptranspose(block);
    Eigen::internal::pstoreu(out,
                             Eigen::internal::padd(Eigen::internal::padd(block.packet[0], block.packet[2]),
                                                   Eigen::internal::padd(block.packet[1], block.packet[3])));
  } else {
    out[0] = tree_sum(a);
    out[1] = tree_sum(b);
    out[2] = tree_sum(c);
    out[3] = tree_sum(d);
  }
}

/// N canonical sums: out[i] = tree_sum(v[i]).
template <class S, int N>
KVDECODE_INLINE void tree_sums(const Lanes<S> (&v)[N], S* out) {
  constexpr int sixteens = Lanes<S>::width == kLanes && N >= kLanes ? N / kLanes : 0;
#if defined(EIGEN_VECTORIZE_AVX512)
  if constexpr (sixteens > 0)
    simd::unroll<sixteens>([&](auto i) KVDECODE_INLINE_LAMBDA {
      typename Lanes<S>::R::type some[kLanes];
      simd::unroll<kLanes>([&](auto j) KVDECODE_INLINE_LAMBDA { some[j] = v[i * kLanes + j].r[0]; });
      Lanes<S>::R::storeu(out + i * kLanes, simd::tree_sums(some));
    });
#endif
  constexpr int first = sixteens * kLanes, fours = (N - first) / 4;
  simd::unroll<fours>([&](auto i) KVDECODE_INLINE_LAMBDA {
    constexpr int j = first + 4 * i;
    tree_sum4(v[j], v[j + 1], v[j + 2], v[j + 3], out + j);
  });
  simd::unroll<N - first - 4 * fours>([&](auto i) KVDECODE_INLINE_LAMBDA {
    out[first + 4 * fours + i] = tree_sum(v[first + 4 * fours + i]);
  });
}

namespace simd {

/// Keeps what is computed from these lanes behind all of them in the program, where compilers would mix it.
template <class S, int n, int m>
KVDECODE_INLINE void hold_order(Lanes<S> (&lanes)[n][m]) {
  // In order are only statements like these: the second of the first lanes comes after the first of the last.
  for (int pass = 0; pass < 2; ++pass)
    unroll<n * m>([&](auto i) KVDECODE_INLINE_LAMBDA {
      for (auto& some : lanes[i / m][i % m].r) asm volatile("" : KVDECODE_SEALED(some));
    });
}

}  // namespace simd

}  // namespace kvdecode

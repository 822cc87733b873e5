// SPDX-License-Identifier: MIT
// <kvdecode/core/elementary.hpp> - exp, tanh, erf, log and their kin with the same bits on every machine:
// polynomials of fused multiply-adds by register where a layer needs them by the row, in double where a table
// is built once.
#pragma once

#include <kvdecode/core/scalar.hpp>
#include <kvdecode/core/simd/lanes.hpp>

#include <bit>
#include <concepts>
#include <limits>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

template <class T>
struct ElementaryConstants;
template <>
struct ElementaryConstants<float> {
  static constexpr float kLog2E = 0x1.715476p+0f;
  static constexpr float kLn2High = 0x1.62e43p-1f;
  static constexpr float kLn2Low = -0x1.05c61p-29f;
  static constexpr float kRound = 0x1.8p23f;          // adding it rounds to an integer
  static constexpr float kBias = 0x1.8p23f + 127.0f;  // the same, with the exponent's bias
  static constexpr float kExpMin = -0x1.5d589ep+6f;   // exp is below the smallest normal number
  static constexpr float kExpMax = 0x1.62e430p+6f;    // exp is above the largest
  static constexpr float kTanhMax = 20.0f;            // tanh rounds to 1
  static constexpr float kTanhTiny = 0x1p-13f;        // tanh(x) rounds to x
  static constexpr float kSqrtHalf = 0x1.6a09e6p-1f;
  // 1/7!, 1/6!, … 1/0!
  static constexpr float kExp[] = {0x1.a01a02p-13f, 0x1.6c16c2p-10f, 0x1.111112p-7f, 0x1.555556p-5f,
                                   0x1.555556p-3f,  0x1.0p-1f,       1.0f,           1.0f};
  // (2 z + 1) exp(z^2) erfc(z) in t = (z - 2) / (z + 2)
  static constexpr float kErfc[] = {-0x1.4ee3a0p-19f, 0x1.4b36bcp-14f, 0x1.7b1dc2p-13f, -0x1.9a9b80p-12f,
                                    -0x1.769704p-10f, 0x1.460a8cp-10f, 0x1.1d6e88p-7f,  -0x1.070f24p-7f,
                                    -0x1.bc26ecp-5f,  0x1.4ff9cep-3f,  -0x1.5407d2p-3f, -0x1.7bf5e8p-4f,
                                    0x1.46e80ep+0f};
};
template <>
struct ElementaryConstants<double> {
  static constexpr double kLog2E = 0x1.71547652b82fep+0;
  static constexpr double kLn2High = 0x1.62e42fefa39efp-1;
  static constexpr double kLn2Low = 0x1.abc9e3b39803fp-56;
  static constexpr double kRound = 0x1.8p52;
  static constexpr double kBias = 0x1.8p52 + 1023.0;
  static constexpr double kExpMin = -0x1.6232bdd7abcd2p+9;
  static constexpr double kExpMax = 0x1.62e42fefa39efp+9;
  static constexpr double kTanhMax = 40.0;
  static constexpr double kTanhTiny = 0x1p-28;
  static constexpr double kSqrtHalf = 0x1.6a09e667f3bcdp-1;
  static constexpr double kExp[] = {0x1.6124613a86d09p-33,
                                    0x1.1eed8eff8d898p-29,
                                    0x1.ae64567f544e4p-26,
                                    0x1.27e4fb7789f5cp-22,
                                    0x1.71de3a556c734p-19,
                                    0x1.a01a01a01a01ap-16,
                                    0x1.a01a01a01a01ap-13,
                                    0x1.6c16c16c16c17p-10,
                                    0x1.1111111111111p-7,
                                    0x1.5555555555555p-5,
                                    0x1.5555555555555p-3,
                                    0x1.0p-1,
                                    1.0,
                                    1.0};
  static constexpr double kErfc[] = {
      -0x1.81b0d80fde863p-27, -0x1.433abc84238acp-26, 0x1.58cd8581aec80p-24,  0x1.bb767006265ffp-23,
      -0x1.e89c53e9112efp-24, -0x1.dfe0fe191ec11p-21, -0x1.cb9b723bbc776p-21, 0x1.9bdf33114a283p-20,
      0x1.661499e8c47bcp-18,  0x1.f0e334192a452p-19,  -0x1.c6801fff65c6bp-17, -0x1.31891514f5c03p-15,
      -0x1.90ddd3354203ap-20, 0x1.3cc0be41e210ap-13,  0x1.b0c6b08a8d503p-13,  -0x1.dc6939ce568cbp-12,
      -0x1.7de518fd88c76p-10, 0x1.4d461d7cf2d16p-10,  0x1.1dd2ec7bfd96dp-7,   -0x1.07423405482a4p-7,
      -0x1.bc2b956161094p-5,  0x1.4ffa1e14e2e16p-3,   -0x1.5407bebf327f5p-3,  -0x1.7bf5ec170064fp-4,
      0x1.46e80e2277954p+0};
};

/// The functions over one register R of float or double. Accuracy against the true value is in the tests.
template <class R>
struct Elementary {
  using P = typename R::type;
  using T = typename R::scalar;
  using C = ElementaryConstants<T>;

  static KVDECODE_INLINE P lit(T v) { return R::set1(v); }
  /// Exact, and -0 for +0; a subtraction from zero would lose the sign.
  static KVDECODE_INLINE P negate(const P& x) { return R::mul(x, lit(T(-1))); }

  /// Coefficients from the highest power down.
  template <std::size_t N>
  static KVDECODE_INLINE P horner(const T (&c)[N], const P& x) {
    P p = lit(c[0]);
    simd::unroll<static_cast<int>(N) - 1>([&](auto i)
                                              KVDECODE_INLINE_LAMBDA { p = R::fma(p, x, lit(c[i + 1])); });
    return p;
  }

  /// 2^n * p for an integer n in [-1075, 1025] or so, in two factors: no exponent field overflows.
  static KVDECODE_INLINE P scale(const P& p, const P& n) {
    const P h1 = R::fma(n, lit(T(0.5)), lit(C::kBias));
    const P h2 = R::add(R::sub(n, R::sub(h1, lit(C::kBias))), lit(C::kBias));
    return R::mul(R::mul(p, R::pow2_biased(h1)), R::pow2_biased(h2));
  }

  /// e^x by x = n ln 2 + f (Cody & Waite 1980). Results below the smallest normal number are +0.
  static KVDECODE_INLINE P exp(const P& x) {
    const P low = lit(C::kExpMin), high = lit(C::kExpMax);
    P t = R::lt_select(x, low, low, x);
    t = R::lt_select(high, t, high, t);  // a NaN stays
    const P n = R::sub(R::fma(t, lit(C::kLog2E), lit(C::kRound)), lit(C::kRound));
    P f = R::fma(n, lit(-C::kLn2High), t);
    f = R::fma(n, lit(-C::kLn2Low), f);
    P y = scale(horner(C::kExp, f), n);
    y = R::lt_select(x, low, lit(T(0)), y);
    return R::lt_select(high, x, lit(std::numeric_limits<T>::infinity()), y);
  }

  /// tanh(x) = q / (q + 2), q = e^2|x| - 1
  static KVDECODE_INLINE P tanh(const P& x) {
    const P one = lit(T(1)), two = lit(T(2)), limit = lit(T(2) * C::kTanhMax);
    const P a = R::abs(x);
    P t = R::mul(a, two);
    t = R::lt_select(limit, t, limit, t);
    const P n = R::sub(R::fma(t, lit(C::kLog2E), lit(C::kRound)), lit(C::kRound));
    P f = R::fma(n, lit(-C::kLn2High), t);
    f = R::fma(n, lit(-C::kLn2Low), f);
    constexpr std::size_t size = sizeof(C::kExp) / sizeof(T);
    P p = lit(C::kExp[0]);  // (e^f - 1) / f - 1
    simd::unroll<static_cast<int>(size) - 3>(
        [&](auto i) KVDECODE_INLINE_LAMBDA { p = R::fma(p, f, lit(C::kExp[i + 1])); });
    const P q = R::fma(R::mul(p, f), f, f);
    const P s = R::pow2_biased(R::add(n, lit(C::kBias)));
    const P e = R::fma(s, q, R::sub(s, one));
    const P y = R::div(e, R::add(e, two));
    return R::lt_select(a, lit(C::kTanhTiny), x, R::lt_select(x, lit(T(0)), negate(y), y));
  }

  /// 1 / (1 + e^-x)
  static KVDECODE_INLINE P sigmoid(const P& x) {
    const P one = lit(T(1));
    return R::div(one, R::add(one, exp(negate(x))));
  }

  /// erfc(a / sqrt 2) for a >= 0. The exponent a^2 / 2 is kept in two parts: its rounding alone would cost
  /// a^2 / 2 units in the last place.
  static KVDECODE_INLINE P erfc_scaled(const P& a) {
    const P one = lit(T(1)), two = lit(T(2));
    const P z = R::mul(a, lit(C::kSqrtHalf));
    const P t = R::div(R::sub(z, two), R::add(z, two));
    const P g = R::div(horner(C::kErfc, t), R::fma(two, z, one));
    const P half = R::mul(a, lit(T(0.5)));
    const P h = R::mul(half, a);
    const P l = R::fma(half, a, negate(h));
    const P e = exp(negate(h));
    return R::mul(R::fma(negate(l), e, e), g);
  }

  /// x Phi(x): by x/2 * erfc(|x| / sqrt 2) on both sides of zero.
  static KVDECODE_INLINE P gelu(const P& x) {
    const P top = lit(T(40)),
            bottom = lit(T(-40));  // erfc is 0 from there on; an infinite x would make it NaN
    P c = R::lt_select(top, x, top, x);
    c = R::lt_select(c, bottom, bottom, c);
    const P erfc = erfc_scaled(R::abs(c));
    const P half = R::mul(c, lit(T(0.5)));
    return R::lt_select(lit(T(0)), x, R::fma(negate(half), erfc, x), R::mul(half, erfc));
  }
};

template <class T>
using ScalarElementary = Elementary<simd::Register<T, false>>;

}  // namespace detail

// ---- one number. For a scalar type of the user's own these names are found by argument-dependent lookup.
// ----

template <BinaryFloat T>
T exp(T x) {
  return detail::ScalarElementary<T>::exp(x);
}
template <BinaryFloat T>
T tanh(T x) {
  return detail::ScalarElementary<T>::tanh(x);
}
inline float sigmoid(float x) { return detail::ScalarElementary<float>::sigmoid(x); }
inline double sigmoid(double x) { return detail::ScalarElementary<double>::sigmoid(x); }
inline float gelu(float x) { return detail::ScalarElementary<float>::gelu(x); }
inline double gelu(double x) { return detail::ScalarElementary<double>::gelu(x); }

/// Natural logarithm, by x = 2^e m with m in [sqrt 1/2, sqrt 2) and the series of artanh.
template <std::same_as<double> T>
T log(T x) {
  if (!(x > 0.0))
    return x == 0.0 ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  if (x == std::numeric_limits<double>::infinity()) return x;
  double extra = 0.0;
  if (x < std::numeric_limits<double>::min()) {
    x = mul(x, 0x1p54);
    extra = -54.0;
  }
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t above = bits - 0x3fe6a09e667f3bcdu;  // the bits of sqrt 1/2
  const auto shifted = static_cast<std::int64_t>(above & 0xfff0000000000000u);
  const std::int64_t exponent = shifted / (std::int64_t{1} << 52);
  const double e = static_cast<double>(exponent) + extra;
  const double m = std::bit_cast<double>(bits - (above & 0xfff0000000000000u));
  const double s = (m - 1.0) / (m + 1.0);
  const double z = mul(s, s);
  double p = 2.0 / 21.0;
  for (const double c : {2.0 / 19.0, 2.0 / 17.0, 2.0 / 15.0, 2.0 / 13.0, 2.0 / 11.0, 2.0 / 9.0, 2.0 / 7.0,
                         2.0 / 5.0, 2.0 / 3.0})
    p = fma(p, z, c);
  const double series = fma(mul(p, z), s, mul(2.0, s));
  return fma(e, 0x1.62e42fefa39efp-1, fma(e, 0x1.abc9e3b39803fp-56, series));
}
template <std::same_as<float> T>
T log(T x) {
  return static_cast<float>(log(static_cast<double>(x)));
}

/// Logarithm to base 2; exact for powers of two.
template <std::same_as<double> T>
T log2(T x) {
  if (!(x > 0.0) || x == std::numeric_limits<double>::infinity()) return log(x);
  int scale = 0;
  if (x < std::numeric_limits<double>::min()) {
    x = mul(x, 0x1p54);
    scale = -54;
  }
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto shifted = static_cast<std::int64_t>((bits - 0x3fe6a09e667f3bcdu) & 0xfff0000000000000u);
  const std::int64_t e = shifted / (std::int64_t{1} << 52);
  const double m = std::bit_cast<double>(bits - static_cast<std::uint64_t>(shifted));
  return fma(log(m), 0x1.71547652b82fep+0, static_cast<double>(e + scale));
}
template <std::same_as<float> T>
T log2(T x) {
  return static_cast<float>(log2(static_cast<double>(x)));
}

/// 2^x.
template <std::same_as<double> T>
T exp2(T x) {
  if (!(x < 1024.0)) return x >= 1024.0 ? std::numeric_limits<double>::infinity() : x;
  if (x < -1022.0) return 0.0;
  const double n = (x + 0x1.8p52) - 0x1.8p52;
  using E = detail::ScalarElementary<double>;
  return E::scale(E::horner(detail::ElementaryConstants<double>::kExp, mul(x - n, 0x1.62e42fefa39efp-1)), n);
}
template <std::same_as<float> T>
T exp2(T x) {
  const double y = exp2(static_cast<double>(x));
  return y < static_cast<double>(std::numeric_limits<float>::min()) ? 0.0f : static_cast<float>(y);
}

/// Error function: its series near zero, 1 - erfc beyond.
template <std::same_as<double> T>
T erf(T x) {
  if (!(x < 0.0 || x > 0.0)) return x;  // NaN, and either zero
  const double a = __builtin_fabs(x);
  if (a < 0.5) {
    const double z = mul(x, x);
    double terms[13];  // (-1)^n / n!
    terms[0] = 1.0;
    for (int n = 1; n <= 12; ++n) terms[n] = terms[n - 1] / -static_cast<double>(n);
    double p = terms[12] / 25.0;
    for (int n = 11; n >= 1; --n) p = fma(p, z, terms[n] / static_cast<double>(2 * n + 1));
    const double two_over_sqrt_pi = 0x1.20dd750429b6dp+0;
    return mul(two_over_sqrt_pi, fma(mul(p, z), x, x));
  }
  const double top = a < 27.0 ? a : 27.0;
  const double erfc = detail::ScalarElementary<double>::erfc_scaled(mul(top, 0x1.6a09e667f3bcdp+0));
  const double y = 1.0 - erfc;
  return x < 0.0 ? -y : y;
}
template <std::same_as<float> T>
T erf(T x) {
  return static_cast<float>(erf(static_cast<double>(x)));
}

/// log(1 + e^x).
inline double softplus(double x) {
  if (x != x) return x;
  const double u = exp(-__builtin_fabs(x));  // in (0, 1]
  const double w = 1.0 + u;
  const double log1p =
      w == 1.0 ? u : mul(log(w), u / (w - 1.0));  // Kahan's correction for what 1 + u has lost
  return (x > 0.0 ? x : 0.0) + log1p;
}
inline float softplus(float x) { return static_cast<float>(softplus(static_cast<double>(x))); }

/// base^exponent for a positive base, in double: for tables.
template <std::same_as<double> T>
T pow(T base, T exponent) {
  return exp(mul(exponent, log(base)));
}

/// Sine and cosine of one angle.
struct SinCos {
  double sin;
  double cos;
};

/// Both to about one unit in the last place, by subtraction of quarter turns in three parts. @pre |x| < 2^30
/// radians
inline SinCos sincos(double x) {
  const double shifted = fma(x, 0x1.45f306dc9c883p-1, 0x1.8p52);
  const double n = shifted - 0x1.8p52;
  const auto quadrant = static_cast<unsigned>(std::bit_cast<std::uint64_t>(shifted) & 3u);
  double r = fma(n, -0x1.921fb54442d18p+0, x);
  r = fma(n, -0x1.1a62633145c07p-54, r);
  r = fma(n, 0x1.f1976b7ed8fbcp-110, r);
  const double z = mul(r, r);
  double s = 0x1.952c77030ad4ap-49;  // 1/17!, then down to 1/3!, signs alternating
  for (const double c :
       {-0x1.ae7f3e733b81fp-41, 0x1.6124613a86d09p-33, -0x1.ae64567f544e4p-26, 0x1.71de3a556c734p-19,
        -0x1.a01a01a01a01ap-13, 0x1.1111111111111p-7, -0x1.5555555555555p-3})
    s = fma(s, z, c);
  s = fma(mul(s, z), r, r);
  double c = 0x1.ae7f3e733b81fp-45;  // 1/16!, then down to 1/0!
  for (const double k : {-0x1.93974a8c07c9dp-37, 0x1.1eed8eff8d898p-29, -0x1.27e4fb7789f5cp-22,
                         0x1.a01a01a01a01ap-16, -0x1.6c16c16c16c17p-10, 0x1.5555555555555p-5, -0x1.0p-1, 1.0})
    c = fma(c, z, k);
  const double sine = (quadrant & 1u) != 0 ? c : s;
  const double cosine = (quadrant & 1u) != 0 ? s : c;
  return {(quadrant & 2u) != 0 ? -sine : sine, ((quadrant + 1u) & 2u) != 0 ? -cosine : cosine};
}

// ---- sixteen lanes ----

template <class S>
KVDECODE_INLINE Lanes<S> exp(const Lanes<S>& x) {
  if constexpr (std::is_floating_point_v<S>)
    return detail::each_register<S>(
        [&](auto i) KVDECODE_INLINE_LAMBDA { return detail::Elementary<simd::Register<S>>::exp(x.r[i]); });
  else
    return detail::each_register<S>([&](auto i) { return exp(x.r[i]); });
}

}  // namespace kvdecode

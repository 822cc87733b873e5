// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/cache_turbo.hpp> - Turbo4, Turbo3 and Turbo2: rows of a cache given signs, turned by a Hadamard
// transform and divided by their length: then their numbers are all but normally distributed, and are stored as the
// levels that Lloyd (1982) and Max (1960) found best for that. Beside them a row keeps its length (Zandieh 2025).
#pragma once

#include <kvdecode/core/formats/cache_blocks.hpp>
#include <kvdecode/core/hadamard.hpp>
#include <kvdecode/core/simd/packed_codes.hpp>

#include <algorithm>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// The levels of a normal distribution that have the least mean squared error, and the middles between them.
template <int bits>
struct NormalLevels;
template <>
struct NormalLevels<2> {
  static constexpr float kThresholds[] = {-0.98159882156f, 0.0f, 0.98159882156f};
  static constexpr FloatLevels kLevels{
      {-1.51041760849f, -0.452780034636f, 0.452780034636f, 1.51041760849f,  //
       -1.51041760849f, -0.452780034636f, 0.452780034636f, 1.51041760849f,  //
       -1.51041760849f, -0.452780034636f, 0.452780034636f, 1.51041760849f,  //
       -1.51041760849f, -0.452780034636f, 0.452780034636f, 1.51041760849f}};
};
template <>
struct NormalLevels<3> {
  static constexpr float kThresholds[] = {-1.74792749152f, -1.04995727985f, -0.500549730075f, 0.0f,
                                          0.500549730075f, 1.04995727985f,  1.74792749152f};
  static constexpr FloatLevels kLevels{
      {-2.15194570453f, -1.3439092785f, -0.756005281205f, -0.245094178944f,  //
       0.245094178944f, 0.756005281205f, 1.3439092785f, 2.15194570453f,      //
       -2.15194570453f, -1.3439092785f, -0.756005281205f, -0.245094178944f,  //
       0.245094178944f, 0.756005281205f, 1.3439092785f, 2.15194570453f}};
};
template <>
struct NormalLevels<4> {
  static constexpr float kThresholds[] = {-2.40080339876f, -1.84353180627f,  -1.43713879168f, -1.09928582691f,
                                          -0.79954978750f, -0.522403709011f, -0.25822166467f, 0.0f,
                                          0.25822166467f,  0.522403709011f,  0.79954978750f,  1.09928582691f,
                                          1.43713879168f,  1.84353180627f,   2.40080339876f};
  static constexpr FloatLevels kLevels{{-2.732589570995f, -2.06901722653f, -1.618046386021f, -1.256231197347f,
                                        -0.942340456486f, -0.656759118532f, -0.38804829949f, -0.128395029851f,
                                        0.128395029851f, 0.38804829949f, 0.656759118532f, 0.942340456486f,
                                        1.256231197347f, 1.618046386021f, 2.06901722653f, 2.732589570995f}};
};

// N [f16], q [bits a number]:  x = level(q) (N / sqrt(n)), turned, with signs; n numbers in the row.
// N is what gives x the length that the row had.
template <FormatId id, int bits>
struct TurboRows {
  static constexpr FormatId kId = id;
  static constexpr std::string_view kName = to_string(id);
  static constexpr Index kBlock = kLanes;
  static constexpr RowTransform kTransform = RowTransform::kSignedHadamard;
  static constexpr std::string_view kTakes = kTurnedRows;
  static constexpr bool takes(Index n) { return can_turn(n); }
  static constexpr Index row_bytes(Index n) { return kCodes + simd::packed_bytes<bits>(n); }

  template <class S>
  static S decode(const std::byte* row, Index i, Index n) {
    const float level = Levels::kLevels.level[simd::packed_code<bits>(row + kCodes, i)];
    return static_cast<S>(mul(level, mul(scale_at(row), inverse_root(n))));
  }
  template <class S>
  static KVDECODE_INLINE Lanes<S> widen(const std::byte* row, Index first, Index n) {
    if constexpr (std::is_floating_point_v<S>) {
      const Lanes<float> scale = Lanes<float>::set1(mul(simd::load_f16(row), inverse_root(n)));
      return simd::convert<S>(
          simd::pick_packed<bits>(mul(scale, Levels::kLevels.lanes()), row + kCodes + first * bits / 8));
    } else {
      S t[kLanes];
      for (int j = 0; j < kLanes; ++j) t[j] = decode<S>(row, first + j, n);
      return Lanes<S>::loadu(t);
    }
  }
  /// Rounds to float first, whatever S is. @pre takes(n)
  template <class S>
  static void encode(const S* values, Index n, std::byte* row) noexcept {
    KVDECODE_EXPECTS(takes(n));
    float x[kMaxTurnedRow];
    double squares = 0.0;  // each exact: fused or not, their sum is the same
    for (Index i = 0; i < n; ++i) {
      x[i] = as_float(values[i]);
      squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    turn_row(kTransform, x, n);
    using kvdecode::sqrt;
    const double length = sqrt(squares), root = sqrt(static_cast<double>(n));
    const auto norm = static_cast<float>(store_scale(static_cast<double>(static_cast<float>(length)), row));
    const float factor = norm == 0.0f ? 0.0f : static_cast<float>(root) / norm;
    count_thresholds(x, n, factor);
    std::uint8_t codes[kMaxTurnedRow] = {};
    double level_squares = 0.0;  // likewise
    for (Index i = 0; i < n; ++i) {
      codes[i] = static_cast<std::uint8_t>(x[i]);
      const auto level = static_cast<double>(Levels::kLevels.level[codes[i]]);
      level_squares += level * level;
    }
    simd::pack_codes<bits>(codes, n, row + kCodes);
    store_scale(static_cast<double>(static_cast<float>(length * root / sqrt(level_squares))), row);
  }

 private:
  using Levels = NormalLevels<bits>;
  static constexpr Index kCodes = 2;  // byte at which they begin

  /// x[i] = how many thresholds x[i] * factor exceeds.
  static void count_thresholds(float* x, Index n, float factor) noexcept {
    using R = Lanes<float>::R;
    std::fill(x + n, x + std::max<Index>(n, R::width), 0.0f);
    for (Index i = 0; i < n; i += R::width) {
      const auto u = R::mul(R::loadu(x + i), R::set1(factor));
      auto count = R::set1(0.0f);
      for (const float threshold : Levels::kThresholds)
        count = R::add(count, R::lt_select(R::set1(threshold), u, R::set1(1.0f), R::set1(0.0f)));
      R::storeu(x + i, count);
    }
  }
};

}  // namespace detail

/// 4 bits a number, and 16 a row.
using Turbo4 = detail::TurboRows<FormatId::kTurbo4, 4>;
/// 3 bits a number, and 16 a row.
using Turbo3 = detail::TurboRows<FormatId::kTurbo3, 3>;
/// 2 bits a number, and 16 a row.
using Turbo2 = detail::TurboRows<FormatId::kTurbo2, 2>;

static_assert(StoresFrom<Turbo4, float> && StoresFrom<Turbo3, double> && StoresFrom<Turbo2, float>);
static_assert(Turbo4::row_bytes(64) == 34 && Turbo3::row_bytes(64) == 26 && Turbo2::row_bytes(64) == 18);

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <reference/numbers.hpp> - numbers in their storage formats, bit by bit: reads any element of a view as a
// double, and rounds a double to a format. Knows the layout of the formats and no floating-point type but
// double.
#pragma once

#include <kvdecode/core/view.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

namespace kvdecode_reference {

using kvdecode::FormatId;
using kvdecode::Index;
using kvdecode::MatrixView;
using kvdecode::VectorView;

using Vector = std::vector<double>;
using Rows = std::vector<Vector>;  // one row a token, or one row an output

/// The index of a container's element.
inline std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// A binary interchange format (IEEE 754-2019, section 3.4): one sign bit, then the biased exponent, then the
/// fraction. bfloat16 follows the same pattern.
struct BinaryFormat {
  int exponent_bits;
  int fraction_bits;

  int n_bytes() const { return (1 + exponent_bits + fraction_bits) / 8; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint64_t largest_exponent() const { return (std::uint64_t{1} << exponent_bits) - 1; }
  std::uint64_t hidden_bit() const { return std::uint64_t{1} << fraction_bits; }
  std::uint64_t sign_bit() const { return std::uint64_t{1} << (exponent_bits + fraction_bits); }
  std::uint64_t infinity() const { return largest_exponent() << fraction_bits; }
};

inline BinaryFormat binary_format(FormatId id) {
  switch (id) {
    case FormatId::kF64: return {11, 52};
    case FormatId::kF32: return {8, 23};
    case FormatId::kF16: return {5, 10};
    case FormatId::kBF16: return {8, 7};
    default: throw std::invalid_argument("reference: not a named storage format");
  }
}

/// The number that the bits stand for: (-1)^sign * 2^(exponent - bias) * 1.fraction, or, with exponent 0,
/// (-1)^sign * 2^(1 - bias) * 0.fraction.
inline double decode(FormatId id, std::uint64_t bits) {
  const BinaryFormat format = binary_format(id);
  const double sign = (bits & format.sign_bit()) != 0 ? -1.0 : 1.0;
  const std::uint64_t exponent = (bits >> format.fraction_bits) & format.largest_exponent();
  const std::uint64_t fraction = bits & (format.hidden_bit() - 1);
  if (exponent == format.largest_exponent())
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  const std::uint64_t significand = exponent == 0 ? fraction : format.hidden_bit() + fraction;
  const int power = (exponent == 0 ? 1 : static_cast<int>(exponent)) - format.bias() - format.fraction_bits;
  return sign * std::ldexp(static_cast<double>(significand), power);
}

/// The bits of the format's number nearest to x, of two equally near ones that with an even last bit
/// (IEEE 754-2019, section 4.3.1); too large ones become infinite. A NaN becomes the quiet one without a
/// sign.
inline std::uint64_t encode(FormatId id, double x) {
  const BinaryFormat format = binary_format(id);
  if (std::isnan(x)) return format.infinity() + format.hidden_bit() / 2;
  const std::uint64_t sign = std::signbit(x) ? format.sign_bit() : 0;
  if (std::isinf(x)) return sign + format.infinity();
  if (x == 0.0) return sign;
  const int lowest = 1 - format.bias();
  const int power = std::ilogb(x) < lowest ? lowest : std::ilogb(x);

  // |x| in units of the last place; below 2^(fraction_bits + 1), and exact.
  const double units = std::ldexp(std::abs(x), format.fraction_bits - power);
  auto significand = static_cast<std::uint64_t>(units);
  const double rest = units - static_cast<double>(significand);
  if (rest > 0.5 || (rest == 0.5 && significand % 2 == 1)) ++significand;

  // A significand that lacks the hidden bit, or was rounded up past it, moves the exponent by its carry.
  const auto exponent = static_cast<std::uint64_t>(power + format.bias());
  const std::uint64_t magnitude = (exponent << format.fraction_bits) + significand - format.hidden_bit();
  return sign + (magnitude < format.infinity() ? magnitude : format.infinity());
}

/// The little-endian bits of the number at `data`.
inline std::uint64_t load_bits(FormatId id, const std::byte* data) {
  std::uint64_t bits = 0;
  for (int i = binary_format(id).n_bytes() - 1; i >= 0; --i)
    bits = (bits << 8) + std::to_integer<std::uint64_t>(data[i]);
  return bits;
}

inline void store_bits(FormatId id, std::uint64_t bits, std::byte* data) {
  for (int i = 0; i < binary_format(id).n_bytes(); ++i)
    data[i] = static_cast<std::byte>((bits >> (8 * i)) & 0xff);
}

/// Element i of a vector.
inline double element(const VectorView& v, Index i) {
  return decode(v.format, load_bits(v.format, v.data + i * binary_format(v.format).n_bytes()));
}

/// Element (row, col) of W, wherever it is stored: in stored row `row`, or `col` if W is stored transposed.
inline double element(const MatrixView& w, Index row, Index col) {
  const Index stored_row = w.transposed ? col : row;
  const Index stored_col = w.transposed ? row : col;
  const std::byte* data = w.data + stored_row * w.stride + stored_col * binary_format(w.format).n_bytes();
  return decode(w.format, load_bits(w.format, data));
}

/// All elements; none of an empty view.
inline Vector read(const VectorView& v) {
  Vector result;
  for (Index i = 0; v.data != nullptr && i < v.size; ++i) result.push_back(element(v, i));
  return result;
}

/// All rows of W, whether stored transposed or not; none of an empty view.
inline Rows read(const MatrixView& w) {
  Rows result;
  for (Index r = 0; w.data != nullptr && r < w.rows; ++r) {
    result.emplace_back();
    for (Index c = 0; c < w.cols; ++c) result.back().push_back(element(w, r, c));
  }
  return result;
}

}  // namespace kvdecode_reference

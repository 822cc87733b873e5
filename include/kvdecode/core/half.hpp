// SPDX-License-Identifier: MIT
// <kvdecode/core/half.hpp> - sixteen-bit floats in integer arithmetic: the definition that hardware
// conversions equal.
#pragma once

#include <kvdecode/core/types.hpp>

#include <bit>
#include <cstdint>

namespace kvdecode::inline KVDECODE_ABI {

/// binary16 to binary32, exact. A signalling NaN becomes quiet, as in hardware.
constexpr float f16_to_f32(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 31u;
  const std::uint32_t mantissa = half & 0x3ffu;
  std::uint32_t bits = 0;
  if (exponent == 31) {
    bits = 0x7f800000u | (mantissa << 13) | (mantissa != 0 ? 0x00400000u : 0u);
  } else if (exponent != 0) {
    bits = ((exponent + 112) << 23) | (mantissa << 13);
  } else if (mantissa != 0) {
    const int shift = std::countl_zero(mantissa) - 21;  // brings the leading one to bit 10
    bits = (static_cast<std::uint32_t>(113 - shift) << 23) | (((mantissa << shift) & 0x3ffu) << 13);
  }
  return std::bit_cast<float>(sign | bits);
}

/// bfloat16 to binary32, exact.
constexpr float bf16_to_f32(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

namespace detail {

/// A double to a binary float of `mantissa_bits` and `exponent_bits`, to nearest, ties to even, in integers.
template <int mantissa_bits, int exponent_bits>
constexpr std::uint16_t encode_half(double value) {
  constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  constexpr std::uint64_t infinity = ((std::uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t sign = (bits >> 63) << 15;
  const int exponent = static_cast<int>((bits >> 52) & 0x7ff) - 1023;
  const std::uint64_t fraction = bits & 0xfffffffffffffu;
  if (exponent == 1024)  // infinity, or a NaN made quiet
    return static_cast<std::uint16_t>(
        sign | infinity |
        (fraction != 0 ? (std::uint64_t{1} << (mantissa_bits - 1)) | (fraction >> (52 - mantissa_bits)) : 0));
  if (exponent < -bias - mantissa_bits - 1)
    return static_cast<std::uint16_t>(sign);  // below half of the smallest
  const std::uint64_t significand = fraction | (std::uint64_t{1} << 52);
  // A number below the smallest normal one loses as many more bits as it lies below.
  const int lost = 52 - mantissa_bits + (exponent < 1 - bias ? 1 - bias - exponent : 0);
  std::uint64_t kept = significand >> lost;
  const std::uint64_t rest = significand & ((std::uint64_t{1} << lost) - 1);
  const std::uint64_t half = std::uint64_t{1} << (lost - 1);
  if (rest > half || (rest == half && (kept & 1u) != 0)) ++kept;  // may carry into the exponent, as it should
  std::uint64_t result = kept;
  if (exponent >= 1 - bias) result += static_cast<std::uint64_t>(exponent + bias - 1) << mantissa_bits;
  if (result > infinity) result = infinity;
  return static_cast<std::uint16_t>(sign | result);
}

}  // namespace detail

/// To the nearest binary16, ties to even; too large becomes infinite.
constexpr std::uint16_t to_f16(double value) { return detail::encode_half<10, 5>(value); }
/// To the nearest bfloat16, ties to even; too large becomes infinite.
constexpr std::uint16_t to_bf16(double value) { return detail::encode_half<7, 8>(value); }

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
#include <reference/numbers.hpp>
#include <support/random.hpp>

#include <kvdecode/core/half.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace {

using kvdecode::FormatId;
using kvdecode_test::draw;
using kvdecode_test::FloatClass;
using kvdecode_test::SplitMix64;

static_assert(kvdecode::to_f16(1.0) == 0x3c00 && kvdecode::f16_to_f32(0xc000) == -2.0f);
static_assert(kvdecode::to_bf16(1.0) == 0x3f80 && kvdecode::bf16_to_f32(0x4049) == 3.140625f);

struct Half {
  FormatId id;
  float (*decode)(std::uint16_t);
  std::uint16_t (*encode)(double);
  std::uint16_t infinity;
  std::uint16_t quiet_bit;
};
constexpr Half kHalves[] = {
    {FormatId::kF16, kvdecode::f16_to_f32, kvdecode::to_f16, 0x7c00, 0x0200},
    {FormatId::kBF16, kvdecode::bf16_to_f32, kvdecode::to_bf16, 0x7f80, 0x0040},
};

std::uint16_t pattern(int i) { return static_cast<std::uint16_t>(i); }

bool is_nan(const Half& half, std::uint16_t bits) { return (bits & 0x7fff) > half.infinity; }

std::uint16_t reference_bits(const Half& half, double x) {
  return static_cast<std::uint16_t>(kvdecode_reference::encode(half.id, x));
}

TEST_CASE("half: each of 65536 patterns decodes to the number it stands for") {
  for (const Half& half : kHalves) {
    CAPTURE(to_string(half.id));
    int n_wrong = 0;
    for (int i = 0; i < 65536; ++i) {
      const float actual = half.decode(pattern(i));
      if (is_nan(half, pattern(i))) {
        n_wrong += !std::isnan(actual) || std::signbit(actual) != (i >= 0x8000);
        continue;
      }
      const double expected = kvdecode_reference::decode(half.id, pattern(i));
      n_wrong += static_cast<double>(actual) != expected || std::signbit(actual) != std::signbit(expected);
    }
    CHECK(n_wrong == 0);
  }
}

TEST_CASE("half: a binary16 NaN keeps its sign and payload and becomes quiet, as in hardware") {
  CHECK(std::bit_cast<std::uint32_t>(kvdecode::f16_to_f32(0x7c01)) == 0x7fc02000);
  CHECK(std::bit_cast<std::uint32_t>(kvdecode::f16_to_f32(0xfdab)) == 0xfff56000);
}

TEST_CASE("half: encoding what was decoded gives the pattern back") {
  for (const Half& half : kHalves) {
    CAPTURE(to_string(half.id));
    int n_wrong = 0;
    for (int i = 0; i < 65536; ++i) {
      const std::uint16_t expected =
          is_nan(half, pattern(i)) ? static_cast<std::uint16_t>(i | half.quiet_bit) : pattern(i);
      n_wrong += half.encode(static_cast<double>(half.decode(pattern(i)))) != expected;
    }
    CHECK(n_wrong == 0);
  }
}

TEST_CASE("half: between neighbours the nearer one is taken, and of two equally near the even one") {
  for (const Half& half : kHalves) {
    CAPTURE(to_string(half.id));
    int n_wrong = 0;
    for (int i = 0; i < half.infinity - 1; ++i) {
      const double low = static_cast<double>(half.decode(pattern(i)));
      const double high = static_cast<double>(half.decode(pattern(i + 1)));
      const double middle = (low + high) / 2;  // exact
      const std::uint16_t even = pattern(i % 2 == 0 ? i : i + 1);
      n_wrong += half.encode(middle) != even;
      n_wrong += half.encode(-middle) != (even | 0x8000);
      n_wrong += half.encode(std::nextafter(middle, 0.0)) != pattern(i);
      n_wrong += half.encode(std::nextafter(middle, high)) != pattern(i + 1);
      n_wrong += half.encode(std::nextafter(low, high)) != pattern(i);
      n_wrong += half.encode(std::nextafter(high, low)) != pattern(i + 1);
    }
    CHECK(n_wrong == 0);
  }
}

TEST_CASE("half: numbers too large become infinite from half a unit past the largest") {
  CHECK(kvdecode::to_f16(std::nextafter(65520.0, 0.0)) == 0x7bff);
  CHECK(kvdecode::to_f16(65520.0) == 0x7c00);
  CHECK(kvdecode::to_f16(-1e300) == 0xfc00);
  CHECK(kvdecode::to_bf16(std::nextafter(0x1.ffp127, 0.0)) == 0x7f7f);
  CHECK(kvdecode::to_bf16(0x1.ffp127) == 0x7f80);
  CHECK(kvdecode::to_bf16(std::numeric_limits<double>::max()) == 0x7f80);
}

TEST_CASE("half: numbers below half of the smallest become zeros of their sign") {
  CHECK(kvdecode::to_f16(0x1p-25) == 0);
  CHECK(kvdecode::to_f16(std::nextafter(0x1p-25, 1.0)) == 1);
  CHECK(kvdecode::to_f16(-0x1p-26) == 0x8000);
  CHECK(kvdecode::to_bf16(0x1p-134) == 0);
  CHECK(kvdecode::to_bf16(-std::nextafter(0x1p-134, 1.0)) == 0x8001);
  CHECK(kvdecode::to_bf16(std::numeric_limits<double>::denorm_min()) == 0);
  CHECK(kvdecode::to_bf16(-0.0) == 0x8000);
}

TEST_CASE("half: any double is rounded as the reference rounds it") {
  for (const Half& half : kHalves) {
    CAPTURE(to_string(half.id));
    SplitMix64 random(1);
    int n_wrong = 0;
    for (int i = 0; i < 200000; ++i) {
      // Doubles of the format's own range half of the time: any bits are nearly always out of it.
      double x = draw<double>(random, i % 4 < 2 ? FloatClass::kWide : FloatClass::kAnyBits);
      if (i % 4 == 1) x = std::ldexp(x, half.id == FormatId::kF16 ? -10 : -120);
      if (std::isnan(x)) continue;
      n_wrong += half.encode(x) != reference_bits(half, x);
    }
    CHECK(n_wrong == 0);
  }
}

TEST_CASE("half: a NaN stays one, with its sign, even if its payload is lost") {
  CHECK(kvdecode::to_f16(std::bit_cast<double>(0x7ff0000000000001u)) == 0x7e00);
  CHECK(kvdecode::to_bf16(std::bit_cast<double>(0xfff0000000000001u)) == 0xffc0);
}

}  // namespace

// SPDX-License-Identifier: MIT
// core/element_formats.hpp, and core/simd/widen.hpp and narrow.hpp under it.
#include <reference/numbers.hpp>
#include <support/compare.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/core/counting.hpp>
#include <kvdecode/core/element_formats.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace {

using kvdecode::BF16;
using kvdecode::Counting;
using kvdecode::F16;
using kvdecode::F32;
using kvdecode::F64;
using kvdecode::FormatId;
using kvdecode::Index;
using kvdecode::kLanes;
using kvdecode::Raw;
using kvdecode_test::check_same_bits;
using kvdecode_test::draw;
using kvdecode_test::draw_bits;
using kvdecode_test::FloatClass;
using kvdecode_test::kFloatClasses;
using kvdecode_test::OffsetBytes;
using kvdecode_test::SplitMix64;

static_assert(std::is_same_v<kvdecode::Native<float>, F32> && std::is_same_v<kvdecode::Native<double>, F64>);
static_assert(std::is_same_v<kvdecode::Native<Counting<float>>, Raw<Counting<float>>>);
static_assert(kvdecode::StoresFrom<F16, Counting<double>>);
static_assert(kvdecode::StoresFrom<Raw<Counting<float>>, Counting<float>>);
static_assert(!kvdecode::DecodesTo<Raw<Counting<float>>, float>);
static_assert(!kvdecode::Format<float>);

/// The number that S makes of a double, a NaN as the one NaN.
template <class S>
S as_scalar(double x) {
  return std::isnan(x) ? std::numeric_limits<S>::quiet_NaN() : static_cast<S>(x);
}
template <class S>
S one_nan(S x) {
  return x == x ? x : std::numeric_limits<S>::quiet_NaN();
}

template <class F, class S>
void check_decode_and_widen() {
  CAPTURE(F::kName);
  constexpr Index n = 64;
  const Index element_bytes = kvdecode_reference::binary_format(F::kId).n_bytes();
  CHECK(F::row_bytes(n) == n * element_bytes);
  SplitMix64 random(1);
  for (const FloatClass c : kFloatClasses) {
    CAPTURE(to_string(c));
    for (Index offset = 0; offset < 17; ++offset) {
      CAPTURE(offset);
      const OffsetBytes row(F::row_bytes(n), offset);
      std::vector<S> expected;
      for (Index i = 0; i < n; ++i) {
        const std::uint64_t bits = draw_bits(random, F::kId, c);
        kvdecode_reference::store_bits(F::kId, bits, row.data() + i * element_bytes);
        expected.push_back(as_scalar<S>(kvdecode_reference::decode(F::kId, bits)));
      }
      std::vector<S> decoded, widened(static_cast<std::size_t>(n));
      for (Index i = 0; i < n; ++i) decoded.push_back(one_nan(F::template decode<S>(row.data(), i)));
      for (Index i = 0; i < n; i += kLanes) F::template widen<S>(row.data(), i).storeu(widened.data() + i);
      for (S& x : widened) x = one_nan(x);
      check_same_bits(decoded, expected);
      check_same_bits(widened, expected);
    }
  }
}

TEST_CASE_TEMPLATE("element formats: decode is the reference's, widen is decode, at every address", F, F64,
                   F32, F16, BF16) {
  check_decode_and_widen<F, float>();
  check_decode_and_widen<F, double>();
}

TEST_CASE_TEMPLATE("element formats: all 65536 patterns widen as they decode", F, F16, BF16) {
  std::vector<std::uint16_t> patterns;
  for (int i = 0; i < 65536; ++i) patterns.push_back(static_cast<std::uint16_t>(i));
  const auto* row = reinterpret_cast<const std::byte*>(patterns.data());
  std::vector<float> decoded, widened(patterns.size());
  for (Index i = 0; i < 65536; ++i) decoded.push_back(F::template decode<float>(row, i));
  for (Index i = 0; i < 65536; i += kLanes) F::template widen<float>(row, i).storeu(widened.data() + i);
  check_same_bits(widened, decoded);
}

template <class F, class S>
void check_encode() {
  CAPTURE(F::kName);
  const Index element_bytes = kvdecode_reference::binary_format(F::kId).n_bytes();
  SplitMix64 random(2);
  for (const FloatClass c : kFloatClasses) {
    CAPTURE(to_string(c));
    for (const Index n : {1, 5, 16, 37}) {
      for (const Index offset : {0, 1, 2, 7}) {
        std::vector<S> values;
        for (Index i = 0; i < n; ++i) values.push_back(one_nan(draw<S>(random, c)));
        const OffsetBytes row(F::row_bytes(n) + 1, offset);  // the byte after the row is not touched
        F::encode(values.data(), n, row.data());
        std::vector<std::byte> expected(static_cast<std::size_t>(F::row_bytes(n) + 1));
        for (Index i = 0; i < n; ++i) {
          const S x = values[static_cast<std::size_t>(i)];
          const std::uint64_t bits = kvdecode_reference::encode(F::kId, static_cast<double>(x));
          kvdecode_reference::store_bits(F::kId, bits, expected.data() + i * element_bytes);
          // Rounding is all that a stored number may lose, and it is lost once.
          const S back = F::template decode<S>(row.data(), i);
          S again = back;
          std::vector<std::byte> twice(static_cast<std::size_t>(F::row_bytes(1)));
          F::encode(&again, 1, twice.data());
          CHECK(std::memcmp(twice.data(), row.data() + i * element_bytes, twice.size()) == 0);
        }
        check_same_bits(std::vector(row.data(), row.data() + row.size()), expected);
      }
    }
  }
}

TEST_CASE_TEMPLATE("element formats: encode rounds as the reference does, once, and stays in its row", F, F64,
                   F32, F16, BF16) {
  check_encode<F, float>();
  check_encode<F, double>();
}

/// Each number of the format, its neighbours in float, and the middle to the next one with its neighbours; and NaNs.
template <class F>
void check_rows_of_floats() {
  std::vector<float> values;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto half = static_cast<std::uint16_t>(i);
    std::byte bytes[2];
    std::memcpy(bytes, &half, 2);
    const float x = F::template decode<float>(bytes, 0);
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t middle = F::kId == FormatId::kF16 ? 0x1000u : 0x8000u;
    for (const std::uint32_t change :
         {0u, 1u, ~0u, middle, middle - 1, middle + 1, 2 * middle - 1, 2 * middle})
      values.push_back(std::bit_cast<float>(bits + change));
  }
  std::vector<std::byte> row(values.size() * 2);
  F::encode(values.data(), static_cast<Index>(values.size()), row.data());
  Index n_wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half;
    std::memcpy(&half, row.data() + 2 * i, 2);
    const auto x = static_cast<double>(values[i]);
    // NaNs keep what fits of their payload, of which the reference knows nothing.
    const std::uint64_t of_nan = F::kId == FormatId::kF16 ? kvdecode::to_f16(x) : kvdecode::to_bf16(x);
    n_wrong += half != (std::isnan(x) ? of_nan : kvdecode_reference::encode(F::kId, x));
  }
  CHECK(n_wrong == 0);
}

TEST_CASE("element formats: rows of floats are rounded as one by one, next to every number of the format") {
  check_rows_of_floats<F16>();
  check_rows_of_floats<BF16>();
}

TEST_CASE("element formats: a double is rounded to sixteen bits at once, not by way of float") {
  // Just above the middle between two numbers of the format, by less than a float can hold.
  const double values[] = {1.0 + 0x1p-11 + 0x1p-40, -(1.0 + 0x1p-11 + 0x1p-40)};
  std::uint16_t halves[2];
  F16::encode(values, 2, reinterpret_cast<std::byte*>(halves));
  CHECK(halves[0] == 0x3c01);
  CHECK(halves[1] == 0xbc01);
  const double others[] = {1.0 + 0x1p-8 + 0x1p-40, -(1.0 + 0x1p-8 + 0x1p-40)};
  BF16::encode(others, 2, reinterpret_cast<std::byte*>(halves));
  CHECK(halves[0] == 0x3f81);
  CHECK(halves[1] == 0xbf81);
}

template <class F>
void check_own_scalar() {
  using S = Counting<float>;
  SplitMix64 random(3);
  const OffsetBytes row(F::row_bytes(32), 1);
  std::vector<S> values;
  for (int i = 0; i < 32; ++i) values.push_back(S(draw<float>(random, FloatClass::kOrdinary)));
  F::encode(values.data(), 32, row.data());
  S widened[kLanes];
  F::template widen<S>(row.data(), 16).storeu(widened);
  for (Index i = 0; i < 16; ++i) {
    CHECK(static_cast<float>(widened[i]) == F::template decode<float>(row.data(), 16 + i));
    CHECK(static_cast<float>(F::template decode<S>(row.data(), i)) ==
          F::template decode<float>(row.data(), i));
  }
}

TEST_CASE("element formats: a scalar of one's own decodes to the values of its base") {
  check_own_scalar<F64>();
  check_own_scalar<F32>();
  check_own_scalar<F16>();
  check_own_scalar<BF16>();
}

TEST_CASE("element formats: Raw keeps the bytes of its objects, at odd addresses too") {
  using S = Counting<double>;
  std::vector<S> values;
  for (int i = 0; i < 40; ++i) values.push_back(S(1.0 / (i + 1)));
  const OffsetBytes row(Raw<S>::row_bytes(40), 1);
  Raw<S>::encode(values.data(), 40, row.data());
  CHECK(std::memcmp(row.data(), values.data(), 40 * sizeof(S)) == 0);
  for (Index i = 0; i < 40; ++i)
    CHECK(static_cast<double>(Raw<S>::decode<S>(row.data(), i)) == 1.0 / static_cast<double>(i + 1));
  S widened[kLanes];
  Raw<S>::widen<S>(row.data(), 16).storeu(widened);
  for (int i = 0; i < kLanes; ++i) CHECK(static_cast<double>(widened[i]) == 1.0 / (i + 17));
}

}  // namespace

// SPDX-License-Identifier: MIT
// core/cache_formats.hpp and core/formats/cache_*.hpp, against rows that a reference encoded (tests/data/kvquant), and
// core/simd/packed_codes.hpp under them.
#include <support/cache_formats.hpp>
#include <support/compare.hpp>
#include <support/guarded.hpp>
#include <support/names.hpp>
#include <support/random.hpp>
#include <support/stored_tensors.hpp>

#include <kvdecode/core/cache_formats.hpp>
#include <kvdecode/core/counting.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace {

using kvdecode::Asym4;
using kvdecode::Counting;
using kvdecode::HadInt3;
using kvdecode::HadInt4;
using kvdecode::Index;
using kvdecode::Int3;
using kvdecode::Int4;
using kvdecode::Int8;
using kvdecode::kLanes;
using kvdecode::RowTransform;
using kvdecode::Turbo2;
using kvdecode::Turbo3;
using kvdecode::Turbo4;
using kvdecode_test::check_same_bits;
using kvdecode_test::draws;
using kvdecode_test::OffsetBytes;
using kvdecode_test::SplitMix64;
using kvdecode_test::StoredTensors;

constexpr Index kRows = 32;  // of the vectors

/// The bits of a code, and whether the format has blocks with scales.
template <class F>
constexpr int kBits = F::kId == kvdecode::FormatId::kInt8     ? 8
                      : F::kId == kvdecode::FormatId::kTurbo2 ? 2
                      : F::kId == kvdecode::FormatId::kInt3 || F::kId == kvdecode::FormatId::kHadInt3 ||
                              F::kId == kvdecode::FormatId::kTurbo3
                          ? 3
                          : 4;
template <class F>
constexpr bool kIsTurbo = kvdecode::transform_of<F>() == RowTransform::kSignedHadamard;
template <class F>
constexpr bool kIsAsymmetric = std::is_same_v<F, Asym4>;

template <class F>
std::string reference_name() {
  return std::string(F::kName) + (kIsTurbo<F> ? "r_f16" : "_f16");
}

/// n bits of a row from bit `first` on, lowest first.
unsigned bits_at(const std::byte* row, Index first, int n) {
  unsigned value = 0;
  for (int i = 0; i < n; ++i)
    value |= (std::to_integer<unsigned>(row[(first + i) / 8]) >> ((first + i) % 8) & 1u) << i;
  return value;
}
float half_at(const std::byte* row) {
  std::uint16_t half;
  std::memcpy(&half, row, sizeof half);
  return kvdecode::f16_to_f32(half);
}

/// What is in the bytes of a row: its codes as the reference counts them, and its parameters.
template <class F>
struct Contents {
  std::vector<int> codes;
  std::vector<float> scales, minima;

  void add(const std::byte* row, Index n) {
    const Index block = kIsTurbo<F> ? n : 32, shared = kIsAsymmetric<F> ? 4 : 2;
    for (Index first = 0; first < n; first += block) {
      scales.push_back(half_at(row));
      if (kIsAsymmetric<F>) minima.push_back(half_at(row + 2));
      for (Index i = 0; i < std::min(block, n - first); ++i) {
        const unsigned code = bits_at(row + shared, i * kBits<F>, kBits<F>);
        if constexpr (std::is_same_v<F, Int8>)
          codes.push_back(static_cast<std::int8_t>(code));
        else
          codes.push_back(static_cast<int>(code) -
                          (kIsTurbo<F> || kIsAsymmetric<F> ? 0 : 1 << (kBits<F> - 1)));
      }
      row += shared + block * kBits<F> / 8;
    }
  }
};

template <class F, class S>
std::vector<S> decoded(const std::byte* row, Index n) {
  std::vector<S> numbers;
  for (Index i = 0; i < n; ++i) numbers.push_back(kvdecode::decode_number<F, S>(row, i, n));
  return numbers;
}

template <class F, class S>
void check_vectors(Index d) {
  CAPTURE(d);
  const StoredTensors vectors("kvquant/vectors-" + std::to_string(d));
  const std::string name = reference_name<F>() + ".";
  const std::vector<float> x = vectors.read<float>("x");
  REQUIRE(static_cast<Index>(x.size()) == kRows * d);
  const std::vector<S> numbers(x.begin(), x.end());
  Contents<F> contents;
  std::vector<S> stored, values;
  for (Index r = 0; r < kRows; ++r) {
    const OffsetBytes row(F::row_bytes(d), r % 3);
    F::encode(numbers.data() + r * d, d, row.data());
    contents.add(row.data(), d);
    const std::vector<S> as_stored = decoded<F, S>(row.data(), d);
    stored.insert(stored.end(), as_stored.begin(), as_stored.end());
    std::vector<float> turned_back = decoded<F, float>(row.data(), d);
    kvdecode::turn_row_back(kvdecode::transform_of<F>(), turned_back.data(), d);
    values.insert(values.end(), turned_back.begin(), turned_back.end());
  }
  std::vector<int> codes;
  if constexpr (kIsTurbo<F> || kIsAsymmetric<F>)
    for (const std::uint8_t code : vectors.read<std::uint8_t>(name + "codes")) codes.push_back(code);
  else
    for (const std::int8_t code : vectors.read<std::int8_t>(name + "codes")) codes.push_back(code);
  CHECK(contents.codes == codes);
  check_same_bits(contents.scales, vectors.read<float>(name + (kIsTurbo<F> ? "norms" : "scales")));
  if (kIsAsymmetric<F>) check_same_bits(contents.minima, vectors.read<float>(name + "minima"));
  // Where a code is a number there is no -0; the reference's values have it.
  const auto positive_zeros = [](std::vector<S> some) {
    if (!kIsTurbo<F>)
      for (S& number : some) number = number + S(0);
    return some;
  };
  const auto expected = [&](const char* tensor) {
    const std::vector<float> floats = vectors.read<float>(name + tensor);
    std::vector<S> numbers_of(floats.begin(), floats.end());
    return positive_zeros(numbers_of);
  };
  const bool is_turned = kvdecode::transform_of<F>() != RowTransform::kNone;
  check_same_bits(stored, expected(is_turned ? "rotated" : "values"));
  check_same_bits(positive_zeros(values), expected("values"));
}

TEST_CASE_TEMPLATE("cache formats: codes, parameters and values are the reference's, to the bit", F,
                   KVDECODE_TEST_CACHE_FORMATS) {
  for (const Index d : {32, 64, 128}) {
    check_vectors<F, float>(d);
    check_vectors<F, double>(d);
  }
}

TEST_CASE_TEMPLATE("cache formats: rows have as many bytes as they need", F, KVDECODE_TEST_CACHE_FORMATS) {
  const Index shared = kIsAsymmetric<F> ? 4 : 2;
  for (Index n = 1; n <= 256; ++n) {
    if (!kvdecode::takes_rows_of<F>(n)) continue;
    const Index n_blocks = kIsTurbo<F> ? 1 : (n + 31) / 32;
    CHECK(F::row_bytes(n) == n_blocks * shared + (n * kBits<F> + 7) / 8);
  }
}

/// Lengths that the format takes, short and odd ones among them.
template <class F>
std::vector<Index> some_lengths() {
  std::vector<Index> lengths;
  for (const Index n : {1, 2, 5, 8, 12, 16, 17, 20, 31, 32, 33, 40, 48, 63, 64, 80, 96, 127, 128, 256, 1024})
    if (kvdecode::takes_rows_of<F>(n)) lengths.push_back(n);
  return lengths;
}

template <class F, class S>
void check_widen(const std::byte* source, Index n, Index offset) {
  const OffsetBytes row(F::row_bytes(n), offset);
  std::memcpy(row.data(), source, static_cast<std::size_t>(row.size()));
  std::vector<S> widened(static_cast<std::size_t>(n / kLanes * kLanes));
  for (Index i = 0; i + kLanes <= n; i += kLanes)
    kvdecode::widen_numbers<F, S>(row.data(), i, n).storeu(widened.data() + i);
  std::vector<S> numbers = decoded<F, S>(row.data(), n);
  numbers.resize(widened.size());
  check_same_bits(widened, numbers);
}

TEST_CASE_TEMPLATE("cache formats: widen is decode, for any bits at every address", F,
                   KVDECODE_TEST_CACHE_FORMATS) {
  SplitMix64 random(3);
  for (const Index n : some_lengths<F>()) {
    CAPTURE(n);
    std::vector<std::byte> row(static_cast<std::size_t>(F::row_bytes(n)));
    for (int round = 0; round < 40; ++round) {
      for (std::byte& b : row) b = static_cast<std::byte>(random());
      const std::vector<float> numbers = decoded<F, float>(row.data(), n);
      if (std::any_of(numbers.begin(), numbers.end(), [](float x) { return !(std::abs(x) < 1e9f); }))
        continue;
      check_widen<F, float>(row.data(), n, round % 17);
      check_widen<F, double>(row.data(), n, round % 17);
      check_widen<F, Counting<float>>(row.data(), n, round % 17);
    }
  }
}

TEST_CASE_TEMPLATE("cache formats: a row writes its own bytes, all of them, and no other", F,
                   KVDECODE_TEST_CACHE_FORMATS) {
  for (const Index n : some_lengths<F>()) {
    CAPTURE(n);
    const std::vector<float> x = draws<float>(n, static_cast<std::uint64_t>(n));
    const auto encoded = [&](std::byte before) {
      const OffsetBytes bytes(F::row_bytes(n) + 2, 1);
      std::memset(bytes.data(), std::to_integer<int>(before), static_cast<std::size_t>(bytes.size()));
      F::encode(x.data(), n, bytes.data() + 1);
      CHECK(bytes.data()[0] == before);
      CHECK(bytes.data()[bytes.size() - 1] == before);
      return std::vector<std::byte>(bytes.data() + 1, bytes.data() + bytes.size() - 1);
    };
    CHECK(encoded(std::byte{0}) == encoded(std::byte{0xff}));
  }
}

TEST_CASE_TEMPLATE("cache formats: short blocks are blocks of their own", F, Int8, Int4, Int3, Asym4) {
  for (const Index n : {1, 5, 16, 20, 31, 33, 48, 80}) {
    CAPTURE(n);
    const std::vector<float> x = draws<float>(n, 5);
    const OffsetBytes row(F::row_bytes(n), 0), last(F::row_bytes(n % 32), 0);
    F::encode(x.data(), n, row.data());
    F::encode(x.data() + n / 32 * 32, n % 32, last.data());
    const Index whole = F::row_bytes(n / 32 * 32);
    CHECK(std::memcmp(row.data() + whole, last.data(), static_cast<std::size_t>(last.size())) == 0);
    // Within half a step of its block, and half a unit of the scale for each step.
    for (Index i = 0; i < n; ++i) {
      const float* const block = x.data() + i / 32 * 32;
      const float* const end = x.data() + std::min(n, i / 32 * 32 + 32);
      const double low = *std::min_element(block, end), high = *std::max_element(block, end);
      const double largest = std::max(std::abs(low), std::abs(high));
      const double steps = kIsAsymmetric<F> ? 15 : std::exp2(kBits<F> - 1) - 1;
      const double step = (kIsAsymmetric<F> ? high - low : largest) / steps;
      CHECK(std::abs(kvdecode::decode_number<F, double>(row.data(), i, n) -
                     static_cast<double>(x[static_cast<std::size_t>(i)])) <=
            step / 2 + (kIsAsymmetric<F> ? 3.0 : 1.0) * 0x1p-11 * std::max(largest, high - low));
    }
  }
}

TEST_CASE_TEMPLATE("cache formats: every scalar is stored as the float that is nearest to it", F,
                   KVDECODE_TEST_CACHE_FORMATS) {
  for (const Index n : {16, 64}) {
    const std::vector<double> x = draws<double>(n, 6);
    std::vector<float> floats;
    std::vector<Counting<double>> own;
    for (const double number : x) {
      floats.push_back(static_cast<float>(number));
      own.push_back(Counting<double>(number));
    }
    const OffsetBytes of_doubles(F::row_bytes(n), 0), of_floats(F::row_bytes(n), 0),
        of_own(F::row_bytes(n), 0);
    F::encode(x.data(), n, of_doubles.data());
    F::encode(floats.data(), n, of_floats.data());
    F::encode(own.data(), n, of_own.data());
    const auto size = static_cast<std::size_t>(F::row_bytes(n));
    CHECK(std::memcmp(of_doubles.data(), of_floats.data(), size) == 0);
    CHECK(std::memcmp(of_own.data(), of_floats.data(), size) == 0);
  }
}

TEST_CASE_TEMPLATE("cache formats: a double is rounded to float before it is rounded to a code", F, Int8,
                   Int4, Int3, Asym4) {
  // With these ends the scale is 1. Beside the middle of two codes by less than a float can tell: a tie, to even.
  const double top = kIsAsymmetric<F> ? 15.0 : std::exp2(kBits<F> - 1) - 1;
  const double x[] = {top, 0.0, 0.5 + 1e-12, 1.5 - 1e-12, 2.5 + 1e-12};
  const OffsetBytes row(F::row_bytes(5), 0);
  F::encode(x, 5, row.data());
  CHECK(decoded<F, double>(row.data(), 5) == std::vector<double>{top, 0.0, 0.0, 2.0, 2.0});
}

TEST_CASE_TEMPLATE("cache formats: numbers that are none, or too large, are stored as some number", F,
                   KVDECODE_TEST_CACHE_FORMATS) {
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(), 3e38f}) {
    std::vector<float> x = draws<float>(64, 7);
    x[40] = odd;
    const OffsetBytes row(F::row_bytes(64), 0);
    F::encode(x.data(), 64, row.data());
    CHECK(std::isfinite(kvdecode::decode_number<F, float>(row.data(), 3, 64)) ==
          (odd == odd || !kIsTurbo<F>));
  }
}

TEST_CASE_TEMPLATE("cache formats: a NaN is stored as the largest number of its block", F, Int8, Int4, Int3,
                   Asym4) {
  for (const std::size_t place : {5u, 16u, 31u}) {
    std::vector<float> x = draws<float>(32, 7);
    x[9] = 100.0f;
    x[place] = std::numeric_limits<float>::quiet_NaN();
    const OffsetBytes row(F::row_bytes(32), 0);
    F::encode(x.data(), 32, row.data());
    const std::vector<float> stored = decoded<F, float>(row.data(), 32);
    CHECK(stored[9] > 99.0f);
    CHECK(stored[place] == stored[9]);
  }
}

TEST_CASE("cache formats: rows that cannot be turned are refused") {
  for (const Index n : {1, 16, 32, 64, 128, 256, 1024}) {
    CHECK(kvdecode::takes_rows_of<HadInt4>(n));
    CHECK(kvdecode::takes_rows_of<Turbo2>(n));
  }
  for (const Index n : {0, 12, 48, 80, 96, 192, 2048}) {
    CHECK(!kvdecode::takes_rows_of<HadInt4>(n));
    CHECK(!kvdecode::takes_rows_of<HadInt3>(n));
    CHECK(!kvdecode::takes_rows_of<Turbo4>(n));
    CHECK(!kvdecode::takes_rows_of<Turbo3>(n));
  }
  for (const Index n : {1, 12, 48, 80, 2048}) {
    CHECK(kvdecode::takes_rows_of<Int8>(n));
    CHECK(kvdecode::takes_rows_of<Asym4>(n));
  }
  CHECK(!kvdecode::takes_rows_of<Int4>(0));
}

TEST_CASE_TEMPLATE("cache formats: tag and type have the same name, and a place in the list", F,
                   KVDECODE_TEST_CACHE_FORMATS) {
  CHECK(to_string(F::kId) == F::kName);
  CHECK(kvdecode::visit_format(kvdecode::CacheFormats{}, F::kId,
                               []<class G>() { return std::is_same_v<F, G>; }));
}

}  // namespace

// SPDX-License-Identifier: MIT
// <support/random.hpp> - numbers for tests: the same on every machine, from a seed; classes of floats that
// arithmetic finds hard; and bytes at any distance from alignment.
#pragma once

#include <reference/numbers.hpp>

#include <kvdecode/core/format_id.hpp>
#include <kvdecode/core/types.hpp>

#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <vector>

namespace kvdecode_test {

using kvdecode::FormatId;
using kvdecode::Index;
using kvdecode::TokenId;

/// A 64-bit engine: a counter in steps of the golden ratio, mixed (SplitMix64, Steele 2014). Meets
/// std::uniform_random_bit_generator, but use the members: the library's distributions differ by platform.
class SplitMix64 {
 public:
  using result_type = std::uint64_t;

  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }

  result_type operator()() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  /// In [0, n). The bias towards low values is below n / 2^64.
  Index below(Index n) { return static_cast<Index>((*this)() % static_cast<std::uint64_t>(n)); }

  /// In [0, 1), a multiple of 2^-53.
  double uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }

  double uniform(double low, double high) {
    return std::fma(high - low, uniform(), low);  // one rounding in every build
  }

  /// Nearly normal, mean 0 and variance 1: the sum of twelve uniforms, less 6. Within [-6, 6).
  double normal() {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }

 private:
  std::uint64_t state_;
};

/// What is drawn by draw_bits() and draw(); `e` is the exponent.
enum class FloatClass {
  kOrdinary,     ///< nearly normal, magnitude around 1
  kWide,         ///< either sign, e within 30 of 0, or less where the format is narrower: sums that cancel
  kTiny,         ///< subnormal, zero, and the two smallest normal exponents
  kHuge,         ///< e among the 8 largest: sums and products that overflow
  kSignedZeros,  ///< a third zeros of either sign, the others e within 4 of 0
  kAnyBits,      ///< any pattern: infinities and NaNs too
};

inline constexpr FloatClass kFloatClasses[] = {FloatClass::kOrdinary,    FloatClass::kWide,
                                               FloatClass::kTiny,        FloatClass::kHuge,
                                               FloatClass::kSignedZeros, FloatClass::kAnyBits};

constexpr const char* to_string(FloatClass c) {
  switch (c) {
    case FloatClass::kOrdinary: return "ordinary";
    case FloatClass::kWide: return "wide";
    case FloatClass::kTiny: return "tiny";
    case FloatClass::kHuge: return "huge";
    case FloatClass::kSignedZeros: return "signed zeros";
    case FloatClass::kAnyBits: return "any bits";
  }
  return "?";
}

/// A number of the class, as the bits of the format.
inline std::uint64_t draw_bits(SplitMix64& random, FormatId id, FloatClass c) {
  const kvdecode_reference::BinaryFormat format = kvdecode_reference::binary_format(id);
  const Index bias = format.bias();
  const Index largest = 2 * bias;  // the largest exponent of a finite number, biased
  const auto with_exponent = [&](Index biased) {
    const std::uint64_t sign_and_fraction = random() & (format.sign_bit() | (format.hidden_bit() - 1));
    return sign_and_fraction | (static_cast<std::uint64_t>(biased) << format.fraction_bits);
  };
  switch (c) {
    case FloatClass::kOrdinary: return kvdecode_reference::encode(id, random.normal());
    case FloatClass::kWide: {
      const Index reach = bias > 30 ? 30 : bias - 1;
      return with_exponent(bias - reach + random.below(2 * reach + 1));
    }
    case FloatClass::kTiny: return random.below(8) == 0 ? 0 : with_exponent(random.below(3));
    case FloatClass::kHuge: return with_exponent(largest - random.below(8));
    case FloatClass::kSignedZeros:
      if (random.below(3) == 0) return random() & format.sign_bit();
      return with_exponent(bias - 4 + random.below(9));
    case FloatClass::kAnyBits: return with_exponent(random.below(largest + 2));
  }
  return 0;
}

template <std::floating_point T>
T draw(SplitMix64& random, FloatClass c) {
  if constexpr (sizeof(T) == sizeof(float))
    return std::bit_cast<float>(static_cast<std::uint32_t>(draw_bits(random, FormatId::kF32, c)));
  else
    return std::bit_cast<double>(draw_bits(random, FormatId::kF64, c));
}

/// n numbers of the class.
template <std::floating_point T>
std::vector<T> draws(Index n, std::uint64_t seed, FloatClass c = FloatClass::kOrdinary) {
  SplitMix64 random(seed);
  std::vector<T> result;
  for (Index i = 0; i < n; ++i) result.push_back(draw<T>(random, c));
  return result;
}

/// n tokens of [0, vocab_size).
inline std::vector<TokenId> random_tokens(Index n, Index vocab_size, std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<TokenId> result;
  for (Index i = 0; i < n; ++i) result.push_back(static_cast<TokenId>(random.below(vocab_size)));
  return result;
}

/// `size` bytes that begin `offset` bytes after a multiple of 64 and end where the block does, so that a
/// sanitizer sees every read past them. Offset 1 is misaligned for every type. Copies share the bytes.
class OffsetBytes {
 public:
  OffsetBytes(Index size, Index offset) : size_(size) {
    constexpr std::size_t kAlignment = 64;
    const auto lead = static_cast<std::size_t>(offset);
    auto* block = static_cast<std::byte*>(
        ::operator new (lead + static_cast<std::size_t>(size), std::align_val_t{kAlignment}));
    std::memset(block, 0, lead + static_cast<std::size_t>(size));
    block_ = std::shared_ptr<std::byte>(
        block, [](std::byte* p) { ::operator delete (p, std::align_val_t{kAlignment}); });
    data_ = block + lead;
  }

  std::byte* data() const { return data_; }
  Index size() const { return size_; }
  /// What keeps the bytes in memory.
  std::shared_ptr<const void> owner() const { return block_; }

 private:
  std::shared_ptr<std::byte> block_;
  std::byte* data_ = nullptr;
  Index size_;
};

/// The objects' bytes, `offset` bytes off alignment.
template <class T>
OffsetBytes offset_bytes(const std::vector<T>& values, Index offset = 1) {
  const OffsetBytes bytes(static_cast<Index>(values.size() * sizeof(T)), offset);
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), values.size() * sizeof(T));
  return bytes;
}

}  // namespace kvdecode_test

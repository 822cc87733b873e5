// SPDX-License-Identifier: MIT
// <kvdecode/core/formats/cache_blocks.hpp> - rows of a cache in blocks of 32 numbers that share a scale: Int8, Int4, Int3,
// and Asym4, which has a minimum too. A row whose length is no multiple of 32 ends in a short block.
#pragma once

#include <kvdecode/core/formats/block_format.hpp>
#include <kvdecode/core/simd/packed_codes.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// Numbers of a block of a cache's row.
inline constexpr Index kCacheBlock = 32;

/// The number as caches round it: all of them begin with a float.
template <class S>
KVDECODE_INLINE float as_float(const S& x) {
  if constexpr (std::is_same_v<S, float>)
    return x;
  else
    return static_cast<float>(static_cast<double>(x));
}

/// 1 / scale, or 0 if that is not a number. (The smallest binary16 has a finite inverse.)
inline float inverse_scale(float scale) noexcept { return scale == 0.0f ? 0.0f : 1.0f / scale; }

/// The largest magnitude of a block's numbers that is no NaN.
inline float largest_magnitude(const float* x) noexcept {
  using R = Lanes<float>::R;
  auto largest = R::set1(0.0f);
  for (Index i = 0; i < kCacheBlock; i += R::width) largest = R::max(largest, R::abs(R::loadu(x + i)));
  float of_lanes[R::width];
  R::storeu(of_lanes, largest);
  float result = 0.0f;
  for (const float magnitude : of_lanes) result = result < magnitude ? magnitude : result;
  return result;
}

/// Of each number of a block, (x - minimum) * inverse to the nearest whole number in [low, high], halves to even, a NaN
/// to high; stored from `offset` on.
inline void round_to_codes(const float* x, float minimum, float inverse, float low, float high, int offset,
                           std::uint8_t* codes) noexcept {
  using R = Lanes<float>::R;
  constexpr float magic = 0x1.8p23f;  // numbers around it are whole, and end in the byte of what was added
  float rounded[kCacheBlock];
  for (Index i = 0; i < kCacheBlock; i += R::width) {
    const auto t = R::mul(R::sub(R::loadu(x + i), R::set1(minimum)), R::set1(inverse));
    const auto from_low = R::lt_select(t, R::set1(low), R::set1(low), t);
    R::storeu(rounded + i, R::add(R::lt_select(t, R::set1(high), from_low, R::set1(high)), R::set1(magic)));
  }
  for (Index i = 0; i < kCacheBlock; ++i)
    codes[i] =
        static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(rounded[i]) + static_cast<unsigned>(offset));
}

/// Sixteen floats that codes stand for, in units of a scale.
struct FloatLevels {
  float level[kLanes];

  KVDECODE_INLINE Lanes<float> lanes() const { return Lanes<float>::loadu(level); }
};

/// The rows of blocks of layout B, which begin with what their numbers share:
///
/// | expression | meaning |
/// |---|---|
/// | B::kId, B::kBits | the tag; bits of a code |
/// | B::kShared | bytes before the codes |
/// | B::value(block, code) | the number that a code stands for: the definition |
/// | B::table(block) | the numbers that all codes stand for, again and again; not of codes of eight bits |
/// | B::encode(x, n, block, codes) | stores what n floats share, and gives their codes; zeros follow them in x |
template <class B>
struct CacheBlocks {
  static constexpr FormatId kId = B::kId;
  static constexpr std::string_view kName = to_string(B::kId);
  static constexpr Index kBlock = kCacheBlock;
  static constexpr Index kBlockBytes = B::kShared + kBlock * B::kBits / 8;
  /// Blocks of kBlockBytes; a short last one has as many bytes of codes as it needs.
  static constexpr Index row_bytes(Index n) {
    const Index rest = n % kBlock;
    return n / kBlock * kBlockBytes + (rest == 0 ? 0 : B::kShared + (rest * B::kBits + 7) / 8);
  }

  template <class S>
  static S decode(const std::byte* row, Index i) {
    const std::byte* const block = block_of(row, i);
    return static_cast<S>(B::value(block, code(block + B::kShared, within(i))));
  }
  template <class S>
  static KVDECODE_INLINE Lanes<S> widen(const std::byte* row, Index first) {
    if constexpr (std::is_floating_point_v<S>) {
      const std::byte* const block = block_of(row, first);
      const std::byte* const codes = block + B::kShared;
      if constexpr (B::kBits == 8)
        return simd::convert<S>(mul(Lanes<float>::set1(simd::load_f16(block)),
                                    simd::to_lanes(simd::load_bytes(codes + within(first)))));
      else
        return simd::convert<S>(
            simd::pick_packed<B::kBits>(B::table(block), codes + within(first) * B::kBits / 8));
    } else {
      return widen_by_element<CacheBlocks, S>(row, first);
    }
  }
  /// Rounds to float first, whatever S is.
  template <class S>
  static void encode(const S* values, Index n, std::byte* row) noexcept {
    for (Index first = 0; first < n; first += kBlock, row += kBlockBytes) {
      const Index size = std::min(kBlock, n - first);
      float x[kBlock] = {};
      std::uint8_t codes[kBlock];
      for (Index i = 0; i < size; ++i) x[i] = as_float(values[first + i]);
      B::encode(x, size, row, codes);
      if constexpr (B::kBits == 8)
        std::memcpy(row + B::kShared, codes, static_cast<std::size_t>(size));
      else
        simd::pack_codes<B::kBits>(codes, size, row + B::kShared);
    }
  }

 private:
  static KVDECODE_INLINE const std::byte* block_of(const std::byte* row, Index i) {
    return row + static_cast<std::size_t>(i) / kBlock * kBlockBytes;
  }
  static KVDECODE_INLINE Index within(Index i) {
    return static_cast<Index>(static_cast<std::size_t>(i) % kBlock);
  }
  static unsigned code(const std::byte* codes, Index i) {
    if constexpr (B::kBits == 8)
      return std::to_integer<unsigned>(codes[i]);
    else
      return simd::packed_code<B::kBits>(codes, i);
  }
};

// d [f16], q [bits a number, signed, as q + 2^(bits - 1); of eight bits as it is]:  x = d q, q in [-kTop, kTop]
template <FormatId id, int bits>
struct SignedCodes {
  static constexpr FormatId kId = id;
  static constexpr int kBits = bits;
  static constexpr Index kShared = 2;
  static constexpr int kTop = (1 << (bits - 1)) - 1;  // largest magnitude becomes it
  static constexpr int kOffset = bits == 8 ? 0 : kTop + 1;
  static constexpr FloatLevels kLevels = [] {
    FloatLevels levels{};
    for (int i = 0; i < kLanes; ++i) levels.level[i] = static_cast<float>(i % (2 * kTop + 2) - kOffset);
    return levels;
  }();

  static float value(const std::byte* block, unsigned code) {
    const int q = bits == 8 ? static_cast<std::int8_t>(code) : static_cast<int>(code) - kOffset;
    return mul(scale_at(block), static_cast<float>(q));
  }
  static KVDECODE_INLINE Lanes<float> table(const std::byte* block) {
    return mul(Lanes<float>::set1(simd::load_f16(block)), kLevels.lanes());
  }
  static void encode(const float* x, Index, std::byte* block, std::uint8_t* codes) noexcept {
    constexpr auto top = static_cast<float>(kTop);
    const auto scale =
        static_cast<float>(store_scale(static_cast<double>(largest_magnitude(x) / top), block));
    round_to_codes(x, 0.0f, inverse_scale(scale), -top, top, kOffset, codes);
  }
};

// d, m [f16], q [4 bits a number]:  x = d q + m, q in [0, 15]
struct Asym4Codes {
  static constexpr FormatId kId = FormatId::kAsym4;
  static constexpr int kBits = 4;
  static constexpr Index kShared = 4;
  static constexpr Index kMinimum = 2;
  static constexpr float kTop = 15.0f;
  static constexpr FloatLevels kLevels{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};

  static float value(const std::byte* block, unsigned code) {
    return mul(scale_at(block), static_cast<float>(code)) + scale_at(block + kMinimum);
  }
  static KVDECODE_INLINE Lanes<float> table(const std::byte* block) {
    return add(mul(Lanes<float>::set1(simd::load_f16(block)), kLevels.lanes()),
               Lanes<float>::set1(simd::load_f16(block + kMinimum)));
  }
  static void encode(const float* x, Index n, std::byte* block, std::uint8_t* codes) noexcept {
    float lowest = x[0], highest = x[0];
    for (Index i = 1; i < n; ++i) {
      lowest = x[i] < lowest ? x[i] : lowest;
      highest = highest < x[i] ? x[i] : highest;
    }
    const auto scale = static_cast<float>(store_scale(static_cast<double>((highest - lowest) / kTop), block));
    const auto minimum = static_cast<float>(store_scale(static_cast<double>(lowest), block + kMinimum));
    round_to_codes(x, minimum, inverse_scale(scale), 0.0f, kTop, 0, codes);
  }
};

}  // namespace detail

/// 8.5 bits a number: 32 signed bytes that share a scale.
using Int8 = detail::CacheBlocks<detail::SignedCodes<FormatId::kInt8, 8>>;
/// 4.5 bits a number.
using Int4 = detail::CacheBlocks<detail::SignedCodes<FormatId::kInt4, 4>>;
/// 3.5 bits a number.
using Int3 = detail::CacheBlocks<detail::SignedCodes<FormatId::kInt3, 3>>;
/// 5 bits a number: from the smallest to the largest number of a block in fifteen steps (Liu 2024, values of KIVI).
using Asym4 = detail::CacheBlocks<detail::Asym4Codes>;

static_assert(StoresFrom<Int8, float> && StoresFrom<Int4, double> && StoresFrom<Asym4, float>);
static_assert(Int8::row_bytes(64) == 68 && Int4::row_bytes(64) == 36 && Int3::row_bytes(64) == 28);
static_assert(Asym4::row_bytes(64) == 40 && Int3::row_bytes(35) == 14 + 4);

}  // namespace kvdecode

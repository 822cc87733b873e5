// SPDX-License-Identifier: MIT
// <kvdecode/core/hash64.hpp> - a 64-bit hash of bytes that come in pieces: XXH64 (Collet 2012, as the format's
// specification has it), the same on every machine. It finds what changed by accident, not who meant to change it.
#pragma once

#include <kvdecode/core/types.hpp>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <span>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

/// XXH64 with seed 0 of all bytes so far, however they were cut. Four lanes of eight bytes: as fast as memory is read.
class Hash64 {
 public:
  void add(std::span<const std::byte> bytes) noexcept {
    if (bytes.empty()) return;
    n_bytes_ += bytes.size();
    if (n_pending_ > 0) {
      const std::size_t n = std::min(bytes.size(), kStripe - n_pending_);
      std::memcpy(pending_ + n_pending_, bytes.data(), n);
      n_pending_ += n;
      bytes = bytes.subspan(n);
      if (n_pending_ < kStripe) return;
      add_stripes(pending_, 1);
      n_pending_ = 0;
    }
    const std::size_t n_stripes = bytes.size() / kStripe;
    add_stripes(bytes.data(), n_stripes);
    bytes = bytes.subspan(n_stripes * kStripe);
    if (bytes.empty()) return;
    std::memcpy(pending_, bytes.data(), bytes.size());
    n_pending_ = bytes.size();
  }
  /// A number in eight bytes, whatever its type.
  template <std::integral T>
  void add(T number) noexcept {
    add_word(static_cast<std::uint64_t>(number));
  }
  void add(double number) noexcept { add_word(std::bit_cast<std::uint64_t>(number)); }
  /// A text with its length, so that neighbours do not run together.
  void add(std::string_view text) noexcept {
    add(text.size());
    add(std::as_bytes(std::span(text)));
  }

  std::uint64_t value() const noexcept {
    std::uint64_t hash = kPrime5;
    if (n_bytes_ >= kStripe) {
      hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
             std::rotl(lanes_[3], 18);
      for (const std::uint64_t lane : lanes_) hash = (hash ^ round(0, lane)) * kPrime1 + kPrime4;
    }
    hash += n_bytes_;
    std::size_t i = 0;
    for (; i + 8 <= n_pending_; i += 8)
      hash = std::rotl(hash ^ round(0, word<std::uint64_t>(pending_ + i)), 27) * kPrime1 + kPrime4;
    for (; i + 4 <= n_pending_; i += 4)
      hash = std::rotl(hash ^ word<std::uint32_t>(pending_ + i) * kPrime1, 23) * kPrime2 + kPrime3;
    for (; i < n_pending_; ++i)
      hash = std::rotl(hash ^ std::to_integer<std::uint64_t>(pending_[i]) * kPrime5, 11) * kPrime1;
    hash = (hash ^ (hash >> 33)) * kPrime2;
    hash = (hash ^ (hash >> 29)) * kPrime3;
    return hash ^ (hash >> 32);
  }

 private:
  static constexpr std::size_t kStripe = 32;  // bytes that the lanes take together
  static constexpr std::uint64_t kPrime1 = 0x9e3779b185ebca87u, kPrime2 = 0xc2b2ae3d27d4eb4fu,
                                 kPrime3 = 0x165667b19e3779f9u, kPrime4 = 0x85ebca77c2b2ae63u,
                                 kPrime5 = 0x27d4eb2f165667c5u;

  /// A word as little-endian machines read it.
  template <class T>
  static std::uint64_t word(const std::byte* bytes) noexcept {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    if constexpr (std::endian::native == std::endian::big)
      return __builtin_bswap64(std::uint64_t{value}) >> (64 - 8 * sizeof value);
    return value;
  }
  static constexpr std::uint64_t round(std::uint64_t lane, std::uint64_t word) noexcept {
    return std::rotl(lane + word * kPrime2, 31) * kPrime1;
  }
  void add_stripes(const std::byte* bytes, std::size_t n_stripes) noexcept {
    std::uint64_t a = lanes_[0], b = lanes_[1], c = lanes_[2], d = lanes_[3];
    for (; n_stripes > 0; --n_stripes, bytes += kStripe) {
      a = round(a, word<std::uint64_t>(bytes));
      b = round(b, word<std::uint64_t>(bytes + 8));
      c = round(c, word<std::uint64_t>(bytes + 16));
      d = round(d, word<std::uint64_t>(bytes + 24));
    }
    lanes_[0] = a;
    lanes_[1] = b;
    lanes_[2] = c;
    lanes_[3] = d;
  }
  void add_word(std::uint64_t number) noexcept {
    std::byte bytes[sizeof number];
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(number & 0xffu);
      number >>= 8;
    }
    add(std::span<const std::byte>(bytes));
  }

  std::uint64_t lanes_[4] = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
  std::uint64_t n_bytes_ = 0;
  std::byte pending_[kStripe] = {};  // of a stripe that is not full yet
  std::size_t n_pending_ = 0;
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
#include <kvdecode/core/hash64.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace {

using kvdecode::Hash64;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::uint64_t hash_of(std::string_view text) {
  Hash64 hash;
  hash.add(bytes_of(text));
  return hash.value();
}

TEST_CASE("hash64: is XXH64 with seed 0") {  // values that its implementations publish
  CHECK(hash_of("") == 0xef46db3751d8e999u);
  CHECK(hash_of("a") == 0xd24ec4f1a98c6e5bu);
  CHECK(hash_of("abc") == 0x44bc2cf5ad770999u);
  CHECK(hash_of("Nobody inspects the spammish repetition") == 0xfbcea83c8a378bf1u);
}

TEST_CASE("hash64: does not depend on how the bytes are cut") {
  std::string text;
  for (int i = 0; i < 150; ++i) text += static_cast<char>(i * 37 % 251);
  for (std::size_t n = 0; n <= text.size(); ++n) {
    CAPTURE(n);
    const std::uint64_t whole = hash_of(std::string_view(text).substr(0, n));
    for (const std::size_t cut : {std::size_t{1}, std::size_t{7}, std::size_t{32}, std::size_t{33}}) {
      Hash64 hash;
      for (std::size_t i = 0; i < n; i += cut)
        hash.add(bytes_of(std::string_view(text).substr(i, std::min(cut, n - i))));
      CHECK(hash.value() == whole);
    }
  }
}

TEST_CASE("hash64: every bit, every length and every place counts") {
  std::set<std::uint64_t> seen;
  std::string text(100, '\0');
  std::size_t n = 0;
  for (; n <= text.size(); ++n) CHECK(seen.insert(hash_of(std::string_view(text).substr(0, n))).second);
  for (std::size_t i = 0; i < text.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = text;
      other[i] = static_cast<char>(1 << bit);
      CHECK(seen.insert(hash_of(other)).second);
    }
}

TEST_CASE("hash64: numbers take eight bytes from the lowest on, texts their length before them") {
  Hash64 numbers, bytes;
  numbers.add(0x01020304);
  numbers.add(-1);
  numbers.add(true);
  bytes.add(
      bytes_of(std::string_view("\4\3\2\1\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\1\0\0\0\0\0\0\0", 24)));
  CHECK(numbers.value() == bytes.value());

  Hash64 one, other;
  one.add(std::string_view("ab"));
  one.add(std::string_view("c"));
  other.add(std::string_view("a"));
  other.add(std::string_view("bc"));
  CHECK(one.value() != other.value());

  Hash64 half, word;
  half.add(0.5);
  word.add(0x3fe0000000000000u);
  CHECK(half.value() == word.value());
}

}  // namespace

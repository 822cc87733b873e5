// SPDX-License-Identifier: MIT
#include <kvdecode/text/detail/utf8.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <random>
#include <string>
#include <string_view>

using kvdecode::detail::is_utf8;
using kvdecode::detail::utf8_valid_prefix;
using kvdecode::detail::Utf8Repair;

namespace kvdecode_test {

// Unicode 15, table 3-7, written as a table: the bytes allowed at each place of a character of `length`
// bytes.
struct ByteRow {
  int first_low, first_high, length, second_low, second_high;
};
constexpr ByteRow kByteRows[] = {
    {0x00, 0x7F, 1, 0, 0},       {0xC2, 0xDF, 2, 0x80, 0xBF}, {0xE0, 0xE0, 3, 0xA0, 0xBF},
    {0xE1, 0xEC, 3, 0x80, 0xBF}, {0xED, 0xED, 3, 0x80, 0x9F}, {0xEE, 0xEF, 3, 0x80, 0xBF},
    {0xF0, 0xF0, 4, 0x90, 0xBF}, {0xF1, 0xF3, 4, 0x80, 0xBF}, {0xF4, 0xF4, 4, 0x80, 0x8F},
};

// The whole text at once: from each byte the longest allowed beginning; what does not come to its end is one
// U+FFFD.
inline std::string repaired(std::string_view bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size();) {
    const int first = static_cast<unsigned char>(bytes[i]);
    std::size_t n = 0;
    bool whole = false;
    for (const ByteRow& row : kByteRows) {
      if (first < row.first_low || first > row.first_high) continue;
      n = 1;
      while (n < static_cast<std::size_t>(row.length) && i + n < bytes.size()) {
        const int byte = static_cast<unsigned char>(bytes[i + n]);
        const int low = n == 1 ? row.second_low : 0x80;
        const int high = n == 1 ? row.second_high : 0xBF;
        if (byte < low || byte > high) break;
        ++n;
      }
      whole = n == static_cast<std::size_t>(row.length);
    }
    if (whole) {
      out += bytes.substr(i, n);
    } else {
      out += "\xEF\xBF\xBD";
    }
    i += n > 0 ? n : 1;
  }
  return out;
}

// Bytes of which many are near the edges of the table.
inline std::string random_bytes(std::mt19937& engine, std::size_t n) {
  constexpr int kEdges[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2,
                            0xDF, 0xE0, 0xE1, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
  std::string bytes;
  for (std::size_t i = 0; i < n; ++i) bytes += static_cast<char>(kEdges[engine() % std::size(kEdges)]);
  return bytes;
}

}  // namespace kvdecode_test

TEST_CASE("utf8: repair in any division gives one U+FFFD for each maximal malformed subpart") {
  constexpr unsigned kSeed = 1;
  CAPTURE(kSeed);
  std::mt19937 engine(kSeed);
  for (int round = 0; round < 4000; ++round) {
    const std::string bytes = kvdecode_test::random_bytes(engine, engine() % 12);
    const std::string expected = kvdecode_test::repaired(bytes);
    Utf8Repair repair;
    std::string out;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t n = 1 + engine() % 5;
      repair.push(std::string_view(bytes).substr(at, n), out);
      CHECK(is_utf8(out));
      at += n;
    }
    repair.finish(out);
    CAPTURE(round);
    CHECK(out == expected);
    CHECK(is_utf8(bytes) == (bytes == expected));
  }
}

TEST_CASE("utf8: a character leaves the repair with its last byte, not later") {
  Utf8Repair repair;
  std::string out;
  repair.push("\xF0\x9F\x98", out);
  CHECK(out.empty());
  repair.push("\x80", out);
  CHECK(out == "\xF0\x9F\x98\x80");
  repair.finish(out);
  CHECK(out == "\xF0\x9F\x98\x80");
}

TEST_CASE("utf8: surrogates, overlong forms and values above U+10FFFF are malformed") {
  for (const std::string_view bad :
       {"a\xED\xA0\x80", "a\xC0\x80", "a\xC1\xBF", "a\xE0\x9F\xBF", "a\xF0\x8F\xBF\xBF", "a\xF4\x90\x80\x80",
        "a\xFF", "a\xE4\xBD", "a\x80"}) {
    CHECK(utf8_valid_prefix(bad) == 1);
  }
  for (const std::string_view good :
       {"", "a", "\xC2\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    CHECK(is_utf8(good));
  }
}

// SPDX-License-Identifier: MIT
#include <kvdecode/core/printable.hpp>

#include <doctest/doctest.h>

#include <string>

namespace {

using kvdecode::detail::in_quotes;
using kvdecode::detail::printable;

TEST_CASE("printable: plain text stays, and the rest is escaped") {
  CHECK(printable("plain \"text\" \\ ~") == "plain \"text\" \\ ~");
  CHECK(printable("a\nb\tc\rd") == "a\\nb\\tc\\x0dd");
  CHECK(printable(std::string("\0\x1b\x7f", 3)) == "\\x00\\x1b\\x7f");
  CHECK(printable("\xc3\xa9\xff") == "\\xc3\\xa9\\xff");
  CHECK(printable("").empty());
}

TEST_CASE("printable: quotes and what escapes are escaped within quotes") {
  CHECK(in_quotes("plain") == "\"plain\"");
  CHECK(in_quotes("a\"b\\c\n") == "\"a\\\"b\\\\c\\n\"");
  CHECK(in_quotes("") == "\"\"");
}

TEST_CASE("printable: a long text is cut, and says so") {
  CHECK(printable(std::string(200, 'x')) == std::string(200, 'x'));
  CHECK(printable(std::string(201, 'x')) == std::string(200, 'x') + "...");
  CHECK(printable("abc", 2) == "ab...");
  CHECK(in_quotes(std::string(100, 'x')) == "\"" + std::string(100, 'x') + "\"");
  CHECK(in_quotes(std::string(101, 'x')) == "\"" + std::string(100, 'x') + "\"...");
}

}  // namespace

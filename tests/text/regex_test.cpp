// SPDX-License-Identifier: MIT
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/text/detail/regex.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::detail::in_quotes;
using kvdecode::detail::Regex;
using kvdecode::detail::RegexScratch;

namespace kvdecode_test {

using Matches = std::vector<std::string>;

inline Matches matches(std::string_view pattern, std::string_view text) {
  const Regex regex(pattern);
  RegexScratch scratch;
  Matches result;
  regex.for_each_match(text, scratch, [&](std::size_t begin, std::size_t end) {
    result.emplace_back(text.substr(begin, end - begin));
  });
  return result;
}

}  // namespace kvdecode_test

using kvdecode_test::matches;
using kvdecode_test::Matches;

TEST_CASE("regex: quantifiers mean what they mean in Ruby") {
  CHECK(matches("a{2}?", "aaa") == Matches{"aa", ""});         // a{2}, at most once; not lazy
  CHECK(matches("a{1,2}?", "aaa") == Matches{"a", "a", "a"});  // lazy
  CHECK(matches("a{,2}b", "aaab") == Matches{"aab"});          // from 0
  CHECK(matches("a{1,2}+", "aaaaa") == Matches{"aaaaa"});      // repeated, not possessive
  CHECK(matches("a++b", "aab") == Matches{"aab"});
  CHECK(matches("a++a", "aaa").empty());           // possessive
  CHECK(matches("a{x", "a{x") == Matches{"a{x"});  // a brace that is no interval
  CHECK(matches("(?:ab){2}{2}", "ababababab") == Matches{"abababab"});
}

TEST_CASE("regex: options reach to the end of their group, and m is for the dot") {
  CHECK(matches("a(?i)b|c", "aB ac c aC") == Matches{"aB", "ac", "aC"});  // a(?i:b|c)
  CHECK(matches("(?i:a)b", "Ab AB ab") == Matches{"Ab", "ab"});
  CHECK(matches("(?i)a(?-i:b)c", "AbC ABC") == Matches{"AbC"});
  CHECK(matches("(?m:.)", "\n") == Matches{"\n"});
  CHECK(matches(".", "a\nb") == Matches{"a", "b"});
  CHECK(matches("(?x: a b # c\n c)", "abc") == Matches{"abc"});
  CHECK(matches("^.|.$", "ab\ncd") == Matches{"a", "b", "c", "d"});  // of lines
}

TEST_CASE("regex: classes nest, intersect and negate") {
  CHECK(matches("[a-c[x-z]]+", "abxyd") == Matches{"abxy"});
  CHECK(matches("[^a[b]]", "abc") == Matches{"c"});
  CHECK(matches("[a-z&&[^aeiou]]+", "abcde") == Matches{"bcd"});
  CHECK(matches("[^a-z&&[^aeiou]]+", "xaeb1") == Matches{"ae", "1"});
  CHECK(matches("[\\S&&\\D]+", "a1 b") == Matches{"a", "b"});
  CHECK(matches("[]a]+", "]a") == Matches{"]a"});
  CHECK(matches("[a\\-z]+", "a-z") == Matches{"a-z"});
  CHECK(matches("[a-\\d]+", "a-1") == Matches{"a-1"});
  CHECK(matches("[\\x41\\u0042\\x{43}]+", "ABC") == Matches{"ABC"});
  CHECK(matches("[[:^alpha:]]+", "a1!b") == Matches{"1!"});
  CHECK(matches("\\p{^Lu}+|\\P{^Nd}", "Ab1") == Matches{"b1"});
  CHECK(matches("\\p{Upper_case Letter}", "aB") == Matches{"B"});
}

TEST_CASE("regex: escapes that PCRE2 knows by other meanings") {
  CHECK(matches("\\h+", "fg 0") == Matches{"f", "0"});                   // hexadecimal digits
  CHECK(matches("\\v", "\x0B\n") == Matches{"\x0B"});                    // one character
  CHECK(matches("\\s", "\xE1\xA0\x8E\xC2\x85") == Matches{"\xC2\x85"});  // not U+180E
  CHECK(matches("\\w+", "a\xCC\x81_\xE2\x80\xBF") == Matches{"a\xCC\x81_\xE2\x80\xBF"});  // marks, connectors
  CHECK(matches("\\bb\\b", "b ab b") == Matches{"b", "b"});
  CHECK(matches("a\\Bb", "ab") == Matches{"ab"});
  CHECK(matches("(a|b)\\1", "abb") == Matches{"bb"});
  CHECK(matches("(?i:stra\xC3\x9F"
                "e)",
                "STRASSE") == Matches{"STRASSE"});
  CHECK(matches("(?i:ss)", "\xC3\x9F") == Matches{"\xC3\x9F"});
  CHECK(matches("(?i:'s)", "'\xC5\xBF") == Matches{"'\xC5\xBF"});
}

TEST_CASE("regex: an empty match right after a match is none, and an empty text has none") {
  CHECK(matches("x*", "axb") == Matches{"", "x", ""});
  CHECK(matches("",
                "\xC3\xA9"
                "a") == Matches{"", "", ""});
  CHECK(matches("$|^", "").empty());
}

TEST_CASE("regex: what has no equivalent is refused by name") {
  for (const std::string_view pattern : {"(?s:.)",
                                         "\\p{Script=Cyrillic}",
                                         "\\p{Nonsense}",
                                         "(?<name>a)",
                                         "\\k<name>",
                                         "\\g<1>",
                                         "(?~a)",
                                         "\\X",
                                         "\\K",
                                         "(a",
                                         "a)",
                                         "*a",
                                         "[a",
                                         "\\",
                                         "[b-a]",
                                         "(?(1)a)",
                                         "\\2(a)",
                                         "[[:nonsense:]]",
                                         "\\p{L",
                                         "a{3,2}",
                                         "(*FAIL)",
                                         "(?i:[\xC3\x9F])",
                                         "a{70000}"}) {
    CAPTURE(pattern);
    try {
      const Regex regex(pattern);
      FAIL_CHECK("accepted");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kUnsupported);
      CHECK(std::string(error.what()).find(in_quotes(pattern)) != std::string::npos);
    }
  }
  const auto repeat = [](std::string_view part, int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += part;
    return text;
  };
  for (const std::string& pattern :
       {repeat("(", 5000), repeat("[", 5000), repeat("[", 5000) + "a" + repeat("]", 5000),
        repeat("(?i)", 5000), repeat("a", 20000), "a" + repeat("{2}", 5000),
        repeat("(?:", 199) + "a" + repeat("){9999}", 199)}) {
    CHECK_THROWS_AS(Regex{pattern}, Error);
  }
}

TEST_CASE("regex: a match that takes too many steps is an Error") {
  const Regex regex("(a+)+$");
  RegexScratch scratch;
  CHECK_THROWS_AS(regex.matches(std::string(2000, 'a') + "b", scratch), Error);
  CHECK(regex.matches(std::string(2000, 'a'), scratch));
}

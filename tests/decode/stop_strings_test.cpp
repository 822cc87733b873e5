// SPDX-License-Identifier: MIT
#include <kvdecode/core/error.hpp>
#include <kvdecode/decode/stop_strings.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace {

using kvdecode::Error;
using kvdecode::StopStrings;

/// The text before the stop string that is complete first; of those that end together, the longest.
std::string cut(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t begin = std::string::npos;
    for (const std::string& s : stops)
      if (s.size() <= end && text.compare(end - s.size(), s.size(), s) == 0)
        begin = std::min(begin, end - s.size());
    if (begin != std::string::npos) return text.substr(0, begin);
  }
  return text;
}

/// Feeds the text in pieces that end after the bytes whose bit is set, checks what is shown on the way, and
/// returns all of it.
std::string fed(const std::string& text, const std::vector<std::string>& stops, unsigned ends) {
  StopStrings filter(stops);
  const std::string expected = cut(text, stops);
  std::string shown, piece;
  for (std::size_t i = 0; i < text.size(); ++i) {
    piece += text[i];
    if (((ends >> i) & 1u) == 0 && i + 1 < text.size()) continue;
    shown += filter.feed(piece);
    piece.clear();
    const std::string so_far = text.substr(0, i + 1);
    CHECK(filter.stopped() == (cut(so_far, stops).size() < so_far.size()));
    CHECK(expected.compare(0, shown.size(), shown) == 0);  // never more than belongs to the text
  }
  shown += filter.flush();
  CHECK(filter.flush().empty());
  CHECK(filter.feed("more").empty() == filter.stopped());
  return shown;
}

TEST_CASE("stop strings: a text is cut at the same place however it comes in pieces") {
  struct Case {
    std::string text;
    std::vector<std::string> stops;
  };
  const Case cases[] = {
      {"hello world", {}},
      {"hello world", {"xyz"}},
      {"hello world", {"lo w"}},
      {"hello world", {"hello world"}},
      {"hello world", {"h"}},
      {"hello world", {"d"}},
      {"hello world", {"world!"}},  // begun and never complete: comes out at the end
      {"aaaabaaab", {"aaab"}},      // begins again within itself
      {"abababac", {"ababac"}},
      {"abcabdabcabe", {"abcabe"}},
      {"abcd", {"bcd", "c"}},           // the one that is complete first, though the other began before
      {"abcd", {"abcd", "bcd", "cd"}},  // complete together: the longest
      {"abcd", {"cd", "abcd", "bcd"}},
      {"xxabxxcd", {"cd", "ab"}},
      {"xaxabxabc", {"abc", "xabd"}},
      {"stop\n\nnext", {"\n\n", "\nn"}},
      {"mississippi", {"issip", "ssippi", "ppi"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    REQUIRE(c.text.size() <= 12);
    for (unsigned ends = 0; ends < (1u << (c.text.size() - 1)); ++ends)
      CHECK(fed(c.text, c.stops, ends) == cut(c.text, c.stops));
  }
}

TEST_CASE("stop strings: text that cannot begin one comes out at once") {
  StopStrings filter({"END", "\n\n"});
  CHECK(filter.feed("one ") == "one ");
  CHECK(filter.feed("two\n") == "two");
  CHECK(filter.feed("three E") == "\nthree ");
  CHECK(filter.feed("N") == "");
  CHECK(filter.feed("TER") == "ENTER");
  CHECK(filter.feed("") == "");
  CHECK_FALSE(filter.stopped());
  CHECK(filter.feed("EN") == "");
  CHECK(filter.feed("D and more") == "");
  CHECK(filter.stopped());
  CHECK(filter.feed("and more") == "");
  CHECK(filter.flush() == "");
}

TEST_CASE("stop strings: what is held back comes out with the end") {
  StopStrings filter({"END"});
  CHECK(filter.feed("the EN") == "the ");
  CHECK(filter.flush() == "EN");
  CHECK(filter.flush() == "");
  CHECK(filter.feed("D") == "D");  // begins anew: what was shown is not part of one
}

TEST_CASE("stop strings: without any, text goes through") {
  StopStrings filter;
  CHECK(filter.feed("anything") == "anything");
  CHECK(filter.flush() == "");
  CHECK_FALSE(filter.stopped());
}

TEST_CASE("stop strings: bytes are bytes, zeros and parts of characters too") {
  using namespace std::string_literals;
  StopStrings filter({"\0\0"s, "\xc3\xa9"});
  CHECK(filter.feed("a\0b"s) == "a\0b"s);
  CHECK(filter.feed("\0"s) == "");
  CHECK(filter.feed("\xc3") == "\0"s);
  CHECK(filter.feed("\xa8") == "\xc3\xa8");
  CHECK(filter.feed("\xc3\xa9") == "");
  CHECK(filter.stopped());
}

TEST_CASE("stop strings: an empty one is refused") {
  CHECK_THROWS_WITH_AS(StopStrings({"a", ""}), "stop strings must not be empty", Error);
}

}  // namespace

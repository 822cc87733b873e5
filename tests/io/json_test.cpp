// SPDX-License-Identifier: MIT
#include <kvdecode/io/json.hpp>

#include <doctest/doctest.h>

#include <cfenv>
#include <clocale>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support.hpp"

using io_test::check_error;
using kvdecode::ErrorCode;
using kvdecode::JsonLimits;
using kvdecode::parse_json;
using nlohmann::json;

namespace {

std::string repeat(std::string_view text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("parse_json: gives the value that the text says") {
  CHECK(parse_json(R"( {"a": [1, -2, 2.5, "x\u00e9", true, false, null], "b": {"a": {}}, "c": []} )", "f") ==
        json({{"a", {1, -2, 2.5, "xé", true, false, nullptr}},
              {"b", {{"a", json::object()}}},
              {"c", json::array()}}));
  CHECK(parse_json("[]", "f") == json::array());
  CHECK(parse_json("7", "f").is_number_unsigned());
  CHECK(parse_json("-7", "f").is_number_integer());
  CHECK(parse_json("\"x\"", "f") == "x");
  CHECK(parse_json("\xef\xbb\xbf{}", "f") == json::object());
}

TEST_CASE("parse_json: agrees with a parser without limits on nested values") {
  std::string text = "1";
  for (int i = 0; i < 20; ++i)
    text = "{\"k\":[" + text + ",{\"a\":" + std::to_string(i) + "}],\"m\":\"" + repeat("y", i) + "\"}";
  CHECK(parse_json(text, "f") == json::parse(text));
}

TEST_CASE("parse_json: numbers are rounded to nearest, whatever rounding mode and locale the host has set") {
  const std::string text = "[1e-05, 0.1, 1e23, 123456789.125, 2.2250738585072014e-308, 4.9e-324, 500000.0]";
  const json expected = {1e-05, 0.1, 1e23, 123456789.125, 2.2250738585072014e-308, 4.9e-324, 500000.0};
  CHECK(parse_json(text, "f") == expected);
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    REQUIRE(std::fesetround(mode) == 0);
    const json found = parse_json(text, "f");
    const int mode_after = std::fegetround();
    std::fesetround(FE_TONEAREST);
    CHECK(found == expected);
    CHECK(mode_after == mode);
  }
  for (const char* const name : {"de_DE.UTF-8", "fr_FR.UTF-8"}) {  // where they are installed
    if (std::setlocale(LC_NUMERIC, name) == nullptr) continue;
    const json found = parse_json(text, "f");
    std::setlocale(LC_NUMERIC, "C");
    CHECK(found == expected);
  }
}

TEST_CASE("number_of: the token counts, with any decimal point") {
  CHECK(kvdecode::detail::number_of(7.0, "1.5e1") == 15.0);
  CHECK(kvdecode::detail::number_of(7.0, "-0,25") == -0.25);
  CHECK(kvdecode::detail::number_of(0.0, "1e-999") == 0.0);
}

TEST_CASE("parse_json: what is not JSON is an Error that names the source and the byte") {
  for (const std::string_view text :
       {"",        " ",           "{",        "}",        "[1,]",  "{\"a\":}", "{\"a\" 1}", "{a:1}",
        "nul",     "NaN",         "Infinity", "-",        "01",    "1.",       "1e999",     "\"\x01\"",
        "\"\\x\"", "\"\\ud800\"", "\"abc",    "\"\xff\"", "[1] 2", "{} {}",    "// x\n1",   "'a'"}) {
    CAPTURE(text);
    check_error(ErrorCode::kBadFile, {"some.json: at byte ", "not JSON: "},
                [&] { parse_json(text, "some.json"); });
  }
  check_error(ErrorCode::kBadFile, {"at byte 8"}, [] { parse_json("[1, 2, x]", "f"); });
}

TEST_CASE("parse_json: a zero byte does not end the text") {
  check_error(ErrorCode::kBadFile, {"at byte 2", "zero byte"},
              [] { parse_json(std::string_view("{}\0garbage", 10), "f"); });
}

TEST_CASE("parse_json: errors stay short, whatever the text") {
  for (const std::string& text :
       {"[\"" + std::string(100000, 'x') + "\x01\"]", "[" + std::string(100000, '9'),
        "{\"" + std::string(100000, 'k') + "\":1,\"" + std::string(100000, 'k') + "\":2}"}) {
    const auto error = io_test::error_of([&] { parse_json(text, "f"); });
    REQUIRE(error.has_value());
    CHECK(std::string_view(error->what()).size() < 400);
  }
}

TEST_CASE("parse_json: a key that stands twice in one object is refused, in two objects it is not") {
  check_error(ErrorCode::kBadFile, {"at byte 12", "\"ab\"", "twice"},
              [] { parse_json(R"({"ab":1,"ab":1})", "f"); });
  check_error(ErrorCode::kBadFile, {"\"a\"", "twice"},
              [] { parse_json(R"([{"b":{"a":1,"\u0061":[]}}])", "f"); });
  CHECK(parse_json(R"({"a":{"a":1},"b":{"a":2}})", "f")["b"]["a"] == 2);
}

TEST_CASE("parse_json: depth, number of values and size are limited") {
  CHECK_NOTHROW(parse_json(repeat("[", 64) + repeat("]", 64), "f"));
  check_error(ErrorCode::kBadFile, {"at byte 65", "deeper than 64"},
              [] { parse_json(repeat("[", 65) + repeat("]", 65), "f"); });
  check_error(ErrorCode::kBadFile, {"deeper than 64"}, [] { parse_json(repeat("{\"a\":", 1000000), "f"); });
  check_error(ErrorCode::kBadFile, {"deeper than 3"},
              [] { parse_json("[[{\"a\":[]}]]", "f", {.max_depth = 3}); });
  CHECK_NOTHROW(parse_json("[1,2,3,{\"a\":4}]", "f", {.max_values = 6}));
  check_error(ErrorCode::kBadFile, {"more than 5 values"},
              [] { parse_json("[1,2,3,{\"a\":4}]", "f", {.max_values = 5}); });
  CHECK_NOTHROW(parse_json("[1,2]", "f", {.max_bytes = 5}));
  check_error(ErrorCode::kBadFile, {"f: 6 bytes", "the 5 allowed"},
              [] { parse_json("[1,2] ", "f", {.max_bytes = 5}); });
}

TEST_CASE("parse_json: every cut of a text is an Error") {
  const std::string text = R"({"a":[1,-2,3.5e1,"x\u00e9\n"],"b":{"c":true,"d":null,"e":{}}})";
  CHECK_NOTHROW(parse_json(text, "f"));
  for (std::size_t n = 0; n < text.size(); ++n) {
    CAPTURE(n);
    const io_test::HeapBytes cut(std::string_view(text).substr(0, n));
    check_error(ErrorCode::kBadFile, {"at byte"}, [&] {
      parse_json({reinterpret_cast<const char*>(cut.bytes.data()), n}, "f");
    });
  }
}

TEST_CASE("load_json: reads a file, and names it") {
  const io_test::TemporaryFolder folder;
  CHECK(kvdecode::load_json(folder.write("a.json", "[1]")) == json({1}));
  check_error(ErrorCode::kBadFile, {"b.json: at byte", "not JSON"},
              [&] { kvdecode::load_json(folder.write("b.json", "[1")); });
  check_error(ErrorCode::kBadFile, {"c.json", "No such file"},
              [&] { kvdecode::load_json(folder.path() / "c.json"); });
}

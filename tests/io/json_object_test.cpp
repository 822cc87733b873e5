// SPDX-License-Identifier: MIT
#include <kvdecode/io/json_object.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support.hpp"

using io_test::check_error;
using kvdecode::ErrorCode;
using kvdecode::Index;
using kvdecode::JsonObject;
using nlohmann::json;

TEST_CASE("JsonObject: fields are read by name and type, null counts as absent") {
  const json value =
      json::parse(R"({"i":7,"d":0.5,"t":true,"s":"x","o":{"i":8},"ids":[0,9],"id":3,"n":null})");
  JsonObject fields(value, "config.json");
  CHECK(fields.positive_integer("i") == 7);
  CHECK(fields.positive_integer("n", 5) == 5);
  CHECK(fields.positive_integer("absent", 6) == 6);
  CHECK(fields.positive_number("i") == 7.0);
  CHECK(fields.positive_number("d") == 0.5);
  CHECK(fields.positive_number("absent", 0.25) == 0.25);
  CHECK(fields.boolean("t", false));
  CHECK(fields.boolean("absent", true));
  CHECK(fields.string("s", "y") == "x");
  CHECK(fields.string("absent", "y") == "y");
  CHECK(fields.as_object("o")->positive_integer("i") == 8);
  CHECK(fields.as_object("o")->name_of("i") == "o.i");
  CHECK(!fields.as_object("n"));
  CHECK(fields.as_indices("ids", 10) == std::vector<Index>{0, 9});
  CHECK(fields.as_indices("id", 10) == std::vector<Index>{3});
  CHECK(!fields.as_indices("n", 10));
  CHECK(fields.contains("n"));
  CHECK(fields.find("n") == nullptr);
  CHECK(!fields.contains("absent"));
}

TEST_CASE("JsonObject: numbers from 0 on, and lists") {
  const json value = json::parse(
      R"({"zero":0,"half":0.5,"minus":-1,"numbers":[1,0.5],"words":["a",""],"none":[],"mixed":[1,"a"],"n":null})");
  JsonObject fields(value, "config.json");
  CHECK(fields.as_natural("zero") == 0);
  CHECK(!fields.as_natural("n"));
  CHECK(!fields.as_positive_integer("absent"));
  CHECK(fields.as_number("zero") == 0.0);
  CHECK(fields.as_number("half") == 0.5);
  CHECK(!fields.as_number("n"));
  CHECK(fields.as_positive_numbers("numbers") == std::vector<double>{1.0, 0.5});
  CHECK(fields.as_positive_numbers("none") == std::vector<double>{});
  CHECK(!fields.as_positive_numbers("n"));
  CHECK(fields.as_strings("words") == std::vector<std::string>{"a", ""});
  CHECK(!fields.as_strings("absent"));
  const auto refused = [](std::string_view words, const auto& f) {
    check_error(ErrorCode::kBadFile, {"config.json: ", words}, f);
  };
  refused("minus must be an integer of at least 0, got -1", [&] { fields.as_natural("minus"); });
  refused("half must be an integer of at least 0, got 0.5", [&] { fields.as_natural("half"); });
  refused("minus must be a number of at least 0, got -1", [&] { fields.as_number("minus"); });
  refused("words must be a number of at least 0, got a list", [&] { fields.as_number("words"); });
  refused("half must be a list of positive numbers, got 0.5", [&] { fields.as_positive_numbers("half"); });
  refused("mixed must be a list of positive numbers, got \"a\"",
          [&] { fields.as_positive_numbers("mixed"); });
  refused("half must be a list of strings, got 0.5", [&] { fields.as_strings("half"); });
  refused("mixed must be a list of strings, got 1", [&] { fields.as_strings("mixed"); });
  CHECK(fields.unread().empty());
}

TEST_CASE("JsonObject: knows which fields nobody read, null aside") {
  const json value = json::parse(R"({"b":1,"a":2,"c":3,"n":null})");
  JsonObject fields(value, "config.json");
  CHECK(fields.unread() == std::vector<std::string>{"a", "b", "c"});
  fields.positive_integer("b");
  fields.find("absent");
  CHECK(fields.unread() == std::vector<std::string>{"a", "c"});
  fields.contains("c");
  CHECK(fields.unread() == std::vector<std::string>{"a", "c"});
}

TEST_CASE("JsonObject: errors are sentences with file, field and value") {
  const json value =
      json::parse(R"({"x":"x","zero":0,"minus":-3,"half":0.5,"big":9223372036854775808,"list":[],
      "object":{"x":1.5},"one":1,"ids":[1,10],"yes":true})");
  JsonObject fields(value, "config.json");
  const auto check_text = [](std::string_view expected, auto f) {
    const auto error = io_test::error_of(f);
    REQUIRE(error.has_value());
    CHECK(error->code() == ErrorCode::kBadFile);
    CHECK(std::string(error->what()) == expected);
  };
  check_text("config.json: x must be a positive integer, got \"x\"",
             [&] { fields.positive_integer("x", 1); });
  check_text("config.json: zero must be a positive integer, got 0", [&] { fields.positive_integer("zero"); });
  check_text("config.json: minus must be a positive integer, got -3",
             [&] { fields.positive_integer("minus"); });
  check_text("config.json: half must be a positive integer, got 0.5",
             [&] { fields.positive_integer("half"); });
  check_text("config.json: big must be a positive integer, got 9223372036854775808",
             [&] { fields.positive_integer("big"); });
  check_text("config.json: list must be a positive integer, got a list",
             [&] { fields.positive_integer("list"); });
  check_text("config.json: yes must be a positive integer, got true",
             [&] { fields.positive_integer("yes"); });
  check_text("config.json: absent is missing, expected a positive integer",
             [&] { fields.positive_integer("absent"); });
  check_text("config.json: absent is missing, expected a positive number",
             [&] { fields.positive_number("absent"); });
  check_text("config.json: zero must be a positive number, got 0", [&] { fields.positive_number("zero"); });
  check_text("config.json: yes must be a positive number, got true", [&] { fields.positive_number("yes"); });
  check_text("config.json: one must be true or false, got 1", [&] { fields.boolean("one", false); });
  check_text("config.json: object must be a string, got an object", [&] { fields.string("object", ""); });
  check_text("config.json: one must be an object, got 1", [&] { fields.as_object("one"); });
  check_text("config.json: object.x must be a positive integer, got 1.5",
             [&] { fields.as_object("object")->positive_integer("x"); });
  check_text("config.json: ids must be an integer from 0 to 9, or a list of them, got 10",
             [&] { fields.as_indices("ids", 10); });
  check_text("config.json: minus must be an integer from 0 to 9, or a list of them, got -3",
             [&] { fields.as_indices("minus", 10); });
  check_text("config.json: must be an object, got a list", [] { JsonObject(json::array(), "config.json"); });
}

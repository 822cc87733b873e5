// SPDX-License-Identifier: MIT
#include <kvdecode/core/error.hpp>
#include <kvdecode/text/jinja/template.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::jinja::Json;
using kvdecode::jinja::Limits;
using kvdecode::jinja::Template;

namespace kvdecode_test {

inline Json read_jinja_cases() {
  std::ifstream file(std::string(KVDECODE_TEST_DATA_DIR) + "/chat/jinja/cases.json");
  REQUIRE(file);
  return Json::parse(file);
}

inline std::tm march_ninth() {
  std::tm time{};
  time.tm_year = 125;
  time.tm_mon = 2;
  time.tm_mday = 9;
  time.tm_hour = 14;
  time.tm_min = 5;
  time.tm_sec = 7;
  return time;
}

inline std::string render_jinja(std::string_view source, const Json& context = Json::object(),
                                const Limits& limits = {}) {
  return Template(source, limits).render(context);
}

// What rendering ends with: "" for a text, or the name of the error.
inline std::string outcome(std::string_view source, const Limits& limits = {}) {
  try {
    render_jinja(source, Json::object(), limits);
    return "";
  } catch (const Error& error) {
    return std::string(to_string(error.code()));
  }
}

inline std::string message_of(std::string_view source) {
  try {
    return "no error: " + render_jinja(source);
  } catch (const Error& error) {
    return error.what();
  }
}

inline std::string repeated(std::string_view text, std::size_t count) {
  std::string result;
  for (std::size_t i = 0; i < count; ++i) result += text;
  return result;
}

}  // namespace kvdecode_test

using namespace kvdecode_test;

TEST_CASE("jinja: every feature case gives the reference's text or its error") {
  const Json cases = read_jinja_cases();
  const Json& context = cases.at(0).at("context");
  std::size_t n_cases = 0;
  for (std::size_t i = 1; i < cases.size(); ++i) {
    const Json& record = cases.at(i);
    const std::string source = record.at("template").get<std::string>();
    CAPTURE(source);
    ++n_cases;
    if (record.contains("expected")) {
      CHECK(Template(source).render(context, march_ninth) == record.at("expected").get<std::string>());
      continue;
    }
    const std::string type = record.at("expected_error").at("type").get<std::string>();
    const std::string message = record.at("expected_error").at("message").get<std::string>();
    const bool is_syntax = type == "TemplateSyntaxError" || type == "TemplateAssertionError";
    try {
      const std::string text = Template(source).render(context, march_ninth);
      FAIL_CHECK("expected ", message, ", got the text ", text);
    } catch (const Error& error) {
      CHECK(error.code() == (is_syntax ? ErrorCode::kBadFile : ErrorCode::kBadArgument));
      const std::string_view what = error.what();
      CHECK(what.ends_with(message));
      if (!is_syntax) CHECK(what == message);
    }
  }
  CHECK(n_cases == 121);
}

TEST_CASE("jinja: syntax errors name the line") {
  CHECK(message_of("a\nb\n{% if %}") ==
        "chat template: line 3: Expected an expression, got 'end of statement block'");
  CHECK(message_of("{# x\ny #}\n{{ 1 }}{{ s | nope }}") == "chat template: line 3: No filter named 'nope'.");
  CHECK(message_of("{{ 'a\nb' }}\n{{ (1 }}") == "chat template: line 3: unexpected '}', expected ')'");
  CHECK(message_of("\n{% for x in [1] %}\n{% if x %}\n{% endfor %}")
            .starts_with("chat template: line 4: Encountered unknown tag 'endfor'."));
  CHECK(message_of("\n\n{% if true %}").starts_with("chat template: line 3: Unexpected end of template."));
  CHECK(message_of("{% break %}") == "chat template: line 1: 'break' outside loop");
  CHECK(message_of("{# \n") == "chat template: line 1: Missing end of comment tag");
  CHECK(outcome("{% include 'x' %}") == "Unsupported");
  CHECK(outcome("a\xFFz") == "BadFile");
}

TEST_CASE("jinja: numbers are written and read as Python does") {
  CHECK(render_jinja("{{ 1e15 }}|{{ 123456789012345680.0 }}|{{ 0.0001 }}|{{ 0.00001 }}|{{ 5e-324 }}|{{ "
                     "1.7976931348623157e308 }}") ==
        "1000000000000000.0|1.2345678901234568e+17|0.0001|1e-05|5e-324|1.7976931348623157e+308");
  CHECK(render_jinja(
            "{{ 18446744073709551615 + 1 }}|{{ -7.5 // 2 }}|{{ -7.5 % 2 }}|{{ 7 % -3 }}|{{ 7 // -3 }}") ==
        "18446744073709551616|-4.0|0.5|-2|-3");
  CHECK(render_jinja("{{ x }}|{{ y }}",
                     Json::parse(R"({"x": 18446744073709551615, "y": -9223372036854775808})")) ==
        "18446744073709551615|-9223372036854775808");
  CHECK(outcome("{{ 170141183460469231731687303715884105727 + 1 }}") == "Unsupported");
  CHECK(outcome("{{ 2 ** 200 }}") == "Unsupported");
  CHECK(outcome("{{ 999999999999999999999999999999999999999999999 }}") == "Unsupported");
  CHECK(message_of("{{ 1 / 0 }}") == "division by zero");
  CHECK(message_of("{{ 'inf' | float | int }}|{{ 'inf' | float }}") == "no error: 0|inf");
}

TEST_CASE("jinja: text is counted and cut in characters") {
  const std::string s = "{% set s = 'a\xC3\xA9\xF0\x9F\x98\x80z' %}";
  CHECK(render_jinja(s + "{{ s | length }}{{ s[1] }}{{ s[-2] }}{{ s[1:3] }}{{ s[::-1] }}") ==
        "4\xC3\xA9\xF0\x9F\x98\x80\xC3\xA9\xF0\x9F\x98\x80z\xF0\x9F\x98\x80\xC3\xA9"
        "a");
  CHECK(render_jinja(s + "{{ s.find('z') }}{{ s | upper }}{{ s.center(8, '\xE2\x80\xA6') }}") ==
        "3A\xC3\x89\xF0\x9F\x98\x80Z\xE2\x80\xA6\xE2\x80\xA6"
        "a\xC3\xA9\xF0\x9F\x98\x80z\xE2\x80\xA6\xE2\x80\xA6");
  CHECK(render_jinja("{{ 'x\\u00a0y'.split() }}{{ '\\u3000x ' | trim }}") == "['x', 'y']x");
  CHECK(render_jinja("{{ [1,2,3,4,5][4000000000000000000:0:-4000000000000000000] }}{{ "
                     "[1,2,3][-9:9:9223372036854775807] }}") == "[5][1]");
}

TEST_CASE("jinja: values that change stay what they were") {
  CHECK(
      render_jinja(
          "{% set ns = namespace(a=[1]) %}{% set b = ns.a %}{% set ns.a = ns.a + [2] %}{{ b }}{{ ns.a }}") ==
      "[1][1, 2]");
  CHECK(render_jinja("{% set g = [1, 2] | map('string') %}{{ g | list }}{{ g | list }}") == "['1', '2'][]");
  CHECK(message_of("{{ [1] | map('string') | tojson }}") ==
        "Object of type generator is not JSON serializable");
  // A namespace that holds itself, a macro and the loop around it.
  CHECK(render_jinja("{% set ns = namespace() %}{% for x in [1, 2] %}{% macro m() %}{{ x }}{% endmacro %}"
                     "{% set ns.self = ns %}{% set ns.m = m %}{% set ns.loop = loop %}{% endfor %}{{ "
                     "ns.self.self.m() }}") == "2");
}

TEST_CASE("jinja: odd corners are those of the reference") {
  CHECK(render_jinja("{{ ' a b  c '.split(none, 1) }}{{ ' a b  c '.rsplit(none, 1) }}") ==
        "['a', 'b  c '][' a b', 'c']");
  CHECK(render_jinja("{{ '\x7f' | tojson(ensure_ascii=true) }}{{ none | map('nope') | list }}") ==
        "\"\\u007f\"[]");
  CHECK(render_jinja("{{ range(10)[2:4] }}{{ range(10)[::-2] }}{{ range(9)[::4] | list }}") ==
        "range(2, 4)range(9, -1, -2)[0, 4, 8]");
  CHECK(outcome("{{ range(9)[::4611686018427387904][::4611686018427387904][::4611686018427387904] }}") ==
        "Unsupported");
  CHECK(render_jinja("{{ {'a': 'b c/'} | urlencode }}|{{ 'b c/' | urlencode }}") == "a=b+c%2F|b%20c/");
  CHECK(render_jinja("{{ 2 ** 3 ** 2 }}{{ - 2 ** 2 }}{{ -1 | abs }}{{ 1 is not odd }}") == "6441False");
  CHECK(render_jinja("{% autoescape true %}{{ '<' }}{{ '<' | safe }}{{ '<' ~ '>' }}{% endautoescape %}{{ "
                     "'<a>' | e | e }}"
                     "{{ '<' + ('<a>' | safe) }}") == "&lt;<&lt;&gt;&lt;a&gt;&lt;<a>");
  CHECK(message_of("{{ [1] | map('nope') | list }}") == "No filter named 'nope'.");
}

TEST_CASE("jinja: the sandbox keeps templates from changing and from inspecting values") {
  for (const char* name : {"append", "extend", "insert", "pop", "remove", "reverse", "sort", "clear"}) {
    CHECK(message_of("{{ [1]." + std::string(name) + "(1) }}") ==
          "access to attribute '" + std::string(name) + "' of 'list' object is unsafe.");
  }
  CHECK(message_of("{{ {}.setdefault('a', 1) }}") ==
        "access to attribute 'setdefault' of 'dict' object is unsafe.");
  CHECK(message_of("{{ (''.__class__)() }}") == "access to attribute '__class__' of 'str' object is unsafe.");
  CHECK(message_of("{{ '{0.__class__.x}'.format(1) }}") ==
        "access to attribute '__class__' of 'int' object is unsafe.");
  CHECK(
      message_of("{% set ns = namespace() %}{% set ns._x = 1 %}").starts_with("Chat templates cannot store"));
}

TEST_CASE("jinja: without a clock strftime_now is not defined, and dates are those of the calendar") {
  CHECK(render_jinja("{{ strftime_now is defined }}") == "False");
  const auto date = [](int year, int month, int day) {
    std::tm time{};
    time.tm_year = year - 1900;
    time.tm_mon = month - 1;
    time.tm_mday = day;
    return Template("{{ strftime_now('%a %j %U %W %u') }}").render(Json::object(), [time] { return time; });
  };
  CHECK(date(2024, 2, 29) == "Thu 060 08 09 4");
  CHECK(date(2024, 12, 31) == "Tue 366 52 53 2");
  CHECK(date(2023, 1, 1) == "Sun 001 01 00 7");
  CHECK(date(1970, 1, 1) == "Thu 001 00 00 4");
  CHECK(date(2100, 3, 1) == "Mon 060 09 09 1");
  CHECK(date(2000, 3, 1) == "Wed 061 09 09 3");
  CHECK_THROWS_AS(date(0, 1, 1), Error);
  CHECK_THROWS_AS(date(2024, 13, 1), Error);
}

TEST_CASE("jinja: endless and exploding templates are refused") {
  const char* sources[] = {
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(n) %}{% call(x) m(n) %}{{ x }}{% endcall %}{{ caller(1) }}{% endmacro %}{% call(x) m(1) "
      "%}{% endcall %}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{{ a() }}{% endmacro %}{{ a() }}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% "
      "endfor %}{% endfor %}",
      "{{ 'abcdefgh' * 100000000000 }}",
      "{{ [1, 2, 3] * 100000000000 }}",
      "{{ 'a' * 100000000 * 100000000 }}",
      "{{ '%*d' % (1000000000, 1) }}",
      "{{ '%.999999999f' % 1 }}",
      "{{ '{:>999999999}'.format('x') }}",
      "{{ 'x' | center(99999999999) }}",
      "{{ 'x'.zfill(9223372036854775807) }}",
      "{{ 'x'.ljust(9223372036854775807) }}",
      "{{ 'x' | indent(9223372036854775807) }}",
      "{{ '\\t'.expandtabs(9223372036854775807) }}",
      "{{ [1] | batch(9223372036854775807, 0) | list }}",
      "{{ [1] | slice(9223372036854775807) | list }}",
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s.replace('x', 'xx') %}{% "
      "endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}",
      "{% set ns = namespace(l=1) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l "
      "}}",
      "{% set ns = namespace(l=1, k=1) %}{% for i in range(50) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.k = "
      "[ns.k, ns.k] %}{% endfor %}{{ ns.l == ns.k }}",
      "{% set ns = namespace(l=1) %}{% for i in range(60) %}{% set ns.l = {'a': ns.l, 'b': ns.l} %}{% endfor "
      "%}{{ ns.l | tojson }}",
      "{% set ns = namespace() %}{% for i in range(99999) %}{% set ns.x = namespace(x=ns.x) %}{% endfor %}{{ "
      "ns }}",
      "{% set ns = namespace() %}{% for i in range(99999) %}{% macro m() %}{% endmacro %}{% set ns.m = m "
      "%}{% set s = 'y' * 99999 %}{% endfor %}",
      "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
      "{% set s = 'a' * 1000000 %}{% if ('a' * 500000 + 'b') in s %}{% endif %}",
      "{% set s = 'a' * 1000000 %}{{ s.replace('a' * 500000 + 'b', '') }}",
      "{% set s = 'a' * 1000000 %}{{ s.split('a' * 500000 + 'b') }}",
      "{% set s = 'a' * 1000000 %}{{ s.count('a' * 500000 + 'b') }}",
      "{% set s = 'a' * 1000000 %}{{ s.rpartition('a' * 500000 + 'b') }}",
      "{% set s = 'a' * 1000000 %}{{ s.strip('b' * 500000 + 'a') }}",
  };
  Limits limits;  // smaller ones, so that reaching them takes less time
  limits.max_steps >>= 4;
  limits.max_memory_bytes >>= 3;
  for (const std::string source : sources) {
    CAPTURE(source);
    CHECK(outcome(source, limits) == "Unsupported");
  }
  CHECK(outcome("{{ range(100001) }}") == "BadArgument");
  CHECK(outcome("{{ range(0, 9223372036854775807, 9223372036854775807) | list }}") == "");
  CHECK(outcome("{{ [9223372036854775807, -9223372036854775808] | sum }}") == "");
  // A chain of a hundred thousand scopes is taken apart without a hundred thousand calls.
  CHECK(outcome("{% set ns = namespace(m=0) %}{% macro m() %}{% macro m() %}{% endmacro %}{% set ns.m = m "
                "%}{% endmacro %}"
                "{% for i in range(20000) %}{{ m() }}{% endfor %}") == "");
}

TEST_CASE("jinja: templates nested too deep are refused, long ones are not") {
  const auto nested = [](std::string_view open, std::string_view middle, std::string_view close,
                         std::size_t n) {
    return repeated(open, n) + std::string(middle) + repeated(close, n);
  };
  constexpr std::size_t kDeep = 10000;
  CHECK(outcome("{{ " + nested("(", "1", ")", kDeep) + " }}") == "Unsupported");
  CHECK(outcome("{{ " + nested("[", "1", "]", kDeep) + " }}") == "Unsupported");
  CHECK(outcome("{{ " + nested("{1:", "1", "}", kDeep) + " }}") == "Unsupported");
  CHECK(outcome("{{ " + nested("x[", "1", "]", kDeep) + " }}") == "Unsupported");
  CHECK(outcome("{{ " + nested("x(", "1", ")", kDeep) + " }}") == "Unsupported");
  CHECK(outcome("{{ " + repeated("- ", kDeep) + "1 }}") == "Unsupported");
  CHECK(outcome("{{ " + repeated("not ", kDeep) + "1 }}") == "Unsupported");
  CHECK(outcome("{{ " + repeated("1 if 1 else ", kDeep) + "1 }}") == "Unsupported");
  CHECK(outcome("{{ 1" + repeated(" if 1", kDeep) + " }}") == "Unsupported");
  CHECK(outcome(nested("{% if 1 %}", "", "{% endif %}", kDeep)) == "Unsupported");
  CHECK(outcome(nested("{% for x in [1] %}", "", "{% endfor %}", kDeep)) == "Unsupported");
  CHECK(outcome("{% set " + nested("(", "x", ")", kDeep) + " = 1 %}") == "Unsupported");
  CHECK(outcome(std::string(Limits{}.max_template_bytes + 1, 'x')) == "Unsupported");

  CHECK(render_jinja("{{ " + nested("(", "1", ")", 20) + " }}") == "1");
  CHECK(render_jinja("{{ 0" + repeated(" + 1", kDeep) + " }}") == std::to_string(kDeep));
  CHECK(render_jinja("{{ ''" + repeated(" ~ 'x'", kDeep) + " }}") == std::string(kDeep, 'x'));
  CHECK(render_jinja("{{ 1" + repeated(" and 1", kDeep) + " }}") == "1");
  CHECK(render_jinja("{{ 'x'" + repeated(" | upper", kDeep) + " }}") == "X");
  CHECK(render_jinja("{{ 1" + repeated(" < 2 > 1", kDeep) + " }}") == "True");
  CHECK(render_jinja("{% if 0 %}" + repeated("{% elif 0 %}", kDeep) + "{% else %}z{% endif %}") == "z");
}

TEST_CASE("jinja: values of JSON nested too deep are refused") {
  Json deep = 1;
  for (int i = 0; i < 99; ++i) deep = Json::array({deep});
  CHECK(render_jinja("{{ x | tojson | length }}", Json{{"x", deep}}) == "199");
  for (int i = 0; i < 10; ++i) deep = Json::array({deep});
  CHECK_THROWS_AS(render_jinja("{{ x }}", Json{{"x", deep}}), Error);
  CHECK_THROWS_AS(render_jinja("{{ x }}", Json{{"x", "\xFF"}}), Error);
}

TEST_CASE("jinja: limits are the caller's") {
  Limits limits;
  limits.max_memory_bytes = 10000;
  CHECK(outcome("{{ 'x' * 100 }}", limits) == "");
  CHECK(outcome("{{ 'x' * 10000 }}", limits) == "Unsupported");
  // What is dropped does not count.
  CHECK(outcome("{% for i in range(50) %}{% set s = 'x' * 1000 %}{% endfor %}", limits) == "");
  limits = {};
  limits.max_steps = 1000;
  CHECK(outcome("{% for i in range(10) %}{% endfor %}", limits) == "");
  CHECK(outcome("{% for i in range(1000) %}{% endfor %}", limits) == "Unsupported");
  limits = {};
  limits.max_depth = 20;
  CHECK(outcome("{{ (1) }}", limits) == "");
  CHECK(outcome("{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(9) }}", limits) ==
        "Unsupported");
}

TEST_CASE("jinja: a template cut anywhere, or with any byte changed, gives a text or an error") {
  const Json cases = read_jinja_cases();
  const Json& context = cases.at(0).at("context");
  std::size_t n_errors = 0;
  std::size_t n_texts = 0;
  const auto run = [&](std::string_view source) {
    try {
      Template(source).render(context, march_ninth);
      ++n_texts;
    } catch (const Error&) {
      ++n_errors;
    }
  };
  constexpr std::string_view kBytes = "{}%#'\"([|. \n-0\xC3";
  for (std::size_t i = 1; i < cases.size(); ++i) {
    const std::string source = cases.at(i).at("template").get<std::string>();
    for (std::size_t length = 0; length < source.size(); ++length) {
      run(std::string_view(source).substr(0, length));
      if ((length + i) % 3 != 0) continue;
      run(std::string_view(source).substr(length));
      std::string changed = source;
      changed[length] = kBytes[(length * 7 + i) % kBytes.size()];
      run(changed);
    }
  }
  CHECK(n_errors > 1000);
  CHECK(n_texts > 1000);
}

TEST_CASE("jinja: threads share a template") {
  const Template shared(
      "{% macro m(n) %}{% if n %}{{ n ~ 'x' ~ m(n - 1) }}{% endif %}{% endmacro %}{% for i in range(9) %}{{ "
      "m(i) }}{% endfor %}");
  const std::string expected = shared.render(Json::object());
  std::vector<std::string> results(4);
  std::vector<std::thread> threads;
  for (std::string& result : results) {
    threads.emplace_back([&result, copy = shared] {
      for (int i = 0; i < 20; ++i) result = copy.render(Json::object());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) CHECK(result == expected);
}

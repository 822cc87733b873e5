// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/numbers.hpp> - numbers and their texts as Python writes and reads them, whatever the
// host's locale.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/jinja/value.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

__extension__ using UnsignedInteger = unsigned __int128;

[[noreturn]] inline void fail_integer_range() {
  kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: an integer beyond 128 bits");
}

inline Integer checked_add(Integer a, Integer b) {
  Integer sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) fail_integer_range();
  return sum;
}
inline Integer checked_subtract(Integer a, Integer b) {
  Integer difference = 0;
  if (__builtin_sub_overflow(a, b, &difference)) fail_integer_range();
  return difference;
}
inline Integer checked_multiply(Integer a, Integer b) {
  Integer product = 0;
  if (__builtin_mul_overflow(a, b, &product)) fail_integer_range();
  return product;
}

inline UnsignedInteger magnitude(Integer value) {
  return value < 0 ? UnsignedInteger{0} - static_cast<UnsignedInteger>(value)
                   : static_cast<UnsignedInteger>(value);
}

inline std::string digits_of(UnsignedInteger value, unsigned base, bool upper_case = false) {
  std::string digits;
  do {
    const auto digit = static_cast<unsigned>(value % base);
    digits += static_cast<char>(digit < 10 ? '0' + digit : (upper_case ? 'A' : 'a') + (digit - 10));
    value /= base;
  } while (value != 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

inline std::string integer_text(Integer value) {
  return (value < 0 ? "-" : "") + digits_of(magnitude(value), 10);
}

/// The shortest decimal that reads back as `value`; with an exponent below 1e-4 and from 1e16.
inline std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, std::fabs(value), std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t mark = text.find('e');
  std::string digits(text.substr(0, 1));
  if (mark > 2) digits += text.substr(2, mark - 2);
  int exponent = 0;
  const std::size_t exponent_begin = text[mark + 1] == '+' ? mark + 2 : mark + 1;
  std::from_chars(text.data() + exponent_begin, text.data() + text.size(), exponent);
  std::string result = std::signbit(value) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    result += digits.substr(0, 1);
    if (digits.size() > 1) result += "." + digits.substr(1);
    result += exponent < 0 ? "e-" : "e+";
    const std::string power = std::to_string(std::abs(exponent));
    return result + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0) return result + "0." + std::string(static_cast<std::size_t>(-exponent) - 1, '0') + digits;
  const std::size_t point = static_cast<std::size_t>(exponent) + 1;  // digits before it
  if (digits.size() <= point) return result + digits + std::string(point - digits.size(), '0') + ".0";
  return result + digits.substr(0, point) + "." + digits.substr(point);
}

/// `value` with `precision` digits in one of the notations of C: 'f', 'e' or 'g'.
inline std::string float_text(double value, char notation, Index precision) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  constexpr Index kMaxPrecision = 300;
  if (precision > kMaxPrecision) {
    kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: a number with ", precision,
                            " digits, at most ", kMaxPrecision);
  }
  char buffer[700];
  const std::chars_format format = notation == 'f'   ? std::chars_format::fixed
                                   : notation == 'e' ? std::chars_format::scientific
                                                     : std::chars_format::general;
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, format, static_cast<int>(precision)).ptr;
  return {buffer, end};
}

/// `value` rounded to `precision` decimals, halves of the decimal text to even.
inline double round_decimal(double value, Index precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(std::min<Index>(-precision, 400)));
    return std::isinf(unit) ? 0.0 : std::nearbyint(value / unit) * unit;
  }
  const std::string text = float_text(value, 'f', precision);
  double rounded = 0;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

inline std::string_view strip_space(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

/// Removes the underscores between digits; nothing if one stands elsewhere.
inline std::optional<std::string> without_underscores(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result += text[i];
      continue;
    }
    const auto is_digit = [&](std::size_t at) {
      return at < text.size() &&
             ((text[at] >= '0' && text[at] <= '9') || ((text[at] | 32) >= 'a' && (text[at] | 32) <= 'z'));
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return std::nullopt;
  }
  return result;
}

/// int(text, base) of Python; base 0 reads a prefix. Nothing if the text is no such number.
inline std::optional<Integer> parse_integer(std::string_view text, Integer base) {
  std::string_view rest = strip_space(text);
  bool negative = false;
  if (!rest.empty() && (rest.front() == '+' || rest.front() == '-')) {
    negative = rest.front() == '-';
    rest.remove_prefix(1);
  }
  unsigned radix = base >= 2 && base <= 36 ? static_cast<unsigned>(base) : 10;
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  if (rest.size() > 2 && rest[0] == '0') {
    const char mark = static_cast<char>(rest[1] | 32);
    const unsigned prefix = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (prefix != 0 && (base == 0 || radix == prefix)) {
      radix = prefix;
      rest.remove_prefix(rest[2] == '_' ? 3 : 2);
    }
  }
  const std::optional<std::string> digits = without_underscores(rest);
  if (!digits || digits->empty()) return std::nullopt;
  Integer value = 0;
  for (const char c : *digits) {
    const char lower = static_cast<char>(c | 32);
    const unsigned digit = c >= '0' && c <= '9'           ? static_cast<unsigned>(c - '0')
                           : lower >= 'a' && lower <= 'z' ? static_cast<unsigned>(lower - 'a') + 10
                                                          : 99;
    if (digit >= radix) return std::nullopt;
    value = checked_add(checked_multiply(value, static_cast<Integer>(radix)), static_cast<Integer>(digit));
  }
  return negative ? -value : value;
}

/// float(text) of Python. Nothing if the text is no number.
inline std::optional<double> parse_float(std::string_view text) {
  const std::optional<std::string> digits = without_underscores(strip_space(text));
  if (!digits) return std::nullopt;
  std::string_view rest = *digits;
  bool negative = false;
  if (!rest.empty() && (rest.front() == '+' || rest.front() == '-')) {
    negative = rest.front() == '-';
    rest.remove_prefix(1);
  }
  if (rest.empty() || rest.front() == '-' || rest.front() == '+') return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (end != rest.data() + rest.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {  // too large or too small
    const std::size_t mark = rest.find_first_of("eE");
    const bool is_small = mark != std::string_view::npos ? rest.substr(mark + 1, 1) == "-"
                                                         : rest.front() == '0' || rest.front() == '.';
    value = is_small ? 0.0 : HUGE_VAL;
  } else if (error != std::errc{}) {
    return std::nullopt;
  }
  return negative ? -value : value;
}

/// The integer part of `value`.
inline Integer truncated(double value) {
  if (std::isnan(value)) fail("cannot convert float NaN to integer");
  if (std::isinf(value)) fail("cannot convert float infinity to integer");
  if (std::fabs(value) >= 1.7e38) fail_integer_range();
  return static_cast<Integer>(value);
}

/// True, False and integers as integers; nothing for other values.
inline std::optional<Integer> as_integer(const Value& value) {
  if (const Integer* integer = value.get_if<Integer>()) return *integer;
  if (const bool* flag = value.get_if<bool>()) return *flag ? 1 : 0;
  return std::nullopt;
}

/// A number as double. @pre value.is_number()
inline double as_double(const Value& value) {
  if (const double* number = value.get_if<double>()) return *number;
  return static_cast<double>(as_integer(value).value_or(0));
}

/// An integer argument, brought into the range of Index.
inline Index as_index(const Value& value) {
  require_defined(value);
  const std::optional<Integer> integer = as_integer(value);
  if (!integer) fail("'", type_name(value), "' object cannot be interpreted as an integer");
  constexpr Integer kBound = Integer{1} << 62;
  return static_cast<Index>(std::clamp(*integer, -kBound, kBound));
}

}  // namespace jinja
}  // namespace kvdecode

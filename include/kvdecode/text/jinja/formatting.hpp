// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/formatting.hpp> - text % values and text.format(values), as far as numbers and texts
// go.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/jinja/access.hpp>
#include <kvdecode/text/jinja/characters.hpp>
#include <kvdecode/text/jinja/meter.hpp>
#include <kvdecode/text/jinja/numbers.hpp>
#include <kvdecode/text/jinja/operators.hpp>
#include <kvdecode/text/jinja/printing.hpp>
#include <kvdecode/text/jinja/value.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

/// How one value is laid out.
struct FieldFormat {
  std::string fill = " ";
  char align = 0;  // '<', '>', '^', '=', or 0 for the usual side
  char sign = '-';
  bool is_alternate = false;
  char grouping = 0;  // ',' or '_'
  Index width = 0;
  Index precision = -1;  // -1: none given
  char type = 0;
};

inline bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// Reads decimal digits at `i`, which moves past them.
inline Index read_count(std::string_view text, std::size_t& i) {
  Index count = 0;
  for (; i < text.size() && is_digit(text[i]); ++i) {
    count = count * 10 + (text[i] - '0');
    if (count > 1'000'000'000) fail("Too many decimal digits in format string");
  }
  return count;
}

/// Appends `body` in `format.width` characters; "sign" and "prefix" stand before filling zeros.
inline void append_field(TextBuilder& out, const FieldFormat& format, char usual_align,
                         std::string_view prefix, std::string_view body) {
  const Index length = count_chars(prefix) + count_chars(body);
  const Index missing = format.width > length ? format.width - length : 0;
  const char align = format.align == 0 ? usual_align : format.align;
  const auto fill = [&](Index count) {
    if (format.fill.size() == 1) return out.append(static_cast<std::size_t>(count), format.fill.front());
    for (; count > 0; --count) out.append(format.fill);
  };
  const Index before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  fill(before);
  out.append(prefix);
  if (align == '=') fill(missing);
  out.append(body);
  if (align == '<' || align == '^') fill(missing - before);
}

inline std::string grouped(std::string digits, char separator, std::size_t group) {
  if (separator == 0) return digits;
  std::size_t end = digits.find_first_not_of("0123456789abcdefABCDEF");
  if (end == std::string::npos) end = digits.size();
  for (; end > group; end -= group) digits.insert(end - group, 1, separator);
  return digits;
}

/// Appends a number. @pre `value` is one
inline void append_number(TextBuilder& out, const FieldFormat& format, const Value& value) {
  std::string body;
  std::string prefix;
  bool is_negative = false;
  const char type = format.type;
  const bool wants_float = std::string_view("eEfFgG%").find(type) != std::string_view::npos && type != 0;
  if (!wants_float && !value.is_float()) {
    const Integer integer = *as_integer(value);
    is_negative = integer < 0;
    const unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    body = grouped(digits_of(magnitude(integer), base, type == 'X'), format.grouping, base == 10 ? 3 : 4);
    if (format.is_alternate && base != 10) prefix = {'0', type};
  } else {
    double number = as_double(value);
    is_negative = std::signbit(number) && !std::isnan(number);
    number = std::fabs(number);
    if (type == 0 && format.precision < 0) {
      body = float_text(number);
    } else {
      const char notation = type == 0 || type == 'n' ? 'g' : type == '%' ? 'f' : static_cast<char>(type | 32);
      body = float_text(type == '%' ? number * 100 : number, notation,
                        format.precision < 0 ? 6 : format.precision);
      if (type == 'E' || type == 'G' || type == 'F') body = to_upper(body);
    }
    body = grouped(std::move(body), format.grouping, 3);
    if (type == '%') body += '%';
  }
  const std::string sign = is_negative ? "-" : format.sign == '-' ? "" : std::string(1, format.sign);
  append_field(out, format, '>', sign + prefix, body);
}

inline void append_text_field(TextBuilder& out, const FieldFormat& format, std::string_view text) {
  if (format.precision >= 0) {
    std::size_t end = 0;
    for (Index i = 0; i < format.precision && end < text.size(); ++i)
      end += kvdecode::detail::utf8_length(text[end]);
    text = text.substr(0, end);
  }
  append_field(out, format, '<', "", text);
}

/// template % values
class PercentFormatter {
 public:
  PercentFormatter(Meter& meter, const Value& values) : meter_(meter), values_(values), out_(meter) {
    if (values.sequence() != nullptr && values.sequence()->is_tuple()) tuple_ = values.sequence();
  }

  Value format(const String& text) {
    const std::string_view source = text.text;
    std::size_t i = 0;
    while (i < source.size()) {
      const std::size_t mark = std::min(source.find('%', i), source.size());
      out_.append(source.substr(i, mark - i));
      i = mark;
      if (i < source.size()) directive(source, ++i);
    }
    const bool all_used =
        tuple_ != nullptr ? n_used_ >= tuple_->items.size() : n_used_ > 0 || values_.dict() != nullptr;
    if (!all_used && !uses_names_) fail("not all arguments converted during string formatting");
    return make_string(&meter_, out_.take(), text.is_markup);
  }

 private:
  const Value& next() {
    if (tuple_ != nullptr) {
      if (n_used_ >= tuple_->items.size()) fail("not enough arguments for format string");
      return tuple_->items[n_used_++];
    }
    if (n_used_ > 0) fail("not enough arguments for format string");
    ++n_used_;
    return values_;
  }

  void directive(std::string_view source, std::size_t& i) {
    const auto at = [&] { return i < source.size() ? source[i] : '\0'; };
    meter_.step();
    FieldFormat format;
    format.align = '>';
    Value named;
    bool is_named = false;
    if (at() == '(') {
      const std::size_t end = source.find(')', i);
      if (end == std::string_view::npos) fail("incomplete format key");
      if (values_.dict() == nullptr) fail("format requires a mapping");
      const Value key = make_string(meter_, source.substr(i + 1, end - i - 1));
      const Value* found = find_in(meter_, *values_.dict(), key);
      if (found == nullptr) fail(repr(meter_, key));
      named = *found;
      is_named = uses_names_ = true;
      i = end + 1;
    }
    bool fills_zeros = false;
    for (; std::string_view("-+ #0").find(at()) != std::string_view::npos && i < source.size(); ++i) {
      if (at() == '-') format.align = '<';
      if (at() == '+') format.sign = '+';
      if (at() == ' ' && format.sign != '+') format.sign = ' ';
      if (at() == '#') format.is_alternate = true;
      if (at() == '0') fills_zeros = true;
    }
    const auto count = [&] {
      if (at() != '*') return read_count(source, i);
      ++i;
      const Value& value = next();
      if (!as_integer(value)) fail("* wants int");
      const Index given = as_index(value);
      if (given > 1'000'000'000 || given < -1'000'000'000) fail("Too many decimal digits in format string");
      return given;
    };
    format.width = count();
    if (format.width < 0) {
      format.align = '<';
      format.width = -format.width;
    }
    if (at() == '.') {
      ++i;
      format.precision = std::max<Index>(count(), 0);
    }
    while (at() == 'l' || at() == 'h' || at() == 'L') ++i;
    const char type = at();
    if (i >= source.size()) fail("incomplete format");
    ++i;
    if (type == '%') return out_.append("%");
    const Value value = is_named ? named : next();
    switch (type) {
      case 's': {
        TextBuilder text(meter_);
        append_str(text, value);
        return append_text_field(out_, format, text.text());
      }
      case 'r':
      case 'a': return append_text_field(out_, format, repr(meter_, value));
      case 'c': return append_character(format, value);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': {
        require_defined(value);
        const bool is_decimal_type = type == 'd' || type == 'i' || type == 'u';
        if (!value.is_number() || (!is_decimal_type && value.is_float())) {
          fail("%", std::string(1, type), " format: ", is_decimal_type ? "a real number" : "an integer",
               " is required, not ", type_name(value));
        }
        format.type = is_decimal_type ? 'd' : type;
        if (fills_zeros && format.align != '<') set_zeros(format);
        if (format.precision > 0) zero_digits(format, value);
        return append_number(out_, format, value.is_float() ? Value(truncated(as_double(value))) : value);
      }
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
        require_defined(value);
        if (!value.is_number()) fail("must be real number, not ", type_name(value));
        format.type = type;
        if (fills_zeros && format.align != '<') set_zeros(format);
        return append_number(out_, format, value);
      default: fail("unsupported format character '", std::string(1, type), "'");
    }
  }

  static void set_zeros(FieldFormat& format) {
    format.fill = "0";
    format.align = '=';
  }

  // %.5d: at least five digits.
  static void zero_digits(FieldFormat& format, const Value& value) {
    if (format.precision > format.width || format.width == 0) {
      format.width = format.precision + (as_double(value) < 0 ? 1 : 0);
      set_zeros(format);
    }
  }

  void append_character(const FieldFormat& format, const Value& value) {
    if (const String* string = value.string(); string != nullptr && string->n_chars == 1) {
      return append_text_field(out_, format, string->text);
    }
    const auto code = as_integer(value);
    if (!code) fail("%c requires int or char");
    if (*code < 0 || *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000))
      fail("%c arg not in range(0x110000)");
    std::string text;
    kvdecode::detail::utf8_append(text, static_cast<char32_t>(*code));
    append_text_field(out_, format, text);
  }

  Meter& meter_;
  const Value& values_;
  const Sequence* tuple_ = nullptr;
  std::size_t n_used_ = 0;
  bool uses_names_ = false;
  TextBuilder out_;
};

/// text.format(…)
class BraceFormatter {
 public:
  BraceFormatter(Meter& meter, const Arguments& arguments) : meter_(meter), arguments_(arguments) {}

  Value format(const String& text) {
    TextBuilder out(meter_);
    expand(out, text.text, 2);
    return make_string(&meter_, out.take(), text.is_markup);
  }

 private:
  void expand(TextBuilder& out, std::string_view text, int depth) {
    if (depth == 0) fail("Max string recursion exceeded");
    for (std::size_t i = 0; i < text.size();) {
      meter_.step();
      const std::size_t mark = std::min(text.find_first_of("{}", i), text.size());
      out.append(text.substr(i, mark - i));
      i = mark;
      if (i == text.size()) return;
      if (i + 1 < text.size() && text[i + 1] == text[i]) {
        out.append(1, text[i]);
        i += 2;
        continue;
      }
      if (text[i] == '}') fail("Single '}' encountered in format string");
      const std::size_t end = end_of_field(text, i);
      field(out, text.substr(i + 1, end - i - 1), depth);
      i = end + 1;
    }
  }

  static std::size_t end_of_field(std::string_view text, std::size_t begin) {
    Index level = 0;
    for (std::size_t i = begin; i < text.size(); ++i) {
      if (text[i] == '{') ++level;
      if (text[i] == '}' && --level == 0) return i;
    }
    fail(begin + 1 == text.size() ? "Single '{' encountered in format string"
                                  : "expected '}' before end of string");
  }

  void field(TextBuilder& out, std::string_view text, int depth) {
    const std::size_t name_end = std::min(text.find_first_of(":!"), text.size());
    Value value = look_up(text.substr(0, name_end));
    std::size_t i = name_end;
    if (i < text.size() && text[i] == '!') {
      const char conversion = i + 1 < text.size() ? text[i + 1] : '\0';
      if (conversion == 's') {
        value = as_string(meter_, value);
      } else if (conversion == 'r' || conversion == 'a') {
        value = make_string(&meter_, repr(meter_, value));
      } else {
        fail("Unknown conversion specifier '", std::string(1, conversion), "'");
      }
      i += 2;
      if (i < text.size() && text[i] != ':') fail("expected ':' after conversion specifier");
    }
    TextBuilder spec(meter_);
    if (i < text.size()) expand(spec, text.substr(i + 1), depth - 1);
    append_formatted(out, value, spec.text());
  }

  Value look_up(std::string_view name) {
    std::size_t i = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, i);
    Value value;
    const bool is_index = !first.empty() && first.find_first_not_of("0123456789") == std::string_view::npos;
    if (first.empty() || is_index) {
      std::size_t digit = 0;
      const std::size_t index =
          is_index ? static_cast<std::size_t>(read_count(first, digit)) : n_automatic_++;
      if (index >= arguments_.positional.size()) {
        fail("Replacement index ", index, " out of range for positional args tuple");
      }
      value = arguments_.positional[index];
    } else {
      const Value* found = nullptr;
      for (const auto& [key, named] : arguments_.named) {
        if (key == first) found = &named;
      }
      if (found == nullptr) fail("'", first, "'");
      value = *found;
    }
    while (i < name.size()) {
      if (name[i] == '.') {
        const std::size_t end = std::min(name.find_first_of(".[", i + 1), name.size());
        value = get_attribute(meter_, value, std::string(name.substr(i + 1, end - i - 1)));
        i = end;
      } else if (name[i] == '[') {
        const std::size_t end = name.find(']', i);
        if (end == std::string_view::npos) fail("Missing ']' in format string");
        const std::string_view key = name.substr(i + 1, end - i - 1);
        const bool is_number = !key.empty() && key.find_first_not_of("0123456789") == std::string_view::npos;
        std::size_t digit = 0;
        value = get_item(
            meter_, value,
            is_number ? Value(static_cast<Integer>(read_count(key, digit))) : make_string(meter_, key));
        i = end + 1;
      } else {
        fail("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  void append_formatted(TextBuilder& out, const Value& value, std::string_view spec) {
    if (spec.empty()) return append_str(out, value);
    FieldFormat format;
    std::size_t i = 0;
    const auto at = [&](std::size_t place) { return place < spec.size() ? spec[place] : '\0'; };
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    const std::size_t first = kvdecode::detail::utf8_length(spec[0]);
    if (is_align(at(first))) {
      format.fill = spec.substr(0, first);
      format.align = spec[first];
      i = first + 1;
    } else if (is_align(at(0))) {
      format.align = spec[0];
      i = 1;
    }
    if (at(i) == '+' || at(i) == '-' || at(i) == ' ') format.sign = spec[i++];
    if (at(i) == '#') {
      format.is_alternate = true;
      ++i;
    }
    if (at(i) == '0') {
      if (format.align == 0) {
        format.fill = "0";
        format.align = value.is_number() ? '=' : '<';
      }
      ++i;
    }
    format.width = read_count(spec, i);
    if (at(i) == ',' || at(i) == '_') format.grouping = spec[i++];
    if (at(i) == '.') {
      ++i;
      if (!is_digit(at(i))) fail("Format specifier missing precision");
      format.precision = read_count(spec, i);
    }
    if (i < spec.size()) format.type = spec[i++];
    const bool is_number_type = std::string_view("bdoxXneEfFgG%").find(format.type) != std::string_view::npos;
    const bool is_whole_type =
        std::string_view("bdoxX").find(format.type) != std::string_view::npos && format.type != 0;
    if (i < spec.size())
      fail("Invalid format specifier '", spec, "' for object of type '", type_name(value), "'");
    require_defined(value);
    const bool as_number = value.is_number() && !(value.is_bool() && format.type == 0);
    if (as_number && (is_number_type || format.type == 0) && !(is_whole_type && value.is_float())) {
      return append_number(out, format, value);
    }
    const bool as_text =
        value.string() != nullptr && (format.type == 's' || format.type == 0) && format.align != '=';
    if (as_text) return append_text_field(out, format, value.string()->text);
    if (value.is_bool() && format.type == 0)
      return append_text_field(out, format, is_true(value) ? "True" : "False");
    if (value.string() == nullptr && !value.is_number()) {
      fail("unsupported format string passed to ", type_name(value), ".__format__");
    }
    fail("Unknown format code '", std::string(1, format.type), "' for object of type '", type_name(value),
         "'");
  }

  Meter& meter_;
  const Arguments& arguments_;
  std::size_t n_automatic_ = 0;
};

}  // namespace jinja
}  // namespace kvdecode

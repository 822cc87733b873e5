// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/operators.hpp> - truth, equality, order, iteration and arithmetic, as Python has them
// and with its messages.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/jinja/characters.hpp>
#include <kvdecode/text/jinja/meter.hpp>
#include <kvdecode/text/jinja/numbers.hpp>
#include <kvdecode/text/jinja/printing.hpp>
#include <kvdecode/text/jinja/value.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

inline bool is_true(const Value& value) {
  if (value.is_none() || value.is_undefined()) return false;
  if (value.is_number()) return as_double(value) != 0;
  if (const String* string = value.string()) return !string->text.empty();
  if (const String* bytes = value.bytes()) return !bytes->text.empty();
  if (const Sequence* sequence = value.sequence()) {
    return sequence->kind == Sequence::Kind::kGenerator || sequence->kind == Sequence::Kind::kCycler ||
           !sequence->items.empty();
  }
  if (const Dict* dict = value.dict()) return !dict->entries.empty();
  return true;
}

/// -1, 0, 1, or 2 for unordered. @pre both are numbers
inline int compare_numbers(const Value& a, const Value& b) {
  if (!a.is_float() && !b.is_float()) {
    const Integer x = *as_integer(a);
    const Integer y = *as_integer(b);
    return x < y ? -1 : x > y ? 1 : 0;
  }
  const double x = as_double(a);
  const double y = as_double(b);
  if (std::isnan(x) || std::isnan(y)) return 2;
  return x < y ? -1 : x > y ? 1 : 0;
}

inline bool are_equal(Meter& meter, const Value& a, const Value& b);

/// The place of `key` in the mapping, or null.
inline const Value* find_in(Meter& meter, const Dict& dict, const Value& key) {
  if (const String* text = key.string()) {
    meter.step(text->text.size());
    const auto found = dict.by_text.find(text->text);
    return found == dict.by_text.end() ? nullptr : &dict.entries[found->second].second;
  }
  if (dict.by_text.size() == dict.entries.size()) return nullptr;
  for (const auto& [other, value] : dict.entries) {
    if (other.string() == nullptr && are_equal(meter, other, key)) return &value;
  }
  return nullptr;
}

inline bool are_equal(Meter& meter, const Value& a, const Value& b) {
  const Level level(meter);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.string() != nullptr && b.string() != nullptr) {
    meter.step(std::min(a.string()->text.size(), b.string()->text.size()));
    return a.string()->text == b.string()->text;
  }
  if (a.bytes() != nullptr && b.bytes() != nullptr) return a.bytes()->text == b.bytes()->text;
  if (a.is_none() || a.is_undefined()) return a.variant().index() == b.variant().index();
  const Sequence* x = a.sequence();
  const Sequence* y = b.sequence();
  if (x != nullptr && y != nullptr) {
    if (x == y) return true;
    const bool comparable = x->kind == y->kind || (x->is_tuple() && y->is_tuple());
    const bool has_value = x->is_list() || x->is_tuple() || x->kind == Sequence::Kind::kRange ||
                           x->kind == Sequence::Kind::kKeys;
    if (!comparable || !has_value || x->items.size() != y->items.size()) return false;
    for (std::size_t i = 0; i < x->items.size(); ++i) {
      if (!are_equal(meter, x->items[i], y->items[i])) return false;
    }
    return true;
  }
  if (a.dict() != nullptr && b.dict() != nullptr) {
    if (a.dict()->entries.size() != b.dict()->entries.size()) return false;
    for (const auto& [key, value] : a.dict()->entries) {
      const Value* other = find_in(meter, *b.dict(), key);
      if (other == nullptr || !are_equal(meter, value, *other)) return false;
    }
    return true;
  }
  if (a.name_space() != nullptr) return a.name_space() == b.name_space();
  if (a.function() != nullptr) return a.function() == b.function();
  if (a.loop() != nullptr) return a.loop() == b.loop();
  return false;
}

/// a < b, with `sign` ("<", ">=", …) for the message only.
inline bool is_less(Meter& meter, const Value& a, const Value& b, std::string_view sign = "<") {
  const Level level(meter);
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == -1;
  if (a.string() != nullptr && b.string() != nullptr) {
    meter.step(std::min(a.string()->text.size(), b.string()->text.size()));
    return a.string()->text < b.string()->text;  // the order of UTF-8 is the order of code points
  }
  const Sequence* x = a.sequence();
  const Sequence* y = b.sequence();
  if (x != nullptr && y != nullptr && ((x->is_list() && y->is_list()) || (x->is_tuple() && y->is_tuple()))) {
    for (std::size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i) {
      if (!are_equal(meter, x->items[i], y->items[i])) return is_less(meter, x->items[i], y->items[i], sign);
    }
    return x->items.size() < y->items.size();
  }
  fail("'", sign, "' not supported between instances of '", type_name(a), "' and '", type_name(b), "'");
}

inline bool compare_by(Meter& meter, std::string_view sign, const Value& a, const Value& b) {
  if (sign == "==") return are_equal(meter, a, b);
  if (sign == "!=") return !are_equal(meter, a, b);
  if (a.is_number() && b.is_number()) {
    const int order = compare_numbers(a, b);
    if (sign == "<") return order == -1;
    if (sign == "<=") return order == -1 || order == 0;
    if (sign == ">") return order == 1;
    return order == 1 || order == 0;
  }
  if (sign == "<") return is_less(meter, a, b, sign);
  if (sign == ">=") return !is_less(meter, a, b, sign);
  // The message of a > b names a first, so its types are checked in this order.
  if (is_less(meter, a, b, sign)) return sign == "<=";
  const bool equal = are_equal(meter, a, b);
  return sign == "<=" ? equal : !equal;
}

/// What a loop over `value` sees. A generator is emptied.
inline std::vector<Value> iterate(Meter& meter, const Value& value) {
  ListBuilder items(meter);
  if (value.is_undefined()) return {};
  if (const String* string = value.string()) {
    for_each_char(string->text, [&](char32_t, std::string_view bytes) {
      items.push(make_string(meter, bytes, string->is_markup));
      return true;
    });
    return items.take();
  }
  if (const Sequence* sequence = value.sequence();
      sequence != nullptr && sequence->kind != Sequence::Kind::kCycler) {
    const bool once = sequence->kind == Sequence::Kind::kGenerator;
    meter.step(sequence->items.size() * sizeof(Value));
    for (std::size_t i = once ? sequence->position : 0; i < sequence->items.size(); ++i)
      items.push(sequence->items[i]);
    if (once) sequence->position = sequence->items.size();
    return items.take();
  }
  if (const Dict* dict = value.dict()) {
    for (const auto& entry : dict->entries) items.push(entry.first);
    return items.take();
  }
  fail("'", type_name(value), "' object is not iterable");
}

/// len(value)
inline Index length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const String* string = value.string()) return string->n_chars;
  if (const String* bytes = value.bytes()) return bytes->n_chars;
  if (const Dict* dict = value.dict()) return static_cast<Index>(dict->entries.size());
  if (const Sequence* sequence = value.sequence(); sequence != nullptr &&
                                                   sequence->kind != Sequence::Kind::kGenerator &&
                                                   sequence->kind != Sequence::Kind::kCycler) {
    return static_cast<Index>(sequence->items.size());
  }
  fail("object of type '", type_name(value), "' has no len()");
}

/// item in container
inline bool contains(Meter& meter, const Value& container, const Value& item) {
  if (container.is_undefined()) return false;
  if (const String* text = container.string()) {
    require_defined(item);
    if (item.string() == nullptr)
      fail("'in <string>' requires string as left operand, not ", type_name(item));
    count_search(meter, text->text, item.string()->text);
    return text->text.find(item.string()->text) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    if (item.dict() != nullptr || (item.sequence() != nullptr && item.sequence()->is_list())) {
      fail("unhashable type: '", type_name(item), "'");
    }
    return find_in(meter, *dict, item) != nullptr;
  }
  if (container.sequence() != nullptr) {
    const bool once = container.sequence()->kind == Sequence::Kind::kGenerator;
    const std::vector<Value> taken = once ? iterate(meter, container) : std::vector<Value>();
    for (const Value& other : once ? taken : container.sequence()->items) {
      if (are_equal(meter, other, item)) return true;
    }
    return false;
  }
  fail("argument of type '", type_name(container), "' is not iterable");
}

/// Collects the entries of a mapping; a key that is there keeps its place and takes the new value.
class DictBuilder {
 public:
  explicit DictBuilder(Meter& meter) : meter_(meter), dict_(new Dict{{}, {}, 1, {&meter, kObjectBytes}}) {}

  void set(const Value& key, Value value) {
    if (key.dict() != nullptr || (key.sequence() != nullptr && key.sequence()->is_list())) {
      fail("unhashable type: '", type_name(key), "'");
    }
    dict_->depth = deeper(deeper(dict_->depth, value), key);
    if (const Value* found = find_in(meter_, *dict_, key)) {
      // It points into dict_, which is not const here.
      *const_cast<Value*>(found) = std::move(value);
      return;
    }
    dict_->charge.add(2 * sizeof(Value) + 64);
    dict_->entries.emplace_back(key, std::move(value));
    if (const String* text = key.string()) dict_->by_text.emplace(text->text, dict_->entries.size() - 1);
  }
  void set(std::string_view key, Value value) { set(make_string(meter_, key), std::move(value)); }

  void add(const Dict& other) {
    for (const auto& [key, value] : other.entries) set(key, value);
  }

  Value take() { return Value(DictPtr(std::move(dict_))); }

 private:
  Meter& meter_;
  std::shared_ptr<Dict> dict_;
};

[[noreturn]] inline void fail_operands(std::string_view sign, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  fail("unsupported operand type(s) for ", sign, ": '", type_name(a), "' and '", type_name(b), "'");
}

inline Value add(Meter& meter, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return Value(as_double(a) + as_double(b));
    return Value(checked_add(*as_integer(a), *as_integer(b)));
  }
  if (const String* x = a.string()) {
    const String* y = b.string();
    if (y == nullptr) fail("can only concatenate str (not \"", type_name(b), "\") to str");
    TextBuilder text(meter);
    const bool is_markup = x->is_markup || y->is_markup;
    for (const String* part : {x, y}) {
      if (is_markup && !part->is_markup) {
        append_html_escaped(text, part->text);
      } else {
        text.append(part->text);
      }
    }
    return make_string(&meter, text.take(), is_markup);
  }
  const Sequence* x = a.sequence();
  if (x != nullptr && (x->is_list() || x->is_tuple())) {
    const Sequence* y = b.sequence();
    const std::string_view name = x->is_list() ? "list" : "tuple";
    if (y == nullptr || x->is_list() != y->is_list() || x->is_tuple() != y->is_tuple()) {
      fail("can only concatenate ", name, " (not \"", type_name(b), "\") to ", name);
    }
    meter.step((x->items.size() + y->items.size()) * sizeof(Value));
    ListBuilder items(meter);
    for (const Value& item : x->items) items.push(item);
    for (const Value& item : y->items) items.push(item);
    return make_sequence(meter, x->is_list() ? Sequence::Kind::kList : Sequence::Kind::kTuple, items.take());
  }
  fail_operands("+", a, b);
}

inline Value repeat(Meter& meter, const Value& value, Integer count) {
  const Integer n = std::max<Integer>(count, 0);
  if (const String* string = value.string()) {
    TextBuilder text(meter);
    if (string->text.empty()) return value;
    for (Integer i = 0; i < n; ++i) text.append(string->text);
    return make_string(&meter, text.take(), string->is_markup);
  }
  const Sequence& sequence = *value.sequence();
  ListBuilder items(meter);
  if (sequence.items.empty()) return value;
  for (Integer i = 0; i < n; ++i) {
    for (const Value& item : sequence.items) {
      items.push(item);
      meter.step();
    }
  }
  return make_sequence(meter, sequence.is_list() ? Sequence::Kind::kList : Sequence::Kind::kTuple,
                       items.take());
}

inline Value multiply(Meter& meter, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return Value(as_double(a) * as_double(b));
    return Value(checked_multiply(*as_integer(a), *as_integer(b)));
  }
  const auto repeats = [](const Value& value) {
    return value.string() != nullptr ||
           (value.sequence() != nullptr && (value.sequence()->is_list() || value.sequence()->is_tuple()));
  };
  if (repeats(a) && as_integer(b)) return repeat(meter, a, *as_integer(b));
  if (repeats(b) && as_integer(a)) return repeat(meter, b, *as_integer(a));
  if (repeats(a) || repeats(b)) {
    const Value& other = repeats(a) ? b : a;
    require_defined(other);
    fail("can't multiply sequence by non-int of type '", type_name(other), "'");
  }
  fail_operands("*", a, b);
}

/// Quotient (floor) or remainder with the sign of the divisor.
inline Value floor_divide(const Value& a, const Value& b, bool wants_remainder) {
  if (!a.is_float() && !b.is_float()) {
    const Integer x = *as_integer(a);
    const Integer y = *as_integer(b);
    if (y == 0) fail("integer division or modulo by zero");
    if (y == -1) return Value(wants_remainder ? Integer{0} : checked_subtract(0, x));
    Integer quotient = x / y;
    Integer remainder = x % y;
    if (remainder != 0 && (remainder < 0) != (y < 0)) {
      quotient -= 1;
      remainder += y;
    }
    return Value(wants_remainder ? remainder : quotient);
  }
  const double x = as_double(a);
  const double y = as_double(b);
  if (y == 0) fail(wants_remainder ? "float modulo" : "float floor division by zero");
  double remainder = std::fmod(x, y);
  if (remainder != 0 && (remainder < 0) != (y < 0)) remainder += y;
  if (wants_remainder) return Value(remainder);
  return Value(std::floor((x - remainder) / y + 0.5));
}

inline Value power(const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) fail_operands("** or pow()", a, b);
  if (a.is_float() || b.is_float() || *as_integer(b) < 0) {
    if (as_double(a) == 0 && as_double(b) < 0) fail("0.0 cannot be raised to a negative power");
    if (as_double(a) < 0 && std::floor(as_double(b)) != as_double(b)) {
      kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: a complex number");
    }
    const double result = std::pow(as_double(a), as_double(b));
    if (std::isinf(result) && std::isfinite(as_double(a)) && std::isfinite(as_double(b))) {
      fail("(34, 'Numerical result out of range')");
    }
    return Value(result);
  }
  Integer base = *as_integer(a);
  Integer exponent = *as_integer(b);
  Integer result = 1;
  while (exponent > 0) {
    if (exponent % 2 != 0) result = checked_multiply(result, base);
    exponent /= 2;
    if (exponent > 0) base = checked_multiply(base, base);
  }
  return Value(result);
}

inline Value negate(const Value& value) {
  require_defined(value);
  if (const double* number = value.get_if<double>()) return Value(-*number);
  if (const auto integer = as_integer(value)) return Value(checked_subtract(0, *integer));
  fail("bad operand type for unary -: '", type_name(value), "'");
}

}  // namespace jinja
}  // namespace kvdecode

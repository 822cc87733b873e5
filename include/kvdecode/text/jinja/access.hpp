// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/access.hpp> - value.name, value[key] and value[a:b:c] inside the sandbox: what is not
// there, or is not for templates, is undefined with the reason.
#pragma once

#include <kvdecode/text/jinja/characters.hpp>
#include <kvdecode/text/jinja/loop.hpp>
#include <kvdecode/text/jinja/meter.hpp>
#include <kvdecode/text/jinja/numbers.hpp>
#include <kvdecode/text/jinja/operators.hpp>
#include <kvdecode/text/jinja/printing.hpp>
#include <kvdecode/text/jinja/value.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

constexpr std::string_view kStringMethods[] = {
    "capitalize", "casefold",     "center",       "count",   "encode",     "endswith",    "expandtabs",
    "find",       "format",       "format_map",   "index",   "isalnum",    "isalpha",     "isascii",
    "isdecimal",  "isdigit",      "isidentifier", "islower", "isnumeric",  "isprintable", "isspace",
    "istitle",    "isupper",      "join",         "ljust",   "lower",      "lstrip",      "maketrans",
    "partition",  "removeprefix", "removesuffix", "replace", "rfind",      "rindex",      "rjust",
    "rpartition", "rsplit",       "rstrip",       "split",   "splitlines", "startswith",  "strip",
    "swapcase",   "title",        "translate",    "upper",   "zfill"};
constexpr std::string_view kListMethods[] = {"copy", "count", "index"};
constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kTupleMethods[] = {"count", "index"};
constexpr std::string_view kDictMethods[] = {"copy", "fromkeys", "get", "items", "keys", "values"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kBytesMethods[] = {"decode", "hex"};
constexpr std::string_view kCyclerMethods[] = {"next", "reset"};
constexpr std::string_view kObjectNames[] = {
    "__class__",   "__delattr__",      "__dir__", "__doc__",          "__eq__",           "__format__",
    "__ge__",      "__getattribute__", "__gt__",  "__hash__",         "__init__",         "__le__",
    "__lt__",      "__ne__",           "__new__", "__reduce__",       "__reduce_ex__",    "__repr__",
    "__setattr__", "__sizeof__",       "__str__", "__subclasshook__", "__init_subclass__"};

inline bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

inline Value make_missing(Meter& meter, const Value& object, const Value& key) {
  if (const String* name = key.string()) {
    return make_undefined("'" + object_name(object) + "' has no attribute '" + name->text.substr(0, 1000) +
                          "'");
  }
  return make_undefined(object_name(object) + " has no element " + repr(meter, key));
}

/// What Python's getattr finds; `found` is false if it finds nothing.
inline Value member(Meter& meter, const Value& object, std::string_view name, bool& found) {
  found = true;
  const auto unsafe = [&] {
    return make_undefined("access to attribute '" + std::string(name) + "' of '" + type_name(object) +
                          "' object is unsafe.");
  };
  if (is_one_of(name, kObjectNames)) return unsafe();
  if (object.string() != nullptr && is_one_of(name, kStringMethods)) return make_method(meter, object, name);
  if (object.bytes() != nullptr && is_one_of(name, kBytesMethods)) return make_method(meter, object, name);
  if (object.dict() != nullptr) {
    if (is_one_of(name, kDictMethods)) return make_method(meter, object, name);
    if (is_one_of(name, kDictChanges)) return unsafe();
  }
  if (const Sequence* sequence = object.sequence()) {
    if (sequence->is_list()) {
      if (is_one_of(name, kListMethods)) return make_method(meter, object, name);
      if (is_one_of(name, kListChanges)) return unsafe();
    }
    if (sequence->is_tuple() && is_one_of(name, kTupleMethods)) return make_method(meter, object, name);
    if (sequence->kind == Sequence::Kind::kGroup && name == "grouper") return sequence->items[0];
    if (sequence->kind == Sequence::Kind::kGroup && name == "list") return sequence->items[1];
    if (sequence->kind == Sequence::Kind::kCycler) {
      if (name == "current") return sequence->items[sequence->position];
      if (is_one_of(name, kCyclerMethods)) return make_method(meter, object, name);
    }
  }
  if (Namespace* name_space = object.name_space()) {
    if (const Value* value = name_space->find(name)) return *value;
  }
  if (Loop* loop = object.loop()) {
    Value value = loop->member(meter, object, name, found);
    if (found) return value;
    found = true;
  }
  if (const Function* function = object.function();
      function != nullptr && function->kind == Function::Kind::kMacro) {
    Value value = macro_member(meter, *function, name, found);
    if (found) return value;
    found = true;
  }
  found = false;
  return {};
}

/// The element of a string or a list, or null.
inline bool element(Meter& meter, const Value& object, const Value& key, Value& result) {
  if (const Dict* dict = object.dict()) {
    const Value* value = find_in(meter, *dict, key);
    if (value != nullptr) result = *value;
    return value != nullptr;
  }
  const auto integer = as_integer(key);
  if (!integer) return false;
  const Sequence* sequence = object.sequence();
  const bool has_items = sequence != nullptr && (sequence->is_list() || sequence->is_tuple() ||
                                                 sequence->kind == Sequence::Kind::kRange);
  if (!has_items && object.string() == nullptr && object.bytes() == nullptr) return false;
  const Index length = length_of(object);
  if (*integer >= length || *integer < -length) return false;
  const Index index = static_cast<Index>(*integer) + (*integer < 0 ? length : 0);
  if (has_items) {
    result = sequence->items[static_cast<std::size_t>(index)];
  } else if (const String* string = object.string()) {
    if (!string->is_ascii()) meter.step(string->text.size());
    const std::size_t begin = byte_of_char(*string, index);
    result = make_string(
        meter,
        std::string_view(string->text).substr(begin, kvdecode::detail::utf8_length(string->text[begin])),
        string->is_markup);
  } else {
    result = Value(static_cast<Integer>(
        static_cast<unsigned char>(object.bytes()->text[static_cast<std::size_t>(index)])));
  }
  return true;
}

/// object.name: a member, or else an element of that name.
inline Value get_attribute(Meter& meter, const Value& object, const std::string& name) {
  meter.step();
  require_defined(object);
  bool found = false;
  Value value = member(meter, object, name, found);
  if (found) return value;
  const Value key = make_string(meter, name);
  if (object.dict() != nullptr && element(meter, object, key, value)) return value;
  return make_missing(meter, object, key);
}

/// object[key]: an element, or else a member of that name.
inline Value get_item(Meter& meter, const Value& object, const Value& key) {
  meter.step();
  require_defined(object);
  Value value;
  if (element(meter, object, key, value)) return value;
  if (const String* name = key.string()) {
    bool found = false;
    value = member(meter, object, name->text, found);
    if (found) return value;
  }
  return make_missing(meter, object, key);
}

/// object[start:stop:step]; none leaves a bound open.
inline Value get_slice(Meter& meter, const Value& object, const Value& start, const Value& stop,
                       const Value& step) {
  require_defined(object);
  const Sequence* sequence = object.sequence();
  const bool has_items = sequence != nullptr && (sequence->is_list() || sequence->is_tuple() ||
                                                 sequence->kind == Sequence::Kind::kRange);
  if (!has_items && object.string() == nullptr)
    return make_undefined(object_name(object) + " has no element slice(...)");
  const auto bound = [](const Value& value) {
    require_defined(value);
    if (!as_integer(value)) fail("slice indices must be integers or None or have an __index__ method");
    return as_index(value);
  };
  const Index stride = step.is_none() ? 1 : bound(step);
  if (stride == 0) fail("slice step cannot be zero");
  const Index length = length_of(object);
  const Index lowest = stride > 0 ? 0 : -1;
  const Index highest = stride > 0 ? length : length - 1;
  const auto place = [&](const Value& value, Index otherwise) {
    if (value.is_none()) return otherwise;
    const Index index = bound(value);
    return std::clamp(index < 0 ? index + length : index, lowest, highest);
  };
  const Index first = place(start, stride > 0 ? 0 : length - 1);
  const Index last = place(stop, stride > 0 ? length : -1);
  if (object.string() != nullptr && stride == 1) {
    const String& string = *object.string();
    if (last <= first) return make_string(meter, "", string.is_markup);
    if (!string.is_ascii()) meter.step(string.text.size());
    const std::size_t begin = byte_of_char(string, first);
    const std::size_t end = byte_of_char(string, last);
    return make_string(meter, std::string_view(string.text).substr(begin, end - begin), string.is_markup);
  }
  const std::vector<Value> chars = has_items ? std::vector<Value>() : iterate(meter, object);
  const std::vector<Value>& all = has_items ? sequence->items : chars;
  ListBuilder items(meter);
  // Within [0, length) first: stride may be as large as Index allows.
  for (Index i = first; stride > 0 ? i < last : i > last;) {
    meter.step();
    items.push(all[static_cast<std::size_t>(i)]);
    if (stride > 0 ? stride >= last - i : stride <= last - i) break;
    i += stride;
  }
  if (has_items && sequence->kind == Sequence::Kind::kRange) {
    auto range = new_sequence(meter, Sequence::Kind::kRange, items.take());
    const Integer scale = sequence->range[2];
    range->range[0] = checked_add(sequence->range[0], checked_multiply(first, scale));
    range->range[1] = checked_add(sequence->range[0], checked_multiply(last, scale));
    range->range[2] = checked_multiply(scale, stride);
    return Value(SequencePtr(std::move(range)));
  }
  if (has_items) {
    return make_sequence(meter, sequence->is_tuple() ? Sequence::Kind::kTuple : Sequence::Kind::kList,
                         items.take());
  }
  TextBuilder text(meter);
  for (const Value& item : items.items()) text.append(item.string()->text);
  return make_string(&meter, text.take(), object.string()->is_markup);
}

}  // namespace jinja
}  // namespace kvdecode

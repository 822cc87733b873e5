// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/json_text.hpp> - values to and from JSON: keys in their order, no HTML escapes, as
// Python's json module writes it.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/jinja/characters.hpp>
#include <kvdecode/text/jinja/meter.hpp>
#include <kvdecode/text/jinja/numbers.hpp>
#include <kvdecode/text/jinja/operators.hpp>
#include <kvdecode/text/jinja/printing.hpp>
#include <kvdecode/text/jinja/value.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

/// JSON that keeps the order of its keys, which templates show.
using Json = nlohmann::ordered_json;

inline Value from_json_text(Meter& meter, const std::string& text) {
  if (!kvdecode::detail::is_utf8(text)) {
    kvdecode::detail::raise(ErrorCode::kBadArgument, "chat template: a text that is not valid UTF-8");
  }
  return make_string(meter, text);
}

/// A value of JSON, not deeper than kMaxValueDepth.
inline Value from_json(Meter& meter, const Json& json, Index depth = 0) {
  meter.step();
  if (depth > kMaxValueDepth) [[unlikely]] {
    kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: JSON nested deeper than ",
                            kMaxValueDepth);
  }
  switch (json.type()) {
    case Json::value_t::boolean: return Value(json.get<bool>());
    case Json::value_t::number_integer: return Value(static_cast<Integer>(json.get<std::int64_t>()));
    case Json::value_t::number_unsigned: return Value(static_cast<Integer>(json.get<std::uint64_t>()));
    case Json::value_t::number_float: return Value(json.get<double>());
    case Json::value_t::string: return from_json_text(meter, json.get_ref<const std::string&>());
    case Json::value_t::array: {
      ListBuilder items(meter);
      for (const Json& item : json) items.push(from_json(meter, item, depth + 1));
      return make_list(meter, items.take());
    }
    case Json::value_t::object: {
      DictBuilder dict(meter);
      for (auto item = json.begin(); item != json.end(); ++item) {
        dict.set(from_json_text(meter, item.key()), from_json(meter, item.value(), depth + 1));
      }
      return dict.take();
    }
    case Json::value_t::null: return {};
    case Json::value_t::binary:
    case Json::value_t::discarded: break;
  }
  kvdecode::detail::raise(ErrorCode::kBadArgument,
                          "chat template: a JSON value that is neither text, number, list nor object");
}

/// How JSON is laid out.
struct JsonStyle {
  std::optional<std::string> indent = {};  // of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};

/// Writes values as JSON.
class JsonWriter {
 public:
  JsonWriter(TextBuilder& out, const JsonStyle& style) : out_(out), style_(style) {}

  void write(const Value& value, std::size_t level = 0) {
    const Level guard(out_.meter());
    if (value.is_none()) return out_.append("null");
    if (const bool* flag = value.get_if<bool>()) return out_.append(*flag ? "true" : "false");
    if (value.is_integer()) return out_.append(integer_text(*as_integer(value)));
    if (const double* number = value.get_if<double>()) return out_.append(number_text(*number));
    if (const String* string = value.string()) return write_text(string->text);
    if (const Dict* dict = value.dict()) return write_dict(*dict, level);
    if (const Sequence* list = value.sequence(); list != nullptr && (list->is_list() || list->is_tuple())) {
      return write_list(*list, level);
    }
    fail("Object of type ", type_name(value), " is not JSON serializable");
  }

 private:
  static std::string number_text(double number) {
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return float_text(number);
  }

  static std::string key_text(const Value& key) {
    if (const String* string = key.string()) return string->text;
    if (key.is_none()) return "null";
    if (const bool* flag = key.get_if<bool>()) return *flag ? "true" : "false";
    if (key.is_integer()) return integer_text(*as_integer(key));
    if (const double* number = key.get_if<double>()) return number_text(*number);
    fail("keys must be str, int, float, bool or None, not ", type_name(key));
  }

  void new_line(std::size_t level) {
    if (!style_.indent) return;
    out_.append("\n");
    for (std::size_t i = 0; i < level; ++i) out_.append(*style_.indent);
  }

  void write_list(const Sequence& list, std::size_t level) {
    if (list.items.empty()) return out_.append("[]");
    out_.append("[");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      new_line(level + 1);
      write(list.items[i], level + 1);
    }
    new_line(level);
    out_.append("]");
  }

  void write_dict(const Dict& dict, std::size_t level) {
    if (dict.entries.empty()) return out_.append("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return is_less(out_.meter(), a->first, b->first);
      });
    }
    out_.append("{");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      new_line(level + 1);
      write_text(key_text(entries[i]->first));
      out_.append(style_.key_separator);
      write(entries[i]->second, level + 1);
    }
    new_line(level);
    out_.append("}");
  }

  void write_text(std::string_view text) {
    out_.append("\"");
    for_each_char(text, [&](char32_t c, std::string_view bytes) {
      switch (c) {
        case '"': out_.append("\\\""); return true;
        case '\\': out_.append("\\\\"); return true;
        case '\n': out_.append("\\n"); return true;
        case '\r': out_.append("\\r"); return true;
        case '\t': out_.append("\\t"); return true;
        case '\b': out_.append("\\b"); return true;
        case '\f': out_.append("\\f"); return true;
        default: break;
      }
      if (c >= 0x20 && (c < 0x7F || !style_.ensure_ascii)) {
        out_.append(bytes);
      } else if (c >= 0x10000) {
        append_hex(out_, "\\u", 0xD7C0 + (c >> 10), 4);
        append_hex(out_, "\\u", 0xDC00 + (c & 0x3FF), 4);
      } else {
        append_hex(out_, "\\u", c, 4);
      }
      return true;
    });
    out_.append("\"");
  }

  TextBuilder& out_;
  const JsonStyle& style_;
};

}  // namespace jinja
}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/printing.hpp> - values as text: str() and repr() of Python.
#pragma once

#include <kvdecode/text/detail/unicode.hpp>
#include <kvdecode/text/jinja/characters.hpp>
#include <kvdecode/text/jinja/meter.hpp>
#include <kvdecode/text/jinja/numbers.hpp>
#include <kvdecode/text/jinja/value.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

inline void append_hex(TextBuilder& out, std::string_view prefix, char32_t c, std::size_t n_digits) {
  const std::string digits = digits_of(c, 16);
  out.append(prefix);
  out.append(digits.size() < n_digits ? n_digits - digits.size() : 0, '0');
  out.append(digits);
}

inline void append_quoted(TextBuilder& out, const String& string) {
  const std::string_view text = string.text;
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  const auto append_char = [&](char32_t c, std::string_view bytes) {
    if (c == '\\' || c == static_cast<char32_t>(quote)) {
      out.append(1, '\\');
      out.append(bytes);
    } else if (c == '\n') {
      out.append("\\n");
    } else if (c == '\r') {
      out.append("\\r");
    } else if (c == '\t') {
      out.append("\\t");
    } else if (c < 0x20 || c == 0x7F || (string.is_bytes && c >= 0x80)) {
      append_hex(out, "\\x", c, 2);
    } else if (c < 0x80) {
      out.append(bytes);
    } else {
      const auto kind = kvdecode::detail::category(c);
      const bool hidden = kind >= UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CN ||
                          (kind >= UTF8PROC_CATEGORY_ZS && kind <= UTF8PROC_CATEGORY_ZP);
      if (!hidden) {
        out.append(bytes);
      } else if (c < 0x100) {
        append_hex(out, "\\x", c, 2);
      } else if (c < 0x10000) {
        append_hex(out, "\\u", c, 4);
      } else {
        append_hex(out, "\\U", c, 8);
      }
    }
    return true;
  };
  if (string.is_bytes) out.append(1, 'b');
  out.append(1, quote);
  if (string.is_bytes) {
    for (std::size_t i = 0; i < text.size(); ++i)
      append_char(static_cast<unsigned char>(text[i]), text.substr(i, 1));
  } else {
    for_each_char(text, append_char);
  }
  out.append(1, quote);
}

inline void append_repr(TextBuilder& out, const Value& value);

inline void append_reprs(TextBuilder& out, std::string_view open, const std::vector<Value>& items,
                         std::string_view close) {
  out.append(open);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(out, items[i]);
  }
  out.append(close);
}

inline void append_repr(TextBuilder& out, const Sequence& sequence) {
  switch (sequence.kind) {
    case Sequence::Kind::kList: return append_reprs(out, "[", sequence.items, "]");
    case Sequence::Kind::kTuple:
    case Sequence::Kind::kGroup:
      return append_reprs(out, "(", sequence.items, sequence.items.size() == 1 ? ",)" : ")");
    case Sequence::Kind::kKeys: return append_reprs(out, "dict_keys([", sequence.items, "])");
    case Sequence::Kind::kValues: return append_reprs(out, "dict_values([", sequence.items, "])");
    case Sequence::Kind::kItems: return append_reprs(out, "dict_items([", sequence.items, "])");
    case Sequence::Kind::kRange:
      out.append("range(" + integer_text(sequence.range[0]) + ", " + integer_text(sequence.range[1]));
      if (sequence.range[2] != 1) out.append(", " + integer_text(sequence.range[2]));
      return out.append(")");
    case Sequence::Kind::kGenerator: return out.append("<" + std::string(sequence.name) + " object>");
    case Sequence::Kind::kCycler: return out.append("<Cycler>");
  }
}

inline void append_repr(TextBuilder& out, const Value& value) {
  const Level level(out.meter());
  struct Printer {
    TextBuilder& out;
    void operator()(const None&) const { out.append("None"); }
    void operator()(const Undefined&) const { out.append("Undefined"); }
    void operator()(bool flag) const { out.append(flag ? "True" : "False"); }
    void operator()(const Integer& integer) const { out.append(integer_text(integer)); }
    void operator()(double number) const { out.append(float_text(number)); }
    void operator()(const StringPtr& string) const {
      if (string->is_markup) out.append("Markup(");
      append_quoted(out, *string);
      if (string->is_markup) out.append(")");
    }
    void operator()(const SequencePtr& sequence) const { append_repr(out, *sequence); }
    void operator()(const DictPtr& dict) const {
      out.append("{");
      bool is_first = true;
      for (const auto& [key, item] : dict->entries) {
        if (!is_first) out.append(", ");
        is_first = false;
        append_repr(out, key);
        out.append(": ");
        append_repr(out, item);
      }
      out.append("}");
    }
    void operator()(const std::shared_ptr<Namespace>& name_space) const {
      out.append("<Namespace {");
      bool is_first = true;
      for (const auto& [key, item] : name_space->entries) {
        if (!is_first) out.append(", ");
        is_first = false;
        out.append("'" + key + "': ");
        append_repr(out, item);
      }
      out.append("}>");
    }
    void operator()(const std::shared_ptr<Function>& function) const {
      if (function->kind == Function::Kind::kMacro) return out.append("<Macro '" + function->name + "'>");
      out.append("<function " + function->name + ">");
    }
    void operator()(const std::shared_ptr<Loop>&) const { out.append("<LoopContext>"); }
  };
  std::visit(Printer{out}, value.variant());
}

inline void append_str(TextBuilder& out, const Value& value) {
  if (const String* string = value.string()) return out.append(string->text);
  if (!value.is_undefined()) append_repr(out, value);
}

/// `value` as a str; strings stay what they are.
inline Value as_string(Meter& meter, const Value& value) {
  if (value.string() != nullptr) return value;
  TextBuilder text(meter);
  append_str(text, value);
  return make_string(&meter, text.take());
}

inline std::string repr(Meter& meter, const Value& value) {
  TextBuilder text(meter);
  append_repr(text, value);
  return text.take();
}

}  // namespace jinja
}  // namespace kvdecode

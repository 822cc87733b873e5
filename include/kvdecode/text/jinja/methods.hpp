// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/methods.hpp> - the methods of strings, lists and mappings that templates may call.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/detail/utf8.hpp>
#include <kvdecode/text/jinja/arguments.hpp>
#include <kvdecode/text/jinja/characters.hpp>
#include <kvdecode/text/jinja/formatting.hpp>
#include <kvdecode/text/jinja/meter.hpp>
#include <kvdecode/text/jinja/operators.hpp>
#include <kvdecode/text/jinja/printing.hpp>
#include <kvdecode/text/jinja/value.hpp>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

/// text.replace(from, to, count): count < 0 replaces all.
inline std::string replaced(Meter& meter, std::string_view text, std::string_view from, std::string_view to,
                            Index count) {
  TextBuilder out(meter);
  count_search(meter, text, from);
  std::size_t i = 0;
  for (; count != 0; --count) {
    if (from.empty()) {  // before each character and at the end
      if (i > text.size()) break;
      out.append(to);
      if (i < text.size()) {
        const std::size_t length = kvdecode::detail::utf8_length(text[i]);
        out.append(text.substr(i, length));
        i += length;
      } else {
        i = text.size() + 1;
      }
      continue;
    }
    const std::size_t found = text.find(from, i);
    if (found == std::string_view::npos) break;
    out.append(text.substr(i, found - i));
    out.append(to);
    i = found + from.size();
  }
  if (i < text.size()) out.append(text.substr(i));
  return out.take();
}

/// The items joined with `separator` between them; each must be a text.
inline Value joined(Meter& meter, const String& separator, const Value& items) {
  TextBuilder out(meter);
  Index index = 0;
  for (const Value& item : iterate(meter, items)) {
    if (index > 0) out.append(separator.text);
    if (item.string() == nullptr) {
      fail("sequence item ", index, ": expected str instance, ", type_name(item), " found");
    }
    out.append(item.string()->text);
    ++index;
  }
  return make_string(&meter, out.take(), separator.is_markup);
}

/// The methods of one string.
class StringMethods {
 public:
  StringMethods(Meter& meter, const String& self, std::string_view name, const Arguments& arguments)
      : meter_(meter), self_(self), text_(self.text), name_(name), arguments_(arguments) {}

  Value call() {
    meter_.step(text_.size());
    if (name_ == "upper") return plain(to_upper(text_));
    if (name_ == "lower" || name_ == "casefold") return plain(to_lower(text_));
    if (name_ == "capitalize") return plain(capitalized(text_));
    if (name_ == "title") return plain(titled());
    if (name_ == "swapcase") return plain(case_swapped());
    if (name_ == "strip" || name_ == "lstrip" || name_ == "rstrip") return stripped();
    if (name_ == "split" || name_ == "rsplit") return split();
    if (name_ == "splitlines") return split_lines();
    if (name_ == "partition" || name_ == "rpartition") return partition();
    if (name_ == "startswith" || name_ == "endswith") return Value(has_affix());
    if (name_ == "find" || name_ == "rfind" || name_ == "index" || name_ == "rindex") return find();
    if (name_ == "count") return count();
    if (name_ == "replace") return replace();
    if (name_ == "join") return joined(meter_, self_, bind({"iterable"}).required("iterable"));
    if (name_ == "format") return BraceFormatter(meter_, arguments_).format(self_);
    if (name_ == "zfill") return zero_filled();
    if (name_ == "center" || name_ == "ljust" || name_ == "rjust") return justified();
    if (name_ == "removeprefix" || name_ == "removesuffix") return without_affix();
    if (name_ == "encode") return encoded();
    if (name_ == "expandtabs") return tabs_expanded();
    if (name_.starts_with("is")) {
      bind({});
      return Value(is_of_kind());
    }
    kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: str.", name_, "()");
  }

 private:
  BoundArguments bind(std::initializer_list<std::string_view> names) const {
    return {name_, arguments_, names};
  }

  Value plain(std::string text) const {
    bind({});
    return make_string(&meter_, std::move(text), self_.is_markup);
  }
  Value piece(std::string_view text) const { return make_string(meter_, text, self_.is_markup); }

  std::string titled() const {
    std::string result;
    bool after_cased = false;
    for_each_char(text_, [&](char32_t c, std::string_view) {
      if (after_cased) {
        kvdecode::detail::append_lower(result, c);
      } else {
        append_upper(result, c);
      }
      after_cased = is_cased(c);
      return true;
    });
    return result;
  }

  std::string case_swapped() const {
    std::string result;
    for_each_char(text_, [&](char32_t c, std::string_view) {
      if (is_upper(c)) {
        kvdecode::detail::append_lower(result, c);
      } else {
        append_upper(result, c);
      }
      return true;
    });
    return result;
  }

  Value stripped() const {
    const BoundArguments bound = bind({"chars"});
    return piece(strip(meter_, text_, bound.optional_text("chars"), name_ != "rstrip", name_ != "lstrip"));
  }

  Value split() const {
    const BoundArguments bound = bind({"sep", "maxsplit"});
    const String* separator = bound.optional_text("sep");
    const Index limit = bound.index("maxsplit", -1);
    if (separator != nullptr && separator->text.empty()) fail("empty separator");
    if (separator != nullptr) count_search(meter_, text_, separator->text);
    const bool from_right = name_ == "rsplit" && limit >= 0;
    std::vector<std::string_view> parts;
    if (separator == nullptr) {
      from_right ? split_space_right(parts, limit) : split_space(parts, limit);
    } else if (from_right) {
      std::string_view rest = text_;
      std::size_t found = std::string_view::npos;
      for (Index n = 0; n < limit && (found = rest.rfind(separator->text)) != std::string_view::npos; ++n) {
        parts.push_back(rest.substr(found + separator->text.size()));
        rest = rest.substr(0, found);
      }
      parts.push_back(rest);
      std::reverse(parts.begin(), parts.end());
    } else {
      std::string_view rest = text_;
      std::size_t found = std::string_view::npos;
      for (Index n = 0; n != limit && (found = rest.find(separator->text)) != std::string_view::npos; ++n) {
        parts.push_back(rest.substr(0, found));
        rest = rest.substr(found + separator->text.size());
      }
      parts.push_back(rest);
    }
    return list_of(parts);
  }

  Value list_of(const std::vector<std::string_view>& parts) const {
    ListBuilder items(meter_);
    for (const std::string_view part : parts) items.push(piece(part));
    return make_list(meter_, items.take());
  }

  void split_space(std::vector<std::string_view>& parts, Index limit) const {
    std::string_view rest = strip_if(text_, true, false, is_space);
    for (Index n = 0; !rest.empty(); ++n) {
      if (n == limit) {
        parts.push_back(rest);
        return;
      }
      std::size_t end = rest.size();
      for_each_char(rest, [&](char32_t c, std::string_view bytes) {
        if (!is_space(c)) return true;
        end = static_cast<std::size_t>(bytes.data() - rest.data());
        return false;
      });
      parts.push_back(rest.substr(0, end));
      rest = strip_if(rest.substr(end), true, false, is_space);
    }
  }

  void split_space_right(std::vector<std::string_view>& parts, Index limit) const {
    std::string_view rest = strip_if(text_, false, true, is_space);
    for (Index n = 0; !rest.empty(); ++n) {
      if (n == limit) {
        parts.push_back(rest);
        break;
      }
      const std::string_view before = strip_if(rest, false, true, [](char32_t c) { return !is_space(c); });
      parts.push_back(rest.substr(before.size()));
      rest = strip_if(before, false, true, is_space);
    }
    std::reverse(parts.begin(), parts.end());
  }

  Value split_lines() const {
    const bool keeps_ends = bind({"keepends"}).flag("keepends", false);
    std::vector<std::string_view> parts;
    std::size_t begin = 0;
    std::size_t skip = 0;
    for_each_char(text_, [&](char32_t c, std::string_view bytes) {
      const auto at = static_cast<std::size_t>(bytes.data() - text_.data());
      if (at < skip) return true;
      const bool ends =
          (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
      if (!ends) return true;
      std::size_t next = at + bytes.size();
      if (c == '\r' && next < text_.size() && text_[next] == '\n') ++next;
      parts.push_back(text_.substr(begin, (keeps_ends ? next : at) - begin));
      begin = skip = next;
      return true;
    });
    if (begin < text_.size()) parts.push_back(text_.substr(begin));
    return list_of(parts);
  }

  Value partition() const {
    const BoundArguments bound = bind({"sep"});
    const std::string& separator = bound.text("sep").text;
    if (separator.empty()) fail("empty separator");
    count_search(meter_, text_, separator);
    const bool from_right = name_ == "rpartition";
    const std::size_t found = from_right ? text_.rfind(separator) : text_.find(separator);
    if (found == std::string_view::npos) {
      return from_right ? make_tuple(meter_, {piece(""), piece(""), piece(text_)})
                        : make_tuple(meter_, {piece(text_), piece(""), piece("")});
    }
    return make_tuple(meter_, {piece(text_.substr(0, found)), piece(separator),
                               piece(text_.substr(found + separator.size()))});
  }

  // The part of the text that start and end leave, and where it begins, in bytes. False: start is beyond it.
  bool window(const BoundArguments& bound, std::string_view& part, std::size_t& begin) const {
    const auto place = [&](std::string_view name, Index otherwise) {
      const Value* value = bound.find(name);
      if (value == nullptr || value->is_none()) return otherwise;
      const Index index = as_index(*value);
      return index < 0 ? std::max<Index>(index + self_.n_chars, 0) : index;
    };
    const Index first = place("start", 0);
    const Index last = std::min(place("end", self_.n_chars), self_.n_chars);
    if (first > self_.n_chars || first > last) return false;
    begin = byte_of_char(self_, first);
    part = text_.substr(begin, byte_of_char(self_, last) - begin);
    return true;
  }

  bool has_affix() const {
    const BoundArguments bound = bind({"prefix", "start", "end"});
    std::string_view part;
    std::size_t begin = 0;
    if (!window(bound, part, begin)) return false;
    const auto has = [&](const Value& affix) {
      require_defined(affix);
      meter_.step();
      if (affix.string() == nullptr) {
        fail(name_, " first arg must be str or a tuple of str, not ", type_name(affix));
      }
      return name_ == "startswith" ? part.starts_with(affix.string()->text)
                                   : part.ends_with(affix.string()->text);
    };
    const Value& affix = bound.required("prefix");
    if (affix.sequence() != nullptr && affix.sequence()->is_tuple()) {
      return std::any_of(affix.sequence()->items.begin(), affix.sequence()->items.end(), has);
    }
    return has(affix);
  }

  Value find() const {
    const BoundArguments bound = bind({"sub", "start", "end"});
    const std::string& wanted = bound.text("sub").text;
    count_search(meter_, text_, wanted);
    std::string_view part;
    std::size_t begin = 0;
    std::size_t found = std::string_view::npos;
    if (window(bound, part, begin)) found = name_.starts_with('r') ? part.rfind(wanted) : part.find(wanted);
    if (found != std::string_view::npos)
      return Value(static_cast<Integer>(count_chars(text_.substr(0, begin + found))));
    if (name_.ends_with("index")) fail("substring not found");
    return Value(Integer{-1});
  }

  Value count() const {
    const BoundArguments bound = bind({"sub", "start", "end"});
    const std::string& wanted = bound.text("sub").text;
    count_search(meter_, text_, wanted);
    std::string_view part;
    std::size_t begin = 0;
    if (!window(bound, part, begin)) return Value(Integer{0});
    if (wanted.empty()) return Value(static_cast<Integer>(count_chars(part) + 1));
    Integer n = 0;
    for (std::size_t at = part.find(wanted); at != std::string_view::npos;
         at = part.find(wanted, at + wanted.size()))
      ++n;
    return Value(n);
  }

  Value replace() const {
    const BoundArguments bound = bind({"old", "new", "count"});
    return make_string(
        &meter_,
        replaced(meter_, text_, bound.text("old").text, bound.text("new").text, bound.index("count", -1)),
        self_.is_markup);
  }

  Value zero_filled() const {
    const BoundArguments bound = bind({"width"});
    const Index missing = as_index(bound.required("width")) - self_.n_chars;
    const bool has_sign = !text_.empty() && (text_[0] == '-' || text_[0] == '+');
    TextBuilder out(meter_);
    out.append(text_.substr(0, has_sign ? 1 : 0));
    if (missing > 0) out.append(static_cast<std::size_t>(missing), '0');
    out.append(text_.substr(has_sign ? 1 : 0));
    return make_string(&meter_, out.take(), self_.is_markup);
  }

  Value justified() const {
    const BoundArguments bound = bind({"width", "fillchar"});
    const String* fill = bound.optional_text("fillchar");
    if (fill != nullptr && fill->n_chars != 1) fail("The fill character must be exactly one character long");
    FieldFormat format;
    if (fill != nullptr) format.fill = fill->text;
    format.width = std::min<Index>(as_index(bound.required("width")), Index{1} << 40);
    format.align = name_ == "ljust" ? '<' : '>';
    TextBuilder out(meter_);
    if (name_ == "center") {
      append_centered(out, format);
    } else {
      append_field(out, format, '<', "", text_);
    }
    return make_string(&meter_, out.take(), self_.is_markup);
  }

  // str.center puts the odd one on the left if the width is odd, unlike the format '^'.
  void append_centered(TextBuilder& out, FieldFormat format) const {
    const Index missing = std::max<Index>(format.width - self_.n_chars, 0);
    const Index left = missing / 2 + (missing & format.width & 1);
    format.width = self_.n_chars + left;
    format.align = '>';
    append_field(out, format, '>', "", text_);
    format.width = missing - left;
    append_field(out, format, '<', "", "");
  }

  Value without_affix() const {
    const BoundArguments bound = bind({"affix"});
    const std::string& affix = bound.text("affix").text;
    if (name_ == "removeprefix" && text_.starts_with(affix)) return piece(text_.substr(affix.size()));
    if (name_ == "removesuffix" && text_.ends_with(affix))
      return piece(text_.substr(0, text_.size() - affix.size()));
    return piece(text_);
  }

  Value encoded() const {
    const String* encoding = bind({"encoding", "errors"}).optional_text("encoding");
    const std::string name = encoding == nullptr ? "utf-8" : to_lower(encoding->text);
    if (name != "utf-8" && name != "utf8") {
      kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: str.encode to ", name.substr(0, 100));
    }
    return make_bytes(meter_, text_);
  }

  Value tabs_expanded() const {
    const Index size = bind({"tabsize"}).index("tabsize", 8);
    TextBuilder out(meter_);
    Index column = 0;
    for_each_char(text_, [&](char32_t c, std::string_view bytes) {
      if (c == '\t') {
        const Index n = size > 0 ? size - column % size : 0;
        out.append(static_cast<std::size_t>(n), ' ');
        column += n;
        return true;
      }
      column = c == '\n' || c == '\r' ? 0 : column + 1;
      out.append(bytes);
      return true;
    });
    return make_string(&meter_, out.take(), self_.is_markup);
  }

  template <class Predicate>
  bool all(Predicate&& accepts) const {
    bool result = !text_.empty();
    for_each_char(text_, [&](char32_t c, std::string_view) { return result = accepts(c); });
    return result;
  }

  bool is_of_kind() const {
    if (name_ == "isalpha") return all(is_letter);
    if (name_ == "isdigit" || name_ == "isdecimal") return all(is_decimal);
    if (name_ == "isnumeric") return all(kvdecode::detail::is_numeric);
    if (name_ == "isalnum")
      return all([](char32_t c) { return is_letter(c) || kvdecode::detail::is_numeric(c); });
    if (name_ == "isspace") return all(is_space);
    if (name_ == "isascii") return self_.is_ascii();
    if (name_ == "isupper") return has_cased() && !any_of(is_lower);
    if (name_ == "islower")
      return has_cased() && !any_of([](char32_t c) { return is_upper(c) || is_title(c); });
    if (name_ == "istitle") return is_titled();
    if (name_ == "isidentifier") {
      const bool starts_well = !text_.empty() && !is_digit(text_[0]);
      return starts_well && all([](char32_t c) { return c == '_' || is_letter(c) || is_decimal(c); });
    }
    kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: str.", name_, "()");
  }

  template <class Predicate>
  bool any_of(Predicate&& accepts) const {
    bool result = false;
    for_each_char(text_, [&](char32_t c, std::string_view) { return !(result = accepts(c)); });
    return result;
  }
  bool has_cased() const { return any_of(is_cased); }

  bool is_titled() const {
    bool after_cased = false;
    bool good = has_cased();
    for_each_char(text_, [&](char32_t c, std::string_view) {
      if (is_upper(c) || is_title(c)) good = good && !after_cased;
      if (is_lower(c)) good = good && after_cased;
      after_cased = is_cased(c);
      return good;
    });
    return good;
  }

  Meter& meter_;
  const String& self_;
  std::string_view text_;
  std::string_view name_;
  const Arguments& arguments_;
};

inline Value dict_view(Meter& meter, const Dict& dict, std::string_view name) {
  ListBuilder items(meter);
  for (const auto& [key, value] : dict.entries) {
    if (name == "keys") items.push(key);
    if (name == "values") items.push(value);
    if (name == "items") items.push(make_tuple(meter, {key, value}));
  }
  const Sequence::Kind kind = name == "keys"     ? Sequence::Kind::kKeys
                              : name == "values" ? Sequence::Kind::kValues
                                                 : Sequence::Kind::kItems;
  return make_sequence(meter, kind, items.take());
}

inline Value call_dict_method(Meter& meter, const Value& self, std::string_view name,
                              const Arguments& arguments) {
  const Dict& dict = *self.dict();
  if (name == "get") {
    const BoundArguments bound(name, arguments, {"key", "default"});
    const Value& key = bound.required("key");
    if (key.dict() != nullptr || (key.sequence() != nullptr && key.sequence()->is_list())) {
      fail("unhashable type: '", type_name(key), "'");
    }
    if (const Value* found = find_in(meter, dict, key)) return *found;
    const Value* otherwise = bound.find("default");
    return otherwise == nullptr ? Value() : *otherwise;
  }
  const BoundArguments none(name, arguments, {});
  if (name == "copy") return self;
  if (name == "fromkeys") kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: dict.fromkeys()");
  return dict_view(meter, dict, name);
}

inline Value call_sequence_method(Meter& meter, const Value& self, std::string_view name,
                                  const Arguments& arguments) {
  const Sequence& sequence = *self.sequence();
  if (sequence.kind == Sequence::Kind::kCycler) {
    const BoundArguments none(name, arguments, {});
    const std::size_t now = sequence.position;
    sequence.position = name == "reset" ? 0 : (now + 1) % sequence.items.size();
    return name == "reset" ? Value() : sequence.items[now];
  }
  if (name == "copy") {
    const BoundArguments none(name, arguments, {});
    return self;
  }
  const BoundArguments bound(name, arguments, {"value", "start", "stop"});
  const Value& wanted = bound.required("value");
  const Index length = static_cast<Index>(sequence.items.size());
  const auto place = [&](Index index) {
    return std::clamp<Index>(index < 0 ? index + length : index, 0, length);
  };
  const Index stop = place(bound.index("stop", length));
  Integer n = 0;
  for (Index i = place(bound.index("start", 0)); i < stop; ++i) {
    if (!are_equal(meter, sequence.items[static_cast<std::size_t>(i)], wanted)) continue;
    if (name == "index") return Value(static_cast<Integer>(i));
    ++n;
  }
  if (name == "index") fail(repr(meter, wanted), " is not in ", type_name(self));
  return Value(n);
}

/// self.name(arguments)
inline Value call_method(Meter& meter, const Value& self, std::string_view name, const Arguments& arguments) {
  if (const String* string = self.string()) return StringMethods(meter, *string, name, arguments).call();
  if (self.dict() != nullptr) return call_dict_method(meter, self, name, arguments);
  if (self.sequence() != nullptr) return call_sequence_method(meter, self, name, arguments);
  if (const String* bytes = self.bytes(); bytes != nullptr && name == "decode") {
    const BoundArguments any(name, arguments, {"encoding", "errors"});
    return make_string(meter, bytes->text);
  }
  if (Loop* loop = self.loop())
    return name == "cycle" ? loop->cycle(arguments) : loop->changed(meter, arguments);
  kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: ", type_name(self), ".", name, "()");
}

}  // namespace jinja
}  // namespace kvdecode

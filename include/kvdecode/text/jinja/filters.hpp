// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/filters.hpp> - what may stand behind `|`. Filters that give a generator in Python give
// one here, with its items ready.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/jinja/access.hpp>
#include <kvdecode/text/jinja/arguments.hpp>
#include <kvdecode/text/jinja/characters.hpp>
#include <kvdecode/text/jinja/filter_names.hpp>
#include <kvdecode/text/jinja/formatting.hpp>
#include <kvdecode/text/jinja/json_text.hpp>
#include <kvdecode/text/jinja/layout.hpp>
#include <kvdecode/text/jinja/meter.hpp>
#include <kvdecode/text/jinja/methods.hpp>
#include <kvdecode/text/jinja/numbers.hpp>
#include <kvdecode/text/jinja/operators.hpp>
#include <kvdecode/text/jinja/predicates.hpp>
#include <kvdecode/text/jinja/printing.hpp>
#include <kvdecode/text/jinja/value.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

inline Value apply_filter(Meter& meter, std::string_view name, const Value& value,
                          const Arguments& arguments);

/// The filters of one application.
class Filters {
 public:
  Filters(Meter& meter, std::string_view name, const Value& value, const Arguments& arguments)
      : meter_(meter), name_(name), value_(value), arguments_(arguments) {}

  Value apply() {
    if (name_ == "map") return map();
    if (name_ == "select" || name_ == "reject" || name_ == "selectattr" || name_ == "rejectattr")
      return select();
    if (name_ == "tojson") return to_json();
    if (name_ == "default" || name_ == "d") return default_value();
    if (name_ == "trim") return trimmed();
    if (name_ == "length" || name_ == "count")
      return (bind({}), Value(static_cast<Integer>(length_of(value_))));
    if (name_ == "join") return join();
    if (name_ == "list") return (bind({}), make_list(meter_, iterate(meter_, value_)));
    if (name_ == "items") return items();
    if (name_ == "string") return (bind({}), as_string(meter_, value_));
    if (name_ == "first" || name_ == "last") return (bind({}), end_item());
    if (name_ == "replace") return replace();
    if (name_ == "indent") return indent();
    if (name_ == "sort" || name_ == "unique" || name_ == "min" || name_ == "max" || name_ == "groupby")
      return by_key();
    if (name_ == "dictsort") return sorted_dict();
    if (name_ == "sum") return sum();
    if (name_ == "reverse") return (bind({}), reversed());
    if (name_ == "batch" || name_ == "slice") return name_ == "batch" ? batches() : slices();
    if (name_ == "int" || name_ == "float") return to_number();
    if (name_ == "abs" || name_ == "round") return name_ == "abs" ? absolute() : rounded();
    if (name_ == "attr") return attribute_only();
    if (name_ == "format") return format();
    return text_filter();
  }

 private:
  BoundArguments bind(std::initializer_list<std::string_view> names) const {
    return {name_, arguments_, names};
  }

  const std::string& text() {
    text_ = as_string(meter_, value_);
    meter_.step(text_.string()->text.size());
    return text_.string()->text;
  }
  bool is_markup() const { return text_.string()->is_markup; }
  Value plain(std::string result) { return make_string(&meter_, std::move(result), is_markup()); }

  Value text_filter() {
    if (name_ == "upper") return (bind({}), plain(to_upper(text())));
    if (name_ == "lower") return (bind({}), plain(to_lower(text())));
    if (name_ == "capitalize") return (bind({}), plain(capitalized(text())));
    if (name_ == "title") return (bind({}), plain(title_words(text())));
    if (name_ == "escape" || name_ == "e" || name_ == "forceescape") return (bind({}), escaped());
    if (name_ == "safe") return (bind({}), make_string(meter_, text(), true));
    if (name_ == "striptags") return (bind({}), make_string(&meter_, without_tags(text())));
    if (name_ == "wordcount") return (bind({}), Value(count_words(text())));
    if (name_ == "urlencode") return (bind({}), url_encoded());
    if (name_ == "filesizeformat") return file_size();
    if (name_ == "xmlattr") return xml_attributes();
    if (name_ == "center") {
      const BoundArguments bound = bind({"width"});
      return StringMethods(meter_, (text(), *text_.string()), "center",
                           Arguments{{Value(static_cast<Integer>(bound.index("width", 80)))}, {}})
          .call();
    }
    if (name_ == "truncate") {
      const BoundArguments bound = bind({"length", "killwords", "end", "leeway"});
      const String* end = bound.optional_text("end");
      return plain(truncated_text(text(), bound.index("length", 255), bound.flag("killwords", false),
                                  end == nullptr ? "..." : std::string_view(end->text),
                                  bound.index("leeway", 5)));
    }
    if (name_ == "wordwrap") {
      const BoundArguments bound = bind({"width", "break_long_words", "wrapstring", "break_on_hyphens"});
      const String* line_end = bound.optional_text("wrapstring");
      TextBuilder out(meter_);
      wrap_words(out, text(), bound.index("width", 79), bound.flag("break_long_words", true),
                 line_end == nullptr ? "\n" : std::string_view(line_end->text),
                 bound.flag("break_on_hyphens", true));
      return make_string(&meter_, out.take());
    }
    if (name_ == "pprint") {
      bind({});
      std::string shown = repr(meter_, value_);
      if (shown.size() > 80)
        kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: pprint of more than one line");
      return make_string(&meter_, std::move(shown));
    }
    // random would need a source of randomness, urlize a notion of what an address is.
    if (is_one_of(name_, kFilterNames)) {
      kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: the filter '", name_, "'");
    }
    fail("No filter named '", name_, "' found.");
  }

  // ---- Attributes of items ----

  // "a.b.0" of an item; several names separated by commas give a list.
  Value attribute_of(const Value& item, const Value& path, const Value* otherwise = nullptr) const {
    if (const String* string = path.string()) {
      Value found = item;
      std::string_view rest = string->text;
      for (;;) {
        const std::size_t dot = std::min(rest.find('.'), rest.size());
        const std::string_view part = rest.substr(0, dot);
        const bool is_index = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
        const auto index = is_index ? parse_integer(part, 10) : std::nullopt;
        found = get_item(meter_, found, index ? Value(*index) : make_string(meter_, part));
        if (found.is_undefined() && otherwise != nullptr) found = *otherwise;
        if (dot == rest.size()) return found;
        rest.remove_prefix(dot + 1);
      }
    }
    return get_item(meter_, item, path);
  }

  Value folded(const Value& key, bool case_sensitive) const {
    if (case_sensitive || key.string() == nullptr) return key;
    return make_string(&meter_, to_lower(key.string()->text));
  }

  Value sort_key(const Value& item, const Value* path, bool case_sensitive) const {
    if (path == nullptr || path->is_none()) return folded(item, case_sensitive);
    const String* names = path->string();
    if (names == nullptr || names->text.find(',') == std::string::npos || name_ != "sort") {
      return folded(attribute_of(item, *path), case_sensitive);
    }
    std::vector<Value> keys;
    std::string_view rest = names->text;
    for (;;) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      keys.push_back(folded(attribute_of(item, make_string(meter_, rest.substr(0, comma))), case_sensitive));
      if (comma == rest.size()) return make_list(meter_, std::move(keys));
      rest.remove_prefix(comma + 1);
    }
  }

  struct Keyed {
    Value key;
    Value item;
  };

  // Merges by hand: the order of a hostile template's values need not be one, which std::sort must not see.
  // Equal items keep their order in both directions.
  void sort_keyed(std::vector<Keyed>& items, bool descending) const {
    if (descending) std::reverse(items.begin(), items.end());
    std::vector<Keyed> merged(items.size());
    for (std::size_t width = 1; width < items.size(); width *= 2) {
      for (std::size_t begin = 0; begin < items.size(); begin += 2 * width) {
        const std::size_t middle = std::min(begin + width, items.size());
        const std::size_t end = std::min(begin + 2 * width, items.size());
        std::size_t left = begin;
        std::size_t right = middle;
        for (std::size_t out = begin; out < end; ++out) {
          bool takes_right = left == middle;
          if (left < middle && right < end) takes_right = is_less(meter_, items[right].key, items[left].key);
          merged[out] = std::move(items[takes_right ? right++ : left++]);
        }
      }
      items.swap(merged);
    }
    if (descending) std::reverse(items.begin(), items.end());
  }

  std::vector<Keyed> keyed(const Value* path, bool case_sensitive) const {
    std::vector<Keyed> result;
    const Charge charge(&meter_, static_cast<std::size_t>(
                                     value_.sequence() != nullptr ? value_.sequence()->items.size() : 0) *
                                     sizeof(Keyed));
    for (Value& item : iterate(meter_, value_))
      result.push_back({sort_key(item, path, case_sensitive), std::move(item)});
    return result;
  }

  Value by_key() {
    if (name_ == "sort") {
      const BoundArguments bound = bind({"reverse", "case_sensitive", "attribute"});
      std::vector<Keyed> items = keyed(bound.find("attribute"), bound.flag("case_sensitive", false));
      sort_keyed(items, bound.flag("reverse", false));
      return make_list(meter_, items_of(items));
    }
    if (name_ == "groupby") return groups();
    const BoundArguments bound = bind({"case_sensitive", "attribute"});
    std::vector<Keyed> items = keyed(bound.find("attribute"), bound.flag("case_sensitive", false));
    if (name_ == "unique") {
      std::vector<Keyed> kept;
      for (Keyed& item : items) {
        const bool seen = std::any_of(kept.begin(), kept.end(), [&](const Keyed& other) {
          return are_equal(meter_, other.key, item.key);
        });
        if (!seen) kept.push_back(std::move(item));
      }
      return make_generator(meter_, items_of(kept));
    }
    if (items.empty()) return make_undefined("No aggregated item, sequence was empty.");
    std::size_t best = 0;
    for (std::size_t i = 1; i < items.size(); ++i) {
      const bool better = name_ == "max" ? is_less(meter_, items[best].key, items[i].key, ">")
                                         : is_less(meter_, items[i].key, items[best].key);
      if (better) best = i;
    }
    return items[best].item;
  }

  std::vector<Value> items_of(std::vector<Keyed>& items) const {
    std::vector<Value> result;
    result.reserve(items.size());
    for (Keyed& item : items) result.push_back(std::move(item.item));
    return result;
  }

  Value groups() {
    const BoundArguments bound = bind({"attribute", "default", "case_sensitive"});
    const bool case_sensitive = bound.flag("case_sensitive", false);
    std::vector<Keyed> items;
    for (const Value& item : iterate(meter_, value_)) {
      const Value key = attribute_of(item, bound.required("attribute"), bound.find("default"));
      items.push_back({folded(key, case_sensitive), make_tuple(meter_, {key, item})});
    }
    sort_keyed(items, false);
    std::vector<Value> result;
    for (std::size_t begin = 0; begin < items.size();) {
      std::vector<Value> members;
      const Value name = items[begin].item.sequence()->items[0];
      const Value key = items[begin].key;
      for (; begin < items.size() && are_equal(meter_, items[begin].key, key); ++begin) {
        members.push_back(items[begin].item.sequence()->items[1]);
      }
      result.push_back(
          make_sequence(meter_, Sequence::Kind::kGroup, {name, make_list(meter_, std::move(members))}));
    }
    return make_list(meter_, std::move(result));
  }

  Value sorted_dict() {
    const BoundArguments bound = bind({"case_sensitive", "by", "reverse"});
    require_defined(value_);
    if (value_.dict() == nullptr) fail("'", type_name(value_), "' object has no attribute 'items'");
    const String* by = bound.optional_text("by");
    const bool by_value = by != nullptr && by->text == "value";
    if (by != nullptr && !by_value && by->text != "key")
      fail("You can only sort by either \"key\" or \"value\"");
    std::vector<Keyed> items;
    for (const auto& [key, value] : value_.dict()->entries) {
      items.push_back({folded(by_value ? value : key, bound.flag("case_sensitive", false)),
                       make_tuple(meter_, {key, value})});
    }
    sort_keyed(items, bound.flag("reverse", false));
    return make_list(meter_, items_of(items));
  }

  // ---- Lists ----

  Value map() {
    const auto& named = arguments_.named;
    ListBuilder items(meter_);
    if (!is_true(value_)) return make_generator(meter_, {});  // of none too
    if (arguments_.positional.empty()) {
      const Value* path = nullptr;
      const Value* otherwise = nullptr;
      for (const auto& [name, argument] : named) {
        if (name == "attribute") {
          path = &argument;
        } else if (name == "default") {
          otherwise = &argument;
        } else {
          fail("Unexpected keyword argument '", name, "'");
        }
      }
      if (path == nullptr) fail("map requires a filter argument");
      for (const Value& item : iterate(meter_, value_)) items.push(attribute_of(item, *path, otherwise));
      return make_generator(meter_, items.take());
    }
    require_defined(arguments_.positional[0]);
    const String* filter = arguments_.positional[0].string();
    if (filter == nullptr)
      fail("map: the name of a filter must be str, not ", type_name(arguments_.positional[0]));
    if (!is_one_of(filter->text, kFilterNames)) fail("No filter named '", filter->text, "'.");
    const Arguments rest{{arguments_.positional.begin() + 1, arguments_.positional.end()}, named};
    meter_.step(rest.positional.size() * sizeof(Value));
    for (const Value& item : iterate(meter_, value_))
      items.push(apply_filter(meter_, filter->text, item, rest));
    return make_generator(meter_, items.take());
  }

  Value select() {
    if (!is_true(value_)) return make_generator(meter_, {});  // of none too
    const bool by_attribute = name_.ends_with("attr");
    const bool wanted = name_.starts_with("select");
    const std::size_t test_place = by_attribute ? 1 : 0;
    const auto& positional = arguments_.positional;
    if (positional.size() < test_place) fail("Missing parameter for attribute name");
    const String* test = nullptr;
    Arguments rest{{}, arguments_.named};
    if (positional.size() > test_place) {
      test = positional[test_place].string();
      if (test == nullptr)
        fail("select: the name of a test must be str, not ", type_name(positional[test_place]));
      if (!is_one_of(test->text, kTestNames)) fail("No test named '", test->text, "'.");
      rest.positional.assign(positional.begin() + static_cast<Index>(test_place) + 1, positional.end());
    }
    meter_.step(rest.positional.size() * sizeof(Value));
    ListBuilder items(meter_);
    for (const Value& item : iterate(meter_, value_)) {
      const Value tested = by_attribute ? attribute_of(item, positional[0]) : item;
      const bool accepted = test == nullptr ? is_true(tested) : apply_test(meter_, test->text, tested, rest);
      if (accepted == wanted) items.push(item);
    }
    return make_generator(meter_, items.take());
  }

  Value items() {
    bind({});
    if (value_.is_undefined()) return make_generator(meter_, {});
    if (value_.dict() == nullptr) fail("Can only get item pairs from a mapping.");
    return make_generator(meter_, dict_view(meter_, *value_.dict(), "items").sequence()->items);
  }

  Value end_item() {
    const bool is_first = name_ == "first";
    Value missing =
        make_undefined(is_first ? "No first item, sequence was empty." : "No last item, sequence was empty.");
    if (const String* string = value_.string()) {
      if (string->n_chars == 0) return missing;
      return get_item(meter_, value_, Value(is_first ? Integer{0} : Integer{-1}));
    }
    if (const Sequence* sequence = value_.sequence();
        sequence != nullptr && sequence->kind == Sequence::Kind::kGenerator) {
      if (!is_first) fail("'", type_name(value_), "' object is not reversible");
      if (sequence->position >= sequence->items.size()) return missing;
      return sequence->items[sequence->position++];
    }
    const std::vector<Value> all = iterate(meter_, value_);
    if (all.empty()) return missing;
    return is_first ? all.front() : all.back();
  }

  Value reversed() {
    std::vector<Value> all = iterate(meter_, value_);
    if (const String* string = value_.string()) {
      TextBuilder out(meter_);
      for (std::size_t i = all.size(); i > 0; --i) out.append(all[i - 1].string()->text);
      return make_string(&meter_, out.take(), string->is_markup);
    }
    std::reverse(all.begin(), all.end());
    return make_generator(meter_, std::move(all), "list_reverseiterator");
  }

  Value sum() {
    const BoundArguments bound = bind({"attribute", "start"});
    const Value* path = bound.find("attribute");
    const Value* start = bound.find("start");
    Value total = start == nullptr ? Value(Integer{0}) : *start;
    for (const Value& item : iterate(meter_, value_)) {
      total = add(meter_, total, path == nullptr || path->is_none() ? item : attribute_of(item, *path));
    }
    return total;
  }

  Value batches() {
    const BoundArguments bound = bind({"linecount", "fill_with"});
    const Index size = as_index(bound.required("linecount"));
    const Value* fill = bound.find("fill_with");
    ListBuilder batches(meter_);
    std::vector<Value> batch;
    const auto finish = [&] { batches.push(make_list(meter_, std::exchange(batch, {}))); };
    for (const Value& item : iterate(meter_, value_)) {
      if (static_cast<Index>(batch.size()) == size) finish();
      batch.push_back(item);
    }
    if (!batch.empty()) {
      while (fill != nullptr && !fill->is_none() && static_cast<Index>(batch.size()) < size) {
        meter_.step();
        if (batch.size() > kMaxRange)
          kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: a batch of more than ", kMaxRange);
        batch.push_back(*fill);
      }
      finish();
    }
    return make_generator(meter_, batches.take());
  }

  Value slices() {
    const BoundArguments bound = bind({"slices", "fill_with"});
    const Index n = as_index(bound.required("slices"));
    const Value* fill = bound.find("fill_with");
    const std::vector<Value> all = iterate(meter_, value_);
    if (n == 0) fail("integer division or modulo by zero");
    ListBuilder slices(meter_);
    const Index size = static_cast<Index>(all.size());
    Index begin = 0;
    for (Index i = 0; i < n; ++i) {
      const Index end = begin + size / n + (i < size % n ? 1 : 0);
      std::vector<Value> slice(all.begin() + begin, all.begin() + end);
      if (fill != nullptr && !fill->is_none() && i >= size % n && size % n != 0) slice.push_back(*fill);
      slices.push(make_list(meter_, std::move(slice)));
      begin = end;
    }
    return make_generator(meter_, slices.take());
  }

  Value join() {
    const BoundArguments bound = bind({"d", "attribute"});
    const Value* separator = bound.find("d");
    const Value* path = bound.find("attribute");
    const Value between = as_string(meter_, separator == nullptr ? make_string(meter_, "") : *separator);
    TextBuilder out(meter_);
    bool is_first = true;
    for (const Value& item : iterate(meter_, value_)) {
      if (!is_first) out.append(between.string()->text);
      is_first = false;
      append_str(out, path == nullptr || path->is_none() ? item : attribute_of(item, *path));
    }
    return make_string(&meter_, out.take());
  }

  // ---- Numbers ----

  Value to_number() {
    const bool is_int = name_ == "int";
    const BoundArguments bound = is_int ? bind({"default", "base"}) : bind({"default"});
    const Value* given = bound.find("default");
    Value otherwise = given != nullptr ? *given : is_int ? Value(Integer{0}) : Value(0.0);
    require_defined(value_);
    if (const String* string = value_.string()) {
      meter_.step(string->text.size());
      const std::optional<Integer> whole =
          is_int ? parse_integer(string->text, bound.index("base", 10)) : std::nullopt;
      if (whole) return Value(*whole);
      const std::optional<double> number = parse_float(string->text);
      if (!number || (is_int && !std::isfinite(*number))) return otherwise;
      return is_int ? Value(truncated(*number)) : Value(*number);
    }
    if (!value_.is_number()) return otherwise;
    if (!is_int) return Value(as_double(value_));
    if (value_.is_float() && !std::isfinite(as_double(value_))) return otherwise;
    return Value(value_.is_float() ? truncated(as_double(value_)) : *as_integer(value_));
  }

  Value absolute() {
    bind({});
    require_defined(value_);
    if (!value_.is_number()) fail("bad operand type for abs(): '", type_name(value_), "'");
    if (value_.is_float()) return Value(std::fabs(as_double(value_)));
    return *as_integer(value_) < 0 ? negate(value_) : Value(*as_integer(value_));
  }

  Value rounded() {
    const BoundArguments bound = bind({"precision", "method"});
    const Index precision = bound.index("precision", 0);
    const String* method = bound.optional_text("method");
    const std::string_view how = method == nullptr ? "common" : std::string_view(method->text);
    if (how != "common" && how != "ceil" && how != "floor") fail("method must be common, ceil or floor");
    require_defined(value_);
    if (!value_.is_number()) fail("type ", type_name(value_), " doesn't define __round__ method");
    if (how == "common") {
      if (!value_.is_float() && precision >= 0) return Value(*as_integer(value_));
      return Value(round_decimal(as_double(value_), precision));
    }
    const double unit = std::pow(10.0, static_cast<double>(precision));
    const double scaled = as_double(value_) * unit;
    return Value((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
  }

  Value file_size() {
    const bool binary = bind({"binary"}).flag("binary", false);
    require_defined(value_);
    const std::optional<double> parsed =
        value_.string() != nullptr ? parse_float(value_.string()->text) : std::nullopt;
    if (!parsed && !value_.is_number()) fail("could not convert to float: ", repr(meter_, value_));
    return make_string(&meter_, file_size_text(parsed ? *parsed : as_double(value_), binary));
  }

  // ---- Texts ----

  Value default_value() {
    const BoundArguments bound = bind({"default_value", "boolean"});
    const bool by_truth = bound.flag("boolean", false);
    if (!value_.is_undefined() && !(by_truth && !is_true(value_))) return value_;
    const Value* otherwise = bound.find("default_value");
    return otherwise == nullptr ? make_string(meter_, "") : *otherwise;
  }

  Value trimmed() {
    const BoundArguments bound = bind({"chars"});
    const std::string& all = text();
    return make_string(meter_, strip(meter_, all, bound.optional_text("chars"), true, true), is_markup());
  }

  Value replace() {
    const BoundArguments bound = bind({"old", "new", "count"});
    const Value from = as_string(meter_, bound.required("old"));
    const Value to = as_string(meter_, bound.required("new"));
    const Value* count = bound.find("count");
    const Index n = count == nullptr || count->is_none() ? -1 : as_index(*count);
    return make_string(&meter_, replaced(meter_, text(), from.string()->text, to.string()->text, n));
  }

  Value indent() {
    const BoundArguments bound = bind({"width", "first", "blank"});
    const Value* width = bound.find("width");
    TextBuilder margin(meter_);
    if (width != nullptr && width->string() != nullptr) {
      margin.append(width->string()->text);
    } else {
      margin.append(static_cast<std::size_t>(std::max<Index>(bound.index("width", 4), 0)), ' ');
    }
    require_defined(value_);
    if (value_.string() == nullptr) fail_operands("+", value_, make_string(meter_, ""));
    TextBuilder out(meter_);
    indent_lines(out, text(), margin.text(), bound.flag("first", false), bound.flag("blank", false));
    return make_string(&meter_, out.take(), is_markup());
  }

  Value escaped() {
    const std::string& all = text();
    if (is_markup() && name_ != "forceescape") return text_;
    TextBuilder out(meter_);
    append_html_escaped(out, all);
    return make_string(&meter_, out.take(), true);
  }

  Value url_encoded() {
    TextBuilder out(meter_);
    if (value_.dict() != nullptr || (value_.sequence() != nullptr)) {
      const Value pairs = value_.dict() != nullptr ? dict_view(meter_, *value_.dict(), "items") : value_;
      bool is_first = true;
      for (const Value& pair : iterate(meter_, pairs)) {
        const std::vector<Value> parts = iterate(meter_, pair);
        if (parts.size() != 2) fail("not enough values to unpack (expected 2, got ", parts.size(), ")");
        if (!is_first) out.append("&");
        is_first = false;
        append_url_quoted(out, as_string(meter_, parts[0]).string()->text, true);
        out.append("=");
        append_url_quoted(out, as_string(meter_, parts[1]).string()->text, true);
      }
    } else {
      append_url_quoted(out, text(), false);
    }
    return make_string(&meter_, out.take());
  }

  Value xml_attributes() {
    const bool spaced = bind({"autospace"}).flag("autospace", true);
    require_defined(value_);
    if (value_.dict() == nullptr) fail("'", type_name(value_), "' object has no attribute 'items'");
    TextBuilder out(meter_);
    for (const auto& [key, value] : value_.dict()->entries) {
      if (value.is_none() || value.is_undefined()) continue;
      const Value key_text = as_string(meter_, key);
      if (key_text.string()->text.find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
        fail("Invalid character in attribute name: ", repr(meter_, key));
      }
      if (spaced || !out.text().empty()) out.append(" ");
      append_html_escaped(out, key_text.string()->text);
      out.append("=\"");
      append_html_escaped(out, as_string(meter_, value).string()->text);
      out.append("\"");
    }
    return make_string(&meter_, out.take());
  }

  Value attribute_only() {
    const std::string& name = bind({"name"}).text("name").text;
    require_defined(value_);
    bool found = false;
    Value result = member(meter_, value_, name, found);
    return found ? result : make_missing(meter_, value_, make_string(meter_, name));
  }

  Value format() {
    const std::string& source = text();
    if (!arguments_.named.empty() && !arguments_.positional.empty()) {
      fail("can't handle positional and keyword arguments at the same time");
    }
    Value values = make_tuple(meter_, arguments_.positional);
    if (!arguments_.named.empty()) {
      DictBuilder dict(meter_);
      for (const auto& [name, value] : arguments_.named) dict.set(name, value);
      values = dict.take();
    }
    static_cast<void>(source);
    return PercentFormatter(meter_, values).format(*text_.string());
  }

  Value to_json() {
    const BoundArguments bound = bind({"ensure_ascii", "indent", "separators", "sort_keys"});
    JsonStyle style;
    style.ensure_ascii = bound.flag("ensure_ascii", false);
    style.sort_keys = bound.flag("sort_keys", false);
    if (const Value* indent = bound.find("indent"); indent != nullptr && !indent->is_none()) {
      if (const String* string = indent->string()) {
        style.indent = string->text;
      } else {
        const Index width = std::max<Index>(as_index(*indent), 0);
        if (width > 1000)
          kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: tojson with an indent of ", width);
        style.indent = std::string(static_cast<std::size_t>(width), ' ');
      }
      style.item_separator = ",";
    }
    if (const Value* separators = bound.find("separators"); separators != nullptr && !separators->is_none()) {
      const std::vector<Value> pair = iterate(meter_, *separators);
      if (pair.size() != 2 || pair[0].string() == nullptr || pair[1].string() == nullptr) {
        fail("tojson: separators must be two texts");
      }
      style.item_separator = pair[0].string()->text;
      style.key_separator = pair[1].string()->text;
    }
    TextBuilder out(meter_);
    JsonWriter(out, style).write(value_);
    return make_string(&meter_, out.take());
  }

  Meter& meter_;
  std::string_view name_;
  const Value& value_;
  const Arguments& arguments_;
  Value text_;
};

/// value | name(arguments). @throws Error for a filter that is not there.
inline Value apply_filter(Meter& meter, std::string_view name, const Value& value,
                          const Arguments& arguments) {
  const Level level(meter);
  return Filters(meter, name, value, arguments).apply();
}

}  // namespace jinja
}  // namespace kvdecode

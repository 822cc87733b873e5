// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/predicates.hpp> - what may stand behind `is`.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/text/jinja/access.hpp>
#include <kvdecode/text/jinja/arguments.hpp>
#include <kvdecode/text/jinja/filter_names.hpp>
#include <kvdecode/text/jinja/meter.hpp>
#include <kvdecode/text/jinja/operators.hpp>
#include <kvdecode/text/jinja/value.hpp>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

/// A test and the comparison it stands for, if it is one.
struct Comparison {
  std::string_view name;
  std::string_view sign;
};
constexpr Comparison kComparisons[] = {
    {"eq", "=="}, {"equalto", "=="},    {"==", "=="}, {"ne", "!="}, {"!=", "!="},
    {"lt", "<"},  {"lessthan", "<"},    {"<", "<"},   {"le", "<="}, {"<=", "<="},
    {"gt", ">"},  {"greaterthan", ">"}, {">", ">"},   {"ge", ">="}, {">=", ">="}};

inline bool is_sequence_like(const Value& value) {
  if (const Sequence* sequence = value.sequence()) {
    return sequence->is_list() || sequence->is_tuple() || sequence->kind == Sequence::Kind::kRange;
  }
  return value.string() != nullptr || value.bytes() != nullptr || value.dict() != nullptr ||
         value.is_undefined();
}

inline bool test_parity(const Value& value, std::string_view name, const Arguments& arguments) {
  const BoundArguments none(name, arguments, {});
  require_defined(value);
  if (!value.is_number()) fail_operands("%", value, Value(Integer{2}));
  const Value remainder = floor_divide(value, Value(Integer{2}), true);
  return (as_double(remainder) == 1) == (name == "odd") && (as_double(remainder) == 0) == (name == "even");
}

/// value is name(arguments). @throws Error for a test that is not there.
inline bool apply_test(Meter& meter, std::string_view name, const Value& value, const Arguments& arguments) {
  const Level level(meter);
  for (const Comparison& comparison : kComparisons) {
    if (comparison.name == name) {
      return compare_by(meter, comparison.sign, value,
                        BoundArguments(name, arguments, {"other"}).required("other"));
    }
  }
  if (name == "in") return contains(meter, BoundArguments(name, arguments, {"seq"}).required("seq"), value);
  if (name == "odd" || name == "even") return test_parity(value, name, arguments);
  if (name == "divisibleby") {
    const Value& divisor = BoundArguments(name, arguments, {"num"}).required("num");
    if (!value.is_number() || !divisor.is_number()) fail_operands("%", value, divisor);
    return as_double(floor_divide(value, divisor, true)) == 0;
  }
  if (name == "sameas") {
    const Value& other = BoundArguments(name, arguments, {"other"}).required("other");
    if (value.variant().index() != other.variant().index()) return false;
    if (value.sequence() != nullptr) return value.sequence() == other.sequence();
    if (value.dict() != nullptr) return value.dict() == other.dict();
    return are_equal(meter, value, other);
  }
  if (!is_one_of(name, kTestNames)) fail("No test named '", name, "' found.");
  const BoundArguments none(name, arguments, {});
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "boolean") return value.is_bool();
  if (name == "true") return value.is_bool() && is_true(value);
  if (name == "false") return value.is_bool() && !is_true(value);
  if (name == "integer") return value.is_integer();
  if (name == "float") return value.is_float();
  if (name == "number") return value.is_number();
  if (name == "string") return value.string() != nullptr;
  if (name == "mapping") return value.dict() != nullptr;
  if (name == "sequence") return is_sequence_like(value);
  if (name == "iterable") {
    return is_sequence_like(value) ||
           (value.sequence() != nullptr && value.sequence()->kind != Sequence::Kind::kCycler);
  }
  if (name == "callable")
    return value.function() != nullptr || value.loop() != nullptr || value.is_undefined();
  if (name == "escaped") return value.string() != nullptr && value.string()->is_markup;
  if (name == "filter") return value.string() != nullptr && is_one_of(value.string()->text, kFilterNames);
  if (name == "test") return value.string() != nullptr && is_one_of(value.string()->text, kTestNames);
  const Value text = as_string(meter, value);
  const auto accepts = [&](bool (*is_other)(char32_t)) {
    bool cased = false;
    bool good = true;
    for_each_char(text.string()->text, [&](char32_t c, std::string_view) {
      cased = cased || is_cased(c);
      return good = !is_other(c);
    });
    return cased && good;
  };
  return name == "lower" ? accepts([](char32_t c) { return is_upper(c) || is_title(c); })
                         : accepts([](char32_t c) { return is_lower(c) || is_title(c); });
}

}  // namespace jinja
}  // namespace kvdecode

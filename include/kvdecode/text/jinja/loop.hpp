// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/loop.hpp> - what `loop` knows inside of {% for %}, and what a macro tells of itself.
#pragma once

#include <kvdecode/text/jinja/meter.hpp>
#include <kvdecode/text/jinja/operators.hpp>
#include <kvdecode/text/jinja/syntax.hpp>
#include <kvdecode/text/jinja/value.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

/// The state of one loop.
struct Loop {
  const Statement* statement = nullptr;
  std::shared_ptr<Scope> scope;  // around the loop; null once it has ended
  std::vector<Value> items;
  std::size_t index = 0;
  Index nesting = 1;        // of a recursive loop
  std::vector<Value> seen;  // by loop.changed
  bool has_seen = false;
  Charge charge;

  Value member(Meter& meter, const Value& self, std::string_view name, bool& found) const {
    found = true;
    const auto number = [](std::size_t value) { return Value(static_cast<Integer>(value)); };
    if (name == "index") return number(index + 1);
    if (name == "index0") return number(index);
    if (name == "revindex") return number(items.size() - index);
    if (name == "revindex0") return number(items.size() - index - 1);
    if (name == "first") return Value(index == 0);
    if (name == "last") return Value(index + 1 >= items.size());
    if (name == "length") return number(items.size());
    if (name == "depth") return Value(static_cast<Integer>(nesting));
    if (name == "depth0") return Value(static_cast<Integer>(nesting - 1));
    if (name == "previtem")
      return index == 0 ? make_undefined("there is no previous item") : items[index - 1];
    if (name == "nextitem") {
      return index + 1 < items.size() ? items[index + 1] : make_undefined("there is no next item");
    }
    if (name == "cycle" || name == "changed") return make_method(meter, self, name);
    found = false;
    return {};
  }

  Value cycle(const Arguments& arguments) const {
    if (arguments.positional.empty()) fail("no items for cycling given");
    return arguments.positional[index % arguments.positional.size()];
  }

  Value changed(Meter& meter, const Arguments& arguments) {
    bool same = has_seen && seen.size() == arguments.positional.size();
    for (std::size_t i = 0; same && i < seen.size(); ++i)
      same = are_equal(meter, seen[i], arguments.positional[i]);
    if (!same) {
      seen = arguments.positional;
      has_seen = true;
    }
    return Value(!same);
  }
};

/// macro.name and the like.
inline Value macro_member(Meter& meter, const Function& function, std::string_view name, bool& found) {
  found = true;
  const Macro& macro = *function.macro;
  if (name == "name") return make_string(meter, macro.name);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const std::string& parameter : macro.parameters) names.push_back(make_string(meter, parameter));
    return make_tuple(meter, std::move(names));
  }
  if (name == "caller") return Value(macro.uses_caller);
  if (name == "catch_kwargs") return Value(macro.uses_kwargs);
  if (name == "catch_varargs") return Value(macro.uses_varargs);
  found = false;
  return {};
}

}  // namespace jinja
}  // namespace kvdecode

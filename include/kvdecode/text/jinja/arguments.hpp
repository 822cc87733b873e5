// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/arguments.hpp> - the arguments of a call matched with the names of parameters.
#pragma once

#include <kvdecode/text/jinja/meter.hpp>
#include <kvdecode/text/jinja/numbers.hpp>
#include <kvdecode/text/jinja/operators.hpp>
#include <kvdecode/text/jinja/printing.hpp>
#include <kvdecode/text/jinja/value.hpp>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

/// The arguments of one call, by parameter. @throws Error if there are too many, or one that has no name here.
class BoundArguments {
 public:
  BoundArguments(std::string_view function, const Arguments& arguments,
                 std::initializer_list<std::string_view> names)
      : function_(function), arguments_(arguments), names_(names) {
    if (arguments.positional.size() > names.size()) {
      fail(function, "() takes at most ", names.size(), " arguments (", arguments.positional.size(),
           " given)");
    }
    for (const auto& named : arguments.named) {
      const auto place = std::find(names.begin(), names.end(), named.first);
      if (place == names.end()) fail(function, "() got an unexpected keyword argument '", named.first, "'");
      if (static_cast<std::size_t>(place - names.begin()) < arguments.positional.size()) {
        fail(function, "() got multiple values for argument '", named.first, "'");
      }
    }
  }

  /// The argument, or null.
  const Value* find(std::string_view name) const {
    const auto place = std::find(names_.begin(), names_.end(), name);
    const auto index = static_cast<std::size_t>(place - names_.begin());
    if (index < arguments_.positional.size()) return &arguments_.positional[index];
    for (const auto& named : arguments_.named) {
      if (named.first == name) return &named.second;
    }
    return nullptr;
  }

  const Value& required(std::string_view name) const {
    const Value* value = find(name);
    if (value == nullptr) fail(function_, "() missing 1 required positional argument: '", name, "'");
    return *value;
  }

  bool flag(std::string_view name, bool otherwise) const {
    const Value* value = find(name);
    return value == nullptr ? otherwise : is_true(*value);
  }

  Index index(std::string_view name, Index otherwise) const {
    const Value* value = find(name);
    return value == nullptr ? otherwise : as_index(*value);
  }

  /// A text. @throws Error for other values.
  const String& text(std::string_view name) const { return text_of(required(name), name); }

  /// A text, or null if it is left out or none.
  const String* optional_text(std::string_view name) const {
    const Value* value = find(name);
    return value == nullptr || value->is_none() ? nullptr : &text_of(*value, name);
  }

 private:
  const String& text_of(const Value& value, std::string_view name) const {
    require_defined(value);
    if (value.string() == nullptr)
      fail(function_, "() argument '", name, "' must be str, not ", type_name(value));
    return *value.string();
  }

  std::string_view function_;
  const Arguments& arguments_;
  std::vector<std::string_view> names_;
};

}  // namespace jinja
}  // namespace kvdecode

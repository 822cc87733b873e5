// SPDX-License-Identifier: MIT
// <kvdecode/io/json_object.hpp> - the fields of a JSON object by name and type. It remembers which were read,
// so that a field nobody asked for can be refused by name.
#pragma once

#include <kvdecode/io/json.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// A reader of one object, which has to outlive it. A field that is null counts as absent. Wrong types are
/// Errors (kBadFile) such as: config.json: num_hidden_layers must be a positive integer, got "x".
class JsonObject {
 public:
  /// @param source the file's name; @param path of the object in the file: "", or "rope_scaling."
  JsonObject(const nlohmann::json& object, std::string source, std::string path = {})
      : object_(&object), source_(std::move(source)), path_(std::move(path)) {
    if (!object.is_object()) [[unlikely]]
      detail::raise(ErrorCode::kBadFile, source_, ": ", path_.empty() ? "" : path_ + " ",
                    "must be an object, got ", detail::described(object));
  }

  /// Whether the field is there, be it null.
  bool contains(std::string_view name) const { return object_->contains(name); }
  /// The field's value; nullptr if it is absent or null. The field counts as read.
  const nlohmann::json* find(std::string_view name) {
    const auto found = object_->find(name);
    if (found == object_->end()) return nullptr;
    read_.emplace(name);
    return found->is_null() ? nullptr : &*found;
  }

  Index positive_integer(std::string_view name) {
    return required(as_positive_integer(name), name, "a positive integer");
  }
  Index positive_integer(std::string_view name, Index fallback) {
    return as_positive_integer(name).value_or(fallback);
  }
  std::optional<Index> as_positive_integer(std::string_view name) {
    return as_integer(name, 1, "must be a positive integer");
  }
  /// An integer of at least 0.
  std::optional<Index> as_natural(std::string_view name) {
    return as_integer(name, 0, "must be an integer of at least 0");
  }
  double positive_number(std::string_view name) {
    return required(as_positive_number(name), name, "a positive number");
  }
  double positive_number(std::string_view name, double fallback) {
    return as_positive_number(name).value_or(fallback);
  }
  std::optional<double> as_positive_number(std::string_view name) {
    const std::optional<double> number = as_number(name, "must be a positive number");
    if (number && *number == 0.0) [[unlikely]]
      fail(name, "must be a positive number", *find(name));
    return number;
  }
  /// A number of at least 0.
  std::optional<double> as_number(std::string_view name) {
    return as_number(name, "must be a number of at least 0");
  }
  /// A list of positive numbers. None if the field is absent.
  std::optional<std::vector<double>> as_positive_numbers(std::string_view name) {
    const nlohmann::json* const value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_array()) [[unlikely]]
      fail(name, "must be a list of positive numbers", *value);
    std::vector<double> numbers;
    for (const nlohmann::json& item : *value) {
      numbers.push_back(item.is_number() ? item.get<double>() : 0.0);
      if (!(numbers.back() > 0.0) || !std::isfinite(numbers.back())) [[unlikely]]
        fail(name, "must be a list of positive numbers", item);
    }
    return numbers;
  }
  bool boolean(std::string_view name, bool fallback) {
    const nlohmann::json* const value = find(name);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) [[unlikely]]
      fail(name, "must be true or false", *value);
    return value->get<bool>();
  }
  std::optional<std::string> as_string(std::string_view name) {
    const nlohmann::json* const value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) [[unlikely]]
      fail(name, "must be a string", *value);
    return value->get<std::string>();
  }
  std::string string(std::string_view name, std::string_view fallback) {
    return as_string(name).value_or(std::string(fallback));
  }
  /// A list of strings. None if the field is absent.
  std::optional<std::vector<std::string>> as_strings(std::string_view name) {
    const nlohmann::json* const value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_array()) [[unlikely]]
      fail(name, "must be a list of strings", *value);
    std::vector<std::string> strings;
    for (const nlohmann::json& item : *value) {
      if (!item.is_string()) [[unlikely]]
        fail(name, "must be a list of strings", item);
      strings.push_back(item.get<std::string>());
    }
    return strings;
  }
  std::optional<JsonObject> as_object(std::string_view name) {
    const nlohmann::json* const value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_object()) [[unlikely]]
      fail(name, "must be an object", *value);
    return JsonObject(*value, source_, path_ + std::string(name) + ".");
  }
  /// Integers of at least 0 and below `limit`: one, or a list of them. None if the field is absent.
  std::optional<std::vector<Index>> as_indices(std::string_view name, Index limit) {
    const nlohmann::json* const value = find(name);
    if (value == nullptr) return std::nullopt;
    std::vector<Index> indices;
    const auto add = [&](const nlohmann::json& item) {
      if (!item.is_number_unsigned() || item.get<std::uint64_t>() >= static_cast<std::uint64_t>(limit))
          [[unlikely]]
        fail(name, "must be an integer from 0 to " + std::to_string(limit - 1) + ", or a list of them", item);
      indices.push_back(static_cast<Index>(item.get<std::uint64_t>()));
    };
    if (value->is_array())
      for (const nlohmann::json& item : *value) add(item);
    else
      add(*value);
    return indices;
  }

  /// Fields with a value that nothing has read, in alphabetical order.
  std::vector<std::string> unread() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : object_->items())
      if (!value.is_null() && read_.find(name) == read_.end()) names.push_back(name);
    return names;
  }
  bool empty() const noexcept { return object_->empty(); }
  const std::string& source() const noexcept { return source_; }
  /// How errors call a field of this object: "rope_scaling.factor".
  std::string name_of(std::string_view name) const { return path_ + std::string(name); }

 private:
  std::optional<Index> as_integer(std::string_view name, std::uint64_t least, std::string_view expected) {
    const nlohmann::json* const value = find(name);
    if (value == nullptr) return std::nullopt;
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() < least ||
        value->get<std::uint64_t>() > kMax) [[unlikely]]
      fail(name, expected, *value);
    return static_cast<Index>(value->get<std::uint64_t>());
  }
  std::optional<double> as_number(std::string_view name, std::string_view expected) {
    const nlohmann::json* const value = find(name);
    if (value == nullptr) return std::nullopt;
    const double number = value->is_number() ? value->get<double>() : -1.0;
    if (!(number >= 0.0) || !std::isfinite(number)) [[unlikely]]
      fail(name, expected, *value);
    return number;
  }
  template <class T>
  T required(std::optional<T> value, std::string_view name, std::string_view expected) const {
    if (!value) [[unlikely]]
      detail::raise(ErrorCode::kBadFile, source_, ": ", path_, name, " is missing, expected ", expected);
    return *std::move(value);
  }
  [[noreturn]] void fail(std::string_view name, std::string_view expected, const nlohmann::json& got) const {
    detail::raise(ErrorCode::kBadFile, source_, ": ", path_, name, " ", expected, ", got ",
                  detail::described(got));
  }

  const nlohmann::json* object_;
  std::string source_;
  std::string path_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace kvdecode

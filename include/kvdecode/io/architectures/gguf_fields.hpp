// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/gguf_fields.hpp> - the metadata that describes a model: the keys under the name
// of its architecture. It remembers which were read, so that one nobody asked for can be refused by name.
#pragma once

#include <kvdecode/io/gguf_metadata.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>

#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// A reader of the keys that begin with "<architecture>.", which are named without it. The metadata has to
/// outlive it. A value of another type is an Error (kBadFile) that names the key, as is one that is missing.
class GgufFields {
 public:
  GgufFields(const GgufMetadata& metadata, std::string_view architecture)
      : metadata_(&metadata), prefix_(std::string(architecture) + ".") {}

  bool contains(std::string_view name) const { return metadata_->contains(name_of(name)); }
  bool is_array(std::string_view name) const {
    const GgufValue* const value = metadata_->find(name_of(name));
    return value != nullptr && value->is_array;
  }

  std::optional<Index> as_positive_integer(std::string_view name) {
    const std::optional<std::int64_t> value = metadata_->as_integer(read(name));
    if (value && *value <= 0) [[unlikely]]
      fail(name, "a positive integer");
    return value;
  }
  std::optional<Index> as_natural(std::string_view name) {
    const std::optional<std::int64_t> value = metadata_->as_integer(read(name));
    if (value && *value < 0) [[unlikely]]
      fail(name, "an integer of at least 0");
    return value;
  }
  Index positive_integer(std::string_view name) {
    return required(as_positive_integer(name), name, "a positive integer");
  }
  Index positive_integer(std::string_view name, Index fallback) {
    return as_positive_integer(name).value_or(fallback);
  }
  std::optional<double> as_positive_number(std::string_view name) {
    const std::optional<double> value = metadata_->as_number(read(name));
    if (value && (!(*value > 0.0) || !std::isfinite(*value))) [[unlikely]]
      fail(name, "a positive number");
    return value;
  }
  double positive_number(std::string_view name) {
    return required(as_positive_number(name), name, "a positive number");
  }
  double positive_number(std::string_view name, double fallback) {
    return as_positive_number(name).value_or(fallback);
  }
  std::optional<std::string_view> as_string(std::string_view name) {
    return metadata_->as_string(read(name));
  }
  std::optional<bool> as_boolean(std::string_view name) { return metadata_->as_boolean(read(name)); }
  std::optional<std::vector<bool>> as_booleans(std::string_view name) {
    return metadata_->as_booleans(read(name));
  }

  /// Keys of the architecture that nothing has read, in full, in alphabetical order.
  std::vector<std::string> unread() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : metadata_->entries())
      if (key.starts_with(prefix_) && read_.find(key) == read_.end()) keys.emplace_back(key);
    return keys;
  }
  const std::string& source() const noexcept { return metadata_->source(); }
  /// The key in full: "llama.block_count".
  std::string name_of(std::string_view name) const { return prefix_ + std::string(name); }

 private:
  std::string read(std::string_view name) {
    std::string key = name_of(name);
    read_.insert(key);
    return key;
  }
  template <class T>
  T required(std::optional<T> value, std::string_view name, std::string_view expected) const {
    if (!value) [[unlikely]]
      detail::raise(ErrorCode::kBadFile, source(), ": ", name_of(name), " is missing, expected ", expected);
    return *value;
  }
  [[noreturn]] void fail(std::string_view name, std::string_view expected) const {
    const std::string key = name_of(name);
    metadata_->fail(key, expected, *metadata_->find(key));
  }

  const GgufMetadata* metadata_;
  std::string prefix_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace kvdecode

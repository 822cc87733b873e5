// SPDX-License-Identifier: MIT
// <kvdecode/io/gguf_metadata.hpp> - the metadata of a GGUF file as a plain view of keys and values, where
// they lie. Nothing is copied before it is asked for.
#pragma once

#include <kvdecode/io/json.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// The type of a value, as files number them.
enum class GgufValueType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// "uint32", as the format's description calls it.
constexpr std::string_view to_string(GgufValueType type) {
  constexpr std::string_view names[] = {"uint8",  "int8",    "uint16",  "int16",  "uint32",
                                        "int32",  "float32", "boolean", "string", "array",
                                        "uint64", "int64",   "float64"};
  return static_cast<std::size_t>(type) < std::size(names) ? names[static_cast<std::size_t>(type)] : "?";
}

/// The bytes of one value; none for strings, arrays and what is no type.
constexpr std::optional<std::size_t> n_bytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool: return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16: return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32: return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64: return 8;
    default: return std::nullopt;
  }
}

/// One value or an array of them, checked: `bytes` holds `size` of `type`, strings each after their length.
struct GgufValue {
  GgufValueType type = GgufValueType::kU8;  // of the elements; never kArray
  bool is_array = false;
  std::uint64_t size = 1;
  std::span<const std::byte> bytes;
};

namespace detail {

template <class T>
T load_at(std::span<const std::byte> bytes, std::uint64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

/// Calls f with element i of an array of numbers or booleans, as the C++ type that it is.
template <class F>
auto visit_number(const GgufValue& value, std::uint64_t i, F&& f) {
  switch (value.type) {
    case GgufValueType::kU8: return f(load_at<std::uint8_t>(value.bytes, i));
    case GgufValueType::kI8: return f(load_at<std::int8_t>(value.bytes, i));
    case GgufValueType::kU16: return f(load_at<std::uint16_t>(value.bytes, i));
    case GgufValueType::kI16: return f(load_at<std::int16_t>(value.bytes, i));
    case GgufValueType::kU32: return f(load_at<std::uint32_t>(value.bytes, i));
    case GgufValueType::kI32: return f(load_at<std::int32_t>(value.bytes, i));
    case GgufValueType::kU64: return f(load_at<std::uint64_t>(value.bytes, i));
    case GgufValueType::kI64: return f(load_at<std::int64_t>(value.bytes, i));
    case GgufValueType::kF32: return f(load_at<float>(value.bytes, i));
    case GgufValueType::kF64: return f(load_at<double>(value.bytes, i));
    default: return f(load_at<std::uint8_t>(value.bytes, i) != 0);
  }
}

/// Element i as a 64-bit integer; none if it is no integer or beyond.
inline std::optional<std::int64_t> integer_at(const GgufValue& value, std::uint64_t i) {
  if (value.type == GgufValueType::kString) return std::nullopt;
  return visit_number(value, i, [](auto x) -> std::optional<std::int64_t> {
    if constexpr (std::is_floating_point_v<decltype(x)> || std::is_same_v<decltype(x), bool>) {
      return std::nullopt;
    } else {
      if (!std::in_range<std::int64_t>(x)) return std::nullopt;
      return static_cast<std::int64_t>(x);
    }
  });
}

/// Element i as a double; none if it is no number.
inline std::optional<double> number_at(const GgufValue& value, std::uint64_t i) {
  if (value.type == GgufValueType::kString || value.type == GgufValueType::kBool) return std::nullopt;
  return visit_number(value, i, [](auto x) { return std::optional<double>(static_cast<double>(x)); });
}

/// Element i as a boolean; none if it is none.
inline std::optional<bool> boolean_at(const GgufValue& value, std::uint64_t i) {
  if (value.type != GgufValueType::kBool) return std::nullopt;
  return value.bytes[i] != std::byte{0};
}

/// A value as an error message shows it.
inline std::string described(const GgufValue& value) {
  if (value.is_array)
    return "an array of " + std::to_string(value.size) + " of type " + std::string(to_string(value.type));
  if (value.type == GgufValueType::kString)
    return in_quotes({reinterpret_cast<const char*>(value.bytes.data()) + 8, value.bytes.size() - 8});
  return visit_number(value, 0, [](auto x) {
    std::string text;
    if constexpr (std::is_same_v<decltype(x), bool>)
      text = x ? "true" : "false";
    else
      append_text(text, x);
    return text;
  });
}

}  // namespace detail

/// The keys and values of a file, each key once. What as_…() gives is absent if the key is; a value of
/// another type is an Error (kBadFile) such as: model.gguf: llama.block_count must be an integer, got "x".
/// Views live as long as the file's bytes.
class GgufMetadata {
 public:
  using Entry = std::pair<std::string_view, GgufValue>;

  GgufMetadata() = default;
  /// @pre the entries are sorted by key, each key once
  GgufMetadata(std::vector<Entry> entries, std::string source)
      : entries_(std::move(entries)), source_(std::move(source)) {}

  /// All of them, by key.
  std::span<const Entry> entries() const noexcept { return entries_; }
  /// The value of that key; nullptr if there is none.
  const GgufValue* find(std::string_view key) const noexcept {
    const auto found =
        std::lower_bound(entries_.begin(), entries_.end(), key,
                         [](const Entry& entry, std::string_view wanted) { return entry.first < wanted; });
    return found != entries_.end() && found->first == key ? &found->second : nullptr;
  }
  bool contains(std::string_view key) const noexcept { return find(key) != nullptr; }

  std::optional<std::string_view> as_string(std::string_view key) const {
    return single(key, "a string", [](const GgufValue& value) {
      return value.type == GgufValueType::kString ? std::optional(string_at(value.bytes, 0).first)
                                                  : std::nullopt;
    });
  }
  std::optional<std::int64_t> as_integer(std::string_view key) const {
    return single(key, "an integer", [](const GgufValue& value) { return detail::integer_at(value, 0); });
  }
  std::optional<double> as_number(std::string_view key) const {
    return single(key, "a number", [](const GgufValue& value) { return detail::number_at(value, 0); });
  }
  std::optional<bool> as_boolean(std::string_view key) const {
    return single(key, "true or false", [](const GgufValue& value) { return detail::boolean_at(value, 0); });
  }

  std::optional<std::vector<std::string_view>> as_strings(std::string_view key) const {
    const GgufValue* const value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_array || value->type != GgufValueType::kString) [[unlikely]]
      fail(key, "an array of strings", *value);
    std::vector<std::string_view> strings;
    strings.reserve(value->size);
    std::size_t at = 0;
    for (std::uint64_t i = 0; i < value->size; ++i) {
      const auto [text, next] = string_at(value->bytes, at);
      strings.push_back(text);
      at = next;
    }
    return strings;
  }
  std::optional<std::vector<std::int64_t>> as_integers(std::string_view key) const {
    return array<std::int64_t>(key, "an array of integers", &detail::integer_at);
  }
  std::optional<std::vector<double>> as_numbers(std::string_view key) const {
    return array<double>(key, "an array of numbers", &detail::number_at);
  }
  std::optional<std::vector<bool>> as_booleans(std::string_view key) const {
    return array<bool>(key, "an array of booleans", &detail::boolean_at);
  }

  /// What errors name: the file.
  const std::string& source() const noexcept { return source_; }
  [[noreturn]] void fail(std::string_view key, std::string_view expected, const GgufValue& got) const {
    detail::raise(ErrorCode::kBadFile, source_, ": ", key, " must be ", expected, ", got ",
                  detail::described(got));
  }

 private:
  /// The string at a place, and the place after it.
  static std::pair<std::string_view, std::size_t> string_at(std::span<const std::byte> bytes,
                                                            std::size_t at) {
    std::uint64_t n = 0;
    std::memcpy(&n, bytes.data() + at, sizeof n);
    at += sizeof n;
    return {{reinterpret_cast<const char*>(bytes.data()) + at, n}, at + n};
  }
  template <class Get>
  auto single(std::string_view key, std::string_view expected, Get get) const
      -> decltype(get(std::declval<const GgufValue&>())) {
    const GgufValue* const value = find(key);
    if (value == nullptr) return std::nullopt;
    const auto result = value->is_array ? std::nullopt : get(*value);
    if (!result) [[unlikely]]
      fail(key, expected, *value);
    return result;
  }
  template <class T>
  std::optional<std::vector<T>> array(std::string_view key, std::string_view expected,
                                      std::optional<T> (*get)(const GgufValue&, std::uint64_t)) const {
    const GgufValue* const value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_array) [[unlikely]]
      fail(key, expected, *value);
    std::vector<T> elements;
    elements.reserve(value->size);
    for (std::uint64_t i = 0; i < value->size; ++i) {
      const std::optional<T> element = get(*value, i);
      if (!element) [[unlikely]]
        fail(key, expected, *value);
      elements.push_back(*element);
    }
    return elements;
  }

  std::vector<Entry> entries_;
  std::string source_;
};

}  // namespace kvdecode

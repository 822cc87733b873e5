// SPDX-License-Identifier: MIT
// Support for the tests of GGUF files: files written by hand, right or wrong.
#pragma once

#include <kvdecode/core/types.hpp>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace io_test {

/// Collects values and tensors and writes them as a file of version 3.
class GgufWriter {
 public:
  std::uint32_t alignment = 32;  // of the data; whether a key says so is up to the caller

  template <class T>
  void value(std::string_view key, const T& x) {
    raw_value(key, type_of<T>(), bytes_of(x));
  }
  template <class T>
  void array(std::string_view key, const std::vector<T>& elements) {
    std::string bytes = bytes_of(type_of<T>()) + bytes_of(static_cast<std::uint64_t>(elements.size()));
    for (const T& x : elements) bytes += bytes_of(x);
    raw_value(key, 9, bytes);
  }
  /// A value of any type, as its bytes.
  void raw_value(std::string_view key, std::uint32_t type, std::string_view bytes) {
    values_ += bytes_of(key) + bytes_of(type) + std::string(bytes);
    ++n_values_;
  }
  /// @param shape outermost extent first  @param offset where a file may lie about it
  void tensor(std::string_view name, std::vector<kvdecode::Index> shape, std::uint32_t type,
              std::string_view data, std::optional<std::uint64_t> offset = {}) {
    records_ += bytes_of(name) + bytes_of(static_cast<std::uint32_t>(shape.size()));
    for (std::size_t i = shape.size(); i-- > 0;) records_ += bytes_of(static_cast<std::uint64_t>(shape[i]));
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    records_ += bytes_of(type) + bytes_of(offset.value_or(data_.size()));
    data_ += data;
    ++n_tensors_;
  }

  std::string bytes() const {
    std::string file =
        "GGUF" + bytes_of(std::uint32_t{3}) + bytes_of(n_tensors_) + bytes_of(n_values_) + values_ + records_;
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data_;
  }

 private:
  template <class T>
  static std::string bytes_of(const T& x) {
    if constexpr (std::is_convertible_v<T, std::string_view>) {
      const std::string_view text = x;
      return bytes_of(static_cast<std::uint64_t>(text.size())) + std::string(text);
    } else {
      std::string bytes(sizeof x, '\0');
      std::memcpy(bytes.data(), &x, sizeof x);
      return bytes;
    }
  }
  template <class T>
  static constexpr std::uint32_t type_of() {
    if constexpr (std::is_same_v<T, std::uint8_t>) return 0;
    if constexpr (std::is_same_v<T, std::int8_t>) return 1;
    if constexpr (std::is_same_v<T, std::uint16_t>) return 2;
    if constexpr (std::is_same_v<T, std::int16_t>) return 3;
    if constexpr (std::is_same_v<T, std::uint32_t>) return 4;
    if constexpr (std::is_same_v<T, std::int32_t>) return 5;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_convertible_v<T, std::string_view>) return 8;
    if constexpr (std::is_same_v<T, std::uint64_t>) return 10;
    if constexpr (std::is_same_v<T, std::int64_t>) return 11;
    if constexpr (std::is_same_v<T, double>) return 12;
  }

  std::string values_, records_, data_;
  std::uint64_t n_values_ = 0, n_tensors_ = 0;
};

}  // namespace io_test

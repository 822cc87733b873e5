// SPDX-License-Identifier: MIT
// <support/stored_tensors.hpp> - the tensors of a safetensors file of our own, for tests of layers below io.
#pragma once

#include <kvdecode/core/types.hpp>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace kvdecode_test {

/// Reads tests/data/NAME.safetensors, whose header has no blanks and no escapes.
class StoredTensors {
 public:
  explicit StoredTensors(const std::string& name) {
    const std::string path = std::string(KVDECODE_TEST_DATA_DIR) + "/" + name + ".safetensors";
    std::ifstream file(path, std::ios::binary);
    bytes_ = std::string(std::istreambuf_iterator<char>(file), {});
    std::uint64_t n_header = 0;
    if (bytes_.size() < sizeof n_header) throw std::runtime_error("cannot read " + path);
    std::memcpy(&n_header, bytes_.data(), sizeof n_header);
    header_ = bytes_.substr(8, n_header);
    data_ = 8 + n_header;
  }

  /// All elements of a tensor whose elements are Ts.
  template <class T>
  std::vector<T> read(const std::string& tensor) const {
    const std::size_t record = header_.find("\"" + tensor + "\":");
    if (record == std::string::npos) throw std::runtime_error("no tensor " + tensor);
    const std::string_view key = "\"data_offsets\":[";
    const std::size_t at = header_.find(key, record) + key.size();
    const std::size_t begin = std::stoull(header_.substr(at));
    const std::size_t end = std::stoull(header_.substr(header_.find(',', at) + 1));
    std::vector<T> values((end - begin) / sizeof(T));
    std::memcpy(values.data(), bytes_.data() + data_ + begin, values.size() * sizeof(T));
    return values;
  }

 private:
  std::string bytes_;
  std::string header_;
  std::size_t data_ = 0;
};

}  // namespace kvdecode_test

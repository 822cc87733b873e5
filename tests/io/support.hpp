// SPDX-License-Identifier: MIT
// Support for the tests of io/: errors with the words they must have, folders that vanish, and safetensors
// files written by hand, right or wrong.
#pragma once

#include <kvdecode/core/error.hpp>

#include <doctest/doctest.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace io_test {

/// The Error that f() throws; none if it returns.
template <class F>
std::optional<kvdecode::Error> error_of(F&& f) {
  try {
    f();
  } catch (const kvdecode::Error& error) {
    return error;
  }
  return std::nullopt;
}

/// f() throws an Error of that code, with all these words in its text.
template <class F>
void check_error(kvdecode::ErrorCode code, std::initializer_list<std::string_view> words, F&& f) {
  const std::optional<kvdecode::Error> error = error_of(f);
  if (!error) {
    CHECK_MESSAGE(false, "no Error was thrown");
    return;
  }
  const std::string text = error->what();
  CHECK_MESSAGE(error->code() == code, to_string(error->code()), ": ", text);
  for (const std::string_view word : words)
    CHECK_MESSAGE(text.find(word) != std::string::npos, "\"", word, "\" is not in: ", text);
}

/// A folder of its own, removed with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kvdecode-io-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  /// Writes a file and returns its path.
  std::filesystem::path write(std::string_view name, std::string_view text) const {
    std::ofstream file(path_ / name, std::ios::binary);
    file << text;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A safetensors file of a header as it stands and bytes of data; `n_header` may lie.
inline std::string raw_safetensors(std::string_view header, std::string_view data,
                                   std::optional<std::uint64_t> n_header = {}) {
  const std::uint64_t n = n_header.value_or(header.size());
  std::string file(sizeof n, '\0');
  std::memcpy(file.data(), &n, sizeof n);
  return file.append(header).append(data);
}

/// The bytes of a text, on the heap with nothing after them, so that a sanitizer sees a step too far.
struct HeapBytes {
  explicit HeapBytes(std::string_view text)
      : owner(new std::byte[text.size()], std::default_delete<std::byte[]>()),
        bytes(owner.get(), text.size()) {
    if (!text.empty()) std::memcpy(owner.get(), text.data(), text.size());
  }
  std::shared_ptr<std::byte> owner;
  std::span<const std::byte> bytes;
};

}  // namespace io_test

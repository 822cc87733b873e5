// SPDX-License-Identifier: MIT
// Reading of the golden files, for the tests of this folder.
#pragma once

#include <kvdecode/core/types.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace kvdecode_test {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::string tokenizer_data(const std::string& name) {
  return std::string(KVDECODE_TEST_DATA_DIR) + "/tokenizers/" + name;
}

inline nlohmann::json read_json(const std::string& path) { return nlohmann::json::parse(read_file(path)); }

inline std::string to_text(const std::vector<kvdecode::TokenId>& ids) {
  std::string text;
  for (const kvdecode::TokenId id : ids) text += std::to_string(id) + " ";
  return text;
}

}  // namespace kvdecode_test

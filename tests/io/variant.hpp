// SPDX-License-Identifier: MIT
// A golden model whose config and tensors a test may change, and load again.
#pragma once

#include <kvdecode/io/huggingface_model.hpp>
#include <kvdecode/io/safetensors_writer.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "support.hpp"

namespace io_test {

using kvdecode::LoadedModel;
using kvdecode::SafetensorsFile;
using kvdecode::SafetensorsTensor;

inline const std::filesystem::path kGolden = std::filesystem::path(KVDECODE_TEST_DATA_DIR) / "golden";

/// A golden model in a folder of its own, with its tensors and config open to change.
class Variant {
 public:
  explicit Variant(const char* name)
      : original_(kGolden / name / "model.safetensors"),
        config(nlohmann::json::parse(read_text(kGolden / name / "config.json"))),
        tensors(original_.tensors().begin(), original_.tensors().end()) {}

  SafetensorsTensor& tensor(std::string_view name) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const SafetensorsTensor& tensor) { return tensor.name == name; });
    REQUIRE(found != tensors.end());
    return *found;
  }
  void remove(std::string_view name) {
    std::erase_if(tensors, [&](const SafetensorsTensor& tensor) { return tensor.name == name; });
  }
  void write_config() const { folder.write("config.json", config.dump()); }
  LoadedModel load() const {
    write_config();
    kvdecode::write_safetensors(folder.path() / "model.safetensors", tensors);
    return kvdecode::load_huggingface_model(folder.path());
  }
  /// Writes the tensors in two shards, the first with those that `is_first` names, and an index.
  void write_shards(const std::function<bool(const std::string&)>& is_first) {
    write_config();
    std::vector<SafetensorsTensor> shards[2];
    for (const SafetensorsTensor& tensor : tensors) {
      shards[is_first(tensor.name) ? 0 : 1].push_back(tensor);
      index["weight_map"][tensor.name] =
          is_first(tensor.name) ? "model-1.safetensors" : "model-2.safetensors";
    }
    kvdecode::write_safetensors(folder.path() / "model-1.safetensors", shards[0]);
    kvdecode::write_safetensors(folder.path() / "model-2.safetensors", shards[1]);
    write_index();
  }
  void write_index() const { folder.write("model.safetensors.index.json", index.dump()); }

 private:
  SafetensorsFile original_;

 public:
  TemporaryFolder folder;
  nlohmann::json config;
  nlohmann::json index = {{"metadata", {{"total_size", 1}}}};
  std::vector<SafetensorsTensor> tensors;
};

}  // namespace io_test

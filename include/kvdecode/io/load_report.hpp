// SPDX-License-Identifier: MIT
// <kvdecode/io/load_report.hpp> - what loading a model did, as data.
#pragma once

#include <kvdecode/core/format_id.hpp>
#include <kvdecode/core/types.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// How much of a model is stored in one format.
struct FormatUse {
  FormatId format = FormatId::kF32;
  Index n_tensors = 0;
  std::uint64_t n_bytes = 0;

  friend bool operator==(const FormatUse&, const FormatUse&) = default;
};

/// A tensor that was there and not used.
struct IgnoredTensor {
  std::string name;
  std::string reason;
};

/// What was read, what was used, and what was left aside and why.
struct LoadReport {
  std::string architecture;        // as the files call it
  std::vector<std::string> files;  // paths of those that hold tensors
  Index n_tensors = 0;             // used
  std::uint64_t n_parameters = 0;  // numbers in them
  std::uint64_t n_bytes = 0;       // of them, in place
  std::vector<FormatUse> formats;  // they are stored in
  std::vector<IgnoredTensor> ignored_tensors;
  std::vector<std::string> ignored_fields;  // of the config: known not to change what the model computes
};

}  // namespace kvdecode

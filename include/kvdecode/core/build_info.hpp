// SPDX-License-Identifier: MIT
// <kvdecode/core/build_info.hpp> - what this translation unit was compiled for, as data.
#pragma once

#include <kvdecode/core/simd/lanes.hpp>

#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

struct BuildInfo {
  std::string_view version;          // "0.1.0"
  std::string_view instruction_set;  // "avx512", "avx2_fma", "neon", "sse2", "portable", …
  std::string_view compiler;
  int float_lanes_per_register;
  int double_lanes_per_register;
  bool has_hardware_fma;  // false: each fused multiply-add is computed in software, the same bits many times
                          // slower
  bool checked;           // KVDECODE_CHECKED
};

constexpr BuildInfo build_info() {
  return {
    KVDECODE_DETAIL_STRING(KVDECODE_VERSION_MAJOR)
    "." KVDECODE_DETAIL_STRING(KVDECODE_VERSION_MINOR) "." KVDECODE_DETAIL_STRING(KVDECODE_VERSION_PATCH),
        KVDECODE_DETAIL_STRING(KVDECODE_ISA),
#if defined(__clang__)
        "clang " __clang_version__,
#else
        "g++ " __VERSION__,
#endif
        Lanes<float>::width, Lanes<double>::width, KVDECODE_HAS_FMA != 0, KVDECODE_CHECKED != 0
  };
}

}  // namespace kvdecode

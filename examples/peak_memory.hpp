// SPDX-License-Identifier: MIT
// The most memory that this process has had, as the system counts it.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace program {

/// Bytes, mapped files included; nothing where the system does not tell.
inline std::optional<std::uint64_t> peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (std::uint64_t kib = 0; word == "VmHWM:" && status >> kib) return kib * 1024;
  return std::nullopt;
}

/// From here on peak_memory() is the most since now; false where the system does not offer that.
inline bool reset_peak_memory() {
#if defined(__GLIBC__)
  ::malloc_trim(0);  // what is free already would count
#endif
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;  // proc(5)
  return file.good();
}

}  // namespace program

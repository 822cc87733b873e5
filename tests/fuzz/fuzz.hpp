// SPDX-License-Identifier: MIT
// What the fuzz targets share. An Error is an answer; a claim that does not hold, memory out of proportion, and any
// other exception are findings: they end the program, and libFuzzer keeps the input.
#pragma once

#include <kvdecode/core/error.hpp>

#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace fuzz {

/// Makes a finding of the input unless the claim holds.
inline void require(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", claim);
  std::abort();
}

/// Whether it fits a line.
inline bool is_plain(std::string_view text) {
  return text.size() < 2000 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

/// Whether f() returns; false if it throws an Error, whose text must be one short printable line.
template <class F>
bool accepts(F&& f) {
  try {
    f();
    return true;
  } catch (const kvdecode::Error& error) {
    require(is_plain(error.what()), "errors are short and printable");
    return false;
  }
}

/// Bytes on the heap with nothing after them, so that a step too far is seen.
struct HeapBytes {
  explicit HeapBytes(std::span<const std::uint8_t> input)
      : owner(new std::byte[input.size()], std::default_delete<std::byte[]>()),
        bytes(owner.get(), input.size()) {
    if (!input.empty()) std::memcpy(owner.get(), input.data(), input.size());
  }
  std::shared_ptr<std::byte> owner;
  std::span<const std::byte> bytes;
};

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Bytes that the heap holds, and the most of them since this was set.
inline std::size_t n_held = 0, n_peak = 0;

/// Reads every byte, so that a view that leads out of its file is seen.
inline void touch(std::span<const std::byte> bytes) {
  static volatile unsigned sum;
  for (const std::byte b : bytes) sum = sum + std::to_integer<unsigned>(b);
}

/// Requires that f() never holds more than so many bytes at a time.
template <class F>
void within(std::size_t max_bytes, F&& f) {
  static const int hooks = __sanitizer_install_malloc_and_free_hooks(
      [](const volatile void*, std::size_t size) {
        n_held += size;
        if (n_peak < n_held) n_peak = n_held;
      },
      [](const volatile void* p) { n_held -= __sanitizer_get_allocated_size(p); });
  require(hooks > 0, "allocations are counted");
  // What was allocated before the hooks may be freed now: only differences count.
  n_held = n_peak = std::size_t{1} << 40;
  f();
  if (n_peak - (std::size_t{1} << 40) > max_bytes) {
    std::fprintf(stderr, "held %zu bytes at a time, allowed %zu\n", n_peak - (std::size_t{1} << 40),
                 max_bytes);
    std::abort();
  }
}

}  // namespace fuzz

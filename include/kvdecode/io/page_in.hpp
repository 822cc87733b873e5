// SPDX-License-Identifier: MIT
// <kvdecode/io/page_in.hpp> - reads mapped files from the disk ahead of their use. A model works without: its
// weights then come from the disk during the first pass, in the order and at the time that they are needed.
#pragma once

#include <kvdecode/io/mapped_file.hpp>

#include <kvdecode/core/progress.hpp>
#include <kvdecode/core/types.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// Brings a part of a mapping into memory, unless it is there. The part begins with a page.
inline void page_in_part(std::span<const std::byte> part, std::size_t page_size,
                         std::vector<unsigned char>& is_resident) {
  void* const begin = const_cast<std::byte*>(part.data());
#if defined(__linux__)
  is_resident.assign((part.size() + page_size - 1) / page_size, 0);
  if (::mincore(begin, part.size(), is_resident.data()) == 0 &&
      std::all_of(is_resident.begin(), is_resident.end(), [](unsigned char page) { return (page & 1) != 0; }))
    return;
#endif
  ::madvise(begin, part.size(), MADV_WILLNEED);
  for (std::size_t at = 0; at < part.size(); at += page_size)
    static_cast<void>(*static_cast<const volatile std::byte*>(part.data() + at));
}

}  // namespace detail

/// Reads the files into the system's memory, as far as they are not there: O(bytes). They take no memory of
/// the program's own.
/// @param files     paths, for instance LoadReport::files
/// @param progress  hears of every few MB: bytes read, bytes in all; false stops
/// @return          whether it came to the end
/// @throws Error kBadFile: a file cannot be mapped
inline bool page_in(std::span<const std::string> files, ProgressRef progress = {}) {
  std::vector<MappedFile> mapped;
  Index total = 0, done = 0;
  for (const std::string& file : files) {
    mapped.emplace_back(file);
    total += static_cast<Index>(mapped.back().bytes().size());
  }
  const auto page_size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  constexpr std::size_t kStep = std::size_t{1} << 22;  // a multiple of every page size
  std::vector<unsigned char> is_resident;
  for (const MappedFile& file : mapped)
    for (std::size_t at = 0; at < file.bytes().size(); at += kStep) {
      const std::span<const std::byte> part =
          file.bytes().subspan(at, std::min(kStep, file.bytes().size() - at));
      detail::page_in_part(part, page_size, is_resident);
      done += static_cast<Index>(part.size());
      if (!progress(done, total) && done < total) return false;
    }
  return true;
}

}  // namespace kvdecode

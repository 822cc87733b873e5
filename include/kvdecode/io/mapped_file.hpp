// SPDX-License-Identifier: MIT
// <kvdecode/io/mapped_file.hpp> - a whole file as read-only memory. Pages are read from disk when they are
// first touched and shared between processes, so weights are used where they lie.
#pragma once

#include <kvdecode/io/file_descriptor.hpp>

#include <kvdecode/core/error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// Memory of a mapping; unmaps it.
class Mapping {
 public:
  Mapping(void* data, std::size_t size) noexcept : data_(data), size_(size) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(data_, size_); }

  std::span<const std::byte> bytes() const noexcept { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_;
  std::size_t size_;
};

/// The bytes of the regular file at `path`.
inline std::shared_ptr<const Mapping> map_file(const std::filesystem::path& path) {
  // Opening a FIFO would wait for a writer: never block, then look at what was opened.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) [[unlikely]]
    raise(ErrorCode::kBadFile, path.string(), ": cannot be opened: ", system_message(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) [[unlikely]]
    raise(ErrorCode::kBadFile, path.string(), ": cannot be examined: ", system_message(errno));
  if (S_ISDIR(status.st_mode)) [[unlikely]]
    raise(ErrorCode::kBadFile, path.string(), ": is a folder, expected a file");
  if (!S_ISREG(status.st_mode)) [[unlikely]]
    raise(ErrorCode::kBadFile, path.string(), ": is not a regular file");
  if (status.st_size <= 0) [[unlikely]]
    raise(ErrorCode::kBadFile, path.string(), ": is empty");
  if (!std::in_range<std::ptrdiff_t>(status.st_size)) [[unlikely]]
    raise(ErrorCode::kBadFile, path.string(), ": has ", status.st_size,
          " bytes, more than memory can address");
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) [[unlikely]]
    raise(ErrorCode::kBadFile, path.string(), ": cannot be mapped: ", system_message(errno));
  try {
    return std::make_shared<const Mapping>(data, size);
  } catch (...) {
    ::munmap(data, size);
    throw;
  }
}

}  // namespace detail

/// A regular file in memory, for reading. A cheap handle: copies share the mapping, which lives as long as
/// the last of them or of what owner() gave away. The file must not be cut short while it is mapped: POSIX
/// then ends the program at the first access to what is gone.
class MappedFile {
 public:
  /// @throws Error kBadFile, naming the path: missing, unreadable, a folder, not a regular file, or empty
  explicit MappedFile(const std::filesystem::path& path)
      : mapping_(detail::map_file(path)), path_(path.string()) {}

  std::span<const std::byte> bytes() const noexcept { return mapping_->bytes(); }
  const std::string& path() const noexcept { return path_; }
  /// Keeps bytes() valid.
  std::shared_ptr<const void> owner() const noexcept { return mapping_; }

 private:
  std::shared_ptr<const detail::Mapping> mapping_;
  std::string path_;
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/io/atomic_file.hpp> - writes a file so that its name never stands for half of it: into a
// neighbour first, which then takes the name.
#pragma once

#include <kvdecode/io/file_descriptor.hpp>

#include <kvdecode/core/error.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// Removes a file unless told to keep it.
class RemoveOnExit {
 public:
  explicit RemoveOnExit(const std::string& path) : path_(path) {}
  RemoveOnExit(const RemoveOnExit&) = delete;
  RemoveOnExit& operator=(const RemoveOnExit&) = delete;
  ~RemoveOnExit() {
    if (!keep_) ::unlink(path_.c_str());
  }
  void keep() noexcept { keep_ = true; }

 private:
  const std::string& path_;
  bool keep_ = false;
};

/// 0, or the errno of the write that failed.
inline int write_all(int descriptor, std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t n_written = ::write(descriptor, bytes.data(), bytes.size());
    if (n_written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(n_written));
  }
  return 0;
}

}  // namespace detail

/// Writes the parts one after another as the file `path`, replacing a regular file of that name as a whole or
/// not at all. Through a symbolic link the file it leads to is replaced.
/// @throws Error kBadFile, naming the path; nothing is left behind then
inline void write_file_atomically(const std::filesystem::path& path,
                                  std::span<const std::span<const std::byte>> parts) {
  using detail::raise;
  std::error_code error;
  std::string target = path.string();
  if (const std::filesystem::file_status status = std::filesystem::status(path, error); exists(status)) {
    if (!is_regular_file(status)) [[unlikely]]
      raise(ErrorCode::kBadFile, target, ": is not a regular file, and is not replaced by one");
    if (const std::filesystem::path resolved = std::filesystem::canonical(path, error); !error)
      target = resolved.string();
  }

  constexpr int kAttempts = 100;  // names left behind by others
  std::string partial;
  detail::FileDescriptor file(-1);
  for (int attempt = 0; !file.is_open(); ++attempt) {
    partial = target + ".partial-" + std::to_string(::getpid()) + "-" + std::to_string(attempt);
    file = detail::FileDescriptor(::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file.is_open() && (errno != EEXIST || attempt == kAttempts)) [[unlikely]]
      raise(ErrorCode::kBadFile, path.string(), ": cannot be created: ", detail::system_message(errno));
  }
  detail::RemoveOnExit cleaner(partial);

  int failure = 0;
  for (const std::span<const std::byte> part : parts)
    if (failure == 0) failure = detail::write_all(file.get(), part);
  if (failure == 0 && ::fsync(file.get()) != 0) failure = errno;
  if (const int close_failure = file.close(); failure == 0) failure = close_failure;
  if (failure == 0 && std::rename(partial.c_str(), target.c_str()) != 0) failure = errno;
  if (failure != 0) [[unlikely]]
    raise(ErrorCode::kBadFile, path.string(), ": cannot be written: ", detail::system_message(failure));
  cleaner.keep();
}

}  // namespace kvdecode

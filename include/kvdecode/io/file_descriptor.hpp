// SPDX-License-Identifier: MIT
// <kvdecode/io/file_descriptor.hpp> - a POSIX file descriptor that closes itself; private to io/.
#pragma once

#include <kvdecode/core/error.hpp>

#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// What the system says about an errno value.
inline std::string system_message(int error_number) { return std::generic_category().message(error_number); }

/// Owns a descriptor; -1 is none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor) noexcept : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FileDescriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  int get() const noexcept { return descriptor_; }
  bool is_open() const noexcept { return descriptor_ >= 0; }

  /// Closes now and says whether the system had anything left to complain of (0, or errno).
  int close() noexcept {
    const int descriptor = std::exchange(descriptor_, -1);
    return ::close(descriptor) == 0 ? 0 : errno;
  }

 private:
  int descriptor_ = -1;
};

}  // namespace detail
}  // namespace kvdecode

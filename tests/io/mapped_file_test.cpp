// SPDX-License-Identifier: MIT
#include <kvdecode/io/mapped_file.hpp>

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "support.hpp"

using io_test::check_error;
using kvdecode::ErrorCode;
using kvdecode::MappedFile;

namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("MappedFile: shows the bytes of the file, whatever their number") {
  const io_test::TemporaryFolder folder;
  for (const std::size_t size : {1u, 17u, 4095u, 4096u, 4097u, 100000u}) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + i / 256);
    const std::filesystem::path path = folder.write("file", text);
    const MappedFile file(path);
    CHECK(text_of(file.bytes()) == text);
    CHECK(file.path() == path.string());
  }
}

TEST_CASE("MappedFile: the bytes outlive the handle, its copies and the name of the file") {
  const io_test::TemporaryFolder folder;
  const std::filesystem::path path = folder.write("file", "some weights");
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  {
    std::optional<MappedFile> file(path);
    const MappedFile copy = *file;
    file.reset();
    CHECK(text_of(copy.bytes()) == "some weights");
    bytes = copy.bytes();
    owner = copy.owner();
  }
  std::filesystem::remove(path);
  CHECK(text_of(bytes) == "some weights");
}

TEST_CASE("MappedFile: what cannot be mapped is an Error that names the path") {
  const io_test::TemporaryFolder folder;
  check_error(ErrorCode::kBadFile, {"no-such-file", "No such file"},
              [&] { MappedFile(folder.path() / "no-such-file"); });
  check_error(ErrorCode::kBadFile, {folder.path().string(), "folder"}, [&] { MappedFile{folder.path()}; });
  check_error(ErrorCode::kBadFile, {"nothing-in-it", "empty"},
              [&] { MappedFile(folder.write("nothing-in-it", "")); });
  const std::filesystem::path fifo = folder.path() / "a-fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  check_error(ErrorCode::kBadFile, {"a-fifo", "not a regular file"}, [&] { MappedFile{fifo}; });
  check_error(ErrorCode::kBadFile, {"/dev/null", "not a regular file"}, [] { MappedFile("/dev/null"); });
}

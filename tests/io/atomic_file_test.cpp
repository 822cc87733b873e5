// SPDX-License-Identifier: MIT
#include <kvdecode/io/atomic_file.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support.hpp"

using io_test::check_error;
using kvdecode::ErrorCode;

namespace {

void write(const std::filesystem::path& path, std::vector<std::string_view> texts) {
  std::vector<std::span<const std::byte>> parts;
  for (const std::string_view text : texts) parts.push_back(std::as_bytes(std::span(text)));
  kvdecode::write_file_atomically(path, parts);
}

std::ptrdiff_t n_entries(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

}  // namespace

TEST_CASE("write_file_atomically: the parts stand one after another, and nothing else is left behind") {
  const io_test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "file";
  const std::string long_part(300000, 'x');
  write(path, {"one", "", "two", long_part});
  CHECK(io_test::read_text(path) == "onetwo" + long_part);
  write(path, {});
  CHECK(io_test::read_text(path).empty());
  CHECK(n_entries(folder.path()) == 1);
}

TEST_CASE("write_file_atomically: who has the old file open keeps it") {
  const io_test::TemporaryFolder folder;
  const std::filesystem::path path = folder.write("file", "old");
  std::ifstream reader(path);
  write(path, {"new and longer"});
  std::string seen;
  std::getline(reader, seen);
  CHECK(seen == "old");
  CHECK(io_test::read_text(path) == "new and longer");
}

TEST_CASE("write_file_atomically: a leftover of an earlier attempt is stepped over") {
  const io_test::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "file";
  folder.write("file.partial-" + std::to_string(::getpid()) + "-0", "left behind");
  write(path, {"text"});
  CHECK(io_test::read_text(path) == "text");
  CHECK(n_entries(folder.path()) == 2);
}

TEST_CASE("write_file_atomically: a symbolic link stays, the file it leads to is replaced") {
  const io_test::TemporaryFolder folder;
  const std::filesystem::path file = folder.write("file", "old");
  const std::filesystem::path link = folder.path() / "link";
  std::filesystem::create_symlink(file, link);
  write(link, {"new"});
  CHECK(std::filesystem::is_symlink(link));
  CHECK(io_test::read_text(file) == "new");
}

TEST_CASE("write_file_atomically: devices, folders and unwritable places are an Error that names the path") {
  const io_test::TemporaryFolder folder;
  check_error(ErrorCode::kBadFile, {folder.path().string(), "not a regular file"},
              [&] { write(folder.path(), {"text"}); });
  check_error(ErrorCode::kBadFile, {"/dev/null", "not a regular file"}, [] { write("/dev/null", {"text"}); });
  check_error(ErrorCode::kBadFile, {"nowhere/file", "No such file"},
              [&] { write(folder.path() / "nowhere" / "file", {"text"}); });
  CHECK(std::filesystem::is_character_file("/dev/null"));
  CHECK(n_entries(folder.path()) == 0);
}

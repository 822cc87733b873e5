// SPDX-License-Identifier: MIT
// page_in: what it reads, what it says, when it stops.
#include <kvdecode/io/page_in.hpp>

#include <kvdecode/core/error.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace fs = std::filesystem;
using kvdecode::Index;

namespace {

/// Two files of 9,000,000 and 1 bytes.
struct TwoFiles {
  TwoFiles() {
    fs::create_directories(folder);
    for (const auto& [name, size] : {std::pair("first", 9000000), std::pair("second", 1)}) {
      files.push_back((folder / name).string());
      std::ofstream(files.back(), std::ios::binary) << std::string(static_cast<std::size_t>(size), 'x');
    }
  }
  ~TwoFiles() { fs::remove_all(folder); }

  fs::path folder = fs::temp_directory_path() / "kvdecode_page_in_test";
  std::vector<std::string> files;
};

}  // namespace

TEST_CASE("page_in: tells of every part, to the last byte of the last file") {
  const TwoFiles two;
  std::vector<Index> heard;
  auto listener = [&](Index done, Index total) {
    CHECK(total == 9000001);
    heard.push_back(done);
    return true;
  };
  CHECK(kvdecode::page_in(two.files, listener));
  CHECK(heard == std::vector<Index>{4194304, 8388608, 9000000, 9000001});
  CHECK(kvdecode::page_in(two.files));  // nobody has to listen
  CHECK(kvdecode::page_in({}));
}

TEST_CASE("page_in: stops when it is told to") {
  const TwoFiles two;
  Index last = 0;
  auto listener = [&](Index done, Index) {
    last = done;
    return false;
  };
  CHECK_FALSE(kvdecode::page_in(two.files, listener));
  CHECK(last == 4194304);
}

TEST_CASE("page_in: a missing file is named before anything is read") {
  TwoFiles two;
  two.files.push_back("no/such/file");
  auto listener = [](Index, Index) {
    FAIL("nothing must be read");
    return true;
  };
  CHECK_THROWS_WITH_AS(kvdecode::page_in(two.files, listener),
                       "no/such/file: cannot be opened: No such file or directory", kvdecode::Error);
}

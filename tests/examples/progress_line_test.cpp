// SPDX-License-Identifier: MIT
// The progress line of the programs: to the letter on a terminal, nothing at all elsewhere.
#include "../../examples/progress_line.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <memory>
#include <string>

namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

std::string contents(std::FILE* file) {
  std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

}  // namespace

TEST_CASE("progress line: each percent once, erased at the end") {
  const File file(std::tmpfile(), &std::fclose);
  program::ProgressLine line("reading", file.get(), true, 0.0);
  for (const kvdecode::Index done : {0, 1, 5, 200, 205, 990, 1000}) CHECK(line(done, 1000));
  CHECK(contents(file.get()) == "\rreading: 0 %\rreading: 20 %\rreading: 99 %\r\x1b[K");
}

TEST_CASE("progress line: erased when the work ends early") {
  const File file(std::tmpfile(), &std::fclose);
  { program::ProgressLine("prompt", file.get(), true, 0.0)(1, 3); }
  CHECK(contents(file.get()) == "\rprompt: 33 %\r\x1b[K");
}

TEST_CASE("progress line: short work and redirected output show nothing") {
  const File file(std::tmpfile(), &std::fclose);
  {
    program::ProgressLine soon("reading", file.get(), true, 1e9),
        redirected("reading", file.get(), false, 0.0), by_itself("reading", file.get());
    for (program::ProgressLine* line : {&soon, &redirected, &by_itself}) CHECK((*line)(1, 2));
    CHECK_FALSE(by_itself.is_terminal());
  }
  CHECK(contents(file.get()).empty());
}

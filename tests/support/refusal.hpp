// SPDX-License-Identifier: MIT
// What is refused, by its code and its whole sentence.
#pragma once

#include <kvdecode/core/error.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <string>

namespace kvdecode_test {

/// f() throws an Error of that code and text.
template <class F>
void check_refused(kvdecode::ErrorCode code, const std::string& text, F&& f) {
  std::optional<kvdecode::Error> thrown;
  try {
    f();
  } catch (const kvdecode::Error& error) {
    thrown = error;
  }
  REQUIRE(thrown.has_value());
  CHECK(thrown->code() == code);
  CHECK(std::string(thrown->what()) == text);
}

}  // namespace kvdecode_test

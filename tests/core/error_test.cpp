// SPDX-License-Identifier: MIT
#include <kvdecode/core/error.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

namespace {

using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::to_string;

TEST_CASE("error: raise joins texts and numbers and keeps the code") {
  try {
    kvdecode::detail::raise(ErrorCode::kCacheFull, "KV cache full: max_seq_len ", 128, ", kv_len ",
                            std::int64_t{-9223372036854775807} - 1, std::string(", n_new "), 1u);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kCacheFull);
    CHECK(std::string(error.what()) ==
          "KV cache full: max_seq_len 128, kv_len -9223372036854775808, n_new 1");
    return;
  }
  FAIL("nothing was thrown");
}

TEST_CASE("error: floating-point numbers are written as short as nine digits allow") {
  CHECK_THROWS_WITH_AS(
      kvdecode::detail::raise(ErrorCode::kBadArgument, 0.1, " ", 1.5f, " ", 1e30, " ", -0.0, " ", 1.0 / 3.0),
      "0.1 1.5 1e+30 -0 0.333333333", Error);
}

TEST_CASE("error: it is a std::runtime_error") {
  CHECK_THROWS_AS(kvdecode::detail::raise(ErrorCode::kBadFile, "x"), std::runtime_error);
}

TEST_CASE("error: every code has a name") {
  CHECK(to_string(ErrorCode::kBadArgument) == "BadArgument");
  CHECK(to_string(ErrorCode::kCacheFull) == "CacheFull");
  CHECK(to_string(ErrorCode::kBadFile) == "BadFile");
  CHECK(to_string(ErrorCode::kUnsupported) == "Unsupported");
  CHECK(to_string(ErrorCode::kMismatch) == "Mismatch");
}

}  // namespace

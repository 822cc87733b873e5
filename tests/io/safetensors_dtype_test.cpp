// SPDX-License-Identifier: MIT
#include <kvdecode/io/safetensors_dtype.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "support.hpp"

using kvdecode::FormatId;
using kvdecode::Index;
using kvdecode::SafetensorsDtype;

TEST_CASE("SafetensorsDtype: every name leads to its type and back, others to none") {
  for (const auto& entry : kvdecode::detail::kSafetensorsDtypes) {
    CHECK(kvdecode::safetensors_dtype(entry.name) == entry.dtype);
    CHECK(to_string(entry.dtype) == entry.name);
  }
  for (const char* const name : {"", "f32", "F32 ", "F128", "FLOAT", "BF16\n"})
    CHECK(!kvdecode::safetensors_dtype(name));
}

TEST_CASE("SafetensorsDtype: weights are stored in f64, f32, f16 and bf16") {
  CHECK(format_of(SafetensorsDtype::kF64) == FormatId::kF64);
  CHECK(format_of(SafetensorsDtype::kF32) == FormatId::kF32);
  CHECK(format_of(SafetensorsDtype::kF16) == FormatId::kF16);
  CHECK(format_of(SafetensorsDtype::kBF16) == FormatId::kBF16);
  for (const SafetensorsDtype dtype :
       {SafetensorsDtype::kI16, SafetensorsDtype::kF8E4M3, SafetensorsDtype::kU8})
    CHECK(!format_of(dtype));
}

TEST_CASE("n_elements, n_bytes: products are exact or refused") {
  using Shape = std::vector<Index>;
  constexpr Index kMax = std::numeric_limits<Index>::max();
  CHECK(kvdecode::n_elements(Shape{}) == 1u);
  CHECK(kvdecode::n_elements(Shape{3, 5, 7}) == 105u);
  CHECK(kvdecode::n_elements(Shape{3, 0, 7}) == 0u);
  CHECK(kvdecode::n_elements(Shape{kMax, 2}) == static_cast<std::uint64_t>(kMax) * 2);
  CHECK(!kvdecode::n_elements(Shape{kMax, 3}));
  CHECK(!kvdecode::n_elements(Shape{kMax, 3, 0}));
  CHECK(!kvdecode::n_elements(Shape{Index{1} << 32, Index{1} << 32}));
  CHECK(!kvdecode::n_elements(Shape{2, -1}));
  CHECK(kvdecode::n_bytes(SafetensorsDtype::kF32, Shape{3, 5}) == 60u);
  CHECK(kvdecode::n_bytes(SafetensorsDtype::kF6E2M3, Shape{4}) == 3u);
  CHECK(!kvdecode::n_bytes(SafetensorsDtype::kF6E2M3, Shape{5}));
  CHECK(!kvdecode::n_bytes(SafetensorsDtype::kF64, Shape{Index{1} << 58}));
  CHECK(kvdecode::n_bytes(SafetensorsDtype::kF64, Shape{Index{1} << 57}) == std::uint64_t{1} << 60);
}

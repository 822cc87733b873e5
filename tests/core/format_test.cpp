// SPDX-License-Identifier: MIT
// core/format.hpp and core/format_id.hpp.
#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/format.hpp>

#include <doctest/doctest.h>

#include <string_view>

namespace {

using kvdecode::BF16;
using kvdecode::F16;
using kvdecode::F32;
using kvdecode::F64;
using kvdecode::FormatId;
using kvdecode::FormatList;
using kvdecode::has_format;
using kvdecode::visit_format;

static_assert(has_format(FormatList<F32, F16>{}, FormatId::kF16));
static_assert(!has_format(FormatList<F32, F16>{}, FormatId::kBF16));

TEST_CASE("format: visit_format calls with the format that has the tag, wherever it is in the list") {
  using All = FormatList<F32, BF16, F16, F64>;
  const auto name = [](FormatId id) {
    return visit_format(All{}, id, []<class F>() { return std::string_view(F::kName); });
  };
  CHECK(name(FormatId::kF32) == "f32");
  CHECK(name(FormatId::kBF16) == "bf16");
  CHECK(name(FormatId::kF16) == "f16");
  CHECK(name(FormatId::kF64) == "f64");
}

TEST_CASE("format: visit_format calls once and passes on a reference") {
  int n_calls = 0;
  int& result = visit_format(FormatList<F64, F16>{}, FormatId::kF16, [&]<class F>() -> int& {
    n_calls += F::kId == FormatId::kF16 ? 1 : 100;
    return n_calls;
  });
  CHECK(&result == &n_calls);
  CHECK(n_calls == 1);
}

TEST_CASE("format: the core's matrices are f32, bf16, f16 and f64") {
  for (const FormatId id : {FormatId::kF64, FormatId::kF32, FormatId::kF16, FormatId::kBF16})
    CHECK(has_format(kvdecode::CoreFormats{}, id));
  CHECK(!has_format(kvdecode::CoreFormats{}, FormatId::kRaw));
}

TEST_CASE("format: tag and type have one name") {
  CHECK(F64::kName == "f64");
  CHECK(F32::kName == "f32");
  CHECK(F16::kName == "f16");
  CHECK(BF16::kName == "bf16");
  CHECK(kvdecode::Raw<float>::kName == "raw");
}

}  // namespace

// SPDX-License-Identifier: MIT
#include <kvdecode/core/build_info.hpp>

#include <doctest/doctest.h>

#include <string>
#include <string_view>

namespace {

TEST_CASE("build info: says what this translation unit was compiled for") {
  constexpr kvdecode::BuildInfo info = kvdecode::build_info();
  CHECK(std::string(info.version) == std::to_string(KVDECODE_VERSION_MAJOR) + "." +
                                         std::to_string(KVDECODE_VERSION_MINOR) + "." +
                                         std::to_string(KVDECODE_VERSION_PATCH));
#if defined(__clang__)
  CHECK(info.compiler.find("clang ") == 0);
#else
  CHECK(info.compiler.find("g++ ") == 0);
#endif
  CHECK(info.checked == (KVDECODE_CHECKED != 0));
  CHECK(info.float_lanes_per_register == kvdecode::Lanes<float>::width);
  CHECK(info.double_lanes_per_register == kvdecode::Lanes<double>::width);
#if defined(EIGEN_DONT_VECTORIZE)
  CHECK(info.instruction_set == "portable");
  CHECK(info.float_lanes_per_register == 1);
#elif defined(__AVX512F__)
  CHECK(info.instruction_set == "avx512");
  CHECK(info.float_lanes_per_register == 16);
  CHECK(info.double_lanes_per_register == 8);
#elif defined(__AVX2__) && defined(__FMA__)
  CHECK(info.instruction_set == "avx2_fma");
  CHECK(info.float_lanes_per_register == 8);
#elif defined(__aarch64__)
  CHECK(info.instruction_set == "neon");
  CHECK(info.float_lanes_per_register == 4);
  CHECK(info.double_lanes_per_register == 2);
#endif
#if defined(__FMA__) || defined(__aarch64__)
  CHECK(info.has_hardware_fma);
#else
  CHECK(!info.has_hardware_fma);
#endif
}

TEST_CASE("build info: the namespace of everything is tagged with it") {
  const std::string_view tag = KVDECODE_DETAIL_STRING(KVDECODE_ABI);
  CHECK(tag.find(kvdecode::build_info().instruction_set) != std::string_view::npos);
  CHECK(tag.substr(tag.size() - 2) == (KVDECODE_CHECKED != 0 ? "c1" : "c0"));
}

}  // namespace

// SPDX-License-Identifier: MIT
// core/simd/fp_env.hpp.
#include <support/compare.hpp>
#include <support/executors.hpp>
#include <support/fp_mode.hpp>
#include <support/meeting.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/executor.hpp>
#include <kvdecode/core/simd/fp_env.hpp>
#include <kvdecode/core/sums.hpp>
#include <kvdecode/core/thread_team.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

using kvdecode::Index;
using kvdecode::with_default_fp_env;
using kvdecode_test::check_same_bits;
using kvdecode_test::draws;
using kvdecode_test::FloatClass;
using kvdecode_test::fp_control;
using kvdecode_test::FpMode;
using kvdecode_test::kFpModes;
using kvdecode_test::ScopedFpMode;

/// Numbers that depend on the rounding mode, and on what becomes of subnormal ones.
template <class T>
[[gnu::noinline]] std::vector<T> sensitive(const std::vector<T>& x, const std::vector<T>& tiny) {
  const Index n = static_cast<Index>(x.size());
  std::vector<T> y;
  for (std::size_t i = 1; i < x.size(); ++i) {
    y.push_back(x[i] / x[i - 1]);
    y.push_back(kvdecode::mul(x[i], x[i - 1]));
    y.push_back(kvdecode::exp(x[i]));
    y.push_back(tiny[i] + tiny[i - 1]);
    y.push_back(kvdecode::mul(tiny[i], x[i]));
    y.push_back(kvdecode::fma(x[i], x[i - 1], tiny[i]));
  }
  y.push_back(kvdecode::dot(x.data(), x.data(), n));
  y.push_back(kvdecode::dot(x.data(), tiny.data(), n));
  return y;
}

TEST_CASE_TEMPLATE("fp env: results are those of the default environment in every mode of the host", T, float,
                   double) {
  const std::vector<T> x = draws<T>(50, 1), tiny = draws<T>(50, 2, FloatClass::kTiny);
  const std::vector<T> expected = sensitive(x, tiny);
  for (const FpMode mode : kFpModes) {
    CAPTURE(to_string(mode));
    std::vector<T> actual, unprotected = expected;
    std::uint64_t before = 0, within = 0, after = 0;
    {
      const ScopedFpMode scope(mode);
      before = fp_control();
      actual = with_default_fp_env([&] {
        within = fp_control();
        return sensitive(x, tiny);
      });
      after = fp_control();
      if (mode != FpMode::kTrapping) unprotected = sensitive(x, tiny);
    }
    check_same_bits(actual, expected);
    CHECK(before == after);
    CHECK(within == fp_control());
    // The modes are real: without protection the numbers are others.
    if (mode != FpMode::kDefault && mode != FpMode::kTrapping)
      CHECK(std::memcmp(unprotected.data(), expected.data(), expected.size() * sizeof(T)) != 0);
  }
}

TEST_CASE("fp env: the host's mode is restored when f throws") {
  for (const FpMode mode : kFpModes) {
    CAPTURE(to_string(mode));
    std::uint64_t before = 0, after = 0;
    bool was_caught = false;
    {
      const ScopedFpMode scope(mode);
      before = fp_control();
      try {
        with_default_fp_env([]() -> int { throw std::runtime_error("out"); });
      } catch (const std::runtime_error&) {
        was_caught = true;
      }
      after = fp_control();
    }
    CHECK(was_caught);
    CHECK(before == after);
  }
}

TEST_CASE("fp env: calls nest, and results of any kind come back") {
  const ScopedFpMode scope(FpMode::kUpward);
  const std::uint64_t host = fp_control();
  int object = 0;
  int& reference = with_default_fp_env([&]() -> int& {
    with_default_fp_env([&] { object = 3; });
    return object;
  });
  static_assert(std::is_same_v<decltype(with_default_fp_env([] {})), void>);
  CHECK(&reference == &object);
  CHECK(object == 3);
  CHECK(fp_control() == host);
}

TEST_CASE("fp env: tasks run in the default environment on threads of any mode") {
  const std::vector<float> x = draws<float>(50, 3), tiny = draws<float>(50, 4, FloatClass::kTiny);
  const std::vector<float> expected = sensitive(x, tiny);
  std::vector<std::vector<float>> actual(6);
  auto task = [&](Index i) noexcept { actual[static_cast<std::size_t>(i)] = sensitive(x, tiny); };
  const kvdecode::TaskRef ref(task);
  for (std::size_t i = 0; i < 6; ++i) {
    std::thread host([&, i] {
      const ScopedFpMode scope(kFpModes[i]);
      ref(static_cast<Index>(i));
    });
    host.join();
  }
  for (const std::vector<float>& numbers : actual) check_same_bits(numbers, expected);
}

TEST_CASE("fp env: tasks run in the default environment on a team started and used in another") {
  const std::vector<double> x = draws<double>(50, 5), tiny = draws<double>(50, 6, FloatClass::kTiny);
  const std::vector<double> expected = sensitive(x, tiny);
  std::vector<std::vector<double>> actual(8);
  {
    const ScopedFpMode scope(FpMode::kFlushToZero);
    kvdecode::ThreadTeam team(3);  // new threads inherit the mode
    kvdecode_test::Meeting all(3);
    auto task = [&](Index i) noexcept { actual[static_cast<std::size_t>(i)] = sensitive(x, tiny); };
    auto together = [&](Index i) noexcept {
      if (i < 3) all.attend();
      task(i);
    };
    kvdecode::ExecutorRef(team).parallel_for(4, together);
    kvdecode_test::HostPool pool;
    auto later = [&](Index i) noexcept { task(i + 4); };
    kvdecode::ExecutorRef(pool).parallel_for(4, later);
  }
  for (const std::vector<double>& numbers : actual) check_same_bits(numbers, expected);
}

}  // namespace

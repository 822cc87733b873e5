// SPDX-License-Identifier: MIT
// Who writes `using namespace kvdecode` can go on calling the functions of <math.h> by their bare names.
#include <kvdecode/kvdecode.hpp>

#include <math.h>

#include <type_traits>

namespace {

using namespace kvdecode;

template <class T>
constexpr bool calls_are_clear() {
  const T x = 1;
  return std::is_same_v<decltype(exp(x)), T> && std::is_same_v<decltype(exp2(x)), T> &&
         std::is_same_v<decltype(log(x)), T> && std::is_same_v<decltype(log2(x)), T> &&
         std::is_same_v<decltype(tanh(x)), T> && std::is_same_v<decltype(erf(x)), T> &&
         std::is_same_v<decltype(sqrt(x)), T> && std::is_same_v<decltype(pow(x, x)), T> &&
         std::is_same_v<decltype(fma(x, x, x)), T>;
}
static_assert(calls_are_clear<float>() && calls_are_clear<double>() && calls_are_clear<long double>());
static_assert(std::is_same_v<decltype(exp(1)), double> && std::is_same_v<decltype(sqrt(2)), double> &&
              std::is_same_v<decltype(pow(2, 3)), double> && std::is_same_v<decltype(pow(2.0, 3)), double>);

// The library's own are there by their full names.
static_assert(std::is_same_v<decltype(kvdecode::exp(1.0f)), float> &&
              std::is_same_v<decltype(kvdecode::pow(2.0, 0.5)), double>);

}  // namespace

// SPDX-License-Identifier: MIT
// <kvdecode/core/scalar.hpp> - the concept of a number type that models can be computed in.
#pragma once

#include <kvdecode/core/simd/scalar.hpp>

#include <concepts>

namespace kvdecode::inline KVDECODE_ABI {

/// A number type for activations. `float` and `double` are computed in packets; any other type lane by lane.
///
/// | expression | meaning |
/// |---|---|
/// | a + b, a - b, a * b, a / b, a < b | arithmetic and order |
/// | S(float), S(double), double(a) | explicit conversions |
/// | fma(a, b, c), sqrt(a), exp(a), tanh(a), erf(a), log(a) | found by argument-dependent lookup |
///
/// Models: float, double, Counting<float>, Counting<double>.
template <class S>
concept Scalar = std::floating_point<S> ||
    (std::copyable<S>&& std::default_initializable<S>&& requires(const S a, const S b, const S c, double d,
                                                                 float f) {
      { a + b } -> std::convertible_to<S>;
      { a - b } -> std::convertible_to<S>;
      { a* b } -> std::convertible_to<S>;
      { a / b } -> std::convertible_to<S>;
      { a < b } -> std::convertible_to<bool>;
      S(f);
      S(d);
      static_cast<double>(a);
      { fma(a, b, c) } -> std::convertible_to<S>;
      { sqrt(a) } -> std::convertible_to<S>;
      { exp(a) } -> std::convertible_to<S>;
      { tanh(a) } -> std::convertible_to<S>;
      { erf(a) } -> std::convertible_to<S>;
      { log(a) } -> std::convertible_to<S>;
    });

static_assert(Scalar<float> && Scalar<double>);

/// What kind of multiply-add a kernel does; a counting scalar counts each kind apart.
enum class Work {
  kLinear,  ///< weights times activations
  kScores,  ///< queries times keys
  kValues,  ///< probabilities times values
  kOther,   ///< norms, merges, rotary, elementary functions
};
inline constexpr int kWorkKinds = 4;

/// Says, while it lives, which work this thread does. Nothing for a scalar that does not count.
template <class S>
struct WorkScope {
  explicit WorkScope(Work) noexcept {}
  ~WorkScope() {}
};

}  // namespace kvdecode

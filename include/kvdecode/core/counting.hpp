// SPDX-License-Identifier: MIT
// <kvdecode/core/counting.hpp> - a scalar with the values of T that counts what is done with it, by kind of
// work. Run through the same templates, it counts exactly what they compute.
#pragma once

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/scalar.hpp>

#include <utility>

namespace kvdecode::inline KVDECODE_ABI {

/// What this thread has computed in Counting scalars. A multiply-add is one fma.
struct WorkCounters {
  Index multiply_adds[kWorkKinds] = {};  // by Work
  Index other_operations = 0;            // additions, products, divisions, square roots, elementary functions

  Index operator[](Work work) const noexcept { return multiply_adds[static_cast<int>(work)]; }
};

namespace detail {
inline WorkCounters& work_counters() noexcept {
  thread_local WorkCounters counters;
  return counters;
}
inline Work& current_work() noexcept {
  thread_local Work work = Work::kOther;
  return work;
}
}  // namespace detail

/// Sets this thread's counters to zero and returns what they were.
inline WorkCounters take_work_counters() noexcept {
  return std::exchange(detail::work_counters(), WorkCounters{});
}

/// T, counting. Its values are those of T to the bit. Counters are per thread: count with one thread.
template <std::floating_point T>
class Counting {
 public:
  Counting() = default;
  explicit Counting(float value) : value_(static_cast<T>(value)) {}
  explicit Counting(double value) : value_(static_cast<T>(value)) {}
  explicit operator float() const { return static_cast<float>(value_); }
  explicit operator double() const { return static_cast<double>(value_); }

  friend Counting operator+(Counting a, Counting b) { return counted(a.value_ + b.value_); }
  friend Counting operator-(Counting a, Counting b) { return counted(a.value_ - b.value_); }
  friend Counting operator*(Counting a, Counting b) { return counted(kvdecode::mul(a.value_, b.value_)); }
  friend Counting operator/(Counting a, Counting b) { return counted(a.value_ / b.value_); }
  friend bool operator<(Counting a, Counting b) { return a.value_ < b.value_; }
  friend Counting fma(Counting a, Counting b, Counting c) {
    ++detail::work_counters().multiply_adds[static_cast<int>(detail::current_work())];
    return Counting(kvdecode::fma(a.value_, b.value_, c.value_));
  }
  friend Counting sqrt(Counting a) { return counted(kvdecode::sqrt(a.value_)); }
  friend Counting exp(Counting a) { return counted(kvdecode::exp(a.value_)); }
  friend Counting tanh(Counting a) { return counted(kvdecode::tanh(a.value_)); }
  friend Counting erf(Counting a) { return counted(kvdecode::erf(a.value_)); }
  friend Counting gelu(Counting a) { return counted(kvdecode::gelu(a.value_)); }
  friend Counting log(Counting a) { return counted(kvdecode::log(a.value_)); }

 private:
  static Counting counted(T value) {
    ++detail::work_counters().other_operations;
    return Counting(value);
  }

  T value_ = T(0);
};

template <class T>
struct WorkScope<Counting<T>> {
  explicit WorkScope(Work work) noexcept : previous(std::exchange(detail::current_work(), work)) {}
  ~WorkScope() { detail::current_work() = previous; }
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;

  Work previous;
};

static_assert(Scalar<Counting<float>> && Scalar<Counting<double>>);

}  // namespace kvdecode

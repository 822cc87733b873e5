// SPDX-License-Identifier: MIT
// Format, Executor and Scalar: a minimal model of each, with one requirement removed at a time.
#include <kvdecode/core/counting.hpp>
#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/executor.hpp>
#include <kvdecode/core/scalar.hpp>
#include <kvdecode/core/thread_team.hpp>

#include <complex>
#include <string_view>
#include <type_traits>
#include <utility>

namespace {

using kvdecode::FormatId;
using kvdecode::Index;
using kvdecode::Lanes;
using kvdecode::TaskRef;

// ---- Format ----

enum FormatMissing { kNoFormatPart, kId, kName, kBlock, kRowBytes, kDecode, kWiden, kEncode };

template <bool is_there>
struct WithId {
  static constexpr FormatId kId = FormatId::kRaw;
};
template <>
struct WithId<false> {};
template <bool is_there>
struct WithName {
  static constexpr std::string_view kName = "minimal";
};
template <>
struct WithName<false> {};

template <bool is_there>
struct WithBlock {
  static constexpr Index kBlock = 1;
};
template <>
struct WithBlock<false> {};

template <FormatMissing missing>
struct MinimalFormat : WithId<missing != kId>, WithName<missing != kName>, WithBlock<missing != kBlock> {
  static Index row_bytes(Index) requires(missing != kRowBytes);
  template <class S>
  static S decode(const std::byte*, Index) requires(missing != kDecode);
  template <class S>
  static Lanes<S> widen(const std::byte*, Index) requires(missing != kWiden);
  template <class S>
  static void encode(const S*, Index, std::byte*) requires(missing != kEncode);
};

static_assert(kvdecode::StoresFrom<MinimalFormat<kNoFormatPart>, float>);
static_assert(!kvdecode::Format<MinimalFormat<kId>>);
static_assert(!kvdecode::Format<MinimalFormat<kName>>);
static_assert(!kvdecode::Format<MinimalFormat<kBlock>>);
static_assert(!kvdecode::Format<MinimalFormat<kRowBytes>>);
static_assert(kvdecode::Format<MinimalFormat<kDecode>> &&
              !kvdecode::DecodesTo<MinimalFormat<kDecode>, float>);
static_assert(!kvdecode::DecodesTo<MinimalFormat<kWiden>, float>);
static_assert(kvdecode::DecodesTo<MinimalFormat<kEncode>, float> &&
              !kvdecode::StoresFrom<MinimalFormat<kEncode>, float>);
static_assert(!kvdecode::Format<float> && !kvdecode::Format<FormatId>);

// ---- Executor ----

enum ExecutorMissing { kNoExecutorPart, kConcurrency, kParallelFor };

template <ExecutorMissing missing>
struct MinimalExecutor {
  int concurrency() requires(missing != kConcurrency);
  void parallel_for(Index, TaskRef) requires(missing != kParallelFor);
};
static_assert(kvdecode::Executor<MinimalExecutor<kNoExecutorPart>>);
static_assert(!kvdecode::Executor<MinimalExecutor<kConcurrency>>);
static_assert(!kvdecode::Executor<MinimalExecutor<kParallelFor>>);
static_assert(std::is_constructible_v<kvdecode::ExecutorRef, MinimalExecutor<kNoExecutorPart>&>);
static_assert(!std::is_constructible_v<kvdecode::ExecutorRef, MinimalExecutor<kNoExecutorPart>>);
static_assert(!std::is_constructible_v<kvdecode::ExecutorRef, const MinimalExecutor<kNoExecutorPart>&>,
              "its members are not const");
static_assert(!std::is_constructible_v<kvdecode::ExecutorRef, MinimalExecutor<kConcurrency>&>);
static_assert(!std::is_convertible_v<kvdecode::ThreadTeam, kvdecode::ExecutorRef> &&
              std::is_convertible_v<kvdecode::ThreadTeam&, kvdecode::ExecutorRef>);
static_assert(!std::is_copy_constructible_v<kvdecode::ThreadTeam> &&
              !std::is_move_constructible_v<kvdecode::ThreadTeam>);

// A task is a callable void(Index) that outlives the call.
struct Task {
  void operator()(Index) noexcept;
};
static_assert(std::is_constructible_v<TaskRef, Task&> && !std::is_constructible_v<TaskRef, Task>);
static_assert(!std::is_constructible_v<TaskRef, int&> && std::is_trivially_copyable_v<TaskRef>);

// ---- Scalar ----

enum ScalarMissing {
  kNoScalarPart,
  kDefault,
  kCopy,
  kFromFloat,
  kFromDouble,
  kToDouble,
  kPlus,
  kMinus,
  kTimes,
  kOver,
  kLess,
  kFma,
  kSqrt,
  kExp,
  kTanh,
  kErf,
  kLog,
  kScalarEnd,
};

template <ScalarMissing missing>
struct CopyOf {};
template <>
struct CopyOf<kCopy> {
  CopyOf() = default;
  CopyOf(const CopyOf&) = delete;
};

template <ScalarMissing missing>
struct MinimalScalar : CopyOf<missing> {
  using S = MinimalScalar;
  MinimalScalar() requires(missing != kDefault);
  template <std::same_as<float> T>
  explicit MinimalScalar(T) requires(missing != kFromFloat);
  template <std::same_as<double> T>
  explicit MinimalScalar(T) requires(missing != kFromDouble);
  explicit operator double() const requires(missing != kToDouble);
  friend S operator+(const S& a, const S&) requires(missing != kPlus) { return a; }
  friend S operator-(const S& a, const S&) requires(missing != kMinus) { return a; }
  friend S operator*(const S& a, const S&) requires(missing != kTimes) { return a; }
  friend S operator/(const S& a, const S&) requires(missing != kOver) { return a; }
  friend bool operator<(const S&, const S&) requires(missing != kLess) { return false; }
  friend S fma(const S& a, const S&, const S&) requires(missing != kFma) { return a; }
  friend S sqrt(const S& a) requires(missing != kSqrt) { return a; }
  friend S exp(const S& a) requires(missing != kExp) { return a; }
  friend S tanh(const S& a) requires(missing != kTanh) { return a; }
  friend S erf(const S& a) requires(missing != kErf) { return a; }
  friend S log(const S& a) requires(missing != kLog) { return a; }
};

static_assert(kvdecode::Scalar<MinimalScalar<kNoScalarPart>>);
template <int... missing>
constexpr bool none_is_a_scalar(std::integer_sequence<int, missing...>) {
  static_assert((... && !kvdecode::Scalar<MinimalScalar<static_cast<ScalarMissing>(missing + 1)>>),
                "a type without one requirement of Scalar is taken for one");
  return true;
}
static_assert(none_is_a_scalar(std::make_integer_sequence<int, kScalarEnd - 1>{}));
static_assert(!kvdecode::Scalar<int> && !kvdecode::Scalar<std::complex<float>> && !kvdecode::Scalar<void*>);
static_assert(kvdecode::Scalar<kvdecode::Counting<double>>);

}  // namespace

// SPDX-License-Identifier: MIT
// <kvdecode/core/executor.hpp> - how work reaches threads. A kernel splits its output; whoever has threads
// runs the parts. Results never depend on who, in what order, or on how many threads there are.
#pragma once

#include <kvdecode/core/simd/fp_env.hpp>
#include <kvdecode/core/types.hpp>

#include <concepts>
#include <type_traits>

namespace kvdecode::inline KVDECODE_ABI {

/// A callable void(Index) noexcept by reference: two words, trivially copyable. It runs in the default
/// floating-point environment, whatever thread calls it.
class TaskRef {
 public:
  template <std::invocable<Index> F>
  TaskRef(F& function) noexcept requires(!std::same_as<std::remove_cvref_t<F>, TaskRef>)
      : object_(const_cast<void*>(static_cast<const void*>(&function))), call_([](void* object, Index i) {
          auto call = [&] { (*static_cast<F*>(object))(i); };
          with_default_fp_env(call);
        }) {}

  void operator()(Index i) const noexcept { call_(object_, i); }

 private:
  void* object_;
  void (*call_)(void*, Index);
};
static_assert(std::is_trivially_copyable_v<TaskRef> && sizeof(TaskRef) == 2 * sizeof(void*));

/// Something with threads.
///
/// | expression | meaning |
/// |---|---|
/// | e.concurrency() | how many tasks run at the same time at best; at least 1 |
/// | e.parallel_for(n, task) | calls task(i) once for each i in [0, n), in any order, on any threads; returns after all |
///
/// Tasks are noexcept and never wait for one another: a barrier is the end of a parallel_for. An executor
/// that is busy, or called from one of its own tasks, runs the tasks inline. Models: SequentialExecutor,
/// ThreadTeam, EigenExecutor, and a host's own pool in five lines.
template <class E>
concept Executor = requires(E& executor, Index n, TaskRef task) {
  { executor.concurrency() } -> std::convertible_to<Index>;
  executor.parallel_for(n, task);
};

/// Runs everything on the calling thread.
struct SequentialExecutor {
  Index concurrency() const noexcept { return 1; }
  void parallel_for(Index n, TaskRef task) const noexcept {
    for (Index i = 0; i < n; ++i) task(i);
  }
};
static_assert(Executor<SequentialExecutor>);

/// A reference to any executor: two pointers. The default is inline execution. The executor must outlive it;
/// a temporary does not bind.
class ExecutorRef {
  struct Operations {
    Index (*concurrency)(void*);
    void (*parallel_for)(void*, Index, TaskRef);
  };
  template <class E>
  static constexpr Operations kOperations = {
      [](void* executor) { return static_cast<Index>(static_cast<E*>(executor)->concurrency()); },
      [](void* executor, Index n, TaskRef task) { static_cast<E*>(executor)->parallel_for(n, task); }};

 public:
  ExecutorRef() noexcept = default;
  template <Executor E>
  ExecutorRef(E& executor) noexcept requires(!std::same_as<std::remove_const_t<E>, ExecutorRef>)
      : executor_(const_cast<void*>(static_cast<const void*>(&executor))), operations_(&kOperations<E>) {}
  template <Executor E>
  ExecutorRef(const E&&) requires(!std::same_as<E, ExecutorRef>) = delete;

  Index concurrency() const { return operations_ == nullptr ? 1 : operations_->concurrency(executor_); }
  void parallel_for(Index n, TaskRef task) const {
    if (operations_ == nullptr || n <= 1)
      SequentialExecutor{}.parallel_for(n, task);
    else
      operations_->parallel_for(executor_, n, task);
  }

 private:
  void* executor_ = nullptr;
  const Operations* operations_ = nullptr;
};

/// Part i of [0, n) cut into `parts` contiguous, nearly equal pieces whose bounds are multiples of `grain`.
struct Range {
  Index begin;
  Index end;
};
constexpr Range split_range(Index n, Index parts, Index i, Index grain = 1) noexcept {
  const Index grains = (n + grain - 1) / grain;
  const auto bound = [&](Index k) { return std::min(n, grains * k / parts * grain); };
  return {bound(i), bound(i + 1)};
}

/// Calls f(row) for each row, rows split over the threads in contiguous parts.
template <class F>
void for_each_row(ExecutorRef exec, Index n_rows, F&& f) noexcept {
  const Index parts = n_rows == 1 ? 1 : exec.concurrency();
  auto part = [&](Index i) noexcept {
    const Range rows = split_range(n_rows, parts, i);
    for (Index row = rows.begin; row < rows.end; ++row) f(row);
  };
  exec.parallel_for(parts, part);
}

}  // namespace kvdecode

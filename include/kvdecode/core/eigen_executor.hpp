// SPDX-License-Identifier: MIT
// <kvdecode/core/eigen_executor.hpp> - an executor over Eigen's thread pool, for programs that have one
// already. Not part of the umbrella header: Eigen's pool is slow to parse.
#pragma once

#include <kvdecode/core/executor.hpp>

#include <unsupported/Eigen/CXX11/ThreadPool>

#include <algorithm>
#include <atomic>

namespace kvdecode::inline KVDECODE_ABI {

/// Runs tasks on a pool that it does not own, and on the calling thread. Called from a thread of the pool, from
/// one of its own tasks, or by two threads at a time, it runs them inline.
class EigenExecutor {
 public:
  explicit EigenExecutor(Eigen::ThreadPoolInterface& pool) noexcept : pool_(&pool) {}

  Index concurrency() const { return std::max<Index>(1, pool_->NumThreads()); }

  /// A pool that throws, having scheduled nothing, leaves its part of the tasks to the others.
  void parallel_for(Index n, TaskRef task) noexcept {
    const Index n_helpers = std::min<Index>(n, concurrency()) - 1;
    if (n_helpers <= 0 || pool_->CurrentThreadId() != -1 || busy_.exchange(true, std::memory_order_acquire)) {
      SequentialExecutor{}.parallel_for(n, task);
      return;
    }
    std::atomic<Index> next{0};
    const auto take = [&next, n, task] {
      for (Index i = next.fetch_add(1); i < n; i = next.fetch_add(1)) task(i);
    };
    Eigen::Barrier done(static_cast<unsigned>(n_helpers));
    Index n_scheduled = 0;
    try {
      for (; n_scheduled < n_helpers; ++n_scheduled)
        pool_->Schedule([&take, &done] {
          take();
          done.Notify();
        });
    } catch (...) {
      for (Index i = n_scheduled; i < n_helpers; ++i) done.Notify();
    }
    take();
    done.Wait();
    busy_.store(false, std::memory_order_release);
  }

 private:
  Eigen::ThreadPoolInterface* pool_;
  std::atomic<bool> busy_{false};
};
static_assert(Executor<EigenExecutor>);

}  // namespace kvdecode

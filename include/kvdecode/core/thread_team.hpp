// SPDX-License-Identifier: MIT
// <kvdecode/core/thread_team.hpp> - an executor for decoding: a fixed team whose threads spin between the
// parts of a step, since waking a sleeper costs more than a layer, and fall asleep after a bounded wait,
// since an idle program should cost nothing.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/executor.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/core/simd/register.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

namespace kvdecode::inline KVDECODE_ABI {

/// n threads, the calling one included. Tasks i mod n of a parallel_for are the share of thread i; a share whose thread is
/// not there by the time that the caller is through with its own, because it sleeps or the machine has other work for its
/// core, is the caller's too. From several threads at a time, or from a task, all tasks run on the calling thread.
class ThreadTeam {
 public:
  /// @param n_threads in [1, 1024]  @throws Error kBadArgument, std::system_error if a thread cannot start
  explicit ThreadTeam(Index n_threads) {
    if (n_threads < 1 || n_threads > 1024) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "a thread team has 1 to 1024 threads, got ", n_threads);
    // With more threads than cores a spinning one keeps another from the work it waits for.
    const Index n_cores = std::max<Index>(1, static_cast<Index>(std::thread::hardware_concurrency()));
    n_spins_ = n_threads <= n_cores ? kSpins : 0;
    workers_.reserve(static_cast<std::size_t>(n_threads - 1));
    shares_ = Vector<Share>(static_cast<std::size_t>(n_threads));
    try {
      for (Index i = 1; i < n_threads; ++i)
        workers_.emplace_back([this, i, n_threads] { work(i, n_threads); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~ThreadTeam() { stop(); }
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  Index concurrency() const noexcept { return static_cast<Index>(workers_.size()) + 1; }

  void parallel_for(Index n, TaskRef task) noexcept {
    const Index n_threads = concurrency();
    if (n <= 1 || n_threads == 1 || busy_.exchange(true, std::memory_order_acquire)) {
      SequentialExecutor{}.parallel_for(n, task);
      return;
    }
    job_ = &task;
    n_ = n;
    n_running_.store(n_threads - 1, std::memory_order_relaxed);
    // The sequentially consistent pair (generation_, n_asleep_) makes sure that no sleeper is missed.
    const std::uint32_t generation = generation_.fetch_add(1, std::memory_order_seq_cst) + 1;
    if (n_asleep_.load(std::memory_order_seq_cst) != 0) generation_.notify_all();
    run_share(0, n_threads);
    for (Index i = 1; i < n_threads; ++i)
      if (take_share(i, generation)) run_share(i, n_threads);
    for (Index spins = 0; n_running_.load(std::memory_order_acquire) != 0; ++spins) pause(spins);
    busy_.store(false, std::memory_order_release);
  }

 private:
  static constexpr Index kSpins = 20000;  // about a third of a millisecond

  void pause(Index spins) const noexcept {
    if (spins < n_spins_)
      simd::pause();
    else
      std::this_thread::yield();
  }

  /// Every share of a generation is taken once, by its thread or by the caller; none of the next before all of this one
  /// have been run.
  bool take_share(Index i, std::uint32_t generation) noexcept {
    std::uint32_t last = generation - 1;
    return shares_[static_cast<std::size_t>(i)].taken.compare_exchange_strong(
        last, generation, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void run_share(Index i, Index n_threads) noexcept {
    const TaskRef task = *job_;
    for (Index k = i; k < n_; k += n_threads) task(k);
    if (i != 0) n_running_.fetch_sub(1, std::memory_order_release);
  }

  void work(Index self, Index n_threads) noexcept {
    std::uint32_t seen = 0;
    while (true) {
      for (Index spins = 0; generation_.load(std::memory_order_acquire) == seen && spins < n_spins_; ++spins)
        pause(spins);
      if (generation_.load(std::memory_order_acquire) == seen) {
        n_asleep_.fetch_add(1, std::memory_order_seq_cst);
        generation_.wait(seen, std::memory_order_seq_cst);
        n_asleep_.fetch_sub(1, std::memory_order_seq_cst);
      }
      const std::uint32_t generation = generation_.load(std::memory_order_acquire);
      if (generation == seen) continue;
      seen = generation;
      if (stopping_.load(std::memory_order_relaxed)) return;
      if (take_share(self, generation)) run_share(self, n_threads);
    }
  }

  void stop() noexcept {
    stopping_.store(true, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_seq_cst);
    generation_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  struct alignas(kCacheLine) Share {
    std::atomic<std::uint32_t> taken{0};  // the last generation in which somebody took it
  };

  Vector<std::thread> workers_;
  Vector<Share> shares_;  // [n_threads]; the first is always the caller's
  Index n_spins_ = 0;
  const TaskRef* job_ = nullptr;
  Index n_ = 0;
  alignas(kCacheLine) std::atomic<std::uint32_t> generation_{0};
  alignas(kCacheLine) std::atomic<Index> n_running_{0};
  alignas(kCacheLine) std::atomic<int> n_asleep_{0};
  std::atomic<bool> busy_{false};
  std::atomic<bool> stopping_{false};
};
static_assert(Executor<ThreadTeam>);

}  // namespace kvdecode

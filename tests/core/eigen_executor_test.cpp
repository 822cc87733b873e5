// SPDX-License-Identifier: MIT
// What an EigenExecutor promises beyond every executor (executor_test.cpp).
#include <kvdecode/core/eigen_executor.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace {

using kvdecode::EigenExecutor;
using kvdecode::Index;

TEST_CASE("eigen executor: its concurrency is that of the pool") {
  Eigen::ThreadPool pool(3);
  CHECK(EigenExecutor(pool).concurrency() == 3);
  Eigen::ThreadPool empty(0);
  EigenExecutor exec(empty);
  CHECK(exec.concurrency() == 1);
  int n_calls = 0;
  auto task = [&](Index) noexcept { ++n_calls; };
  exec.parallel_for(4, task);
  CHECK(n_calls == 4);
}

TEST_CASE("eigen executor: from a thread of the pool it runs inline") {
  Eigen::ThreadPool pool(2);
  EigenExecutor exec(pool);
  std::atomic<int> n_calls{0}, n_elsewhere{0};
  Eigen::Barrier done(2);
  for (int i = 0; i < 2; ++i)  // both threads of the pool: nobody is left to help
    pool.Schedule([&] {
      const std::thread::id self = std::this_thread::get_id();
      auto task = [&](Index) noexcept {
        n_calls.fetch_add(1);
        if (std::this_thread::get_id() != self) n_elsewhere.fetch_add(1);
      };
      exec.parallel_for(5, task);
      done.Notify();
    });
  done.Wait();
  CHECK(n_calls == 10);
  CHECK(n_elsewhere == 0);
}

TEST_CASE("eigen executor: from one of its own tasks it runs inline, on the calling thread too") {
  Eigen::ThreadPool pool(2);
  EigenExecutor exec(pool);
  const std::thread::id caller = std::this_thread::get_id();
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> n_calls{0}, n_elsewhere{0}, n_by_caller{0};
    auto task = [&](Index) noexcept {
      const std::thread::id self = std::this_thread::get_id();
      if (self == caller) n_by_caller.fetch_add(1);
      auto nested = [&](Index) noexcept {
        n_calls.fetch_add(1);
        if (std::this_thread::get_id() != self) n_elsewhere.fetch_add(1);
        // Time for a helper to come and take one.
        std::this_thread::yield();
      };
      exec.parallel_for(20, nested);
    };
    exec.parallel_for(4, task);
    CHECK(n_calls == 80);
    CHECK(n_elsewhere == 0);
    if (round > 10 && n_by_caller > 0) break;
  }
  // Afterwards it is free again: the helper of two tasks that wait for one another has to be another thread.
  std::atomic<int> n_here{0};
  auto meet = [&](Index) noexcept {
    n_here.fetch_add(1);
    while (n_here.load() < 2) std::this_thread::yield();
  };
  exec.parallel_for(2, meet);
  CHECK(n_here == 2);
}

/// A pool that schedules so many tasks more, and then throws.
class FailingPool : public Eigen::ThreadPoolInterface {
 public:
  int n_left = 0;

  void Schedule(std::function<void()> task) override {
    if (n_left-- <= 0) throw std::bad_alloc();
    pool_.Schedule(std::move(task));
  }
  int NumThreads() const override { return pool_.NumThreads(); }
  int CurrentThreadId() const override { return pool_.CurrentThreadId(); }

 private:
  Eigen::ThreadPool pool_{4};
};

TEST_CASE("eigen executor: what a pool does not schedule, the others do, and nobody is left behind") {
  for (const int n_scheduled : {0, 1, 2, 3}) {
    CAPTURE(n_scheduled);
    FailingPool pool;
    EigenExecutor exec(pool);
    for (int round = 0; round < 100; ++round) {
      pool.n_left = n_scheduled;
      std::vector<std::atomic<int>> n_calls(50);  // dead before a helper that is not waited for
      auto task = [&](Index i) noexcept { n_calls[static_cast<std::size_t>(i)].fetch_add(1); };
      CHECK_NOTHROW(exec.parallel_for(50, task));
      CHECK(std::all_of(n_calls.begin(), n_calls.end(), [](const auto& n) { return n == 1; }));
    }
  }
}

TEST_CASE("eigen executor: waits for helpers that started late") {
  Eigen::ThreadPool pool(2);
  EigenExecutor exec(pool);
  for (int round = 0; round < 500; ++round) {
    std::atomic<int> n_calls{0};  // dead before a helper that is not waited for
    auto task = [&](Index) noexcept { n_calls.fetch_add(1); };
    exec.parallel_for(3, task);
    CHECK(n_calls == 3);
  }
}

}  // namespace

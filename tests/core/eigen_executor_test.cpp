// SPDX-License-Identifier: MIT
// What an EigenExecutor promises beyond every executor (executor_test.cpp).
#include <kvdecode/core/eigen_executor.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

namespace {

using kvdecode::EigenExecutor;
using kvdecode::Index;

TEST_CASE("eigen executor: its concurrency is that of the pool") {
  Eigen::ThreadPool pool(3);
  CHECK(EigenExecutor(pool).concurrency() == 3);
  Eigen::ThreadPool empty(0);
  const EigenExecutor exec(empty);
  CHECK(exec.concurrency() == 1);
  int n_calls = 0;
  auto task = [&](Index) noexcept { ++n_calls; };
  exec.parallel_for(4, task);
  CHECK(n_calls == 4);
}

TEST_CASE("eigen executor: from a thread of the pool it runs inline") {
  Eigen::ThreadPool pool(2);
  const EigenExecutor exec(pool);
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

TEST_CASE("eigen executor: waits for helpers that started late") {
  Eigen::ThreadPool pool(2);
  const EigenExecutor exec(pool);
  for (int round = 0; round < 500; ++round) {
    std::atomic<int> n_calls{0};  // dead before a helper that is not waited for
    auto task = [&](Index) noexcept { n_calls.fetch_add(1); };
    exec.parallel_for(3, task);
    CHECK(n_calls == 3);
  }
}

}  // namespace

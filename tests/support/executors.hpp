// SPDX-License-Identifier: MIT
// <support/executors.hpp> - executors that are not the library's: a host's own threads in five lines, and one
// that runs tasks backwards on the calling thread.
#pragma once

#include <kvdecode/core/executor.hpp>

#include <thread>
#include <vector>

namespace kvdecode_test {

/// A new thread for each task.
struct HostPool {
  kvdecode::Index concurrency() const { return 3; }
  void parallel_for(kvdecode::Index n, kvdecode::TaskRef task) const {
    std::vector<std::thread> threads;
    for (kvdecode::Index i = 0; i < n; ++i) threads.emplace_back([task, i] { task(i); });
    for (std::thread& thread : threads) thread.join();
  }
};

/// Claims some threads, and runs the last task first.
struct BackwardsExecutor {
  kvdecode::Index n_threads = 1;

  kvdecode::Index concurrency() const { return n_threads; }
  void parallel_for(kvdecode::Index n, kvdecode::TaskRef task) const {
    for (kvdecode::Index i = n; i-- > 0;) task(i);
  }
};

}  // namespace kvdecode_test

// SPDX-License-Identifier: MIT
// <laws/executors.hpp> - all executors that the laws run on, by name. One more is one more line of
// ExecutorList.
#pragma once

#include <support/executors.hpp>

#include <kvdecode/core/eigen_executor.hpp>
#include <kvdecode/core/executor.hpp>
#include <kvdecode/core/thread_team.hpp>

#include <cstddef>
#include <thread>
#include <vector>

namespace kvdecode_laws {

using kvdecode::ExecutorRef;
using kvdecode::Index;
using kvdecode::TaskRef;

/// A host's own threads: another one takes every second task. Cheaper than kvdecode_test::HostPool.
struct HostPair {
  Index concurrency() const { return 2; }
  void parallel_for(Index n, TaskRef task) const {
    std::thread other([=] {
      for (Index i = 1; i < n; i += 2) task(i);
    });
    for (Index i = 0; i < n; i += 2) task(i);
    other.join();
  }
};

struct NamedExecutor {
  const char* name;
  ExecutorRef exec;
  bool is_slow = false;     // starts threads at every call
  bool is_typical = false;  // stands for the others where each of them would take long
};

/// Owns the threads.
class ExecutorList {
 public:
  const std::vector<NamedExecutor>& all() const { return all_; }
  std::size_t size() const { return all_.size(); }
  const NamedExecutor& operator[](Index i) const { return all_[static_cast<std::size_t>(i)]; }

 private:
  kvdecode::SequentialExecutor sequential_;
  kvdecode::ThreadTeam team_1_{1}, team_2_{2}, team_3_{3};
  Eigen::ThreadPool pool_1_{1}, pool_2_{2}, pool_3_{3};
  kvdecode::EigenExecutor eigen_1_{pool_1_}, eigen_2_{pool_2_}, eigen_3_{pool_3_};
  HostPair host_;
  kvdecode_test::BackwardsExecutor backwards_{5};
  std::vector<NamedExecutor> all_{
      {"inline", {}, false, true},
      {"sequential", sequential_},
      {"team of 1", team_1_},
      {"team of 2", team_2_, false, true},
      {"team of 3", team_3_},
      {"Eigen 1", eigen_1_},
      {"Eigen 2", eigen_2_, false, true},
      {"Eigen 3", eigen_3_},
      {"host's two threads", host_, true},
      {"backwards, as 5", backwards_, false, true},
  };
};

/// The program's own.
inline const ExecutorList& executors() {
  static const ExecutorList list;
  return list;
}

}  // namespace kvdecode_laws

// SPDX-License-Identifier: MIT
// core/executor.hpp, and the laws of executors for every executor there is.
#include <support/executors.hpp>

#include <kvdecode/core/eigen_executor.hpp>
#include <kvdecode/core/executor.hpp>
#include <kvdecode/core/thread_team.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

using kvdecode::ExecutorRef;
using kvdecode::Index;
using kvdecode::Range;
using kvdecode::split_range;

static_assert(std::is_trivially_copyable_v<ExecutorRef> && sizeof(ExecutorRef) == 2 * sizeof(void*));
static_assert(!std::is_constructible_v<ExecutorRef, kvdecode::SequentialExecutor>,
              "a temporary does not bind");
static_assert(!std::is_constructible_v<ExecutorRef, const kvdecode::SequentialExecutor>);
static_assert(!std::is_constructible_v<ExecutorRef, kvdecode_test::HostPool>);
static_assert(std::is_constructible_v<ExecutorRef, const kvdecode::SequentialExecutor&>);
static_assert(std::is_constructible_v<ExecutorRef, kvdecode_test::HostPool&>);
static_assert(!std::is_constructible_v<ExecutorRef, std::string&>);

/// An executor and what it runs on, by name.
struct Named {
  std::string name;
  ExecutorRef exec;
  std::shared_ptr<const void> owner;
};

template <class E, class... Args>
Named make_named(std::string name, Args&&... args) {
  auto executor = std::make_shared<E>(static_cast<Args&&>(args)...);
  return {std::move(name), ExecutorRef(*executor), executor};
}

struct EigenPool {
  explicit EigenPool(int n_threads) : pool(n_threads), executor(pool) {}
  Index concurrency() const { return executor.concurrency(); }
  void parallel_for(Index n, kvdecode::TaskRef task) { executor.parallel_for(n, task); }

  Eigen::ThreadPool pool;
  kvdecode::EigenExecutor executor;
};

std::vector<Named> all_executors() {
  std::vector<Named> result;
  result.push_back({"none", ExecutorRef(), nullptr});
  result.push_back(make_named<kvdecode::SequentialExecutor>("sequential"));
  for (const Index n : {1, 2, 3, 8})
    result.push_back(make_named<kvdecode::ThreadTeam>("team of " + std::to_string(n), n));
  for (const int n : {1, 2, 3})
    result.push_back(make_named<EigenPool>("Eigen pool of " + std::to_string(n), n));
  result.push_back(make_named<kvdecode_test::HostPool>("host's pool"));
  result.push_back(
      make_named<kvdecode_test::BackwardsExecutor>("backwards", kvdecode_test::BackwardsExecutor{3}));
  return result;
}

/// How often each i of [0, n) was called.
struct Calls {
  explicit Calls(Index n) : counts(static_cast<std::size_t>(n)) {}
  void operator()(Index i) noexcept { counts.at(static_cast<std::size_t>(i)).fetch_add(1); }
  bool once_each() const {
    for (const std::atomic<int>& count : counts)
      if (count.load() != 1) return false;
    return true;
  }

  std::vector<std::atomic<int>> counts;
};

TEST_CASE("executors: each task is run exactly once, for fewer and more tasks than threads") {
  for (const Named& named : all_executors()) {
    CAPTURE(named.name);
    CHECK(named.exec.concurrency() >= 1);
    for (const Index n : {0, 1, 2, 3, 4, 7, 8, 9, 31, 100}) {
      CAPTURE(n);
      Calls calls(n);
      named.exec.parallel_for(n, calls);
      CHECK(calls.once_each());
    }
  }
}

TEST_CASE("executors: parallel_for returns after all that the tasks wrote is there") {
  for (const Named& named : all_executors()) {
    CAPTURE(named.name);
    std::vector<Index> values(64);  // plain memory: a data race would be a finding of the thread sanitizer
    for (Index round = 1; round <= 20; ++round) {
      auto task = [&](Index i) noexcept { values[static_cast<std::size_t>(i)] += i; };
      named.exec.parallel_for(64, task);
      for (Index i = 0; i < 64; ++i) CHECK(values[static_cast<std::size_t>(i)] == round * i);
    }
  }
}

TEST_CASE("executors: a parallel_for within a task runs all of its tasks before the task goes on") {
  for (const Named& named : all_executors()) {
    CAPTURE(named.name);
    std::atomic<int> n_inner{0}, n_incomplete{0};
    auto outer = [&](Index) noexcept {
      Calls calls(5);
      auto inner = [&](Index i) noexcept {
        calls(i);
        n_inner.fetch_add(1);
      };
      named.exec.parallel_for(5, inner);
      if (!calls.once_each()) n_incomplete.fetch_add(1);
    };
    named.exec.parallel_for(6, outer);
    CHECK(n_inner == 30);
    CHECK(n_incomplete == 0);
  }
}

TEST_CASE("executors: several threads may use one at the same time") {
  for (const Named& named : all_executors()) {
    if (named.name == "host's pool") continue;  // 3 × 200 × 4 threads are no test of ours
    CAPTURE(named.name);
    std::atomic<int> n_calls{0}, n_incomplete{0};
    std::vector<std::thread> hosts;
    for (int host = 0; host < 3; ++host)
      hosts.emplace_back([&] {
        for (int round = 0; round < 200; ++round) {
          Calls calls(4);
          named.exec.parallel_for(4, calls);
          n_calls.fetch_add(4);
          if (!calls.once_each()) n_incomplete.fetch_add(1);
        }
      });
    for (std::thread& host : hosts) host.join();
    CHECK(n_calls == 2400);
    CHECK(n_incomplete == 0);
  }
}

TEST_CASE("executor ref: without an executor, and for one task, the caller's thread runs all, in order") {
  const auto order_of = [](ExecutorRef exec, Index n) {
    std::vector<Index> order;
    const std::thread::id caller = std::this_thread::get_id();
    bool is_caller = true;
    auto task = [&](Index i) noexcept {
      order.push_back(i);
      is_caller = is_caller && std::this_thread::get_id() == caller;
    };
    exec.parallel_for(n, task);
    CHECK(is_caller);
    return order;
  };
  CHECK(ExecutorRef().concurrency() == 1);
  CHECK(order_of(ExecutorRef(), 4) == std::vector<Index>{0, 1, 2, 3});
  kvdecode_test::HostPool pool;
  CHECK(order_of(pool, 1) == std::vector<Index>{0});
}

TEST_CASE("executor ref: a copy refers to the same executor, const ones included") {
  const kvdecode_test::BackwardsExecutor backwards{5};
  const ExecutorRef exec(backwards);
  const ExecutorRef copy = exec;
  CHECK(copy.concurrency() == 5);
  std::vector<Index> order;
  auto task = [&](Index i) noexcept { order.push_back(i); };
  copy.parallel_for(3, task);
  CHECK(order == std::vector<Index>{2, 1, 0});
}

TEST_CASE("task ref: refers to the callable, const ones included") {
  int sum = 0;
  const auto task = [&sum](Index i) noexcept { sum += static_cast<int>(i); };
  const kvdecode::TaskRef ref(task);
  const kvdecode::TaskRef copy = ref;
  ref(3);
  copy(4);
  CHECK(sum == 7);
}

TEST_CASE("split_range: the parts are contiguous, cover all, begin at the grain, and differ by one grain") {
  for (const Index n : {0, 1, 2, 7, 15, 16, 17, 33, 100, 576})
    for (const Index parts : {1, 2, 3, 5, 8, 33})
      for (const Index grain : {1, 4, 16}) {
        CAPTURE(n);
        CAPTURE(parts);
        CAPTURE(grain);
        Index end = 0, smallest = n + grain, largest = 0;
        for (Index i = 0; i < parts; ++i) {
          const Range range = split_range(n, parts, i, grain);
          CHECK(range.begin == end);
          CHECK((range.begin % grain == 0 || range.begin == n));
          CHECK(range.begin <= range.end);
          const Index grains = (range.end - range.begin + grain - 1) / grain;
          smallest = std::min(smallest, grains);
          largest = std::max(largest, grains);
          end = range.end;
        }
        CHECK(end == n);
        CHECK(largest - smallest <= 1);
      }
}

}  // namespace

// SPDX-License-Identifier: MIT
// What a ThreadTeam promises beyond every executor (executor_test.cpp).
#include <support/allocation.hpp>
#include <support/meeting.hpp>

#include <kvdecode/core/thread_team.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <unistd.h>
#endif

namespace {

using kvdecode::AllocationHook;
using kvdecode::Error;
using kvdecode::Index;
using kvdecode::ScopedAllocationHook;
using kvdecode::ThreadTeam;
using kvdecode_test::Meeting;

TEST_CASE("thread team: its size is checked") {
  CHECK_THROWS_WITH_AS(ThreadTeam(0), "a thread team has 1 to 1024 threads, got 0", Error);
  CHECK_THROWS_WITH_AS(ThreadTeam(-3), "a thread team has 1 to 1024 threads, got -3", Error);
  CHECK_THROWS_WITH_AS(ThreadTeam(1025), "a thread team has 1 to 1024 threads, got 1025", Error);
  CHECK(ThreadTeam(1).concurrency() == 1);
  CHECK(ThreadTeam(5).concurrency() == 5);
}

TEST_CASE("thread team: a failed allocation leaves nothing running") {
  kvdecode_test::FailingAllocation first(0);
  CHECK_THROWS_AS(ThreadTeam(3), std::bad_alloc);
}

TEST_CASE("thread team: task i runs on thread i mod n, the caller's being thread 0") {
  ThreadTeam team(3);
  std::array<std::thread::id, 9> ran_on;
  Meeting all(3);
  auto task = [&](Index i) noexcept {
    if (i < 3) all.attend();
    ran_on[static_cast<std::size_t>(i)] = std::this_thread::get_id();
  };
  team.parallel_for(9, task);
  CHECK(ran_on[0] == std::this_thread::get_id());
  CHECK(ran_on[0] != ran_on[1]);
  CHECK(ran_on[1] != ran_on[2]);
  CHECK(ran_on[0] != ran_on[2]);
  for (std::size_t i = 3; i < 9; ++i) CHECK(ran_on[i] == ran_on[i - 3]);
}

TEST_CASE("thread team: the caller takes the share of a thread that is not there") {
  ThreadTeam team(4);
  bool has_taken = false;
  for (int step = 0; step < 10000 && !has_taken;
       ++step) {  // sooner or later one is late for such small shares
    std::array<std::thread::id, 8> ran_on;
    auto task = [&](Index i) noexcept { ran_on[static_cast<std::size_t>(i)] = std::this_thread::get_id(); };
    team.parallel_for(8, task);
    for (std::size_t i = 0; i < 4; ++i) {
      REQUIRE(ran_on[i] != std::thread::id());
      REQUIRE(ran_on[i] == ran_on[i + 4]);  // a share is one thread's
      has_taken = has_taken || (i > 0 && ran_on[i] == std::this_thread::get_id());
    }
  }
  CHECK(has_taken);
}

TEST_CASE("thread team: a nested parallel_for runs on the thread of its task, in order") {
  ThreadTeam team(3);
  std::atomic<int> n_wrong{0};
  auto outer = [&](Index) noexcept {
    const std::thread::id self = std::this_thread::get_id();
    std::array<Index, 4> order{};
    std::size_t n = 0;
    auto inner = [&](Index i) noexcept {
      order[n++] = i;
      if (std::this_thread::get_id() != self) n_wrong.fetch_add(1);
    };
    team.parallel_for(4, inner);
    if (order != std::array<Index, 4>{0, 1, 2, 3}) n_wrong.fetch_add(1);
  };
  team.parallel_for(7, outer);
  CHECK(n_wrong == 0);
}

TEST_CASE("thread team: while one thread uses it, another runs its tasks itself") {
  ThreadTeam team(2);
  std::atomic<bool> has_started{false}, may_end{false};
  std::thread holder([&] {
    auto task = [&](Index i) noexcept {
      if (i != 0) return;
      has_started = true;
      while (!may_end) std::this_thread::yield();
    };
    team.parallel_for(2, task);
  });
  while (!has_started) std::this_thread::yield();
  bool is_own = true;
  int n_calls = 0;
  auto task = [&](Index) noexcept {
    ++n_calls;
    is_own = is_own && std::this_thread::get_id() != std::thread::id() && !may_end;
  };
  team.parallel_for(5, task);  // would never return if it waited for the holder
  CHECK(n_calls == 5);
  CHECK(is_own);
  may_end = true;
  holder.join();
  std::array<std::thread::id, 2> ran_on;  // and afterwards it is free again
  Meeting two(2);
  auto both = [&](Index i) noexcept {
    two.attend();
    ran_on[static_cast<std::size_t>(i)] = std::this_thread::get_id();
  };
  team.parallel_for(2, both);
  CHECK(ran_on[0] != ran_on[1]);
}

TEST_CASE("thread team: 20000 tiny steps, each complete when it returns") {
  for (const Index n_threads : {2, 3, 8}) {
    CAPTURE(n_threads);
    ThreadTeam team(n_threads);
    std::vector<int> counts(static_cast<std::size_t>(n_threads));  // plain: each written by one thread a step
    auto task = [&](Index i) noexcept { ++counts[static_cast<std::size_t>(i)]; };
    int n_incomplete = 0;
    for (int step = 1; step <= 20000; ++step) {
      team.parallel_for(n_threads, task);
      for (const int count : counts) n_incomplete += count != step;
    }
    CHECK(n_incomplete == 0);
  }
}

#if defined(__linux__)

/// Waits until the kernel says that the thread sleeps; false after ten seconds of spinning.
bool falls_asleep(pid_t thread) {
  for (int i = 0; i < 10000; ++i) {
    std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
    const std::string line((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
    const std::size_t name_end = line.rfind(')');
    if (name_end != std::string::npos && line[name_end + 2] == 'S') return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

/// How often the kernel has switched from the thread to another one.
Index n_switches(pid_t thread) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  Index n = 0;
  for (std::string line; std::getline(status, line);)
    if (line.find("ctxt_switches:") != std::string::npos) n += std::stol(line.substr(line.find(':') + 1));
  return n;
}

/// Whether it comes to be left alone: one that looks around now and then is switched from each time.
bool stays_asleep(pid_t thread) {
  for (int i = 0; i < 100; ++i) {
    const Index before = n_switches(thread);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (before > 0 && n_switches(thread) == before) return true;
  }
  return false;
}

TEST_CASE("thread team: an idle thread falls asleep, costs nothing, and wakes up for the next step") {
  for (const Index n_threads : {2, 3}) {  // one that spins first, and one of more threads than cores
    CAPTURE(n_threads);
    ThreadTeam team(n_threads);
    std::array<pid_t, 3> ran_on{};
    for (int round = 0; round < 5; ++round) {
      ran_on = {};
      Meeting all(static_cast<int>(n_threads));
      auto task = [&](Index i) noexcept {
        all.attend();
        ran_on[static_cast<std::size_t>(i)] = gettid();
      };
      team.parallel_for(n_threads, task);
      for (std::size_t i = 1; i < static_cast<std::size_t>(n_threads); ++i) {
        CHECK(ran_on[i] != 0);
        CHECK(falls_asleep(ran_on[i]));
        CHECK(stays_asleep(ran_on[i]));
      }
    }
  }
}

#endif

TEST_CASE("thread team: teams come and go, idle, asleep or just after work") {
  auto task = [](Index) noexcept {};
  for (int i = 0; i < 200; ++i) {
    ThreadTeam team(1 + i % 4);
    if (i % 3 != 0) team.parallel_for(i % 7, task);
  }
}

TEST_CASE("thread team: a step allocates nothing") {
  ThreadTeam team(3);
  AllocationHook hook;
  const ScopedAllocationHook scope(hook);
  auto task = [](Index) noexcept {};
  for (int i = 0; i < 100; ++i) team.parallel_for(3, task);
  CHECK(hook.n_allocations == 0);
}

}  // namespace

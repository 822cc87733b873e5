// SPDX-License-Identifier: MIT
// Tasks that have to run at the same time, which no program may ask for: so a test sees every thread of a team at work,
// whose caller takes the shares of those that are late.
#pragma once

#include <atomic>
#include <thread>

namespace kvdecode_test {

/// Where n tasks wait for one another, once.
class Meeting {
 public:
  explicit Meeting(int n) : n_missing_(n) {}
  void attend() noexcept {
    n_missing_.fetch_sub(1);
    while (n_missing_ > 0) std::this_thread::yield();
  }

 private:
  std::atomic<int> n_missing_;
};

}  // namespace kvdecode_test

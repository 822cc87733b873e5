// SPDX-License-Identifier: MIT
// <support/allocation.hpp> - allocations that fail on purpose.
#pragma once

#include <kvdecode/core/memory.hpp>

#include <doctest/doctest.h>

#include <new>

namespace kvdecode_test {

/// While it lives, this thread's allocation number `which` (from 0) of the library is refused.
class FailingAllocation {
 public:
  explicit FailingAllocation(kvdecode::Index which) : left_(which), scope_(hook_) {
    hook_.context = this;
    hook_.refuse = [](void* self, std::size_t) {
      return static_cast<FailingAllocation*>(self)->left_-- == 0;
    };
  }

  bool has_failed() const { return left_ < 0; }

 private:
  kvdecode::Index left_;
  kvdecode::AllocationHook hook_;
  kvdecode::ScopedAllocationHook scope_;
};

/// Calls f() with allocation number `which` refused. @return whether it came to that, and f threw std::bad_alloc
template <class Failing = FailingAllocation, class F>
bool is_refused(kvdecode::Index which, F&& f) {
  bool threw = false, has_failed = false;
  {
    const Failing failing(which);
    try {
      f();
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    has_failed = failing.has_failed();
  }
  CHECK(threw == has_failed);
  return threw;
}

}  // namespace kvdecode_test

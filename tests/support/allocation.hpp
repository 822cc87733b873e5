// SPDX-License-Identifier: MIT
// <support/allocation.hpp> - allocations that fail on purpose.
#pragma once

#include <kvdecode/core/memory.hpp>

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

}  // namespace kvdecode_test

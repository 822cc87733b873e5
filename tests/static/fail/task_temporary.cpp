// error: (cannot convert|could not convert|no known conversion|no matching|lvalue)
// SPDX-License-Identifier: MIT
// Nor does a TaskRef.
#include <kvdecode/core/executor.hpp>

void g(kvdecode::ExecutorRef exec) {
  exec.parallel_for(3, [](kvdecode::Index) noexcept {});
}

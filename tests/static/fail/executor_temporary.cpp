// error: deleted function
// SPDX-License-Identifier: MIT
#include <kvdecode/core/executor.hpp>

// An ExecutorRef does not own: one made from a temporary would dangle.
kvdecode::ExecutorRef dangling = kvdecode::SequentialExecutor{};

// error: deleted
// SPDX-License-Identifier: MIT
// An ExecutorRef does not keep its executor alive: a temporary does not bind.
#include <kvdecode/core/executor.hpp>

void f(kvdecode::ExecutorRef exec);
void g() { f(kvdecode::SequentialExecutor{}); }

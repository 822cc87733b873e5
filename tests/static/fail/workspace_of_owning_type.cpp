// error: Scratch memory holds trivially copyable scalars|Scalar
// SPDX-License-Identifier: MIT
#include <kvdecode/model/workspace.hpp>

#include <string>

kvdecode::Workspace<std::string> workspace;

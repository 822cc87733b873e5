// SPDX-License-Identifier: MIT
// The definitions behind <kvdecode/compiled.hpp> for float.
#define KVDECODE_COMPILING_FLOAT
#include <kvdecode/compiled.hpp>

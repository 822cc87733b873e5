// SPDX-License-Identifier: MIT
// The definitions behind <kvdecode/compiled.hpp> for double.
#define KVDECODE_COMPILING_DOUBLE
#include <kvdecode/compiled.hpp>

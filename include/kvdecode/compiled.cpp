// SPDX-License-Identifier: MIT
// The definitions behind <kvdecode/compiled.hpp>.
#define KVDECODE_COMPILING
#include <kvdecode/compiled.hpp>

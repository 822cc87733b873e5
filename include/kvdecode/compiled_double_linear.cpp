// SPDX-License-Identifier: MIT
// The definitions behind <kvdecode/compiled.hpp> for double: the exact products of the other formats.
#define KVDECODE_TEMPLATE_double_linear template
#include <kvdecode/compiled.hpp>

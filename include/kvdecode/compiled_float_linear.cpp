// SPDX-License-Identifier: MIT
// The definitions behind <kvdecode/compiled.hpp> for float: the exact products of the other formats.
#define KVDECODE_TEMPLATE_float_linear template
#include <kvdecode/compiled.hpp>

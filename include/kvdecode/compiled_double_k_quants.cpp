// SPDX-License-Identifier: MIT
// The definitions behind <kvdecode/compiled.hpp> for double: the exact products of formats with blocks of 256.
#define KVDECODE_TEMPLATE_double_k_quants template
#include <kvdecode/compiled.hpp>

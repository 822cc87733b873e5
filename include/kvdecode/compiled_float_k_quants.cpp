// SPDX-License-Identifier: MIT
// The definitions behind <kvdecode/compiled.hpp> for float: the exact products of formats with blocks of 256.
#define KVDECODE_TEMPLATE_float_k_quants template
#include <kvdecode/compiled.hpp>

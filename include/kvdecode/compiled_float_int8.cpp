// SPDX-License-Identifier: MIT
// The definitions behind <kvdecode/compiled.hpp> for float: the products of int8 activations.
#define KVDECODE_TEMPLATE_float_int8 template
#include <kvdecode/compiled.hpp>

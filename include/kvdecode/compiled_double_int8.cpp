// SPDX-License-Identifier: MIT
// The definitions behind <kvdecode/compiled.hpp> for double: the products of int8 activations.
#define KVDECODE_TEMPLATE_double_int8 template
#include <kvdecode/compiled.hpp>

// SPDX-License-Identifier: MIT
// The definitions behind <kvdecode/compiled.hpp> for float: all but the products.
#define KVDECODE_TEMPLATE_float_model template
#include <kvdecode/compiled.hpp>

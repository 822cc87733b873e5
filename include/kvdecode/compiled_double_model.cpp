// SPDX-License-Identifier: MIT
// The definitions behind <kvdecode/compiled.hpp> for double: all but the products.
#define KVDECODE_TEMPLATE_double_model template
#include <kvdecode/compiled.hpp>

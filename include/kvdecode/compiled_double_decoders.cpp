// SPDX-License-Identifier: MIT
// The definitions behind <kvdecode/compiled.hpp> for double: the decoders that are chosen at run time.
#define KVDECODE_TEMPLATE_double_decoders template
#include <kvdecode/compiled.hpp>

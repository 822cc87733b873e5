// SPDX-License-Identifier: MIT
// The definitions behind <kvdecode/compiled.hpp> for float: the decoders that are chosen at run time.
#define KVDECODE_TEMPLATE_float_decoders template
#include <kvdecode/compiled.hpp>

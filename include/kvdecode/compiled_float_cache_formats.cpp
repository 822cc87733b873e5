// SPDX-License-Identifier: MIT
// The definitions behind <kvdecode/compiled.hpp> for float: attention over the formats that are for caches.
#define KVDECODE_TEMPLATE_float_cache_formats template
#include <kvdecode/compiled.hpp>

// error: Format
// SPDX-License-Identifier: MIT
// The formats of a cache are formats, not scalars: ContiguousCache<F32>.
#include <kvdecode/cache/contiguous.hpp>

using Cache = kvdecode::ContiguousCache<float>;

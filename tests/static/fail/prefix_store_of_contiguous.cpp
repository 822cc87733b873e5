// error: Only a PagedCache has pages that sequences can share
// SPDX-License-Identifier: MIT
// Sequences share pages: other caches have none.
#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/prefix_store.hpp>

void keep(kvdecode::PagePool& pool) { kvdecode::PrefixStore<kvdecode::ContiguousCache<>> store(pool, {}); }

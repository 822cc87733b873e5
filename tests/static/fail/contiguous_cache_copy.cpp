// error: deleted
// SPDX-License-Identifier: MIT
// A cache is large: it is copied by fork(), never by accident.
#include <kvdecode/cache/contiguous.hpp>

kvdecode::ContiguousCache<> f(const kvdecode::ContiguousCache<>& cache) { return cache; }

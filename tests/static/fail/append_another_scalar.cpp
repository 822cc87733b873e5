// error: StoresFrom
// SPDX-License-Identifier: MIT
#include <kvdecode/cache/growing.hpp>

void f(kvdecode::GrowingCache<kvdecode::Raw<float>>& cache, kvdecode::RowsView<const double> rows) {
  cache.append(0, rows, rows);
}

// error: KvCacheFor
// SPDX-License-Identifier: MIT
// Raw<float> holds floats: a transformer in double cannot use it.
#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/model/transformer.hpp>

using Cache = kvdecode::ContiguousCache<kvdecode::Raw<float>>;

void f(const kvdecode::Transformer<double>& transformer, kvdecode::Workspace<double>& workspace,
       Cache& cache) {
  transformer.forward(workspace, {}, kvdecode::Segment<Cache>{&cache, {}});
}

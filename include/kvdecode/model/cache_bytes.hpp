// SPDX-License-Identifier: MIT
// <kvdecode/model/cache_bytes.hpp> - what a KV cache costs, in closed form.
#pragma once

#include <kvdecode/core/format.hpp>
#include <kvdecode/core/kv_shape.hpp>

#include <algorithm>

namespace kvdecode::inline KVDECODE_ABI {

/// Bytes of the keys and values that a sequence of seq_len positions has to keep: over the layers with rows
/// of their own, kept positions * n_kv_heads * (row_bytes(k_dim) + row_bytes(v_dim)). For a uniform model
/// that is 2 * n_layers * n_kv_heads * seq_len * head_dim * bytes per number. A window keeps its own
/// positions and the sinks, a chunk no more than itself; values that are a part of the keys cost nothing.
template <Format KFormat, Format VFormat = KFormat>
Index payload_bytes(const KvShape& shape, Index seq_len) {
  Index total = 0;
  for (Index layer = 0; layer < shape.n_layers(); ++layer) {
    if (!shape.owns_store(layer)) continue;
    const LayerKvShape& kv = shape[layer];
    Index kept = seq_len;
    if (kv.span.window != 0) kept = std::min(seq_len, kv.span.window + kv.span.n_sink);
    if (kv.span.chunk != 0) kept = std::min(seq_len, kv.span.chunk);
    const Index v_bytes = kv.own_value_bytes<VFormat>();
    total += kept * kv.n_kv_heads * (KFormat::row_bytes(kv.k_dim) + v_bytes);
  }
  return total;
}

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/layers/residual.hpp> - the switches of a decoder layer: how its two branches
// are joined to the residual stream, and where it norms.
#pragma once

#include <kvdecode/core/types.hpp>

namespace kvdecode::inline KVDECODE_ABI {

enum class ResidualKind {
  kSequential,          ///< h = x + attention(norm(x)); y = h + feed_forward(norm(h))
  kParallel,            ///< y = x + attention(norm_a(x)) + feed_forward(norm_b(x))
  kParallelSharedNorm,  ///< y = x + attention(n) + feed_forward(n), n = norm(x)
};

/// Where the norms of a layer stand.
enum class NormPlacement {
  kPre,   ///< before each branch
  kPost,  ///< after each branch, before it is added: the branch reads the stream as it is
  kBoth,  ///< before and after
};

/// What is normed of queries and keys, before they are rotated.
enum class QkNormKind {
  kNone,
  kPerHead,  ///< each head by itself, all with the same weights [head_dim]
  kWhole,    ///< all heads of a row together, weights [n_heads * head_dim] and [n_kv_heads * head_dim]
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/layers/residual.hpp> - how the two branches of a decoder layer are joined to the residual stream.
#pragma once

#include <kvdecode/core/types.hpp>

namespace kvdecode::inline KVDECODE_ABI {

enum class ResidualKind {
  kSequential,          ///< h = x + attention(norm(x)); y = h + feed_forward(norm(h))
  kParallel,            ///< y = x + attention(norm_a(x)) + feed_forward(norm_b(x))
  kParallelSharedNorm,  ///< y = x + attention(n) + feed_forward(n), n = norm(x)
};

}  // namespace kvdecode

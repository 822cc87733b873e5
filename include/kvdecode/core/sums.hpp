// SPDX-License-Identifier: MIT
// <kvdecode/core/sums.hpp> - the canonical sums, written down once. Lane j of sixteen takes the elements k =
// j (mod 16) in rising k; lanes past the end stay as they are; then the tree. Whoever computes the same sum
// computes these bits.
#pragma once

#include <kvdecode/core/simd/lanes.hpp>

namespace kvdecode::inline KVDECODE_ABI {

/// Sum over k of a[k] * b[k], each product fused into its lane. 2 n flops.
template <class S>
S dot(const S* a, const S* b, Index n) {
  Lanes<S> lanes = Lanes<S>::zero();
  Index k = 0;
  for (; k + kLanes <= n; k += kLanes) lanes = fma(Lanes<S>::loadu(a + k), Lanes<S>::loadu(b + k), lanes);
  if (k == n) return tree_sum(lanes);
  S t[kLanes];
  lanes.storeu(t);
  for (Index j = 0; k + j < n; ++j) t[j] = simd::Register<S, false>::fma(a[k + j], b[k + j], t[j]);
  return tree_sum(t);
}

/// Sum over k of a[k].
template <class S>
S sum(const S* a, Index n) {
  Lanes<S> lanes = Lanes<S>::zero();
  Index k = 0;
  for (; k + kLanes <= n; k += kLanes) lanes = add(lanes, Lanes<S>::loadu(a + k));
  if (k == n) return tree_sum(lanes);
  S t[kLanes];
  lanes.storeu(t);
  for (Index j = 0; k + j < n; ++j) t[j] = t[j] + a[k + j];
  return tree_sum(t);
}

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <support/canonical.hpp> - the bit contract's orders of summation, transcribed one operation after another
// in plain scalar code: slow, obvious, and the same bits as every kernel.
#pragma once

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/types.hpp>

#include <cmath>
#include <cstddef>
#include <vector>

namespace kvdecode_test {

using kvdecode::Index;

/// The rounded product, out of reach of contraction into a later sum.
template <class T>
[[gnu::noinline]] T rounded_product(T a, T b) {
  return a * b;
}

/// The tree (i, i+8), (i, i+4), (i, i+2), (i, i+1).
template <class T>
T canonical_tree(const T (&lane)[16]) {
  T t[16];
  for (int i = 0; i < 16; ++i) t[i] = lane[i];
  for (const int distance : {8, 4, 2, 1})
    for (int i = 0; i < distance; ++i) t[i] = t[i] + t[i + distance];
  return t[0];
}

/// Lane j takes k = j (mod 16) in rising k by fma from +0; a lane that no k falls into stays +0; the tree.
template <class T>
T canonical_dot(const T* a, const T* b, Index n) {
  T lane[16] = {};
  for (Index k = 0; k < n; ++k) lane[k % 16] = std::fma(a[k], b[k], lane[k % 16]);
  return canonical_tree(lane);
}

template <class T>
T canonical_sum(const T* a, Index n) {
  T lane[16] = {};
  for (Index k = 0; k < n; ++k) lane[k % 16] = lane[k % 16] + a[k];
  return canonical_tree(lane);
}

/// Attention of one query over the visible ones of positions 0 ... n-1 (design: "Attention has one formula").
/// @param sees        which positions the query sees
/// @param query       position -> the query as it meets that position's key, [k_dim]
/// @param key, value  position -> its row, [k_dim], [v_dim]
/// @param cap         soft cap of the scores; 0: none
template <class T, class Sees, class Query, class Key, class Value>
std::vector<T> canonical_attention(Index n, Index k_dim, Index v_dim, T scale, const Sees& sees,
                                   const Query& query, const Key& key, const Value& value, T cap = T(0)) {
  bool is_empty = true;
  T M{};
  T L{};
  std::vector<T> O(static_cast<std::size_t>(v_dim));
  for (Index tile = 0; tile < n; tile += 256) {
    std::vector<Index> seen;
    std::vector<T> s;
    for (Index j = tile; j < tile + 256 && j < n; ++j) {
      if (!sees(j)) continue;
      seen.push_back(j);
      const T score = rounded_product(scale, canonical_dot(query(j), key(j), k_dim));
      s.push_back(cap > T(0) ? rounded_product(cap, kvdecode::tanh(score / cap)) : score);
    }
    if (seen.empty()) continue;
    T m = s[0];
    for (const T x : s) m = m < x ? x : m;
    T lane[16] = {};
    std::vector<T> p;
    for (std::size_t i = 0; i < s.size(); ++i) {
      p.push_back(kvdecode::exp(s[i] - m));
      lane[seen[i] % 16] = lane[seen[i] % 16] + p[i];
    }
    const T l = canonical_tree(lane);
    std::vector<T> o(static_cast<std::size_t>(v_dim), T(0));
    for (std::size_t i = 0; i < seen.size(); ++i)
      for (std::size_t e = 0; e < o.size(); ++e) o[e] = std::fma(p[i], value(seen[i])[e], o[e]);
    if (is_empty) {
      M = m;
      L = l;
      O = o;
      is_empty = false;
    } else if (m <= M) {
      const T b = kvdecode::exp(m - M);
      L = std::fma(b, l, L);
      for (std::size_t e = 0; e < o.size(); ++e) O[e] = std::fma(b, o[e], O[e]);
    } else {
      const T a = kvdecode::exp(M - m);
      L = std::fma(a, L, l);
      for (std::size_t e = 0; e < o.size(); ++e) O[e] = std::fma(a, O[e], o[e]);
      M = m;
    }
  }
  for (T& x : O) x = x / L;
  return O;
}

}  // namespace kvdecode_test

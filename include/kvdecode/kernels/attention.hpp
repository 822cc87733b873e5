// SPDX-License-Identifier: MIT
// <kvdecode/kernels/attention.hpp> - attention over a cache by its one formula. Positions fall into tiles of
// 256 at multiples of 256; each tile gives a maximum, a sum and a weighted value; tiles are merged in rising
// order. Pages, rings, windows and splits are invisible: tiles and lanes go by position, whoever computes
// them.
//
//   s_j = scale * (q . k_j)                        canonical dot, rounded, then scaled
//   s_j = cap * tanh(s_j / cap)                    where scores have a soft cap
//   m = max s_j,  p_j = exp(s_j - m),  l = sum p_j  lane = j mod 16, then the tree
//   o = sum p_j v_j                                one fused chain in rising j
//   merged by M = max(M, m), the part with the smaller maximum scaled down (Milakov & Gimelshein 2018), out =
//   O / L
//
// softmax(Q K^T / sqrt(d)) V of Vaswani 2017, Eq. 1, over the visible positions. Formats that store turned rows
// (core/hadamard.hpp) are read as they are: queries come turned, and out is turned back after the division, by whoever
// calls these kernels.
#pragma once

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/kernels/dot_tile.hpp>

#include <algorithm>
#include <limits>
#include <span>
#include <type_traits>

namespace kvdecode::inline KVDECODE_ABI::kernels {

/// Positions of a tile of the attention formula.
inline constexpr Index kTilePositions = 256;

/// A contiguous run of visible keys and values within one tile, of one KV head.
struct AttentionPiece {
  Index position;         // of its first row
  Index length;           // rows
  const std::byte* keys;  // [length], key_stride bytes apart
  Index key_stride;
  const std::byte* values;  // [length], value_stride bytes apart
  Index value_stride;
  Index rotation;  // which of the query's rotations meets these keys
  /// Whether this is all that is done with the rows for now. Values are then asked for while keys are read, and what lies
  /// behind the keys, most often those of the next tile, while values are.
  bool is_read_once = false;
};

/// In place: cap * tanh(x / cap).
template <class S>
void soft_cap(S cap, Index n, S* x) noexcept {
  using R = typename Lanes<S>::R;
  const auto c = R::set1(cap);
  const auto capped = [&](const auto& v) KVDECODE_INLINE_LAMBDA {
    if constexpr (std::is_floating_point_v<S>)
      return R::mul(c, kvdecode::detail::Elementary<R>::tanh(R::div(v, c)));
    else
      return R::mul(c, tanh(R::div(v, c)));
  };
  for_each_register<S>(
      n, [&](Index i) { R::storeu(x + i, capped(R::loadu(x + i))); },
      [&](Index i) {
        using kvdecode::tanh;
        x[i] = mul(cap, tanh(x[i] / cap));
      });
}

/// The running state of the query heads that share one KV head.
template <class S>
struct AttentionState {
  Index group_size;  // query heads
  Index v_dim;
  S* maximum;     // [group_size]
  S* sum;         // [group_size]
  S* output;      // [group_size, v_dim]
  bool is_empty;  // nothing seen yet
};

/// Scalars of scratch that attend_tile() needs.
constexpr Index attention_scratch(Index group_size, Index v_dim) {
  return group_size * (kTilePositions + v_dim + 2);
}

namespace detail {

/// Calls heads(count, first) for all of n query heads, `most` at a time, then what is left together.
template <int most, class Heads>
KVDECODE_INLINE void for_each_group(Index n, Heads&& heads) {
  Index g = 0;
  for (; g + most <= n; g += most) heads(std::integral_constant<int, most>{}, g);
  if constexpr (most > 3)
    if (n - g == 3) return heads(std::integral_constant<int, 3>{}, g);
  if constexpr (most > 2)
    if (n - g == 2) return heads(std::integral_constant<int, 2>{}, g);
  if constexpr (most > 1)
    if (n - g == 1) heads(std::integral_constant<int, 1>{}, g);
}

/// scores[g, j] = scale * (query g . key j) for the rows of one piece.
/// @param queries  [group_size, k_dim], one after another  @param scores  [group_size, 256], at the piece's
/// first slot
template <class KFormat, class S>
void score_piece(const AttentionPiece& piece, const S* queries, Index group_size, Index k_dim, S scale, S cap,
                 S* scores) noexcept {
  const WorkScope<S> scope(Work::kScores);
  constexpr bool narrow = Lanes<S>::width == 1;
  constexpr int rows = narrow ? 1 : 4;
  const auto heads = [&](auto count, Index g) KVDECODE_INLINE_LAMBDA {
    constexpr int cols = count;
    const S* q = queries + g * k_dim;
    S* out = scores + g * kTilePositions;
    const Index asked = piece.is_read_once && g == 0 ? piece.value_stride : 0;
    Index j = 0;
    for (; j + rows <= piece.length; j += rows) {
      simd::prefetch_second_level(piece.values + j * asked, rows * asked);
      dot_tile<KFormat, S, rows, cols>(piece.keys + j * piece.key_stride, piece.key_stride, q, k_dim, k_dim,
                                       out + j, kTilePositions);
    }
    for (; j < piece.length; ++j)
      for (int c = 0; c < cols; ++c)
        dot_tile<KFormat, S, 1, 1>(piece.keys + j * piece.key_stride, 0, q + c * k_dim, 0, k_dim,
                                   out + c * kTilePositions + j, 0);
  };
  for_each_group<narrow ? 1 : simd::kVectorRegisters >= 32 ? 4 : 2>(group_size, heads);
  for (Index g = 0; g < group_size; ++g) {
    S* row = scores + g * kTilePositions;
    using R = typename Lanes<S>::R;
    for_each_register<S>(
        piece.length, [&](Index j) { R::storeu(row + j, R::mul(R::set1(scale), R::loadu(row + j))); },
        [&](Index j) { row[j] = mul(scale, row[j]); });
    if (S(0.0f) < cap) soft_cap(cap, piece.length, row);
  }
}

/// output[g, e] = fma(p[g, j], value[j, e], output[g, e]) for the rows of one piece, in rising j.
template <class VFormat, class S>
void value_piece(const AttentionPiece& piece, const S* probs, Index group_size, Index v_dim,
                 S* output) noexcept {
  const WorkScope<S> scope(Work::kValues);
  using L = Lanes<S>;
  using R1 = simd::Register<S, false>;
  // Independent chains hide the latency of the fused multiply-add: eight or so registers of output at a time.
  const auto block = [&](auto head_count, auto lane_count, Index g, Index e) KVDECODE_INLINE_LAMBDA {
    constexpr int heads = head_count, lanes = lane_count;
    const std::byte* const behind_keys = piece.keys + piece.length * piece.key_stride;
    const Index asked = piece.is_read_once && g == 0 && e == 0 ? piece.key_stride : 0;
    L o[heads * lanes];
    simd::unroll<heads * lanes>([&](auto i) KVDECODE_INLINE_LAMBDA {
      o[i] = L::loadu(output + (g + i / lanes) * v_dim + e + (i % lanes) * kLanes);
    });
    for (Index j = 0; j < piece.length; ++j) {
      const std::byte* row = piece.values + j * piece.value_stride;
      simd::prefetch_second_level(behind_keys + j * asked, asked);
      simd::unroll<lanes>([&](auto b) KVDECODE_INLINE_LAMBDA {
        const L v = widen_numbers<VFormat, S>(row, e + b * kLanes, v_dim);
        simd::unroll<heads>([&](auto h) KVDECODE_INLINE_LAMBDA {
          L& chain = o[h * lanes + b];
          chain = fma(L::set1(probs[(g + h) * kTilePositions + j]), v, chain);
        });
      });
    }
    simd::unroll<heads * lanes>([&](auto i) KVDECODE_INLINE_LAMBDA {
      o[i].storeu(output + (g + i / lanes) * v_dim + e + (i % lanes) * kLanes);
    });
  };
  const auto heads = [&](auto head_count, Index g) KVDECODE_INLINE_LAMBDA {
    constexpr int budget =
        L::width == 1 ? 1 : std::max(1, simd::kVectorRegisters / 2 / (head_count * L::regs));
    constexpr int lanes = std::min(budget, 4);
    Index e = 0;
    for (; e + lanes * kLanes <= v_dim; e += lanes * kLanes)
      block(head_count, std::integral_constant<int, lanes>{}, g, e);
    if constexpr (lanes > 1)
      for (; e + kLanes <= v_dim; e += kLanes) block(head_count, std::integral_constant<int, 1>{}, g, e);
    for (Index h = g; h < g + head_count; ++h)
      for (Index tail = e; tail < v_dim; ++tail) {
        S& o = output[h * v_dim + tail];
        for (Index j = 0; j < piece.length; ++j)
          o = R1::fma(probs[h * kTilePositions + j],
                      decode_number<VFormat, S>(piece.values + j * piece.value_stride, tail, v_dim), o);
      }
  };
  for_each_group<L::width == 1 ? 1 : L::regs <= 2 ? 4 : 2>(group_size, heads);
}

/// The largest score of the visible slots of one row of a tile. @param lanes  scratch
template <class S>
S maximum_of(std::span<const AttentionPiece> pieces, const S* row, S* lanes) noexcept {
  S maximum = row[pieces.front().position % kTilePositions];
  Lanes<S> many = Lanes<S>::set1(maximum);
  for (const AttentionPiece& piece : pieces) {
    const S* s = row + piece.position % kTilePositions;
    Index j = 0;
    if constexpr (Lanes<S>::width > 1)
      for (; j + kLanes <= piece.length; j += kLanes) many = max(many, Lanes<S>::loadu(s + j));
    for (; j < piece.length; ++j) maximum = maximum < s[j] ? s[j] : maximum;
  }
  many.storeu(lanes);
  const S of_many = tree_reduce(lanes, [](const S& a, const S& b) { return a < b ? b : a; });
  return maximum < of_many ? of_many : maximum;
}

/// In place: scores to exp(score - maximum) over the visible slots of one row of a tile.
template <class S>
struct TileSum {
  S maximum;
  S sum;
};
template <class S>
TileSum<S> softmax_tile(std::span<const AttentionPiece> pieces, S* row) noexcept {
  constexpr Index mask = kTilePositions - 1;
  S lanes[kLanes];
  const S maximum = maximum_of(pieces, row, lanes);
  for (S& lane : lanes) lane = S(0.0f);
  const Lanes<S> shift = Lanes<S>::set1(maximum);
  Lanes<S> whole = Lanes<S>::zero();  // lanes of slots that come sixteen at a time
  using kvdecode::exp;
  for (const AttentionPiece& piece : pieces) {
    Index slot = piece.position & mask;
    const Index end = slot + piece.length;
    const auto one = [&](Index at) {
      row[at] = exp(row[at] - maximum);
      lanes[at % kLanes] = lanes[at % kLanes] + row[at];
    };
    if constexpr (Lanes<S>::width > 1) {
      for (; slot < end && slot % kLanes != 0; ++slot) one(slot);
      if (slot + kLanes <= end) {
        whole = Lanes<S>::loadu(lanes);
        for (; slot + kLanes <= end; slot += kLanes) {
          const Lanes<S> p = exp(sub(Lanes<S>::loadu(row + slot), shift));
          p.storeu(row + slot);
          whole = add(whole, p);
        }
        whole.storeu(lanes);
      }
    }
    for (; slot < end; ++slot) one(slot);
  }
  return {maximum, tree_sum(lanes)};
}

/// y[i] = fma(factor, x[i], y[i]) when `into_y`, else fma(factor, y[i], x[i]).
template <bool into_y, class S>
void merge_outputs(S factor, const S* x, S* y, Index n) noexcept {
  using R = typename Lanes<S>::R;
  using R1 = simd::Register<S, false>;
  const auto f = R::set1(factor);
  for_each_register<S>(
      n,
      [&](Index i) {
        const auto a = R::loadu(x + i), b = R::loadu(y + i);
        R::storeu(y + i, into_y ? R::fma(f, a, b) : R::fma(f, b, a));
      },
      [&](Index i) { y[i] = into_y ? R1::fma(factor, x[i], y[i]) : R1::fma(factor, y[i], x[i]); });
}

}  // namespace detail

/// Adds to the state what the next tile gave by itself: tiles may be computed apart and in any order, but are merged in
/// theirs. O(group_size * v_dim).
template <class S>
void merge_tile(const AttentionState<S>& tile, AttentionState<S>& state) noexcept {
  const Index group_size = state.group_size, v_dim = state.v_dim;
  if (state.is_empty) {
    std::copy_n(tile.maximum, group_size, state.maximum);
    std::copy_n(tile.sum, group_size, state.sum);
    std::copy_n(tile.output, group_size * v_dim, state.output);
    state.is_empty = false;
    return;
  }
  using R1 = simd::Register<S, false>;
  using kvdecode::exp;
  for (Index g = 0; g < group_size; ++g) {
    S& M = state.maximum[g];
    S& L = state.sum[g];
    const S* const from = tile.output + g * v_dim;
    S* const to = state.output + g * v_dim;
    if (!(M < tile.maximum[g])) {
      const S b = exp(tile.maximum[g] - M);
      L = R1::fma(b, tile.sum[g], L);
      detail::merge_outputs<true>(b, from, to, v_dim);
    } else {
      const S a = exp(M - tile.maximum[g]);
      L = R1::fma(a, L, tile.sum[g]);
      detail::merge_outputs<false>(a, from, to, v_dim);
      M = tile.maximum[g];
    }
  }
}

namespace detail {

/// The kernels that know a format, for keys and for values: all else is compiled once.
template <class S>
using ScorePiece = void (*)(const AttentionPiece&, const S*, Index, Index, S, S, S*) noexcept;
template <class S>
using ValuePiece = void (*)(const AttentionPiece&, const S*, Index, Index, S*) noexcept;

template <class S>
void attend_tile_by(ScorePiece<S> score, ValuePiece<S> add_values, std::span<const AttentionPiece> pieces,
                    const S* queries, Index rotation_stride, Index k_dim, S scale, AttentionState<S>& state,
                    S* scratch, S cap) noexcept {
  if (pieces.empty()) return;
  const Index group_size = state.group_size, v_dim = state.v_dim;
  S* const probs = scratch;                               // [group_size, 256], slot = position mod 256
  S* const output = probs + group_size * kTilePositions;  // [group_size, v_dim]
  S* const maximum = output + group_size * v_dim;         // [group_size]
  const AttentionState<S> tile =
      state.is_empty ? state
                     : AttentionState<S>{group_size, v_dim, maximum, maximum + group_size, output, true};
  for (const AttentionPiece& piece : pieces)
    score(piece, queries + piece.rotation * rotation_stride, group_size, k_dim, scale, cap,
          probs + piece.position % kTilePositions);
  for (Index g = 0; g < group_size; ++g) {
    const auto softmax = softmax_tile(pieces, probs + g * kTilePositions);
    tile.maximum[g] = softmax.maximum;
    tile.sum[g] = softmax.sum;
  }
  for (Index i = 0; i < group_size * v_dim; ++i) tile.output[i] = S(0.0f);
  for (const AttentionPiece& piece : pieces)
    add_values(piece, probs + piece.position % kTilePositions, group_size, v_dim, tile.output);
  if (state.is_empty)  // the first tile is the state
    state.is_empty = false;
  else
    merge_tile(tile, state);
}

}  // namespace detail

/// Adds one tile to the state of the query heads that share one KV head. O(group_size * positions * (k_dim +
/// v_dim)).
/// @param pieces    all visible rows of one tile, in rising position; none: nothing happens
/// @param queries   [n_rotations, group_size, k_dim], rotation_stride scalars from one rotation to the next
/// @param scratch   attention_scratch() scalars
/// @param cap       soft cap of the scores; 0: none
template <class KFormat, class VFormat, class S>
void attend_tile(std::span<const AttentionPiece> pieces, const S* queries, Index rotation_stride, Index k_dim,
                 S scale, AttentionState<S>& state, S* scratch, S cap = S(0.0f)) noexcept {
  detail::attend_tile_by<S>(&detail::score_piece<KFormat, S>, &detail::value_piece<VFormat, S>, pieces,
                            queries, rotation_stride, k_dim, scale, state, scratch, cap);
}

/// out[g, e] = O[g, e] / L[g].
/// @param out  [group_size, v_dim], one after another; may be state.output
template <class S>
void finish_attention(const AttentionState<S>& state, S* out) noexcept {
  using R = typename Lanes<S>::R;
  for (Index g = 0; g < state.group_size; ++g) {
    const S* o = state.output + g * state.v_dim;
    S* y = out + g * state.v_dim;
    const auto total = R::set1(state.sum[g]);
    for_each_register<S>(
        state.v_dim, [&](Index e) { R::storeu(y + e, R::div(R::loadu(o + e), total)); },
        [&](Index e) { y[e] = o[e] / state.sum[g]; });
  }
}

}  // namespace kvdecode::inline KVDECODE_ABI::kernels

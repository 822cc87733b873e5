// SPDX-License-Identifier: MIT
// <kvdecode/layers/attention.hpp> - self-attention over a cache: project, norm, rotate, append, attend,
// project.
// Multi-head, grouped (Ainslie 2023) and multi-query (Shazeer 2019) attention differ only in n_kv_heads.
//
// Queries always read keys and values back from the cache, in its format, also those of this very call: so
// nothing shows how a sequence was cut into calls.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/kernels/attention.hpp>
#include <kvdecode/kernels/rotary.hpp>
#include <kvdecode/layers/linear.hpp>
#include <kvdecode/layers/norm.hpp>

#include <algorithm>

namespace kvdecode::inline KVDECODE_ABI {

namespace detail {

/// Collects the visible rows of one query, tile by tile, from the runs of one KV head.
template <class Flush>
class PieceCollector {
 public:
  explicit PieceCollector(Flush& flush) noexcept : flush_(flush) {}

  /// Rows [begin, end) of a run of keys and the run of values beside it.
  template <class KFormat, class VFormat>
  void add(const KvRun<KFormat>& keys, const KvRun<VFormat>& values, Index begin, Index end,
           Index rotation) noexcept {
    while (begin < end) {
      const Index tile = begin / kernels::kTilePositions;
      const Index stop = std::min(end, (tile + 1) * kernels::kTilePositions);
      if (tile != tile_) finish(tile);
      const Index row = begin - keys.position;
      pieces_[n_pieces_++] = {begin,
                              stop - begin,
                              keys.data + row * keys.row_stride,
                              keys.row_stride,
                              values.data + row * values.row_stride,
                              values.row_stride,
                              rotation};
      begin = stop;
    }
  }
  /// Hands over the tile collected so far and starts another.
  void finish(Index next_tile = -1) noexcept {
    if (n_pieces_ > 0)
      flush_(std::span<const kernels::AttentionPiece>(pieces_, static_cast<std::size_t>(n_pieces_)));
    n_pieces_ = 0;
    tile_ = next_tile;
  }

 private:
  Flush& flush_;
  Index tile_ = -1;
  Index n_pieces_ = 0;
  kernels::AttentionPiece pieces_[kernels::kTilePositions];  // each holds a position at least
};

/// Walks the runs of keys and values in step and hands the rows that `query` sees to `flush`, one tile at a
/// time.
/// @param rotation_of  (is_sink, rotation_shift) -> number of the query's rotation
template <class KRuns, class VRuns, class RotationOf, class Flush>
void for_each_visible_tile(const KRuns& keys, const VRuns& values, const AttentionSpan& span, Index query,
                           RotationOf&& rotation_of, Flush&& flush) noexcept {
  const Index first = span.first_visible(query);
  const Index sinks_end = std::min(span.n_sink, query + 1);
  PieceCollector collector(flush);
  auto value_run = values.begin();
  for (const auto& key_run : keys) {
    const Index begin = key_run.position, end = std::min(key_run.position + key_run.length, query + 1);
    if (begin < sinks_end)
      collector.add(key_run, *value_run, begin, std::min(end, sinks_end),
                    rotation_of(true, key_run.rotation_shift));
    collector.add(key_run, *value_run, std::max({begin, first, sinks_end}), end,
                  rotation_of(false, key_run.rotation_shift));
    ++value_run;
  }
  collector.finish();
}

}  // namespace detail

template <class S>
struct AttentionLayer {
  Index layer = 0;  // its number, for the cache
  Index n_heads = 0;
  Index n_kv_heads = 0;
  Index head_dim = 0;
  S scale{};
  AttentionSpan span{};
  S soft_cap{};       // of the scores; 0: none
  Index rotary = 0;   // which of the model's rotary configs turns this layer's heads
  Index n_pairs = 0;  // of its dimensions; 0: nothing turns
  RotaryPairs pairs = RotaryPairs::kHalves;
  Index sink_limit = 0;  // which of the pass's limits holds for queries that meet sinks; 0: none

  LinearLayer<S> w_q;   // [n_heads * head_dim, d_model]
  LinearLayer<S> w_k;   // [n_kv_heads * head_dim, d_model]
  LinearLayer<S> w_v;   // [n_kv_heads * head_dim, d_model]
  LinearLayer<S> w_o;   // [d_model, n_heads * head_dim]
  NormLayer<S> q_norm;  // of each head or of all together, by its size; or empty
  NormLayer<S> k_norm;

  Index group_size() const noexcept { return n_heads / n_kv_heads; }

  /// @param x, y  [N, d_model], apart  @pre every cache has room for its rows
  template <class Products>
  void forward(const Pass<S>& pass, RowsView<S> x, RowsView<S> y) const noexcept {
    const PassBuffers<S>& buffers = pass.buffers;
    run_linear<Products>(
        pass, std::array{w_q.job(x, buffers.queries), w_k.job(x, buffers.keys), w_v.job(x, buffers.values)});
    rotate(pass);
    pass.kv.append(pass, layer);
    attend(pass);
    run_linear<Products>(pass, std::array{w_o.job(buffers.attention, y)});
  }

  /// How often a query is turned for this layer: once for each shift, twice if sinks are met at a limit.
  Index n_rotations(const QueryStands& stands) const noexcept {
    return n_pairs == 0 ? 1 : stands.n_shifts() * (sink_limit != 0 ? 2 : 1);
  }
  /// Which of them meets a run's keys.
  Index rotation_of(const QueryStands& stands, bool is_sink, Index shift) const noexcept {
    if (n_rotations(stands) == 1) return 0;
    return (is_sink && sink_limit != 0 ? stands.n_shifts() : 0) + stands.shift_index(shift);
  }

 private:
  /// Norms and turns queries and keys, each row as its position says.
  void rotate(const Pass<S>& pass) const noexcept {
    if (n_pairs == 0 && q_norm.empty() && k_norm.empty()) return;
    const PassBuffers<S>& buffers = pass.buffers;
    const QueryStands& stands = pass.stands;
    const Index n_rows = pass.n_rows(), n_shifts = stands.n_shifts(), rotations = n_rotations(stands);
    const auto turn = [&](const S* from, S* to, Index heads, Index table, Index row) {
      const Index at = (table * n_rows + row) * buffers.n_angles;
      for (Index head = 0; head < heads; ++head)
        kernels::rotate(pairs, from + head * head_dim, buffers.cosines + at, buffers.sines + at, n_pairs,
                        head_dim, to + head * head_dim);
    };
    for_each_row(pass.exec, n_rows, [&](Index row) {
      S* q = buffers.queries.row(row);
      S* k = buffers.keys.row(row);
      if (!q_norm.empty()) q_norm.apply_each(q, buffers.queries.cols);
      if (!k_norm.empty()) k_norm.apply_each(k, buffers.keys.cols);
      if (n_pairs == 0) return;
      turn(k, k, n_kv_heads, stands.table(rotary, 0, 0), row);
      if (rotations == 1) return turn(q, q, n_heads, stands.table(rotary, 0, 0), row);
      for (Index r = 0; r < rotations; ++r)
        turn(q, buffers.rotated + (r * n_rows + row) * buffers.queries.cols, n_heads,
             stands.table(rotary, r < n_shifts ? 0 : sink_limit, r % n_shifts), row);
    });
  }

  void attend(const Pass<S>& pass) const noexcept {
    const PassBuffers<S>& buffers = pass.buffers;
    const Index parts = pass.exec.concurrency();
    const Index n_items = pass.n_rows() * n_kv_heads;
    auto part = [&](Index i) noexcept {
      // Every parts-th pair of a row and a KV head: late rows see more, so neighbours go to different threads.
      std::size_t segment = 0;
      for (Index item = i; item < n_items; item += parts) {
        const Index row = item / n_kv_heads;
        while (row >= pass.segments[segment].first_row + pass.segments[segment].n_rows) ++segment;
        pass.kv.attend(pass, *this, static_cast<Index>(segment), row, item % n_kv_heads,
                       buffers.scratch + i * buffers.scratch_stride);
      }
    };
    pass.exec.parallel_for(parts, part);
  }
};

namespace detail {

template <class Cache>
Cache& cache_of(const void* segments, Index i) noexcept {
  return *static_cast<const Segment<Cache>*>(segments)[i].cache;
}

template <class S, class Cache>
void append_rows(const Pass<S>& pass, Index layer) noexcept {
  const auto rows_of = [](const RowsView<S>& all, const PassSegment& segment) {
    return RowsView<const S>{all.row(segment.first_row), segment.n_rows, all.cols, all.stride};
  };
  for (std::size_t i = 0; i < pass.segments.size(); ++i) {
    const PassSegment& segment = pass.segments[i];
    if (segment.n_rows == 0) continue;
    cache_of<Cache>(pass.kv.segments, static_cast<Index>(i))
        .append(layer, rows_of(pass.buffers.keys, segment), rows_of(pass.buffers.values, segment));
  }
}

template <class S, class Cache>
void attend_row(const Pass<S>& pass, const AttentionLayer<S>& layer, Index segment, Index row, Index kv_head,
                S* scratch) noexcept {
  const PassBuffers<S>& buffers = pass.buffers;
  const PassSegment& place = pass.segments[static_cast<std::size_t>(segment)];
  const Cache& cache = cache_of<Cache>(pass.kv.segments, segment);
  const Index group = layer.group_size(), head_dim = layer.head_dim, q_dim = buffers.queries.cols;
  const Index head_offset = kv_head * group * head_dim;
  const S* queries =
      (layer.n_rotations(pass.stands) > 1 ? buffers.rotated + row * q_dim : buffers.queries.row(row)) +
      head_offset;
  kernels::AttentionState<S> state{
      group, head_dim, scratch, scratch + group, buffers.attention.row(row) + head_offset, true};
  for_each_visible_tile(
      cache.keys(layer.layer, kv_head), cache.values(layer.layer, kv_head), layer.span,
      place.position + row - place.first_row,
      [&](bool is_sink, Index shift) { return layer.rotation_of(pass.stands, is_sink, shift); },
      [&](std::span<const kernels::AttentionPiece> pieces) {
        kernels::attend_tile<typename Cache::KeyFormat, typename Cache::ValueFormat>(
            pieces, queries, pass.n_rows() * q_dim, head_dim, layer.scale, state, scratch + 2 * group,
            layer.soft_cap);
      });
  kernels::finish_attention(state, state.output);
}

}  // namespace detail

/// The caches of some segments, for the layers.
template <class S, class Cache>
KvPort<S> kv_port(std::span<const Segment<Cache>> segments) noexcept {
  return {segments.data(), &detail::append_rows<S, Cache>, &detail::attend_row<S, Cache>};
}

/// Scalars of scratch that a thread needs for attention.
constexpr Index attention_layer_scratch(Index group_size, Index head_dim) {
  return 2 * group_size + kernels::attention_scratch(group_size, head_dim);
}

}  // namespace kvdecode

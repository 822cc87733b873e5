// SPDX-License-Identifier: MIT
// <kvdecode/layers/attention_heads.hpp> - what the query heads of a layer do with a cache: which rows they see, tile by
// tile, and how threads share the tiles. Where queries, keys and values come from is for the layers to say.
// Multi-head, grouped (Ainslie 2023) and multi-query (Shazeer 2019) attention differ only in n_kv_heads.
//
// Queries always read keys and values back from the cache, in its format, also those of this very call: so
// nothing shows how a sequence was cut into calls. Where a format stores turned rows, each rotation of a query is turned
// once, before it meets keys; the output is turned back once, after the division by the sum of all tiles.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/kernels/attention.hpp>
#include <kvdecode/kernels/rotary.hpp>
#include <kvdecode/layers/pass.hpp>

#include <algorithm>
#include <span>
#include <type_traits>

namespace kvdecode::inline KVDECODE_ABI {

namespace detail {

/// Collects the visible rows of one query, tile by tile, from the runs of one KV head.
template <class Flush>
class PieceCollector {
 public:
  PieceCollector(Flush& flush, bool is_read_once) noexcept : flush_(flush), is_read_once_(is_read_once) {}

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
                              rotation,
                              is_read_once_};
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
  bool is_read_once_;
  Index tile_ = -1;
  Index n_pieces_ = 0;
  kernels::AttentionPiece pieces_[kernels::kTilePositions];  // each holds a position at least
};

/// The tiles of positions that a query sees, numbered from 0 without the gap behind sinks.
class VisibleTiles {
 public:
  VisibleTiles(const AttentionSpan& span, Index query) noexcept
      : first_(span.first_visible(query) / kernels::kTilePositions),
        n_sink_tiles_(std::min(n_tiles(std::min(span.n_sink, query + 1)), first_)),
        size_(n_sink_tiles_ + n_tiles(query + 1) - first_) {}

  Index size() const noexcept { return size_; }
  Range all() const noexcept { return {0, size_}; }
  /// The number of the tile that this position lies in.
  Index number_of(Index position) const noexcept {
    const Index tile = position / kernels::kTilePositions;
    return tile < n_sink_tiles_ ? tile : tile - first_ + n_sink_tiles_;
  }
  /// The positions from tile `tiles.begin` to tile `tiles.end`, what lies between sinks and the others included.
  Range positions(Range tiles) const noexcept { return {start_of(tiles.begin), start_of(tiles.end)}; }

 private:
  static Index n_tiles(Index positions) noexcept {
    return (positions + kernels::kTilePositions - 1) / kernels::kTilePositions;
  }
  Index start_of(Index tile) const noexcept {
    return (tile <= n_sink_tiles_ ? tile : tile - n_sink_tiles_ + first_) * kernels::kTilePositions;
  }

  Index first_;  // tile that is seen beside sinks
  Index n_sink_tiles_;
  Index size_;
};

/// Walks the runs of keys and values in step and hands the rows that `query` sees in some positions to `flush`, one tile
/// at a time.
/// @param is_read_once  whether no other query of the pass reads them
/// @param rotation_of   (is_sink, rotation_shift) -> number of the query's rotation
template <class KRuns, class VRuns, class RotationOf, class Flush>
void for_each_visible_tile(const KRuns& keys, const VRuns& values, const AttentionSpan& span, Index query,
                           Range positions, bool is_read_once, RotationOf&& rotation_of,
                           Flush&& flush) noexcept {
  const Index first = span.first_visible(query);
  const Index sinks_end = std::min(span.n_sink, query + 1);
  const Index stop = std::min(positions.end, query + 1);
  PieceCollector collector(flush, is_read_once);
  auto value_run = values.begin();
  for (const auto& key_run : keys) {
    const Index begin = std::max(key_run.position, positions.begin),
                end = std::min(key_run.position + key_run.length, stop);
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

/// Where items (a row and a KV head) are more than so many a thread, threads need not share one.
inline constexpr Index kSharedItems = 4;
/// Tiles whose states are kept until they are merged, for each thread.
inline constexpr Index kSharedTiles = 16;
/// Scalars of the state of one tile: maxima, sums and outputs.
constexpr Index tile_state_size(Index group_size, Index v_dim) { return group_size * (v_dim + 2); }

/// A row of the pass and a KV head: what attention is made of.
struct AttentionItem {
  Index segment;
  Index row;  // of the pass
  Index kv_head;
  Index query;                 // the last position that it sees
  detail::VisibleTiles tiles;  // that it sees
};

/// Some tiles of an item, for the query heads of its KV head.
template <class S>
struct AttentionTask {
  AttentionItem item;
  Range tiles;                       // of the item's
  kernels::AttentionState<S> state;  // of the first tile, or of all of them
  Index state_stride = 0;            // scalars from one tile's state to the next; 0: they share one
};

/// The query heads of a layer.
template <class S>
struct AttentionHeads {
  Index layer = 0;  // its number, for the cache
  Index n_heads = 0;
  Index n_kv_heads = 0;
  Index k_dim = 0;  // of queries too
  Index v_dim = 0;
  S scale{};
  AttentionSpan span{};
  bool is_causal = true;  // else every row sees all that is there: the segment's position is the last of them
  S soft_cap{};           // of the scores; 0: none
  Index rotary = 0;       // which of the model's rotary configs turns this layer's heads
  Index n_pairs = 0;      // that turn; 0: none
  RotaryPairs pairs = RotaryPairs::kHalves;
  Index sink_limit = 0;  // which of the pass's limits holds for queries that meet sinks; 0: none

  Index group_size() const noexcept { return n_heads / n_kv_heads; }
  /// The last position that a row of a segment sees.
  Index last_seen(const PassSegment& segment, Index row) const noexcept {
    return is_causal ? segment.position + row - segment.first_row : segment.position;
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
  /// Turns the first 2 n_pairs of n numbers of a row of the pass for one of its queries' rotations, of which the first is
  /// that of its keys; the others are copied. @param x, y  [n], y == x or apart
  void rotate(const Pass<S>& pass, Index row, Index rotation, Index n, const S* x, S* y) const noexcept {
    const Index n_shifts = pass.stands.n_shifts();
    const Index table = pass.stands.table(rotary, rotation < n_shifts ? 0 : sink_limit, rotation % n_shifts);
    const Index at = (table * pass.n_rows() + row) * pass.buffers.n_angles;
    kernels::rotate(pairs, x, pass.buffers.cosines + at, pass.buffers.sines + at, n_pairs, n, y);
  }

  /// turn(transform, row, dim) for each of some heads of `dim` numbers.
  template <class Turn>
  static void turn_heads(RowTransform transform, S* heads, Index n, Index dim, Turn&& turn) noexcept {
    if (transform == RowTransform::kNone) return;
    for (Index head = 0; head < n; ++head) turn(transform, heads + head * dim, dim);
  }

  /// What every row of the pass sees, to pass.buffers.attention, [N, n_heads * v_dim]. @pre its keys and values are in the
  /// caches; queries stand in pass.buffers.queries or, where a layer has several rotations, in pass.buffers.rotated
  void attend(const Pass<S>& pass) const noexcept {
    const PassBuffers<S>& buffers = pass.buffers;
    const Index parts = pass.exec.concurrency();
    if (is_shared_by_tiles(pass)) return attend_by_tiles(pass);
    auto part = [&](Index i) noexcept {
      // Every parts-th item: late rows see more, so neighbours go to different threads.
      S* const scratch = buffers.scratch + i * buffers.scratch_stride;
      for_each_item(pass, i, parts, [&](Index, const AttentionItem& item) {
        const kernels::AttentionState<S> state{group_size(),          v_dim, scratch, scratch + group_size(),
                                               output_of(pass, item), true};
        pass.kv.attend(pass, *this, {item, item.tiles.all(), state}, scratch + 2 * group_size());
        finish(pass, state);
      });
    };
    pass.exec.parallel_for(parts, part);
  }

 private:
  /// Calls f(number, item) for items first, first + step, first + 2 step … of the pass. Neighbours have the same row.
  template <class F>
  void for_each_item(const Pass<S>& pass, Index first, Index step, F&& f) const noexcept {
    std::size_t segment = 0;
    for (Index i = first; i < pass.n_rows() * n_kv_heads; i += step) {
      const Index row = i / n_kv_heads;
      while (row >= pass.segments[segment].first_row + pass.segments[segment].n_rows) ++segment;
      const PassSegment& place = pass.segments[segment];
      const Index query = last_seen(place, row);
      f(i, AttentionItem{static_cast<Index>(segment), row, i % n_kv_heads, query,
                         detail::VisibleTiles(span, query)});
    }
  }
  S* output_of(const Pass<S>& pass, const AttentionItem& item) const noexcept {
    return pass.buffers.attention.row(item.row) + item.kv_head * group_size() * v_dim;
  }

  /// What the heads of a state have seen, as the value rows were before they were stored.
  void finish(const Pass<S>& pass, const kernels::AttentionState<S>& state) const noexcept {
    kernels::finish_attention(state, state.output);
    turn_heads(pass.kv.value_transform, state.output, group_size(), v_dim, turn_row_back<S>);
  }

  /// Whether the threads would have rather different shares of the items: those of one row among many threads, say.
  bool is_shared_by_tiles(const Pass<S>& pass) const noexcept {
    const Index parts = pass.exec.concurrency();
    if (parts == 1 || pass.n_rows() * n_kv_heads > kSharedItems * parts) return false;
    Index all = 0, most = 0;
    for (Index part = 0; part < parts; ++part) {
      Index n = 0;
      for_each_item(pass, part, parts, [&](Index, const AttentionItem& item) { n += item.tiles.size(); });
      all += n;
      most = std::max(most, n);
    }
    return most > 1 && most * parts > all + all / 8;
  }

  /// The threads take contiguous parts of the tiles of all items, a number of tiles at a time, and merge what they gave in
  /// the tiles' order.
  void attend_by_tiles(const Pass<S>& pass) const noexcept {
    const PassBuffers<S>& buffers = pass.buffers;
    const Index parts = pass.exec.concurrency(), n_items = pass.n_rows() * n_kv_heads;
    const Index state_size = tile_state_size(group_size(), v_dim);
    const Index at_once = kSharedTiles * parts / n_items;  // tiles of an item
    S* const item_states = buffers.tile_states + kSharedTiles * parts * state_size;
    const auto state_at = [&](S* at) {
      return kernels::AttentionState<S>{group_size(),          v_dim, at, at + group_size(),
                                        at + 2 * group_size(), true};
    };
    const auto tile_state = [&](Index item, Index tile) {
      return state_at(buffers.tile_states + (item * at_once + tile) * state_size);
    };
    bool is_done = false;
    for (Index begin = 0; !is_done; begin += at_once) {
      const auto tiles_of = [&](const AttentionItem& item) {
        return Range{std::min(begin, item.tiles.size()), std::min(begin + at_once, item.tiles.size())};
      };
      Index n_tiles = 0;
      is_done = true;
      for_each_item(pass, 0, 1, [&](Index, const AttentionItem& item) {
        const Range tiles = tiles_of(item);
        n_tiles += tiles.end - tiles.begin;
        is_done = is_done && tiles.end == item.tiles.size();
      });
      auto compute = [&](Index i) noexcept {
        const Range mine = split_range(n_tiles, parts, i);
        Index before = 0;  // tiles of earlier items
        for_each_item(pass, 0, 1, [&](Index number, const AttentionItem& item) {
          const Range all = tiles_of(item);
          const Range tiles{std::max(all.begin, all.begin + mine.begin - before),
                            std::min(all.end, all.begin + mine.end - before)};
          before += all.end - all.begin;
          if (tiles.begin >= tiles.end) return;
          pass.kv.attend(pass, *this, {item, tiles, tile_state(number, tiles.begin - begin), state_size},
                         buffers.scratch + i * buffers.scratch_stride);
        });
      };
      pass.exec.parallel_for(parts, compute);
      auto merge = [&](Index i) noexcept {
        for_each_item(pass, i, parts, [&](Index number, const AttentionItem& item) {
          const Range tiles = tiles_of(item);
          kernels::AttentionState<S> state = state_at(item_states + number * 2 * group_size());
          state.output = output_of(pass, item);
          state.is_empty = begin == 0;
          for (Index tile = tiles.begin; tile < tiles.end; ++tile)
            kernels::merge_tile(tile_state(number, tile - begin), state);
          if (tiles.begin < tiles.end && tiles.end == item.tiles.size()) finish(pass, state);
        });
      };
      pass.exec.parallel_for(parts, merge);
    }
  }
};

namespace detail {

template <class SegmentType>
auto& cache_of(const void* segments, Index i) noexcept {
  return *static_cast<const SegmentType*>(segments)[i].cache;
}

template <class S, class SegmentType>
void append_rows(const Pass<S>& pass, Index layer) noexcept {
  const auto rows_of = [](const RowsView<S>& all, const PassSegment& segment) {
    return RowsView<const S>{all.row(segment.first_row), segment.n_rows, all.cols, all.stride};
  };
  for (std::size_t i = 0; i < pass.segments.size(); ++i) {
    const PassSegment& segment = pass.segments[i];
    if (segment.n_rows == 0) continue;
    cache_of<SegmentType>(pass.kv.segments, static_cast<Index>(i))
        .append(layer, rows_of(pass.buffers.keys, segment), rows_of(pass.buffers.values, segment));
  }
}

template <class S, class SegmentType>
void attend_row(const Pass<S>& pass, const AttentionHeads<S>& heads, const AttentionTask<S>& task,
                S* scratch) noexcept {
  const PassBuffers<S>& buffers = pass.buffers;
  const AttentionItem& item = task.item;
  const auto& cache = cache_of<SegmentType>(pass.kv.segments, item.segment);
  using Cache = std::remove_cvref_t<decltype(cache)>;
  const Index k_dim = heads.k_dim, q_dim = buffers.queries.cols;
  const S* queries = (heads.n_rotations(pass.stands) > 1 ? buffers.rotated + item.row * q_dim
                                                         : buffers.queries.row(item.row)) +
                     item.kv_head * heads.group_size() * k_dim;
  kernels::AttentionState<S> shared = task.state;
  for_each_visible_tile(
      cache.keys(heads.layer, item.kv_head), cache.values(heads.layer, item.kv_head), heads.span, item.query,
      item.tiles.positions(task.tiles), pass.segments[static_cast<std::size_t>(item.segment)].n_rows == 1,
      [&](bool is_sink, Index shift) { return heads.rotation_of(pass.stands, is_sink, shift); },
      [&](std::span<const kernels::AttentionPiece> pieces) {
        const Index skip =
            (item.tiles.number_of(pieces.front().position) - task.tiles.begin) * task.state_stride;
        kernels::AttentionState<S> own = task.state;
        own.maximum += skip;
        own.sum += skip;
        own.output += skip;
        kernels::attend_tile<typename Cache::KeyFormat, typename Cache::ValueFormat>(
            pieces, queries, pass.n_rows() * q_dim, k_dim, heads.scale, task.state_stride == 0 ? shared : own,
            scratch, heads.soft_cap);
      });
}

}  // namespace detail

/// The caches of some segments, for the layers.
template <class S, class Cache>
KvPort<S> kv_port(std::span<const Segment<Cache>> segments) noexcept {
  return {segments.data(), &detail::append_rows<S, Segment<Cache>>, &detail::attend_row<S, Segment<Cache>>,
          transform_of<typename Cache::KeyFormat>(), transform_of<typename Cache::ValueFormat>()};
}

/// Scalars of scratch that a thread needs for attention.
constexpr Index attention_layer_scratch(Index group_size, Index v_dim) {
  return 2 * group_size + kernels::attention_scratch(group_size, v_dim);
}
/// Scalars of states that threads need which share attention by tiles.
constexpr Index attention_tile_states(Index group_size, Index v_dim, Index concurrency) {
  if (concurrency == 1) return 0;
  return concurrency * (kSharedTiles * tile_state_size(group_size, v_dim) + kSharedItems * 2 * group_size);
}

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/cache/ring_rows.hpp> - storage for layers that see a part of the sequence: each has the store that its own
// span asks for. Rings have their memory from the start, layers that see all positions grow.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/cache/head_major_rows.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/core/memory.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {

/// How many positions a ring holds beside those that a query sees.
struct RingRoom {
  Index slack = 0;       // positions that can be taken back at any time
  Index max_append = 1;  // positions of one step
};

/// At most three runs: sinks, and the two parts of a ring.
template <class F>
class RingRuns {
 public:
  /// Adds a run, unless it is empty.
  void add(const KvRun<F>& run) noexcept {
    if (run.length > 0) runs_[n_runs_++] = run;
  }
  const KvRun<F>* begin() const noexcept { return runs_; }
  const KvRun<F>* end() const noexcept { return runs_ + n_runs_; }

 private:
  KvRun<F> runs_[3];
  Index n_runs_ = 0;
};

/// Rows of keys and values by layer, KV head and position, of which a layer with a span keeps
///
///   sinks   positions [0, n_sink), each in its own slot
///   a ring  position p >= n_sink in slot n_sink + (p - n_sink) % ring, where
///           ring = reach - 1 + slack + max_append, reach = window, or chunk: a query sees no more at once
///
/// but never more slots than the cache has positions; other layers have a slot for each position. Appending position
/// p overwrites p - ring: the layer's mark, the oldest position still there, rises to p + 1 - ring. No query from
/// kv_len on sees what a step of max_append rows overwrites, whether it is committed or abandoned.
template <Format KFormat, Format VFormat>
class RingRows {
 public:
  /// @throws std::bad_alloc, Error (kBadArgument) if the size cannot be expressed
  RingRows(const KvShape& shape, Index capacity, const RingRoom& room)
      : capacity_(capacity),
        room_(room),
        layers_(shape.layers.size()),
        rings_(Layout(shape,
                      [&](Index layer) {
                        const AttentionSpan span = span_of(shape, layer);
                        return is_bounded(span) ? slots_of(span, capacity, room) : 0;
                      })),
        full_(Layout(shape, 0)) {
    for (Index layer = 0; layer < shape.n_layers(); ++layer) {
      if (!shape.owns_store(layer)) continue;
      Layer& it = layers_[static_cast<std::size_t>(layer)];
      it.span = span_of(shape, layer);
      const Index slots = rings_.layout().n_slots(layer);
      it.ring = std::max<Index>(1, slots - it.span.n_sink);  // 1 where every position is a sink
      has_full_ = has_full_ || !is_bounded(it.span);
      overwrites_ = overwrites_ || (is_bounded(it.span) && slots < capacity);
    }
  }

  /// Whether the span lets a layer forget.
  static bool is_bounded(const AttentionSpan& span) noexcept { return span.window != 0 || span.chunk != 0; }
  /// What the layers that read a store see together: the span of the store, or a wider one.
  static AttentionSpan span_of(const KvShape& shape, Index store) noexcept {
    AttentionSpan all = shape[store].span;
    for (const LayerKvShape& reader : shape.layers) {
      if (reader.store != store || reader.span == all) continue;
      if (!is_bounded(all) || !is_bounded(reader.span)) return {};
      all = {.window = std::max(reach_of(all), reach_of(reader.span)),
             .n_sink = std::max(all.n_sink, reader.span.n_sink)};
    }
    return all;
  }
  /// Bytes when all layers have all their slots. @throws Error kBadArgument on overflow
  static Index required_bytes(const KvShape& shape, Index capacity, const RingRoom& room) {
    return Layout::required_bytes(
        shape, [&](Index layer) { return slots_of(span_of(shape, layer), capacity, room); });
  }

  /// Makes slots for positions [0, n) in the layers that see all of them; keeps those before kv_len.
  /// @return whether rows have moved, those behind kv_len lost  @throws std::bad_alloc, Error (kBadArgument), unchanged
  bool grow(const KvShape& shape, Index n, Index kv_len) {
    if (!has_full_ || n <= n_full_) return false;
    constexpr Index kFirst = 64;  // positions
    const Index doubled = n_full_ > capacity_ / 2 ? capacity_ : 2 * n_full_;
    const Index n_slots = std::min(capacity_, std::max({kFirst, n, doubled}));
    Rows larger(Layout(shape, [&](Index layer) { return is_bounded(span_of(shape, layer)) ? 0 : n_slots; }));
    larger.copy_from(full_, shape, kv_len);
    full_ = std::move(larger);
    n_full_ = n_slots;
    return true;
  }

  /// Writes positions [position, position + k.rows) of a layer.
  template <class S>
  void write(const LayerKvShape& shape, Index layer, Index position, RowsView<const S> k,
             RowsView<const S> v) noexcept {
    Layer& it = layers_[static_cast<std::size_t>(layer)];
    if (!is_bounded(it.span)) return full_.write(shape, layer, position, k, v);
    for_each_part(layer, position, k.rows, [&](Index slot, Index done, Index n) {
      rings_.write(shape, layer, slot, RowsView<const S>{k.row(done), n, k.cols, k.stride},
                   RowsView<const S>{v.row(done), n, v.cols, v.stride});
    });
    const Index oldest = position + k.rows - it.ring;
    if (oldest > it.span.n_sink) it.mark = std::max(it.mark, oldest);
  }

  /// The runs of a store that has been given `length` positions.
  RingRuns<KFormat> keys(Index store, Index kv_head, Index length) const noexcept {
    const Rows& rows = rows_of(store);
    return runs<KFormat>(store, length, rows.key_bytes(store),
                         [&](Index slot) { return rows.keys(store, kv_head, slot); });
  }
  RingRuns<VFormat> values(Index store, Index kv_head, Index length) const noexcept {
    const Rows& rows = rows_of(store);
    return runs<VFormat>(store, length, rows.value_bytes(store),
                         [&](Index slot) { return rows.values(store, kv_head, slot); });
  }

  /// Throws Error unless a checked record has all that queries from its end on see, where they look for it.
  void require_visible(const CacheRecord& record) const {
    if (!record.rotation.empty()) [[unlikely]]
      detail::raise(ErrorCode::kUnsupported, "cache record: has rotation shifts, which a ring does not keep");
    for (const StoreRecord& store : record.stores) {
      const AttentionSpan& span = layers_[static_cast<std::size_t>(store.layer)].span;
      detail::require_positions(store, 0, std::min(span.n_sink, record.kv_len));
      detail::require_positions(store, span.first_visible(record.kv_len), record.kv_len);
    }
  }
  /// Takes the sinks of a record and of its last positions as many as there are slots for.
  /// @pre require_visible() has passed, and grow() made room for all
  void restore(const KvShape& shape, const CacheRecord& record) noexcept {
    for (const StoreRecord& store : record.stores) {
      const LayerKvShape& dims = shape[store.layer];
      Layer& it = layers_[static_cast<std::size_t>(store.layer)];
      if (!is_bounded(it.span)) {
        full_.put(dims, 0, store, record.kv_len, 0, record.kv_len);
        continue;
      }
      const Index n_sink = std::min(it.span.n_sink, record.kv_len);
      const Index first = std::max({n_sink, store.first, record.kv_len - it.ring});
      it.mark = first > it.span.n_sink ? first : 0;
      const auto put = [&](Index begin, Index end) {
        for_each_part(store.layer, begin, end - begin, [&](Index slot, Index done, Index n) {
          rings_.put(dims, slot, store, record.kv_len, begin + done, n);
        });
      };
      put(0, n_sink);
      put(first, record.kv_len);
    }
  }

  /// Whether all that queries from new_len on see of earlier positions is still there, in every layer.
  bool can_truncate(Index new_len) const noexcept {
    return std::all_of(layers_.begin(), layers_.end(), [new_len](const Layer& it) {
      const Index oldest = std::max(it.span.first_visible(new_len), it.span.n_sink);
      return oldest >= new_len || oldest >= it.mark;
    });
  }
  /// Forgets the positions from new_len on. A mark beyond them says then that nothing before new_len is there but
  /// sinks, and no query sees it.
  void truncate(Index new_len) noexcept {
    for (Layer& it : layers_) it.mark = new_len <= it.span.n_sink ? 0 : std::min(it.mark, new_len);
  }

  /// From here on every position is there; before it, sinks alone.
  Index first_position(Index store) const noexcept { return layers_[static_cast<std::size_t>(store)].mark; }
  /// The slot of a position that is there.
  Index slot_of(Index store, Index position) const noexcept {
    const Layer& it = layers_[static_cast<std::size_t>(store)];
    if (!is_bounded(it.span) || position < it.span.n_sink) return position;
    return it.span.n_sink + (position - it.span.n_sink) % it.ring;
  }
  /// Positions of one step: all of them where nothing is ever overwritten.
  Index max_append() const noexcept { return overwrites_ ? room_.max_append : capacity_; }
  Index capacity() const noexcept { return capacity_; }
  Index bytes() const noexcept { return rings_.bytes() + full_.bytes(); }
  const RingRoom& room() const noexcept { return room_; }

  /// Copies the rows of another store of the same shape, capacity and room. @pre grow() has made room for kv_len
  void copy_from(const RingRows& other, const KvShape& shape, Index kv_len) noexcept {
    full_.copy_from(other.full_, shape, kv_len);
    rings_.copy_from(other.rings_, shape, capacity_);
    std::copy(other.layers_.begin(), other.layers_.end(), layers_.begin());
  }

 private:
  using Rows = HeadMajorRows<KFormat, VFormat>;
  using Layout = typename Rows::Layout;
  struct Layer {
    AttentionSpan span{};
    Index ring = 1;  // slots behind the sinks
    Index mark = 0;  // the oldest position behind the sinks that is there; 0 while all are
  };

  static Index reach_of(const AttentionSpan& span) noexcept { return std::max(span.window, span.chunk); }
  /// Slots that a store of this span has in the end.
  static Index slots_of(const AttentionSpan& span, Index capacity, const RingRoom& room) noexcept {
    if (!is_bounded(span)) return capacity;
    Index slots = reach_of(span) - 1;
    for (const Index more : {room.slack, room.max_append, span.n_sink})
      if (__builtin_add_overflow(slots, more, &slots)) return capacity;
    return std::min(slots, capacity);
  }

  /// Calls f(slot, done, n) for the parts of positions [position, position + n_rows) whose slots are neighbours; `done`
  /// positions come before.
  template <class F>
  void for_each_part(Index layer, Index position, Index n_rows, const F& f) const noexcept {
    const Index n_sink = layers_[static_cast<std::size_t>(layer)].span.n_sink;
    const Index n_slots = rings_.layout().n_slots(layer);
    for (Index done = 0; done < n_rows;) {
      const Index slot = slot_of(layer, position + done);
      const Index end = slot < n_sink ? std::min(n_sink, n_slots) : n_slots;
      const Index n = std::min(n_rows - done, end - slot);
      f(slot, done, n);
      done += n;
    }
  }
  const Rows& rows_of(Index store) const noexcept {
    return is_bounded(layers_[static_cast<std::size_t>(store)].span) ? rings_ : full_;
  }
  template <class F, class RowAt>
  RingRuns<F> runs(Index store, Index length, Index row_bytes, const RowAt& row_at) const noexcept {
    RingRuns<F> result;
    const auto add = [&](Index begin, Index end) {
      if (begin < end) result.add({begin, end - begin, row_at(slot_of(store, begin)), row_bytes, 0});
    };
    const Layer& it = layers_[static_cast<std::size_t>(store)];
    if (!is_bounded(it.span)) {
      add(0, length);
      return result;
    }
    const Index n_sink = it.span.n_sink;
    add(0, std::min(length, n_sink));
    if (length <= n_sink) return result;
    const Index first = std::max(it.mark, n_sink);
    const Index over = first + it.ring - (first - n_sink) % it.ring;  // where the ring begins again
    add(first, std::min(length, over));
    add(over, length);
    return result;
  }

  Index capacity_;
  RingRoom room_;
  bool has_full_ = false;    // some layer sees all positions
  bool overwrites_ = false;  // some ring has fewer slots than the cache has positions
  Vector<Layer> layers_;
  Rows rings_;        // of the layers that are bounded
  Rows full_;         // of the others
  Index n_full_ = 0;  // slots of the others
};

}  // namespace kvdecode

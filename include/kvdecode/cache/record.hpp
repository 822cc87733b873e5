// SPDX-License-Identifier: MIT
// <kvdecode/cache/record.hpp> - what a cache holds, as bytes: taken from any cache, and given to any that stores in the
// same formats and needs no row that the other one has forgotten. io/session.hpp makes files of records.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/core/printable.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

/// From here to the next piece, keys were rotated at position - rotation_shift.
struct RotationPiece {
  Index position = 0;
  Index rotation_shift = 0;

  friend bool operator==(const RotationPiece&, const RotationPiece&) = default;
};

/// The rows of a layer that has rows of its own: of positions [0, n_sink) and [first, kv_len).
struct StoreRecord {
  Index layer = 0;
  Index n_sink = 0;  // below first; 0 where first is
  Index first = 0;
  std::span<const std::byte> keys;  // [n_kv_heads, n_rows, row_bytes(k_dim)]
  std::span<const std::byte>
      values;  // [n_kv_heads, n_rows, row_bytes(v_dim)]; none where values are in the keys

  Index n_rows(Index kv_len) const noexcept { return n_sink + (kv_len - first); }
  /// Which of the rows is that of a position. @pre it is there
  Index row_of(Index position) const noexcept {
    return position < n_sink ? position : n_sink + position - first;
  }
  /// Whether positions [begin, end) are all there.
  bool holds(Index begin, Index end) const noexcept {
    return begin >= end || begin >= first || end <= n_sink;
  }
};

/// A cache's content.
struct CacheRecord {
  std::string_view k_format;  // their names
  std::string_view v_format;
  Index kv_len = 0;
  Index epoch = 0;
  Vector<RotationPiece> rotation{};     // by position, from 0 on; none: all keys were rotated where they are
  Vector<StoreRecord> stores{};         // by layer
  std::shared_ptr<const void> owner{};  // keeps the rows, if nobody else does
};

/// A cache that takes a record.
///
/// | expression | meaning | cost |
/// |---|---|---|
/// | c.restore(record) | holds what the record does, and nothing else; ends a step in progress | O(bytes) |
///
/// It goes on as the cache would have gone on that the record was taken from, byte for byte. Throws Error (kMismatch,
/// kUnsupported, kCacheFull, kBadArgument) or std::bad_alloc with nothing changed; whatever a record claims is checked.
/// A cache that keeps all positions refuses records of rings that have forgotten some; a ring takes any record that has
/// what a query at kv_len sees, but none with rotation shifts. Models: all caches of the library.
template <class C>
concept RestorableCache = KvCache<C> && requires(C& cache, const CacheRecord& record) {
  { cache.restore(record) } -> std::same_as<void>;
};

namespace detail {

/// Copies the rows of one head that a record has. @param to  [n_rows, row_bytes]
template <class Runs>
void copy_rows(const Runs& runs, const StoreRecord& store, Index kv_len, Index row_bytes, std::byte* to) {
  for (const auto& run : runs) {
    const bool is_sinks = run.position < store.n_sink;
    const Index begin = is_sinks ? run.position : std::max(run.position, store.first);
    const Index end = std::min(is_sinks ? store.n_sink : kv_len, run.position + run.length);
    for (Index p = begin; p < end; ++p)
      std::memcpy(to + store.row_of(p) * row_bytes, run.data + (p - run.position) * run.row_stride,
                  static_cast<std::size_t>(row_bytes));
  }
}

/// What the cache has of a layer; where its rows are is left open.
template <class C>
StoreRecord positions_of(const C& cache, Index layer) {
  StoreRecord store{layer, 0, std::min(cache.first_position(layer), cache.kv_len()), {}, {}};
  for (const auto& run : cache.keys(layer, 0))
    if (run.position == store.n_sink) store.n_sink = std::min(store.first, run.position + run.length);
  if (store.n_sink == store.first) store.n_sink = store.first = 0;
  return store;
}

/// What a cache asks of a record before it looks at positions, whatever its types.
struct RecordDemands {
  std::string_view k_format;
  std::string_view v_format;
  Index (*k_bytes)(Index k_dim);
  Index (*v_bytes)(const LayerKvShape& dims);
};
template <Format KFormat, Format VFormat>
constexpr RecordDemands record_demands() {
  return {KFormat::kName, VFormat::kName, [](Index n) { return KFormat::row_bytes(n); },
          [](const LayerKvShape& dims) { return dims.own_value_bytes<VFormat>(); }};
}

inline void require_rotation(const CacheRecord& record) {
  constexpr Index kFarthest = Index{1} << 48;  // positions; longer than any stream
  if (!record.rotation.empty() && record.epoch != 0) [[unlikely]]
    raise(ErrorCode::kBadArgument, "cache record: rotation shifts in rotary epoch ", record.epoch,
          ", which has none");
  Index next = 0;
  for (const RotationPiece& piece : record.rotation) {
    const bool is_first = &piece == &record.rotation.front();
    if ((is_first ? piece.position != 0 : piece.position < next) || piece.position >= record.kv_len ||
        piece.rotation_shift > 0 || piece.rotation_shift < -kFarthest) [[unlikely]]
      raise(ErrorCode::kBadArgument, "cache record: a rotation shift of ", piece.rotation_shift,
            " from position ", piece.position, " on, in a sequence of kv_len ", record.kv_len);
    next = piece.position + 1;
  }
}
inline void require_bytes(const StoreRecord& store, std::string_view what, std::size_t n_bytes,
                          Index n_kv_heads, Index n_rows, Index row_bytes) {
  Index expected = 0;
  if (__builtin_mul_overflow(n_kv_heads * row_bytes, n_rows, &expected) ||
      static_cast<std::size_t>(expected) != n_bytes) [[unlikely]]
    raise(ErrorCode::kMismatch, "cache record: layer ", store.layer, " has ", n_bytes, " bytes of ", what,
          ", expected ", n_kv_heads, " heads of ", n_rows, " rows of ", row_bytes);
}

/// Throws Error unless the record is one of such a cache.
inline void require_record(const CacheRecord& record, const KvShape& shape, Index capacity,
                           const RecordDemands& demands) {
  if (record.k_format != demands.k_format || record.v_format != demands.v_format) [[unlikely]]
    raise(ErrorCode::kMismatch, "cache record: keys in ", in_quotes(record.k_format), " and values in ",
          in_quotes(record.v_format), ", but this cache stores ", demands.k_format, " and ",
          demands.v_format);
  if (record.kv_len < 0 || record.epoch < 0) [[unlikely]]
    raise(ErrorCode::kBadArgument, "cache record: kv_len ", record.kv_len, " and epoch ", record.epoch,
          " must not be negative");
  if (record.kv_len > capacity) [[unlikely]]
    raise(ErrorCode::kCacheFull, "KV cache full: max_seq_len ", capacity, ", the record has kv_len ",
          record.kv_len);
  require_rotation(record);
  std::size_t n = 0;
  for (Index layer = 0; layer < shape.n_layers(); ++layer) {
    if (!shape.owns_store(layer)) continue;
    if (n == record.stores.size() || record.stores[n].layer != layer) [[unlikely]]
      raise(ErrorCode::kMismatch, "cache record: has no rows of layer ", layer);
    const StoreRecord& store = record.stores[n++];
    if (store.n_sink < 0 || store.first > record.kv_len ||
        (store.first == 0 ? store.n_sink != 0 : store.n_sink >= store.first)) [[unlikely]]
      raise(ErrorCode::kBadArgument, "cache record: layer ", layer, " has positions below ", store.n_sink,
            " and from ", store.first, " on, in a sequence of kv_len ", record.kv_len);
    const Index n_rows = store.n_rows(record.kv_len), n_heads = shape[layer].n_kv_heads;
    require_bytes(store, "keys", store.keys.size(), n_heads, n_rows, demands.k_bytes(shape[layer].k_dim));
    require_bytes(store, "values", store.values.size(), n_heads, n_rows, demands.v_bytes(shape[layer]));
  }
  if (n != record.stores.size()) [[unlikely]]
    raise(ErrorCode::kMismatch, "cache record: has rows of ", record.stores.size(), " layers, expected ", n);
}

/// Throws Error unless positions [begin, end) of a layer are there.
inline void require_positions(const StoreRecord& store, Index begin, Index end) {
  if (!store.holds(begin, end)) [[unlikely]]
    raise(ErrorCode::kMismatch, "cache record: layer ", store.layer, " has no positions [", store.n_sink,
          ", ", store.first, "), which a ring has forgotten; this cache needs [", begin, ", ", end, ")");
}
inline void require_all_positions(const CacheRecord& record) {
  for (const StoreRecord& store : record.stores) require_positions(store, 0, record.kv_len);
}

}  // namespace detail

/// The record of a cache that holds nothing.
template <Format KFormat, Format VFormat>
CacheRecord empty_record(const KvShape& shape) {
  CacheRecord record{KFormat::kName, VFormat::kName, 0, 0, {}, {}, {}};
  for (Index layer = 0; layer < shape.n_layers(); ++layer)
    if (shape.owns_store(layer)) record.stores.push_back({layer, 0, 0, {}, {}});
  return record;
}

/// What a cache holds, without a step in progress: a copy, byte for byte. O(bytes). @throws std::bad_alloc
template <KvCache C>
CacheRecord record_of(const C& cache) {
  using K = typename C::KeyFormat;
  using V = typename C::ValueFormat;
  const KvShape& shape = cache.shape();
  CacheRecord record = empty_record<K, V>(shape);
  record.kv_len = cache.kv_len();
  record.epoch = cache.epoch();
  const auto bytes_of = [&](const StoreRecord& store, Index row_bytes) {
    return static_cast<std::size_t>(shape[store.layer].n_kv_heads * store.n_rows(record.kv_len) * row_bytes);
  };
  std::size_t n_bytes = 0;
  for (StoreRecord& store : record.stores) {
    store = detail::positions_of(cache, store.layer);
    n_bytes += bytes_of(store, K::row_bytes(shape[store.layer].k_dim)) +
               bytes_of(store, shape[store.layer].own_value_bytes<V>());
  }
  const auto rows =
      std::allocate_shared<Block<std::byte>>(Allocator<Block<std::byte>>{}, static_cast<Index>(n_bytes));
  record.owner = rows;
  std::byte* next = rows->data();
  for (StoreRecord& store : record.stores) {
    const LayerKvShape& dims = shape[store.layer];
    const Index k_bytes = K::row_bytes(dims.k_dim), v_bytes = dims.own_value_bytes<V>();
    const Index n_rows = store.n_rows(record.kv_len);
    std::byte* const keys = next;
    store.keys = {keys, bytes_of(store, k_bytes)};
    std::byte* const values = keys + store.keys.size();
    store.values = {values, bytes_of(store, v_bytes)};
    next = values + store.values.size();
    for (Index head = 0; head < dims.n_kv_heads; ++head) {
      detail::copy_rows(cache.keys(store.layer, head), store, record.kv_len, k_bytes,
                        keys + head * n_rows * k_bytes);
      if (dims.values_in_keys) continue;
      detail::copy_rows(cache.values(store.layer, head), store, record.kv_len, v_bytes,
                        values + head * n_rows * v_bytes);
    }
  }
  if (record.stores.empty()) return record;
  // All layers are shifted alike, and the first one has rows of its own.
  for (const auto& run : cache.keys(0, 0))
    if (run.position < record.kv_len &&
        (record.rotation.empty() ? Index{0} : record.rotation.back().rotation_shift) != run.rotation_shift) {
      if (record.rotation.empty() && run.position > 0) record.rotation.push_back({0, 0});
      record.rotation.push_back({run.position, run.rotation_shift});
    }
  return record;
}

}  // namespace kvdecode

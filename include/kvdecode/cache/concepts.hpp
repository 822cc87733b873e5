// SPDX-License-Identifier: MIT
// <kvdecode/cache/concepts.hpp> - what a KV cache is: rows of keys and values by layer, KV head and position,
// in storage formats of its own choice. A cache stores and forgets; it computes nothing but its formats'
// encoding.
//
//   ContiguousCache      all memory at once, one stream a head: the longest sequence is known
//   GrowingCache         doubles as the sequence grows: the length is not known
//   PagedCache           pages of a pool, shared by forks until they write: beams, many answers to one prompt; with
//                        a PrefixStore, prompts that begin alike
//   SlidingWindowCache   a ring for each layer that sees a part of the sequence: models with windows or chunks
//   SinkCache            the first positions and the last ones, constant size: sequences without end
//   CrossAttentionCache  an encoder's outputs, written once and shared by all that read them: encoder-decoder models
#pragma once

#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/kv_shape.hpp>
#include <kvdecode/core/view.hpp>

#include <concepts>
#include <iterator>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {

/// A contiguous run of the rows of one KV head, in format F.
template <class F>
struct KvRun {
  Index position = 0;  // of the first row
  Index length = 0;    // rows
  const std::byte* data = nullptr;
  Index row_stride = 0;      // bytes
  Index rotation_shift = 0;  // its keys were rotated at position - rotation_shift
};

/// Where a cache keeps the rows of a position.
struct RowPlace {
  Index page = -1;  // its number in the pool; -1: no pages
  Index slot = -1;  // row of the page, or of the layer's store; -1: not said

  friend bool operator==(const RowPlace&, const RowPlace&) = default;
};

namespace detail {

/// A range, of a class with begin() and end(), that can be gone through again. (std::ranges::forward_range says so too, for
/// a tenth of the price of Eigen.)
template <class R>
concept ForwardRuns = std::forward_iterator<decltype(std::declval<const R&>().begin())> &&
    std::sentinel_for<decltype(std::declval<const R&>().end()), decltype(std::declval<const R&>().begin())>;

}  // namespace detail

/// A key-value cache.
///
/// A step writes n new positions in all layers or in none:
///
/// | expression | meaning | cost |
/// |---|---|---|
/// | c.reserve(n) | makes room for n more positions: a whole call, so beyond max_append() too | may allocate |
/// | c.append(layer, k, v) | the next rows of a layer, in any split; noexcept; @pre the default fp env | O(n) |
/// | c.commit() | rows that all layers were given become part of the sequence; noexcept | O(layers) |
/// | c.abandon() | uncommitted rows and the reservation never happened; noexcept | O(layers) |
/// | c.keys(layer, kv_head), c.values(…) | range of KvRun in rising position, both cut alike | O(1) |
///
/// reserve throws Error (kCacheFull, kBadArgument, kUnsupported) or std::bad_alloc with nothing changed, not even a step in
/// progress; when it returns, it has replaced the reservation before it. append takes [n, n_kv_heads * k_dim] and
/// [n, n_kv_heads * v_dim]; where the shape has values in the keys it need not read the latter, and values may be runs over
/// the rows of the keys. A layer is given at most max_append() rows between two commits. keys and values have
/// the committed rows and those appended to that layer since, as far as they are still stored: valid until
/// reserve, truncate, shift or clear, and complete again after append.
///
/// Between steps:
///
/// | expression | meaning | cost |
/// |---|---|---|
/// | c.kv_len() | positions committed | O(1) |
/// | c.capacity() | positions it can hold at most | O(1) |
/// | c.max_append() | positions that one step can append without overwriting visible ones | O(1) |
/// | c.first_position(layer) | from here on every position is stored; before it, sinks alone | O(1) |
/// | c.can_truncate(n) | whether what a query at n sees is still stored | O(layers) |
/// | c.truncate(n) | forgets positions from n on, and a step in progress; else Error (kBadArgument) | O(layers) |
/// | c.clear(epoch = 0) | forgets everything and starts an angle epoch | O(layers) |
/// | c.fork() | an independent cache with the same content, without the step in progress | O(bytes) or less |
/// | c.epoch() | the angle epoch that its keys were rotated in | O(1) |
/// | c.bytes() | bytes it holds | O(1) |
/// | C::required_bytes(shape, capacity, options) | bytes of a cache that is full | O(layers) |
///
/// Invariant: no operation changes a byte of a row that a query at kv_len() or later sees. One thread at a time;
/// reading threads may share keys() and values(). What a cache holds, as bytes for another one or for a file:
/// cache/record.hpp. Models: ContiguousCache, GrowingCache, PagedCache, SlidingWindowCache, SinkCache,
/// CrossAttentionCache.
template <class C>
concept KvCache =
    std::movable<C> && !std::copyable<C> && Format<typename C::KeyFormat> &&
    Format<typename C::ValueFormat> && std::default_initializable<typename C::Options> &&
    std::constructible_from<C, KvShape, Index, typename C::Options> &&
    requires(C & cache, const C& view, const KvShape& shape, Index n, typename C::Options options) {
  { view.shape() } -> std::same_as<const KvShape&>;
  { view.kv_len() }
  noexcept->std::same_as<Index>;
  { view.capacity() }
  noexcept->std::same_as<Index>;
  { view.max_append() }
  noexcept->std::same_as<Index>;
  { view.first_position(n) }
  noexcept->std::same_as<Index>;
  { view.bytes() }
  noexcept->std::same_as<Index>;
  { view.epoch() }
  noexcept->std::same_as<Index>;
  { cache.reserve(n) } -> std::same_as<void>;
  { cache.commit() }
  noexcept->std::same_as<void>;
  { cache.abandon() }
  noexcept->std::same_as<void>;
  { view.keys(n, n) }
  noexcept->detail::ForwardRuns;
  { view.values(n, n) }
  noexcept->detail::ForwardRuns;
  { *view.keys(n, n).begin() } -> std::convertible_to<KvRun<typename C::KeyFormat>>;
  { *view.values(n, n).begin() } -> std::convertible_to<KvRun<typename C::ValueFormat>>;
  { view.can_truncate(n) }
  noexcept->std::same_as<bool>;
  { cache.truncate(n) } -> std::same_as<void>;
  { cache.clear(n) }
  noexcept->std::same_as<void>;
  { cache.clear() }
  noexcept->std::same_as<void>;
  { view.fork() } -> std::same_as<C>;
  { C::required_bytes(shape, n, options) } -> std::same_as<Index>;
};

/// A cache that has an operation called shift, for sequences that outgrow their room.
///
/// | expression | meaning | cost |
/// |---|---|---|
/// | c.can_shift(first, delta) | whether it can be done | O(1) |
/// | c.shift(first, delta) | drops positions [first + delta, first); p >= first becomes p + delta | by cache |
///
/// delta is negative, and kv_len() falls by it. Throws Error (kBadArgument, kUnsupported) or std::bad_alloc with
/// nothing changed; ends a step in progress. Invariant: no key is changed. The runs of the positions that moved
/// say by rotation_shift where their keys were rotated, and attention turns the query to meet them; so
/// shift(f, a), shift(f + a, b) is shift(f, a + b). Models: ContiguousCache, GrowingCache, PagedCache.
template <class C>
concept ShiftableCache = KvCache<C> && requires(C& cache, const C& view, Index first, Index delta) {
  { view.can_shift(first, delta) }
  noexcept->std::same_as<bool>;
  { cache.shift(first, delta) } -> std::same_as<void>;
};

/// A cache that takes rows of scalars S and gives them back.
template <class C, class S>
concept KvCacheFor = KvCache<C> && StoresFrom<typename C::KeyFormat, S> &&
    StoresFrom<typename C::ValueFormat, S> && requires(C& cache, Index layer, RowsView<const S> rows) {
  { cache.append(layer, rows, rows) }
  noexcept->std::same_as<void>;
};

}  // namespace kvdecode

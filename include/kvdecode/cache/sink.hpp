// SPDX-License-Identifier: MIT
// <kvdecode/cache/sink.hpp> - a cache of constant size for sequences without end: the first positions and the last
// ones, as every layer's span says (Xiao 2023). with_streaming() makes such a model of any other.
#pragma once

#include <kvdecode/cache/sliding_window.hpp>

#include <utility>

namespace kvdecode::inline KVDECODE_ABI {

/// A SlidingWindowCache of layers that all forget: the first span.n_sink positions and the last span.window ones of each
/// layer. All memory is there from the start, reserve never allocates, and a capacity beyond any length costs nothing.
///
/// Layers that see all positions are refused: they would have to grow. Chunked ones are kept like windows of a chunk.
template <Format KFormat = F32, Format VFormat = KFormat>
class SinkCache : public SlidingWindowCache<KFormat, VFormat> {
  using Base = SlidingWindowCache<KFormat, VFormat>;

 public:
  using typename Base::Options;

  /// @param capacity  positions, >= 1, rows only up to the rings' sizes
  /// @throws Error kBadArgument, kUnsupported (a layer without a window), std::bad_alloc
  SinkCache(KvShape shape, Index capacity, Options options = {})
      : Base(checked(std::move(shape)), capacity, options) {}

  SinkCache fork() const { return SinkCache(Base::fork()); }

  /// Whether every layer of the shape forgets.
  static bool can_hold(const KvShape& shape) noexcept { return first_full(shape) == shape.n_layers(); }
  static Index required_bytes(const KvShape& shape, Index capacity, Options options = {}) {
    require_bounded(shape);
    return Base::required_bytes(shape, capacity, options);
  }

 private:
  explicit SinkCache(Base&& base) noexcept : Base(std::move(base)) {}

  static Index first_full(const KvShape& shape) noexcept {
    using Ring = RingRows<KFormat, VFormat>;
    Index layer = 0;
    while (layer < shape.n_layers() && Ring::is_bounded(Ring::span_of(shape, shape[layer].store))) ++layer;
    return layer;
  }
  static void require_bounded(const KvShape& shape) {
    if (!can_hold(shape)) [[unlikely]]
      detail::raise(
          ErrorCode::kUnsupported, "KV cache: layer ", first_full(shape),
          " sees all positions, and a SinkCache keeps only sinks and windows; with_streaming() gives every "
          "layer both");
  }
  static KvShape checked(KvShape shape) {
    require_bounded(shape);
    return shape;
  }
};

static_assert(RestorableCache<SinkCache<F16>>);
static_assert(KvCacheFor<SinkCache<>, float> && ShiftableCache<SinkCache<F16, F64>>);

}  // namespace kvdecode

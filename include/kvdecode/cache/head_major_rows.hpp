// SPDX-License-Identifier: MIT
// <kvdecode/cache/head_major_rows.hpp> - storage for a fixed number of positions: for each layer and KV head
// all keys one after another, then all values, so that attention reads a head as one stream.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/format.hpp>
#include <kvdecode/core/kv_shape.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/core/view.hpp>

#include <cstring>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

/// Rows by layer, KV head and slot. Slots are positions or whatever the cache maps positions to.
template <Format KFormat, Format VFormat>
class HeadMajorRows {
 public:
  HeadMajorRows() = default;
  /// @throws std::bad_alloc, Error (kBadArgument) if the size cannot be expressed
  HeadMajorRows(const KvShape& shape, Index n_slots) : n_slots_(n_slots), layers_(shape.layers.size()) {
    block_ = Block<std::byte>(required_bytes(shape, n_slots));  // first: the offsets cannot overflow then
    Index offset = 0;
    for (Index layer = 0; layer < shape.n_layers(); ++layer) {
      LayerRows& rows = layers_[static_cast<std::size_t>(layer)];
      rows.k_bytes = KFormat::row_bytes(shape[layer].k_dim);
      rows.v_bytes = VFormat::row_bytes(shape[layer].v_dim);
      if (!shape.owns_store(layer)) continue;
      rows.k_offset = offset;
      rows.v_offset = offset + shape[layer].n_kv_heads * n_slots * rows.k_bytes;
      offset = rows.v_offset + shape[layer].n_kv_heads * n_slots * rows.v_bytes;
    }
  }

  /// Bytes of rows for so many slots. @throws Error kBadArgument on overflow, kUnsupported if a format does not take
  /// rows of the shape's
  static Index required_bytes(const KvShape& shape, Index n_slots) {
    require_rows(shape);
    Index total = 0;
    for (Index layer = 0; layer < shape.n_layers(); ++layer) {
      if (!shape.owns_store(layer)) continue;
      const Index a_slot = shape[layer].n_kv_heads *
                           (KFormat::row_bytes(shape[layer].k_dim) + VFormat::row_bytes(shape[layer].v_dim));
      Index bytes = 0;
      if (__builtin_mul_overflow(a_slot, n_slots, &bytes) || __builtin_add_overflow(total, bytes, &total))
          [[unlikely]]
        detail::raise(ErrorCode::kBadArgument, "KV cache: ", n_slots,
                      " positions of this model exceed the address space");
    }
    return total;
  }

  /// Whether the formats take the rows of the shape; caches that allocate later ask at once.
  /// @throws Error kUnsupported if not
  static void require_rows(const KvShape& shape) {
    for (Index layer = 0; layer < shape.n_layers(); ++layer) {
      if (!shape.owns_store(layer)) continue;
      require<KFormat>(layer, "keys", shape[layer].k_dim);
      require<VFormat>(layer, "values", shape[layer].v_dim);
    }
  }

  Index n_slots() const noexcept { return n_slots_; }
  Index bytes() const noexcept { return block_.bytes(); }
  Index key_bytes(Index layer) const noexcept { return at(layer).k_bytes; }
  Index value_bytes(Index layer) const noexcept { return at(layer).v_bytes; }
  const std::byte* keys(Index layer, Index kv_head, Index slot) const noexcept {
    return block_.data() + at(layer).k_offset + (kv_head * n_slots_ + slot) * at(layer).k_bytes;
  }
  const std::byte* values(Index layer, Index kv_head, Index slot) const noexcept {
    return block_.data() + at(layer).v_offset + (kv_head * n_slots_ + slot) * at(layer).v_bytes;
  }

  /// Encodes n rows of all KV heads from `slot` on.
  /// @param k  [n, n_kv_heads * k_dim]  @param v  [n, n_kv_heads * v_dim]
  template <class S>
  void write(const LayerKvShape& shape, Index layer, Index slot, RowsView<const S> k,
             RowsView<const S> v) noexcept {
    if (k.rows == 0) return;  // there may be no slots
    for (Index kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      std::byte* k_row = const_cast<std::byte*>(keys(layer, kv_head, slot));
      std::byte* v_row = const_cast<std::byte*>(values(layer, kv_head, slot));
      for (Index i = 0; i < k.rows; ++i) {
        KFormat::encode(k.row(i) + kv_head * shape.k_dim, shape.k_dim, k_row + i * at(layer).k_bytes);
        VFormat::encode(v.row(i) + kv_head * shape.v_dim, shape.v_dim, v_row + i * at(layer).v_bytes);
      }
    }
  }

  /// Copies the first n slots of every head from other rows of the same shape.
  void copy_from(const HeadMajorRows& other, const KvShape& shape, Index n) noexcept {
    for (Index layer = 0; n > 0 && layer < shape.n_layers(); ++layer) {
      if (!shape.owns_store(layer)) continue;
      for (Index kv_head = 0; kv_head < shape[layer].n_kv_heads; ++kv_head) {
        std::memcpy(const_cast<std::byte*>(keys(layer, kv_head, 0)), other.keys(layer, kv_head, 0),
                    static_cast<std::size_t>(n * key_bytes(layer)));
        std::memcpy(const_cast<std::byte*>(values(layer, kv_head, 0)), other.values(layer, kv_head, 0),
                    static_cast<std::size_t>(n * value_bytes(layer)));
      }
    }
  }

 private:
  struct LayerRows {
    Index k_offset = 0;  // bytes from the start of the block
    Index v_offset = 0;
    Index k_bytes = 0;  // of one row
    Index v_bytes = 0;
  };
  template <class F>
  static void require([[maybe_unused]] Index layer, [[maybe_unused]] std::string_view rows,
                      [[maybe_unused]] Index dim) {
    if constexpr (requires { F::takes(dim); })
      if (!F::takes(dim)) [[unlikely]]
        detail::raise(ErrorCode::kUnsupported, "KV cache: layer ", layer, " has ", rows, " of ", dim,
                      " numbers, but a row of format ", F::kName, " must have ", F::kTakes);
  }
  const LayerRows& at(Index layer) const noexcept { return layers_[static_cast<std::size_t>(layer)]; }

  Index n_slots_ = 0;
  Vector<LayerRows> layers_;
  Block<std::byte> block_;
};

}  // namespace kvdecode

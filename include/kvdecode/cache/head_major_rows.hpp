// SPDX-License-Identifier: MIT
// <kvdecode/cache/head_major_rows.hpp> - storage for a fixed number of positions: for each layer and KV head
// all keys one after another, then all values, so that attention reads a head as one stream.
#pragma once

#include <kvdecode/cache/record.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/format.hpp>
#include <kvdecode/core/kv_shape.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/core/view.hpp>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace kvdecode::inline KVDECODE_ABI {

/// Whether a cache of these formats takes the rows of a layer. Values that are a part of the keys have the keys' format,
/// and it must let them be read without the rest of the row.
template <Format KFormat, Format VFormat>
constexpr bool takes_rows(const LayerKvShape& shape) {
  if (!shape.values_in_keys)
    return takes_rows_of<KFormat>(shape.k_dim) && takes_rows_of<VFormat>(shape.v_dim);
  return std::is_same_v<KFormat, VFormat> && reads_parts_of_rows<KFormat>() && shape.v_dim <= shape.k_dim &&
         takes_rows_of<KFormat>(shape.k_dim);
}

/// Where rows lie in a block: by layer, KV head and slot. Slots are positions or whatever the cache maps
/// positions to. Owns no block.
template <Format KFormat, Format VFormat>
class HeadMajorLayout {
 public:
  HeadMajorLayout() = default;
  /// The same number of slots in every layer that has rows of its own.
  /// @throws std::bad_alloc, Error (kBadArgument) if the size cannot be expressed
  HeadMajorLayout(const KvShape& shape, Index n_slots)
      : HeadMajorLayout(shape, [n_slots](Index) { return n_slots; }) {}
  /// @param slots_of  (layer) -> slots, for layers that have rows of their own
  template <class SlotsOf>
  requires requires(const SlotsOf& f, Index layer) { Index{f(layer)}; }
  HeadMajorLayout(const KvShape& shape, const SlotsOf& slots_of)
      : bytes_(required_bytes(shape, slots_of)),  // first: the offsets cannot overflow then
        layers_(shape.layers.size()) {
    Index offset = 0;
    for (Index layer = 0; layer < shape.n_layers(); ++layer) {
      LayerRows& rows = layers_[static_cast<std::size_t>(layer)];
      const bool in_keys = shape[layer].values_in_keys;
      rows.k_bytes = KFormat::row_bytes(shape[layer].k_dim);
      rows.v_bytes = in_keys ? rows.k_bytes : VFormat::row_bytes(shape[layer].v_dim);
      if (!shape.owns_store(layer)) continue;
      const Index n_rows = shape[layer].n_kv_heads * slots_of(layer);
      rows.n_slots = slots_of(layer);
      rows.k_offset = offset;
      rows.v_offset = in_keys ? offset : offset + n_rows * rows.k_bytes;
      offset = rows.v_offset + n_rows * rows.v_bytes;
    }
  }

  /// Bytes of rows for so many slots. @throws Error kBadArgument on overflow, kUnsupported if a format does not take
  /// rows of the shape's
  static Index required_bytes(const KvShape& shape, Index n_slots) {
    return required_bytes(shape, [n_slots](Index) { return n_slots; });
  }
  template <class SlotsOf>
  requires requires(const SlotsOf& f, Index layer) { Index{f(layer)}; }
  static Index required_bytes(const KvShape& shape, const SlotsOf& slots_of) {
    require_rows(shape);
    Index total = 0;
    for (Index layer = 0; layer < shape.n_layers(); ++layer) {
      if (!shape.owns_store(layer)) continue;
      const Index n_slots = slots_of(layer);
      const Index v_bytes = shape[layer].own_value_bytes<VFormat>();
      const Index a_slot = shape[layer].n_kv_heads * (KFormat::row_bytes(shape[layer].k_dim) + v_bytes);
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
      if (shape[layer].values_in_keys) require_part(layer, shape[layer]);
      require<KFormat>(layer, "keys", shape[layer].k_dim);
      if (!shape[layer].values_in_keys) require<VFormat>(layer, "values", shape[layer].v_dim);
    }
  }

  Index bytes() const noexcept { return bytes_; }
  Index n_slots(Index layer) const noexcept { return at(layer).n_slots; }
  /// Bytes from one row of a head to the next.
  Index key_bytes(Index layer) const noexcept { return at(layer).k_bytes; }
  Index value_bytes(Index layer) const noexcept { return at(layer).v_bytes; }
  /// Bytes from the start of the block to a row.
  Index keys(Index layer, Index kv_head, Index slot) const noexcept {
    return at(layer).k_offset + (kv_head * at(layer).n_slots + slot) * at(layer).k_bytes;
  }
  Index values(Index layer, Index kv_head, Index slot) const noexcept {
    return at(layer).v_offset + (kv_head * at(layer).n_slots + slot) * at(layer).v_bytes;
  }

  /// Encodes n rows of all KV heads from `slot` of a block on.
  /// @param k  [n, n_kv_heads * k_dim]  @param v  [n, n_kv_heads * v_dim], not read where values are in the keys
  template <class S>
  void write(std::byte* block, const LayerKvShape& shape, Index layer, Index slot, RowsView<const S> k,
             RowsView<const S> v) const noexcept {
    if (k.rows == 0) return;  // there may be no slots
    for (Index kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      std::byte* k_row = block + keys(layer, kv_head, slot);
      std::byte* v_row = block + values(layer, kv_head, slot);
      for (Index i = 0; i < k.rows; ++i) {
        KFormat::encode(k.row(i) + kv_head * shape.k_dim, shape.k_dim, k_row + i * at(layer).k_bytes);
        if (shape.values_in_keys) continue;
        VFormat::encode(v.row(i) + kv_head * shape.v_dim, shape.v_dim, v_row + i * at(layer).v_bytes);
      }
    }
  }

  /// Copies positions [position, position + n) of a record, rows of all KV heads, from `slot` of a block on.
  /// @pre the record was checked, and has them one after another
  void put(std::byte* block, const LayerKvShape& shape, Index slot, const StoreRecord& store, Index kv_len,
           Index position, Index n) const noexcept {
    if (n == 0) return;
    const Index layer = store.layer, n_rows = store.n_rows(kv_len), row = store.row_of(position);
    for (Index kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      std::memcpy(block + keys(layer, kv_head, slot),
                  store.keys.data() + (kv_head * n_rows + row) * key_bytes(layer),
                  static_cast<std::size_t>(n * key_bytes(layer)));
      if (shape.values_in_keys) continue;
      std::memcpy(block + values(layer, kv_head, slot),
                  store.values.data() + (kv_head * n_rows + row) * value_bytes(layer),
                  static_cast<std::size_t>(n * value_bytes(layer)));
    }
  }

  /// Copies slots [0, n) of every head, or as many as the layer has, from a block laid out by `other` to one laid
  /// out by this.
  void copy(std::byte* to, const HeadMajorLayout& other, const std::byte* from, const KvShape& shape,
            Index n) const noexcept {
    for (Index layer = 0; layer < shape.n_layers(); ++layer) {
      const Index n_rows = std::min(n, other.n_slots(layer));
      if (n_rows == 0) continue;
      for (Index kv_head = 0; kv_head < shape[layer].n_kv_heads; ++kv_head) {
        std::memcpy(to + keys(layer, kv_head, 0), from + other.keys(layer, kv_head, 0),
                    static_cast<std::size_t>(n_rows * key_bytes(layer)));
        if (shape[layer].values_in_keys) continue;
        std::memcpy(to + values(layer, kv_head, 0), from + other.values(layer, kv_head, 0),
                    static_cast<std::size_t>(n_rows * value_bytes(layer)));
      }
    }
  }

 private:
  struct LayerRows {
    Index n_slots = 0;
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
  static void require_part(Index layer, const LayerKvShape& shape) {
    constexpr std::string_view in_keys = " has values that are a part of its keys, but ";
    if (shape.v_dim > shape.k_dim) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "KV cache: layer ", layer, in_keys, "values have ", shape.v_dim,
                    " numbers, keys ", shape.k_dim);
    if (!std::is_same_v<KFormat, VFormat>) [[unlikely]]
      detail::raise(ErrorCode::kUnsupported, "KV cache: layer ", layer, in_keys, "keys are stored as ",
                    KFormat::kName, ", values as ", VFormat::kName);
    if (!reads_parts_of_rows<KFormat>()) [[unlikely]]
      detail::raise(ErrorCode::kUnsupported, "KV cache: layer ", layer, in_keys, "a row of format ",
                    KFormat::kName, " cannot be read in part");
  }
  const LayerRows& at(Index layer) const noexcept { return layers_[static_cast<std::size_t>(layer)]; }

  Index bytes_ = 0;
  Vector<LayerRows> layers_;
};

/// Rows by layer, KV head and slot, in a block of their own.
template <Format KFormat, Format VFormat>
class HeadMajorRows {
 public:
  using Layout = HeadMajorLayout<KFormat, VFormat>;

  HeadMajorRows() = default;
  /// @throws std::bad_alloc, Error (kBadArgument) if the size cannot be expressed
  explicit HeadMajorRows(Layout layout) : layout_(std::move(layout)), block_(layout_.bytes()) {}

  const Layout& layout() const noexcept { return layout_; }
  Index bytes() const noexcept { return block_.bytes(); }
  Index key_bytes(Index layer) const noexcept { return layout_.key_bytes(layer); }
  Index value_bytes(Index layer) const noexcept { return layout_.value_bytes(layer); }
  const std::byte* keys(Index layer, Index kv_head, Index slot) const noexcept {
    return block_.data() + layout_.keys(layer, kv_head, slot);
  }
  const std::byte* values(Index layer, Index kv_head, Index slot) const noexcept {
    return block_.data() + layout_.values(layer, kv_head, slot);
  }

  /// Encodes n rows of all KV heads from `slot` on.
  /// @param k  [n, n_kv_heads * k_dim]  @param v  [n, n_kv_heads * v_dim], not read where values are in the keys
  template <class S>
  void write(const LayerKvShape& shape, Index layer, Index slot, RowsView<const S> k,
             RowsView<const S> v) noexcept {
    layout_.write(block_.data(), shape, layer, slot, k, v);
  }
  /// Copies positions of a record from `slot` on, as the layout's put() does.
  void put(const LayerKvShape& shape, Index slot, const StoreRecord& store, Index kv_len, Index position,
           Index n) noexcept {
    layout_.put(block_.data(), shape, slot, store, kv_len, position, n);
  }
  /// Copies all positions of a record to the slots of their numbers. @pre it has all, and there are as many slots
  void put_all(const KvShape& shape, const CacheRecord& record) noexcept {
    for (const StoreRecord& store : record.stores)
      put(shape[store.layer], 0, store, record.kv_len, 0, record.kv_len);
  }
  /// Copies the first n slots of every head from other rows of the same shape. @pre this has as many
  void copy_from(const HeadMajorRows& other, const KvShape& shape, Index n) noexcept {
    if (n > 0) layout_.copy(block_.data(), other.layout_, other.block_.data(), shape, n);
  }
  /// Moves the rows from slot `from` up to `end` of every head to slot `to`. @pre to <= from <= end
  void move_rows(const KvShape& shape, Index from, Index end, Index to) noexcept {
    for (Index layer = 0; layer < shape.n_layers(); ++layer) {
      if (layout_.n_slots(layer) == 0 || from == end) continue;
      const auto move = [&](Index source, Index target, Index row_bytes) {
        std::memmove(block_.data() + target, block_.data() + source,
                     static_cast<std::size_t>((end - from) * row_bytes));
      };
      for (Index head = 0; head < shape[layer].n_kv_heads; ++head) {
        move(layout_.keys(layer, head, from), layout_.keys(layer, head, to), key_bytes(layer));
        if (shape[layer].values_in_keys) continue;
        move(layout_.values(layer, head, from), layout_.values(layer, head, to), value_bytes(layer));
      }
    }
  }

 private:
  Layout layout_;
  Block<std::byte> block_;
};

}  // namespace kvdecode

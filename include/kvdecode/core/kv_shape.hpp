// SPDX-License-Identifier: MIT
// <kvdecode/core/kv_shape.hpp> - what a cache has to hold, layer by layer: all that a cache knows of a model.
#pragma once

#include <kvdecode/core/types.hpp>

#include <algorithm>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// Which positions a query may see, beside those after it (never). 0 switches a limit off.
/// Query i sees j  <=>  j <= i and (window == 0 or i - j < window or j < n_sink) and (chunk == 0 or i / chunk
/// == j / chunk).
struct AttentionSpan {
  Index window = 0;  // positions, the query's own included (Child 2019, local attention)
  Index n_sink = 0;  // first positions that stay visible outside the window (Xiao 2023); needs window
  Index chunk = 0;   // positions are visible within their own chunk only; excludes both others

  constexpr bool sees(Index query, Index key) const noexcept {
    return key <= query && (window == 0 || query - key < window || key < n_sink) &&
           (chunk == 0 || query / chunk == key / chunk);
  }
  /// The first position that `query` sees, sinks left aside. Everything from there to `query` is visible.
  constexpr Index first_visible(Index query) const noexcept {
    if (chunk != 0) return query / chunk * chunk;
    return window == 0 ? 0 : std::max<Index>(0, query - window + 1);
  }
  friend bool operator==(const AttentionSpan&, const AttentionSpan&) = default;
};

/// At which position a query stands for the keys of the sinks, which the window has left behind.
enum class SinkRotation {
  kAbsolute,      ///< its own: sinks are seen at their true distance
  kWithinWindow,  ///< min(i, n_sink + window - 1): at their distance within a cache of that size (Xiao 2023)
};

/// One layer's keys and values: n_kv_heads rows a position, of k_dim and v_dim numbers. Where values are a part of the
/// keys (latent attention, DeepSeek-AI 2024), a position has rows of keys alone.
struct LayerKvShape {
  Index n_kv_heads = 0;
  Index k_dim = 0;
  Index v_dim = 0;
  AttentionSpan span{};
  Index store = 0;  // the layer whose rows this one reads: its own index, or that of an earlier layer
  bool values_in_keys = false;  // values are the first v_dim numbers of the keys

  /// Bytes of a row of values beside that of the keys, in a format.
  template <class VFormat>
  constexpr Index own_value_bytes() const {
    return values_in_keys ? 0 : VFormat::row_bytes(v_dim);
  }
  friend bool operator==(const LayerKvShape&, const LayerKvShape&) = default;
};

/// The keys and values of a whole model; ModelConfig::kv_shape() makes it.
struct KvShape {
  std::vector<LayerKvShape> layers;

  Index n_layers() const noexcept { return static_cast<Index>(layers.size()); }
  const LayerKvShape& operator[](Index layer) const noexcept {
    return layers[static_cast<std::size_t>(layer)];
  }
  /// Whether the layer has rows of its own.
  bool owns_store(Index layer) const noexcept { return (*this)[layer].store == layer; }
  friend bool operator==(const KvShape&, const KvShape&) = default;
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/common.hpp> - what families have in common in whatever files they come: windows in
// some layers only, and layers that read the keys and values of earlier ones.
#pragma once

#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>

#include <algorithm>
#include <optional>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {
namespace detail {

/// Beyond any model whose layers differ. Before anything with one entry a layer is made, their number is held
/// against it: a few bytes of a file must not ask for much memory.
inline constexpr Index kMaxDifferingLayers = 4096;

/// The window of the layers that slide. No spans at all if none does.
inline void set_spans(const std::vector<bool>& sliding, const std::optional<Index>& window,
                      ModelConfig& model) {
  model.spans.clear();
  if (std::find(sliding.begin(), sliding.end(), true) == sliding.end()) return;
  for (const bool slides : sliding) model.spans.push_back({slides ? *window : 0, 0, 0});
}

/// The last n_shared layers read the keys and values of the last layer before them that slides as they do, or does not.
/// @return the first layer that finds none; -1: there is no such layer  @pre 0 < n_shared < sliding.size()
inline Index set_last_stores(const std::vector<bool>& sliding, Index n_shared, ModelConfig& model) {
  const Index n_layers = static_cast<Index>(sliding.size()), n_own = n_layers - n_shared;
  const auto slides = [&](Index layer) {
    return static_cast<bool>(sliding[static_cast<std::size_t>(layer)]);
  };
  model.kv_stores.clear();
  for (Index layer = 0; layer < n_layers; ++layer) {
    Index store = std::min(layer, n_own - 1);
    while (layer >= n_own && store >= 0 && slides(store) != slides(layer)) --store;
    if (store < 0) return layer;
    model.kv_stores.push_back(layer < n_own ? layer : store);
  }
  return -1;
}

}  // namespace detail
}  // namespace kvdecode

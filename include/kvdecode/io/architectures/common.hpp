// SPDX-License-Identifier: MIT
// <kvdecode/io/architectures/common.hpp> - what families have in common in whatever files they come: windows in
// some layers only.
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

}  // namespace detail
}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/cache/picture.hpp> - what a cache holds and where: as data that can be compared, and as text, one line for
// each run, that can be read and diffed.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/core/error.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// One run of positions.
struct RunPicture {
  Index position = 0;
  Index length = 0;
  Index rotation_shift = 0;
  RowPlace place{};  // of the first row; the others follow

  friend bool operator==(const RunPicture&, const RunPicture&) = default;
};

/// A layer with rows of its own.
struct StorePicture {
  Index layer = 0;
  AttentionSpan span{};
  Index first_position = 0;
  std::vector<RunPicture> runs{};

  friend bool operator==(const StorePicture&, const StorePicture&) = default;
};

/// A cache at a moment; equal for caches that hold the same positions in the same places.
struct CachePicture {
  std::string_view k_format;
  std::string_view v_format;
  Index kv_len = 0;
  Index capacity = 0;
  Index max_append = 0;
  Index epoch = 0;
  Index bytes = 0;
  std::vector<StorePicture> stores{};

  friend bool operator==(const CachePicture&, const CachePicture&) = default;
};

/// What the cache holds, rows of a step in progress included. Caches that have place(layer, position) say where.
template <KvCache C>
CachePicture describe(const C& cache) {
  CachePicture picture{C::KeyFormat::kName, C::ValueFormat::kName, cache.kv_len(), cache.capacity(),
                       cache.max_append(),  cache.epoch(),         cache.bytes(),  {}};
  for (Index layer = 0; layer < cache.shape().n_layers(); ++layer) {
    if (!cache.shape().owns_store(layer)) continue;
    StorePicture store{layer, cache.shape()[layer].span, cache.first_position(layer), {}};
    for (const auto& run : cache.keys(layer, 0)) {
      RunPicture part{run.position, run.length, run.rotation_shift, {}};
      if constexpr (requires { RowPlace{cache.place(layer, run.position)}; })
        part.place = cache.place(layer, run.position);
      store.runs.push_back(part);
    }
    picture.stores.push_back(std::move(store));
  }
  return picture;
}

/// The picture as text: a line for the cache, one for each store, one for each of its runs.
///
///   keys f32, values f32, 11 of 64 positions, steps of 5, epoch 0, 1536 bytes
///   layer 0, window 4, sinks 2
///     [0, 2) slot 0
///     [6, 11) slot 2
inline std::string to_string(const CachePicture& picture) {
  std::string text;
  const auto add = [&text](const auto&... parts) { (detail::append_text(text, parts), ...); };
  add("keys ", picture.k_format, ", values ", picture.v_format, ", ", picture.kv_len, " of ",
      picture.capacity, " positions, steps of ", picture.max_append, ", epoch ", picture.epoch, ", ",
      picture.bytes, " bytes\n");
  for (const StorePicture& store : picture.stores) {
    add("layer ", store.layer);
    if (store.span.window != 0) add(", window ", store.span.window);
    if (store.span.n_sink != 0) add(", sinks ", store.span.n_sink);
    if (store.span.chunk != 0) add(", chunk ", store.span.chunk);
    if (store.first_position != 0) add(", all from ", store.first_position, " on");
    add("\n");
    for (const RunPicture& run : store.runs) {
      add("  [", run.position, ", ", run.position + run.length, ")");
      if (run.place.page >= 0) add(" page ", run.place.page);
      if (run.place.slot >= 0) add(" slot ", run.place.slot);
      if (run.rotation_shift != 0) add(" rotated at ", run.position - run.rotation_shift);
      add("\n");
    }
  }
  return text;
}

}  // namespace kvdecode

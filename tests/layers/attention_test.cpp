// SPDX-License-Identifier: MIT
// Which rows of a cache a query is shown, tile by tile. That attention over them is right is for kernels/ and model/.
#include <support/random.hpp>

#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/layers/attention.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace {

using kvdecode::AttentionSpan;
using kvdecode::F16;
using kvdecode::F32;
using kvdecode::Index;
using kvdecode::KvRun;
using kvdecode::kernels::AttentionPiece;
using kvdecode_test::SplitMix64;

constexpr Index kKeyBytes = 6, kValueBytes = 20;

/// Runs of positions 0 … n-1, cut at random places, some left out, as pages and rings make them; the row of position p
/// is p rows into one imagined block, so that a piece's pointer tells its position.
struct Runs {
  std::vector<KvRun<F16>> keys;
  std::vector<KvRun<F32>> values;
  std::vector<bool> is_stored;

  Runs(Index n, std::uint64_t seed, Index longest, const AttentionSpan& span, Index query)
      : is_stored(at(n), false) {
    SplitMix64 random(seed);
    for (Index position = 0; position < n;) {
      const Index length = std::min(n - position, 1 + random.below(longest));
      bool is_seen = false;
      for (Index p = position; p < position + length; ++p) is_seen = is_seen || span.sees(query, p);
      if (is_seen || random.below(2) == 0) {  // a cache forgets what can never be seen again
        const Index shift = random.below(3);
        keys.push_back({position, length, base() + position * kKeyBytes, kKeyBytes, shift});
        values.push_back({position, length, base() + position * kValueBytes, kValueBytes, shift});
        std::fill_n(is_stored.begin() + position, length, true);
      }
      position += length;
    }
  }
  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
  static const std::byte* base() {
    static std::byte block[kValueBytes * 1000];
    return block;
  }
  Index shift_of(Index position) const {
    for (const auto& run : keys)
      if (run.position <= position && position < run.position + run.length) return run.rotation_shift;
    return -1;
  }
};

TEST_CASE("visible tiles: exactly the positions that the span sees, once, in order, tile by tile") {
  for (const AttentionSpan span :
       {AttentionSpan{}, AttentionSpan{.window = 1}, AttentionSpan{.window = 10},
        AttentionSpan{.window = 256}, AttentionSpan{.window = 300}, AttentionSpan{.window = 10, .n_sink = 4},
        AttentionSpan{.window = 40, .n_sink = 1}, AttentionSpan{.window = 300, .n_sink = 290},
        AttentionSpan{.chunk = 7}, AttentionSpan{.chunk = 256}, AttentionSpan{.chunk = 300}})
    for (const Index longest : {1, 3, 16, 1000})
      for (const Index query : {0, 1, 3, 9, 255, 256, 257, 299, 300, 511, 512, 600}) {
        CAPTURE(span.window);
        CAPTURE(span.n_sink);
        CAPTURE(span.chunk);
        CAPTURE(longest);
        CAPTURE(query);
        // Rows after the query are there: those of later tokens of the same call.
        const Runs runs(query + 5, static_cast<std::uint64_t>(query + longest), longest, span, query);
        std::vector<Index> seen, expected;
        Index last_tile = -1;
        int n_wrong = 0;
        const auto rotation_of = [](bool is_sink, Index shift) { return (is_sink ? 100 : 0) + shift; };
        const kvdecode::detail::VisibleTiles tiles(span, query);
        Index n_tiles = 0;
        const auto visit = [&](kvdecode::Range some) {
          kvdecode::detail::for_each_visible_tile(
              runs.keys, runs.values, span, query, tiles.positions(some), query % 2 == 0, rotation_of,
              [&](std::span<const AttentionPiece> pieces) {
                n_wrong += tiles.number_of(pieces.front().position) != n_tiles++;
                n_wrong += pieces.empty();
                const Index tile = pieces.front().position / 256;
                n_wrong += tile <= last_tile;
                last_tile = tile;
                for (const AttentionPiece& piece : pieces) {
                  n_wrong += piece.length < 1 || piece.position / 256 != tile ||
                             (piece.position + piece.length - 1) / 256 != tile;
                  n_wrong += piece.keys != Runs::base() + piece.position * kKeyBytes ||
                             piece.key_stride != kKeyBytes;
                  n_wrong += piece.values != Runs::base() + piece.position * kValueBytes ||
                             piece.value_stride != kValueBytes;
                  for (Index p = piece.position; p < piece.position + piece.length; ++p) {
                    n_wrong += piece.rotation != rotation_of(p < span.n_sink, runs.shift_of(p));
                    seen.push_back(p);
                  }
                }
              });
        };
        for (Index p = 0; p < query + 5; ++p)
          if (span.sees(query, p)) expected.push_back(p);
        // All tiles at once, or cut in two anywhere.
        for (Index cut = 0; cut <= tiles.size(); ++cut) {
          seen.clear();
          n_tiles = 0;
          last_tile = -1;
          visit({0, cut});
          CHECK(n_tiles == cut);
          visit({cut, tiles.size()});
          CHECK(n_tiles == tiles.size());
          CHECK(n_wrong == 0);
          CHECK(seen == expected);
        }
      }
}

}  // namespace

// SPDX-License-Identifier: MIT
// 3. The idea: of all that the naive loop computes again, what comes out the same every time?
//
//   x_i  the text's i-th token
//   h_i  what a layer is given for token i         [d_model]
//   K_i = W_k h_i,  V_i = W_v h_i                  [n_kv_heads * head_dim]       Vaswani 2017, section 3.2.2
//   token i sees tokens j <= i only, so h_i, and with it K_i and V_i, depend on x_1 … x_i alone.
//
// If that is so, then a token's keys and values are the same bytes in every later step. Here they are compared.
//
// Run: build/examples/03_what_never_changes
#include <kvdecode/kvdecode.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

using kvdecode::Index;
using kvdecode::TokenId;

namespace {

/// The bytes of the keys and values of one token in one layer, all heads.
using Row = std::vector<std::byte>;
using Cache = kvdecode::ContiguousCache<>;

Row row_of(const Cache& cache, Index layer, Index position) {
  Row row;
  const auto add = [&](const auto& runs, Index dim) {
    for (const auto& run : runs) {
      if (position < run.position || position >= run.position + run.length) continue;
      const std::byte* first = run.data + (position - run.position) * run.row_stride;
      row.insert(row.end(), first, first + Cache::KeyFormat::row_bytes(dim));
    }
  };
  for (Index head = 0; head < cache.shape()[layer].n_kv_heads; ++head) {
    add(cache.keys(layer, head), cache.shape()[layer].k_dim);
    add(cache.values(layer, head), cache.shape()[layer].v_dim);
  }
  return row;
}

}  // namespace

int main() {
  bool all_true = true;
  const auto claim = [&](bool is_true, const char* sentence) {
    std::printf("  %-7s %s\n", is_true ? "[true]" : "[FALSE]", sentence);
    all_true = all_true && is_true;
  };

  const kvdecode::ModelConfig config{.n_layers = 3,
                                     .d_model = 32,
                                     .n_heads = 4,
                                     .n_kv_heads = 4,
                                     .head_dim = 8,
                                     .d_ff = 64,
                                     .vocab_size = 100,
                                     .max_seq_len = 64};
  const kvdecode::Transformer<float> model(config, kvdecode::random_weights(config));
  const std::vector<TokenId> tokens{11, 42, 7, 99, 3, 58, 20, 77, 36, 5};
  const auto T = static_cast<Index>(tokens.size());

  // Everything from nothing, as the naive loop does it in every step; returns all keys and values, [layer][position].
  const auto run_all = [&](std::span<const TokenId> sequence) {
    kvdecode::Workspace<float> workspace;
    Cache cache(model.kv_shape(), T);
    model.forward(workspace, {}, kvdecode::Segment<Cache>{&cache, sequence});
    std::vector<std::vector<Row>> rows(static_cast<std::size_t>(config.n_layers));
    for (Index layer = 0; layer < config.n_layers; ++layer)
      for (Index i = 0; i < cache.kv_len(); ++i)
        rows[static_cast<std::size_t>(layer)].push_back(row_of(cache, layer, i));
    return rows;
  };

  std::printf("Keys and values of every step, compared byte for byte with those of the step before\n\n");
  std::printf("  step   rows in all layers   compared      bytes   that differ\n");
  Index n_compared = 0, n_changed = 0;
  // [readme]
  auto before = run_all(std::span(tokens).first(1));
  for (Index t = 2; t <= T; ++t) {
    const auto now = run_all(std::span(tokens).first(static_cast<std::size_t>(t)));
    Index n_rows = 0, n_bytes = 0, n_different = 0;
    for (std::size_t layer = 0; layer < now.size(); ++layer)
      for (std::size_t i = 0; i < before[layer].size(); ++i) {  // the tokens that both steps have
        const Row &old_row = before[layer][i], &new_row = now[layer][i];
        n_rows += 1;
        n_bytes += static_cast<Index>(old_row.size());
        for (std::size_t b = 0; b < old_row.size(); ++b) n_different += old_row[b] != new_row[b];
      }
    std::printf("  %4td %20td %10td %10td %13td\n", t, config.n_layers * t, n_rows, n_bytes, n_different);
    n_compared += n_bytes;
    n_changed += n_different;
    before = now;
  }
  // [readme]

  // The other way round: change one token, and see which rows that changes.
  constexpr std::size_t changed = 4;
  auto others = tokens;
  others[changed] = 64;
  const auto original = run_all(tokens), altered = run_all(others);
  std::printf("\nChange the token at position %zu: which rows become others (x), which stay (=)?\n\n",
              changed);
  std::printf("  position  ");
  for (Index i = 0; i < T; ++i) std::printf("%3td", i);
  std::printf("\n");
  bool as_the_mask_says = true;
  for (std::size_t layer = 0; layer < original.size(); ++layer) {
    std::printf("  layer %zu   ", layer);
    for (std::size_t i = 0; i < original[layer].size(); ++i) {
      const bool is_same = original[layer][i] == altered[layer][i];
      // The first layer sees the token alone; every later one sees it through the attention of those below.
      const bool should_be = layer == 0 ? i != changed : i < changed;
      as_the_mask_says = as_the_mask_says && is_same == should_be;
      std::printf("%3s", is_same ? "=" : "x");
    }
    std::printf("\n");
  }
  std::printf(
      "\nWhat comes later cannot reach back: the mask lets each token see itself and those before it.\n");
  std::printf(
      "So a row of keys and values, once computed, can be kept. That is the whole idea of the cache.\n\n");

  claim(n_compared > 0 && n_changed == 0,
        "no byte of an old token's keys and values changes in any later step");
  claim(as_the_mask_says, "a token changes its own rows and those after it, never those before");
  return all_true ? 0 : 1;
}

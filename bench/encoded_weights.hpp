// SPDX-License-Identifier: MIT
// A model's weights as a file of blocks would have them, made in memory: what fewer bits cost and bring, without such a
// file.
#pragma once

#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/core/view.hpp>
#include <kvdecode/layers/embedding.hpp>
#include <kvdecode/model/weights.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

namespace bench {

using kvdecode::Index;

/// The same weights with matrices in format F, but for learned positions, routers, and matrices whose rows are no whole
/// blocks. O(numbers), once.
/// @throws std::bad_alloc
template <kvdecode::StoresFrom<float> F>
kvdecode::Weights encoded_weights(const kvdecode::Weights& weights) {
  kvdecode::Weights result = weights;
  // Where each matrix went; one that several layers share is stored once.
  std::map<std::tuple<const std::byte*, Index, Index>, const std::byte*> places;
  std::vector<float> row;
  for_each_matrix(result, [&](kvdecode::MatrixView& matrix) {
    const Index n_rows = matrix.stored_rows(), n = matrix.stored_cols(), row_bytes = F::row_bytes(n);
    if (n % F::kBlock != 0) return;
    const std::byte*& place = places[std::tuple(matrix.data, n_rows, n)];
    if (place == nullptr) {
      const auto block = std::make_shared<kvdecode::Block<std::byte>>(n_rows * row_bytes);
      const kvdecode::MatrixView rows{matrix.format, matrix.data, n_rows, n, matrix.stride, false};
      row.resize(static_cast<std::size_t>(n));
      for (Index r = 0; r < n_rows; ++r) {
        kvdecode::decode_row<kvdecode::GgufFormats>(rows, r, row.data());
        F::encode(row.data(), n, block->data() + r * row_bytes);
      }
      place = block->data();
      result.owners.push_back(block);
    }
    matrix = {F::kId, place, matrix.rows, matrix.cols, row_bytes, matrix.transposed};
  });
  result.position_embedding = weights.position_embedding;
  for (std::size_t i = 0; i < result.layers.size(); ++i) result.layers[i].router = weights.layers[i].router;
  return result;
}

}  // namespace bench

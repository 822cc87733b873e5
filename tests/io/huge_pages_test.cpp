// SPDX-License-Identifier: MIT
// io/huge_pages.hpp: copies have the same numbers, elsewhere.
#include <support/compare.hpp>
#include <support/forward.hpp>
#include <support/model.hpp>

#include <kvdecode/io/huge_pages.hpp>
#include <kvdecode/model/transformer.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace {

using kvdecode::FormatId;
using kvdecode::Index;
using kvdecode::MatrixView;
using kvdecode::Weights;
using kvdecode_test::all_logits;
using kvdecode_test::check_same_bits;
using kvdecode_test::flat;
using kvdecode_test::RandomModel;
using kvdecode_test::RandomWeightsOptions;

std::vector<MatrixView> matrices_of(const Weights& weights) {
  std::vector<MatrixView> all;
  kvdecode::for_each_matrix(weights, [&](const MatrixView& matrix) { all.push_back(matrix); });
  return all;
}

TEST_CASE("for_each_matrix: every matrix of every layer and expert, in order") {
  const RandomModel dense("gqa learned"), tied("gqa tied"), experts("gqa experts");
  const auto n_layers = static_cast<std::size_t>(dense.config.n_layers);
  CHECK(matrices_of(dense.weights).size() == 2 + 7 * n_layers + 1);
  CHECK(matrices_of(dense.weights).front().data == dense.weights.token_embedding.data);
  CHECK(matrices_of(dense.weights)[2].data == dense.weights.layers[0].w_q.matrix.data);
  CHECK(matrices_of(dense.weights).back().data == dense.weights.head.matrix.data);
  CHECK(matrices_of(tied.weights).size() == 1 + 7 * n_layers);
  const auto n_experts = static_cast<std::size_t>(experts.config.n_experts);
  CHECK(matrices_of(experts.weights).size() == 1 + (4 + 1 + 3 * n_experts) * n_layers + 1);
  // Two matrices a head beside w_q, w_o, w_q_a and w_kv_a; a router, eight experts and one for every token.
  // The third layer has no matrices of keys and values; each has two for its inputs, which two are made of.
  CHECK(matrices_of(RandomModel("borrowed tied layer_inputs").weights).size() == 1 + 2 + 7 * 3 - 2 + 2 * 3);
  CHECK(matrices_of(RandomModel("mla_q best_groups").weights).size() == 1 + (4 + 2 * 5 + 1 + 3 * 9) * 2 + 1);
}

TEST_CASE("huge pages: every matrix has its rows, at a cache line of memory of its own") {
  for (const RandomWeightsOptions& options :
       {RandomWeightsOptions{.seed = 3},
        RandomWeightsOptions{.seed = 4, .format = FormatId::kF16, .offset = 1, .row_padding = 3},
        RandomWeightsOptions{
            .seed = 5, .format = FormatId::kBF16, .transposed = true, .offset = 1, .row_padding = 2}}) {
    kvdecode::ModelConfig config = kvdecode_test::config_of("gqa experts learned");
    config.d_model = 30;  // no matrix fills its last cache line
    const RandomModel model(config, options);
    const Weights copied = kvdecode::copy_to_huge_pages(model.weights);
    const std::vector<MatrixView> before = matrices_of(model.weights), after = matrices_of(copied);
    REQUIRE(after.size() == before.size());
    for (std::size_t i = 0; i < before.size(); ++i) {
      const MatrixView &a = before[i], &b = after[i];
      CAPTURE(i);
      CHECK(a.data != b.data);
      CHECK(reinterpret_cast<std::uintptr_t>(b.data) % kvdecode::kCacheLine == 0);
      CHECK(b.format == a.format);
      CHECK(b.rows == a.rows);
      CHECK(b.cols == a.cols);
      CHECK(b.transposed == a.transposed);
      const Index row_bytes = a.stored_cols() * (a.format == FormatId::kF32 ? 4 : 2);
      CHECK(b.stride == row_bytes);
      bool is_equal = true;
      for (Index row = 0; row < a.stored_rows(); ++row)
        is_equal = is_equal && std::memcmp(a.data + row * a.stride, b.data + row * b.stride,
                                           static_cast<std::size_t>(row_bytes)) == 0;
      CHECK(is_equal);
    }
  }
}

TEST_CASE("huge pages: a matrix that several layers share is copied once") {
  RandomModel model("gqa");
  model.weights.layers[1].w_up = model.weights.layers[0].w_up;
  const Weights copied = kvdecode::copy_to_huge_pages(model.weights);
  CHECK(copied.layers[1].w_up.matrix.data == copied.layers[0].w_up.matrix.data);
  CHECK(copied.layers[1].w_up.matrix.data != copied.layers[1].w_gate.matrix.data);
}

TEST_CASE("huge pages: the answers have the same bits, after the originals are gone") {
  const std::vector<kvdecode::TokenId> tokens = kvdecode_test::random_tokens(9, 37, 5);
  for (const char* const words : {"gqa tied", "mla_q interleaved"}) {
    CAPTURE(words);
    std::vector<float> expected;
    kvdecode::ModelConfig config;
    Weights copied;
    {
      const RandomModel model(words, {.seed = 6, .offset = 1, .row_padding = 1});
      config = model.config;
      expected = flat(all_logits(kvdecode::Transformer<float>(config, model.weights), tokens));
      copied = kvdecode::copy_to_huge_pages(model.weights);
    }
    check_same_bits(flat(all_logits(kvdecode::Transformer<float>(config, copied), tokens)), expected);
  }
}

TEST_CASE("huge pages: weights without matrices stay as they are") {
  CHECK(kvdecode::copy_to_huge_pages(Weights{}).owners.empty());
}

}  // namespace

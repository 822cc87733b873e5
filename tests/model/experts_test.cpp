// SPDX-License-Identifier: MIT
// Which experts a router chooses where that is a close thing: ties, biases and groups. Logits are held against the
// reference, whose experts are chosen by sorting.
#include <reference/model.hpp>
#include <support/compare.hpp>
#include <support/forward.hpp>
#include <support/model.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string_view>
#include <vector>

namespace {

using namespace kvdecode;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;

/// A model whose layers have router rows and choice biases of the caller's.
struct RoutedModel : RandomModel {
  std::vector<std::vector<float>> numbers;

  explicit RoutedModel(std::string_view words) : RandomModel(words, {.seed = 4}) {}

  /// row_of(e, c) is element c of the router's row for expert e.
  template <class RowOf>
  void set_router(const RowOf& row_of) {
    std::vector<float>& router = numbers.emplace_back();
    for (Index e = 0; e < config.n_experts; ++e)
      for (Index c = 0; c < config.d_model; ++c) router.push_back(row_of(e, c));
    for (LayerWeights& layer : weights.layers) {
      if (layer.router.matrix.empty()) continue;
      layer.router.matrix.data = reinterpret_cast<const std::byte*>(router.data());
      layer.router.matrix.stride = 4 * config.d_model;
    }
  }
  void set_bias(const std::vector<float>& bias) {
    const std::vector<float>& kept = numbers.emplace_back(bias);
    for (LayerWeights& layer : weights.layers)
      if (!layer.router.matrix.empty())
        layer.choice_bias = {FormatId::kF32, reinterpret_cast<const std::byte*>(kept.data()),
                             config.n_experts};
  }

  template <class S>
  void check() const {
    const auto tokens = random_tokens(9, config.vocab_size, 3);
    const auto expected = kvdecode_reference::logits(config, weights, tokens);
    kvdecode_test::check_close(kvdecode_test::all_logits<S>(Transformer<S>(config, weights), tokens),
                               expected, kvdecode_test::tolerance<S>(92, kvdecode_test::magnitude(expected)));
  }
};

TEST_CASE_TEMPLATE("experts: ties go to the lower number, of groups and of experts", S, float, double) {
  for (const std::string_view words : {"experts", "raw_experts", "best_groups", "balanced_experts"}) {
    CAPTURE(words);
    RoutedModel model(words);
    model.set_router([](Index, Index) { return 0.0f; });
    model.template check<S>();
    // The upper half is better, and all alike.
    model.set_router(
        [&](Index e, Index c) { return c == 3 && 2 * e >= model.config.n_experts ? 0.5f : 0.0f; });
    model.template check<S>();
    if (!words.starts_with("balanced")) continue;
    model.set_bias({0, 0, 0.25f, 0.25f, 0, 0, 0.25f, 0.25f});  // groups 1 and 3 of four
    model.set_router([](Index, Index) { return 0.0f; });
    model.template check<S>();
  }
}

TEST_CASE_TEMPLATE("experts: the choice goes by biased scores, be they negative, the weights by plain ones",
                   S, float, double) {
  RoutedModel model("balanced_experts");
  for (const float all : {0.0f, -2.0f, 3.0f}) {
    CAPTURE(all);
    model.set_bias({all, all, all, all, all, all, all, all});
    model.template check<S>();
  }
  model.set_bias({-3, -3.5f, -2, -5, 0.5f, -9, 0.25f, -2});
  model.template check<S>();
  // A group of one good expert against one of two that are fair: the best sum of two counts here, the best there.
  model.set_router([](Index e, Index c) { return c == 5 ? (e == 0 ? 1.5f : e >= 4 ? 1.0f : -1.0f) : 0.0f; });
  model.set_bias({0.4f, -0.4f, 0, 0, 0, 0, 0, 0});
  model.template check<S>();
  RoutedModel by_best("best_groups");
  by_best.set_router([](Index e, Index c) {
    return c == 5 ? (e == 0 ? 1.5f : e >= 4 ? 1.0f : -1.0f) : 0.0f;
  });
  by_best.template check<S>();
}

TEST_CASE_TEMPLATE("experts: the best two of a larger group, wherever they stand in it", S, float, double) {
  RoutedModel model("balanced_experts");
  model.config.n_expert_groups = 2;
  model.config.n_expert_groups_used = 1;
  // By the biases: 0.5 + 0.4 of one group against 0.6 + 0.2 of the other.
  const std::vector<std::vector<float>> orders{{0.1f, 0.4f, 0.5f, 0, 0.6f, 0.2f, 0, 0.1f},
                                               {0.5f, 0.4f, 0, 0.1f, 0.2f, 0, 0.1f, 0.6f},
                                               {0.4f, 0, 0.1f, 0.5f, 0, 0.6f, 0.1f, 0.2f},
                                               {0.6f, 0.1f, 0.2f, 0, 0, 0.1f, 0.4f, 0.5f}};
  model.set_router([](Index, Index) { return 0.0f; });
  for (const std::vector<float>& bias : orders) {
    CAPTURE(bias[0]);
    model.set_bias(bias);
    model.template check<S>();
  }
}

}  // namespace

// SPDX-License-Identifier: MIT
// 10. What does a cache have to do, and how do you know that one of your own does it?
//
//   k_t  a key of position t, layer and KV head    [k_dim]          v_t  its value    [v_dim]
//
//   after append and commit   keys(layer, kv_head) = [k_0 … k_{t-1}, k_t],  values(layer, kv_head) likewise
//   after truncate(n)         [k_0 … k_{n-1}]; a fork() has the same, and goes its own way: the concept KvCache,
//                             <kvdecode/cache/concepts.hpp>
//   Whatever it does inside, the answer must not change by a bit. That is what the laws try: tests/laws/laws.hpp, a
//   header without a test framework. Compile with -I tests to have it.
//
// The cache written here keeps a token's keys and values together, in a list of tokens: not how attention likes to read
// them, but simple. After it, the same one with a fault, to see what the laws say.
//
// Run: build/examples/10_your_own_cache
#include <laws/laws.hpp>

#include <kvdecode/kvdecode.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using kvdecode::F32;
using kvdecode::Index;
using kvdecode::KvRun;
using kvdecode::KvShape;
using kvdecode::RowsView;
using kvdecode::TokenId;

/// All keys and values of a token side by side, token after token: [position][layer][key or value][kv_head][dim].
/// @tparam has_fault  truncate() forgets to forget
template <bool has_fault = false>
class TokenListCache {
 public:
  using KeyFormat = F32;
  using ValueFormat = F32;
  struct Options {};

  TokenListCache(KvShape shape, Index capacity, Options = {})
      : shape_(std::move(shape)), capacity_(capacity), ledger_(shape_) {
    for (const kvdecode::LayerKvShape& layer : shape_.layers) {
      offsets_.push_back(token_size_);
      token_size_ += layer.n_kv_heads * (layer.k_dim + layer.v_dim);
    }
  }
  TokenListCache(TokenListCache&&) noexcept = default;  // a copy would be a fork(): it has that name
  TokenListCache& operator=(TokenListCache&&) noexcept = default;

  // [readme]
  // A step: reserve may fail, the rest may not.
  void reserve(Index n) {
    ledger_.require_room(n, capacity_);
    numbers_.resize(static_cast<std::size_t>((kv_len() + n) * token_size_));
    ledger_.reserve(n);
  }
  template <class S>
  void append(Index layer, RowsView<const S> k, RowsView<const S> v) noexcept {
    for (Index i = 0; i < k.rows; ++i) {
      float* token = numbers_.data() + (ledger_.length(layer) + i) * token_size_;
      for (Index c = 0; c < k.cols; ++c) token[keys_at(layer, 0) + c] = static_cast<float>(k.row(i)[c]);
      for (Index c = 0; c < v.cols; ++c) token[values_at(layer, 0) + c] = static_cast<float>(v.row(i)[c]);
    }
    ledger_.append(layer, k.rows);
  }
  void commit() noexcept { ledger_.commit(); }
  void abandon() noexcept { ledger_.abandon(); }

  // What attention reads: here one run of rows, each a token away from the next.
  std::array<KvRun<F32>, 1> keys(Index layer, Index head) const noexcept {
    return run(layer, keys_at(layer, head));
  }
  std::array<KvRun<F32>, 1> values(Index layer, Index head) const noexcept {
    return run(layer, values_at(layer, head));
  }
  // [readme]

  // Between steps.
  bool can_truncate(Index n) const noexcept { return n >= 0 && n <= kv_len(); }
  void truncate(Index n) {
    if (!can_truncate(n)) ledger_.fail_truncate(n);
    if (!has_fault) ledger_.truncate(n);
  }
  void clear(Index epoch = 0) noexcept { ledger_.clear(epoch); }
  TokenListCache fork() const {
    TokenListCache copy(shape_, capacity_);
    copy.numbers_ = numbers_;
    copy.ledger_ = ledger_;
    copy.ledger_.abandon();
    return copy;
  }

  const KvShape& shape() const noexcept { return shape_; }
  Index kv_len() const noexcept { return ledger_.kv_len(); }
  Index capacity() const noexcept { return capacity_; }
  Index max_append() const noexcept { return capacity_; }
  Index first_position(Index) const noexcept { return 0; }
  Index epoch() const noexcept { return ledger_.epoch(); }
  Index bytes() const noexcept { return static_cast<Index>(numbers_.size() * sizeof(float)); }
  static Index required_bytes(const KvShape& shape, Index capacity, Options = {}) {
    return capacity * TokenListCache(shape, 1).token_size_ * static_cast<Index>(sizeof(float));
  }

 private:
  Index keys_at(Index layer, Index head) const noexcept {
    return offsets_[static_cast<std::size_t>(layer)] + head * shape_[layer].k_dim;
  }
  Index values_at(Index layer, Index head) const noexcept {
    return keys_at(layer, shape_[layer].n_kv_heads) + head * shape_[layer].v_dim;
  }
  std::array<KvRun<F32>, 1> run(Index layer, Index offset) const noexcept {
    return {{{.position = 0,
              .length = ledger_.length(layer),
              .data = reinterpret_cast<const std::byte*>(numbers_.data() + offset),
              .row_stride = token_size_ * static_cast<Index>(sizeof(float))}}};
  }

  KvShape shape_;
  Index capacity_;
  kvdecode::StepLedger ledger_;  // counts: committed, appended by layer, reserved
  std::vector<float> numbers_;
  std::vector<Index> offsets_;  // [n_layers], numbers from the start of a token
  Index token_size_ = 0;        // numbers
};
static_assert(kvdecode::KvCacheFor<TokenListCache<>, float>);

int main() {
  bool all_true = true;
  const auto claim = [&](bool is_true, const char* sentence) {
    std::printf("  %-7s %s\n", is_true ? "[true]" : "[FALSE]", sentence);
    all_true = all_true && is_true;
  };

  const kvdecode::ModelConfig config{.n_layers = 2,
                                     .d_model = 32,
                                     .n_heads = 4,
                                     .n_kv_heads = 2,
                                     .head_dim = 8,
                                     .d_ff = 64,
                                     .vocab_size = 100,
                                     .max_seq_len = 64};
  const kvdecode::Transformer<float> model(config, kvdecode::random_weights(config));
  std::vector<TokenId> tokens(20);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>((7 * i + 3) % 100);

  // What has to come out: Recompute's logits after 1, 2, …, 20 tokens.
  using namespace kvdecode_laws;
  Answers<float> answers;
  add_answers<F32>(answers, model, tokens, lengths_up_to(20));
  const Setting setting{model, kvdecode::ExecutorRef{}, std::span<const TokenId>(tokens), answers, Index{3}};

  constexpr const char* laws[] = {
      "every position",       "any chunking", "truncate then append", "fork then diverge",
      "capacity and history", "all rows",     "abandoned step",       "company"};
  const auto try_laws = [&]<class Cache>(std::type_identity<Cache>) {
    std::vector<Violation> violations =
        violated_by_strategy(setting, kvdecode::Cached<Cache>{.max_seq_len = 20});
    for (Violation& v : violated_by_cache<Cache>(setting)) violations.push_back(std::move(v));
    for (const std::string law : laws) {
      const auto broken = std::find_if(violations.begin(), violations.end(),
                                       [&](const Violation& v) { return v.law == law; });
      std::printf("  %-22s %s\n", law.c_str(),
                  broken == violations.end() ? "holds" : broken->difference.c_str());
    }
    return violations.size();
  };

  std::printf("A cache of one's own, under the laws of decoding\n\n");
  const std::size_t n_broken = try_laws(std::type_identity<TokenListCache<>>{});
  std::printf("\nThe same cache, whose truncate() forgets to forget\n\n");
  const std::size_t n_broken_by_fault = try_laws(std::type_identity<TokenListCache<true>>{});

  std::printf("\n");
  claim(n_broken == 0, "all eight laws hold for the cache of one's own");
  claim(n_broken_by_fault > 0, "and a fault does not get past them");
  claim(TokenListCache<>::required_bytes(model.kv_shape(), 20) ==
            kvdecode::payload_bytes<F32>(model.kv_shape(), 20),
        "it takes no byte more than keys and values need");
  return all_true ? 0 : 1;
}

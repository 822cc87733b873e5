// SPDX-License-Identifier: MIT
// Every layout in every format, generated: the same random operations on a batch of sequences in all layouts at once,
// which have to give the same logits, byte for byte; and, as long as no shift has edited a sequence, those of its tokens
// in one pass through a new cache. The formats are all that a program can choose by name.
#include <support/model.hpp>
#include <support/random.hpp>

#include <kvdecode/cache/batch.hpp>
#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/sink.hpp>
#include <kvdecode/cache/sliding_window.hpp>
#include <kvdecode/decode/cache_format.hpp>
#include <kvdecode/kvdecode.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace kvdecode;
using kvdecode_test::SplitMix64;

constexpr Index kCapacity = 40;
constexpr std::size_t kMaxSequences = 4;
#if defined(KVDECODE_EXHAUSTIVE)
constexpr std::uint64_t kRounds = 200;
#else
constexpr std::uint64_t kRounds = 2;
#endif

/// Sequences of one model in one layout.
template <class S>
class Batch {
 public:
  virtual ~Batch() = default;

  /// The logits after the last token.
  virtual std::vector<S> append(std::size_t who, std::span<const TokenId> tokens, Index chunk) = 0;
  /// One token for each sequence, all in one call: their logits one after another.
  virtual std::vector<S> append_to_all(std::span<const TokenId> tokens) = 0;
  /// The logits after tokens in one pass through a new cache.
  virtual std::vector<S> in_one_pass(std::span<const TokenId> tokens) const = 0;
  virtual bool can_truncate(std::size_t who, Index new_len) const = 0;
  virtual void truncate(std::size_t who, Index new_len) = 0;
  virtual void shift(std::size_t who, Index first, Index delta) = 0;
  virtual void clear(std::size_t who) = 0;
  /// A step that is given up, and a move into another cache and back.
  virtual void abandon_and_move(std::size_t who) = 0;
  virtual void fork(std::size_t who) = 0;
  virtual void reorder(std::span<const Index> parents) = 0;
  virtual void repeat(Index n) = 0;
  /// Puts forks of all sequences behind them.
  virtual void merge_with_forks() = 0;
  virtual CacheRecord record(std::size_t who) const = 0;
  virtual void restore(std::size_t who, const CacheRecord& record) = 0;
};

template <class S, class Cache>
class BatchOf final : public Batch<S> {
 public:
  BatchOf(const Transformer<S>& transformer, typename Cache::Options options)
      : transformer_(transformer), options_(options) {
    caches_.emplace_back(transformer.kv_shape(), kCapacity, options);
  }

  std::vector<S> append(std::size_t who, std::span<const TokenId> tokens, Index chunk) override {
    std::vector<S> logits;
    for (std::size_t n = 0; !tokens.empty(); tokens = tokens.subspan(n)) {
      n = std::min(tokens.size(), static_cast<std::size_t>(chunk));
      const auto rows = transformer_.forward(workspace_, {}, Segment<Cache>{&caches_[who], tokens.first(n)});
      logits.assign(rows.row(0), rows.row(0) + rows.cols);
    }
    return logits;
  }
  std::vector<S> append_to_all(std::span<const TokenId> tokens) override {
    std::vector<Segment<Cache>> segments;
    for (std::size_t i = 0; i < caches_.size(); ++i) segments.push_back({&caches_[i], tokens.subspan(i, 1)});
    const auto rows = transformer_.forward(workspace_, {}, std::span<const Segment<Cache>>(segments));
    std::vector<S> logits;
    for (Index i = 0; i < rows.rows; ++i) logits.insert(logits.end(), rows.row(i), rows.row(i) + rows.cols);
    return logits;
  }
  std::vector<S> in_one_pass(std::span<const TokenId> tokens) const override {
    Cache cache(transformer_.kv_shape(), kCapacity, options_);
    Workspace<S> workspace;
    const auto rows = transformer_.forward(workspace, {}, Segment<Cache>{&cache, tokens});
    return {rows.row(0), rows.row(0) + rows.cols};
  }
  bool can_truncate(std::size_t who, Index new_len) const override {
    return caches_[who].can_truncate(new_len);
  }
  void truncate(std::size_t who, Index new_len) override { caches_[who].truncate(new_len); }
  void shift(std::size_t who, Index first, Index delta) override { caches_[who].shift(first, delta); }
  void clear(std::size_t who) override { caches_[who].clear(); }
  void abandon_and_move(std::size_t who) override {
    Cache& cache = caches_[who];
    cache.reserve(std::min<Index>(3, kCapacity - cache.kv_len()));
    cache.abandon();
    Cache moved(std::move(cache));
    Cache other(transformer_.kv_shape(), 1, options_);
    other = std::move(moved);
    cache = std::move(other);
  }
  void fork(std::size_t who) override { caches_.push_back(caches_[who].fork()); }
  void reorder(std::span<const Index> parents) override { kvdecode::reorder(caches_, parents); }
  void repeat(Index n) override { kvdecode::repeat(caches_, n); }
  void merge_with_forks() override {
    std::vector<Cache> forks;
    for (const Cache& cache : caches_) forks.push_back(cache.fork());
    merge(caches_, std::move(forks));
  }
  CacheRecord record(std::size_t who) const override { return record_of(caches_[who]); }
  void restore(std::size_t who, const CacheRecord& record) override { caches_[who].restore(record); }

 private:
  Transformer<S> transformer_;
  typename Cache::Options options_;
  Workspace<S> workspace_;
  std::vector<Cache> caches_;
};

template <class S>
using Batches = std::vector<std::unique_ptr<Batch<S>>>;

/// A batch in each layout that holds the model's layers; where sequences are to be shifted, of those that can.
template <class S, class K, class V>
Batches<S> batches_of(const Transformer<S>& transformer, bool with_shifts) {
  Batches<S> batches;
  const auto add = [&]<class Cache>(std::type_identity<Cache>, typename Cache::Options options = {}) {
    batches.push_back(std::make_unique<BatchOf<S, Cache>>(transformer, options));
  };
  add(std::type_identity<ContiguousCache<K, V>>{});
  add(std::type_identity<GrowingCache<K, V>>{}, {.initial_positions = 2});
  add(std::type_identity<PagedCache<5, K, V>>{});
  if (with_shifts) return batches;
  add(std::type_identity<SlidingWindowCache<K, V>>{}, {.slack = 2, .max_append = 3});
  if (SinkCache<K, V>::can_hold(transformer.kv_shape()))
    add(std::type_identity<SinkCache<K, V>>{}, {.slack = 5, .max_append = 2});
  return batches;
}

/// Random operations, the same in all layouts.
template <class S>
class Run {
 public:
  Run(Batches<S> batches, bool with_shifts, Index vocab_size, std::uint64_t seed)
      : batches_(std::move(batches)), with_shifts_(with_shifts), vocab_size_(vocab_size), random_(seed) {
    sequences_.emplace_back();
  }

  /// The first difference, and what was done before; or nothing.
  std::string operator()(Index n_operations) {
    for (Index i = 0; i < n_operations && difference_.empty(); ++i) {
      const auto who = static_cast<std::size_t>(random_.below(static_cast<Index>(sequences_.size())));
      try {
        execute(who);
      } catch (const std::exception& error) {
        fail(std::string("threw: ") + error.what());
      }
    }
    for (std::size_t who = 0; who < sequences_.size() && difference_.empty(); ++who)
      if (length(who) < kCapacity) append(who, 1);
    return difference_;
  }

 private:
  struct Sequence {
    std::vector<TokenId> tokens;
    bool is_shifted = false;
  };

  Index length(std::size_t who) const { return static_cast<Index>(sequences_[who].tokens.size()); }
  void did(const char* what, std::size_t who, Index a = 0, Index b = 0) {
    done_ << what << "(" << who << ", " << a << ", " << b << ") ";
  }
  void fail(const std::string& text) {
    if (difference_.empty()) difference_ = text + ", after " + done_.str();
  }
  void compare(const std::vector<S>& logits, const std::vector<S>& expected, const std::string& where) {
    if (logits.size() != expected.size() ||
        std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(S)) != 0)
      fail("other logits " + where);
  }
  std::vector<TokenId> tokens(Index n) {
    std::vector<TokenId> result;
    for (Index i = 0; i < n; ++i) result.push_back(static_cast<TokenId>(random_.below(vocab_size_)));
    return result;
  }
  void append(std::size_t who, Index n) {
    did("append", who, n);
    const std::vector<TokenId> more = tokens(n);
    Sequence& sequence = sequences_[who];
    sequence.tokens.insert(sequence.tokens.end(), more.begin(), more.end());
    std::vector<S> expected;
    for (std::size_t i = 0; i < batches_.size(); ++i) {
      const std::vector<S> logits = batches_[i]->append(who, more, 1 + (n + static_cast<Index>(i)) % 4);
      if (i == 0)
        expected = logits;
      else
        compare(logits, expected, "in layout " + std::to_string(i));
    }
    if (!sequence.is_shifted) compare(batches_[0]->in_one_pass(sequence.tokens), expected, "in one pass");
  }
  void append_to_all() {
    for (std::size_t who = 0; who < sequences_.size(); ++who)
      if (length(who) == kCapacity) return;
    did("append_to_all", 0);
    const std::vector<TokenId> more = tokens(static_cast<Index>(sequences_.size()));
    for (std::size_t who = 0; who < sequences_.size(); ++who) sequences_[who].tokens.push_back(more[who]);
    const std::vector<S> expected = batches_[0]->append_to_all(more);
    for (std::size_t i = 1; i < batches_.size(); ++i)
      compare(batches_[i]->append_to_all(more), expected, "together in layout " + std::to_string(i));
  }
  void truncate(std::size_t who) {
    const Index back = random_.below(4) == 0 ? random_.below(length(who) + 1) : random_.below(4);
    const Index new_len = std::max<Index>(0, length(who) - back);
    bool can = true;
    for (const auto& batch : batches_) can = can && batch->can_truncate(who, new_len);
    did(can ? "truncate" : "refused truncate", who, new_len);
    for (const auto& batch : batches_) {
      if (can) {
        batch->truncate(who, new_len);
      } else if (!batch->can_truncate(who, new_len)) {
        try {
          batch->truncate(who, new_len);
          fail("a truncate was not refused");
        } catch (const Error&) {
        }
      }
    }
    if (can) sequences_[who].tokens.resize(static_cast<std::size_t>(new_len));
  }
  void shift(std::size_t who) {
    if (!with_shifts_ || length(who) == 0) return;
    const Index first = 1 + random_.below(length(who)), delta = -1 - random_.below(first);
    did("shift", who, first, delta);
    for (const auto& batch : batches_) batch->shift(who, first, delta);
    Sequence& sequence = sequences_[who];
    sequence.tokens.erase(sequence.tokens.begin() + first + delta, sequence.tokens.begin() + first);
    sequence.is_shifted = !sequence.tokens.empty();
  }
  /// Every layout takes what the next one holds, unless that has forgotten too much: then what it holds itself.
  void restore(std::size_t who, std::size_t to) {
    did("restore", who, static_cast<Index>(to));
    std::vector<CacheRecord> records;
    for (const auto& batch : batches_) records.push_back(batch->record(who));
    for (std::size_t i = 0; i < batches_.size(); ++i) {
      const CacheRecord& next = records[(i + 1) % records.size()];
      try {
        batches_[i]->restore(to, next);
      } catch (const Error&) {
        if (std::all_of(next.stores.begin(), next.stores.end(),
                        [](const StoreRecord& store) { return store.first == 0; }))
          fail("a record was refused by layout " + std::to_string(i));
        batches_[i]->restore(to, records[i]);
      }
    }
    sequences_[to] = Sequence(sequences_[who]);
  }
  void execute(std::size_t who) {
    const auto for_all = [&](const auto& f) {
      for (const auto& batch : batches_) f(*batch);
    };
    const std::size_t n = sequences_.size();
    switch (random_.below(16)) {
      case 0:
        did("clear", who);
        for_all([&](Batch<S>& batch) { batch.clear(who); });
        sequences_[who] = Sequence();
        return;
      case 1:
        did("abandon_and_move", who);
        return for_all([&](Batch<S>& batch) { batch.abandon_and_move(who); });
      case 2:
        if (n == kMaxSequences) return;
        did("fork", who);
        for_all([&](Batch<S>& batch) { batch.fork(who); });
        sequences_.push_back(Sequence(sequences_[who]));
        return;
      case 3: {
        std::vector<Index> parents;
        std::vector<Sequence> children;
        for (Index i = random_.below(kMaxSequences); i >= 0; --i) {
          parents.push_back(random_.below(static_cast<Index>(n)));
          children.push_back(sequences_[static_cast<std::size_t>(parents.back())]);
        }
        did("reorder", parents.size(), parents.front(), parents.back());
        for_all([&](Batch<S>& batch) { batch.reorder(parents); });
        sequences_ = std::move(children);
        return;
      }
      case 4:
      case 5: {
        if (2 * n > kMaxSequences) return;
        const bool merges = random_.below(2) == 0;
        did(merges ? "merge" : "repeat", n);
        std::vector<Sequence> all;
        for (std::size_t i = 0; i < 2 * n; ++i) all.push_back(sequences_[merges ? i % n : i / 2]);
        for_all([&](Batch<S>& batch) { merges ? batch.merge_with_forks() : batch.repeat(2); });
        sequences_ = std::move(all);
        return;
      }
      case 6: return restore(who, static_cast<std::size_t>(random_.below(static_cast<Index>(n))));
      case 7:
      case 8: return shift(who);
      case 9:
      case 10: return truncate(who);
      case 11: return append_to_all();
      default: {
        const Index room = kCapacity - length(who);
        if (room > 0) append(who, 1 + random_.below(std::min<Index>(room, 9)));
      }
    }
  }

  Batches<S> batches_;
  bool with_shifts_;
  Index vocab_size_;
  SplitMix64 random_;
  std::vector<Sequence> sequences_;
  std::ostringstream done_;
  std::string difference_;
};

/// Every kind of heads, of rotary dimensions and of spans; heads that a turned format takes, and others.
struct NamedModel {
  std::string_view words;
  Index head_dim;
};
constexpr NamedModel kModels[] = {
    {"mha", 16},
    {"gqa", 32},
    {"mqa partial interleaved", 64},
    {"mha no_positions capped", 40},
    {"gqa sliding", 16},
    {"mqa partial sliding", 32},
    {"gqa sinks", 32},
    {"mha sinks_within partial", 16},
    {"gqa chunk head_norms", 64},
    {"gqa mixed", 16},
    {"mqa mixed_sinks interleaved", 32},
    {"mha mixed yarn", 24},
};

template <class S>
Index try_format(CacheFormat format, const NamedModel& named, std::uint64_t seed) {
  ModelConfig config = kvdecode_test::config_of(named.words);
  config.head_dim = named.head_dim;
  const kvdecode_test::RandomModel model(config, {.seed = seed});
  const Transformer<S> transformer(model.config, model.weights);
  return visit_cache_format<S>(format, [&]<class K, class V>() -> Index {
    for (const LayerKvShape& layer : transformer.kv_shape().layers)
      if (!takes_rows<K, V>(layer)) return 0;
    for (const bool with_shifts : {false, true})
      for (std::uint64_t round = 0; round < kRounds; ++round)
        CHECK(Run<S>(batches_of<S, K, V>(transformer, with_shifts), with_shifts, config.vocab_size,
                     seed + 1000 * round + (with_shifts ? 500u : 0u))(40) == "");
    return 1;
  });
}

TEST_CASE("layouts: whatever is done to sequences, all layouts of a format give the same bytes") {
  Index n_tried = 0;
  std::uint64_t seed = 1;
  for (const CacheFormat format : kCacheFormats)
    for (const NamedModel& named : kModels) {
      CAPTURE(to_string(format));
      CAPTURE(named.words);
      n_tried += try_format<float>(format, named, ++seed);
      if (format == CacheFormat::kNative) n_tried += try_format<double>(format, named, ++seed);
    }
  // All formats with all models but those that turn rows, with heads that can be turned only.
  constexpr Index kFormats = static_cast<Index>(std::size(kCacheFormats)), kTurned = 7;
  CHECK(n_tried == (kFormats + 1) * static_cast<Index>(std::size(kModels)) - 2 * kTurned);
}

}  // namespace

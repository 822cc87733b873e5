// SPDX-License-Identifier: MIT
// Thousands of random sequences of operations on batches of every cache, beside a model that is a plain map from layer
// and position to what was written there; paged caches over a store of prefixes too, beside a list of what it must hold.
// Where they differ, the sequence is shortened as far as it still fails.
#include <support/random.hpp>

#include <kvdecode/cache/batch.hpp>
#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/cross_attention.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/prefix_store.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/sink.hpp>
#include <kvdecode/cache/sliding_window.hpp>
#include <kvdecode/core/error.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace kvdecode;
using kvdecode_test::SplitMix64;

constexpr Index kCapacity = 40;
constexpr std::size_t kMaxSequences = 4;

/// What a position of a layer holds.
struct Written {
  float number = 0.0f;
  Index rotation_shift = 0;
};

/// A sequence as anybody would write it down.
struct Model {
  std::map<Index, std::map<Index, Written>> rows;  // [layer][position]
  std::vector<TokenId> tokens;                     // none is written twice: a token says what is in its rows
  Index kv_len = 0;
  Index epoch = 0;
  bool is_sealed = false;

  /// Positions before the first one that was moved.
  Index unshifted() const {
    Index n = kv_len;
    for (const auto& [layer, written] : rows)
      for (const auto& [position, row] : written)
        if (row.rotation_shift != 0) n = std::min(n, position);
    return n;
  }
};

/// A store of prefixes as anybody would write it down: for each prefix when it was used.
class StoreModel {
 public:
  StoreModel(Index page_size, Index max_pages) : page_size_(page_size), max_pages_(max_pages) {}

  Index match(std::span<const TokenId> tokens) const {
    Index n = 0;
    while (n + page_size_ <= static_cast<Index>(tokens.size()) &&
           used_.contains(prefix(tokens, n + page_size_)))
      n += page_size_;
    return n;
  }
  void use(std::span<const TokenId> tokens, Index n) {
    ++now_;
    for (; n > 0; n -= page_size_) used_[prefix(tokens, n)] = now_;
  }
  /// The positions that it holds then.
  Index insert(std::span<const TokenId> tokens, Index n) {
    n = std::min(n / page_size_, max_pages_) * page_size_;
    use(tokens, n);
    evict(max_pages_);
    return n;
  }
  /// The least recently used ones, of those the longest.
  void evict(Index max_pages) {
    while (size() > max_pages)
      used_.erase(std::min_element(used_.begin(), used_.end(), [](const auto& a, const auto& b) {
        return a.second != b.second ? a.second < b.second : a.first.size() > b.first.size();
      }));
  }
  Index size() const { return static_cast<Index>(used_.size()); }

 private:
  static std::vector<TokenId> prefix(std::span<const TokenId> tokens, Index n) {
    return std::vector<TokenId>(tokens.begin(), tokens.begin() + n);
  }

  Index page_size_;
  Index max_pages_;
  std::map<std::vector<TokenId>, Index> used_;
  Index now_ = 0;
};

enum class Kind {
  kAppend,
  kAbandon,
  kTruncate,
  kFork,
  kReorder,
  kRepeat,
  kShift,
  kClear,
  kMove,
  kRestore,
  kInsert,  ///< into a store of prefixes; this and the next two do nothing without one, but a cache that can be sealed is
  kAdopt,
  kEvict
};

/// One operation; what its numbers mean depends on how many sequences and positions there are when its turn comes, so
/// that any part of a list of operations is one too.
struct Operation {
  Kind kind;
  Index who;
  Index a;
  Index b;
};
std::string to_string(const std::vector<Operation>& operations) {
  const char* const names[] = {"append", "abandon", "truncate", "fork",   "reorder", "repeat", "shift",
                               "clear",  "move",    "restore",  "insert", "adopt",   "evict"};
  std::ostringstream text;
  for (const Operation& o : operations)
    text << names[static_cast<int>(o.kind)] << "(" << o.who << ", " << o.a << ", " << o.b << ") ";
  return text.str();
}

std::vector<Operation> random_operations(SplitMix64& random, Index n) {
  std::vector<Operation> operations;
  for (Index i = 0; i < n; ++i) {
    const Index kind = random.below(20);  // nearly half of them append
    operations.push_back({kind < 8 ? Kind::kAppend : static_cast<Kind>(kind - 7), random.below(1 << 20),
                          random.below(1 << 20), random.below(1 << 20)});
  }
  return operations;
}

/// Runs operations on a batch of caches and on models of them.
template <class Cache>
class Run {
 public:
  using S = float;

  /// @param max_pages  of a store of prefixes over the pool of the options; 0: there is no store
  Run(const KvShape& shape, const typename Cache::Options& options, Index max_pages = 0)
      : shape_(shape), options_(options) {
    caches_.emplace_back(shape_, kCapacity, options_);
    models_.emplace_back();
    if constexpr (kCanShare)
      if (max_pages > 0) {
        store_.emplace(*options.pool, shape, StoreOptions{max_pages * options.pool->page_bytes()});
        store_model_.emplace(Cache::kPageSize, max_pages);
      }
  }

  /// The first difference, or nothing.
  std::string operator()(const std::vector<Operation>& operations) {
    for (const Operation& operation : operations) {
      try {
        execute(operation);
      } catch (const std::exception& error) {
        fail(std::string("threw: ") + error.what());
      }
      for (std::size_t i = 0; i < caches_.size(); ++i) compare(i);
      if (!difference_.empty()) break;
    }
    return difference_;
  }

 private:
  static constexpr bool kCanShare = SharesPages<Cache>;
  // Caches without pages have none, and an int stands in its place.
  template <class C>
  struct StoreOf {
    using type = int;
    using Options = int;
  };
  template <SharesPages C>
  struct StoreOf<C> {
    using type = PrefixStore<C>;
    using Options = typename type::Options;
  };
  using StoreOptions = typename StoreOf<Cache>::Options;

  void fail(const std::string& text) {
    if (difference_.empty()) difference_ = text;
  }
  /// Whether something throws an Error, as it should.
  template <class F>
  void must_refuse(const char* what, const F& f) {
    try {
      f();
      fail(std::string(what) + " was not refused");
    } catch (const Error&) {
    }
  }

  /// Appends some of the rows that are still to come for every layer, n in all, in pieces.
  void append(Cache& cache, Model* model, Index n, Index salt) {
    for (Index layer = 0; layer < shape_.n_layers(); ++layer) {
      if (!shape_.owns_store(layer)) continue;
      const LayerKvShape& dims = shape_[layer];
      for (Index done = 0; done < n;) {
        const Index piece = std::min(n - done, 1 + (salt + layer) % 3), first = cache.kv_len() + done;
        std::vector<float> k, v;
        for (Index i = 0; i < piece; ++i) {
          const float number = next_++;
          for (Index head = 0; head < dims.n_kv_heads; ++head) {
            k.insert(k.end(), static_cast<std::size_t>(dims.k_dim),
                     number + 0.25f * static_cast<float>(head));
            v.insert(v.end(), static_cast<std::size_t>(dims.v_dim),
                     number + 0.25f * static_cast<float>(head) + 0.125f);
          }
          if (model == nullptr) continue;
          model->rows[layer][first + i] = {number, 0};
          if (layer == 0) model->tokens.push_back(next_token_++);
          written_[model->tokens[static_cast<std::size_t>(first + i)]][layer] = number;
        }
        const Index k_cols = dims.n_kv_heads * dims.k_dim, v_cols = dims.n_kv_heads * dims.v_dim;
        cache.append(layer, RowsView<const float>{k.data(), piece, k_cols, k_cols},
                     RowsView<const float>{v.data(), piece, v_cols, v_cols});
        done += piece;
      }
    }
  }

  void execute(const Operation& o) {
    const auto who = static_cast<std::size_t>(o.who) % caches_.size();
    Cache& cache = caches_[who];
    Model& model = models_[who];
    switch (o.kind) {
      case Kind::kAppend: {
        const Index n = o.a % 9;
        if (n > kCapacity - model.kv_len || (model.is_sealed && n > 0)) {
          must_refuse("a reserve beyond the capacity, or of a sealed cache", [&] { cache.reserve(n); });
          return;
        }
        cache.reserve(n);
        for (Index left = n; left > 0;) {
          const Index step = std::min(left, cache.max_append());
          append(cache, &model, step, o.b);
          model.kv_len += step;
          cache.commit();
          left -= step;
        }
        if (o.b % 2 == 0) cache.abandon();
        return;
      }
      case Kind::kAbandon: {
        const Index n =
            model.is_sealed ? 0 : std::min({o.a % 9, kCapacity - model.kv_len, cache.max_append()});
        cache.reserve(n);
        append(cache, nullptr, n, o.b);
        cache.abandon();
        return;
      }
      case Kind::kTruncate: {
        const Index new_len = o.a % (model.kv_len + 2);
        if (!cache.can_truncate(new_len)) {
          const bool may_refuse = model.is_sealed && new_len != model.kv_len;
          if (cache.first_position(0) == 0 && new_len <= model.kv_len && all_stored(cache) && !may_refuse)
            fail("refuses to truncate though all positions are there");
          must_refuse("a truncate", [&] { cache.truncate(new_len); });
          return;
        }
        if (new_len > model.kv_len) return fail("can_truncate beyond the end");
        if (model.is_sealed && new_len != model.kv_len) return fail("can_truncate what was sealed");
        cache.truncate(new_len);
        truncate(model, new_len);
        return;
      }
      case Kind::kFork: {
        if (caches_.size() >= kMaxSequences) return;
        caches_.push_back(cache.fork());
        models_.push_back(Model(models_[who]));
        return;
      }
      case Kind::kReorder: {
        std::vector<Index> parents;
        std::vector<Model> models;
        const Index n = 1 + o.a % static_cast<Index>(kMaxSequences);
        for (Index i = 0; i < n; ++i) {
          parents.push_back((o.b >> (2 * i)) % static_cast<Index>(caches_.size()));
          models.push_back(models_[static_cast<std::size_t>(parents.back())]);
        }
        reorder(caches_, parents);
        models_ = std::move(models);
        return;
      }
      case Kind::kRepeat: {
        if (2 * caches_.size() > kMaxSequences) return;
        repeat(caches_, 2);
        std::vector<Model> models;
        for (const Model& each : models_) models.insert(models.end(), 2, each);
        models_ = std::move(models);
        return;
      }
      case Kind::kShift: {
        const Index first = o.a % (model.kv_len + 1), delta = -(o.b % (first + 2));
        if (!cache.can_shift(first, delta)) {
          must_refuse("a shift", [&] { cache.shift(first, delta); });
          return;
        }
        cache.shift(first, delta);
        for (auto& [layer, rows] : model.rows) {
          std::map<Index, Written> shifted;
          for (const auto& [position, written] : rows) {
            if (position < first + delta) shifted[position] = written;
            if (position >= first)
              shifted[position + delta] = {written.number, written.rotation_shift + delta};
          }
          rows = std::move(shifted);
        }
        model.kv_len += delta;
        model.tokens.erase(model.tokens.begin() + first + delta, model.tokens.begin() + first);
        return;
      }
      case Kind::kClear:
        model.epoch = o.a % 5 == 0 ? 1 : 0;
        cache.clear(model.epoch);
        truncate(model, 0);
        model.is_sealed = false;
        return;
      case Kind::kMove: {
        Cache moved(std::move(cache));
        Cache other(shape_, 1 + o.a % kCapacity, options_);
        other = std::move(moved);
        cache = std::move(other);
        return;
      }
      case Kind::kRestore: {
        const auto target = static_cast<std::size_t>(o.a) % caches_.size();
        const CacheRecord record = record_of(cache);
        if (o.b % 2 == 0) cache.clear();
        Cache& other = caches_[target];
        const Index room = models_[target].is_sealed ? 0 : kCapacity - other.kv_len();
        const Index n = std::min({o.b % 5, room, other.max_append()});
        other.reserve(n);  // the step ends
        append(other, nullptr, n, o.b);
        other.restore(record);
        if (o.b % 2 == 0 && target != who) cache.restore(record);
        if (o.b % 2 == 0) models_[who].is_sealed = false;
        models_[target] = Model(models_[who]);
        models_[target].is_sealed = false;
        return;
      }
      case Kind::kInsert:
      case Kind::kAdopt:
      case Kind::kEvict:
        if constexpr (kCanShare) {
          if (store_) share(o, cache, model);
        } else if constexpr (requires { cache.seal(); }) {
          if (o.kind != Kind::kInsert) return;
          if (model.kv_len == 0) return must_refuse("a seal of nothing", [&] { cache.seal(); });
          cache.seal();
          model.is_sealed = true;
        }
        return;
    }
  }
  void share(const Operation& o, Cache& cache, Model& model) {
    if (o.kind == Kind::kInsert) {
      const Index n = model.epoch == 0 ? store_model_->insert(model.tokens, model.unshifted()) : 0;
      if (const Index got = store_->insert(model.tokens, cache); got != n)
        fail("insert gave " + std::to_string(got) + ", not " + std::to_string(n));
      ended_.push_back(model.tokens);
    } else if (o.kind == Kind::kEvict) {
      const Index n = o.a % (store_model_->size() + 1);
      store_->trim(n * store_->pool().page_bytes() + o.b % store_->pool().page_bytes());
      store_model_->evict(n);
    } else if (!ended_.empty()) {
      // A sequence that was there, perhaps cut, perhaps continued; the cache has its beginning or nothing.
      std::vector<TokenId> tokens = ended_[static_cast<std::size_t>(o.a) % ended_.size()];
      tokens.resize(tokens.size() - static_cast<std::size_t>(o.b) % (1 + tokens.size() / 2));
      for (Index i = o.b % 3; i > 0; --i) tokens.push_back(-1);
      if (const auto n = static_cast<std::size_t>(model.kv_len);
          n > tokens.size() || !std::equal(model.tokens.begin(), model.tokens.end(), tokens.begin())) {
        cache.clear(model.epoch);
        truncate(model, 0);
      }
      const Index most = std::min(static_cast<Index>(tokens.size()) - 1, kCapacity);
      Index n = std::min(store_model_->match(tokens), most / Cache::kPageSize * Cache::kPageSize);
      if (most < 0 || model.epoch != 0 || model.unshifted() < model.kv_len) n = 0;
      const Index gain = std::max<Index>(0, n - model.kv_len);
      if (const Index got = store_->adopt(tokens, cache); got != gain)
        fail("adopt gave " + std::to_string(got) + ", not " + std::to_string(gain));
      if (gain == 0) return;
      store_model_->use(tokens, n);
      model.tokens.assign(tokens.begin(), tokens.begin() + n);
      model.kv_len = n;
      for (Index position = 0; position < n; ++position)
        for (const auto& [layer, number] : written_[tokens[static_cast<std::size_t>(position)]])
          model.rows[layer][position] = {number, 0};
    }
    if (store_->bytes() != store_model_->size() * store_->pool().page_bytes())
      fail("the store holds " + std::to_string(store_->bytes()) + " bytes");
    for (const std::vector<TokenId>& tokens : ended_)
      if (store_->match(tokens) != store_model_->match(tokens)) fail("the store holds other prefixes");
  }
  static void truncate(Model& model, Index new_len) {
    model.tokens.resize(static_cast<std::size_t>(new_len));
    for (auto& [layer, rows] : model.rows) rows.erase(rows.lower_bound(new_len), rows.end());
    model.kv_len = new_len;
  }
  bool all_stored(const Cache& cache) const {
    for (Index layer = 0; layer < shape_.n_layers(); ++layer)
      if (cache.first_position(layer) != 0) return false;
    return true;
  }

  /// Every position that the next query sees is there, and all that is there is what was written.
  void compare(std::size_t i) {
    const Cache& cache = caches_[i];
    const Model& model = models_[i];
    std::ostringstream at;
    at << "sequence " << i << " of " << caches_.size() << ", kv_len " << model.kv_len << ": ";
    if (cache.kv_len() != model.kv_len) return fail(at.str() + "kv_len " + std::to_string(cache.kv_len()));
    if (cache.epoch() != model.epoch) return fail(at.str() + "epoch " + std::to_string(cache.epoch()));
    for (Index layer = 0; layer < shape_.n_layers(); ++layer)
      for (Index head = 0; head < shape_[layer].n_kv_heads; ++head) {
        std::map<Index, Written> k, v;
        Index end = 0;
        for (const auto& run : cache.keys(layer, head)) {
          if (run.position < end || run.length < 1) return fail(at.str() + "runs out of order");
          end = run.position + run.length;
          for (Index j = 0; j < run.length; ++j)
            k[run.position + j] = {F32::decode<float>(run.data + j * run.row_stride, shape_[layer].k_dim - 1),
                                   run.rotation_shift};
        }
        for (const auto& run : cache.values(layer, head))
          for (Index j = 0; j < run.length; ++j)
            v[run.position + j] = {F32::decode<float>(run.data + j * run.row_stride, 0), run.rotation_shift};
        const auto found = model.rows.find(shape_[layer].store);
        const std::map<Index, Written> none;
        const std::map<Index, Written>& rows = found == model.rows.end() ? none : found->second;
        for (Index p = 0; p < model.kv_len; ++p) {
          at.str("");
          at << "sequence " << i << ", kv_len " << model.kv_len << ", layer " << layer << ", position " << p
             << ": ";
          const bool must_be_there =
              shape_[layer].span.sees(model.kv_len, p) || p >= cache.first_position(layer);
          if (k.contains(p) != v.contains(p)) return fail(at.str() + "keys and values of other positions");
          if (!k.contains(p)) {
            if (must_be_there) return fail(at.str() + "is missing");
            continue;
          }
          const Written& written = rows.at(p);
          const float number = written.number + 0.25f * static_cast<float>(head);
          if (k[p].number != number || v[p].number != number + 0.125f)
            return fail(at.str() + "has other numbers");
          if (k[p].rotation_shift != written.rotation_shift)
            return fail(at.str() + "has another rotation shift");
        }
        if (end > model.kv_len) return fail(at.str() + "positions beyond kv_len");
      }
  }

  KvShape shape_;
  typename Cache::Options options_;
  std::vector<Cache> caches_;
  std::vector<Model> models_;
  float next_ = 1.0f;
  TokenId next_token_ = 0;
  std::map<TokenId, std::map<Index, float>> written_;  // [token][layer]
  std::optional<typename StoreOf<Cache>::type> store_;
  std::optional<StoreModel> store_model_;
  std::vector<std::vector<TokenId>> ended_;  // sequences that were in the store once
  std::string difference_;
};

/// Leaves out operations, many and then few at a time, until none can be spared.
template <class Fails>
std::vector<Operation> shrunk(std::vector<Operation> operations, const Fails& fails) {
  for (std::size_t size = operations.size() / 2, before = 0; size > 0;) {
    before = operations.size();
    for (std::size_t begin = 0; begin + size <= operations.size();) {
      std::vector<Operation> fewer = operations;
      fewer.erase(fewer.begin() + static_cast<Index>(begin),
                  fewer.begin() + static_cast<Index>(begin + size));
      if (fails(fewer))
        operations = std::move(fewer);
      else
        begin += size;
    }
    if (size > 1 || operations.size() == before) size /= 2;
  }
  return operations;
}

const KvShape kMixed{{{2, 3, 2, {}, 0},
                      {1, 2, 2, {.window = 5}, 1},
                      {1, 1, 3, {.window = 4, .n_sink = 3}, 2},
                      {2, 3, 2, {}, 0},
                      {1, 2, 1, {.chunk = 6}, 4}}};
const KvShape kBounded{{{1, 2, 2, {.window = 5}, 0}, {1, 1, 3, {.window = 1, .n_sink = 3}, 1}}};

/// Random sequences of operations for one cache; a difference is reported by the shortest list found. `after` is
/// called when all caches of a sequence are gone, and their store of max_pages.
template <class Cache, class After>
void check_random_sequences(const KvShape& shape, const typename Cache::Options& options, std::uint64_t seed,
                            Index n, const After& after, Index max_pages = 0) {
  const auto difference = [&](const std::vector<Operation>& operations) {
    return Run<Cache>(shape, options, max_pages)(operations);
  };
  SplitMix64 random(seed);
  for (Index i = 0; i < n; ++i) {
    const std::vector<Operation> operations = random_operations(random, 40);
    const std::string found = difference(operations);
    after();
    CHECK(found.empty());
    if (found.empty()) continue;
    const std::vector<Operation> few =
        shrunk(operations, [&](const std::vector<Operation>& fewer) { return !difference(fewer).empty(); });
    FAIL("sequence " << i << ", in " << few.size() << " operations: " << to_string(few) << "\n"
                     << difference(few));
  }
}
template <class Cache>
void check_random_sequences(const KvShape& shape, const typename Cache::Options& options, std::uint64_t seed,
                            Index n) {
  check_random_sequences<Cache>(shape, options, seed, n, [] {});
}

TEST_CASE("random operations: contiguous and growing caches do as their models") {
  check_random_sequences<ContiguousCache<>>(kMixed, {}, 1, 200);
  check_random_sequences<GrowingCache<>>(kMixed, {.initial_positions = 1}, 2, 200);
}

TEST_CASE_TEMPLATE("random operations: paged caches do as their models, and all pages come back", Cache,
                   PagedCache<1>, PagedCache<3>, PagedCache<16>) {
  check_random_sequences<Cache>(kMixed, {}, 3, 150);
  PagePool pool(Cache::page_bytes(kMixed));
  const auto all_are_back = [&] { CHECK(pool.pages_in_use() == 0); };
  check_random_sequences<Cache>(kMixed, {.pool = &pool}, 4, 150, all_are_back);
  for (const Index max_pages : {1, 7, 100}) {
    CAPTURE(max_pages);
    check_random_sequences<Cache>(kMixed, {.pool = &pool}, 8, 150, all_are_back, max_pages);
  }
}

TEST_CASE("random operations: the fixed cache of cross-attention does as its models, sealed or not") {
  check_random_sequences<CrossAttentionCache<>>(kMixed, {}, 9, 300);
}

TEST_CASE("random operations: rings do as their models, as far as a query sees") {
  for (const Index slack : {0, 2})
    for (const Index max_append : {1, 4, 100}) {
      CAPTURE(slack);
      CAPTURE(max_append);
      check_random_sequences<SlidingWindowCache<>>(kMixed, {.slack = slack, .max_append = max_append}, 5,
                                                   150);
      check_random_sequences<SinkCache<>>(kBounded, {.slack = slack, .max_append = max_append}, 6, 75);
    }
}

/// Forgets all when a shift leaves seven positions.
class Faulty : public ContiguousCache<> {
 public:
  using ContiguousCache::ContiguousCache;
  Faulty fork() const { return Faulty(ContiguousCache::fork()); }
  void shift(Index first, Index delta) {
    ContiguousCache::shift(first, delta);
    if (kv_len() == 7) clear();
  }

 private:
  explicit Faulty(ContiguousCache&& base) : ContiguousCache(std::move(base)) {}
};

TEST_CASE("random operations: a rare fault is found, and by a short list of operations") {
  SplitMix64 random(12);
  const auto fails = [](const std::vector<Operation>& operations) {
    return !Run<Faulty>(kMixed, {})(operations).empty();
  };
  for (Index i = 0; i < 2000; ++i) {
    const std::vector<Operation> operations = random_operations(random, 40);
    if (!fails(operations)) continue;
    const std::vector<Operation> few = shrunk(operations, fails);
    CHECK(fails(few));
    CHECK_MESSAGE(few.size() <= 4, to_string(few));  // some tokens, one shift
    return;
  }
  FAIL("2000 sequences did not find it");
}

}  // namespace

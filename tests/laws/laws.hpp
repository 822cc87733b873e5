// SPDX-License-Identifier: MIT
// <laws/laws.hpp> - the laws of decoding, each written once: the cache changes the cost of an answer and
// never the answer. For any strategy, cache and executor, also your own:
//
//   Answers<float> answers;
//   add_answers<F32>(answers, transformer, tokens, lengths_up_to(tokens.size()));
//   const Setting setting{transformer, my_executor, tokens, answers};
//   for (const Violation& v : violated_by_strategy(setting, Cached<MyCache>{.max_seq_len = 64})) …
//   for (const Violation& v : violated_by_cache<MyCache>(setting, {{}})) …
//
// A law returns an empty text if it holds, else the first difference. All compare bytes, none a tolerance.
#pragma once

#include <laws/answers.hpp>

#include <kvdecode/cache/record.hpp>
#include <kvdecode/core/simd/fp_env.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <span>
#include <string>
#include <vector>

namespace kvdecode_laws {

using kvdecode::Rows;

/// Where a law is tried.
template <class T>
struct Setting {
  using scalar = typename T::scalar;

  const T& transformer;
  ExecutorRef exec;
  std::span<const TokenId> tokens;  // one at least
  const Answers<scalar>& answers;   // for beginnings of the tokens; only these lengths are compared
  Index chunk = 3;                  // tokens a call, where a law cuts

  Index n_tokens() const { return static_cast<Index>(tokens.size()); }
  /// Tokens that come in one call before a law starts to cut: none, unless a sequence is long and its answers
  /// are known in places only.
  Index n_before_cuts() const {
    const bool is_thorough = static_cast<Index>(answers.rows().size()) >= n_tokens();
    return is_thorough || n_tokens() <= 64 ? 0 : n_tokens() - 16;
  }
  Index vocab_size() const { return transformer.config().vocab_size; }
  std::span<const TokenId> slice(Index begin, Index end) const {
    return tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  }
};
template <class T>
Setting(const T&, ExecutorRef, std::span<const TokenId>, const Answers<typename T::scalar>&, Index)
    -> Setting<T>;

/// Places where sequences are cut: ends, the middle, and around multiples of 16 and 256, where sums change
/// lanes and attention changes tiles.
inline std::vector<Index> edges(Index n_tokens) {
  std::vector<Index> cuts;
  for (const Index cut : {Index{0}, Index{1}, Index{15}, Index{16}, Index{17}, Index{255}, Index{256},
                          Index{257}, n_tokens / 2, n_tokens - 1, n_tokens})
    if (cut >= 0 && cut <= n_tokens) cuts.push_back(cut);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

/// As many tokens, none of them the same. @param variant  in [1, vocab_size)
inline std::vector<TokenId> other_tokens(std::span<const TokenId> tokens, Index vocab_size, Index variant) {
  std::vector<TokenId> others;
  for (const TokenId token : tokens) others.push_back(static_cast<TokenId>((token + variant) % vocab_size));
  return others;
}

// ---- Laws of a strategy: what a Decoder gives is a function of its tokens ---------------------------------

/// Decoding token by token gives the answer at every position that has one.
template <class T, class Strategy>
std::string every_position(const Setting<T>& setting, const Strategy& strategy) {
  kvdecode::Decoder decoder(setting.transformer, strategy, setting.exec);
  Comparison compare(setting.answers);
  Index begin = 0;
  for (Index end = 1; end <= setting.n_tokens() && !compare.failed(); ++end) {
    if (setting.answers.find(end) == nullptr) continue;
    compare(end, decoder.append(setting.slice(begin, end)), "token by token");
    begin = end;
  }
  return compare.text();
}

/// It does not matter in how many calls of how many tokens a sequence comes.
template <class T, class Strategy>
std::string any_chunking(const Setting<T>& setting, const Strategy& strategy) {
  kvdecode::Decoder decoder(setting.transformer, strategy, setting.exec);
  Comparison compare(setting.answers);
  const Index n = setting.n_tokens();
  compare(n, decoder.append(setting.tokens), "all at once");
  const auto cut = [&](Index first_size, Index growth, const char* how) {
    decoder.clear();
    const Index before = setting.n_before_cuts();
    if (before > 0) decoder.append(setting.slice(0, before));
    for (Index begin = before, size = first_size; begin < n; size += growth) {
      const Index end = std::min(n, begin + size);
      compare(end, decoder.append(setting.slice(begin, end)), how);
      begin = end;
    }
  };
  cut(setting.chunk, 0, "in equal chunks");
  cut(1, 1, "in growing chunks");
  return compare.text();
}

/// A sequence that is cut and goes on otherwise is a fresh one.
template <class T, class Strategy>
std::string truncate_then_append(const Setting<T>& setting, const Strategy& strategy) {
  kvdecode::Decoder decoder(setting.transformer, strategy, setting.exec);
  Comparison compare(setting.answers);
  const Index n = setting.n_tokens();
  const std::vector<TokenId> others = other_tokens(setting.tokens, setting.vocab_size(), 1);
  decoder.append(others);
  for (const Index cut : edges(n)) {
    if (cut > 0 && cut < setting.n_before_cuts()) continue;
    decoder.truncate(cut);  // behind it: what the last round has left
    if (cut > 0) compare(cut, decoder.logits(), "truncated");
    if (cut < n) compare(n, decoder.append(setting.slice(cut, n)), "truncated and continued");
    const Index n_others = std::min<Index>(n - cut, 3);
    decoder.truncate(cut);
    if (n_others > 0) decoder.append(std::span(others).first(static_cast<std::size_t>(n_others)));
    decoder.truncate(cut);
    if (cut < n) compare(n, decoder.append(setting.slice(cut, n)), "after other tokens were forgotten");
  }
  return compare.text();
}

/// A fork and its original are two fresh sequences, whatever happens to the other one.
template <class T, class Strategy>
std::string fork_then_diverge(const Setting<T>& setting, const Strategy& strategy) {
  Comparison compare(setting.answers);
  const Index n = setting.n_tokens();
  const std::vector<TokenId> others = other_tokens(setting.tokens, setting.vocab_size(), 2);
  const auto rest = [](std::span<const TokenId> tokens, Index begin) {
    return tokens.subspan(static_cast<std::size_t>(begin));
  };
  for (const Index cut : {n / 2, n - 1}) {
    if (cut < setting.n_before_cuts()) continue;
    kvdecode::Decoder original(setting.transformer, strategy, setting.exec);
    if (cut > 0) original.append(setting.slice(0, cut));
    kvdecode::Decoder fresh(setting.transformer, strategy, setting.exec);
    if (cut > 0) fresh.append(setting.slice(0, cut));
    Answers<typename T::scalar> elsewhere;
    elsewhere.add(n, fresh.append(rest(others, cut)));
    Comparison compare_elsewhere(elsewhere);

    auto fork = original.fork();
    auto second = fork.fork();
    compare_elsewhere(n, fork.append(rest(others, cut)), "the fork");
    if (cut > 0) compare(cut, original.logits(), "the original after its fork went elsewhere");
    compare(n, original.append(rest(setting.tokens, cut)), "the original");
    compare(n, second.append(rest(setting.tokens, cut)), "the fork of a fork");
    fork.truncate(cut);
    original.truncate(cut);
    compare(n, fork.append(rest(setting.tokens, cut)), "the fork come back");
    compare_elsewhere(n, original.append(rest(others, cut)), "the original on the fork's way");
    compare.fail(compare_elsewhere.text());
  }
  return compare.text();
}

// ---- Laws of a cache: what forward gives is a function of the tokens, whatever holds their keys and values -

namespace detail {

template <class T, class Cache>
class Runner {
 public:
  using S = typename T::scalar;

  Runner(const Setting<T>& setting, Cache& cache) : setting_(setting), cache_(cache) {}

  std::span<const S> append(std::span<const TokenId> tokens) {
    const auto rows =
        setting_.transformer.forward(workspace_, setting_.exec, kvdecode::Segment<Cache>{&cache_, tokens});
    return {rows.row(0), static_cast<std::size_t>(rows.cols)};
  }
  /// The rest of the setting's tokens, chunk by chunk.
  void finish(Comparison<S>& compare, const char* how) {
    for (Index begin = cache_.kv_len(); begin < setting_.n_tokens(); begin = cache_.kv_len()) {
      const Index end =
          std::min(setting_.n_tokens(), std::max(begin, setting_.n_before_cuts()) + setting_.chunk);
      compare(end, append(setting_.slice(begin, end)), how);
    }
  }

 private:
  const Setting<T>& setting_;
  Cache& cache_;
  kvdecode::Workspace<S> workspace_;
};

}  // namespace detail

/// How much room a cache has, how it got it, and what it held before, cannot be seen.
template <class Cache, class T>
std::string capacity_and_history(const Setting<T>& setting, const typename Cache::Options& options) {
  Comparison compare(setting.answers);
  const Index n = setting.n_tokens();
  const kvdecode::KvShape& shape = setting.transformer.kv_shape();
  const std::vector<TokenId> others = other_tokens(setting.tokens, setting.vocab_size(), 3);
  for (const Index capacity : {n, 3 * n + 7}) {
    if (capacity > n && setting.n_before_cuts() > 0) continue;
    Cache cache(shape, capacity, options);
    detail::Runner run(setting, cache);
    run.append(setting.slice(0, 1));
    run.finish(compare, "in a new cache");
    cache.clear();
    run.append(others);
    cache.clear();
    run.finish(compare, "in a cache used before");
    cache.clear();
    run.append(setting.slice(0, (n + 1) / 2));
    if constexpr (requires { cache.reserve_capacity(n); }) cache.reserve_capacity(capacity);
    Cache moved(std::move(cache));
    if constexpr (kvdecode::RestorableCache<Cache>) {
      Cache other(shape, capacity, options);
      detail::Runner run_other(setting, other);
      run_other.append(std::span(others).first(1));
      other.restore(kvdecode::record_of(moved));
      run_other.finish(compare, "in a cache that took what another one held halfway");
    }
    detail::Runner run_moved(setting, moved);
    run_moved.finish(compare, "in a cache enlarged and moved halfway");
  }
  return compare.text();
}

/// Rows::kAll gives in row i what Rows::kLast gives after token i; what comes later leaves it alone.
template <class Cache, class T>
std::string all_rows(const Setting<T>& setting, const typename Cache::Options& options) {
  using S = typename T::scalar;
  Comparison compare(setting.answers);
  const Index n = setting.n_tokens();
  kvdecode::Workspace<S> workspace;
  const std::vector<TokenId> others = other_tokens(setting.tokens, setting.vocab_size(), 4);
  for (const Index done : {Index{0}, std::max(n / 2, setting.n_before_cuts())})  // rows before this call
    for (const Index changed_from : {n, (n + done) / 2, done + 1}) {
      if (done < setting.n_before_cuts() && changed_from != n) continue;
      Cache cache(setting.transformer.kv_shape(), n, options);
      using Segment = kvdecode::Segment<Cache>;
      if (done > 0)
        setting.transformer.forward(workspace, setting.exec,
                                    Segment{&cache, setting.slice(0, done), Rows::kNone});
      std::vector<TokenId> tokens(setting.tokens.begin() + done, setting.tokens.end());
      for (Index i = changed_from; i < n; ++i)
        tokens[static_cast<std::size_t>(i - done)] = others[static_cast<std::size_t>(i)];
      const auto rows =
          setting.transformer.forward(workspace, setting.exec, Segment{&cache, tokens, Rows::kAll});
      if (rows.rows != n - done) compare.fail("Rows::kAll: not one row a token");
      for (Index i = done; i < changed_from && !compare.failed(); ++i)
        compare(i + 1, {rows.row(i - done), static_cast<std::size_t>(rows.cols)},
                changed_from == n ? "all rows" : "rows before tokens that changed");
    }
  return compare.text();
}

/// A step that was given up leaves no trace.
template <class Cache, class T>
std::string abandoned_step(const Setting<T>& setting, const typename Cache::Options& options) {
  using S = typename T::scalar;
  Comparison compare(setting.answers);
  const Index n = setting.n_tokens();
  Cache cache(setting.transformer.kv_shape(), n, options);
  detail::Runner run(setting, cache);
  const auto give_up = [&](Index n_layers) {
    const Index n_rows = std::min({Index{2}, n - cache.kv_len(), cache.max_append()});
    cache.reserve(n_rows);
    for (Index layer = 0; layer < n_layers; ++layer) {
      const kvdecode::LayerKvShape& shape = cache.shape()[layer];
      if (shape.store != layer) continue;
      const Index k_cols = shape.n_kv_heads * shape.k_dim, v_cols = shape.n_kv_heads * shape.v_dim;
      const std::vector<S> numbers(static_cast<std::size_t>(n_rows * std::max(k_cols, v_cols)), S(3.0f));
      kvdecode::with_default_fp_env([&] {
        cache.append(layer, kvdecode::RowsView<const S>{numbers.data(), n_rows, k_cols, k_cols},
                     kvdecode::RowsView<const S>{numbers.data(), n_rows, v_cols, v_cols});
      });
    }
    cache.abandon();
  };
  const Index n_layers = cache.shape().n_layers();
  give_up(n_layers);
  for (const Index cut : {n / 2, n - 1}) {
    if (cut <= cache.kv_len()) continue;
    compare(cut, run.append(setting.slice(cache.kv_len(), cut)), "after an abandoned step");
    give_up(1);
    give_up(n_layers);
    if (cache.kv_len() != cut) compare.fail("abandon() changed kv_len");
  }
  run.finish(compare, "after abandoned steps");
  return compare.text();
}

/// A sequence decoded in company of four others, of other lengths, in prompts and single tokens, is the same
/// as alone.
template <class Cache, class T>
std::string company(const Setting<T>& setting, const typename Cache::Options& options) {
  using S = typename T::scalar;
  using KFormat = typename Cache::KeyFormat;
  using VFormat = typename Cache::ValueFormat;
  constexpr std::size_t kSequences = 5, kMain = 2;
  const std::array<Index, kSequences> lengths{1, 4, setting.n_tokens(), 9, 2};
  std::array<std::vector<TokenId>, kSequences> tokens;
  std::array<Answers<S>, kSequences> answers;
  std::vector<Cache> caches;
  for (std::size_t i = 0; i < kSequences; ++i) {
    for (Index j = 0; j < lengths[i]; ++j)
      tokens[i].push_back(
          i == kMain ? setting.tokens[static_cast<std::size_t>(j)]
                     : static_cast<TokenId>((5 * j + 3 * static_cast<Index>(i)) % setting.vocab_size()));
    if (i == kMain)
      answers[i] = setting.answers;
    else
      add_answers<KFormat, VFormat>(answers[i], setting.transformer, tokens[i], lengths_up_to(lengths[i]));
    caches.emplace_back(setting.transformer.kv_shape(), lengths[i], options);
  }
  kvdecode::Workspace<S> workspace;
  std::string violation;
  // A long sequence has most of its tokens behind it, so that it meets the others.
  if (setting.n_tokens() > 24)
    setting.transformer.forward(
        workspace, setting.exec,
        kvdecode::Segment<Cache>{&caches[kMain], setting.slice(0, setting.n_tokens() - 16), Rows::kNone});
  for (std::size_t pass = 0; violation.empty(); ++pass) {
    std::vector<kvdecode::Segment<Cache>> segments;
    std::vector<std::size_t> who;
    for (std::size_t i = 0; i < kSequences; ++i) {
      const Index left = lengths[i] - caches[i].kv_len();
      const Index n = std::min(left, std::array{Index{1}, setting.chunk, Index{2}, Index{1}}[(pass + i) % 4]);
      if (n == 0) continue;
      const std::span<const TokenId> all(tokens[i]);
      segments.push_back(
          {&caches[i], all.subspan(static_cast<std::size_t>(caches[i].kv_len()), static_cast<std::size_t>(n)),
           std::array{Rows::kLast, Rows::kAll, Rows::kNone}[(pass + 2 * i) % 3]});
      who.push_back(i);
    }
    if (segments.empty()) break;
    const auto rows = setting.transformer.forward(workspace, setting.exec,
                                                  std::span<const kvdecode::Segment<Cache>>(segments));
    Index row = 0;
    for (std::size_t j = 0; j < segments.size(); ++j) {
      Comparison compare(answers[who[j]]);
      const Index n = static_cast<Index>(segments[j].tokens.size());
      const Index n_rows = segments[j].logits == Rows::kAll ? n : segments[j].logits == Rows::kLast ? 1 : 0;
      for (Index r = 0; r < n_rows; ++r, ++row)
        compare(caches[who[j]].kv_len() - n_rows + r + 1,
                {rows.row(row), static_cast<std::size_t>(rows.cols)},
                who[j] == kMain ? "in company" : "one of the company");
      if (violation.empty()) violation = compare.text();
    }
    if (row != rows.rows && violation.empty()) violation = "a batch gives other rows than it was asked for";
  }
  return violation;
}

/// A context shift leaves the same in every cache, whatever it did before and in however many parts. What it leaves is
/// held against the formula in shift_test.cpp.
template <class Cache, class T>
std::string shift(const Setting<T>& setting, const typename Cache::Options& options) {
  using S = typename T::scalar;
  using Plain = kvdecode::ContiguousCache<typename Cache::KeyFormat, typename Cache::ValueFormat>;
  const Index n = setting.n_tokens(), before = std::max((2 * n + 2) / 3, setting.n_before_cuts());
  const kvdecode::KvShape& shape = setting.transformer.kv_shape();
  for (const Index first : {before / 2, before}) {
    const Index delta = -(first + 1) / 2;
    if (delta == 0 || before == n) continue;
    Plain plain(shape, n);
    detail::Runner run(setting, plain);
    run.append(setting.slice(0, before));
    plain.shift(first, delta);
    Answers<S> answers;
    answers.add(n, run.append(setting.slice(before, n)));
    Comparison compare(answers);

    Cache cache(shape, n, options);
    detail::Runner run_shifted(setting, cache);
    for (Index begin = 0, end = 0; begin < before; begin = end) {
      end = std::min(before, std::max(begin, setting.n_before_cuts()) + setting.chunk);
      run_shifted.append(setting.slice(begin, end));
    }
    if (!cache.can_shift(first, delta)) return {};  // a ring
    const Index part = delta < -1 ? -1 : 0;
    if (part < 0) cache.shift(first, part);
    cache.shift(first + part, delta - part);
    for (Index begin = before, end = 0; begin < n; begin = end) {
      end = std::min(n, begin + setting.chunk);
      compare(end, run_shifted.append(setting.slice(begin, end)), "after a shift");
    }
    if (cache.kv_len() != n + delta) compare.fail("after a shift: another length");
    if (compare.failed()) return compare.text();
  }
  return {};
}

// ---- All of them -------------------------------------------------------------------------------------------

struct Violation {
  const char* law;
  std::string difference;
};

namespace detail {

template <class Law>
void try_law(std::vector<Violation>& violations, const char* name, const Law& law) {
  std::string difference;
  try {
    difference = law();
  } catch (const std::exception& e) {
    difference = std::string("threw: ") + e.what();
  }
  if (!difference.empty()) violations.push_back({name, std::move(difference)});
}

}  // namespace detail

/// Tries the laws of a strategy. @param strategy  its max_positions() holds the setting's tokens
template <class T, class Strategy>
std::vector<Violation> violated_by_strategy(const Setting<T>& setting, const Strategy& strategy) {
  std::vector<Violation> violations;
  detail::try_law(violations, "every position", [&] { return every_position(setting, strategy); });
  detail::try_law(violations, "any chunking", [&] { return any_chunking(setting, strategy); });
  detail::try_law(violations, "truncate then append",
                  [&] { return truncate_then_append(setting, strategy); });
  detail::try_law(violations, "fork then diverge", [&] { return fork_then_diverge(setting, strategy); });
  return violations;
}

/// Tries the laws of a cache with each of the options.
template <class Cache, class T>
std::vector<Violation> violated_by_cache(const Setting<T>& setting,
                                         const std::vector<typename Cache::Options>& options = {{}}) {
  std::vector<Violation> violations;
  for (const typename Cache::Options& o : options)
    detail::try_law(violations, "capacity and history",
                    [&] { return capacity_and_history<Cache>(setting, o); });
  const typename Cache::Options& first = options.front();
  detail::try_law(violations, "all rows", [&] { return all_rows<Cache>(setting, first); });
  detail::try_law(violations, "abandoned step", [&] { return abandoned_step<Cache>(setting, first); });
  detail::try_law(violations, "company", [&] { return company<Cache>(setting, first); });
  if constexpr (kvdecode::ShiftableCache<Cache>)
    detail::try_law(violations, "shift", [&] { return shift<Cache>(setting, first); });
  return violations;
}

}  // namespace kvdecode_laws

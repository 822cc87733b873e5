// SPDX-License-Identifier: MIT
// <kvdecode/decode/samplers.hpp> - how a token is picked from logits.
//
//   Greedy    the most probable token, always the same text; ties go to the lower id
//   Sampling  at random from the distribution, sharpened by a temperature and cut to its likeliest part:
//             temperature, then top-k, then top-p (Holtzman 2020). The same seed gives the same text on every
//             machine.
#pragma once

#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/core/scalar.hpp>
#include <kvdecode/core/simd/fp_env.hpp>
#include <kvdecode/decode/concepts.hpp>

#include <algorithm>
#include <limits>
#include <random>
#include <span>

namespace kvdecode::inline KVDECODE_ABI {

namespace detail {
inline void require_logits(std::size_t n) {
  if (n == 0) [[unlikely]]
    raise(ErrorCode::kBadArgument, "sampler: no logits");
}
}  // namespace detail

/// argmax. O(vocab_size).
struct Greedy {
  template <Scalar S>
  TokenId operator()(std::span<const S> logits) const {
    detail::require_logits(logits.size());
    std::size_t best = 0;
    for (std::size_t i = 1; i < logits.size(); ++i)
      if (logits[best] < logits[i]) best = i;
    return static_cast<TokenId>(best);
  }
};

/// What Sampling cuts and how it draws. The defaults change nothing.
struct SamplingOptions {
  double temperature = 1.0;  // logits are divided by it; 0: the most probable token
  Index top_k = 0;           // only the k likeliest; 0: all
  double top_p = 1.0;        // only the likeliest that reach this probability together, one at least
  std::uint64_t seed = 0;
};

/// Draws from softmax(logits / temperature), cut by top-k and top-p. In double, in the order (logit
/// descending, id ascending), a NaN last. O(vocab_size log vocab_size); O(vocab_size) with a small top_k.
/// @tparam Engine  a 64-bit uniform random bit generator; a draw is (engine() >> 11) * 2^-53
template <class Engine = std::mt19937_64>
class Sampling {
  static_assert(Engine::min() == 0 && Engine::max() == ~std::uint64_t{0},
                "Sampling needs an engine of 64 random bits.");

 public:
  /// @throws Error kBadArgument
  explicit Sampling(SamplingOptions options = {}) : Sampling(options, Engine(options.seed)) {}
  Sampling(SamplingOptions options, Engine engine) : options_(options), engine_(std::move(engine)) {
    if (!(options.temperature >= 0.0) || options.temperature > 1e30) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "sampling: temperature must not be negative, got ",
                    options.temperature);
    if (options.top_k < 0) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "sampling: top_k must not be negative, got ", options.top_k);
    if (!(options.top_p > 0.0) || options.top_p > 1.0) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "sampling: top_p must be in (0, 1], got ", options.top_p);
  }

  template <Scalar S>
  TokenId operator()(std::span<const S> logits) {
    detail::require_logits(logits.size());
    if (options_.temperature == 0.0) return Greedy{}(logits);
    return with_default_fp_env([&] { return draw(logits); });
  }

  const SamplingOptions& options() const noexcept { return options_; }
  const Engine& engine() const noexcept { return engine_; }

 private:
  struct Candidate {
    double logit;
    TokenId id;
    double weight;
    bool operator<(const Candidate& other) const noexcept {
      return logit > other.logit || (logit == other.logit && id < other.id);
    }
  };

  template <class S>
  TokenId draw(std::span<const S> logits) {
    candidates_.resize(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double logit = static_cast<double>(logits[i]);
      // Sorting needs an order, and a NaN has no place in any.
      candidates_[i] = {logit == logit ? logit : -std::numeric_limits<double>::infinity(),
                        static_cast<TokenId>(i), 0.0};
    }
    auto end = candidates_.end();
    if (options_.top_k > 0 && options_.top_k < static_cast<Index>(candidates_.size())) {
      end = candidates_.begin() + options_.top_k;
      std::nth_element(candidates_.begin(), end - 1, candidates_.end());
    }
    std::sort(candidates_.begin(), end);
    double total = 0.0;
    for (auto c = candidates_.begin(); c != end; ++c) {
      // The difference first: a quotient by a temperature near 0 may be infinite.
      c->weight = exp((c->logit - candidates_.front().logit) / options_.temperature);
      total = total + c->weight;
    }
    if (options_.top_p < 1.0) {
      const double enough = mul(options_.top_p, total);
      double kept = 0.0;
      auto c = candidates_.begin();
      do {
        kept = kept + c->weight;
        ++c;
      } while (c != end && kept < enough);
      end = c;
      total = kept;
    }
    const double point = mul(mul(static_cast<double>(engine_() >> 11), 0x1p-53), total);
    double passed = 0.0;
    for (auto c = candidates_.begin(); c != end; ++c) {
      passed = passed + c->weight;
      if (point < passed) return c->id;
    }
    return (end - 1)->id;
  }

  SamplingOptions options_;
  Engine engine_;
  Vector<Candidate> candidates_;
};

static_assert(Sampler<Greedy, float> && Sampler<Sampling<>, double>);

}  // namespace kvdecode

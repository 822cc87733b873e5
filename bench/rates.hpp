// SPDX-License-Identifier: MIT
// What a benchmark reports of its work: how much a second, and which share of what the machine can do that is.
#pragma once

#include "machine.hpp"

#include <benchmark/benchmark.h>

#include <map>

namespace bench {

/// The machine's limits with so many threads, measured when they are first asked for.
inline const MachineLimits& limits_of(Index n_threads) {
  static std::map<Index, MachineLimits> known;
  const auto found = known.find(n_threads);
  return found != known.end() ? found->second
                              : known.emplace(n_threads, measure_machine(n_threads)).first->second;
}

/// `amount` of an iteration, a second.
inline benchmark::Counter rate(double amount) {
  return {amount, benchmark::Counter::kIsIterationInvariantRate};
}

/// Counters of an iteration that moves so many bytes and computes so many float operations, two a multiply-add: rates,
/// and their shares of the machine's. What is 0 bounds nothing and is left out.
inline void set_rates(benchmark::State& state, double bytes, double flops, Index n_threads = 1) {
  const MachineLimits& limits = limits_of(n_threads);
  if (bytes > 0.0) {
    state.counters["bytes/s"] = rate(bytes);
    state.counters["of_read"] = rate(bytes / limits.read_bytes_per_second);
  }
  if (flops > 0.0) {
    state.counters["flops"] = rate(flops);
    state.counters["of_fma"] = rate(flops / limits.flops_per_second);
  }
}

}  // namespace bench

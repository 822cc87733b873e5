// SPDX-License-Identifier: MIT
// What the machine can do, measured: how fast threads read memory, which bounds decoding, and how many multiply-adds
// they compute, which bounds prefill.
#pragma once

#include <kvdecode/core/executor.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/core/simd/lanes.hpp>
#include <kvdecode/core/sums.hpp>
#include <kvdecode/core/thread_team.hpp>
#include <kvdecode/core/types.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>

namespace bench {

using kvdecode::Index;

/// Sums memory in registers: what reading alone costs. A rest of less than 256 bytes is left out.
inline float read_all(const std::byte* data, Index n_bytes) noexcept {
  using Lanes = kvdecode::Lanes<float>;
  Lanes sums[4] = {Lanes::zero(), Lanes::zero(), Lanes::zero(), Lanes::zero()};
  const auto* values = reinterpret_cast<const float*>(data);
  for (Index i = 0; i + 64 <= n_bytes / 4; i += 64)
    kvdecode::simd::unroll<4>([&](auto j) { sums[j] = add(sums[j], Lanes::loadu(values + i + 16 * j)); });
  return tree_sum(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

inline constexpr int kFmaChains = 12;  // enough to hide the latency of an fma, few enough for the registers
inline constexpr double kFmaRoundFlops = 2.0 * kvdecode::Lanes<float>::width * kFmaChains;

/// Independent fused multiply-adds in registers, one a chain and round: the peak of the core. Indices are constants and
/// nothing refers to the chains: g++ would keep them in memory otherwise, at a quarter of the speed.
inline float fma_rounds(Index n_rounds) noexcept {
  using R = kvdecode::Lanes<float>::R;
  using kvdecode::simd::unroll;
  R::type chains[kFmaChains];
  unroll<kFmaChains>([&](auto j) { chains[j] = R::set1(1.0f); });
  const R::type a = R::set1(0.999f), b = R::set1(0.001f);
  for (Index i = 0; i < n_rounds; ++i)
    unroll<kFmaChains>([&](auto j) {
      R::type chain = R::fma(chains[j], a, b);
      R::pin(chain);
      chains[j] = chain;
    });
  unroll<kFmaChains - 1>([&](auto j) { chains[0] = R::add(chains[0], chains[j + 1]); });
  float values[kvdecode::Lanes<float>::width];
  R::storeu(values, chains[0]);
  return values[0];
}

/// What n threads can do together.
struct MachineLimits {
  Index n_threads = 1;
  double read_bytes_per_second = 0.0;
  double flops_per_second = 0.0;  // float, two a multiply-add
};

/// Bytes whose reading no cache shortens: 256 MB, or more where the last level is large; at most 1 GB.
inline Index read_probe_bytes() {
  Index bytes = Index{1} << 28;
#if defined(_SC_LEVEL3_CACHE_SIZE)
  bytes = std::max<Index>(bytes, 8 * static_cast<Index>(::sysconf(_SC_LEVEL3_CACHE_SIZE)));
#endif
  return std::min(bytes, Index{1} << 30);
}

/// Calls task(i) on each thread i at once, for as long as `budget` seconds and at least once; returns the seconds of
/// the shortest pass.
template <class Task>
double shortest_pass(kvdecode::ThreadTeam& team, double budget, Task&& task) {
  const auto body = [&](Index thread) noexcept {
    float result = task(thread);
    asm volatile("" : : "m"(result) : "memory");
  };
  double shortest = std::numeric_limits<double>::infinity();
  for (double spent = 0.0; shortest == std::numeric_limits<double>::infinity() || spent < budget;) {
    const auto start = std::chrono::steady_clock::now();
    team.parallel_for(team.concurrency(), body);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    shortest = std::min(shortest, elapsed.count());
    spent += elapsed.count();
  }
  return shortest;
}

/// Measures the limits of n threads, in about a second: the best of many passes, as others may disturb any of them.
/// @throws Error kBadArgument (n_threads), std::bad_alloc
inline MachineLimits measure_machine(Index n_threads) {
  kvdecode::ThreadTeam team(n_threads);
  MachineLimits limits{n_threads};

  // Each thread has a contiguous part, which it wrote first itself: the pages are near it.
  const kvdecode::Block<std::byte> memory(read_probe_bytes());
  const auto part = [&](Index thread) {
    return kvdecode::split_range(memory.size(), n_threads, thread, 4096);
  };
  shortest_pass(team, 0.0, [&](Index thread) {
    const kvdecode::Range range = part(thread);
    std::fill(memory.data() + range.begin, memory.data() + range.end, std::byte{0});
    return 0.0f;
  });
  const double reading = shortest_pass(team, 0.5, [&](Index thread) {
    const kvdecode::Range range = part(thread);
    return read_all(memory.data() + range.begin, range.end - range.begin);
  });
  limits.read_bytes_per_second = static_cast<double>(memory.size()) / reading;

  // As many rounds as take some milliseconds, whatever the registers are.
  kvdecode::ThreadTeam alone(1);
  Index n_rounds = 1024;
  const auto multiply = [&](Index) { return fma_rounds(n_rounds); };
  while (shortest_pass(alone, 0.01, multiply) < 2e-3) n_rounds *= 2;
  const double computing = shortest_pass(team, 0.3, multiply);
  limits.flops_per_second =
      static_cast<double>(n_threads) * static_cast<double>(n_rounds) * kFmaRoundFlops / computing;
  return limits;
}

}  // namespace bench

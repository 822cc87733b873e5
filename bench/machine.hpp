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
#include <numeric>
#include <type_traits>
#include <vector>

namespace bench {

using kvdecode::Index;

/// Sums memory in registers, from several equal parts of it in turn: what reading alone costs. A rest of less than 256
/// bytes a part is left out.
template <int n_streams>
float read_all(const std::byte* data, Index n_bytes) noexcept {
  using Lanes = kvdecode::Lanes<float>;
  Lanes sums[4] = {Lanes::zero(), Lanes::zero(), Lanes::zero(), Lanes::zero()};
  const Index part = n_bytes / 4 / n_streams / 64 * 64;
  const auto* values = reinterpret_cast<const float*>(data);
  for (Index i = 0; i < part; i += 64)
    for (int stream = 0; stream < n_streams; ++stream)
      kvdecode::simd::unroll<4>(
          [&](auto j) { sums[j] = add(sums[j], Lanes::loadu(values + stream * part + i + 16 * j)); });
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

/// Calls body() again and again for as long as `budget` seconds, at least once; returns the seconds of the shortest call.
template <class Body>
double shortest_call(double budget, Body&& body) {
  double shortest = std::numeric_limits<double>::infinity(), spent = 0.0;
  do {
    const auto start = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    shortest = std::min(shortest, elapsed.count());
    spent += elapsed.count();
  } while (spent < budget);
  return shortest;
}

/// Takes a result that nobody needs, so that it is computed.
inline void keep(float result) noexcept { asm volatile("" : : "m"(result) : "memory"); }

/// Bytes a second that the threads of a team read together, each a contiguous part of memory beyond the caches, in one
/// stream or in eight, whichever is faster: where pages are small, the core's own prefetching ends with each of them.
inline double read_bytes_per_second(kvdecode::ThreadTeam& team) {
  const kvdecode::Block<std::byte> memory(read_probe_bytes());
  const Index n_threads = team.concurrency();
  const auto part = [&](Index thread) {
    return kvdecode::split_range(memory.size(), n_threads, thread, 4096);
  };
  // Who reads a part has written it first: its pages are near.
  const auto write = [&](Index thread) noexcept {
    std::fill(memory.data() + part(thread).begin, memory.data() + part(thread).end, std::byte{0});
  };
  const auto seconds = [&]<int n_streams>(std::integral_constant<int, n_streams>) {
    const auto read = [&](Index thread) noexcept {
      keep(read_all<n_streams>(memory.data() + part(thread).begin, part(thread).end - part(thread).begin));
    };
    return shortest_call(0.3, [&] { team.parallel_for(n_threads, read); });
  };
  team.parallel_for(n_threads, write);
  return static_cast<double>(memory.size()) /
         std::min(seconds(std::integral_constant<int, 1>{}), seconds(std::integral_constant<int, 8>{}));
}

/// Float operations a second of the threads of a team, all computing: two a multiply-add.
inline double flops_per_second(kvdecode::ThreadTeam& team) {
  // As many rounds as take some milliseconds, whatever the registers are.
  Index n_rounds = 1024;
  const auto multiply = [&] { keep(fma_rounds(n_rounds)); };
  while (shortest_call(0.01, multiply) < 2e-3) n_rounds *= 2;
  std::vector<double> rates(static_cast<std::size_t>(team.concurrency()));
  const auto compute = [&](Index thread) noexcept {
    rates[static_cast<std::size_t>(thread)] =
        kFmaRoundFlops * static_cast<double>(n_rounds) / shortest_call(0.3, multiply);
  };
  team.parallel_for(team.concurrency(), compute);
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

/// Measures the limits of n threads, in about a second: the best of many passes, as others may disturb any of them.
/// @throws Error kBadArgument (n_threads), std::bad_alloc
inline MachineLimits measure_machine(Index n_threads) {
  kvdecode::ThreadTeam team(n_threads);
  return {n_threads, read_bytes_per_second(team), flops_per_second(team)};
}

}  // namespace bench

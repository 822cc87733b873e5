// SPDX-License-Identifier: MIT
// kvdecode_bench: how the time of both strategies grows, kernels beside their baselines and the machine's limits, memory
// of caches: in less than two minutes, and in a few sentences at the end. With --benchmark_filter=REGEX whatever it
// names, whole models (model_bench.cpp) too. bench/plot.py makes figures of what --benchmark_out=FILE leaves.
#include "summary.hpp"

#include <kvdecode/core/build_info.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

/// What the system calls its processor; empty if it does not say.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(": ") + 2));
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  // Before those given, which then count.
  char without_models[] = "--benchmark_filter=-^model/", short_runs[] = "--benchmark_min_time=0.1";
  const auto decides = [](const char* argument) {
    return std::string_view(argument).starts_with("--benchmark_filter") ||
           std::string_view(argument).starts_with("--benchmark_list_tests");
  };
  const bool has_choice = std::any_of(arguments.begin(), arguments.end(), decides);
  arguments.insert(arguments.begin() + 1, short_runs);
  if (!has_choice) arguments.insert(arguments.begin() + 1, without_models);
  int n = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&n, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(n, arguments.data())) return 1;
  const kvdecode::BuildInfo build = kvdecode::build_info();
  benchmark::AddCustomContext("kvdecode",
                              std::string(build.version) + ", " + std::string(build.instruction_set));
  benchmark::AddCustomContext("compiler", std::string(build.compiler));
  benchmark::AddCustomContext("processor", processor_name());
  bench::SummaryReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  benchmark::Shutdown();
  return 0;
}

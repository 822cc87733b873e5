// SPDX-License-Identifier: MIT
// kvdecode_bench: what there is to see in two minutes; with --benchmark_filter=REGEX whatever it names, whole models
// (model_bench.cpp) too.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  char without_models[] = "--benchmark_filter=-^model/";
  const auto decides = [](const char* argument) {
    return std::string_view(argument).starts_with("--benchmark_filter") ||
           std::string_view(argument).starts_with("--benchmark_list_tests");
  };
  if (std::none_of(arguments.begin(), arguments.end(), decides)) arguments.push_back(without_models);
  int n = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&n, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(n, arguments.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

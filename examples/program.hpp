// SPDX-License-Identifier: MIT
// What the command-line programs share: how they fail, and how they print figures.
//
// Exit status: 0 done; 1 it could not be done (a missing or bad file, a token out of range, …); 2 bad
// arguments. Either way one line on standard error says why.
#pragma once

#include <CLI/CLI.hpp>

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/decode/cache_format.hpp>
#include <kvdecode/decode/samplers.hpp>
#include <kvdecode/kernels/activations.hpp>

#include <cmath>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <vector>

namespace program {

/// The text on one line: paths, arguments and what files hold may have others in them.
inline std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

/// Parses the arguments and runs body(); returns the exit status.
template <class Body>
int run(CLI::App& app, int argc, char** argv, Body&& body) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked_for_help) {
    return app.exit(asked_for_help);
  } catch (const CLI::ParseError& error) {
    std::cerr << app.get_name() << ": " << one_line(error.what()) << " (--help shows the arguments)\n";
    return 2;
  }
  try {
    return body();
  } catch (const std::bad_alloc&) {
    std::cerr << app.get_name() << ": not enough memory\n";
  } catch (const std::exception& error) {
    std::cerr << app.get_name() << ": " << one_line(error.what()) << '\n';
  }
  return 1;
}

/// What a count on the command line may be.
inline CLI::Range count_from(kvdecode::Index least) { return {least, kvdecode::Index{1'000'000'000}}; }
/// --threads: how many to compute with. One number, or a list of them.
template <class Numbers>
CLI::Option* add_threads_option(CLI::App& app, Numbers& numbers) {
  return app.add_option("--threads", numbers, "threads to compute with")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
}
/// --activations: what is done to activations before they meet quantized weights. One name, or a list of them.
template <class Names>
CLI::Option* add_activations_option(CLI::App& app, Names& names) {
  return app
      .add_option("--activations", names, "as they are, or rounded to 8 bits where weights are quantized")
      ->check(CLI::IsMember({"exact", "int8"}))
      ->capture_default_str();
}
/// --temperature, --top-k, --top-p and --seed: how tokens are drawn.
inline void add_sampling_options(CLI::App& app, kvdecode::SamplingOptions& sampling) {
  app.add_option("--temperature", sampling.temperature, "0: always the most probable token")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  app.add_option("--top-k", sampling.top_k, "draw from the k likeliest tokens; 0: from all")
      ->check(count_from(0))
      ->capture_default_str();
  app.add_option("--top-p", sampling.top_p, "draw from the likeliest tokens that reach this probability")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  app.add_option("--seed", sampling.seed, "of the draws")->capture_default_str();
}
/// --cache-format: how keys and values are stored, alike or as KEYS/VALUES. One name, or a list of them.
/// @param native  what the format that rounds nothing is called
template <class Names>
CLI::Option* add_cache_format_option(CLI::App& app, Names& names, const char* native = "native") {
  std::vector<std::string> known;
  for (const kvdecode::CacheFormat format : kvdecode::kCacheFormats)
    known.emplace_back(format == kvdecode::CacheFormat::kNative ? native : to_string(format));
  return app.add_option("--cache-format", names, "how keys and values are stored: alike, or KEYS/VALUES")
      ->check(CLI::IsMember(known))
      ->capture_default_str();
}
/// The format of a name that the option let pass.
inline kvdecode::CacheFormat cache_format(std::string_view name) {
  return kvdecode::cache_format_of(name).value_or(kvdecode::CacheFormat::kNative);
}
/// Calls visitor.operator()<A>() with the policy of activations of that name.
template <class Visitor>
decltype(auto) with_activations(const std::string& name, Visitor&& visitor) {
  if (name == kvdecode::Int8Activations::kName)
    return visitor.template operator()<kvdecode::Int8Activations>();
  return visitor.template operator()<kvdecode::ExactActivations>();
}

/// "1.50 MiB"
inline std::string bytes(kvdecode::Index n) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(n);
  int unit = 0;
  while (value >= 1024.0 && unit < 4) {
    value /= 1024.0;
    ++unit;
  }
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return buffer;
}

/// "3.1 ms", "2.78 s"
inline std::string seconds(double s) {
  char buffer[32];
  if (s < 1.0)
    std::snprintf(buffer, sizeof buffer, s < 0.01 ? "%.2f ms" : "%.1f ms", s * 1e3);
  else
    std::snprintf(buffer, sizeof buffer, "%.2f s", s);
  return buffer;
}

/// "32,896"
inline std::string count(kvdecode::Index n) {
  std::string digits = std::to_string(n);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

/// "128.4", "4,532"
inline std::string rate(double per_second) {
  if (per_second >= 1000.0) return count(static_cast<kvdecode::Index>(std::llround(per_second)));
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.1f", per_second);
  return buffer;
}

}  // namespace program

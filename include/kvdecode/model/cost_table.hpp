// SPDX-License-Identifier: MIT
// <kvdecode/model/cost_table.hpp> - the cost of both strategies side by side as text, for programs to print.
#pragma once

#include <kvdecode/model/cost.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

/// A count in at most four digits: "9,999" as it is, then "12.3 k", "1.05 M" and so on to "E" (10^18).
inline std::string short_count(double value) {
  constexpr std::string_view kUnits = " kMGTPE";
  if (!(value >= 0.0) || value >= 1e21) return "-";
  if (value < 9999.5 && value == std::floor(value)) {
    std::string digits = std::to_string(std::llround(value));
    if (digits.size() == 4) digits.insert(1, ",");
    return digits;
  }
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  // Three digits: of those behind the point as many as there is room for.
  const int n_decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  const auto scaled = std::llround(value * (n_decimals == 2 ? 100.0 : n_decimals == 1 ? 10.0 : 1.0));
  std::string text = std::to_string(scaled);
  if (n_decimals > 0) {
    const auto decimals = static_cast<std::size_t>(n_decimals);
    if (text.size() <= decimals) text.insert(0, decimals + 1 - text.size(), '0');
    text.insert(text.size() - decimals, ".");
  }
  if (unit > 0) (text += ' ') += kUnits[unit];
  return text;
}

/// The last step and all steps of writing n_new tokens behind a prompt, by both strategies, a line for each kind of
/// multiply-add and of bytes: six columns of figures and ratios.
/// @throws Error as ModelCost::total
inline std::string cost_table(const ModelCost& cost, Index n_prompt, Index n_new) {
  constexpr std::size_t kWidth = 10;
  std::string text;
  const auto cell = [&](std::string_view what) {
    text.append(kWidth - std::min(kWidth, what.size()), ' ').append(what);
  };
  const auto name = [&](std::string_view what) {
    text.append(what).append(20 - std::min<std::size_t>(20, what.size()), ' ');
  };
  const Index last = n_prompt + n_new - 1;
  const Cost steps[2][2] = {
      {cost.step(StrategyKind::kRecompute, last), cost.step(StrategyKind::kCached, last)},
      {cost.total(StrategyKind::kRecompute, n_prompt, n_new),
       cost.total(StrategyKind::kCached, n_prompt, n_new)}};

  const std::string whole =
      std::to_string(n_new) + (n_new == 1 ? " token" : " tokens") + " behind " + std::to_string(n_prompt);
  name("");
  text += "  the last step";
  text.append(3 * kWidth - 15 + 4, ' ').append(whole).append("\n");
  name("");
  for (int i = 0; i < 2; ++i) {
    for (const std::string_view column : {"recompute", "cached", "ratio"}) cell(column);
    text += i == 0 ? "  " : "\n";
  }
  const auto line = [&](std::string_view what, auto&& figure) {
    name(what);
    for (int i = 0; i < 2; ++i) {
      const double naive = figure(steps[i][0]), cached = figure(steps[i][1]);
      cell(short_count(naive));
      cell(short_count(cached));
      cell(cached > 0.0 ? short_count(naive / cached) : "");
      text += i == 0 ? "  " : "\n";
    }
  };
  text += "multiply-adds\n";
  line("  scores", [](const Cost& c) { return c.multiply_adds.scores; });
  line("  values", [](const Cost& c) { return c.multiply_adds.values; });
  line("  projections", [](const Cost& c) { return c.multiply_adds.projections; });
  line("  feed-forward", [](const Cost& c) { return c.multiply_adds.feed_forward; });
  line("  head", [](const Cost& c) { return c.multiply_adds.head; });
  line("  all", [](const Cost& c) { return c.multiply_adds.total(); });
  text += "bytes\n";
  line("  weights read", [](const Cost& c) { return c.weight_bytes; });
  line("  cache read", [](const Cost& c) { return c.cache_bytes_read; });
  line("  cache written", [](const Cost& c) { return c.cache_bytes_written; });
  return text;
}

}  // namespace kvdecode

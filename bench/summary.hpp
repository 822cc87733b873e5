// SPDX-License-Identifier: MIT
// What kvdecode_bench has to say in the end: times of both strategies side by side, how they grow beside how the counted
// multiply-adds grow, and why a short text does not show it.
#pragma once

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// The exponent p of y = c x^p that fits the points best: the slope of their logarithms.
inline double growth_exponent(const std::vector<double>& x, const std::vector<double>& y) {
  double sx = 0.0, sy = 0.0, sxx = 0.0, sxy = 0.0;
  const double n = static_cast<double>(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double u = std::log(x[i]), v = std::log(y[i]);
    sx += u;
    sy += v;
    sxx += u * u;
    sxy += u * v;
  }
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

/// One measured point of a family.
struct Point {
  double x;        // its argument
  double seconds;  // of the processor, for an iteration: these families have one thread
  double multiply_adds;
  double attention;  // those of attention
};

/// Keeps what the sentences are made of.
class Summary {
 public:
  void add(const benchmark::BenchmarkReporter::Run& run) {
    if (run.error_occurred) return;
    if (run.report_big_o) {
      fits_[run.run_name.function_name] = run.complexity;
      return;
    }
    const auto work = run.counters.find("multiply_adds"),
               attention = run.counters.find("attention_multiply_adds");
    const std::size_t colon = run.run_name.args.find(':');
    if (run.run_type != benchmark::BenchmarkReporter::Run::RT_Iteration || work == run.counters.end() ||
        attention == run.counters.end() || colon == std::string::npos)
      return;
    points_[run.run_name.function_name].push_back(
        {std::strtod(run.run_name.args.c_str() + colon + 1, nullptr),
         run.GetAdjustedCPUTime() / benchmark::GetTimeUnitMultiplier(run.time_unit), work->second.value,
         attention->second.value});
  }

  /// Empty where not both strategies were measured.
  std::string text() const {
    return strategies("attention", "Attention alone writes T tokens (one head of 64 numbers):") +
           strategies("decode", "A whole model writes T tokens (2 layers, d_model 64):") + overtaking();
  }

 private:
  using Points = std::vector<Point>;

  const Points* points(const std::string& family) const {
    const auto found = points_.find(family);
    return found == points_.end() || found->second.size() < 2 ? nullptr : &found->second;
  }

  template <class... Values>
  static std::string line(const char* format, Values... values) {
    char buffer[512];
    std::snprintf(buffer, sizeof buffer, format, values...);
    return std::string(buffer) + "\n";
  }
  static std::string milliseconds(double seconds) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%.*f ms",
                  seconds < 1e-3  ? 3
                  : seconds < 0.1 ? 2
                                  : 0,
                  1e3 * seconds);
    return buffer;
  }

  static const char* fit_name(benchmark::BigO fit) {
    switch (fit) {
      case benchmark::o1: return "1";
      case benchmark::oN: return "N";
      case benchmark::oNSquared: return "N^2";
      case benchmark::oNCubed: return "N^3";
      case benchmark::oLogN: return "log N";
      case benchmark::oNLogN: return "N log N";
      default: return "?";
    }
  }

  /// Both families at the same T, line by line, and how they grow over the upper half of each.
  std::string strategies(const std::string& layer, const char* title) const {
    const Points* const naive = points(layer + "/recompute/f32");
    const Points* const cached = points(layer + "/cached/f32");
    if (naive == nullptr || cached == nullptr) return "";
    std::string text = std::string("\n") + title + "\n" +
                       line("%8s %12s %12s %8s   %s", "T", "recompute", "cached", "ratio", "multiply-adds");
    for (const Point& slow : *naive)
      for (const Point& fast : *cached)
        if (slow.x == fast.x)
          text += line("%8.0f %12s %12s %8.1f   %.4g against %.4g", slow.x,
                       milliseconds(slow.seconds).c_str(), milliseconds(fast.seconds).c_str(),
                       slow.seconds / fast.seconds, slow.multiply_adds, fast.multiply_adds);
    for (const auto& [name, family] : {std::pair{"recompute", naive}, {"cached", cached}}) {
      std::vector<double> x, seconds, work;
      for (std::size_t i = family->size() / 2; i < family->size(); ++i) {
        x.push_back((*family)[i].x);
        seconds.push_back((*family)[i].seconds);
        work.push_back((*family)[i].multiply_adds);
      }
      if (x.size() < 2) continue;
      const auto fit = fits_.find(layer + "/" + name + "/f32");
      text += line(
          "  %-9s from T = %.0f to %.0f: time grows as T^%.2f, multiply-adds as T^%.2f; fitted over all: %s",
          name, x.front(), x.back(), growth_exponent(x, seconds), growth_exponent(x, work),
          fit == fits_.end() ? "-" : fit_name(fit->second));
    }
    return text;
  }

  /// Where attention of a cached step costs as much as its matrices: by count, and by the clock.
  std::string overtaking() const {
    const Points* const steps = points("step/cached/f32");
    if (steps == nullptr) return "";
    // Time and work of a step are a constant and a slope: matrices do not know the position, attention is in
    // proportion to it. Least squares.
    double st = 0.0, sx = 0.0, sxx = 0.0, sxt = 0.0;
    for (const Point& p : *steps) {
      st += p.seconds;
      sx += p.x + 1.0;
      sxx += (p.x + 1.0) * (p.x + 1.0);
      sxt += (p.x + 1.0) * p.seconds;
    }
    const double n = static_cast<double>(steps->size());
    const double slope = (n * sxt - sx * st) / (n * sxx - sx * sx), constant = (st - slope * sx) / n;
    const Point& last = steps->back();
    const double by_count = (last.multiply_adds - last.attention) / (last.attention / (last.x + 1.0));
    return line(
        "\nOf this model's step attention multiplies more than all matrices only from T = %.0f on (by the\n"
        "clock, %.0f): shorter texts pay for matrices, which cost T^2 recomputed and T cached, and so a "
        "small\n"
        "T shows O(T^2) against O(T) before it shows O(T^3) against O(T^2).",
        by_count, slope > 0.0 ? constant / slope : 0.0);
  }

  std::map<std::string, Points> points_;
  std::map<std::string, benchmark::BigO> fits_;
};

/// Shows what it is given as the flags say, and after a table on the console the summary.
class SummaryReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& context) override { return shown_->ReportContext(context); }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) summary_.add(run);
    shown_->ReportRuns(runs);
  }
  void Finalize() override {
    shown_->Finalize();
    if (dynamic_cast<const benchmark::ConsoleReporter*>(shown_.get()) != nullptr)
      GetOutputStream() << summary_.text();
  }

 private:
  std::unique_ptr<benchmark::BenchmarkReporter> shown_{benchmark::CreateDefaultDisplayReporter()};
  Summary summary_;
};

}  // namespace bench

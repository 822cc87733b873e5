// SPDX-License-Identifier: MIT
// A line that shows how far long work is, on a terminal only: redirected output stays clean, and work that is
// done at once shows nothing.
#pragma once

#include <kvdecode/core/types.hpp>
#include <kvdecode/io/load_report.hpp>
#include <kvdecode/io/page_in.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

namespace program {

/// A listener for kvdecode::ProgressRef. The line is erased when the work or the object ends.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what, std::FILE* stream = stderr)
      : ProgressLine(std::move(what), stream, ::isatty(::fileno(stream)) == 1, 0.4) {}
  /// @param delay  seconds before it appears
  ProgressLine(std::string what, std::FILE* stream, bool is_terminal, double delay)
      : what_(std::move(what)), stream_(stream), is_terminal_(is_terminal), delay_(delay) {}
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() { erase(); }

  bool is_terminal() const { return is_terminal_; }

  bool operator()(kvdecode::Index done, kvdecode::Index total) {
    if (!is_terminal_) return true;
    if (done >= total) {
      erase();
      return true;
    }
    const int percent = static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total));
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    if (percent == shown_ || elapsed.count() < delay_) return true;
    shown_ = percent;
    std::fprintf(stream_, "\r%s: %d %%", what_.c_str(), percent);
    std::fflush(stream_);
    return true;
  }

 private:
  void erase() {
    if (shown_ < 0) return;
    std::fputs("\r\x1b[K", stream_);  // ECMA-48: erase to the end of the line
    std::fflush(stream_);
    shown_ = -1;
  }

  std::string what_;
  std::FILE* stream_;
  bool is_terminal_;
  double delay_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int shown_ = -1;  // percent
};

/// Reads a model's files ahead of their use and shows how far that is. Only where somebody is watching:
/// elsewhere the weights are read when they are needed.
inline void read_ahead(const kvdecode::LoadReport& report) {
  ProgressLine line("reading the model");
  if (line.is_terminal()) kvdecode::page_in(report.files, line);
}

}  // namespace program

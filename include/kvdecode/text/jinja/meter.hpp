// SPDX-License-Identifier: MIT
// <kvdecode/text/jinja/meter.hpp> - what one rendering may use. Templates come with models from strangers:
// every step, byte and level of nesting is counted, and a template that asks for too much is refused.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/types.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {
namespace jinja {

/// What a template may ask for. Beyond a limit: Error kUnsupported.
struct Limits {
  std::size_t max_template_bytes = std::size_t{1} << 18;
  Index max_nesting = 200;                              ///< tags and parentheses within one another
  Index max_depth = 1000;                               ///< evaluations within one another (macro calls, …)
  std::uint64_t max_steps = std::uint64_t{1} << 24;     ///< evaluations; 64 bytes of text moved are one
  std::size_t max_memory_bytes = std::size_t{1} << 27;  ///< of all values alive at once, and the output
};

constexpr Index kMaxValueDepth = 100;      // lists and mappings within one another
constexpr std::size_t kMaxRange = 100000;  // elements of one range()

/// Throws what a template did wrong while it ran; the text is the template's own message.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  kvdecode::detail::raise(ErrorCode::kBadArgument, parts...);
}

/// Counts what one rendering uses.
class Meter {
 public:
  explicit Meter(const Limits& limits) : limits_(limits) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  /// Counts one evaluation that also touches `bytes` of text or of values.
  void step(std::size_t bytes = 0) {
    steps_ += 1 + bytes / 64;
    if (steps_ > limits_.max_steps) [[unlikely]] {
      kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: more than max_steps ",
                              limits_.max_steps);
    }
  }

  void take(std::size_t bytes) {
    step(bytes);
    if (bytes > limits_.max_memory_bytes - used_) [[unlikely]] {
      kvdecode::detail::raise(ErrorCode::kUnsupported, "chat template: more than max_memory_bytes ",
                              limits_.max_memory_bytes);
    }
    used_ += bytes;
  }
  void give(std::size_t bytes) noexcept { used_ -= bytes; }

  void enter() {
    if (depth_ >= limits_.max_depth) [[unlikely]] {
      kvdecode::detail::raise(ErrorCode::kUnsupported,
                              "chat template: evaluations nested deeper than max_depth ", limits_.max_depth);
    }
    ++depth_;
  }
  void leave() noexcept { --depth_; }

 private:
  Limits limits_;
  std::uint64_t steps_ = 0;
  std::size_t used_ = 0;  // bytes
  Index depth_ = 0;
};

/// One more level of nesting for as long as it lives.
class Level {
 public:
  explicit Level(Meter& meter) : meter_(meter) {
    meter.enter();
    meter.step();
  }
  ~Level() { meter_.leave(); }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Meter& meter_;
};

/// Memory that is counted for as long as it lives; without a meter (constants of a template) it is not.
class Charge {
 public:
  Charge() = default;
  Charge(Meter* meter, std::size_t bytes) : meter_(meter), bytes_(bytes) {
    if (meter_ != nullptr) meter_->take(bytes_);
  }
  ~Charge() {
    if (meter_ != nullptr) meter_->give(bytes_);
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

  void add(std::size_t bytes) {
    if (meter_ == nullptr) return;
    meter_->take(bytes);
    bytes_ += bytes;
  }

 private:
  Meter* meter_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A text that grows under a meter.
class TextBuilder {
 public:
  explicit TextBuilder(Meter& meter) : charge_(&meter, 0), meter_(&meter) {}

  void append(std::string_view text) {
    charge_.add(text.size());
    text_ += text;
  }
  void append(std::size_t count, char character) {
    charge_.add(count);
    text_.append(count, character);
  }

  const std::string& text() const noexcept { return text_; }
  std::string take() { return std::exchange(text_, {}); }
  Meter& meter() const noexcept { return *meter_; }

 private:
  Charge charge_;
  Meter* meter_;
  std::string text_;
};

}  // namespace jinja
}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <support/guarded.hpp> - memory between two fences, to see that a kernel writes where it may and nowhere
// else.
#pragma once

#include <kvdecode/core/types.hpp>
#include <kvdecode/core/view.hpp>

#include <cstddef>
#include <vector>

namespace kvdecode_test {

/// n elements between 32 on either side that have to stay as they are.
template <class T>
class Guarded {
 public:
  explicit Guarded(kvdecode::Index n)
      : values_(static_cast<std::size_t>(n) + 2 * kFence, fence()), size_(static_cast<std::size_t>(n)) {}

  T* data() { return values_.data() + kFence; }
  bool is_intact() const {
    for (std::size_t i = 0; i < kFence; ++i)
      if (!is_fence(values_[i]) || !is_fence(values_[kFence + size_ + i])) return false;
    return true;
  }

 private:
  static constexpr std::size_t kFence = 32;
  static T fence() { return T(-12345.0f); }
  static bool is_fence(const T& x) { return static_cast<double>(x) == -12345.0; }

  std::vector<T> values_;
  std::size_t size_;
};

/// Rows with a gap of fence elements after each.
template <class T>
class GuardedRows {
 public:
  GuardedRows(kvdecode::Index rows, kvdecode::Index cols, kvdecode::Index gap)
      : rows_(rows), cols_(cols), stride_(cols + gap), values_(rows * (cols + gap)) {
    for (kvdecode::Index i = 0; i < rows * stride_; ++i) values_.data()[i] = T(-12345.0f);
  }

  kvdecode::RowsView<T> view() { return {values_.data(), rows_, cols_, stride_}; }
  bool is_intact() {
    for (kvdecode::Index r = 0; r < rows_; ++r)
      for (kvdecode::Index c = cols_; c < stride_; ++c)
        if (static_cast<double>(values_.data()[r * stride_ + c]) != -12345.0) return false;
    return values_.is_intact();
  }
  /// The rows one after another, without the gaps.
  std::vector<T> packed() {
    std::vector<T> result;
    for (kvdecode::Index r = 0; r < rows_; ++r)
      result.insert(result.end(), view().row(r), view().row(r) + cols_);
    return result;
  }

 private:
  kvdecode::Index rows_, cols_, stride_;
  Guarded<T> values_;
};

}  // namespace kvdecode_test

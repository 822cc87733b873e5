// SPDX-License-Identifier: MIT
// <kvdecode/cache/run_iterator.hpp> - the iterator of ranges that make their runs when they are asked for them.
#pragma once

#include <kvdecode/cache/concepts.hpp>

#include <cstddef>

namespace kvdecode::inline KVDECODE_ABI {

/// Goes through a range by the numbers of its runs. @tparam Runs  has run(i) -> KvRun<F>, O(1)
template <class Runs, class F>
class RunIterator {
 public:
  using value_type = KvRun<F>;
  using difference_type = std::ptrdiff_t;

  RunIterator() noexcept = default;
  RunIterator(const Runs& runs, Index i) noexcept : runs_(&runs), i_(i) {}

  KvRun<F> operator*() const noexcept { return runs_->run(i_); }
  RunIterator& operator++() noexcept {
    ++i_;
    return *this;
  }
  RunIterator operator++(int) noexcept { return RunIterator(*runs_, i_++); }
  friend bool operator==(const RunIterator& a, const RunIterator& b) noexcept { return a.i_ == b.i_; }

 private:
  const Runs* runs_ = nullptr;
  Index i_ = 0;
};

}  // namespace kvdecode

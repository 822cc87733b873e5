// SPDX-License-Identifier: MIT
// <kvdecode/cache/rotation_shifts.hpp> - the book-keeping of context shifts where position p lies in slot p:
// which positions have keys that were rotated somewhere else.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/run_iterator.hpp>
#include <kvdecode/core/memory.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {

/// Pieces of a sequence by their rotation shift. One piece, without a shift, until the first shift().
class RotationShifts {
 public:
  using Piece = RotationPiece;

  RotationShifts() = default;
  /// Those of a checked record. @throws std::bad_alloc
  explicit RotationShifts(const CacheRecord& record) {
    if (record.rotation.empty()) return;
    pieces_.reserve(record.rotation.size() + 1);
    pieces_.assign(record.rotation.begin(), record.rotation.end());
    if (pieces_.back().rotation_shift != 0) pieces_.push_back({record.kv_len, 0});
  }

  /// Positions [first + delta, first) go, p >= first become p + delta. O(pieces).
  /// @pre delta < 0 <= first + delta, first <= kv_len  @throws std::bad_alloc, unchanged
  void shift(Index first, Index delta, Index kv_len) {
    Vector<Piece> pieces;
    pieces.reserve(2 * pieces_.size() + 4);  // truncate() must find room
    const auto add = [&pieces](Index position, Index rotation_shift) {
      if (pieces.empty() || pieces.back().rotation_shift != rotation_shift)
        pieces.push_back({position, rotation_shift});
    };
    const auto for_each = [&](auto&& f) {
      for (Index i = 0; i < std::max<Index>(1, size()); ++i)
        f(at(i), i + 1 < size() ? at(i + 1).position : kv_len);
    };
    for_each([&](const Piece& piece, Index end) {
      if (piece.position < std::min(end, first + delta)) add(piece.position, piece.rotation_shift);
    });
    for_each([&](const Piece& piece, Index end) {
      const Index begin = std::max(piece.position, first);
      if (begin < end) add(begin + delta, piece.rotation_shift + delta);
    });
    add(kv_len + delta, 0);
    if (pieces.size() == 1) pieces.clear();
    pieces_ = std::move(pieces);
  }
  /// What is appended at new_len is rotated where it stands. @pre new_len is not beyond the sequence
  void truncate(Index new_len) noexcept {
    const std::size_t before = pieces_.size();
    while (!pieces_.empty() && pieces_.back().position >= new_len) pieces_.pop_back();
    if (pieces_.size() < before && !pieces_.empty() && pieces_.back().rotation_shift != 0)
      pieces_.push_back({new_len, 0});
  }
  void clear() noexcept { pieces_.clear(); }

  Index size() const noexcept { return static_cast<Index>(pieces_.size()); }
  const Piece* data() const noexcept { return pieces_.data(); }

 private:
  Piece at(Index i) const noexcept {
    return pieces_.empty() ? Piece{} : pieces_[static_cast<std::size_t>(i)];
  }

  Vector<Piece> pieces_;  // by position, none empty but the last, which has no shift
};

/// Rows that lie one after another, as one run for each piece of their rotation shifts: the range that keys() and
/// values() of an unfragmented cache return.
template <class F>
class ShiftedRuns {
 public:
  using Iterator = RunIterator<ShiftedRuns, F>;

  ShiftedRuns() noexcept = default;
  /// @param all  positions [0, length)
  ShiftedRuns(const KvRun<F>& all, const RotationShifts& shifts) noexcept
      : all_(all), pieces_(shifts.data()), n_pieces_(shifts.size()) {
    n_runs_ = std::max<Index>(1, n_pieces_);
    if (n_pieces_ > 0 && pieces_[n_pieces_ - 1].position >= all.length) --n_runs_;
    if (all.length == 0) n_runs_ = 0;
  }

  Iterator begin() const noexcept { return {*this, 0}; }
  Iterator end() const noexcept { return {*this, n_runs_}; }
  /// Run i of those between begin() and end().
  KvRun<F> run(Index i) const noexcept {
    if (n_pieces_ == 0) return all_;
    const Index begin = pieces_[i].position;
    const Index end = i + 1 < n_runs_ ? pieces_[i + 1].position : all_.length;
    return {begin, end - begin, all_.data + begin * all_.row_stride, all_.row_stride,
            pieces_[i].rotation_shift};
  }

 private:
  KvRun<F> all_;
  const RotationShifts::Piece* pieces_ = nullptr;
  Index n_pieces_ = 0;
  Index n_runs_ = 0;
};

}  // namespace kvdecode

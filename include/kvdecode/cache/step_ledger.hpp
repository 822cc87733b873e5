// SPDX-License-Identifier: MIT
// <kvdecode/cache/step_ledger.hpp> - the book-keeping that all caches share: how far the sequence is
// committed, how far each layer is ahead of it, and how much is reserved.
#pragma once

#include <kvdecode/core/error.hpp>
#include <kvdecode/core/kv_shape.hpp>
#include <kvdecode/core/memory.hpp>

#include <algorithm>

namespace kvdecode::inline KVDECODE_ABI {

/// Lengths of one step, reserve … commit. Knows no storage.
class StepLedger {
 public:
  explicit StepLedger(const KvShape& shape)
      : ahead_(shape.layers.size(), 0), owns_store_(shape.layers.size()) {
    for (Index layer = 0; layer < shape.n_layers(); ++layer)
      owns_store_[static_cast<std::size_t>(layer)] = shape.owns_store(layer);
  }

  Index kv_len() const noexcept { return kv_len_; }
  Index reserved() const noexcept { return reserved_; }
  Index epoch() const noexcept { return epoch_; }
  /// Positions stored in this layer: committed ones, and those appended since.
  Index length(Index layer) const noexcept { return kv_len_ + ahead_[static_cast<std::size_t>(layer)]; }

  /// Throws Error unless n more positions are within `capacity`. Changes nothing.
  void require_room(Index n, Index capacity) const {
    if (n < 0) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "KV cache: cannot reserve ", n, " positions");
    if (n > capacity - kv_len_) [[unlikely]]
      detail::raise(ErrorCode::kCacheFull, "KV cache full: max_seq_len ", capacity, ", kv_len ", kv_len_,
                    ", n_new ", n);
  }
  void reserve(Index n) noexcept {
    abandon();
    reserved_ = n;
  }
  /// n rows were written to the layer. @pre they were reserved, and the layer has rows of its own
  void append(Index layer, Index n) noexcept {
    KVDECODE_EXPECTS(owns_store_[static_cast<std::size_t>(layer)] != 0);
    KVDECODE_EXPECTS(ahead_[static_cast<std::size_t>(layer)] + n <= reserved_);
    ahead_[static_cast<std::size_t>(layer)] += n;
  }
  void commit() noexcept {
    const Index n = committable();
    kv_len_ += n;
    reserved_ -= n;
    for (Index& ahead : ahead_) ahead = std::max<Index>(0, ahead - n);
  }
  void abandon() noexcept {
    std::fill(ahead_.begin(), ahead_.end(), Index{0});
    reserved_ = 0;
  }
  void truncate(Index new_len) noexcept {
    abandon();
    kv_len_ = new_len;
  }
  /// Positions [0, kv_len) were written by somebody else. @pre they are there
  void adopt(Index kv_len) noexcept {
    abandon();
    kv_len_ = kv_len;
  }
  void clear(Index epoch) noexcept {
    truncate(0);
    epoch_ = epoch;
  }
  /// The sequence of a record.
  void restore(Index kv_len, Index epoch) noexcept {
    clear(epoch);
    kv_len_ = kv_len;
  }
  /// Whether positions [first + delta, first) can go and those behind them take their places.
  bool can_shift(Index first, Index delta) const noexcept {
    return delta < 0 && first >= 0 && first <= kv_len_ && delta >= -first && epoch_ == 0;
  }
  /// Throws Error that says why not.
  [[noreturn]] void fail_shift(Index first, Index delta) const {
    if (epoch_ != 0)
      detail::raise(ErrorCode::kUnsupported, "KV cache: cannot shift keys of rotary epoch ", epoch_,
                    ", their angles belong to the length of the sequence");
    detail::raise(ErrorCode::kBadArgument, "KV cache: cannot shift positions from ", first, " by ", delta,
                  ", which must be negative and lead to a position of the sequence, kv_len ", kv_len_);
  }
  /// Throws Error (kBadArgument) that says why the length cannot become new_len.
  [[noreturn]] void fail_truncate(Index new_len) const {
    detail::raise(ErrorCode::kBadArgument, "KV cache: cannot truncate to ", new_len, " positions, kv_len ",
                  kv_len_);
  }

 private:
  /// How many positions every layer with rows of its own has been given.
  Index committable() const noexcept {
    Index n = reserved_;
    for (std::size_t layer = 0; layer < ahead_.size(); ++layer)
      if (owns_store_[layer]) n = std::min(n, ahead_[layer]);
    return n;
  }

  Index kv_len_ = 0;
  Index reserved_ = 0;
  Index epoch_ = 0;
  Vector<Index> ahead_;  // [n_layers] rows appended since the last commit
  Vector<unsigned char> owns_store_;
};

}  // namespace kvdecode

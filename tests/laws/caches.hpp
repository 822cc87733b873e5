// SPDX-License-Identifier: MIT
// <laws/caches.hpp> - caches that no program wants, to see what laws and forward make of them: one that takes
// few rows a step, one in small pages at odd addresses, one that spoils a number at a moment of one's choice.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/step_ledger.hpp>
#include <kvdecode/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace kvdecode_laws {

using kvdecode::F32;
using kvdecode::Index;
using kvdecode::KvRun;
using kvdecode::KvShape;
using kvdecode::RowsView;

/// A Base that takes at most n_max rows between two commits, as rings do, and remembers how many it was given
/// at most.
template <class Base, Index n_max>
class SmallSteps : public Base {
 public:
  SmallSteps(KvShape shape, Index capacity, typename Base::Options options = {})
      : Base(std::move(shape), capacity, options) {}

  template <class S>
  void append(Index layer, RowsView<const S> k, RowsView<const S> v) noexcept {
    if (layer == 0) widest_ = std::max(widest_, n_uncommitted_ += k.rows);
    Base::append(layer, k, v);
  }
  void commit() noexcept {
    n_uncommitted_ = 0;
    Base::commit();
  }
  void abandon() noexcept {
    n_uncommitted_ = 0;
    Base::abandon();
  }
  SmallSteps fork() const { return SmallSteps(Base::fork()); }
  Index max_append() const noexcept { return n_max; }

  Index widest_step() const noexcept { return widest_; }

 private:
  explicit SmallSteps(Base&& base) : Base(std::move(base)) {}

  Index n_uncommitted_ = 0;
  Index widest_ = 0;
};

/// Keys and values in pages of page_size positions. A page holds all layers and heads, one byte off
/// alignment; no two rows of a head are next to each other.
template <class KFormat = F32, class VFormat = KFormat, Index page_size = 3>
class SmallPages {
 public:
  using KeyFormat = KFormat;
  using ValueFormat = VFormat;
  struct Options {};

  SmallPages(KvShape shape, Index capacity, Options = {})
      : shape_(std::move(shape)), capacity_(capacity), ledger_(shape_) {
    Index offset = 1;
    for (const kvdecode::LayerKvShape& layer : shape_.layers) {
      places_.push_back({offset, offset + KFormat::row_bytes(layer.k_dim)});
      head_bytes_.push_back(KFormat::row_bytes(layer.k_dim) + VFormat::row_bytes(layer.v_dim));
      offset += layer.n_kv_heads * head_bytes_.back();
    }
    slot_bytes_ = offset;
  }
  SmallPages(SmallPages&&) noexcept = default;
  SmallPages& operator=(SmallPages&&) noexcept = default;

  void reserve(Index n) {
    ledger_.require_room(n, capacity_);
    while (static_cast<Index>(pages_.size()) * page_size < ledger_.kv_len() + n)
      pages_.emplace_back(static_cast<std::size_t>(page_size * slot_bytes_));
    ledger_.reserve(n);
  }
  template <class S>
  void append(Index layer, RowsView<const S> k, RowsView<const S> v) noexcept {
    const kvdecode::LayerKvShape& dims = shape_[layer];
    const Index first = ledger_.length(layer);
    ledger_.append(layer, k.rows);
    for (Index i = 0; i < k.rows; ++i)
      for (Index head = 0; head < dims.n_kv_heads; ++head) {
        const Index position = first + i;
        KFormat::encode(k.row(i) + head * dims.k_dim, dims.k_dim,
                        const_cast<std::byte*>(row(places(layer).first, layer, head, position)));
        VFormat::encode(v.row(i) + head * dims.v_dim, dims.v_dim,
                        const_cast<std::byte*>(row(places(layer).second, layer, head, position)));
      }
  }
  void commit() noexcept { ledger_.commit(); }
  void abandon() noexcept { ledger_.abandon(); }

  /// One run a page.
  template <class F>
  class Runs {
   public:
    class Iterator {
     public:
      using value_type = KvRun<F>;
      using difference_type = std::ptrdiff_t;

      Iterator() = default;
      Iterator(const Runs& runs, Index position) : runs_(runs), position_(position) {}
      KvRun<F> operator*() const noexcept {
        return {position_, std::min(page_size, runs_.length - position_),
                runs_.cache->row(runs_.offset, runs_.layer, runs_.head, position_), runs_.cache->slot_bytes_,
                0};
      }
      Iterator& operator++() noexcept {
        position_ = std::min(position_ + page_size, runs_.length);
        return *this;
      }
      Iterator operator++(int) noexcept {
        Iterator old = *this;
        ++*this;
        return old;
      }
      friend bool operator==(const Iterator& a, const Iterator& b) { return a.position_ == b.position_; }

     private:
      Runs runs_{};
      Index position_ = 0;
    };

    Iterator begin() const noexcept { return {*this, 0}; }
    Iterator end() const noexcept { return {*this, length}; }

    const SmallPages* cache = nullptr;
    Index offset = 0, layer = 0, head = 0, length = 0;
  };
  Runs<KFormat> keys(Index layer, Index kv_head) const noexcept {
    const Index store = shape_[layer].store;
    return {this, places(store).first, store, kv_head, ledger_.length(store)};
  }
  Runs<VFormat> values(Index layer, Index kv_head) const noexcept {
    const Index store = shape_[layer].store;
    return {this, places(store).second, store, kv_head, ledger_.length(store)};
  }

  bool can_truncate(Index new_len) const noexcept { return new_len >= 0 && new_len <= kv_len(); }
  void truncate(Index new_len) {
    if (!can_truncate(new_len)) ledger_.fail_truncate(new_len);
    ledger_.truncate(new_len);
    pages_.resize(static_cast<std::size_t>((new_len + page_size - 1) / page_size));
  }
  void clear(Index epoch = 0) noexcept {
    ledger_.clear(epoch);
    pages_.clear();
  }
  SmallPages fork() const {
    SmallPages copy(shape_, capacity_);
    copy.pages_ = pages_;
    copy.ledger_ = ledger_;
    copy.ledger_.abandon();
    return copy;
  }

  const KvShape& shape() const noexcept { return shape_; }
  Index kv_len() const noexcept { return ledger_.kv_len(); }
  Index capacity() const noexcept { return capacity_; }
  Index max_append() const noexcept { return capacity_; }
  Index first_position(Index) const noexcept { return 0; }
  Index epoch() const noexcept { return ledger_.epoch(); }
  Index bytes() const noexcept { return static_cast<Index>(pages_.size()) * page_size * slot_bytes_; }
  static Index required_bytes(const KvShape& shape, Index capacity, Options = {}) {
    return (capacity + page_size - 1) / page_size * page_size * SmallPages(shape, 1).slot_bytes_;
  }

 private:
  const std::pair<Index, Index>& places(Index layer) const noexcept {
    return places_[static_cast<std::size_t>(layer)];
  }
  const std::byte* row(Index offset, Index layer, Index head, Index position) const noexcept {
    return pages_[static_cast<std::size_t>(position / page_size)].data() +
           position % page_size * slot_bytes_ + offset + head * head_bytes_[static_cast<std::size_t>(layer)];
  }

  KvShape shape_;
  Index capacity_;
  kvdecode::StepLedger ledger_;
  std::vector<std::pair<Index, Index>> places_;  // [n_layers] bytes from a slot to its keys and values
  std::vector<Index> head_bytes_;                // [n_layers] bytes from a head to the next
  Index slot_bytes_ = 0;
  std::vector<std::vector<std::byte>> pages_;
};

/// When a Spoiled cache changes a number.
enum class Moment {
  kNever,
  kFork,        ///< in the fork
  kForked,      ///< in the original
  kTruncate,    ///< in what is left
  kAbandon,     ///< in what was committed
  kCommitMany,  ///< when several rows are committed together
  kCommitOne,   ///< when a row is committed by itself
  kRoom,        ///< when a row is committed with room for another
  kMove,        ///< in a cache that was moved
  kShift,       ///< in what is left
  kRestore,     ///< in what was taken over
};

/// A Base in which the first number of the oldest key of every layer and head changes at a moment.
template <class Base, Moment moment>
class Spoiled : public Base {
 public:
  Spoiled(KvShape shape, Index capacity, typename Base::Options options = {})
      : Base(std::move(shape), capacity, options) {}
  Spoiled(Spoiled&& other) noexcept : Base(std::move(other)) { spoil(Moment::kMove); }
  Spoiled& operator=(Spoiled&&) noexcept = default;

  void commit() noexcept {
    const Index before = Base::kv_len();
    Base::commit();
    spoil(Base::kv_len() - before > 1 ? Moment::kCommitMany : Moment::kCommitOne);
    if (Base::kv_len() < Base::capacity()) spoil(Moment::kRoom);
  }
  void abandon() noexcept {
    Base::abandon();
    spoil(Moment::kAbandon);
  }
  void truncate(Index new_len) {
    Base::truncate(new_len);
    spoil(Moment::kTruncate);
  }
  void shift(Index first, Index delta) {
    Base::shift(first, delta);
    spoil(Moment::kShift);
  }
  void restore(const kvdecode::CacheRecord& record) requires kvdecode::RestorableCache<Base> {
    Base::restore(record);
    spoil(Moment::kRestore);
  }
  Spoiled fork() const {
    Spoiled copy(Base::fork());
    copy.spoil(Moment::kFork);
    spoil(Moment::kForked);
    return copy;
  }

 private:
  explicit Spoiled(Base&& base) : Base(std::move(base)) {}

  void spoil(Moment now) const noexcept {
    if (now != moment) return;
    for (Index layer = 0; layer < Base::shape().n_layers(); ++layer)
      for (Index head = 0; head < Base::shape()[layer].n_kv_heads; ++head)
        for (const auto& run : Base::keys(layer, head))
          if (run.length > 0) {
            auto& byte = const_cast<std::byte&>(run.data[2]);
            byte = std::byte(std::to_integer<unsigned>(byte) + 0x20);
          }
  }
};

static_assert(kvdecode::KvCacheFor<SmallSteps<kvdecode::ContiguousCache<F32>, 3>, float>);
static_assert(kvdecode::KvCacheFor<SmallPages<F32, kvdecode::F16>, double>);
static_assert(kvdecode::KvCacheFor<Spoiled<kvdecode::ContiguousCache<F32>, Moment::kFork>, float>);

}  // namespace kvdecode_laws

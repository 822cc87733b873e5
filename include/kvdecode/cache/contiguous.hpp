// SPDX-License-Identifier: MIT
// <kvdecode/cache/contiguous.hpp> - the plain KV cache: all memory allocated once, position p in slot p.
// Choose it when the longest sequence is known: nothing moves, nothing allocates after construction,
// attention reads one stream a head.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/unfragmented.hpp>

#include <utility>

namespace kvdecode::inline KVDECODE_ABI {

/// Keys and values of up to `capacity` positions in one block, [layer][kv_head][position][dim].
///
/// Bytes: sum over layers of n_kv_heads * capacity * (row_bytes(k_dim) + row_bytes(v_dim)), whatever kv_len
/// is. append costs O(n_new), everything else O(1) or O(layers), fork and restore O(kv_len), shift
/// O(kv_len - first): rows move to their new slots, byte for byte.
///
/// @tparam KFormat, VFormat  how keys and values are stored. Attention reads them back in this format, also the
/// rows of the step in progress: chunking never shows.
template <Format KFormat = F32, Format VFormat = KFormat>
class ContiguousCache : public UnfragmentedCache<KFormat, VFormat> {
  using Base = UnfragmentedCache<KFormat, VFormat>;

 public:
  struct Options {};

  /// @param capacity  positions, >= 1
  /// @throws Error kBadArgument, kUnsupported (a format that does not take such rows), std::bad_alloc
  ContiguousCache(KvShape shape, Index capacity, Options = {}) : Base(std::move(shape), checked(capacity)) {
    Base::make_rows(capacity);
  }

  ContiguousCache(ContiguousCache&&) noexcept = default;
  ContiguousCache& operator=(ContiguousCache&&) noexcept = default;

  void reserve(Index n) {
    Base::require_room(n);
    Base::start_step(n);
  }
  void restore(const CacheRecord& record) {
    Base::restore_from(record, [](Index) {});
  }
  ContiguousCache fork() const {
    ContiguousCache copy(Base::shape(), Base::capacity());
    copy.copy_from(*this);
    return copy;
  }

  static Index required_bytes(const KvShape& shape, Index capacity, Options = {}) {
    return Base::required_row_bytes(shape, capacity);
  }

 private:
  static Index checked(Index capacity) {
    if (capacity < 1) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "KV cache: the capacity must be at least 1 position, got ",
                    capacity);
    return capacity;
  }
};

static_assert(ShiftableCache<ContiguousCache<F32>> && KvCacheFor<ContiguousCache<F16, BF16>, float>);
static_assert(RestorableCache<ContiguousCache<F16>>);
static_assert(!KvCacheFor<ContiguousCache<Raw<float>>, double>, "Raw<float> holds float only.");

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// The smallest KvCache is one, and is none without any single one of its requirements.
#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/cross_attention.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/sink.hpp>
#include <kvdecode/cache/sliding_window.hpp>
#include <kvdecode/core/counting.hpp>

#include <span>
#include <type_traits>
#include <utility>

namespace {

using kvdecode::F32;
using kvdecode::Index;
using kvdecode::KvCache;
using kvdecode::KvCacheFor;
using kvdecode::KvRun;
using kvdecode::KvShape;
using kvdecode::RowsView;

enum Missing {
  kNothing,
  kKeyFormat,
  kValueFormat,
  kKeyFormatIsAFormat,
  kValueFormatIsAFormat,
  kOptions,
  kOptionsDefault,
  kConstructor,
  kMove,
  kNoCopy,
  kShape,
  kKvLen,
  kCapacity,
  kMaxAppend,
  kFirstPosition,
  kBytes,
  kEpoch,
  kReserve,
  kCommit,
  kAbandon,
  kKeys,
  kValues,
  kKeyRuns,
  kValueRuns,
  kCanTruncate,
  kTruncate,
  kClear,
  kFork,
  kRequiredBytes,
  kNoexceptKvLen,
  kNoexceptCommit,
  kNoexceptAbandon,
  kNoexceptKeys,
  kNoexceptValues,
  kNoexceptCanTruncate,
  kNoexceptClear,
  kConstKvLen,
  kConstKeys,
  kConstFork,
  kEnd,
};

template <Missing missing>
struct KeyFormatOf {
  using KeyFormat = std::conditional_t<missing == kKeyFormatIsAFormat, int, F32>;
};
template <>
struct KeyFormatOf<kKeyFormat> {};
template <Missing missing>
struct ValueFormatOf {
  using ValueFormat = std::conditional_t<missing == kValueFormatIsAFormat, int, F32>;
};
template <>
struct ValueFormatOf<kValueFormat> {};

struct NoDefault {
  explicit NoDefault(int) {}
};
template <Missing missing>
struct OptionsOf {
  struct Plain {};
  using Options = std::conditional_t<missing == kOptionsDefault, NoDefault, Plain>;
};
template <>
struct OptionsOf<kOptions> {};
struct Unrelated {};
template <Missing missing>
struct OptionsArgument {
  using type = typename OptionsOf<missing>::Options;
};
template <>
struct OptionsArgument<kOptions> {
  using type = Unrelated;
};

/// Whether it can be moved, and copied.
template <Missing missing>
struct Movability {
  Movability() = default;
  Movability(Movability&&) = default;
  Movability& operator=(Movability&&) = default;
};
template <>
struct Movability<kMove> {
  Movability() = default;
  Movability(const Movability&) = delete;
};
template <>
struct Movability<kNoCopy> {};

/// Has every member that the concept asks for, but the one that is missing.
template <Missing missing>
struct MinimalCache : KeyFormatOf<missing>, ValueFormatOf<missing>, OptionsOf<missing>, Movability<missing> {
  using OptionsType = typename OptionsArgument<missing>::type;
  using Keys = std::span<const KvRun<F32>>;

  MinimalCache(KvShape, Index, OptionsType) requires(missing != kConstructor);

  const KvShape& shape() const requires(missing != kShape);
  Index kv_len() const
      noexcept(missing != kNoexceptKvLen) requires(missing != kKvLen && missing != kConstKvLen);
  Index kv_len() noexcept requires(missing == kConstKvLen);
  Index capacity() const noexcept requires(missing != kCapacity);
  Index max_append() const noexcept requires(missing != kMaxAppend);
  Index first_position(Index) const noexcept requires(missing != kFirstPosition);
  Index bytes() const noexcept requires(missing != kBytes);
  Index epoch() const noexcept requires(missing != kEpoch);
  void reserve(Index) requires(missing != kReserve);
  template <class S>
  void append(Index, RowsView<const S>, RowsView<const S>) noexcept;
  void commit() noexcept(missing != kNoexceptCommit) requires(missing != kCommit);
  void abandon() noexcept(missing != kNoexceptAbandon) requires(missing != kAbandon);
  Keys keys(Index, Index) const
      noexcept(missing != kNoexceptKeys) requires(missing != kKeys && missing != kKeyRuns &&
                                                  missing != kConstKeys);
  Keys keys(Index, Index) noexcept requires(missing == kConstKeys);
  const KvRun<F32>* keys(Index, Index) const noexcept requires(missing == kKeyRuns);  // no range
  Keys values(Index, Index) const
      noexcept(missing != kNoexceptValues) requires(missing != kValues && missing != kValueRuns);
  std::span<const KvRun<kvdecode::F16>> values(Index, Index) const noexcept
      requires(missing == kValueRuns);  // another format
  bool can_truncate(Index) const noexcept(missing != kNoexceptCanTruncate) requires(missing != kCanTruncate);
  void truncate(Index) requires(missing != kTruncate);
  void clear(Index = 0) noexcept(missing != kNoexceptClear) requires(missing != kClear);
  MinimalCache fork() const requires(missing != kFork && missing != kConstFork);
  MinimalCache fork() requires(missing == kConstFork);
  static Index required_bytes(const KvShape&, Index, OptionsType) requires(missing != kRequiredBytes);
};

static_assert(KvCache<MinimalCache<kNothing>>);
static_assert(KvCacheFor<MinimalCache<kNothing>, float> && KvCacheFor<MinimalCache<kNothing>, double>);

template <int... missing>
constexpr bool none_is_a_cache(std::integer_sequence<int, missing...>) {
  static_assert((... && !KvCache<MinimalCache<static_cast<Missing>(missing + 1)>>),
                "a type without one requirement of KvCache is taken for one");
  return true;
}
static_assert(none_is_a_cache(std::make_integer_sequence<int, kEnd - 1>{}));

// A cache that cannot take rows of S, or may fail at it, is none for S.
struct WithoutAppend : MinimalCache<kNothing> {
  template <class S>
  void append(Index, RowsView<const S>, RowsView<const S>) = delete;
  WithoutAppend fork() const;
};
struct ThrowingAppend : MinimalCache<kNothing> {
  using MinimalCache::MinimalCache;
  template <class S>
  void append(Index, RowsView<const S>, RowsView<const S>);
  ThrowingAppend fork() const;
};
static_assert(KvCache<ThrowingAppend> && !KvCacheFor<ThrowingAppend, float>);
static_assert(!KvCacheFor<WithoutAppend, float>);

// The caches of the library, for the scalars that their formats hold.
using kvdecode::ContiguousCache;
using kvdecode::Counting;
using kvdecode::GrowingCache;
using kvdecode::Raw;
static_assert(KvCacheFor<ContiguousCache<>, float> && KvCacheFor<GrowingCache<>, double>);
static_assert(KvCacheFor<ContiguousCache<Raw<Counting<float>>>, Counting<float>>);
static_assert(!KvCacheFor<ContiguousCache<Raw<Counting<float>>>, float>);
static_assert(!KvCacheFor<GrowingCache<Raw<float>>, double>);
static_assert(!KvCacheFor<GrowingCache<F32, Raw<float>>, double>);
static_assert(!KvCache<int> && !KvCache<KvShape>);
using kvdecode::PagedCache;
using kvdecode::SinkCache;
using kvdecode::SlidingWindowCache;
static_assert(KvCacheFor<PagedCache<>, float> && KvCacheFor<SlidingWindowCache<>, double>);
static_assert(KvCacheFor<SinkCache<Raw<Counting<float>>>, Counting<float>>);
static_assert(!KvCacheFor<PagedCache<16, Raw<float>>, double>);
static_assert(std::is_nothrow_move_constructible_v<PagedCache<>> &&
              std::is_nothrow_move_assignable_v<PagedCache<>>);
static_assert(std::is_nothrow_move_constructible_v<SinkCache<>> &&
              std::is_nothrow_move_assignable_v<SinkCache<>>);
using kvdecode::CrossAttentionCache;
static_assert(KvCacheFor<CrossAttentionCache<>, float> &&
              KvCacheFor<CrossAttentionCache<Raw<Counting<float>>>, Counting<float>>);
static_assert(!KvCacheFor<CrossAttentionCache<Raw<float>>, double>);
static_assert(std::is_nothrow_move_constructible_v<CrossAttentionCache<>> &&
              std::is_nothrow_move_assignable_v<CrossAttentionCache<>> &&
              !std::is_copy_constructible_v<CrossAttentionCache<>>);
static_assert(!std::is_copy_constructible_v<PagedCache<>> &&
              !std::is_copy_constructible_v<SlidingWindowCache<>>);

// A cache that shifts has both members, one of which asks and does not throw.
using kvdecode::ShiftableCache;
struct Shiftable : MinimalCache<kNothing> {
  using MinimalCache::MinimalCache;
  bool can_shift(Index, Index) const noexcept;
  void shift(Index, Index);
  Shiftable fork() const;
};
struct OnlyShift : MinimalCache<kNothing> {
  using MinimalCache::MinimalCache;
  void shift(Index, Index);
  OnlyShift fork() const;
};
struct OnlyAsks : MinimalCache<kNothing> {
  using MinimalCache::MinimalCache;
  bool can_shift(Index, Index) const noexcept;
  OnlyAsks fork() const;
};
struct ThrowsWhenAsked : Shiftable {
  using Shiftable::Shiftable;
  bool can_shift(Index, Index) const;
  ThrowsWhenAsked fork() const;
};
static_assert(ShiftableCache<Shiftable>);
static_assert(!ShiftableCache<MinimalCache<kNothing>> && !ShiftableCache<OnlyShift> &&
              !ShiftableCache<OnlyAsks>);
static_assert(!ShiftableCache<ThrowsWhenAsked>);
static_assert(ShiftableCache<ContiguousCache<>> && ShiftableCache<GrowingCache<>> &&
              ShiftableCache<PagedCache<>>);

// So are those that take records.
using kvdecode::CacheRecord;
using kvdecode::RestorableCache;
struct Restorable : MinimalCache<kNothing> {
  using MinimalCache::MinimalCache;
  void restore(const CacheRecord&);
  Restorable fork() const;
};
struct RestoresFromWhatItChanges : MinimalCache<kNothing> {
  using MinimalCache::MinimalCache;
  void restore(CacheRecord&);
  RestoresFromWhatItChanges fork() const;
};
static_assert(RestorableCache<Restorable>);
static_assert(!RestorableCache<MinimalCache<kNothing>> && !RestorableCache<RestoresFromWhatItChanges>);
static_assert(RestorableCache<ContiguousCache<>> && RestorableCache<GrowingCache<>> &&
              RestorableCache<PagedCache<>> && RestorableCache<kvdecode::SlidingWindowCache<>> &&
              RestorableCache<kvdecode::SinkCache<>> && RestorableCache<CrossAttentionCache<>>);

static_assert(!std::is_copy_constructible_v<ContiguousCache<>> &&
              !std::is_copy_assignable_v<ContiguousCache<>>);
static_assert(!std::is_copy_constructible_v<GrowingCache<>> && !std::is_copy_assignable_v<GrowingCache<>>);
static_assert(std::is_nothrow_move_constructible_v<ContiguousCache<>> &&
              std::is_nothrow_move_assignable_v<GrowingCache<>>);
static_assert(!std::is_constructible_v<ContiguousCache<>, int>, "a cache is not made from a number alone");

}  // namespace

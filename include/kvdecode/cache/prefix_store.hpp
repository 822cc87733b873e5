// SPDX-License-Identifier: MIT
// <kvdecode/cache/prefix_store.hpp> - keys and values of sequences that begin alike, kept for the next one: full pages
// in a tree keyed by token ids. A sequence that finds its beginning there refers to those pages, and computes the rest.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/cache/page_pool.hpp>
#include <kvdecode/cache/page_table.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/core/types.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace kvdecode::inline KVDECODE_ABI {

/// A cache in pages that can be shared: PagedCache.
template <class C>
concept SharesPages = KvCache<C> && requires(const C& cache) {
  { C::kPageSize } -> std::convertible_to<Index>;
  { cache.pages() } -> std::same_as<const PageTable&>;
  { cache.pool() } -> std::same_as<PagePool&>;
};

/// The beginnings of sequences of one model, for caches of one type over one pool. Any number of them, on any threads:
/// it locks. Must outlive the decoders that were given its address; its pool must outlive it.
///
/// A node is a page: the keys and values of page_size tokens after those of its parents. insert() and adopt() cost
/// O(prefix / page_size) and copy no row. What was not used for longest goes first, and the end of a sequence before its
/// beginning:
///
///   max_bytes        would be exceeded: pages go, used by caches or not. Every page that the store refers to counts in
///                    full; one that a cache refers to as well stays in memory until that lets go of it
///   the pool's limit would be exceeded by a cache: pages go that no cache refers to, as many as that cache lacks; one
///                    stays while a cache refers to a page that follows it
///
/// A position's rows do not depend on what follows it, nor on how they were computed: what a sequence takes over are
/// the bytes that it would have computed. What makes other bytes needs a store of its own: other weights, another
/// config, other activations. Rows of a rotary epoch other than 0 and rows that a shift has moved are those of one
/// sequence only; they are neither kept nor replaced.
template <class Cache>
class PrefixStore {
  static_assert(SharesPages<Cache>, "Only a PagedCache has pages that sequences can share.");

 public:
  static constexpr Index kPageSize = Cache::kPageSize;
  struct Options {
    Index max_bytes = 0;  // of the pages it refers to; 0: no limit but the pool's
  };
  /// What tells models of one shape apart, as long as they live.
  struct Origin {
    std::uint64_t model = 0;            // Transformer::fingerprint()
    std::string_view activations = {};  // the policy's name, which is never gone
    Index scalar_bytes = 0;

    friend bool operator==(const Origin&, const Origin&) = default;
  };

  /// @param pool   of pages of Cache::page_bytes(shape)
  /// @param shape  of the caches: transformer.kv_shape()
  /// @throws Error kMismatch (the pool's pages), kBadArgument (a budget that holds no page)
  PrefixStore(PagePool& pool, KvShape shape) : PrefixStore(pool, std::move(shape), Options{}) {}
  PrefixStore(PagePool& pool, KvShape shape, Options options)
      : pool_(&pool),
        shape_(std::move(shape)),
        options_(options),
        spare_(this,
               [](void* self, Index n) noexcept { return static_cast<PrefixStore*>(self)->give_back(n); }) {
    if (const Index page_bytes = Cache::page_bytes(shape_); page_bytes != pool.page_bytes()) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, "prefix store: a page of ", kPageSize, " positions has ",
                    page_bytes, " bytes, the pool's have ", pool.page_bytes());
    if (options.max_bytes != 0) max_pages_ = PagePool::pages_within(pool.page_bytes(), options.max_bytes);
    pool_->attach(spare_);
  }
  ~PrefixStore() {
    pool_->detach(spare_);
    clear();
  }
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;

  /// Keeps the full pages of a sequence, or as many of them as its budget holds. The cache goes on as before, and has
  /// its own copy of a page from when it writes to it.
  /// @param tokens  of the cache's positions, from 0 on; positions beyond them are left out, tokens beyond those too
  /// @return the positions that it holds of the sequence now
  /// @throws Error kMismatch (another pool or KvShape), std::bad_alloc: nothing changed
  Index insert(std::span<const TokenId> tokens, const Cache& cache) {
    require_same(cache);
    if (cache.epoch() != 0) return 0;
    const PageTable& table = cache.pages();
    const Index n = std::min(static_cast<Index>(tokens.size()), table.unshifted(cache.kv_len()));
    const std::lock_guard lock(mutex_);
    const Index n_pages = std::min(n / kPageSize, max_pages_);
    Path path = find(tokens, n_pages);
    Vector<OwnedNode> added;
    added.reserve(static_cast<std::size_t>(n_pages - path.n_pages));
    std::uint64_t hash = path.hash;
    for (Index i = path.n_pages; i < n_pages; ++i) {
      const Chunk chunk = chunk_of(tokens, i);
      hash = mixed(hash, chunk);
      added.push_back(new_node(chunk, hash, *table.at(i).page));
    }
    grow_buckets(n_nodes_ + static_cast<Index>(added.size()));
    // From here on nothing throws. The path first: it is what must not make room for its own end.
    touch(path.last);
    while (n_nodes_ + static_cast<Index>(added.size()) > max_pages_) remove(*oldest_);
    for (OwnedNode& node : added) path.last = &link(node.release(), path.last);
    touch(path.last);
    return n_pages * kPageSize;
  }

  /// Lets a cache take over the longest stored beginning of a sequence, unless it has as much. The last token is left
  /// to be run in any case, since its logits are not stored.
  /// @param tokens  of the sequence; the cache's positions, if it has any, are the first of them
  /// @return the positions that the cache has gained; 0: nothing changed
  /// @throws Error kMismatch (another pool or KvShape), std::bad_alloc: nothing changed
  Index adopt(std::span<const TokenId> tokens, Cache& cache) {
    require_same(cache);
    const Index kv_len = cache.kv_len();
    const Index most = std::min(static_cast<Index>(tokens.size()) - 1, cache.capacity()) / kPageSize;
    if (most * kPageSize <= kv_len || cache.epoch() != 0 || cache.pages().unshifted(kv_len) < kv_len)
      return 0;
    const std::lock_guard lock(mutex_);
    const Path path = find(tokens, most);
    if (path.n_pages * kPageSize <= kv_len) return 0;
    const Node* node = path.last;
    cache.adopt(path.n_pages,
                [&](Index) noexcept -> PagePool::Page& { return *std::exchange(node, node->parent)->page; });
    touch(path.last);
    return path.n_pages * kPageSize - kv_len;
  }

  /// Gives back pages until bytes() <= max_bytes; 0: all of them.
  void trim(Index max_bytes) noexcept {
    const std::lock_guard lock(mutex_);
    while (n_nodes_ > 0 && n_nodes_ > max_bytes / pool_->page_bytes()) remove(*oldest_);
  }
  void clear() noexcept { trim(0); }

  /// Positions that it holds of a sequence's beginning. Asking does not count as using.
  Index match(std::span<const TokenId> tokens) const noexcept {
    const std::lock_guard lock(mutex_);
    return find(tokens, static_cast<Index>(tokens.size()) / kPageSize).n_pages * kPageSize;
  }
  /// Bytes of the pages that it refers to; caches may refer to them too.
  Index bytes() const noexcept {
    const std::lock_guard lock(mutex_);
    return n_nodes_ * pool_->page_bytes();
  }
  /// 0: no limit.
  Index max_bytes() const noexcept { return options_.max_bytes; }
  PagePool& pool() const noexcept { return *pool_; }
  const KvShape& shape() const noexcept { return shape_; }
  /// @throws Error kMismatch unless the cache is one of those that the store is for
  void require_same(const Cache& cache) const {
    if (&cache.pool() != pool_) [[unlikely]]
      detail::raise(ErrorCode::kMismatch,
                    "prefix store: the cache's pages are of another pool than the store's");
    if (!(cache.shape() == shape_)) [[unlikely]]
      detail::raise(ErrorCode::kMismatch,
                    "prefix store: the cache was made for another KvShape than the store");
  }
  /// Makes the store that of one model, unless it is already. @throws Error kMismatch if it is another's
  void require_origin(const Origin& origin) {
    const std::lock_guard lock(mutex_);
    if (!origin_) origin_ = origin;
    if (origin_->model != origin.model) [[unlikely]]
      detail::raise(
          ErrorCode::kMismatch,
          "prefix store: it holds keys and values of another model, whose config or weights differ");
    if (!(*origin_ == origin)) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, "prefix store: it holds keys and values of ", origin_->activations,
                    " activations and scalars of ", origin_->scalar_bytes, " bytes, not of ",
                    origin.activations, " and ", origin.scalar_bytes);
  }

 private:
  using Chunk = std::array<TokenId, static_cast<std::size_t>(kPageSize)>;
  /// In a bucket by what leads to it, and in one list by use: parents are newer than their children.
  struct Node {
    Chunk tokens;
    std::uint64_t hash;  // of all tokens up to its last
    PagePool::Page* page;
    Node* parent = nullptr;  // null: it begins a sequence
    Index n_children = 0;
    Node* next = nullptr;  // of its bucket
    Node* newer = nullptr;
    Node* older = nullptr;
  };
  struct Delete {
    void operator()(Node* node) const noexcept {
      std::destroy_at(node);
      Allocator<Node>{}.deallocate(node, 1);
    }
  };
  using OwnedNode = std::unique_ptr<Node, Delete>;
  /// The stored pages that a sequence begins with.
  struct Path {
    Node* last = nullptr;
    Index n_pages = 0;
    std::uint64_t hash = 0;
  };

  static Chunk chunk_of(std::span<const TokenId> tokens, Index i) noexcept {
    Chunk chunk;
    std::copy_n(tokens.begin() + i * kPageSize, kPageSize, chunk.begin());
    return chunk;
  }
  static std::uint64_t mixed(std::uint64_t hash, const Chunk& chunk) noexcept {
    for (const TokenId token : chunk) {
      hash = (hash ^ static_cast<std::uint32_t>(token)) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 32;
    }
    return hash;
  }
  static OwnedNode new_node(const Chunk& chunk, std::uint64_t hash, PagePool::Page& page) {
    return OwnedNode(std::construct_at(Allocator<Node>{}.allocate(1), Node{chunk, hash, &page}));
  }

  // All of these: @pre mutex_ is locked.

  Node*& bucket(std::uint64_t hash) noexcept { return buckets_[hash & (buckets_.size() - 1)]; }
  Path find(std::span<const TokenId> tokens, Index max_pages) const noexcept {
    Path path;
    while (path.n_pages < max_pages && !buckets_.empty()) {
      const Chunk chunk = chunk_of(tokens, path.n_pages);
      const std::uint64_t hash = mixed(path.hash, chunk);
      Node* node = buckets_[hash & (buckets_.size() - 1)];
      while (node != nullptr && !(node->hash == hash && node->parent == path.last && node->tokens == chunk))
        node = node->next;
      if (node == nullptr) break;
      path = {node, path.n_pages + 1, hash};
    }
    return path;
  }
  /// A bucket for each node, at least. @throws std::bad_alloc, unchanged
  void grow_buckets(Index n_nodes) {
    std::size_t n = std::max<std::size_t>(64, buckets_.size());
    while (n < static_cast<std::size_t>(n_nodes)) n *= 2;
    if (n == buckets_.size()) return;
    const Vector<Node*> before = std::exchange(buckets_, Vector<Node*>(n, nullptr));
    for (Node* chain : before)
      while (chain != nullptr) {
        Node* const node = std::exchange(chain, chain->next);
        node->next = std::exchange(bucket(node->hash), node);
      }
  }
  /// Takes a node into the tree, and a reference to its page.
  Node& link(Node* node, Node* parent) noexcept {
    pool_->share(*node->page);
    node->parent = parent;
    if (parent != nullptr) ++parent->n_children;
    node->next = std::exchange(bucket(node->hash), node);
    make_newest(*node);
    ++n_nodes_;
    return *node;
  }
  /// @pre it has no children
  void remove(Node& node) noexcept {
    Node** link = &bucket(node.hash);
    while (*link != &node) link = &(*link)->next;
    *link = node.next;
    unlink_use(node);
    if (node.parent != nullptr) --node.parent->n_children;
    pool_->release(*node.page);
    --n_nodes_;
    Delete{}(&node);
  }
  /// A node and its parents were used.
  void touch(Node* node) noexcept {
    for (; node != nullptr; node = node->parent) {
      unlink_use(*node);
      make_newest(*node);
    }
  }
  void make_newest(Node& node) noexcept {
    node.older = std::exchange(newest_, &node);
    node.newer = nullptr;
    (node.older != nullptr ? node.older->newer : oldest_) = &node;
  }
  void unlink_use(Node& node) noexcept {
    (node.newer != nullptr ? node.newer->older : newest_) = node.older;
    (node.older != nullptr ? node.older->newer : oldest_) = node.newer;
  }
  /// Gives back pages that nobody else refers to, n if there are; returns how many. Locks.
  Index give_back(Index n) noexcept {
    const std::lock_guard lock(mutex_);
    Index n_freed = 0;
    for (Node* node = oldest_; node != nullptr && n_freed < n;) {
      Node* const newer = node->newer;
      if (node->n_children == 0 && !pool_->is_shared(*node->page)) {
        remove(*node);
        ++n_freed;
      }
      node = newer;
    }
    return n_freed;
  }

  PagePool* pool_;
  KvShape shape_;
  Options options_;
  Index max_pages_ = std::numeric_limits<Index>::max();
  mutable std::mutex mutex_;
  std::optional<Origin> origin_;
  Vector<Node*> buckets_;  // a power of two of them, or none
  Index n_nodes_ = 0;
  Node* newest_ = nullptr;
  Node* oldest_ = nullptr;  // has no children: those would be older
  PagePool::Spare spare_;
};

}  // namespace kvdecode

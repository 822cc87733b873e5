// SPDX-License-Identifier: MIT
// <kvdecode/cache/batch.hpp> - sequences of a batch as they are chosen, repeated and put together: beam search and
// several answers to one prompt. Built on fork(): what a fork costs, a copy costs here.
#pragma once

#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/core/error.hpp>

#include <cstddef>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// Makes sequence i of the batch what sequence parents[i] was: the step of a beam search, a choice of some sequences,
/// or their repetition, for as many sequences as there are parents. The last child of a sequence takes it over, the
/// others are forks; steps in progress end.
/// @throws Error kBadArgument (no such parent), whatever fork() throws: nothing changed
template <KvCache C>
void reorder(std::vector<C>& caches, std::span<const Index> parents) {
  const Index n = static_cast<Index>(caches.size());
  std::vector<std::size_t> last(caches.size(), parents.size());  // child of each sequence
  for (std::size_t i = 0; i < parents.size(); ++i) {
    if (parents[i] < 0 || parents[i] >= n) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "batch: sequence ", i, " has parent ", parents[i],
                    ", there are ", n);
    last[static_cast<std::size_t>(parents[i])] = i;
  }
  std::vector<C> forks;  // of those that have more than one child
  forks.reserve(parents.size());
  for (std::size_t i = 0; i < parents.size(); ++i) {
    const auto parent = static_cast<std::size_t>(parents[i]);
    if (last[parent] != i) forks.push_back(caches[parent].fork());
  }
  std::vector<C> chosen;
  chosen.reserve(parents.size());
  // From here on nothing throws.
  auto fork = forks.begin();
  for (std::size_t i = 0; i < parents.size(); ++i) {
    const auto parent = static_cast<std::size_t>(parents[i]);
    if (last[parent] == i) {
      caches[parent].abandon();
      chosen.push_back(std::move(caches[parent]));
    } else {
      chosen.push_back(std::move(*fork++));
    }
  }
  caches = std::move(chosen);
}

/// Puts n of every sequence where it was, next to one another. @throws Error kBadArgument (n < 1), as reorder
template <KvCache C>
void repeat(std::vector<C>& caches, Index n) {
  if (n < 1) [[unlikely]]
    detail::raise(ErrorCode::kBadArgument, "batch: cannot repeat sequences ", n, " times");
  std::vector<Index> parents;
  for (std::size_t i = 0; i < caches.size(); ++i)
    parents.insert(parents.end(), static_cast<std::size_t>(n), static_cast<Index>(i));
  reorder(caches, parents);
}

/// Moves the sequences of another batch of the same model behind those of this one.
/// @throws Error kMismatch (another shape), std::bad_alloc: nothing changed
template <KvCache C>
void merge(std::vector<C>& caches, std::vector<C>&& others) {
  for (std::size_t i = 0; i < others.size(); ++i)
    if (!(others[i].shape() == (caches.empty() ? others : caches).front().shape())) [[unlikely]]
      detail::raise(ErrorCode::kMismatch, "batch: sequence ", i,
                    " of those to merge was made for another KvShape");
  caches.reserve(caches.size() + others.size());
  caches.insert(caches.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
  others.clear();
}

}  // namespace kvdecode

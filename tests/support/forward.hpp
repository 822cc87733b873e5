// SPDX-License-Identifier: MIT
// <support/forward.hpp> - forward calls in one line, their logits copied out of the workspace.
#pragma once

#include <support/model.hpp>

#include <kvdecode/kvdecode.hpp>  // with extern templates where kvdecode::compiled is linked

#include <span>
#include <vector>

namespace kvdecode_test {

using kvdecode::ExecutorRef;
using kvdecode::Rows;
using kvdecode::RowsView;
using kvdecode::Segment;
using kvdecode::TokenId;
using kvdecode::Transformer;
using kvdecode::Workspace;

template <class S>
std::vector<std::vector<S>> copied(RowsView<const S> rows) {
  std::vector<std::vector<S>> result;
  for (Index i = 0; i < rows.rows; ++i) result.emplace_back(rows.row(i), rows.row(i) + rows.cols);
  return result;
}

/// The rows of logits of one call.
template <class S, class Cache>
std::vector<std::vector<S>> forward(const Transformer<S>& transformer, Workspace<S>& workspace, Cache& cache,
                                    std::span<const TokenId> tokens, Rows rows = Rows::kAll,
                                    ExecutorRef exec = {}) {
  return copied(transformer.forward(workspace, exec, Segment<Cache>{&cache, tokens, rows}));
}

/// Logits after every token, from an empty cache: in one call or, where angles depend on the length of the sequence,
/// in one call a token.
template <class S, class Cache = kvdecode::ContiguousCache<kvdecode::Native<S>>>
std::vector<std::vector<S>> all_logits(const Transformer<S>& transformer, std::span<const TokenId> tokens,
                                       ExecutorRef exec = {}) {
  Workspace<S> workspace;
  Cache cache(transformer.kv_shape(), static_cast<Index>(tokens.size()));
  if (transformer.config().rotary_epoch(static_cast<Index>(tokens.size())) == 0)
    return forward(transformer, workspace, cache, tokens, Rows::kAll, exec);
  std::vector<std::vector<S>> rows;
  for (std::size_t n = 1; n <= tokens.size(); ++n) {
    cache.clear(transformer.config().rotary_epoch(static_cast<Index>(n)));
    rows.push_back(forward(transformer, workspace, cache, tokens.first(n), Rows::kLast, exec)[0]);
  }
  return rows;
}

/// The rows one after another, to be compared bit by bit.
template <class T>
std::vector<T> flat(const std::vector<std::vector<T>>& rows) {
  std::vector<T> result;
  for (const std::vector<T>& row : rows) result.insert(result.end(), row.begin(), row.end());
  return result;
}

}  // namespace kvdecode_test

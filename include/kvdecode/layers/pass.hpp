// SPDX-License-Identifier: MIT
// <kvdecode/layers/pass.hpp> - one pass of some tokens through the layers: who they are, where they stand,
// and the scratch memory they are computed in. Owns nothing.
#pragma once

#include <kvdecode/core/executor.hpp>
#include <kvdecode/core/hadamard.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/core/view.hpp>

#include <algorithm>
#include <span>

namespace kvdecode::inline KVDECODE_ABI {

/// Which rows of logits a segment asks for.
enum class Rows {
  kNone,  ///< none: a prompt's part that only fills the cache
  kLast,  ///< that of its last token
  kAll,   ///< one a token
};

/// Some new tokens of one sequence, whose earlier tokens are in the cache.
template <class Cache>
struct Segment {
  Cache* cache = nullptr;
  std::span<const TokenId> tokens{};
  Rows logits = Rows::kLast;
};

/// The tokens of a segment that take part in a pass.
struct PassSegment {
  std::span<const TokenId> tokens{};  // of the whole call
  Rows logits = Rows::kLast;
  Index epoch = 0;      // of its cache
  Index n_done = 0;     // tokens that earlier passes of the call have run
  Index first_row = 0;  // of the pass
  Index n_rows = 0;     // of the pass, from there on
  Index position = 0;   // of the first row in its sequence

  Index n_tokens() const noexcept { return static_cast<Index>(tokens.size()); }
};

/// Where a query stands when it meets keys: min(position, limit) - shift. Keys of sinks seen within the
/// window have a limit, keys that a context shift has moved have a shift.
struct QueryStands {
  std::span<const Index> limits;  // [n_limits]; the first is no limit
  std::span<const Index> shifts;  // [n_shifts]; the first is 0

  Index n_limits() const noexcept { return static_cast<Index>(limits.size()); }
  Index n_shifts() const noexcept { return static_cast<Index>(shifts.size()); }
  Index shift_index(Index shift) const noexcept {
    return static_cast<Index>(std::find(shifts.begin(), shifts.end(), shift) - shifts.begin());
  }
  /// The table of angles for a rotary config of the model, a limit and a shift.
  Index table(Index rotary, Index limit, Index shift) const noexcept {
    return (rotary * n_limits() + limit) * n_shifts() + shift;
  }
};

/// Scratch memory of the mixtures of experts of a pass of N rows; n_used experts a row.
template <class S>
struct ExpertBuffers {
  RowsView<S> router;    // [N, n_experts] logits, then scores
  RowsView<S> choice;    // [N, n_experts + n_groups] scores for the choice, and those of the groups
  S* weights = nullptr;  // [N, n_used]
  Index* ids = nullptr;  // [N, n_used] experts by falling score
  RowsView<S> inputs;    // [N, d_model] rows of one expert, one after another
  RowsView<S> outputs;   // [N, d_model] what it makes of them
  S* by_rank = nullptr;  // [N, n_used, d_model]
};

/// Scratch memory of a pass of N rows. Areas never overlap.
template <class S>
struct PassBuffers {
  RowsView<S> hidden;     // [N, d_model] the residual stream
  RowsView<S> normed;     // [N, d_model]
  RowsView<S> branch;     // [N, d_model] what attention or feed-forward adds
  RowsView<S> queries;    // [N, n_heads * k_dim], here and below of the layer that has most
  RowsView<S> keys;       // [N, n_kv_heads * k_dim]
  RowsView<S> values;     // [N, n_kv_heads * v_dim]; in `keys` where values are in the keys
  RowsView<S> attention;  // [N, n_heads * v_dim]
  S* gate = nullptr;      // [N, d_ff], [N, d_expert] or [N, d_layer_input], whichever is largest
  S* up = nullptr;        // likewise
  ExpertBuffers<S> experts{};
  RowsView<S> layer_inputs;   // [N, n_layers * d_layer_input]
  RowsView<S> query_latents;  // [N, q_lora_rank] of latent attention
  S* by_head = nullptr;       // likewise [N, n_heads * dim]: queries before, values after attention
  S* rotated = nullptr;       // [n_rotations, N, n_heads * k_dim] when a layer needs more than one
  S* cosines = nullptr;       // [n_tables, N, n_angles]
  S* sines = nullptr;         // [n_tables, N, n_angles]
  Index n_angles = 0;         // rotary pairs of the layer that has most
  S* scratch = nullptr;       // [concurrency, scratch_stride]
  Index scratch_stride = 0;
  S* tile_states = nullptr;      // of attention that threads share by tiles of positions
  std::byte* rounded = nullptr;  // what the policy of activations makes of the rows of a product
};

template <class S>
struct Pass;
template <class S>
struct AttentionHeads;
template <class S>
struct AttentionTask;

/// The caches of a pass behind two functions and what they do to rows: layers are compiled once, whatever the caches
/// are.
template <class S>
struct KvPort {
  const void* segments = nullptr;  // of the caches' own type
  /// Appends the rows of keys and values of the pass to the caches.
  void (*append)(const Pass<S>& pass, Index layer) noexcept = nullptr;
  /// Some tiles of the attention of one row of a segment, for the query heads of one KV head.
  void (*attend)(const Pass<S>& pass, const AttentionHeads<S>& heads, const AttentionTask<S>& task,
                 S* scratch) noexcept = nullptr;
  RowTransform key_transform =
      RowTransform::kNone;  // of rows as they are stored: queries meet them turned alike
  RowTransform value_transform = RowTransform::kNone;
};

/// All that a layer needs beside its weights.
template <class S>
struct Pass {
  ExecutorRef exec;
  std::span<const PassSegment> segments;
  KvPort<S> kv;
  QueryStands stands;
  PassBuffers<S> buffers;

  Index n_rows() const noexcept { return buffers.hidden.rows; }
};

}  // namespace kvdecode

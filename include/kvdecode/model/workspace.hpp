// SPDX-License-Identifier: MIT
// <kvdecode/model/workspace.hpp> - the scratch memory of a forward call: one aligned block, sized by the plan
// of the call, kept for the next one. Holds the logits until then.
#pragma once

#include <kvdecode/core/memory.hpp>
#include <kvdecode/core/scalar.hpp>
#include <kvdecode/layers/pass.hpp>

namespace kvdecode::inline KVDECODE_ABI {

/// What a call needs, in rows and scalars.
struct WorkspaceSizes {
  Index n_rows = 0;  // of the largest pass
  Index n_logit_rows = 0;
  Index n_head_rows = 0;  // rows of logits of the largest pass
  Index d_model = 0;
  Index q_dim = 0;  // n_heads * k_dim, here and below of the layer that has most
  Index k_dim = 0;  // n_kv_heads * k_dim
  Index v_dim = 0;  // n_kv_heads * v_dim
  bool values_in_keys = false;
  Index attention_dim = 0;  // n_heads * v_dim
  Index q_lora_rank = 0;
  Index by_head_dim = 0;       // n_heads * max(head_dim, v_head_dim) of latent attention
  Index layer_inputs_dim = 0;  // n_layers * d_layer_input
  Index d_ff = 0;              // or that of an expert or of a layer's inputs, whichever is largest
  Index vocab_size = 0;
  Index n_angles = 0;     // rotary pairs of the layer that has most
  Index n_tables = 0;     // tables of angles
  Index n_rotations = 0;  // of a query in the layer that needs most; 1: in place
  Index concurrency = 0;
  Index scratch = 0;      // scalars a thread
  Index tile_states = 0;  // scalars
  Index rounded_bytes = 0;
  Index n_experts = 0;
  Index n_experts_used = 0;
  Index n_expert_groups = 0;
};

/// One thread at a time. Movable.
template <Scalar S>
class Workspace {
 public:
  /// Bytes it holds.
  Index bytes() const noexcept { return block_.bytes() + expert_ids_.bytes(); }

  /// Makes room for a call. @throws std::bad_alloc; what it held is lost either way
  void prepare(const WorkspaceSizes& sizes) {
    sizes_ = sizes;
    Index total = 0;
    carve(
        [&](Index n) {
          total += rounded(n * static_cast<Index>(sizeof(S)));
          return nullptr;
        },
        sizes.n_rows);
    block_.grow(total);
    expert_ids_.grow(sizes.n_rows * sizes.n_experts_used);
  }

  /// The areas of a pass of n rows. @pre prepare() was called for as many
  PassBuffers<S> buffers(Index n_rows) noexcept {
    std::byte* next = block_.data();
    return carve(
        [&](Index n) {
          S* area = reinterpret_cast<S*>(next);
          next += rounded(n * static_cast<Index>(sizeof(S)));
          return area;
        },
        n_rows);
  }
  /// [n_logit_rows, vocab_size]
  RowsView<S> logits() noexcept {
    return {logits_, sizes_.n_logit_rows, sizes_.vocab_size, sizes_.vocab_size};
  }
  /// The normed rows that the head reads, [n_head_rows, d_model], and where it writes.
  RowsView<S> head_rows() noexcept {
    return {head_rows_, sizes_.n_head_rows, sizes_.d_model, sizes_.d_model};
  }

  /// Lists of the plan: kept here so that a step does not allocate.
  Vector<PassSegment>& segments() noexcept { return segments_; }
  Vector<Index>& shifts() noexcept { return shifts_; }
  Vector<double>& frequencies() noexcept { return frequencies_; }

 private:
  static_assert(std::is_trivially_copyable_v<S>, "Scratch memory holds trivially copyable scalars.");

  static constexpr Index rounded(Index bytes) {
    return (bytes + static_cast<Index>(kCacheLine) - 1) / static_cast<Index>(kCacheLine) *
           static_cast<Index>(kCacheLine);
  }

  /// Asks `take` for each area in turn. The logits come first: their place does not depend on the pass's
  /// rows.
  template <class Take>
  PassBuffers<S> carve(Take&& take, Index n) {
    const WorkspaceSizes& s = sizes_;
    const auto rows = [&](Index cols) { return RowsView<S>{take(n * cols), n, cols, cols}; };
    logits_ = take(s.n_logit_rows * s.vocab_size);
    head_rows_ = take(s.n_head_rows * s.d_model);
    PassBuffers<S> b;
    b.hidden = rows(s.d_model);
    b.normed = rows(s.d_model);
    b.branch = rows(s.d_model);
    b.queries = rows(s.q_dim);
    b.keys = rows(s.k_dim);
    b.values = s.values_in_keys ? RowsView<S>{b.keys.data, n, s.v_dim, s.k_dim} : rows(s.v_dim);
    b.attention = rows(s.attention_dim);
    b.layer_inputs = rows(s.layer_inputs_dim);
    b.query_latents = rows(s.q_lora_rank);
    b.by_head = take(n * s.by_head_dim);
    b.gate = take(n * s.d_ff);
    b.up = take(n * s.d_ff);
    b.rotated = take(s.n_rotations > 1 ? s.n_rotations * n * s.q_dim : 0);
    b.n_angles = s.n_angles;
    b.cosines = take(s.n_tables * n * s.n_angles);
    b.sines = take(s.n_tables * n * s.n_angles);
    if (s.n_experts > 0) {
      const Index choices = n * s.n_experts_used;
      b.experts.router = rows(s.n_experts);
      b.experts.choice = rows(s.n_experts + s.n_expert_groups);
      b.experts.weights = take(choices);
      b.experts.ids = expert_ids_.data();
      b.experts.inputs = rows(s.d_model);
      b.experts.outputs = rows(s.d_model);
      b.experts.by_rank = take(choices * s.d_model);
    }
    b.scratch_stride = rounded(s.scratch * static_cast<Index>(sizeof(S))) / static_cast<Index>(sizeof(S));
    b.scratch = take(s.concurrency * b.scratch_stride);
    b.tile_states = take(s.tile_states);
    constexpr auto scalar = static_cast<Index>(sizeof(S));
    S* const rounded_rows = take((s.rounded_bytes + scalar - 1) / scalar);
    b.rounded = reinterpret_cast<std::byte*>(rounded_rows);
    return b;
  }

  WorkspaceSizes sizes_;
  Block<std::byte> block_;
  Block<Index> expert_ids_;  // [n_rows, n_experts_used]
  S* logits_ = nullptr;
  S* head_rows_ = nullptr;
  Vector<PassSegment> segments_;
  Vector<Index> shifts_;
  Vector<double> frequencies_;  // of the segment at hand, in an epoch of its own
};

}  // namespace kvdecode

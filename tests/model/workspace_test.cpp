// SPDX-License-Identifier: MIT
#include <support/allocation.hpp>
#include <support/names.hpp>

#include <kvdecode/core/counting.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/model/workspace.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace {

using kvdecode::AllocationHook;
using kvdecode::Counting;
using kvdecode::Index;
using kvdecode::PassBuffers;
using kvdecode::RowsView;
using kvdecode::ScopedAllocationHook;
using kvdecode::Workspace;
using kvdecode::WorkspaceSizes;

WorkspaceSizes sizes_of(Index n_rows) {
  return {.n_rows = n_rows,
          .n_logit_rows = 2,
          .n_head_rows = 2,
          .d_model = 32,
          .q_dim = 48,
          .k_dim = 16,
          .v_dim = 16,
          .attention_dim = 48,
          .q_lora_rank = 20,
          .by_head_dim = 60,
          .layer_inputs_dim = 28,
          .d_ff = 44,
          .vocab_size = 37,
          .n_angles = 4,
          .n_tables = 2,
          .n_rotations = 2,
          .concurrency = 3,
          .scratch = 100,
          .tile_states = 50};
}

TEST_CASE_TEMPLATE("workspace: its areas are aligned and never overlap", S, float, double, Counting<double>) {
  Workspace<S> workspace;
  workspace.prepare(sizes_of(5));
  for (const Index n : {1, 3, 5}) {
    CAPTURE(n);
    const PassBuffers<S> b = workspace.buffers(n);
    std::vector<std::pair<S*, Index>> areas;
    for (const RowsView<S>& rows : {b.hidden, b.normed, b.branch, b.queries, b.keys, b.values, b.attention}) {
      CHECK(rows.rows == n);
      CHECK(rows.stride >= rows.cols);
      areas.push_back({rows.data, (n - 1) * rows.stride + rows.cols});
    }
    areas.push_back({b.gate, n * 44});
    areas.push_back({b.up, n * 44});
    areas.push_back({b.layer_inputs.data, n * 28});
    areas.push_back({b.query_latents.data, n * 20});
    areas.push_back({b.by_head, n * 60});
    areas.push_back({b.rotated, 2 * n * 48});
    areas.push_back({b.cosines, 2 * n * 4});
    areas.push_back({b.sines, 2 * n * 4});
    CHECK(b.scratch_stride >= 100);
    areas.push_back({b.scratch, 2 * b.scratch_stride + 100});
    areas.push_back({b.tile_states, 50});
    areas.push_back({workspace.logits().data, 2 * 37});
    areas.push_back({workspace.head_rows().data, 2 * 32});
    std::sort(areas.begin(), areas.end());
    for (std::size_t i = 0; i < areas.size(); ++i) {
      CHECK(reinterpret_cast<std::uintptr_t>(areas[i].first) % 64 == 0);
      if (i > 0) CHECK(areas[i - 1].first + areas[i - 1].second <= areas[i].first);
    }
    CHECK(reinterpret_cast<std::byte*>(areas.back().first + areas.back().second) <=
          reinterpret_cast<std::byte*>(areas.front().first) + workspace.bytes());
  }
}

TEST_CASE("workspace: the logits are in the same place for every pass of a call") {
  Workspace<float> workspace;
  workspace.prepare(sizes_of(5));
  workspace.buffers(5);
  float* const logits = workspace.logits().data;
  workspace.buffers(2);
  CHECK(workspace.logits().data == logits);
  CHECK(workspace.logits().rows == 2);
  CHECK(workspace.logits().cols == 37);
}

TEST_CASE("workspace: grows for larger calls, and keeps its block for smaller ones") {
  Workspace<float> workspace;
  CHECK(workspace.bytes() == 0);
  AllocationHook hook;
  const ScopedAllocationHook scope(hook);
  workspace.prepare(sizes_of(5));
  CHECK(hook.n_allocations == 1);
  const Index bytes = workspace.bytes();
  CHECK(bytes > 5 * (3 * 32 + 2 * 48 + 2 * 16 + 2 * 44) * 4);
  for (const Index n : {5, 1, 4}) workspace.prepare(sizes_of(n));
  CHECK(hook.n_allocations == 1);
  CHECK(workspace.bytes() == bytes);
  workspace.prepare(sizes_of(6));
  CHECK(hook.n_allocations == 2);
  CHECK(workspace.bytes() > bytes);
}

TEST_CASE("workspace: can be used after an allocation that failed") {
  Workspace<float> workspace;
  workspace.prepare(sizes_of(1));
  {
    kvdecode_test::FailingAllocation first(0);
    CHECK_THROWS_AS(workspace.prepare(sizes_of(50)), std::bad_alloc);
  }
  AllocationHook hook;
  const ScopedAllocationHook scope(hook);
  workspace.prepare(sizes_of(1));
  CHECK(hook.n_allocations == 0);
  CHECK(workspace.buffers(1).hidden.data != nullptr);
  workspace.prepare(sizes_of(50));
  CHECK(hook.n_allocations == 1);
}

TEST_CASE("workspace: values that are in the keys are the front of their rows") {
  WorkspaceSizes sizes = sizes_of(5);
  sizes.v_dim = 12;
  sizes.values_in_keys = true;
  Workspace<float> workspace;
  workspace.prepare(sizes);
  const PassBuffers<float> b = workspace.buffers(3);
  CHECK(b.values.data == b.keys.data);
  CHECK(b.values.rows == 3);
  CHECK(b.values.cols == 12);
  CHECK(b.values.stride == 16);
}

}  // namespace

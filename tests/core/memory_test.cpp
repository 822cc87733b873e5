// SPDX-License-Identifier: MIT
#include <support/allocation.hpp>

#include <kvdecode/core/counting.hpp>
#include <kvdecode/core/memory.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>

namespace {

using kvdecode::AllocationHook;
using kvdecode::Block;
using kvdecode::Index;
using kvdecode::kCacheLine;
using kvdecode::ScopedAllocationHook;
using kvdecode::Vector;

static_assert(!std::is_copy_constructible_v<Block<float>> &&
              std::is_nothrow_move_constructible_v<Block<float>>);
static_assert(std::is_nothrow_move_assignable_v<Block<float>>);

bool is_aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % kCacheLine == 0; }

TEST_CASE("memory: a hook counts each allocation and its bytes, of blocks and vectors") {
  AllocationHook hook;
  const ScopedAllocationHook scope(hook);
  const Block<double> block(10);
  CHECK(hook.n_allocations == 1);
  CHECK(hook.n_bytes == 80);
  Vector<float> vector(7);
  CHECK(hook.n_allocations == 2);
  CHECK(hook.n_bytes == 108);
  vector.resize(3);
  const Block<double> empty(0);
  CHECK(hook.n_allocations == 2);
  CHECK(empty.data() == nullptr);
}

TEST_CASE("memory: hooks nest, end with their scope, and belong to their thread") {
  AllocationHook outer;
  {
    const ScopedAllocationHook outer_scope(outer);
    AllocationHook inner;
    {
      const ScopedAllocationHook inner_scope(inner);
      const Block<char> block(1);
    }
    CHECK(inner.n_allocations == 1);
    CHECK(outer.n_allocations == 0);
    std::thread other([] { const Block<char> block(1); });
    other.join();
    CHECK(outer.n_allocations == 0);
    const Block<char> block(1);
  }
  const Block<char> block(1);
  CHECK(outer.n_allocations == 1);
}

TEST_CASE("memory: a hook that refuses makes the allocation throw, uncounted") {
  AllocationHook hook;
  std::size_t asked = 0;
  hook.context = &asked;
  hook.refuse = [](void* context, std::size_t bytes) {
    *static_cast<std::size_t*>(context) = bytes;
    return bytes > 100;
  };
  const ScopedAllocationHook scope(hook);
  const Block<char> small(100);
  CHECK(asked == 100);
  CHECK_THROWS_AS(Block<char>(101), std::bad_alloc);
  CHECK_THROWS_AS(Vector<double>(13), std::bad_alloc);
  CHECK(asked == 104);
  CHECK(hook.n_allocations == 1);
}

TEST_CASE("memory: FailingAllocation refuses the one that it names") {
  kvdecode_test::FailingAllocation second(1);
  const Block<char> a(1);
  CHECK(!second.has_failed());
  CHECK_THROWS_AS(Block<char>(1), std::bad_alloc);
  CHECK(second.has_failed());
  const Block<char> c(1);
}

TEST_CASE("memory: everything begins at a cache line") {
  for (Index n = 1; n < 200; n += 13) {
    const Block<char> block(n);
    CHECK(is_aligned(block.data()));
    const Vector<short> vector(static_cast<std::size_t>(n));
    CHECK(is_aligned(vector.data()));
  }
}

TEST_CASE("memory: sizes that cannot be expressed are refused before they wrap") {
  const std::size_t too_many = std::numeric_limits<std::size_t>::max() / sizeof(double) + 2;
  CHECK_THROWS_AS(kvdecode::Allocator<double>{}.allocate(too_many), std::bad_array_new_length);
  CHECK_THROWS_AS(Block<double>(std::numeric_limits<Index>::max() / 4), std::bad_alloc);
}

TEST_CASE("block: moving hands the memory over and leaves an empty block") {
  Block<int> a(5);
  int* const data = a.data();
  Block<int> b(std::move(a));
  CHECK(b.data() == data);
  CHECK(b.size() == 5);
  CHECK(b.bytes() == 20);
  CHECK(a.data() == nullptr);
  CHECK(a.size() == 0);
  Block<int> c(3);
  c = std::move(b);
  CHECK(c.data() == data);
  CHECK(b.size() == 0);
  c = std::move(*&c);
  CHECK(c.data() == data);
  CHECK(c.size() == 5);
}

TEST_CASE("block: grow keeps what is large enough, and a failed one changes nothing") {
  Block<int> block(4);
  int* const data = block.data();
  block.grow(4);
  block.grow(1);
  CHECK(block.data() == data);
  {
    kvdecode_test::FailingAllocation first(0);
    CHECK_THROWS_AS(block.grow(5), std::bad_alloc);
  }
  CHECK(block.data() == data);
  CHECK(block.size() == 4);
  block.grow(5);
  CHECK(block.size() == 5);
}

TEST_CASE("block: objects with a constructor are constructed") {
  const Block<kvdecode::Counting<double>> block(9);
  for (Index i = 0; i < 9; ++i) CHECK(static_cast<double>(block.data()[i]) == 0.0);
}

}  // namespace

// SPDX-License-Identifier: MIT
#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/picture.hpp>
#include <kvdecode/cache/sliding_window.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

using namespace kvdecode;

const KvShape kShape{{{2, 3, 2, {}, 0},
                      {2, 3, 2, {.window = 4, .n_sink = 2}, 1},
                      {2, 3, 2, {.chunk = 3}, 2},
                      {2, 3, 2, {}, 0}}};

template <class C>
void step(C& cache, Index n) {
  const std::vector<float> numbers(static_cast<std::size_t>(6 * n), 1.0f);
  for (; n > 0; --n) {
    cache.reserve(1);
    for (const Index layer : {0, 1, 2})
      cache.append(layer, RowsView<const float>{numbers.data(), 1, 6, 6},
                   RowsView<const float>{numbers.data(), 1, 4, 4});
    cache.commit();
  }
}

TEST_CASE("picture: a ring and its sinks") {
  SlidingWindowCache<F32, F16> cache(kShape, 64, {.slack = 1, .max_append = 1});
  step(cache, 9);
  CHECK(to_string(describe(cache)) == "keys f32, values f16, 9 of 64 positions, steps of 1, epoch 0, " +
                                          std::to_string(cache.bytes()) +
                                          " bytes\n"
                                          "layer 0\n"
                                          "  [0, 9) slot 0\n"
                                          "layer 1, window 4, sinks 2, all from 4 on\n"
                                          "  [0, 2) slot 0\n"
                                          "  [4, 7) slot 4\n"
                                          "  [7, 9) slot 2\n"
                                          "layer 2, chunk 3, all from 5 on\n"
                                          "  [5, 8) slot 1\n"
                                          "  [8, 9) slot 0\n");
}

TEST_CASE("picture: a page table, with shared pages and shifted positions") {
  PagePool pool(PagedCache<4>::page_bytes(kShape));
  PagedCache<4> cache(kShape, 30, {.pool = &pool});
  step(cache, 10);
  PagedCache<4> fork = cache.fork();
  step(fork, 1);
  cache.shift(6, -3);
  cache.clear(0);
  step(cache, 3);
  fork.shift(6, -3);
  step(fork, 1);
  const CachePicture picture = describe(fork);
  CHECK(picture.stores.size() == 3);
  CHECK(picture.stores[0].runs == picture.stores[2].runs);
  CHECK(
      picture.stores[0].runs ==
      std::vector<RunPicture>{{0, 3, 0, {0, 0}}, {3, 2, -3, {1, 2}}, {5, 3, -3, {3, 0}}, {8, 1, 0, {4, 0}}});
  const std::string text = to_string(picture);
  const std::string expected =
      "layer 0\n"
      "  [0, 3) page 0 slot 0\n"
      "  [3, 5) page 1 slot 2 rotated at 6\n"
      "  [5, 8) page 3 slot 0 rotated at 8\n"
      "  [8, 9) page 4 slot 0\n";
  CHECK_MESSAGE(text.find(expected) != std::string::npos, text);
}

TEST_CASE("picture: pictures are equal where caches hold the same in the same places") {
  ContiguousCache<F16> a(kShape, 20);
  GrowingCache<F16> b(kShape, 20, {.initial_positions = 20});
  step(a, 7);
  step(b, 7);
  CHECK(describe(a) == describe(b));
  CHECK(to_string(describe(a)).find("keys f16, values f16, 7 of 20 positions, steps of 20, epoch 0,") == 0);
  a.truncate(6);
  CHECK(!(describe(a) == describe(b)));
  a.reserve(1);
  const std::vector<float> numbers(6, 1.0f);
  a.append(1, RowsView<const float>{numbers.data(), 1, 6, 6}, RowsView<const float>{numbers.data(), 1, 4, 4});
  const CachePicture picture = describe(a);  // a step in progress shows
  CHECK(picture.kv_len == 6);
  CHECK(picture.stores[0].runs == std::vector<RunPicture>{{0, 6, 0, {-1, 0}}});
  CHECK(picture.stores[1].runs == std::vector<RunPicture>{{0, 7, 0, {-1, 0}}});
  CHECK(describe(ContiguousCache<F16>(kShape, 3)).stores[0].runs.empty());
}

}  // namespace

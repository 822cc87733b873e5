// SPDX-License-Identifier: MIT
#include <support/allocation.hpp>

#include <kvdecode/cache/batch.hpp>
#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/cross_attention.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/sink.hpp>
#include <kvdecode/cache/sliding_window.hpp>
#include <kvdecode/core/error.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace {

using namespace kvdecode;

const KvShape kShape{{{1, 1, 1, {.window = 8}, 0}}};

template <class C>
void push(C& cache, float number) {
  const std::vector<float> numbers{number};
  const RowsView<const float> row{numbers.data(), 1, 1, 1};
  cache.reserve(1);
  cache.append(0, row, row);
  cache.commit();
}
template <class C>
std::vector<float> held(const C& cache) {
  std::vector<float> numbers;
  for (const auto& run : cache.keys(0, 0))
    for (Index i = 0; i < run.length; ++i)
      numbers.push_back(F32::decode<float>(run.data + i * run.row_stride, 0));
  return numbers;
}
template <class C>
std::vector<std::vector<float>> all_held(const std::vector<C>& caches) {
  std::vector<std::vector<float>> numbers;
  for (const C& cache : caches) numbers.push_back(held(cache));
  return numbers;
}
/// Sequences {0}, {1, 1}, {2, 2, 2}, …
template <class C>
std::vector<C> sequences(int n) {
  std::vector<C> caches;
  for (int i = 0; i < n; ++i) {
    caches.emplace_back(kShape, 20);
    for (int j = 0; j <= i; ++j) push(caches.back(), static_cast<float>(i));
  }
  return caches;
}
using Numbers = std::vector<std::vector<float>>;

TEST_CASE_TEMPLATE("batch: reorder makes each sequence what its parent was", C, ContiguousCache<>,
                   GrowingCache<>, PagedCache<2>, SlidingWindowCache<>, SinkCache<>, CrossAttentionCache<>) {
  std::vector<C> caches = sequences<C>(4);
  caches[2].reserve(2);  // a step in progress ends
  const std::vector<float> numbers{99.0f};
  const RowsView<const float> uncommitted{numbers.data(), 1, 1, 1};
  caches[2].append(0, uncommitted, uncommitted);
  reorder(caches, std::vector<Index>{2, 0, 2, 1, 2});
  CHECK(all_held(caches) == Numbers{{2, 2, 2}, {0}, {2, 2, 2}, {1, 1}, {2, 2, 2}});
  for (std::size_t i = 0; i < caches.size(); ++i) push(caches[i], static_cast<float>(10 + i));
  CHECK(all_held(caches) == Numbers{{2, 2, 2, 10}, {0, 11}, {2, 2, 2, 12}, {1, 1, 13}, {2, 2, 2, 14}});
  reorder(caches, std::vector<Index>{3});
  CHECK(all_held(caches) == Numbers{{1, 1, 13}});
  reorder(caches, std::vector<Index>{});
  CHECK(caches.empty());
  reorder(caches, std::vector<Index>{});
}

TEST_CASE_TEMPLATE("batch: repeat and merge", C, ContiguousCache<>, GrowingCache<>, PagedCache<2>,
                   SlidingWindowCache<>, SinkCache<>, CrossAttentionCache<>) {
  std::vector<C> caches = sequences<C>(2);
  repeat(caches, 3);
  CHECK(all_held(caches) == Numbers{{0}, {0}, {0}, {1, 1}, {1, 1}, {1, 1}});
  repeat(caches, 1);
  CHECK(caches.size() == 6);
  push(caches[1], 7.0f);
  std::vector<C> others = sequences<C>(1);
  merge(others, std::move(caches));
  CHECK(all_held(others) == Numbers{{0}, {0}, {0, 7}, {0}, {1, 1}, {1, 1}, {1, 1}});
  std::vector<C> none;
  merge(none, std::move(others));
  CHECK(none.size() == 7);
}

TEST_CASE("batch: parents, counts and shapes that do not fit are refused, nothing changed") {
  std::vector<ContiguousCache<>> caches = sequences<ContiguousCache<>>(2);
  CHECK_THROWS_WITH_AS(reorder(caches, std::vector<Index>{1, 2}),
                       "batch: sequence 1 has parent 2, there are 2", Error);
  CHECK_THROWS_WITH_AS(reorder(caches, std::vector<Index>{-1}),
                       "batch: sequence 0 has parent -1, there are 2", Error);
  CHECK_THROWS_WITH_AS(repeat(caches, 0), "batch: cannot repeat sequences 0 times", Error);
  std::vector<ContiguousCache<>> others;
  others.emplace_back(KvShape{{{1, 1, 1, {}, 0}}}, 20);
  CHECK_THROWS_WITH_AS(merge(caches, std::move(others)),
                       "batch: sequence 0 of those to merge was made for another KvShape", Error);
  CHECK(all_held(caches) == Numbers{{0}, {1, 1}});
  CHECK(others.size() == 1);
}

TEST_CASE_TEMPLATE("batch: a fork that cannot be allocated leaves the batch", C, ContiguousCache<>,
                   GrowingCache<>, PagedCache<2>, SlidingWindowCache<>, SinkCache<>, CrossAttentionCache<>) {
  bool was_refused = true;
  for (Index which = 0; was_refused; ++which) {
    REQUIRE(which < 100);
    std::vector<C> caches = sequences<C>(3);
    was_refused = kvdecode_test::is_refused(which, [&] {
      reorder(caches, std::vector<Index>{1, 1, 2, 2, 1});
    });
    CHECK(all_held(caches) == (was_refused ? Numbers{{0}, {1, 1}, {2, 2, 2}}
                                           : Numbers{{1, 1}, {1, 1}, {2, 2, 2}, {2, 2, 2}, {1, 1}}));
  }
}

TEST_CASE("batch: sequences that share a prompt share its pages") {
  PagePool pool(PagedCache<2>::page_bytes(kShape));
  {
    std::vector<PagedCache<2>> beams;
    beams.emplace_back(kShape, 100, PagedCache<2>::Options{.pool = &pool});
    for (int i = 0; i < 40; ++i) push(beams[0], 1.0f);
    repeat(beams, 8);
    CHECK(pool.pages_in_use() == 20);
    for (int round = 0; round < 5; ++round) {
      for (std::size_t i = 0; i < beams.size(); ++i) push(beams[i], static_cast<float>(i));
      reorder(beams, std::vector<Index>{0, 0, 3, 3, 3, 7, 6, 0});
      CHECK(pool.pages_in_use() <= 20 + 8 * 3);
    }
    CHECK(beams[5].kv_len() == 45);
  }
  CHECK(pool.pages_in_use() == 0);
}

}  // namespace

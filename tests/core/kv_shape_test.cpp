// SPDX-License-Identifier: MIT
#include <kvdecode/core/kv_shape.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace {

using kvdecode::AttentionSpan;
using kvdecode::Index;
using kvdecode::KvShape;

std::vector<Index> seen(const AttentionSpan& span, Index query) {
  std::vector<Index> result;
  for (Index key = 0; key < query + 3; ++key)
    if (span.sees(query, key)) result.push_back(key);
  return result;
}

TEST_CASE("attention span: which positions a query sees, written out") {
  using V = std::vector<Index>;
  const AttentionSpan full{};
  CHECK(seen(full, 0) == V{0});
  CHECK(seen(full, 4) == V{0, 1, 2, 3, 4});
  const AttentionSpan window{.window = 3};
  CHECK(seen(window, 1) == V{0, 1});
  CHECK(seen(window, 2) == V{0, 1, 2});
  CHECK(seen(window, 3) == V{1, 2, 3});
  CHECK(seen(window, 9) == V{7, 8, 9});
  CHECK(seen({.window = 1}, 5) == V{5});
  const AttentionSpan sinks{.window = 3, .n_sink = 2};
  CHECK(seen(sinks, 0) == V{0});
  CHECK(seen(sinks, 1) == V{0, 1});
  CHECK(seen(sinks, 3) == V{0, 1, 2, 3});
  CHECK(seen(sinks, 4) == V{0, 1, 2, 3, 4});
  CHECK(seen(sinks, 5) == V{0, 1, 3, 4, 5});
  CHECK(seen(sinks, 9) == V{0, 1, 7, 8, 9});
  const AttentionSpan chunk{.chunk = 4};
  CHECK(seen(chunk, 3) == V{0, 1, 2, 3});
  CHECK(seen(chunk, 4) == V{4});
  CHECK(seen(chunk, 6) == V{4, 5, 6});
}

TEST_CASE("attention span: everything from first_visible to the query is seen, before it only sinks") {
  for (const AttentionSpan span :
       {AttentionSpan{}, AttentionSpan{.window = 1}, AttentionSpan{.window = 5},
        AttentionSpan{.window = 4, .n_sink = 3}, AttentionSpan{.window = 1, .n_sink = 1},
        AttentionSpan{.chunk = 1}, AttentionSpan{.chunk = 6}}) {
    CAPTURE(span.window);
    CAPTURE(span.n_sink);
    CAPTURE(span.chunk);
    for (Index query = 0; query < 20; ++query)
      for (Index key = 0; key < 24; ++key)
        CHECK(span.sees(query, key) ==
              (key <= query && (key >= span.first_visible(query) || key < span.n_sink)));
  }
}

TEST_CASE("kv shape: a layer owns its rows unless it reads another's") {
  KvShape shape{{{2, 8, 8, {}, 0}, {2, 8, 8, {.window = 4}, 1}, {2, 8, 8, {}, 0}}};
  CHECK(shape.n_layers() == 3);
  CHECK(shape.owns_store(0));
  CHECK(shape.owns_store(1));
  CHECK(!shape.owns_store(2));
  const KvShape same = shape;
  CHECK(same == shape);
  shape.layers[1].span.window = 5;
  CHECK(!(same == shape));
}

}  // namespace

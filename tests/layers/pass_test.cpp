// SPDX-License-Identifier: MIT
#include <support/executors.hpp>

#include <kvdecode/layers/pass.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <vector>

namespace {

using kvdecode::Index;
using kvdecode::QueryStands;

TEST_CASE("for_each_row: every row once, on any number of threads") {
  for (const Index n_threads : {1, 2, 3, 8})
    for (const Index n_rows : {0, 1, 2, 3, 7, 8, 9, 33}) {
      CAPTURE(n_threads);
      CAPTURE(n_rows);
      const kvdecode_test::BackwardsExecutor exec{n_threads};
      std::vector<int> counts(static_cast<std::size_t>(n_rows));
      kvdecode::for_each_row(exec, n_rows, [&](Index row) { ++counts[static_cast<std::size_t>(row)]; });
      CHECK(counts == std::vector<int>(static_cast<std::size_t>(n_rows), 1));
    }
}

TEST_CASE("query stands: a table of angles for each rotary config, limit and shift, the plain one first") {
  const std::vector<Index> limits{std::numeric_limits<Index>::max(), 7, 9}, shifts{0, -4};
  const QueryStands stands{limits, shifts};
  CHECK(stands.n_limits() == 3);
  CHECK(stands.n_shifts() == 2);
  Index next = 0;
  for (Index rotary = 0; rotary < 2; ++rotary)
    for (Index limit = 0; limit < 3; ++limit)
      for (Index shift = 0; shift < 2; ++shift) CHECK(stands.table(rotary, limit, shift) == next++);
  CHECK(stands.shift_index(0) == 0);
  CHECK(stands.shift_index(-4) == 1);
}

}  // namespace

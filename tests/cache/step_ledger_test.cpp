// SPDX-License-Identifier: MIT
// The part of StepLedger that no cache shows: what is still reserved.
#include <kvdecode/cache/step_ledger.hpp>

#include <doctest/doctest.h>

namespace {

using kvdecode::KvShape;
using kvdecode::StepLedger;

TEST_CASE("step ledger: reserved counts down with what is committed, and ends with abandon and truncate") {
  StepLedger ledger(KvShape{{{1, 1, 1, {}, 0}, {1, 1, 1, {}, 1}, {1, 1, 1, {}, 0}}});
  ledger.reserve(10);
  CHECK(ledger.reserved() == 10);
  ledger.append(0, 6);
  ledger.append(1, 4);
  CHECK(ledger.length(0) == 6);
  CHECK(ledger.length(1) == 4);
  CHECK(ledger.kv_len() == 0);
  ledger.commit();
  CHECK(ledger.kv_len() == 4);
  CHECK(ledger.reserved() == 6);
  CHECK(ledger.length(0) == 6);
  ledger.abandon();
  CHECK(ledger.reserved() == 0);
  CHECK(ledger.length(0) == 4);
  ledger.reserve(3);
  ledger.truncate(2);
  CHECK(ledger.reserved() == 0);
  CHECK(ledger.kv_len() == 2);
  ledger.clear(5);
  CHECK(ledger.epoch() == 5);
  CHECK(ledger.kv_len() == 0);
}

}  // namespace

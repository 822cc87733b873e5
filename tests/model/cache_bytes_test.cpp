// SPDX-License-Identifier: MIT
#include <support/model.hpp>

#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/model/cache_bytes.hpp>

#include <doctest/doctest.h>

#include <set>

namespace {

using kvdecode::AttentionSpan;
using kvdecode::F16;
using kvdecode::F32;
using kvdecode::Index;
using kvdecode::KvShape;
using kvdecode::payload_bytes;
using kvdecode_test::config_of;

TEST_CASE("payload bytes: of a uniform model, 2 * layers * kv heads * positions * head_dim * bytes") {
  const KvShape shape = config_of("gqa").kv_shape();
  for (const Index seq_len : {0, 1, 17, 1000}) {
    CHECK(payload_bytes<F32>(shape, seq_len) == 2 * 2 * 2 * seq_len * 8 * 4);
    CHECK(payload_bytes<F16>(shape, seq_len) == 2 * 2 * 2 * seq_len * 8 * 2);
    CHECK(payload_bytes<F16, F32>(shape, seq_len) == 2 * 2 * seq_len * 8 * (2 + 4));
  }
}

TEST_CASE("payload bytes: a layer that reads another's rows costs nothing") {
  KvShape shape = config_of("gqa").kv_shape();
  shape.layers[1].store = 0;
  CHECK(payload_bytes<F32>(shape, 10) == 2 * 2 * 10 * 8 * 4);
}

TEST_CASE("payload bytes: a span keeps what its newest query sees, and what later ones will") {
  for (const AttentionSpan span : {AttentionSpan{.window = 5}, AttentionSpan{.window = 4, .n_sink = 3},
                                   AttentionSpan{.window = 1, .n_sink = 1}, AttentionSpan{.chunk = 6}}) {
    KvShape shape{{{1, 1, 1, span, 0}}};
    Index largest = 0;
    for (Index seq_len = 1; seq_len < 40; ++seq_len) {
      CAPTURE(seq_len);
      Index n_seen = 0;
      for (Index key = 0; key < seq_len; ++key) n_seen += span.sees(seq_len - 1, key);
      largest = std::max(largest, n_seen);  // a chunk sees less again after its edge
      CHECK(payload_bytes<F32>(shape, seq_len) == 8 * largest);
    }
  }
}

}  // namespace

// SPDX-License-Identifier: MIT
// Values that are a part of the keys: every cache holds what it would hold if they had rows of their own, and has none.
#include <support/random.hpp>

#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/cross_attention.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/sink.hpp>
#include <kvdecode/cache/sliding_window.hpp>
#include <kvdecode/core/cache_formats.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/simd/fp_env.hpp>
#include <kvdecode/model/cache_bytes.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace kvdecode;
using kvdecode_test::SplitMix64;

/// Values are 32 numbers, a whole block of every format, of keys of 40; the window is for those that forget.
KvShape shape_of(bool in_keys) {
  const AttentionSpan span{.window = 9, .n_sink = 2};
  return {{{1, 40, 32, span, 0, in_keys}, {2, 33, 32, span, 1, in_keys}, {1, 40, 32, span, 0, in_keys}}};
}

/// A cache whose values are in its keys, and its twin that has rows of values.
template <class Cache>
struct Twins {
  Cache latent;
  Cache plain;

  explicit Twins(Index capacity) : latent(shape_of(true), capacity), plain(shape_of(false), capacity) {}
  Twins(Cache a, Cache b) : latent(std::move(a)), plain(std::move(b)) {}

  void append(Index n, std::uint64_t seed) {
    SplitMix64 random(seed);
    latent.reserve(n);
    plain.reserve(n);
    for (const Index layer : {0, 1}) {
      const LayerKvShape& shape = latent.shape()[layer];
      const Index k_cols = shape.n_kv_heads * shape.k_dim, v_cols = shape.n_kv_heads * shape.v_dim;
      std::vector<float> k, v;
      for (Index i = 0; i < n * k_cols; ++i) {
        k.push_back(static_cast<float>(random.normal()));
        if (i % shape.k_dim < shape.v_dim) v.push_back(k.back());
      }
      with_default_fp_env([&] {
        const RowsView<const float> keys{k.data(), n, k_cols, k_cols};
        latent.append(layer, keys, RowsView<const float>{});
        plain.append(layer, keys, RowsView<const float>{v.data(), n, v_cols, v_cols});
      });
    }
    latent.commit();
    plain.commit();
  }

  /// The first difference between the runs of both.
  std::string difference() const {
    for (const Index layer : {0, 1, 2})
      for (Index head = 0; head < latent.shape()[layer].n_kv_heads; ++head) {
        const std::string where = "layer " + std::to_string(layer) + " head " + std::to_string(head);
        const LayerKvShape& shape = latent.shape()[layer];
        if (!same(latent.keys(layer, head), plain.keys(layer, head), shape.k_dim)) return where + " keys";
        if (!same(latent.values(layer, head), plain.values(layer, head), shape.v_dim))
          return where + " values";
      }
    return {};
  }

 private:
  template <class Runs>
  static bool same(const Runs& a, const Runs& b, Index dim) {
    using F = typename Cache::KeyFormat;
    auto other = b.begin();
    for (const auto& run : a) {
      if (!(other != b.end())) return false;
      const auto expected = *other;
      if (run.position != expected.position || run.length != expected.length ||
          run.rotation_shift != expected.rotation_shift)
        return false;
      for (Index row = 0; row < run.length; ++row)
        for (Index i = 0; i < dim; ++i)
          if (decode_number<F, float>(run.data + row * run.row_stride, i, dim) !=
              decode_number<F, float>(expected.data + row * expected.row_stride, i, dim))
            return false;
      ++other;
    }
    return !(other != b.end());
  }
};

/// Bytes of the rows of values of n positions.
template <class Cache>
Index value_bytes(Index n) {
  return n * 3 * Cache::ValueFormat::row_bytes(32);
}

}  // namespace

TYPE_TO_STRING_AS("contiguous f32", kvdecode::ContiguousCache<kvdecode::F32>);
TYPE_TO_STRING_AS("growing f16", kvdecode::GrowingCache<kvdecode::F16>);
TYPE_TO_STRING_AS("growing int8", kvdecode::GrowingCache<kvdecode::Int8>);
TYPE_TO_STRING_AS("paged 3 bf16", kvdecode::PagedCache<3, kvdecode::BF16>);
TYPE_TO_STRING_AS("paged 16 asym4", kvdecode::PagedCache<16, kvdecode::Asym4>);
TYPE_TO_STRING_AS("sliding window f32", kvdecode::SlidingWindowCache<kvdecode::F32>);
TYPE_TO_STRING_AS("sliding window int4", kvdecode::SlidingWindowCache<kvdecode::Int4>);
TYPE_TO_STRING_AS("sinks f64", kvdecode::SinkCache<kvdecode::F64>);
TYPE_TO_STRING_AS("cross-attention int8", kvdecode::CrossAttentionCache<kvdecode::Int8>);

#define KVDECODE_TEST_LATENT_CACHES                                                                        \
  ContiguousCache<F32>, GrowingCache<F16>, GrowingCache<Int8>, PagedCache<3, BF16>, PagedCache<16, Asym4>, \
      SlidingWindowCache<F32>, SlidingWindowCache<Int4>, SinkCache<F64>, CrossAttentionCache<Int8>

TEST_CASE_TEMPLATE("values in keys: runs over the rows of the keys, whatever is done to the cache", Cache,
                   KVDECODE_TEST_LATENT_CACHES) {
  Twins<Cache> twins(200);
  std::uint64_t seed = 1;
  for (const Index n : {1, 3, 16, 17}) {
    twins.append(n, ++seed);
    CHECK(twins.difference() == "");
  }
  Twins<Cache> fork(twins.latent.fork(), twins.plain.fork());
  CHECK(fork.difference() == "");
  twins.append(5, ++seed);
  fork.append(4, ++seed);
  CHECK(twins.difference() == "");
  CHECK(fork.difference() == "");
  REQUIRE(fork.latent.can_truncate(35));
  fork.latent.truncate(35);
  fork.plain.truncate(35);
  CHECK(fork.difference() == "");
  fork.append(30, ++seed);  // a growing cache grows
  CHECK(fork.difference() == "");
  CHECK(fork.latent.kv_len() == 65);
  if (fork.latent.can_shift(40, -7)) {
    for (Cache* cache : {&fork.latent, &fork.plain}) cache->shift(40, -7);
    CHECK(fork.difference() == "");
    fork.append(20, ++seed);
    CHECK(fork.difference() == "");
  }
  CHECK(twins.difference() == "");
}

TEST_CASE_TEMPLATE("values in keys: cost no bytes", Cache, KVDECODE_TEST_LATENT_CACHES) {
  const Index positions = 48;  // whole pages
  const Index with = Cache::required_bytes(shape_of(false), positions),
              without = Cache::required_bytes(shape_of(true), positions);
  CHECK(with - without == value_bytes<Cache>(positions));
  const Cache cache(shape_of(true), positions);
  if constexpr (std::is_same_v<Cache, ContiguousCache<F32>> || std::is_same_v<Cache, SinkCache<F64>>)
    CHECK(cache.bytes() == without);
  using F = typename Cache::KeyFormat;
  CHECK(payload_bytes<F>(shape_of(true), 5) == 5 * (F::row_bytes(40) + 2 * F::row_bytes(33)));
  CHECK(payload_bytes<F>(shape_of(false), 5) - payload_bytes<F>(shape_of(true), 5) == value_bytes<Cache>(5));
}

TEST_CASE("values in keys: formats that cannot read them there are refused by name") {
  const auto check_refused = []<class Cache>(std::type_identity<Cache>, const KvShape& shape, ErrorCode code,
                                             const std::string& text) {
    CAPTURE(text);
    CHECK(!takes_rows<typename Cache::KeyFormat, typename Cache::ValueFormat>(shape[0]));
    const auto check = [&](auto&& make) {
      std::optional<Error> thrown;
      try {
        make();
      } catch (const Error& error) {
        thrown = error;
      }
      REQUIRE(thrown.has_value());
      CHECK(thrown->code() == code);
      CHECK(std::string(thrown->what()) ==
            "KV cache: layer 0 has values that are a part of its keys, but " + text);
    };
    check([&] { Cache(shape, 8); });
    check([&] { Cache::required_bytes(shape, 8); });
  };
  const auto type = []<class Cache>(Cache*) { return std::type_identity<Cache>{}; };
  const KvShape shape{{{1, 64, 32, {}, 0, true}}};
  check_refused(type(static_cast<ContiguousCache<F16, F32>*>(nullptr)), shape, ErrorCode::kUnsupported,
                "keys are stored as f16, values as f32");
  check_refused(type(static_cast<GrowingCache<Int8, HadInt4>*>(nullptr)), shape, ErrorCode::kUnsupported,
                "keys are stored as int8, values as had_int4");
  // The rows could be turned, but a part of a turned row is not the turned part.
  check_refused(type(static_cast<GrowingCache<HadInt4>*>(nullptr)), shape, ErrorCode::kUnsupported,
                "a row of format had_int4 cannot be read in part");
  check_refused(type(static_cast<PagedCache<4, Turbo3>*>(nullptr)), shape, ErrorCode::kUnsupported,
                "a row of format turbo3 cannot be read in part");
  check_refused(type(static_cast<SlidingWindowCache<F32>*>(nullptr)), {{{1, 64, 65, {}, 0, true}}},
                ErrorCode::kBadArgument, "values have 65 numbers, keys 64");
  for (const Index v_dim : {1, 63, 64}) {
    CHECK(takes_rows<Int4, Int4>({1, 64, v_dim, {}, 0, true}));
    CHECK_NOTHROW(GrowingCache<Int4>({{{1, 64, v_dim, {}, 0, true}}}, 8));
  }
}

// SPDX-License-Identifier: MIT
// A model over a cache that stores turned rows is the model over the same rows turned back: queries are turned as keys
// are, each rotation of them, and what is summed of values is turned back.
#include <support/cache_formats.hpp>
#include <support/compare.hpp>
#include <support/executors.hpp>
#include <support/forward.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/core/thread_team.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

namespace {

using kvdecode::ContiguousCache;
using kvdecode::ErrorCode;
using kvdecode::FormatId;
using kvdecode::GrowingCache;
using kvdecode::HadInt4;
using kvdecode::Index;
using kvdecode::Int8;
using kvdecode::Lanes;
using kvdecode::RowTransform;
using kvdecode::Turbo3;
using kvdecode_test::all_logits;
using kvdecode_test::check_close;
using kvdecode_test::check_same_bits;
using kvdecode_test::flat;
using kvdecode_test::magnitude;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;
using kvdecode_test::TokenId;
using kvdecode_test::tolerance;
using kvdecode_test::Transformer;

/// Rows that went through format F, as scalars S that are turned back.
template <class F, class S>
struct TurnedBack {
  static constexpr FormatId kId = FormatId::kRaw;
  static constexpr std::string_view kName = "turned back";
  static constexpr Index kBlock = 1;
  static constexpr Index row_bytes(Index n) { return static_cast<Index>(sizeof(S)) * n; }

  template <std::same_as<S> T>
  static S decode(const std::byte* row, Index i) {
    return kvdecode::Raw<S>::template decode<S>(row, i);
  }
  template <std::same_as<S> T>
  static Lanes<S> widen(const std::byte* row, Index i) {
    return kvdecode::Raw<S>::template widen<S>(row, i);
  }
  static void encode(const S* values, Index n, std::byte* row) {
    std::vector<std::byte> stored(static_cast<std::size_t>(F::row_bytes(n)));
    F::encode(values, n, stored.data());
    std::vector<S> numbers;
    for (Index i = 0; i < n; ++i) numbers.push_back(kvdecode::decode_number<F, S>(stored.data(), i, n));
    kvdecode::turn_row_back(kvdecode::transform_of<F>(), numbers.data(), n);
    kvdecode::Raw<S>::encode(numbers.data(), n, row);
  }
};

template <class K, class V, class S>
void check_model(const std::string& words) {
  CAPTURE(words);
  const RandomModel model(words);
  const Transformer<S> transformer(model.config, model.weights);
  const std::vector<TokenId> tokens = random_tokens(20, model.config.vocab_size, 12);
  kvdecode::ThreadTeam team(3);
  const auto stored = all_logits<S, ContiguousCache<K, V>>(transformer, tokens, team);
  const auto turned_back =
      all_logits<S, ContiguousCache<TurnedBack<K, S>, TurnedBack<V, S>>>(transformer, tokens);
  if (kvdecode::transform_of<K>() == RowTransform::kNone &&
      kvdecode::transform_of<V>() == RowTransform::kNone)
    check_same_bits(flat(stored), flat(turned_back));
  else  // two layers of some hundred roundings each
    check_close(stored, turned_back, tolerance<S>(400, magnitude(turned_back)));
  // What is stored is not what was computed, or there is nothing to see here.
  CHECK(flat(stored) != flat(all_logits<S>(transformer, tokens)));
}

TEST_CASE_TEMPLATE("turned rows: logits are those of the rows turned back", F, KVDECODE_TEST_CACHE_FORMATS) {
  // One rotation of a query, none, two; norms; a group of one, of three, of four.
  for (const char* words : {"gqa", "hd16 no_positions", "mqa hd16 sinks_within", "mha hd16 head_norms mixed"})
    check_model<F, F, double>(words);
}

TEST_CASE("turned rows: keys and values are turned each in their way") {
  check_model<Int8, HadInt4, double>("gqa hd16 capped");
  check_model<Turbo3, kvdecode::F16, double>("gqa hd16 sinks_within");
  check_model<HadInt4, Turbo3, double>("gqa hd16");
}

template <class Cache>
void check_refused(const kvdecode::KvShape& shape, const std::string& text) {
  const auto check = [&](auto&& make) {
    try {
      make();
      FAIL("nothing was thrown");
    } catch (const kvdecode::Error& error) {
      CHECK(error.code() == ErrorCode::kUnsupported);
      CHECK(std::string(error.what()) == text);
    }
  };
  check([&] { Cache(shape, 8); });
  check([&] { Cache::required_bytes(shape, 8); });
}

TEST_CASE("turned rows: a cache refuses rows that its format does not take, by name") {
  kvdecode::KvShape shape{{{1, 64, 64, {}, 0}, {2, 80, 32, {}, 1}}};
  const std::string keys =
      "KV cache: layer 1 has keys of 80 numbers, but a row of format had_int4 must have "
      "a power of two of at most 1024 numbers";
  check_refused<ContiguousCache<HadInt4>>(shape, keys);
  check_refused<GrowingCache<HadInt4, Int8>>(shape, keys);
  check_refused<GrowingCache<Turbo3>>(shape,
                                      "KV cache: layer 1 has keys of 80 numbers, but a row of format turbo3 "
                                      "must have a power of two of at most 1024 numbers");
  CHECK_NOTHROW(GrowingCache<Int8, HadInt4>(shape, 8));
  CHECK_NOTHROW(ContiguousCache<Int8, Turbo3>(shape, 8));
  shape.layers[1].store = 0;  // reads the rows of layer 0
  CHECK_NOTHROW(ContiguousCache<HadInt4>(shape, 8));
  shape.layers[1].store = 1;
  shape.layers[1].v_dim = 96;
  check_refused<ContiguousCache<Int8, HadInt4>>(
      shape,
      "KV cache: layer 1 has values of 96 numbers, but a row of format had_int4 must have a power of two "
      "of at most 1024 numbers");
}

}  // namespace

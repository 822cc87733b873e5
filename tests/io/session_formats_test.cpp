// SPDX-License-Identifier: MIT
// Sessions of decoders that are chosen at run time, in every format of caches, and of models of other lists of formats.
#include <support/model.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/io/session.hpp>
#include <kvdecode/kvdecode.hpp>

#include <doctest/doctest.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "session_support.hpp"
#include "support.hpp"

namespace {

using namespace kvdecode;
using io_test::check_error;
using io_test::check_session;
using io_test::file_of;
using io_test::TemporaryFolder;
using io_test::transformer_of;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;

TEST_CASE_TEMPLATE("session: decoders that are chosen at run time, in every format", S, float, double) {
  const auto transformer = transformer_of<S>("gqa mixed");
  for (const CacheFormat format : kCacheFormats) {
    CAPTURE(std::string(to_string(format)));
    const auto decoder = [&](DecodeOptions::Strategy strategy) {
      return make_decoder(transformer, {.strategy = strategy, .cache_format = format});
    };
    using enum DecodeOptions::Strategy;
    check_session(decoder(kCached), decoder(kCached));
    check_session(decoder(kCached), decoder(kRecompute));
  }
}

TEST_CASE("session: the file of another model is refused, be it of the same shape") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.session";
  Decoder from(transformer_of("gqa"), Cached<>{});
  from.append(random_tokens(9, 37, 1));
  save_session(path, from);
  const auto refuse = [&](auto&& decoder, std::initializer_list<std::string_view> words,
                          ErrorCode code = ErrorCode::kMismatch) {
    decoder.append(random_tokens(4, 37, 2));
    const auto before = file_of(decoder.record());
    check_error(code, words, [&] { restore_session(path, decoder); });
    CHECK(file_of(decoder.record()) == before);
  };
  refuse(Decoder(transformer_of("gqa", 2), Cached<>{}), {"model.session", "another model"});
  refuse(Decoder(transformer_of("mqa"), Cached<>{}), {"another model"});
  refuse(Decoder(transformer_of("gqa scale"), Cached<>{}), {"another model"});
  refuse(Decoder(transformer_of<double>("gqa"), Cached<>{}), {"scalar \"f32\"", "f64"});
  refuse(Decoder(transformer_of("gqa"), Cached<GrowingCache<F16>>{}), {"keys in \"f32\"", "stores f16"});
  refuse(Decoder(transformer_of("gqa"), Recompute<GrowingCache<F16>>{}), {"keys in \"f32\"", "stores f16"});
  refuse(Decoder(transformer_of("gqa"), Cached<>{.max_seq_len = 8}), {"max_seq_len 8", "9 tokens"},
         ErrorCode::kCacheFull);
  const RandomModel model("gqa");
  refuse(Decoder(Transformer<float, Int8Activations, GgufFormats>(model.config, model.weights), Cached<>{}),
         {"activations \"exact\"", "int8"});
  // The same model in another list of formats, and in another copy.
  Decoder same(Transformer<float, ExactActivations, GgufFormats>(model.config, model.weights), Cached<>{});
  restore_session(path, same);
  CHECK(same.kv_len() == 9);
}

}  // namespace

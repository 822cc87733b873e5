// SPDX-License-Identifier: MIT
// Sessions: going on after a restore is never having stopped, and a file that is not what it should be changes nothing.
#include <support/allocation.hpp>
#include <support/compare.hpp>
#include <support/model.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/io/session.hpp>
#include <kvdecode/kvdecode.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <locale>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support.hpp"

namespace {

using namespace kvdecode;
using io_test::check_error;
using io_test::TemporaryFolder;
using kvdecode_test::check_same_bits;
using kvdecode_test::FailingAllocation;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;
using kvdecode_test::SplitMix64;

constexpr SamplingOptions kOptions{.temperature = 0.9, .top_k = 20, .top_p = 0.95, .seed = 7};

template <class S = float>
Transformer<S> transformer_of(std::string_view words, std::uint64_t seed = 1) {
  const RandomModel model(words, {.seed = seed});
  return Transformer<S>(model.config, model.weights);
}

/// Tokens and the logits that they were sampled from.
template <class S>
struct Continuation {
  std::vector<TokenId> tokens;
  std::vector<S> logits;
};
template <class D, class Picker>
Continuation<typename D::scalar> continued(D& decoder, Picker& sampler, Index n) {
  Continuation<typename D::scalar> result;
  for (Index i = 0; i < n; ++i) {
    const auto logits = i == 0 ? decoder.logits() : decoder.step(result.tokens.back());
    result.logits.insert(result.logits.end(), logits.begin(), logits.end());
    result.tokens.push_back(sampler(logits));
  }
  return result;
}
template <class S>
void check_same(const Continuation<S>& a, const Continuation<S>& b) {
  CHECK(a.tokens == b.tokens);
  check_same_bits(a.logits, b.logits);
}

/// A decoder is stopped in the middle of sampling, another one goes on, with the first one beside it.
template <class From, class To>
void check_session(From from, To to, Index n_prompt = 21) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "session.safetensors";
  Sampling<> sampling(kOptions);
  const auto vocab_size = static_cast<Index>(from.append(random_tokens(n_prompt, 37, 3)).size());
  CHECK(vocab_size == 37);
  continued(from, sampling, 5);
  save_session(path, from, sampling);

  Sampling<> restored({.seed = 99});
  to.append(random_tokens(4, 37, 9));  // something to be forgotten
  const Index n_run = to.statistics().n_tokens_run;
  restore_session(path, to, restored);
  CHECK(std::vector<TokenId>(to.tokens().begin(), to.tokens().end()) ==
        std::vector<TokenId>(from.tokens().begin(), from.tokens().end()));
  to.logits();
  CHECK(to.statistics().n_tokens_run == n_run);  // they were in the file
  CHECK(restored.options().top_k == 20);
  check_same(continued(to, restored, 12), continued(from, sampling, 12));

  // Once more, greedily, without a sampler of the file's.
  restore_session(path, to);
  auto again = std::move(to);
  restore_session(path, from, sampling);
  Greedy greedy;
  check_same(continued(again, greedy, 12), continued(from, greedy, 12));
}

/// From one layout to the next and back, in the formats.
template <class A, class B, class S = float>
void check_layouts(std::string_view words, typename A::Options a = {}, typename B::Options b = {}) {
  CAPTURE(std::string(words));
  const auto transformer = transformer_of<S>(words);
  const Cached<A> first{.max_seq_len = 60, .prefill_chunk = 7, .cache = a};
  const Cached<B> second{.max_seq_len = 75, .prefill_chunk = 5, .cache = b};
  for (const Index n : {1, 21}) {
    check_session(Decoder(transformer, first), Decoder(transformer, second), n);
    check_session(Decoder(transformer, second), Decoder(transformer, first), n);
    check_session(Decoder(transformer, first), Decoder(transformer, first), n);
  }
}

TEST_CASE("session: going on is never having stopped, whatever the layouts") {
  check_layouts<ContiguousCache<F32>, GrowingCache<F32>>("gqa");
  check_layouts<GrowingCache<F64, F16>, PagedCache<4, F64, F16>, double>("mqa hd16");
  check_layouts<PagedCache<4, Int8, HadInt4>, ContiguousCache<Int8, HadInt4>>("gqa experts");
  check_layouts<ContiguousCache<Turbo3>, PagedCache<1, Turbo3>>("learned tied");
  using Ring = SlidingWindowCache<BF16>;
  check_layouts<Ring, Ring>("gqa mixed_sinks", {.slack = 2, .max_append = 3}, {.slack = 5, .max_append = 50});
  check_layouts<SinkCache<Int8>, SlidingWindowCache<Int8>>("gqa sinks_within", {.slack = 0, .max_append = 2},
                                                           {.slack = 1, .max_append = 2});
  check_layouts<SinkCache<F32>, SinkCache<F32>>("chunk", {.slack = 0, .max_append = 1});
}

TEST_CASE("session: what has all positions goes into a ring") {
  const auto transformer = transformer_of("gqa mixed_sinks");
  check_session(Decoder(transformer, Cached<ContiguousCache<>>{}),
                Decoder(transformer, Cached<SlidingWindowCache<>>{.max_seq_len = 60,
                                                                  .cache = {.slack = 1, .max_append = 3}}));
}

TEST_CASE("session: a rotary epoch goes along") {
  for (const std::string_view words : {"longrope", "dynamic"})
    for (const Index n : {4, 20}) {
      const auto transformer = transformer_of(words);
      check_session(Decoder(transformer, Cached<>{}), Decoder(transformer, Cached<PagedCache<4>>{}), n);
    }
  // The keys are of the long epoch, and none has to be computed again for it.
  const TemporaryFolder folder;
  const auto transformer = transformer_of("longrope");
  Decoder from(transformer, Cached<>{});
  Decoder to(transformer, Cached<PagedCache<4>>{});
  from.append(random_tokens(20, 37, 3));
  save_session(folder.path() / "session", from);
  restore_session(folder.path() / "session", to);
  CHECK(to.cache().epoch() == 1);
  to.step(1);
  CHECK(to.statistics().n_tokens_run == 1);
}

TEST_CASE("session: each strategy goes on with what the other left") {
  const auto transformer = transformer_of("gqa sliding");
  const auto cached = [&] { return Decoder(transformer, Cached<GrowingCache<F16>>{}); };
  const auto recompute = [&] { return Decoder(transformer, Recompute<GrowingCache<F16>>{}); };
  check_session(cached(), recompute());
  check_session(recompute(), cached());
  check_session(recompute(), recompute());
}

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

TEST_CASE("session: shifted tokens keep their keys, and go where shifts are known") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "shifted";
  const auto transformer = transformer_of("gqa");
  Decoder from(transformer, Cached<ContiguousCache<>>{.max_seq_len = 60});
  from.append(random_tokens(30, 37, 3));
  from.shift(12, -5);
  from.append(random_tokens(3, 37, 4));
  from.shift(20, -2);
  Greedy greedy;
  save_session(path, from);
  Decoder paged(transformer, Cached<PagedCache<4>>{.max_seq_len = 60});
  restore_session(path, paged);
  // The logits were not at hand: the last token runs again, with the keys of the others.
  const auto expected = continued(from, greedy, 8);
  check_same(continued(paged, greedy, 8), expected);
  from.shift(10, -3);
  paged.shift(10, -3);
  check_same(continued(paged, greedy, 8), continued(from, greedy, 8));

  Decoder ring(transformer, Cached<SlidingWindowCache<>>{.max_seq_len = 60});
  check_error(ErrorCode::kUnsupported, {"shifted", "a ring"}, [&] { restore_session(path, ring); });
  Decoder recompute(transformer, Recompute<>{});
  check_error(ErrorCode::kUnsupported, {"shifted", "Recompute"}, [&] { restore_session(path, recompute); });
}

TEST_CASE("session: a sequence of nothing is one too") {
  const TemporaryFolder folder;
  const auto transformer = transformer_of("gqa");
  Decoder from(transformer, Cached<>{}), to(transformer, Cached<>{});
  save_session(folder.path() / "nothing", from, Greedy{});
  to.append(random_tokens(5, 37, 1));
  Greedy greedy;
  restore_session(folder.path() / "nothing", to, greedy);
  CHECK(to.kv_len() == 0);
  CHECK_THROWS_AS(to.logits(), Error);
  to.append(random_tokens(5, 37, 1));
}

TEST_CASE("session: three lines go on with a story, as the README says") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "story.session";
  kvdecode::Decoder decoder(transformer_of("gqa"), Cached<>{});
  kvdecode::Sampling<> sampler(kOptions);
  decoder.append(random_tokens(5, 37, 1));
  // clang-format off
  // [readme]
  kvdecode::save_session(path, decoder, sampler);
  // … another day:
  kvdecode::restore_session(path, decoder, sampler);
  const auto result = kvdecode::generate(decoder, {}, sampler, {.max_new_tokens = 16});
  // [readme]
  // clang-format on
  restore_session(path, decoder, sampler);
  CHECK(kvdecode::generate(decoder, {}, sampler, {.max_new_tokens = 16}).tokens == result.tokens);
}

TEST_CASE("session: the same state gives the same file, and an old file is replaced") {
  const TemporaryFolder folder;
  const auto transformer = transformer_of("gqa");
  Decoder one(transformer, Cached<ContiguousCache<>>{});
  Decoder other(transformer, Cached<PagedCache<4>>{});
  const auto tokens = random_tokens(12, 37, 1);
  one.append(tokens);
  other.append(std::span(tokens).first(5));
  other.append(std::span(tokens).subspan(5));
  save_session(folder.path() / "one", one, Sampling<>(kOptions), Greedy{});
  folder.write("other", "what was there before");
  save_session(folder.path() / "other", other, Sampling<>(kOptions), Greedy{});
  CHECK(io_test::read_text(folder.path() / "one") == io_test::read_text(folder.path() / "other"));
  check_error(ErrorCode::kBadFile, {"nowhere/one", "cannot be created"},
              [&] { save_session(folder.path() / "nowhere/one", one); });
}

// ---- Samplers and engines ----------------------------------------------------------------------------------

}  // namespace

/// An engine of one's own.
template <>
struct kvdecode::SessionState<kvdecode_test::SplitMix64> {
  static std::string name() { return "SplitMix64"; }
  static std::vector<std::uint64_t> words(const kvdecode_test::SplitMix64& engine) {
    return {std::bit_cast<std::uint64_t>(engine)};
  }
  static kvdecode_test::SplitMix64 from_words(std::span<const std::uint64_t> words) {
    if (words.size() != 1) throw kvdecode::Error(kvdecode::ErrorCode::kBadFile, "one word is a SplitMix64");
    return std::bit_cast<kvdecode_test::SplitMix64>(words[0]);
  }
};

namespace {

TEST_CASE("session: an engine goes on where it was, after any number of draws, whatever the locale") {
  struct Grouping : std::numpunct<char> {
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale(), new Grouping));
  std::mt19937_64 engine(12345);
  for (const int n : {0, 1, 310, 1, 1, 311, 312, 313, 1000}) {
    engine.discard(static_cast<unsigned long long>(n));
    const std::vector<std::uint64_t> words = SessionState<std::mt19937_64>::words(engine);
    std::mt19937_64 restored = SessionState<std::mt19937_64>::from_words(words);
    CHECK(restored == engine);
    std::mt19937_64 original = engine;
    for (int i = 0; i < 700; ++i) REQUIRE(restored() == original());
  }
  std::locale::global(before);
}

TEST_CASE("session: words that are no state of an engine are refused") {
  const std::vector<std::uint64_t> words = SessionState<std::mt19937_64>::words(std::mt19937_64(1));
  const auto refuses = [&](std::vector<std::uint64_t> changed) {
    check_error(ErrorCode::kBadFile, {"no state of a std::mt19937_64"},
                [&] { SessionState<std::mt19937_64>::from_words(changed); });
  };
  refuses({});
  refuses(std::vector<std::uint64_t>(words.begin(), words.end() - 1));
  std::vector<std::uint64_t> changed = words;
  changed.push_back(0);
  refuses(changed);
  for (const std::uint64_t place : {std::uint64_t{313}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    changed = words;
    changed.back() = place;
    refuses(changed);
  }
}

TEST_CASE("session: several samplers and engines, in their order, or none of them") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "session";
  Decoder decoder(transformer_of("gqa"), Cached<>{});
  decoder.append(random_tokens(5, 37, 1));
  SplitMix64 mix(3);
  std::mt19937_64 twister(4);
  Sampling<SplitMix64> sampling(kOptions, SplitMix64(5));
  save_session(path, decoder, mix, twister, sampling);
  SplitMix64 mix_again(0);
  std::mt19937_64 twister_again(0);
  Sampling<SplitMix64> sampling_again;
  restore_session(path, decoder, mix_again, twister_again, sampling_again);
  CHECK(mix_again() == mix());
  CHECK(twister_again == twister);
  CHECK(sampling_again.options().top_p == 0.95);
  for (int i = 0; i < 20; ++i) CHECK(sampling_again(decoder.logits()) == sampling(decoder.logits()));
  restore_session(path, decoder);

  const SplitMix64 untouched = mix_again;
  check_error(ErrorCode::kMismatch, {"session", "has 3 samplers and engines, expected 1"},
              [&] { restore_session(path, decoder, mix_again); });
  check_error(ErrorCode::kMismatch, {"\"mt19937_64\"", "state.1", "expected SplitMix64"},
              [&] { restore_session(path, decoder, mix_again, mix_again, sampling_again); });
  Sampling<> of_twister;
  check_error(ErrorCode::kMismatch, {"sampling by SplitMix64", "expected sampling by mt19937_64"},
              [&] { restore_session(path, decoder, mix_again, twister_again, of_twister); });
  CHECK(std::bit_cast<std::uint64_t>(mix_again) == std::bit_cast<std::uint64_t>(untouched));
}

// ---- Files that are not what they should be ----------------------------------------------------------------

/// The bytes of a session file.
template <class S>
std::string file_of(const DecoderRecord<S>& record, std::vector<kvdecode::detail::NamedWords> states = {}) {
  std::string file;
  const kvdecode::detail::SessionImage image(record, std::move(states));
  for (const std::span<const std::byte> part : image.parts())
    file.append(reinterpret_cast<const char*>(part.data()), part.size());
  return file;
}

/// A decoder of what little it takes, and a file of it.
class Small {
 public:
  using D = Decoder<Transformer<float>, Cached<ContiguousCache<F16>>>;

  Small() : transformer_(make()), decoder_(transformer_, {.max_seq_len = 6}) {
    decoder_.append(random_tokens(3, kVocabSize, 1));
    before_ = file_of(decoder_.record());
    D other(transformer_, {.max_seq_len = 6});
    other.append(random_tokens(4, kVocabSize, 2));
    record_ = std::make_unique<D>(std::move(other));
    file_ = file_of(record_->record(), {{"greedy", {}}});
  }

  static constexpr Index kVocabSize = 3;

  const std::string& file() const { return file_; }
  DecoderRecord<float> record() const { return record_->record(); }
  const Transformer<float>& transformer() const { return transformer_; }
  D& decoder() { return decoder_; }
  const std::string& before() const { return before_; }

  template <class... Ts>
  void restore(std::string_view file, Ts&... states) {
    const io_test::HeapBytes heap(file);
    kvdecode::detail::SessionContents contents(heap.bytes, heap.owner, "a.session");
    kvdecode::detail::restore_from(contents, decoder_, states...);
  }
  /// The file is refused, by an Error that names it, and the decoder is as it was.
  bool refuses(std::string_view file) {
    Greedy greedy;
    const auto error = io_test::error_of([&] { restore(file, greedy); });
    if (!error) return false;
    const std::string text = error->what();
    CHECK_MESSAGE(text.starts_with("a.session: "), text);
    CHECK_MESSAGE(text.size() < 400, text);
    return file_of(decoder_.record()) == before_;
  }

 private:
  static Transformer<float> make() {
    ModelConfig config = kvdecode_test::small_config();
    config.n_layers = config.n_heads = config.n_kv_heads = 1;
    config.head_dim = 2;
    config.d_model = config.d_ff = 4;
    config.vocab_size = kVocabSize;
    const RandomModel model(config);
    return Transformer<float>(model.config, model.weights);
  }

  Transformer<float> transformer_;
  D decoder_;
  std::unique_ptr<D> record_;
  std::string before_, file_;
};

TEST_CASE("session: a file with any byte altered is refused, and changes nothing") {
  Small small;
  CHECK(small.file().size() < 1500);
  for (std::size_t i = 0; i < small.file().size(); ++i)
    for (const int change : {0x01, 0x10, 0x20, 0x80, 0xff}) {
      std::string file = small.file();
      file[i] = static_cast<char>(file[i] ^ change);
      const bool is_refused = small.refuses(file);
      CHECK_MESSAGE(is_refused, "byte ", i, " by ", change);
    }
  Greedy greedy;
  small.restore(small.file(), greedy);  // and this one is not
  CHECK(small.decoder().kv_len() == 4);
}

TEST_CASE("session: a file that is cut short or goes on is refused, and changes nothing") {
  Small small;
  for (std::size_t n = 0; n < small.file().size(); ++n) {
    const bool is_refused = small.refuses(std::string_view(small.file()).substr(0, n));
    CHECK_MESSAGE(is_refused, "cut at byte ", n);
  }
  CHECK(small.refuses(small.file() + '\0'));
  CHECK(small.refuses(small.file() + small.file()));
  const TemporaryFolder folder;
  check_error(ErrorCode::kBadFile, {"missing"},
              [&] { restore_session(folder.path() / "missing", small.decoder()); });
  check_error(ErrorCode::kBadFile, {"empty"},
              [&] { restore_session(folder.write("empty", ""), small.decoder()); });
  check_error(ErrorCode::kBadFile, {"cut.session", "data_offsets"}, [&] {
    restore_session(folder.write("cut.session", small.file().substr(0, small.file().size() - 1)),
                    small.decoder());
  });
  CHECK(file_of(small.decoder().record()) == small.before());
}

/// A session file in parts that can be changed, with the checksum that then belongs to it.
struct Pieces {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsTensor> tensors;
  io_test::HeapBytes heap;

  explicit Pieces(std::string_view file) : heap(file) {
    const SafetensorsFile read(heap.bytes, heap.owner, "pieces");
    metadata.insert(read.metadata().begin(), read.metadata().end());
    tensors.assign(read.tensors().begin(), read.tensors().end());
  }
  SafetensorsTensor& tensor(std::string_view name) {
    return *std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; });
  }
  void erase(std::string_view name) {
    std::erase_if(tensors, [&](const auto& t) { return t.name == name; });
  }
  std::string sealed() {
    metadata["checksum"] = std::string(16, '0');
    std::string head, file;
    for (const auto part : kvdecode::detail::safetensors_parts(tensors, metadata, head))
      file.append(reinterpret_cast<const char*>(part.data()), part.size());
    Hash64 hash;
    hash.add(std::as_bytes(std::span(file)));
    return file.replace(kvdecode::detail::checksum_place(file), 16,
                        kvdecode::detail::hexadecimal(hash.value()));
  }
};

TEST_CASE("session: a file that was sealed with lies is refused by name, and changes nothing") {
  Small small;
  const auto check = [&](ErrorCode code, std::initializer_list<std::string_view> words, const auto& lie) {
    Pieces pieces(small.file());
    lie(pieces);
    const std::string file = pieces.sealed();
    Greedy greedy;
    check_error(code, words, [&] { small.restore(file, greedy); });
    CHECK(small.refuses(file));
  };
  const auto text = [&](ErrorCode code, std::initializer_list<std::string_view> words, const char* name,
                        const char* value) {
    check(code, words, [&](Pieces& p) { p.metadata[name] = value; });
  };
  Greedy greedy;
  small.restore(Pieces(small.file()).sealed(), greedy);
  small.restore(small.before());
  using enum ErrorCode;
  text(kBadFile, {"is not a session file"}, "format", "kvdecode conversation");
  text(kUnsupported, {"version \"2\"", "reads 1"}, "version", "2");
  text(kMismatch, {"another model"}, "model", "0123456789abcdef");
  text(kBadFile, {"model", "sixteen hexadecimal digits"}, "model", "0123456789ABCDEF");
  text(kBadFile, {"model", "sixteen hexadecimal digits"}, "model", "");
  text(kMismatch, {"scalar \"f64\"", "f32"}, "scalar", "f64");
  text(kMismatch, {"activations \"int8\"", "exact"}, "activations", "int8");
  text(kMismatch, {"keys in \"f32\"", "stores f16"}, "k_format", "f32");
  text(kMismatch, {"values in \"a\\nb\""}, "v_format", "a\nb");
  text(kMismatch, {"state.0", "\"sampling\"", "expected greedy"}, "state.0", "sampling");
  text(kBadFile, {"that no session has"}, "more", "");
  for (const char* name : {"format", "version", "model", "scalar", "activations", "k_format", "v_format"})
    check(kBadFile, {}, [&](Pieces& p) { p.metadata.erase(name); });
  check(kMismatch, {"has 0 samplers and engines, expected 1"}, [](Pieces& p) {
    p.metadata.erase("state.0");
    p.erase("state.0");
  });
  for (const char* name : {"tokens", "cache", "positions", "keys.0", "values.0", "state.0"})
    check(kBadFile, {}, [&](Pieces& p) { p.erase(name); });
  check(kBadFile, {"that no session has"}, [](Pieces& p) {
    p.tensors.push_back({"more", SafetensorsDtype::kU8, {0}, {}});
  });
  for (const char* name : {"tokens", "cache", "positions", "keys.0", "values.0", "logits", "state.0"})
    check(kBadFile, {name, "F16"}, [&](Pieces& p) {
      SafetensorsTensor& t = p.tensor(name);
      t.dtype = SafetensorsDtype::kF16;
      t.shape = {static_cast<Index>(t.bytes.size() / 2)};
    });

  // Numbers that are not those of the decoder.
  const auto numbers = [&](ErrorCode code, std::initializer_list<std::string_view> words, const char* name,
                           const auto& values) {
    check(code, words, [&](Pieces& p) {
      p.erase(name);
      p.tensors.push_back(as_tensor(name, {static_cast<Index>(values.size())}, std::span(values)));
    });
  };
  using Tokens = std::vector<TokenId>;
  using Numbers = std::vector<std::int64_t>;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max(), kLeast = -kMost - 1;
  numbers(kBadFile, {"token id 3", "vocabulary of 3"}, "tokens",
          std::span<const TokenId>(Tokens{0, 1, 2, 3}));
  numbers(kBadFile, {"token id -1"}, "tokens", std::span<const TokenId>(Tokens{0, 1, 2, -1}));
  numbers(kBadFile, {"3 tokens and a cache of 4"}, "tokens", std::span<const TokenId>(Tokens{0, 1, 2}));
  numbers(kCacheFull, {"max_seq_len 6", "7 tokens"}, "tokens",
          std::span<const TokenId>(Tokens{0, 1, 2, 0, 1, 2, 0}));
  for (const Numbers& lengths : {Numbers{}, Numbers{4}, Numbers{4, 0, 0}})
    numbers(kBadFile, {"kv_len and epoch"}, "cache", std::span<const std::int64_t>(lengths));
  for (const Numbers& lengths :
       {Numbers{5, 0}, Numbers{kMost, 0}, Numbers{-1, 0}, Numbers{kLeast, 0}, Numbers{4, -1}})
    numbers(kBadFile, {}, "cache", std::span<const std::int64_t>(lengths));
  numbers(kMismatch, {"bytes of keys"}, "cache", std::span<const std::int64_t>(Numbers{3, 0}));
  numbers(kBadFile, {"positions"}, "positions", std::span<const std::int64_t>(Numbers{0, 0}));
  numbers(kMismatch, {"no rows of layer 0"}, "positions", std::span<const std::int64_t>(Numbers{7, 0, 0}));
  for (const Numbers& positions :
       {Numbers{0, 1, 0}, Numbers{0, kMost, kMost}, Numbers{0, 0, 5}, Numbers{0, kLeast, kLeast}})
    numbers(kBadFile, {"layer 0 has positions"}, "positions", std::span<const std::int64_t>(positions));
  for (const Numbers& rotation :
       {Numbers{0, 1}, Numbers{1, 0}, Numbers{0, 0, 4, -1}, Numbers{0, kLeast}, Numbers{0}})
    numbers(kBadFile, {"rotation"}, "rotation", std::span<const std::int64_t>(rotation));
  numbers(kBadFile, {"2 logits"}, "logits", std::span<const float>(std::vector<float>{0, 0}));
  numbers(kBadFile, {"tensor \"logits\""}, "logits", std::span<const double>(std::vector<double>{0, 0, 0}));
  numbers(kBadFile, {"state.0", "a greedy sampler has no state"}, "state.0",
          std::span<const std::uint64_t>(std::vector<std::uint64_t>{1}));
}

TEST_CASE("session: a sampler's options and its engine are checked as if a program gave them") {
  Small small;
  const auto check = [&](std::initializer_list<std::string_view> words, std::size_t i, std::uint64_t word) {
    std::vector<std::uint64_t> state = SessionState<Sampling<>>::words(Sampling<>(kOptions));
    state[i] = word;
    const std::string file = file_of(small.record(), {{SessionState<Sampling<>>::name(), state}});
    Sampling<> sampling;
    check_error(ErrorCode::kBadFile, words, [&] { small.restore(file, sampling); });
    CHECK(file_of(small.decoder().record()) == small.before());
  };
  check({"a.session: state.0", "temperature"}, 0, std::bit_cast<std::uint64_t>(-1.0));
  check({"temperature"}, 0, std::bit_cast<std::uint64_t>(std::numeric_limits<double>::quiet_NaN()));
  check({"top_k"}, 1, ~std::uint64_t{0});
  check({"top_p"}, 2, std::bit_cast<std::uint64_t>(1.5));
  check({"no state"}, 4 + 312, 313);
  const std::string few = file_of(small.record(), {{SessionState<Sampling<>>::name(), {1, 2, 3}}});
  Sampling<> sampling;
  check_error(ErrorCode::kBadFile, {"3 words are too few"}, [&] { small.restore(few, sampling); });
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

TEST_CASE("session: what a ring has forgotten is not made up elsewhere") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "ring.session";
  const auto transformer = transformer_of("gqa sliding");
  const Cached<SlidingWindowCache<>> ring{.max_seq_len = 60, .cache = {.slack = 1, .max_append = 2}};
  Decoder from(transformer, ring);
  Decoder to(transformer, Cached<>{});
  from.append(random_tokens(7, 37, 1));
  save_session(path, from);
  restore_session(path, to);  // nothing is forgotten yet
  CHECK(to.kv_len() == 7);
  from.append(random_tokens(13, 37, 2));
  save_session(path, from);
  check_error(ErrorCode::kMismatch,
              {"ring.session", "layer 0 has no positions [0, 13)", "a ring has forgotten"},
              [&] { restore_session(path, to); });
  CHECK(to.kv_len() == 7);
}

TEST_CASE("session: rows that exist in memory only are not saved") {
  const TemporaryFolder folder;
  Decoder decoder(transformer_of("gqa"), Cached<GrowingCache<Raw<float>>>{});
  check_error(ErrorCode::kUnsupported, {"raw", "memory only"},
              [&] { save_session(folder.path() / "raw", decoder); });
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("session: an allocation that fails, in any place, changes nothing") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "session";
  const auto transformer = transformer_of("gqa");
  Decoder from(transformer, Cached<ContiguousCache<>>{.max_seq_len = 200});
  from.append(random_tokens(90, 37, 1));
  from.shift(20, -5);
  from.append(random_tokens(1, 37, 1));
  Sampling<> sampling(kOptions);
  save_session(path, from, sampling);
  Greedy greedy;
  const auto expected = continued(from, greedy, 3);

  const auto check = [&](auto make) {
    Index n_failed = 0;
    for (bool has_failed = true; has_failed;) {
      auto decoder = make();
      decoder.append(random_tokens(6, 37, 2));
      const auto before = file_of(decoder.record());
      Sampling<> restored({.seed = 1});
      const std::mt19937_64 engine = restored.engine();
      bool threw = false;
      {
        const FailingAllocation failing(n_failed);
        try {
          restore_session(path, decoder, restored);
        } catch (const std::bad_alloc&) {
          threw = true;
        }
        has_failed = failing.has_failed();
      }
      CHECK(threw == has_failed);
      if (threw) {
        CHECK(file_of(decoder.record()) == before);
        CHECK(restored.engine() == engine);
        restore_session(path, decoder, restored);
        ++n_failed;
      }
      CHECK(restored.engine() == sampling.engine());
      check_same(continued(decoder, greedy, 3), expected);
    }
    CHECK(n_failed >= 3);
  };
  check([&] { return Decoder(transformer, Cached<GrowingCache<>>{.max_seq_len = 200}); });
  check([&] { return Decoder(transformer, Cached<PagedCache<4>>{.max_seq_len = 200}); });
}

TEST_CASE("session: after a restore, steps allocate no more than they did") {
  const TemporaryFolder folder;
  const auto transformer = transformer_of("gqa");
  Decoder from(transformer, Cached<ContiguousCache<>>{.max_seq_len = 200});
  from.append(random_tokens(50, 37, 1));
  save_session(folder.path() / "session", from);
  restore_session(folder.path() / "session", from);
  AllocationHook hook;
  const ScopedAllocationHook scope(hook);
  for (const TokenId token : random_tokens(100, 37, 1)) from.step(token);
  CHECK(hook.n_allocations == 0);
}

}  // namespace

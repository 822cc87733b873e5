// SPDX-License-Identifier: MIT
// Session files: what is in them, samplers and engines that go along, and a file that is not what it should be changes
// nothing. (Sequences of all layouts: session_layouts_test.cpp; of all formats: session_formats_test.cpp.)
#include <support/allocation.hpp>
#include <support/model.hpp>
#include <support/random.hpp>

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
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "session_support.hpp"
#include "support.hpp"

namespace {

using namespace kvdecode;
using io_test::check_error;
using io_test::check_same;
using io_test::continued;
using io_test::file_of;
using io_test::kOptions;
using io_test::TemporaryFolder;
using io_test::transformer_of;
using kvdecode_test::FailingAllocation;
using kvdecode_test::random_tokens;
using kvdecode_test::RandomModel;
using kvdecode_test::SplitMix64;

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
    const auto make_other = [&] {
      auto decoder = make();
      decoder.append(random_tokens(6, 37, 2));
      return decoder;
    };
    const Index n_refused = io_test::check_refused_allocations<FailingAllocation>(
        path, sampling, make_other,
        [&](auto& decoder) { check_same(continued(decoder, greedy, 3), expected); });
    CHECK(n_refused >= 3);
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

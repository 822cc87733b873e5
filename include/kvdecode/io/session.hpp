// SPDX-License-Identifier: MIT
// <kvdecode/io/session.hpp> - a decoder's sequence as a file, cache and all, to go on with later as if nobody had
// stopped: the same logits and the same sampled tokens, to the bit.
//
// A safetensors file. Metadata: "format" and "version"; "checksum", the Hash64 of the whole file with zeros in the place
// of its own sixteen hexadecimal digits; "model", the transformer's fingerprint; "scalar", "activations", "k_format",
// "v_format"; "state.0" …, the names of samplers and engines. Tensors:
//
//   tokens      I32 [n_tokens]
//   cache       I64 [2]                kv_len, epoch
//   positions   I64 [n_stores, 3]      a layer with rows of its own: layer, n_sink, first (cache/record.hpp)
//   keys.I      U8 [n_bytes]           rows of store I as they are stored: [n_kv_heads, n_rows, row bytes]
//   values.I    U8 [n_bytes]
//   rotation    I64 [n_pieces, 2]      position, rotation shift; only after a context shift
//   logits      F32 or F64 [vocab_size]  after the last token; only where they were at hand
//   state.I     U64 [n_words]
#pragma once

#include <kvdecode/io/atomic_file.hpp>
#include <kvdecode/io/mapped_file.hpp>
#include <kvdecode/io/safetensors.hpp>
#include <kvdecode/io/safetensors_dtype.hpp>
#include <kvdecode/io/safetensors_writer.hpp>

#include <kvdecode/cache/record.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/format_id.hpp>
#include <kvdecode/core/hash64.hpp>
#include <kvdecode/core/printable.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/decode/record.hpp>
#include <kvdecode/decode/samplers.hpp>

#include <algorithm>
#include <bit>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <ios>
#include <locale>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// How a sampler or an engine goes into a session file. Specialise it for one of your own.
///
/// | expression | meaning |
/// |---|---|
/// | SessionState<T>::name() | names the type; std::string |
/// | SessionState<T>::words(value) | its state; std::vector<std::uint64_t> |
/// | SessionState<T>::from_words(words) | a value in that state; throws Error if it is none, since files may lie |
template <class T>
struct SessionState;

/// A type that session files know.
template <class T>
concept KeptInSessions = std::is_nothrow_move_assignable_v<T> &&
    requires(const T& value, std::span<const std::uint64_t> words) {
  { SessionState<T>::name() } -> std::same_as<std::string>;
  { SessionState<T>::words(value) } -> std::same_as<std::vector<std::uint64_t>>;
  { SessionState<T>::from_words(words) } -> std::same_as<T>;
};

/// The words that the engine writes as text: on libstdc++ its state, and how much of it has been drawn.
template <>
struct SessionState<std::mt19937_64> {
  static std::string name() { return "mt19937_64"; }
  static std::vector<std::uint64_t> words(const std::mt19937_64& engine) {
    std::ostringstream stream;
    stream.exceptions(std::ios::badbit);  // it would keep quiet if its memory ran out
    stream.imbue(std::locale::classic());
    stream << engine;
    const std::string text = stream.str();
    std::vector<std::uint64_t> words;
    for (const char *at = text.data(), *end = at + text.size(); at < end; ++at) {  // one space apart
      words.emplace_back();
      at = std::from_chars(at, end, words.back()).ptr;
    }
    return words;
  }
  static std::mt19937_64 from_words(std::span<const std::uint64_t> given) {
    constexpr std::size_t kNState = std::mt19937_64::state_size;
    std::mt19937_64 engine;
    // The library believes what it reads: a place outside the state would be used.
    bool is_one =
        given.size() == words(engine).size() && (given.size() == kNState || given[kNState] <= kNState);
    if (is_one) {
      std::string text;
      for (const std::uint64_t word : given) text += (text.empty() ? "" : " ") + std::to_string(word);
      std::istringstream stream(text);
      stream.imbue(std::locale::classic());
      stream >> engine;
      is_one = !stream.fail();
    }
    if (!is_one) [[unlikely]]
      detail::raise(ErrorCode::kBadFile, "the words are no state of a std::mt19937_64");
    return engine;
  }
};

template <>
struct SessionState<Greedy> {
  static std::string name() { return "greedy"; }
  static std::vector<std::uint64_t> words(const Greedy&) { return {}; }
  static Greedy from_words(std::span<const std::uint64_t> words) {
    if (!words.empty()) [[unlikely]]
      detail::raise(ErrorCode::kBadFile, "a greedy sampler has no state, got ", words.size(), " words");
    return {};
  }
};

/// Its options, then its engine.
template <KeptInSessions Engine>
struct SessionState<Sampling<Engine>> {
  static std::string name() { return "sampling by " + SessionState<Engine>::name(); }
  static std::vector<std::uint64_t> words(const Sampling<Engine>& sampling) {
    const auto& [temperature, top_k, top_p, seed] = sampling.options();
    std::vector<std::uint64_t> words = {std::bit_cast<std::uint64_t>(temperature),
                                        static_cast<std::uint64_t>(top_k),
                                        std::bit_cast<std::uint64_t>(top_p), seed};
    const std::vector<std::uint64_t> engine = SessionState<Engine>::words(sampling.engine());
    words.insert(words.end(), engine.begin(), engine.end());
    return words;
  }
  static Sampling<Engine> from_words(std::span<const std::uint64_t> words) {
    constexpr std::size_t kNOptions = 4;
    if (words.size() < kNOptions) [[unlikely]]
      detail::raise(ErrorCode::kBadFile, words.size(), " words are too few for the options of a sampling");
    const SamplingOptions options{.temperature = std::bit_cast<double>(words[0]),
                                  .top_k = static_cast<Index>(words[1]),
                                  .top_p = std::bit_cast<double>(words[2]),
                                  .seed = words[3]};
    return Sampling<Engine>(options, SessionState<Engine>::from_words(words.subspan(kNOptions)));
  }
};

namespace detail {

inline constexpr std::string_view kSessionFormat = "kvdecode session";
inline constexpr std::string_view kSessionVersion = "1";

inline std::string hexadecimal(std::uint64_t number) {
  std::string digits(16, '0');
  for (std::size_t i = 16; i-- > 0; number >>= 4) digits[i] = "0123456789abcdef"[number & 15u];
  return digits;
}
template <class S>
constexpr std::string_view session_scalar() {
  static_assert(std::same_as<S, float> || std::same_as<S, double>,
                "A session file holds numbers of float or double.");
  return std::same_as<S, float> ? "f32" : "f64";
}

/// The sixteen digits of a session's checksum: where they stand in its bytes. 0: nowhere
inline std::size_t checksum_place(std::string_view bytes) {
  constexpr std::string_view kKey = "\"checksum\":\"";
  const std::size_t key = bytes.find(kKey), place = key + kKey.size();
  return key == std::string_view::npos || bytes.size() - place < 16 ? 0 : place;
}

/// A sampler or an engine in a session.
struct NamedWords {
  std::string name;
  std::vector<std::uint64_t> words;
};

/// The bytes of a session file in parts; those of the record stay where they are.
class SessionImage {
 public:
  /// @throws Error kUnsupported: rows of a format that exists in memory only
  template <class S>
  SessionImage(const DecoderRecord<S>& record, std::vector<NamedWords> states) : states_(std::move(states)) {
    const CacheRecord& cache = record.cache;
    for (const std::string_view format : {cache.k_format, cache.v_format})
      if (format == to_string(FormatId::kRaw)) [[unlikely]]
        raise(ErrorCode::kUnsupported, "session: rows of format ", format, " exist in memory only");
    std::map<std::string, std::string> metadata{{"format", std::string(kSessionFormat)},
                                                {"version", std::string(kSessionVersion)},
                                                {"checksum", hexadecimal(0)},
                                                {"model", hexadecimal(record.model)},
                                                {"scalar", std::string(session_scalar<S>())},
                                                {"activations", std::string(record.activations)},
                                                {"k_format", std::string(cache.k_format)},
                                                {"v_format", std::string(cache.v_format)}};
    lengths_ = {cache.kv_len, cache.epoch};
    add<TokenId>("tokens", {}, record.tokens);
    add<std::int64_t>("cache", {}, lengths_);
    for (std::size_t i = 0; i < cache.stores.size(); ++i) {
      const StoreRecord& store = cache.stores[i];
      positions_.insert(positions_.end(), {store.layer, store.n_sink, store.first});
      add<std::uint8_t>("keys." + std::to_string(i), {}, as_numbers(store.keys));
      add<std::uint8_t>("values." + std::to_string(i), {}, as_numbers(store.values));
    }
    add<std::int64_t>("positions", 3, positions_);
    for (const RotationPiece& piece : cache.rotation)
      rotation_.insert(rotation_.end(), {piece.position, piece.rotation_shift});
    if (!rotation_.empty()) add<std::int64_t>("rotation", 2, rotation_);
    if (!record.logits.empty()) add<S>("logits", {}, record.logits);
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const std::string name = "state." + std::to_string(i);
      metadata.emplace(name, states_[i].name);
      add<std::uint64_t>(name, {}, states_[i].words);
    }
    parts_ = safetensors_parts(tensors_, metadata, head_);
    Hash64 hash;
    for (const std::span<const std::byte> part : parts_) hash.add(part);
    head_.replace(checksum_place(head_), 16, hexadecimal(hash.value()));
  }
  SessionImage(const SessionImage&) = delete;
  SessionImage& operator=(const SessionImage&) = delete;

  std::span<const std::span<const std::byte>> parts() const noexcept { return parts_; }

 private:
  static std::span<const std::uint8_t> as_numbers(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
  }
  /// @param n_columns  of a matrix; none: a list
  template <class T>
  void add(std::string name, std::optional<Index> n_columns, std::span<const T> values) {
    const Index n = static_cast<Index>(values.size());
    tensors_.push_back(as_tensor<T>(
        std::move(name), n_columns ? std::vector<Index>{n / *n_columns, *n_columns} : std::vector<Index>{n},
        values));
  }

  std::vector<NamedWords> states_;
  std::vector<std::int64_t> lengths_, positions_, rotation_;
  std::vector<SafetensorsTensor> tensors_;
  std::string head_;
  std::vector<std::span<const std::byte>> parts_;
};

/// What a session file says, checked as far as it can be without a decoder.
class SessionContents {
 public:
  /// @throws Error kBadFile, kUnsupported (another version)
  SessionContents(std::span<const std::byte> bytes, std::shared_ptr<const void> owner, std::string source)
      : file_(bytes, std::move(owner), std::move(source)) {
    if (const std::string* const format = find_text("format"); format == nullptr || *format != kSessionFormat)
        [[unlikely]]
      fail("is not a session file");
    if (text("version") != kSessionVersion) [[unlikely]]
      raise(ErrorCode::kUnsupported, source_name(), ": is a session of version ", in_quotes(text("version")),
            ", this library reads ", kSessionVersion);
    check_sum(bytes);
    tokens_ = numbers<TokenId>("tokens", 1);
    while (find_text(state_name(n_states_)) != nullptr) ++n_states_;
    read_cache();
    std::size_t n_tensors = 3 + 2 * cache_.stores.size() + n_states_;
    for (const std::string_view optional : {"rotation", "logits"})
      n_tensors += file_.find(optional) != nullptr ? 1 : 0;
    if (file_.tensors().size() != n_tensors || file_.metadata().size() != 8 + n_states_) [[unlikely]]
      fail("has tensors or metadata that no session has");
  }

  /// The decoder's part; views of this.
  /// @throws Error kBadFile, kMismatch (of another scalar)
  template <class S>
  DecoderRecord<S> record() {
    if (text("scalar") != session_scalar<S>()) [[unlikely]]
      raise(ErrorCode::kMismatch, source_name(), ": is of scalar ", in_quotes(text("scalar")),
            ", this decoder's is ", session_scalar<S>());
    DecoderRecord<S> record{fingerprint(), text("activations"), tokens_, {}, cache_};
    if (file_.find("logits") != nullptr) {
      auto logits = std::make_shared<std::vector<S>>(numbers<S>("logits", 1));
      record.logits = *logits;
      logits_ = std::move(logits);
    }
    return record;
  }
  /// Sampler or engine i. @throws Error kBadFile, kMismatch (the file has none, or one of another type)
  template <KeptInSessions T>
  T state(std::size_t i) const {
    const std::string name = state_name(i);
    if (i >= n_states_ || text(name) != SessionState<T>::name()) [[unlikely]]
      raise(ErrorCode::kMismatch, source_name(), ": has ", i < n_states_ ? in_quotes(text(name)) : "no state",
            " as ", name, ", expected ", SessionState<T>::name());
    try {
      return SessionState<T>::from_words(numbers<std::uint64_t>(name, 1));
    } catch (const Error& error) {
      raise(ErrorCode::kBadFile, source_name(), ": ", name, ": ", error.what());
    }
  }
  std::size_t n_states() const noexcept { return n_states_; }
  const std::string& source_name() const noexcept { return file_.source(); }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    raise(ErrorCode::kBadFile, source_name(), ": ", parts...);
  }
  static std::string state_name(std::size_t i) { return "state." + std::to_string(i); }

  const std::string* find_text(std::string_view name) const noexcept {
    const auto found =
        std::lower_bound(file_.metadata().begin(), file_.metadata().end(), name,
                         [](const auto& entry, std::string_view wanted) { return entry.first < wanted; });
    return found != file_.metadata().end() && found->first == name ? &found->second : nullptr;
  }
  const std::string& text(std::string_view name) const {
    const std::string* const found = find_text(name);
    if (found == nullptr) [[unlikely]]
      fail("has no ", in_quotes(name), " in its metadata");
    return *found;
  }
  void check_sum(std::span<const std::byte> bytes) const {
    const std::size_t place = checksum_place({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    Hash64 hash;
    hash.add(bytes.first(place));
    if (place != 0) {
      const std::string zeros = hexadecimal(0);
      hash.add(std::as_bytes(std::span(zeros)));
      hash.add(bytes.subspan(place + zeros.size()));
    }
    if (place == 0 || text("checksum") != hexadecimal(hash.value())) [[unlikely]]
      fail("has been altered: its bytes have the checksum ", hexadecimal(hash.value()), ", it says ",
           in_quotes(text("checksum")));
  }
  std::uint64_t fingerprint() const {
    const std::string& digits = text("model");
    std::uint64_t number = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
    if (digits != hexadecimal(number)) [[unlikely]]
      fail("model must be sixteen hexadecimal digits, got ", in_quotes(digits));
    return number;
  }
  std::span<const std::byte> bytes_of(std::string_view name, SafetensorsDtype dtype,
                                      std::size_t group_bytes) const {
    const SafetensorsTensor* const tensor = file_.find(name);
    if (tensor == nullptr) [[unlikely]]
      fail("has no tensor ", in_quotes(name));
    if (tensor->dtype != dtype || tensor->bytes.size() % group_bytes != 0) [[unlikely]]
      fail("tensor ", in_quotes(name), " of ", tensor->bytes.size(), " bytes of ", to_string(tensor->dtype),
           " must be of ", to_string(dtype), ", by ", group_bytes, " bytes");
    return tensor->bytes;
  }
  /// Copied: what has been checked must not change, and a mapped file may.
  template <class T>
  std::vector<T> numbers(std::string_view name, std::size_t group) const {
    bytes_of(name, safetensors_dtype_of<T>(), group * sizeof(T));
    return values_of<T>(file_.tensor(name));
  }
  void read_cache() {
    const std::vector<std::int64_t> lengths = numbers<std::int64_t>("cache", 1);
    if (lengths.size() != 2) [[unlikely]]
      fail("cache must be kv_len and epoch, got ", lengths.size(), " numbers");
    cache_.k_format = text("k_format");
    cache_.v_format = text("v_format");
    cache_.kv_len = lengths[0];
    cache_.epoch = lengths[1];
    const std::vector<std::int64_t> positions = numbers<std::int64_t>("positions", 3);
    for (std::size_t i = 0; 3 * i < positions.size(); ++i)
      cache_.stores.push_back({positions[3 * i], positions[3 * i + 1], positions[3 * i + 2],
                               bytes_of("keys." + std::to_string(i), SafetensorsDtype::kU8, 1),
                               bytes_of("values." + std::to_string(i), SafetensorsDtype::kU8, 1)});
    if (file_.find("rotation") == nullptr) return;
    const std::vector<std::int64_t> rotation = numbers<std::int64_t>("rotation", 2);
    for (std::size_t i = 0; i < rotation.size(); i += 2)
      cache_.rotation.push_back({rotation[i], rotation[i + 1]});
  }

  SafetensorsFile file_;
  std::vector<TokenId> tokens_;
  CacheRecord cache_;
  std::size_t n_states_ = 0;
  std::shared_ptr<const void> logits_;  // of the record, copied to where scalars may be
};

/// Restores a decoder, and states beside it, from what a file says.
template <class D, class... Ts>
void restore_from(SessionContents& contents, D& decoder, Ts&... states) {
  using S = typename D::scalar;
  if (sizeof...(Ts) != 0 && sizeof...(Ts) != contents.n_states()) [[unlikely]]
    raise(ErrorCode::kMismatch, contents.source_name(), ": has ", contents.n_states(),
          " samplers and engines, expected ", sizeof...(Ts));
  std::tuple<Ts...> restored = [&]<std::size_t... i>(std::index_sequence<i...>) {
    return std::tuple<Ts...>(contents.template state<Ts>(i)...);
  }
  (std::index_sequence_for<Ts...>{});
  const DecoderRecord<S> record = contents.template record<S>();
  try {
    decoder.restore(record);
  } catch (const Error& error) {
    const bool is_at_fault = error.code() == ErrorCode::kBadArgument;  // the file contradicts itself
    raise(is_at_fault ? ErrorCode::kBadFile : error.code(), contents.source_name(), ": ", error.what());
  }
  // From here on nothing throws.
  std::apply([&](Ts&... values) { ((states = std::move(values)), ...); }, restored);
}

}  // namespace detail

/// Writes a decoder's sequence, and samplers and engines that go on with it, as one file, replacing it as a whole or not
/// at all. It holds the cache's rows in their own formats, so it is about as large as the cache, which is copied first.
///
/// The first call for a transformer reads all of its weights (Transformer::fingerprint()), so that the file of another
/// fine-tune of the same shape will be refused.
/// @param decoder  a Decoder or an AnyDecoder of float or double
/// @param states   KeptInSessions: Greedy, Sampling, std::mt19937_64, and what SessionState is specialised for
/// @throws Error kBadFile, naming the path: it cannot be written; kUnsupported: a cache of Raw rows; std::bad_alloc
template <class D, KeptInSessions... Ts>
void save_session(const std::filesystem::path& path, const D& decoder, const Ts&... states) {
  const DecoderRecord<typename D::scalar> record = decoder.record();
  const detail::SessionImage image(record, {{SessionState<Ts>::name(), SessionState<Ts>::words(states)}...});
  write_file_atomically(path, image.parts());
}

/// Goes on with a sequence that save_session() wrote: whatever is done to the decoder then gives the same bytes as if it
/// had been done when the file was written. The cache may be of another layout, with other options and another capacity;
/// model, scalar, activation policy and cache formats must be the same. Files are hostile: all is checked. The checksum
/// finds accidents; who can write the file can choose what is in it.
///
/// decoder.logits() is there without a pass if the logits were at hand when the file was written.
/// @param states  as many and of the same types as were saved, in that order, with their options; or none
/// @throws Error naming the path: kBadFile (unreadable, truncated, altered, malformed), kMismatch (of another model,
/// scalar, activation policy, cache format or sampler; a ring has forgotten what this cache needs), kUnsupported (another
/// version; shifted tokens for Recompute or a ring), kCacheFull (longer than max_seq_len); std::bad_alloc: nothing changed
template <class D, KeptInSessions... Ts>
void restore_session(const std::filesystem::path& path, D& decoder, Ts&... states) {
  const MappedFile file(path);
  detail::SessionContents contents(file.bytes(), file.owner(), file.path());
  detail::restore_from(contents, decoder, states...);
}

}  // namespace kvdecode

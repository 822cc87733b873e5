// SPDX-License-Identifier: MIT
// Files that lie about how much there is: each is refused by name, and no number in it is taken for memory before the
// bytes are there. And a heap that ends anywhere while a session is saved or restored.
#include <support/allocation.hpp>
#include <support/peak_heap.hpp>

#include <kvdecode/cache/growing.hpp>
#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/decode/decoder.hpp>
#include <kvdecode/io/gguf_model.hpp>
#include <kvdecode/io/huggingface_model.hpp>
#include <kvdecode/io/session.hpp>
#include <kvdecode/model/random_weights.hpp>
#include <kvdecode/model/transformer.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf_support.hpp"
#include "session_support.hpp"
#include "support.hpp"
#include "variant.hpp"

using io_test::check_error;
using io_test::error_of;
using io_test::file_of;
using io_test::GgufWriter;
using io_test::HeapBytes;
using io_test::kGolden;
using io_test::Variant;
using kvdecode::Error;
using kvdecode::ErrorCode;
using kvdecode::GgufFile;
using kvdecode::parse_huggingface_config;
using kvdecode_test::is_refused;
using kvdecode_test::peak_heap;
using nlohmann::json;

namespace {

constexpr std::size_t kKiB = 1024;

/// f() ends with an Error of a file at fault, in one short line, and holds no more than so many bytes on its way.
template <class F>
void check_refused_within(std::size_t max_bytes, std::string_view word, F&& f) {
  std::optional<Error> error;
  const std::size_t peak = peak_heap([&] { error = error_of(f); });
  REQUIRE(error);
  const std::string_view text = error->what();
  CAPTURE(text);
  CHECK(error->code() != ErrorCode::kBadArgument);
  CHECK(text.find(word) != std::string_view::npos);
  CHECK(text.size() < 500);
  CHECK(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; }));
  CHECK(peak <= max_bytes);
}

json golden_config(const std::filesystem::path& folder) {
  return json::parse(io_test::read_text(folder / "config.json"));
}

std::vector<std::filesystem::path> golden_folders() {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(kGolden))
    if (std::filesystem::exists(entry.path() / "model.safetensors")) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::string repeat(std::string_view text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("hostile GGUF: each file is refused or loads, as its manifest says, in memory proportional to it") {
  const std::filesystem::path folder = std::filesystem::path(KVDECODE_TEST_DATA_DIR) / "gguf/hostile";
  int n_files = 0;
  const json manifest = json::parse(io_test::read_text(folder / "manifest.json"));
  for (const auto& entry : manifest.items()) {
    const std::string name = entry.key();
    CAPTURE(name);
    ++n_files;
    const std::filesystem::path path = folder / name;
    std::optional<Error> error;
    const std::size_t peak = peak_heap([&] { error = error_of([&] { kvdecode::load_gguf_model(path); }); });
    CHECK(peak <= 8 * std::filesystem::file_size(path) + 8 * kKiB);
    const std::string expected = entry.value().at("expect").get<std::string>();
    if (expected == "loads") CHECK(!error);
    if (expected == "error") {
      REQUIRE(error);
      CHECK(std::string_view(error->what()).find(name) != std::string_view::npos);
      CHECK(std::string_view(error->what()).find('\n') == std::string_view::npos);
    }
  }
  CHECK(n_files == 24);
}

TEST_CASE("hostile GGUF: counts and sizes of 2^20 to 2^63 take no memory, in every place") {
  const std::string valid =
      io_test::read_text(std::filesystem::path(KVDECODE_TEST_DATA_DIR) / "gguf/hostile/valid.gguf");
  int n_refused = 0;
  for (std::size_t at = 8; at + 8 <= 1200; ++at) {
    for (const int bits : {20, 24, 31, 32, 40, 62, 63}) {
      std::string lie = valid;
      const std::uint64_t n = std::uint64_t{1} << bits;
      std::memcpy(lie.data() + at, &n, sizeof n);
      const HeapBytes heap(lie);
      std::optional<Error> error;
      const std::size_t peak = peak_heap([&] {
        error = error_of([&] {
          const GgufFile file(heap.bytes, heap.owner, "test.gguf");
          kvdecode::detail::read_gguf_model(std::span(&file, 1));
        });
      });
      n_refused += error.has_value();
      if (peak > 16 * lie.size())
        CHECK_MESSAGE(false, "2^", bits, " at byte ", at, " takes ", peak, " bytes");
    }
  }
  CHECK(n_refused > 5000);
}

TEST_CASE("hostile GGUF: a list in the file is not copied for each of thousands of layers") {
  constexpr std::uint32_t kFactors = 8192;
  GgufWriter writer;
  const auto count = [&](const char* key, std::uint32_t value) {
    writer.value(std::string("gemma3.") + key, value);
  };
  writer.value("general.architecture", std::string_view("gemma3"));
  count("block_count", 4096);
  count("context_length", 32);
  count("embedding_length", 8);
  count("feed_forward_length", 12);
  count("vocab_size", 8);
  count("attention.head_count", 1);
  count("attention.key_length", 2 * kFactors);
  count("attention.value_length", 2 * kFactors);
  count("attention.sliding_window", 4);
  writer.value("gemma3.attention.layer_norm_rms_epsilon", 0.25f);
  writer.value("gemma3.rope.freq_base", 500.0f);
  writer.tensor("rope_freqs.weight", {kFactors}, 1, std::string(2 * kFactors, '\x3c'));
  const HeapBytes heap(writer.bytes());
  check_refused_within(4096 * kKiB, "test.gguf: factors of the rotary frequencies beside layers", [&] {
    const GgufFile file(heap.bytes, heap.owner, "test.gguf");
    kvdecode::detail::read_gguf_model(std::span(&file, 1));
  });
}

TEST_CASE("hostile config.json: sizes take no memory in any family, and those beyond any model are refused") {
  for (const std::filesystem::path& folder : golden_folders()) {
    CAPTURE(folder);
    const json config = golden_config(folder);
    for (const auto& entry : config.items()) {
      const std::string name = entry.key();
      if (!entry.value().is_number_integer() || name.ends_with("_token_id") || name == "pretraining_tp")
        continue;
      CAPTURE(name);
      for (const int bits : {13, 20, 27, 31, 40, 62, 63}) {
        CAPTURE(bits);
        json lie = config;
        lie[name] = std::uint64_t{1} << bits;
        std::optional<Error> error;
        const std::size_t peak =
            peak_heap([&] { error = error_of([&] { parse_huggingface_config(lie.dump()); }); });
        CHECK(peak < 256 * kKiB);
        if (error || bits < 31) continue;
        const bool may_be_large = name.find("window") != std::string::npos || name == "decoder_sparse_step" ||
                                  name == "original_max_position_embeddings";
        CHECK(may_be_large);
      }
    }
  }
}

TEST_CASE("hostile config.json: products that overflow are refused") {
  json lie = golden_config(kGolden / "llama-mha");
  for (const char* const name : {"hidden_size", "intermediate_size", "vocab_size"}) lie[name] = 1 << 30;
  check_error(ErrorCode::kBadFile, {"config.json: ", "vocab_size * d_model is beyond any model"},
              [&] { parse_huggingface_config(lie.dump()); });
  lie = golden_config(kGolden / "llama-mha");
  lie["num_attention_heads"] = lie["num_key_value_heads"] = lie["head_dim"] = 1 << 20;
  check_error(ErrorCode::kBadFile, {"config.json: ", "n_heads * head_dim 1099511627776 is beyond any model"},
              [&] { parse_huggingface_config(lie.dump()); });
  lie = golden_config(kGolden / "mixtral");
  lie["num_local_experts"] = lie["intermediate_size"] = 1 << 30;
  lie["hidden_size"] = 6 << 18;
  check_error(ErrorCode::kBadFile, {"config.json: ", "is beyond any model (2^56)"},
              [&] { parse_huggingface_config(lie.dump()); });
}

TEST_CASE(
    "hostile config.json: counts of layers, experts and positions take no memory before the tensors are "
    "there") {
  int n_lies = 0;
  for (const std::filesystem::path& folder : golden_folders()) {
    const std::string name = folder.filename().string();
    CAPTURE(name);
    const kvdecode::SafetensorsFile file(folder / "model.safetensors");
    for (const char* const field :
         {"num_hidden_layers", "n_layer", "num_local_experts", "num_experts", "vocab_size", "n_positions"}) {
      json lie = golden_config(folder);
      if (!lie.contains(field)) continue;
      CAPTURE(field);
      lie[field] = 1 << 30;
      lie.erase("layer_types");
      ++n_lies;
      check_refused_within(1024 * kKiB, "", [&] {
        kvdecode::HuggingFaceConfig config = parse_huggingface_config(lie.dump());
        kvdecode::TensorBinder tensors("model.safetensors");
        tensors.add(file);
        kvdecode::Weights weights;
        kvdecode::find_huggingface_architecture(config.architecture)->bind_weights(config, tensors, weights);
      });
    }
  }
  CHECK(n_lies > 40);
}

TEST_CASE("hostile config.json: what is no JSON, or too deep, or says a thing twice") {
  const std::string good = golden_config(kGolden / "llama-mha").dump();
  const auto with = [&](const std::string& field) { return "{" + field + "," + good.substr(1); };
  CHECK_NOTHROW(parse_huggingface_config(with(R"("use_cache2":null)")));
  for (const char* const number : {"NaN", "Infinity", "-Infinity", "nan", "1e999", "-1e999", "0x10", "1e"}) {
    CAPTURE(number);
    check_refused_within(64 * kKiB, "config.json: at byte ",
                         [&] { parse_huggingface_config(with("\"rope_theta2\":" + std::string(number))); });
  }
  check_refused_within(64 * kKiB, "the key \"vocab_size\" stands twice in one object",
                       [&] { parse_huggingface_config(with(R"("vocab_size":80)")); });
  for (const std::string_view open : {"[", "{\"a\":"}) {
    const std::string deep = with("\"task_specific_params\":" + repeat(open, 100000));
    check_refused_within(128 * kKiB, "nested deeper than 64 levels", [&] { parse_huggingface_config(deep); });
  }
  const std::string many = with("\"id2label\":[" + repeat("0,", 1 << 20) + "0]");
  check_refused_within(128 * many.size(), "more than 1048576 values",
                       [&] { parse_huggingface_config(many); });
}

TEST_CASE("hostile index: what it says beside the tensors' places is of no consequence") {
  Variant variant("llama-mha");
  variant.write_shards([](const std::string& name) { return name.find(".0.") != std::string::npos; });
  for (const json& size : {json(0), json(-1), json(~std::uint64_t{0}), json("many"), json(1e300),
                           json(nullptr), json::array()}) {
    variant.index["metadata"]["total_size"] = size;
    variant.write_index();
    CHECK_NOTHROW(kvdecode::load_huggingface_model(variant.folder.path()));
  }
}

TEST_CASE("hostile index: what is no JSON, too deep, or says a thing twice is refused by name") {
  Variant variant("llama-mha");
  variant.write_shards([](const std::string& name) { return name.find(".0.") != std::string::npos; });
  const std::string good = variant.index.dump();
  const auto refused = [&](std::string_view word, const std::string& text) {
    CAPTURE(text.substr(0, 100));
    variant.folder.write("model.safetensors.index.json", text);
    check_refused_within(16 * text.size() + 256 * kKiB, word,
                         [&] { kvdecode::load_huggingface_model(variant.folder.path()); });
    const auto error = error_of([&] { kvdecode::load_huggingface_model(variant.folder.path()); });
    CHECK(std::string_view(error->what()).find("model.safetensors.index.json: ") != std::string_view::npos);
  };
  for (std::size_t n = 1; n < good.size(); n += 7) refused("not JSON", good.substr(0, n));
  refused("is empty", "");
  refused("must be an object, got a list", "[]");
  refused("must be an object, got null", "null");
  refused("must be an object, got \"x\"", "\"x\"");
  refused("a zero byte", good + std::string(1, '\0') + good);
  refused("not JSON", good + good);
  refused("nested deeper than 64 levels", "{\"weight_map\":" + repeat("[", 1000000));
  refused("nested deeper than 64 levels", repeat("{\"weight_map\":", 1000000));
  refused("the key \"weight_map\" stands twice", good.substr(0, good.size() - 1) + R"(,"weight_map":{}})");
  refused("the key \"a\" stands twice",
          R"({"weight_map":{"a":"model-1.safetensors","a":"model-2.safetensors"}})");
  for (const char* const value : {"null", "true", "0", "1.5", "[]", "{}", "[\"model-1.safetensors\"]"})
    refused("tensor \"a\" must have a file name, got ", R"({"weight_map":{"a":)" + std::string(value) + "}}");
  for (const char* const value : {"\"a\"", "1", "null", "[]", "{}", "[[\"a\",\"model-1.safetensors\"]]"})
    refused("weight_map must be an object of file names by tensor",
            R"({"weight_map":)" + std::string(value) + "}");
  refused("must be the name of a .safetensors file in the same folder",
          R"({"weight_map":{"\n\u001b[31m":"..\/\u202emodel.safetensors"}})");
}

TEST_CASE("hostile safetensors: lengths and sizes of 2^20 to 2^62 take no memory") {
  for (const int bits : {20, 27, 31, 32, 40, 62}) {
    CAPTURE(bits);
    const std::string n = std::to_string(std::uint64_t{1} << bits);
    const auto refused = [&](const std::string& header, std::optional<std::uint64_t> n_header = {}) {
      const std::string file = io_test::raw_safetensors(header, "12345678", n_header);
      const HeapBytes heap(file);
      check_refused_within(8 * kKiB, "test.safetensors: ", [&] {
        kvdecode::SafetensorsFile(heap.bytes, heap.owner, "test.safetensors");
      });
    };
    refused("{}", std::uint64_t{1} << bits);
    refused(R"({"t":{"dtype":"U8","shape":[)" + n + R"(],"data_offsets":[0,8]}})");
    refused(R"({"t":{"dtype":"F64","shape":[)" + n + "," + n + R"(],"data_offsets":[0,8]}})");
    refused(R"({"t":{"dtype":"U8","shape":[8],"data_offsets":[0,)" + n + "]}}");
    refused(R"({"t":{"dtype":"U8","shape":[8],"data_offsets":[)" + n + "," + n + "]}}");
    refused(R"({"t":{"dtype":"U8","shape":[0,)" + n + "," + n + "," + n + R"(],"data_offsets":[0,8]}})");
  }
}

// ---- Sessions: no kernel runs, rows are whatever they are -------------------------------------------------

namespace {

using kvdecode::Index;
using kvdecode::Sampling;
using SessionModel = kvdecode::Transformer<float>;

SessionModel session_model() {
  kvdecode::ModelConfig config;
  config.n_layers = config.n_heads = config.n_kv_heads = 1;
  config.d_model = config.d_ff = config.head_dim = 2;
  config.vocab_size = config.max_seq_len = 100;
  return SessionModel(config, kvdecode::random_weights(config));
}

/// A decoder whose first n tokens have these numbers in their rows.
template <class Cache>
auto decoder_of(const SessionModel& model, Index n, float number) {
  kvdecode::GrowingCache<> cache(model.kv_shape(), 100);
  const std::vector<float> row{number, -number};
  std::vector<kvdecode::TokenId> tokens;
  for (; cache.kv_len() < n; cache.commit()) {
    tokens.push_back(static_cast<kvdecode::TokenId>(cache.kv_len()));
    cache.reserve(1);
    cache.append(0, kvdecode::RowsView<const float>{row.data(), 1, 2, 2}, {row.data(), 1, 2, 2});
  }
  if (n > 20) {
    cache.shift(n, -1);
    tokens.pop_back();
  }
  const std::vector<float> logits(100, number);
  kvdecode::Decoder decoder(model, kvdecode::Cached<Cache>{});
  decoder.restore({model.fingerprint(), "exact", tokens, logits, record_of(cache)});
  return decoder;
}

template <class Cache>
void check_restore_without_memory() {
  const SessionModel model = session_model();
  const io_test::TemporaryFolder folder;
  const auto path = folder.path() / "session";
  const Sampling<> sampling({.temperature = 0.5, .seed = 3});
  const auto saved = decoder_of<Cache>(model, 70, 1.0f);
  save_session(path, saved, sampling);
  const std::string expected = file_of(saved.record());
  const Index n = io_test::check_refused_allocations<kvdecode_test::FailingHeap>(
      path, sampling, [&] { return decoder_of<Cache>(model, 5, 2.0f); },
      [&](const auto& decoder) { CHECK(file_of(decoder.record()) == expected); });
  CHECK(n > 50);
}

}  // namespace

TEST_CASE("hostile heap: a session that cannot be restored, for any allocation, changes nothing") {
  check_restore_without_memory<kvdecode::GrowingCache<>>();
  check_restore_without_memory<kvdecode::PagedCache<4>>();
}

TEST_CASE("hostile heap: a session that cannot be saved, for any allocation, leaves the old file") {
  const SessionModel model = session_model();
  const io_test::TemporaryFolder folder;
  const auto path = folder.path() / "session";
  const auto decoder = decoder_of<kvdecode::GrowingCache<>>(model, 30, 1.0f);
  const Sampling<> sampling;
  save_session(path, decoder, sampling);
  const std::string whole = io_test::read_text(path);
  Index n = 0;
  for (bool threw = true; threw; ++n) {
    CAPTURE(n);
    folder.write("session", "the old file");
    threw = is_refused<kvdecode_test::FailingHeap>(n, [&] { save_session(path, decoder, sampling); });
    CHECK(io_test::read_text(path) == (threw ? "the old file" : whole));
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  }
  CHECK(n > 50);
}

// SPDX-License-Identifier: MIT
// Models held against what their own reference implementation computed in double: logits after every token and greedy
// continuations, for every model in tests/data/golden/ and tests/data/gguf/models/, and the logits of streams in
// tests/data/streaming/. That the strategies, chunks and threads agree with one another is checked bit by bit.
#include <support/compare.hpp>
#include <support/names.hpp>

#include <kvdecode/io.hpp>
#include <kvdecode/kvdecode.hpp>
#include <kvdecode/pipeline/load_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using kvdecode::ExecutorRef;
using kvdecode::FileTransformer;
using kvdecode::Index;
using kvdecode::Rows;
using kvdecode::SafetensorsFile;
using kvdecode::TokenId;
using kvdecode_test::check_same_bits;

const std::filesystem::path kData = KVDECODE_TEST_DATA_DIR;

/// Of the largest logit: rounding to float32 in the files, and the arithmetic of S.
template <class S>
constexpr double kBound = std::is_same_v<S, double> ? 1e-6 : 2e-5;

std::vector<TokenId> tokens_of(const SafetensorsFile& file, const std::string& name) {
  const std::vector<std::int64_t> values = kvdecode::values_of<std::int64_t>(file.tensor(name));
  return {values.begin(), values.end()};
}

/// The rows of logits that a file keeps, by position.
std::map<Index, std::vector<float>> rows_of(const SafetensorsFile& file, const std::string& logits,
                                            const std::string& rows) {
  const kvdecode::SafetensorsTensor& tensor = file.tensor(logits);
  const std::vector<float> values = kvdecode::values_of<float>(tensor);
  std::vector<std::int64_t> positions;
  if (file.find(rows) != nullptr)
    positions = kvdecode::values_of<std::int64_t>(file.tensor(rows));
  else
    for (Index i = 0; i < tensor.shape.at(0); ++i) positions.push_back(i);
  std::map<Index, std::vector<float>> result;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto first = values.begin() + static_cast<Index>(i) * tensor.shape.at(1);
    result[positions[i]] = std::vector<float>(first, first + tensor.shape.at(1));
  }
  return result;
}

/// The logits after every token, by a cache that is given `chunk` tokens at a time. Where angles depend on the length
/// of the sequence, the tokens before a chunk are run again when they change.
template <class S, class Cache = kvdecode::GrowingCache<kvdecode::Native<S>>>
std::vector<std::vector<S>> cached_rows(const FileTransformer<S>& transformer,
                                        std::span<const TokenId> tokens, Index chunk, ExecutorRef exec,
                                        const typename Cache::Options& options = {}) {
  const kvdecode::ModelConfig& config = transformer.config();
  const auto n_tokens = static_cast<Index>(tokens.size());
  Cache cache(transformer.kv_shape(), n_tokens, options);
  kvdecode::Workspace<S> workspace;
  std::vector<std::vector<S>> rows;
  const auto run = [&](Index end, Rows logits) {
    const auto begin = static_cast<std::size_t>(cache.kv_len());
    return transformer.forward(
        workspace, exec,
        kvdecode::Segment<Cache>{&cache, tokens.subspan(begin, static_cast<std::size_t>(end) - begin),
                                 logits});
  };
  for (Index begin = 0, end = 0; begin < n_tokens; begin = end) {
    const Index epoch = config.rotary_epoch(begin + 1);
    for (end = begin + 1; end < std::min(begin + chunk, n_tokens); ++end)
      if (config.rotary_epoch(end + 1) != epoch) break;
    if (epoch != cache.epoch()) {
      cache.clear(epoch);
      if (begin > 0) run(begin, Rows::kNone);
    }
    const auto logits = run(end, Rows::kAll);
    for (Index i = 0; i < logits.rows; ++i) rows.emplace_back(logits.row(i), logits.row(i) + logits.cols);
  }
  return rows;
}

/// The logits after a token, by definition.
template <class S>
std::vector<S> recomputed_row(const FileTransformer<S>& transformer, std::span<const TokenId> tokens,
                              Index position) {
  kvdecode::Decoder decoder(transformer,
                            kvdecode::Recompute<>{.max_seq_len = static_cast<Index>(tokens.size())});
  const auto row = decoder.append(tokens.first(static_cast<std::size_t>(position) + 1));
  return {row.begin(), row.end()};
}

template <class S>
void check_prompt(const FileTransformer<S>& transformer, const SafetensorsFile& expected,
                  const std::string& number) {
  const std::vector<TokenId> tokens = tokens_of(expected, "tokens_" + number);
  const auto wanted = rows_of(expected, "logits_" + number, "rows_" + number);
  const auto n_tokens = static_cast<Index>(tokens.size());
  double largest = 0.0;
  for (const auto& [position, row] : wanted) largest = std::max(largest, kvdecode_test::magnitude(row));

  kvdecode::ThreadTeam team(2);
  const auto rows = cached_rows(transformer, std::span<const TokenId>(tokens), n_tokens, {});
  REQUIRE(static_cast<Index>(rows.size()) == n_tokens);
  for (const auto& entry : wanted) {
    const Index position = entry.first;
    const std::vector<float>& row = entry.second;
    CAPTURE(position);
    const std::vector<S>& actual = rows.at(static_cast<std::size_t>(position));
    kvdecode_test::check_close(actual, row, kBound<S> * largest);
    check_same_bits(recomputed_row(transformer, std::span<const TokenId>(tokens), position), actual);
  }
  const auto check_again = [&](Index chunk, ExecutorRef exec) {
    CAPTURE(chunk);
    CAPTURE(exec.concurrency());
    const auto again = cached_rows(transformer, std::span<const TokenId>(tokens), chunk, exec);
    REQUIRE(again.size() == rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) check_same_bits(again[i], rows[i]);
  };
  check_again(3, {});
  check_again(1, {});
  check_again(3, team);
  check_again(n_tokens, team);

  if (expected.find("greedy_" + number) == nullptr) return;
  const std::vector<TokenId> greedy = tokens_of(expected, "greedy_" + number);
  const auto n_new = static_cast<Index>(greedy.size()) - n_tokens;
  for (const auto strategy :
       {kvdecode::DecodeOptions::Strategy::kCached, kvdecode::DecodeOptions::Strategy::kRecompute})
    for (const Index chunk : {Index{512}, Index{3}}) {
      CAPTURE(chunk);
      auto decoder = make_decoder(
          transformer,
          {.strategy = strategy, .max_seq_len = static_cast<Index>(greedy.size()), .prefill_chunk = chunk});
      const auto result = kvdecode::generate(decoder, tokens, kvdecode::Greedy{}, {.max_new_tokens = n_new});
      std::vector<TokenId> all = tokens;
      all.insert(all.end(), result.tokens.begin(), result.tokens.end());
      CHECK(all == greedy);
    }
}

/// Every prompt of a case: a model, and the folder of what is expected of it.
template <class S>
void check_case(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const std::string name = folder.filename().string();
  CAPTURE(name);
  const kvdecode::LoadedModel model = kvdecode::load_model(path);
  const SafetensorsFile expected(folder / "expected.safetensors");
  const FileTransformer<S> transformer(model.config, model.weights);
  int n_prompts = 0;
  for (; expected.find("tokens_" + std::to_string(n_prompts)) != nullptr; ++n_prompts) {
    CAPTURE(n_prompts);
    check_prompt(transformer, expected, std::to_string(n_prompts));
  }
  CHECK(n_prompts > 0);
}

TEST_CASE_TEMPLATE("golden models: logits and greedy continuations are those of the reference", S, float,
                   double) {
  int n_cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kData / "golden")) {
    check_case<S>(entry.path(), entry.path());
    ++n_cases;
  }
  CHECK(n_cases >= 22);
}

TEST_CASE_TEMPLATE("golden GGUF models: logits and greedy continuations are those of the reference", S, float,
                   double) {
  int n_cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kData / "gguf" / "models")) {
    const bool is_split = std::filesystem::exists(entry.path() / "model-00001-of-00003.gguf");
    check_case<S>(entry.path() / (is_split ? "model-00001-of-00003.gguf" : "model.gguf"), entry.path());
    ++n_cases;
  }
  CHECK(n_cases >= 14);
}

/// A stream: logits at some positions of a sequence longer than the model's max_seq_len.
template <class S>
void check_stream(const kvdecode::ModelConfig& config, const kvdecode::Weights& weights,
                  const SafetensorsFile& expected, const std::string& name) {
  CAPTURE(name);
  const std::vector<TokenId> tokens = tokens_of(expected, "tokens");
  const FileTransformer<S> transformer(config, weights);
  const auto rows = cached_rows(transformer, std::span<const TokenId>(tokens), 900, {});
  const auto wanted = rows_of(expected, name + ".logits", name + ".rows");
  double largest = 0.0;
  for (const auto& [position, row] : wanted) largest = std::max(largest, kvdecode_test::magnitude(row));
  for (const auto& entry : wanted) {
    const Index position = entry.first;
    const std::vector<float>& row = entry.second;
    CAPTURE(position);
    kvdecode_test::check_close(rows.at(static_cast<std::size_t>(position)), row, kBound<S> * largest);
  }
  const auto again = cached_rows(transformer, std::span<const TokenId>(tokens), 97, {});
  for (std::size_t i = 0; i < rows.size(); ++i) check_same_bits(again.at(i), rows[i]);
  // The same bytes from a cache that keeps no more than sinks and windows.
  using Ring = kvdecode::SinkCache<kvdecode::Native<S>>;
  for (const Index chunk : {Index{900}, Index{97}, Index{1}}) {
    const typename Ring::Options options{.slack = 0, .max_append = chunk == 97 ? Index{10} : Index{64}};
    CHECK(Ring::required_bytes(transformer.kv_shape(), 900, options) ==
          Ring::required_bytes(transformer.kv_shape(), Index{1} << 40, options));
    const auto streamed =
        cached_rows<S, Ring>(transformer, std::span<const TokenId>(tokens), chunk, {}, options);
    REQUIRE(streamed.size() == rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) check_same_bits(streamed[i], rows[i]);
  }
}

TEST_CASE_TEMPLATE("golden streams: sinks within the window, and at their true distance", S, float, double) {
  const kvdecode::LoadedModel model = kvdecode::load_huggingface_model(kData / "golden" / "llama-long");
  const SafetensorsFile expected(kData / "streaming" / "llama-long.safetensors");
  const auto description = kvdecode::load_json(kData / "streaming" / "llama-long.json");
  CHECK(description.at("cases").size() == 4);
  for (const auto& [name, stream] : description.at("cases").items()) {
    const auto n_sink = stream.at("n_sink").template get<Index>();
    const auto window = stream.at("window").template get<Index>();
    check_stream<S>(kvdecode::with_streaming(model.config, n_sink, window), model.weights, expected, name);
    if (expected.find(name + ".absolute.logits") == nullptr) continue;
    kvdecode::ModelConfig absolute = model.config;
    absolute.spans.assign(static_cast<std::size_t>(absolute.n_layers), {.window = window, .n_sink = n_sink});
    check_stream<S>(absolute, model.weights, expected, name + ".absolute");
  }
}

}  // namespace

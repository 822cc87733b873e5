// SPDX-License-Identifier: MIT
// What does it cost to store keys and values in few bits?
//
//   softmax(q K^T / sqrt(head_dim)) V, where each row of K and V is what its format has left of it
//
// Run: build/examples/cache_formats [MODEL] [--text FILE] [--windows N] [--threads N]
//
// For each format of keys/values: bits a number, all that is stored counted; by how much attention moves, over the keys
// and values of the model's own layers, where each of the last positions asks with its own key; and the perplexity of a
// text, by itself and beside that of rows left as they are. Then a figure of that.
// Checks that at three bits turned rows cost less than others, and that fewer bits of a kind cost more: exit status 1 if
// not.
#include "program.hpp"
#include "progress_line.hpp"

#include <kvdecode/pipeline.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using kvdecode::ContiguousCache;
using kvdecode::F32;
using kvdecode::Index;
using kvdecode::TokenId;

struct Arguments {
  std::string model = KVDECODE_EXAMPLE_DATA_DIR "/tiny-shakespeare";
  std::string text = KVDECODE_EXAMPLE_DATA_DIR "/sonnets.txt";
  Index n_windows = 8;
  Index n_threads = 1;
};

/// The keys and values of one KV head of one layer.
struct Head {
  std::vector<float> keys, values;  // [n, head_dim]
};

/// Those of all heads after the model has read some tokens.
std::vector<Head> heads_of(const kvdecode::FileTransformer<float>& transformer,
                           std::span<const TokenId> tokens, kvdecode::ExecutorRef exec) {
  const auto n = static_cast<Index>(tokens.size());
  ContiguousCache<F32> cache(transformer.kv_shape(), n);
  kvdecode::Workspace<float> workspace;
  transformer.forward(workspace, exec,
                      kvdecode::Segment<ContiguousCache<F32>>{&cache, tokens, kvdecode::Rows::kNone});
  std::vector<Head> heads;
  for (Index layer = 0; layer < cache.shape().n_layers(); ++layer)
    for (Index head = 0; cache.shape().owns_store(layer) && head < cache.shape()[layer].n_kv_heads; ++head) {
      const auto rows = [&](const auto& runs, Index dim) {
        std::vector<float> numbers;
        for (const auto& run : runs)
          for (Index i = 0; i < run.length * dim; ++i)  // rows of F32 lie one after another
            numbers.push_back(F32::decode<float>(run.data, i));
        return numbers;
      };
      heads.push_back({rows(cache.keys(layer, head), cache.shape()[layer].k_dim),
                       rows(cache.values(layer, head), cache.shape()[layer].v_dim)});
    }
  return heads;
}

/// What the last positions see of all before them, each asking with its own key: [n_queries, dim].
template <class K, class V>
std::vector<float> attention_of(const Head& head, Index dim, Index n_queries) {
  const Index n = static_cast<Index>(head.keys.size()) / dim;
  std::vector<std::byte> keys(static_cast<std::size_t>(n * K::row_bytes(dim)));
  std::vector<std::byte> values(static_cast<std::size_t>(n * V::row_bytes(dim)));
  for (Index i = 0; i < n; ++i) {
    K::encode(head.keys.data() + i * dim, dim, keys.data() + i * K::row_bytes(dim));
    V::encode(head.values.data() + i * dim, dim, values.data() + i * V::row_bytes(dim));
  }
  std::vector<float> outputs, scratch(static_cast<std::size_t>(kvdecode::kernels::attention_scratch(1, dim)));
  for (Index query = n - n_queries; query < n; ++query) {
    std::vector<float> q(head.keys.begin() + query * dim, head.keys.begin() + (query + 1) * dim),
        out(q.size());
    kvdecode::turn_row(kvdecode::transform_of<K>(), q.data(), dim);
    float maximum = 0.0f, sum = 0.0f;
    kvdecode::kernels::AttentionState<float> state{1, dim, &maximum, &sum, out.data(), true};
    for (Index begin = 0; begin <= query; begin += kvdecode::kernels::kTilePositions) {
      const kvdecode::kernels::AttentionPiece tile{
          begin,
          std::min(kvdecode::kernels::kTilePositions, query + 1 - begin),
          keys.data() + begin * K::row_bytes(dim),
          K::row_bytes(dim),
          values.data() + begin * V::row_bytes(dim),
          V::row_bytes(dim),
          0};
      kvdecode::kernels::attend_tile<K, V>(std::span(&tile, 1), q.data(), dim, dim,
                                           1.0f / kvdecode::sqrt(static_cast<float>(dim)), state,
                                           scratch.data());
    }
    kvdecode::kernels::finish_attention(state, out.data());
    kvdecode::turn_row_back(kvdecode::transform_of<V>(), out.data(), dim);
    outputs.insert(outputs.end(), out.begin(), out.end());
  }
  return outputs;
}

/// |a - b| / |b|
double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double distance = 0.0, length = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    distance += difference * difference;
    length += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return kvdecode::sqrt(distance / length);
}

/// One line of the table.
struct Cost {
  kvdecode::CacheFormat format;
  double bits;   // a number
  double error;  // of attention, relative
  double perplexity;
};

template <class K, class V>
Cost cost_of(kvdecode::CacheFormat format, const kvdecode::FileTransformer<float>& transformer,
             const std::vector<Head>& heads, std::span<const TokenId> tokens, Index n_windows,
             kvdecode::ExecutorRef exec) {
  const Index dim = transformer.config().head_dim;
  const double bits =
      8.0 * static_cast<double>(K::row_bytes(dim) + V::row_bytes(dim)) / static_cast<double>(2 * dim);
  std::vector<float> exact, stored;
  for (const Head& head : heads) {
    const Index n_queries = std::min<Index>(16, static_cast<Index>(head.keys.size()) / dim);
    for (const float x : attention_of<F32, F32>(head, dim, n_queries)) exact.push_back(x);
    for (const float x : attention_of<K, V>(head, dim, n_queries)) stored.push_back(x);
  }
  program::ProgressLine progress{std::string(to_string(format))};
  const kvdecode::Perplexity perplexity = kvdecode::perplexity<ContiguousCache<K, V>>(
      transformer, tokens, {.n_windows = n_windows}, exec, progress);
  return {format, bits, relative_distance(stored, exact), perplexity.value};
}

bool takes(Index dim, kvdecode::CacheFormat format) {
  return kvdecode::visit_cache_format<float>(format, [&]<class K, class V>() {
    return kvdecode::takes_rows_of<K>(dim) && kvdecode::takes_rows_of<V>(dim);
  });
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.empty()) throw std::runtime_error("cannot read a text from " + path);
  return text;
}

/// Draws how much worse each format is than the first, by bits a number: a decade of percents is ten columns.
void draw(std::vector<Cost> costs) {
  const double native = costs.front().perplexity;
  costs.erase(costs.begin());
  std::stable_sort(costs.begin(), costs.end(), [](const Cost& a, const Cost& b) { return a.bits > b.bits; });
  std::printf("\nby how much perplexity is above that of rows left as they are\n");
  std::printf(" bits                <0.01%%   0.1%%      1%%        10%%       100%%\n");
  for (const Cost& cost : costs) {
    const double percents = 100.0 * (cost.perplexity / native - 1.0);
    const double decades = percents > 0.01 ? std::log10(percents / 0.01) : 0.0;
    const int column = static_cast<int>(std::lround(10.0 * std::min(decades, 4.0)));
    std::printf("%5.2f  %-13s |%s*\n", cost.bits, std::string(to_string(cost.format)).c_str(),
                std::string(static_cast<std::size_t>(column), '-').c_str());
  }
}

int compare(const Arguments& arguments) {
  const kvdecode::TextModel model = kvdecode::load_text_model(arguments.model);
  const kvdecode::FileTransformer<float> transformer = model.transformer<float>();
  if (transformer.config().is_latent())
    throw std::runtime_error(arguments.model +
                             ": latent attention has no values apart from its keys to compare");
  if (!transformer.config().layer_head_dim.empty())
    throw std::runtime_error(arguments.model + ": heads of several lengths are not compared, only of one");
  const std::vector<TokenId> tokens = model.tokenizer().encode(read(arguments.text));
  if (tokens.size() < 2)
    throw std::runtime_error(arguments.text + ": a text of fewer than two tokens says nothing");
  kvdecode::ThreadTeam team(arguments.n_threads);
  const Index n_seen = std::min<Index>(512, static_cast<Index>(tokens.size()));
  const std::vector<Head> heads =
      heads_of(transformer, std::span(tokens).first(static_cast<std::size_t>(n_seen)), team);

  std::printf("keys/values    bits a number  attention moves  perplexity   ratio\n");
  std::vector<Cost> costs;
  for (const kvdecode::CacheFormat format : kvdecode::kCacheFormats) {
    if (!takes(transformer.config().head_dim, format)) {
      std::printf("%-13s  takes no heads of %td numbers\n", std::string(to_string(format)).c_str(),
                  transformer.config().head_dim);
      continue;
    }
    costs.push_back(kvdecode::visit_cache_format<float>(format, [&]<class K, class V>() {
      return cost_of<K, V>(format, transformer, heads, tokens, arguments.n_windows, team);
    }));
    const Cost& cost = costs.back();
    std::printf("%-13s  %13.2f  %14.3f%%  %10.4f  %6.4f\n", std::string(to_string(format)).c_str(), cost.bits,
                100.0 * cost.error, cost.perplexity, cost.perplexity / costs.front().perplexity);
    std::fflush(stdout);
  }
  draw(costs);

  using Format = kvdecode::CacheFormat;
  const auto costs_more = [&](Format a, Format b) {
    const auto found = [&](Format format) {
      return std::find_if(costs.begin(), costs.end(),
                          [&](const Cost& cost) { return cost.format == format; });
    };
    const auto x = found(a), y = found(b);
    return x == costs.end() || y == costs.end() || x->perplexity > y->perplexity;
  };
  const bool holds =
      costs_more(Format::kInt3, Format::kHadInt3) && costs_more(Format::kInt3, Format::kInt4) &&
      costs_more(Format::kHadInt3, Format::kHadInt4) && costs_more(Format::kTurbo2, Format::kTurbo3) &&
      costs_more(Format::kTurbo3, Format::kTurbo4);
  if (!holds) std::printf("a format costs more than one that should be worse\n");
  return holds ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Shows what a cache of few bits costs: a table of formats.", "cache_formats"};
  Arguments a;
  app.add_option("MODEL", a.model, "a Hugging Face folder or a GGUF file")->capture_default_str();
  app.add_option("--text", a.text, "a file with a text that the model has not seen")->capture_default_str();
  app.add_option("--windows", a.n_windows, "windows of 512 tokens to predict; 0: all")
      ->check(program::count_from(0))
      ->capture_default_str();
  program::add_threads_option(app, a.n_threads);
  return program::run(app, argc, argv, [&] { return compare(a); });
}

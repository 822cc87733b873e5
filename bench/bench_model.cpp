// SPDX-License-Identifier: MIT
// How fast does a model of one's own run on this machine, and how fast could it? Times prefill and decoding of random
// tokens, beside what the memory reads and the cores multiply, measured in the same run.
//
// Run: build/bench/bench_model MODEL [--prompt 512] [--gen 128] [--depth 0,4096] [--batch 1,4,16] [--threads 1,2]
//          [--activations exact,int8] [--cache-format f32,f16,int8,…] [--weights mapped,huge-pages,q8_0,q4_0]
//          [--repetitions 5] [--text FILE] [--json FILE]
//
// prefill N  N tokens behind `depth` others at once; logits of the last one.
// decode N   N steps of one token for each of `batch` sequences, in one forward call a step, behind `depth` tokens.
// With --text also the perplexity of a text: what kinds of activations, caches and weights cost in precision.
// Before any time is taken, the logits of the last token are compared with those of the sequence alone on one thread,
// computed by other steps: exit status 1 if a bit differs.
#include "encoded_weights.hpp"
#include "machine.hpp"

#include "../examples/peak_memory.hpp"
#include "../examples/program.hpp"
#include "../examples/progress_line.hpp"

#include <kvdecode/io.hpp>
#include <kvdecode/kvdecode.hpp>
#include <kvdecode/pipeline/load_model.hpp>
#include <kvdecode/pipeline/text_model.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using kvdecode::Index;
using kvdecode::TokenId;
using Json = nlohmann::ordered_json;

struct Arguments {
  std::string model;
  Index n_prompt = 512;
  Index n_gen = 128;
  std::vector<Index> depths{0};
  std::vector<Index> batches{1};
  std::vector<Index> threads;  // none: 1 and as many as there are cores
  std::vector<std::string> activations{"exact"};
  std::vector<std::string> cache_formats{"f32"};
  std::vector<std::string> weights{"mapped"};
  Index n_repetitions = 5;
  std::string text;  // a file; empty: none
  std::string json;  // likewise
};

const std::vector<std::string> kWeights{"mapped", "huge-pages", "q8_0", "q4_0"};

// ---- What is to be measured -----------------------------------------------------------------------------------

struct Test {
  bool is_prefill;
  Index n_tokens;  // of a sequence
  Index depth;     // positions in the cache before

  Index seq_len() const { return depth + n_tokens; }
  std::string name() const { return (is_prefill ? "prefill " : "decode ") + std::to_string(n_tokens); }
};

struct Plan {
  std::vector<Test> tests;
  std::vector<std::string> skipped;  // a sentence each
};

Plan plan_tests(const kvdecode::ModelConfig& config, const Arguments& a) {
  Plan plan;
  const auto add = [&](const Test& test) {
    if (test.n_tokens == 0) return;
    const std::string what = test.name() + " at depth " + std::to_string(test.depth);
    if (test.seq_len() > config.max_seq_len)
      plan.skipped.push_back(what + " is skipped: the model ends at " + std::to_string(config.max_seq_len) +
                             " positions");
    else if (!test.is_prefill && config.rotary_epoch(test.depth + 1) != config.rotary_epoch(test.seq_len()))
      plan.skipped.push_back(
          what + " is skipped: on the way the model's angles change, and old tokens are run again");
    else
      plan.tests.push_back(test);
  };
  for (const Index depth : a.depths) {
    add({true, a.n_prompt, depth});
    add({false, a.n_gen, depth});
  }
  return plan;
}

/// The same tokens for the same seed on every machine.
std::vector<TokenId> random_tokens(std::uint64_t seed, Index n, Index vocab_size) {
  kvdecode::detail::SplitMix64 random(seed);
  std::vector<TokenId> tokens(static_cast<std::size_t>(n));
  for (TokenId& token : tokens)
    token = static_cast<TokenId>(random() % static_cast<std::uint64_t>(vocab_size));
  return tokens;
}

// ---- What was measured ----------------------------------------------------------------------------------------

/// One line of the table.
struct Row {
  Test test;
  std::string activations;
  std::string cache_format;
  std::string weights;
  Index n_threads;
  Index batch;
  std::vector<double> seconds{};  // of each repetition
  double bytes = 0.0;             // that a repetition reads; 0: not what bounds it
  double flops = 0.0;             // that it computes
  std::optional<std::uint64_t> peak_memory{};

  std::string title() const {
    return test.name() + " at depth " + std::to_string(test.depth) + ", batch " + std::to_string(batch) +
           ", " + std::to_string(n_threads) + (n_threads == 1 ? " thread" : " threads") + ", " + activations +
           " activations, " + cache_format + " cache, " + weights + " weights";
  }
};

struct Spread {
  double median, min, max;
};
Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2.0;
  return {median, values.front(), values.back()};
}

std::string fixed(double value, int digits, const char* unit = "") {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f%s", digits, value, unit);
  return buffer;
}
std::string percent(double share) { return share < 10.0 ? fixed(100.0 * share, 0, " %") : "> 999 %"; }

/// Prints rows as they come, and keeps them as JSON.
class Report {
 public:
  Report(const Arguments& a, const kvdecode::LoadedModel& model, const kvdecode::Cost& token,
         const Plan& plan)
      : path_(a.json),
        shows_kinds_(a.activations.size() > 1 || a.cache_formats.size() > 1 || a.weights.size() > 1) {
    const kvdecode::BuildInfo build = kvdecode::build_info();
    const kvdecode::LoadReport& files = model.report;
    const double flops = 2.0 * token.multiply_adds.linear();
    json_["kvdecode"] = {
        {"version", build.version}, {"instruction_set", build.instruction_set}, {"compiler", build.compiler}};
    json_["machine"] = Json::array();
    json_["model"] = {{"path", a.model},
                      {"architecture", files.architecture},
                      {"n_parameters", files.n_parameters},
                      {"n_bytes", files.n_bytes},
                      {"n_layers", model.config.n_layers},
                      {"vocab_size", model.config.vocab_size},
                      {"max_seq_len", model.config.max_seq_len},
                      {"weight_bytes_per_token", token.weight_bytes},
                      {"weight_flops_per_token", flops},
                      {"formats", Json::object()}};
    std::string formats;
    for (const kvdecode::FormatUse& use : files.formats) {
      json_["model"]["formats"][std::string(to_string(use.format))] = use.n_bytes;
      formats +=
          ", " + std::string(to_string(use.format)) + " " + program::bytes(static_cast<Index>(use.n_bytes));
    }
    json_["skipped"] = plan.skipped;
    json_["results"] = Json::array();
    json_["perplexity"] = Json::array();
    save();

    print_line(program::one_line(a.model));
    print_line("  " + program::one_line(files.architecture) + ", " +
               program::count(static_cast<Index>(files.n_parameters)) + " parameters" + formats);
    print_line("  a token reads " + fixed(token.weight_bytes / 1e6, 1) + " MB of weights and computes " +
               fixed(flops / 1e6, 1) + " Mflop with them");
    if (!shows_kinds_)
      print_line("  " + a.activations.front() + " activations, " + a.cache_formats.front() + " cache, " +
                 a.weights.front() + " weights");
    print_line("kvdecode " + std::string(build.version) + ", " + std::string(build.instruction_set) + ", " +
               std::string(build.compiler));
    for (const std::string& sentence : plan.skipped) print_line(sentence);
  }

  void add(const bench::MachineLimits& limits) {
    json_["machine"].push_back({{"threads", limits.n_threads},
                                {"read_bytes_per_second", limits.read_bytes_per_second},
                                {"flops_per_second", limits.flops_per_second}});
    if (machine_.empty()) print_line("\nthreads  read GB/s  fma Gflop/s   (the machine)");
    machine_.push_back(limits);
    print_cells({{"", 7, std::to_string(limits.n_threads)},
                 {"", 9, fixed(limits.read_bytes_per_second / 1e9, 1)},
                 {"", 11, fixed(limits.flops_per_second / 1e9, 1)}});
  }

  void add(const Row& row) {
    const double n_tokens = static_cast<double>(row.test.n_tokens * row.batch);
    std::vector<double> rates;
    for (const double seconds : row.seconds) rates.push_back(n_tokens / seconds);
    const Spread rate = spread_of(rates);
    const double passes = rate.median / n_tokens;  // a second
    const bench::MachineLimits& limits =
        *std::find_if(machine_.begin(), machine_.end(),
                      [&](const bench::MachineLimits& m) { return m.n_threads == row.n_threads; });
    const double read_share = row.bytes * passes / limits.read_bytes_per_second;
    const double flop_share = row.flops * passes / limits.flops_per_second;
    const bool reads = row.bytes > 0.0;

    Json json = {{"test", row.test.is_prefill ? "prefill" : "decode"},
                 {"n_tokens", row.test.n_tokens},
                 {"depth", row.test.depth},
                 {"batch", row.batch},
                 {"threads", row.n_threads},
                 {"activations", row.activations},
                 {"cache_format", row.cache_format},
                 {"weights", row.weights},
                 {"tokens_per_second", {{"median", rate.median}, {"min", rate.min}, {"max", rate.max}}},
                 {"seconds", row.seconds},
                 {"bytes_per_second", reads ? Json(row.bytes * passes) : Json()},
                 {"share_of_read_bandwidth", reads ? Json(read_share) : Json()},
                 {"flops_per_second", row.flops * passes},
                 {"share_of_fma_peak", flop_share},
                 {"peak_memory_bytes", row.peak_memory ? Json(*row.peak_memory) : Json()}};
    json_["results"].push_back(std::move(json));
    save();

    std::vector<Cell> cells{{"test", -12, row.test.name()}};
    if (shows_kinds_) {
      cells.push_back({"activations", -11, row.activations});
      cells.push_back({"cache", -13, row.cache_format});
      cells.push_back({"weights", -10, row.weights});
    }
    cells.insert(
        cells.end(),
        {{"depth", 6, std::to_string(row.test.depth)},
         {"batch", 5, std::to_string(row.batch)},
         {"threads", 7, std::to_string(row.n_threads)},
         {"tokens/s", 8, program::rate(rate.median)},
         {"[    min ..", 11, "[" + padded(7, program::rate(rate.min)) + " .."},
         {"    max]", 8, program::rate(rate.max) + "]"},
         {"GB/s", 5, reads ? fixed(row.bytes * passes / 1e9, 1) : "-"},
         {"of read", 7, reads ? percent(read_share) : "-"},
         {"Gflop/s", 7, fixed(row.flops * passes / 1e9, 1)},
         {"of fma", 7, percent(flop_share)},
         {"memory", 10, row.peak_memory ? program::bytes(static_cast<Index>(*row.peak_memory)) : "-"}});
    if (json_["results"].size() == 1) {
      std::vector<Cell> header = cells;
      for (Cell& cell : header) cell.text = cell.title;
      print_line("");
      print_cells(header);
    }
    print_cells(cells);
  }

  /// @param window  tokens
  void add(const Row& row, const kvdecode::Perplexity& perplexity, Index window) {
    json_["perplexity"].push_back({{"activations", row.activations},
                                   {"cache_format", row.cache_format},
                                   {"weights", row.weights},
                                   {"value", perplexity.value},
                                   {"n_predicted", perplexity.n_predicted},
                                   {"window", window}});
    save();
    print_line("perplexity " + fixed(perplexity.value, 4) + " with " + row.activations + " activations, " +
               row.cache_format + " cache, " + row.weights + " weights, over " +
               program::count(perplexity.n_predicted) + " tokens in windows of " + program::count(window));
  }

 private:
  struct Cell {
    const char* title;
    int width;  // of its column; negative: to the left
    std::string text;
  };

  static std::string padded(int width, const std::string& text) {
    const std::string spaces(
        static_cast<std::size_t>(std::max(0, std::abs(width) - static_cast<int>(text.size()))), ' ');
    return width < 0 ? text + spaces : spaces + text;
  }
  static void print_line(const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }
  static void print_cells(const std::vector<Cell>& cells) {
    std::string line;
    for (const Cell& cell : cells) line += (line.empty() ? "" : "  ") + padded(cell.width, cell.text);
    print_line(line);
  }

  /// After each row, so that a run that is broken off has what it came to, and a file that cannot be written is known
  /// before the first.
  void save() const {
    if (path_.empty()) return;
    const std::string text = json_.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    const std::span<const std::byte> part = std::as_bytes(std::span(text));
    kvdecode::write_file_atomically(path_, std::span(&part, 1));
  }

  std::string path_;
  Json json_;
  bool shows_kinds_;  // of activations, caches and weights: there are several
  std::vector<bench::MachineLimits> machine_;
};

// ---- Measuring ------------------------------------------------------------------------------------------------

/// One kind of transformer over one kind of cache.
template <class Model, kvdecode::KvCache Cache>
class Bench {
  using Segment = kvdecode::Segment<Cache>;

 public:
  Bench(Model model, const Arguments& a, const Plan& plan)
      : model_(std::move(model)),
        cost_(kvdecode::model_cost<typename Cache::KeyFormat, typename Cache::ValueFormat,
                                   kvdecode::GgufFormats>(model_.config(), model_.weights())),
        arguments_(a),
        cache_(model_.kv_shape(), longest(plan)) {
    const Index vocab_size = model_.config().vocab_size;
    before_ = random_tokens(0, cache_.capacity(), vocab_size);
    for (Index i = 0; i < a.batches.back(); ++i)
      tokens_.push_back(
          random_tokens(static_cast<std::uint64_t>(i) + 1, std::max(a.n_prompt, a.n_gen), vocab_size));
  }

  /// Measures a test with every number of threads and sequences; `row` says the rest of what it is.
  void measure(const Test& test, Row row, Report& report) {
    row.test = test;
    row.batch = 1;
    fill_cache(test);
    const std::vector<Index> batches = test.is_prefill ? std::vector<Index>{1} : arguments_.batches;
    std::vector<std::vector<float>> expected;  // of each sequence, the logits of its last token
    for (Index i = 0; i < batches.back(); ++i) expected.push_back(logits_alone(test, i));
    for (const Index n_threads : arguments_.threads)
      for (const Index batch : batches) {
        row.n_threads = n_threads;
        row.batch = batch;
        measure_row(row, expected);
        report.add(row);
      }
  }

 private:
  static Index longest(const Plan& plan) {
    Index longest = 1;
    for (const Test& test : plan.tests) longest = std::max(longest, test.seq_len());
    return longest;
  }

  std::span<const TokenId> tokens_of(const Test& test, Index sequence) const {
    return std::span(tokens_[static_cast<std::size_t>(sequence)])
        .first(static_cast<std::size_t>(test.n_tokens));
  }

  /// Leaves the first `depth` tokens in the cache, as the rows of the test will need them.
  void fill_cache(const Test& test) {
    const Index epoch = model_.config().rotary_epoch(test.seq_len());
    if (cache_.epoch() != epoch) cache_.clear(epoch);
    cache_.truncate(std::min(cache_.kv_len(), test.depth));
    if (cache_.kv_len() == test.depth) return;
    kvdecode::ThreadTeam team(*std::max_element(arguments_.threads.begin(), arguments_.threads.end()));
    kvdecode::Workspace<float> workspace;
    program::ProgressLine line("filling the cache to depth " + std::to_string(test.depth));
    const Index from = cache_.kv_len();
    while (cache_.kv_len() < test.depth) {
      const Index n = std::min(kPass, test.depth - cache_.kv_len());
      prefill(
          workspace, team, cache_,
          std::span(before_).subspan(static_cast<std::size_t>(cache_.kv_len()), static_cast<std::size_t>(n)),
          kvdecode::Rows::kNone);
      line(cache_.kv_len() - from, test.depth - from);
    }
  }

  kvdecode::RowsView<const float> prefill(kvdecode::Workspace<float>& workspace, kvdecode::ExecutorRef exec,
                                          Cache& cache, std::span<const TokenId> tokens,
                                          kvdecode::Rows last = kvdecode::Rows::kLast) const {
    kvdecode::RowsView<const float> logits;
    while (!tokens.empty()) {
      const auto pass = tokens.first(std::min(tokens.size(), static_cast<std::size_t>(kPass)));
      tokens = tokens.subspan(pass.size());
      logits = model_.forward(workspace, exec,
                              Segment{&cache, pass, tokens.empty() ? last : kvdecode::Rows::kNone});
    }
    return logits;
  }

  /// A step of one token of each sequence after another.
  kvdecode::RowsView<const float> decode(kvdecode::Workspace<float>& workspace, kvdecode::ExecutorRef exec,
                                         const Test& test, std::span<Segment> segments) const {
    kvdecode::RowsView<const float> logits;
    for (Index step = 0; step < test.n_tokens; ++step) {
      for (std::size_t i = 0; i < segments.size(); ++i)
        segments[i].tokens = std::span(tokens_[i]).subspan(static_cast<std::size_t>(step), 1);
      logits = model_.forward(workspace, exec, std::span<const Segment>(segments));
    }
    return logits;
  }

  /// The logits of a sequence's last token, by itself on one thread: all tokens but the last at once, then that one.
  std::vector<float> logits_alone(const Test& test, Index sequence) {
    kvdecode::Workspace<float> workspace;
    const std::span<const TokenId> tokens = tokens_of(test, sequence);
    prefill(workspace, {}, cache_, tokens.first(tokens.size() - 1), kvdecode::Rows::kNone);
    const auto logits = prefill(workspace, {}, cache_, tokens.last(1));
    std::vector<float> result(logits.row(0), logits.row(0) + logits.cols);
    cache_.truncate(test.depth);
    return result;
  }

  void measure_row(Row& row, const std::vector<std::vector<float>>& expected) {
    const Test& test = row.test;
    kvdecode::ThreadTeam team(row.n_threads);
    kvdecode::Workspace<float> workspace;
    std::vector<Cache> others;  // the first sequence has cache_
    for (Index i = 1; i < row.batch; ++i) others.push_back(cache_.fork());
    std::vector<Segment> segments{Segment{&cache_}};
    for (Cache& cache : others) segments.push_back(Segment{&cache});

    const bool knows_peak = program::reset_peak_memory();
    program::ProgressLine line(row.title());
    row.seconds.clear();
    for (Index repetition = -1; repetition < arguments_.n_repetitions; ++repetition) {
      const auto start = std::chrono::steady_clock::now();
      const auto logits = test.is_prefill ? prefill(workspace, team, cache_, tokens_of(test, 0))
                                          : decode(workspace, team, test, segments);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      if (repetition < 0)
        require_equal(row, logits, expected);
      else
        row.seconds.push_back(elapsed.count());
      for (const Segment& segment : segments) segment.cache->truncate(test.depth);
      line(repetition + 1, arguments_.n_repetitions);
    }
    row.peak_memory = knows_peak ? program::peak_memory() : std::nullopt;
    set_costs(row);
  }

  static void require_equal(const Row& row, kvdecode::RowsView<const float> logits,
                            const std::vector<std::vector<float>>& expected) {
    for (Index i = 0; i < logits.rows; ++i)
      if (std::memcmp(logits.row(i), expected[static_cast<std::size_t>(i)].data(),
                      static_cast<std::size_t>(logits.cols) * sizeof(float)) != 0)
        throw std::runtime_error(row.title() + ": the last logits of sequence " + std::to_string(i) +
                                 " are not those of the sequence alone on one thread");
  }

  void set_costs(Row& row) const {
    const Test& test = row.test;
    if (test.is_prefill) {
      row.bytes = 0.0;
      row.flops = 2.0 * cost_.forward(test.depth, test.n_tokens).multiply_adds.total();
      return;
    }
    const double batch = static_cast<double>(row.batch);
    kvdecode::Cost steps;  // of one sequence
    for (Index position = test.depth; position < test.seq_len(); ++position)
      steps += cost_.forward(position, 1);
    row.flops = 2.0 * batch * steps.multiply_adds.total();
    row.bytes = static_cast<double>(test.n_tokens) * cost_.weight_bytes(row.batch, row.batch) +
                batch * steps.cache_bytes_read;
  }

  static constexpr Index kPass = 512;  // tokens, as a Decoder takes them

  Model model_;
  kvdecode::ModelCost cost_;
  const Arguments& arguments_;
  Cache cache_;                               // of the first sequence
  std::vector<TokenId> before_;               // the tokens that all sequences begin with
  std::vector<std::vector<TokenId>> tokens_;  // of each sequence, those behind them
};

/// The tokens of a text file.
std::vector<TokenId> read_text(const Arguments& a) {
  const kvdecode::MappedFile file(a.text);
  const kvdecode::Tokenizer tokenizer(kvdecode::load_tokenizer_spec(a.model));
  std::vector<TokenId> tokens =
      tokenizer.encode({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  if (tokens.size() < 2) throw std::runtime_error(a.text + ": a text of fewer than two tokens says nothing");
  return tokens;
}

template <class Cache, class Model>
void measure_perplexity(const Model& model, const std::vector<TokenId>& tokens, const Arguments& a,
                        const Row& row, Report& report) {
  const Index window = std::min<Index>(512, model.config().max_seq_len);
  kvdecode::ThreadTeam team(a.threads.back());
  program::ProgressLine line("reading the text with " + row.activations + " activations");
  report.add(row, kvdecode::perplexity<Cache>(model, tokens, {.window = window, .n_windows = 8}, team, line),
             window);
}

/// The weights in one of the places or formats of kWeights.
kvdecode::Weights weights_as(const std::string& kind, const kvdecode::Weights& mapped) {
  if (kind == "huge-pages") return kvdecode::copy_to_huge_pages(mapped);
  if (kind == kvdecode::Q8_0::kName) return bench::encoded_weights<kvdecode::Q8_0>(mapped);
  if (kind == kvdecode::Q4_0::kName) return bench::encoded_weights<kvdecode::Q4_0>(mapped);
  return mapped;
}

int run(const Arguments& a) {
  const kvdecode::LoadedModel model = kvdecode::load_model(a.model);
  const Plan plan = plan_tests(model.config, a);
  if (plan.tests.empty()) throw std::runtime_error("there is nothing to measure: " + plan.skipped.front());
  {
    program::ProgressLine line("reading the model");
    kvdecode::page_in(model.report.files, line);
  }
  const std::vector<TokenId> text = a.text.empty() ? std::vector<TokenId>{} : read_text(a);
  const kvdecode::ModelCost cost =
      kvdecode::model_cost<kvdecode::F32, kvdecode::F32, kvdecode::GgufFormats>(model.config, model.weights);
  Report report(a, model, cost.forward(0, 1), plan);
  for (const Index n_threads : a.threads) report.add(bench::measure_machine(n_threads));
  std::vector<kvdecode::Weights> kinds_of_weights;
  for (const std::string& kind : a.weights) kinds_of_weights.push_back(weights_as(kind, model.weights));
  for (const std::string& activations : a.activations)
    program::with_activations(activations, [&]<class Activations>() {
      using Model = kvdecode::Transformer<float, Activations, kvdecode::GgufFormats>;
      for (std::size_t i = 0; i < a.weights.size(); ++i) {
        const Model transformer(model.config, kinds_of_weights[i]);
        for (const std::string& cache_format : a.cache_formats)
          kvdecode::visit_cache_format<float>(program::cache_format(cache_format), [&]<class K, class V>() {
            using Cache = kvdecode::ContiguousCache<K, V>;
            Bench<Model, Cache> bench(transformer, a, plan);
            const Row row{plan.tests.front(), activations, cache_format, a.weights[i], 1, 1};
            for (const Test& test : plan.tests) bench.measure(test, row, report);
            if (!text.empty()) measure_perplexity<Cache>(transformer, text, a, row, report);
          });
      }
    });
  return 0;
}

void sort_unique(std::vector<Index>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Times prefill and decoding of a model, beside the limits of the machine.", "bench_model"};
  Arguments a;
  // A list is one argument: what follows it is not of the list.
  const auto list = [&](const char* name, auto& values, const char* description) {
    return app.add_option(name, values, description)->delimiter(',')->allow_extra_args(false);
  };
  app.add_option("MODEL", a.model, "a Hugging Face folder or a GGUF file")->required();
  app.add_option("--prompt", a.n_prompt, "tokens to prefill; 0: do not")
      ->check(program::count_from(0))
      ->capture_default_str();
  app.add_option("--gen", a.n_gen, "tokens to decode; 0: do not")
      ->check(program::count_from(0))
      ->capture_default_str();
  list("--depth", a.depths, "tokens in the cache before")
      ->check(program::count_from(0))
      ->capture_default_str();
  list("--batch", a.batches, "sequences to decode together")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  program::add_threads_option(app, a.threads)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->default_str("1 and as many as there are cores");
  program::add_activations_option(app, a.activations)->delimiter(',')->allow_extra_args(false);
  program::add_cache_format_option(app, a.cache_formats, "f32")->delimiter(',')->allow_extra_args(false);
  list("--weights", a.weights,
       "where matrices lie, mapped from the file or copied to huge-pages; or stored anew in a format")
      ->check(CLI::IsMember(kWeights))
      ->capture_default_str();
  app.add_option("--repetitions", a.n_repetitions, "how often each time is taken")
      ->check(program::count_from(1))
      ->capture_default_str();
  app.add_option("--text", a.text, "a file with a text, to measure the model's perplexity of its beginning");
  app.add_option("--json", a.json, "a file to write the results to");
  app.final_callback([&] {
    if (a.n_prompt == 0 && a.n_gen == 0)
      throw CLI::ValidationError("--prompt and --gen are both 0: there is nothing to measure");
    if (a.threads.empty())
      a.threads = {1, static_cast<Index>(std::max(1u, std::thread::hardware_concurrency()))};
    sort_unique(a.threads);
    sort_unique(a.depths);
    sort_unique(a.batches);
  });
  return program::run(app, argc, argv, [&] { return run(a); });
}

// SPDX-License-Identifier: MIT
// What is in a model's files, and what will it cost to run? Reads headers only, whatever the size of the model.
//
// Run: build/examples/inspect MODEL [--tensors] [--max-seq-len N] [--measure [N]]
//
// --measure runs N tokens (64) and compares the memory that took with the sizes of file and cache.
// Exit status 1 if the model cannot be run; what its files hold is printed all the same.
#include "peak_memory.hpp"
#include "program.hpp"

#include <kvdecode/pipeline.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using kvdecode::Index;

struct Arguments {
  std::string model;
  bool tensors = false;
  Index max_seq_len = 0;  // 0: the model's
  Index n_measured = 0;
};

/// A tensor as its file describes it.
struct StoredTensor {
  std::string name;
  std::string type;
  std::vector<Index> shape;
  std::uint64_t n_bytes;
};

/// What a model's files hold, whether the model can be run or not.
struct Files {
  std::vector<std::string> paths;
  std::vector<StoredTensor> tensors;
  std::uint64_t n_bytes = 0;
};

void add(Files& files, const kvdecode::SafetensorsFile& file) {
  files.paths.push_back(file.source());
  for (const kvdecode::SafetensorsTensor& t : file.tensors())
    files.tensors.push_back({std::string(t.name), std::string(to_string(t.dtype)), t.shape, t.bytes.size()});
}
void add(Files& files, const kvdecode::GgufFile& file) {
  files.paths.push_back(file.source());
  for (const kvdecode::GgufTensor& t : file.tensors()) {
    const auto shape = t.shape();
    files.tensors.push_back(
        {std::string(t.name), std::string(t.type->name), {shape.begin(), shape.end()}, t.bytes.size()});
  }
}

Files open_files(const std::filesystem::path& path) {
  Files files;
  if (std::filesystem::is_directory(path)) {
    std::vector<std::filesystem::path> found{path / "model.safetensors"};
    if (!std::filesystem::exists(found.front())) {  // then there are shards of it
      found.clear();
      for (const auto& entry : std::filesystem::directory_iterator(path))
        if (entry.path().extension() == ".safetensors" &&
            entry.path().filename().string().starts_with("model-"))
          found.push_back(entry.path());
      std::sort(found.begin(), found.end());
    }
    for (const auto& file : found) add(files, kvdecode::SafetensorsFile(file));
  } else {
    for (const kvdecode::GgufFile& file : kvdecode::open_gguf_files(path)) add(files, file);
  }
  for (const std::string& file : files.paths) files.n_bytes += std::filesystem::file_size(file);
  return files;
}

void row(std::string_view name, const std::string& text) {
  std::printf("  %-16.*s %s\n", static_cast<int>(name.size()), name.data(), text.c_str());
}
std::string counted(Index n, const std::string& one) {
  return program::count(n) + " " + one + (n == 1 ? "" : "s");
}
std::string bytes(std::uint64_t n) { return program::bytes(static_cast<Index>(n)); }

// ---- What the files hold ------------------------------------------------------------------------------------

std::string shape_of(const StoredTensor& tensor) {
  std::string text;
  for (const Index extent : tensor.shape) text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text.empty() ? "scalar" : text;
}

void print_files(const Files& files) {
  std::printf("files\n");
  for (const std::string& path : files.paths) row(bytes(std::filesystem::file_size(path)), path);
  struct Use {
    Index n_tensors = 0;
    std::uint64_t n_bytes = 0;
  };
  std::map<std::string, Use> uses;
  for (const StoredTensor& tensor : files.tensors) {
    Use& use = uses[tensor.type];
    ++use.n_tensors;
    use.n_bytes += tensor.n_bytes;
  }
  std::printf("tensors\n");
  for (const auto& [type, use] : uses)
    row(type, counted(use.n_tensors, "tensor") + ", " + bytes(use.n_bytes));
}

void print_tensors(const Files& files) {
  std::size_t width = 0;
  for (const StoredTensor& tensor : files.tensors) width = std::max(width, tensor.name.size());
  std::printf("all tensors\n");
  for (const StoredTensor& tensor : files.tensors)
    std::printf("  %-*s  %-7s %16s  %s\n", static_cast<int>(width), tensor.name.c_str(), tensor.type.c_str(),
                shape_of(tensor).c_str(), bytes(tensor.n_bytes).c_str());
}

// ---- What the model is --------------------------------------------------------------------------------------

std::string attention_of(const kvdecode::ModelConfig& config) {
  if (config.is_latent())
    return counted(config.n_heads, "query head") + ", a latent of " + program::count(config.kv_lora_rank) +
           " and a key of " + program::count(config.qk_rope_head_dim()) +
           " for all of them (multi-head latent)";
  const char* const kind = config.n_kv_heads == config.n_heads ? "multi-head"
                           : config.n_kv_heads == 1            ? "multi-query"
                                                               : "grouped-query";
  std::string dims = std::to_string(config.head_dim);
  if (!config.layer_head_dim.empty()) {
    const auto [least, most] =
        std::minmax_element(config.layer_head_dim.begin(), config.layer_head_dim.end());
    dims = std::to_string(*least) + (*least == *most ? "" : " to " + std::to_string(*most));
  }
  return counted(config.n_heads, "query head") + ", " + counted(config.n_kv_heads, "KV head") + " of " +
         dims + " (" + kind + ")";
}

/// Layers that read another's keys and values.
Index readers_of(const kvdecode::ModelConfig& config) {
  Index n = 0;
  for (Index layer = 0; layer < config.n_layers; ++layer) n += config.owns_store(layer) ? 0 : 1;
  return n;
}

/// "28 layers see everything, 4 the last 4,096 positions"
std::string spans_of(const kvdecode::ModelConfig& config) {
  std::vector<std::pair<kvdecode::AttentionSpan, Index>> kinds;
  for (Index layer = 0; layer < config.n_layers; ++layer) {
    const kvdecode::AttentionSpan span = config.span(layer);
    const auto known =
        std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.first == span; });
    if (known != kinds.end())
      ++known->second;
    else
      kinds.emplace_back(span, 1);
  }
  std::string text;
  for (const auto& [span, n_layers] : kinds) {
    text += text.empty() ? "" : ", ";
    text += kinds.size() == 1 ? "every layer sees "
                              : counted(n_layers, "layer") + " see" + (n_layers == 1 ? "s " : " ");
    if (span.chunk != 0)
      text += "chunks of " + program::count(span.chunk) + " positions";
    else if (span.window != 0)
      text += "the last " + program::count(span.window) + " positions" +
              (span.n_sink > 0 ? " and the first " + program::count(span.n_sink) : "");
    else
      text += "all positions";
  }
  return text;
}

void print_model(const kvdecode::LoadedModel& model) {
  const kvdecode::ModelConfig& config = model.config;
  std::printf("model\n");
  row("architecture", model.report.architecture);
  row("parameters", program::count(static_cast<Index>(model.report.n_parameters)));
  row("layers", program::count(config.n_layers) + " of d_model " + program::count(config.d_model));
  row("attention", attention_of(config));
  row("span", spans_of(config));
  if (const Index n = readers_of(config); n > 0)
    row("shared",
        counted(n, "layer") + (n == 1 ? " reads" : " read") + " the keys and values of an earlier one");
  row("feed-forward", "d_ff " + program::count(config.n_experts > 0 ? config.d_expert : config.d_ff) +
                          (config.gated_feed_forward ? ", gated" : "") +
                          (config.n_experts > 0 ? ", " + program::count(config.n_experts_used) + " of " +
                                                      counted(config.n_experts, "expert") + " a token"
                                                : "") +
                          (config.d_shared_expert > 0
                               ? ", and one of " + program::count(config.d_shared_expert) + " for every token"
                               : ""));
  if (config.d_layer_input > 0)
    row("layer inputs",
        program::count(config.d_layer_input) + " numbers of a second embedding in every layer");
  row("vocabulary", program::count(config.vocab_size) + (config.tied_head ? ", tied head" : ""));
  row("context", counted(config.max_seq_len, "position"));
  for (const kvdecode::IgnoredTensor& tensor : model.report.ignored_tensors)
    row("left aside", tensor.name + ": " + tensor.reason);
}

void print_tokenizer(const std::filesystem::path& path) {
  std::printf("tokenizer\n");
  try {
    const kvdecode::TokenizerSpec spec = kvdecode::load_tokenizer_spec(path);
    const bool by_score = spec.model == kvdecode::TokenizerModel::kScoredBpe;
    const kvdecode::Tokenizer tokenizer(spec);
    row("kind", by_score ? "byte-pair encoding by score" : "byte-pair encoding by merges");
    row("tokens", program::count(tokenizer.vocab_size()));
    const auto token = [&](const char* name, std::optional<kvdecode::TokenId> id) {
      if (id) row(name, std::to_string(*id) + " " + std::string(tokenizer.piece(*id)));
    };
    token("begins with", tokenizer.adds_bos() ? tokenizer.bos_id() : std::nullopt);
    token("ends with", tokenizer.eos_id());
    row("chat template", kvdecode::load_chat_template(path).empty() ? "none" : "yes");
  } catch (const kvdecode::Error& error) {
    row("unusable", error.what());
  }
}

// ---- What it costs ------------------------------------------------------------------------------------------

void print_memory(const kvdecode::LoadedModel& model, const Arguments& arguments) {
  const Index max_seq_len = arguments.max_seq_len > 0 ? arguments.max_seq_len : model.config.max_seq_len;
  const kvdecode::KvShape shape = model.config.kv_shape();
  std::printf("memory\n");
  row("weights", bytes(model.report.n_bytes) + ", mapped: the file's own pages");
  std::printf("  %-16s %14s %14s\n", "cache format", "a token",
              ("at " + program::count(max_seq_len)).c_str());
  using Format = kvdecode::CacheFormat;
  const bool can_turn =
      std::all_of(shape.layers.begin(), shape.layers.end(), [](const kvdecode::LayerKvShape& layer) {
        return kvdecode::takes_rows<kvdecode::Int8, kvdecode::HadInt4>(layer);
      });
  for (const Format format : {Format::kNative, Format::kF16, Format::kInt8, Format::kInt8HadInt4}) {
    const std::string name(format == Format::kNative ? "f32" : to_string(format));
    kvdecode::visit_cache_format<float>(format, [&]<class K, class V>() {
      if (format == Format::kInt8HadInt4 && !can_turn)
        return row(name, model.config.is_latent() ? "needs rows of values beside those of keys"
                                                  : "needs heads of " + std::string(kvdecode::kTurnedRows));
      const auto payload = [&](Index n) { return program::bytes(kvdecode::payload_bytes<K, V>(shape, n)); };
      std::printf("  %-16s %14s %14s%s\n", name.c_str(), payload(1).c_str(), payload(max_seq_len).c_str(),
                  format == (can_turn ? Format::kInt8HadInt4 : Format::kInt8) ? "  recommended" : "");
    });
  }
}

/// Decodes n tokens and says what that took. Comes before anything else that takes memory.
struct Measured {
  std::uint64_t before = 0, after = 0;
  std::uint64_t cache = 0, scratch = 0;
};
std::optional<Measured> measure(const std::string& path, Index n_tokens) {
  const std::optional<std::uint64_t> before = program::peak_memory();
  if (!before)
    throw kvdecode::Error(kvdecode::ErrorCode::kUnsupported,
                          "this system does not tell a program's peak memory");
  const kvdecode::LoadedModel model = kvdecode::load_model(path);
  kvdecode::Decoder decoder(kvdecode::FileTransformer<>(model.config, model.weights),
                            kvdecode::Cached<>{.max_seq_len = std::max(n_tokens, model.config.max_seq_len)});
  for (Index i = 0; i < n_tokens; ++i)
    decoder.step(static_cast<kvdecode::TokenId>(i * 7919 % model.config.vocab_size));
  const kvdecode::DecoderStatistics statistics = decoder.statistics();
  return Measured{*before, *program::peak_memory(), static_cast<std::uint64_t>(statistics.cache_bytes),
                  static_cast<std::uint64_t>(statistics.scratch_bytes)};
}

void print_measured(const Measured& measured, const Files& files, Index n_tokens) {
  const std::uint64_t used = measured.after - measured.before;
  const std::uint64_t expected = files.n_bytes + measured.cache;
  std::printf("measured over %s\n", counted(n_tokens, "token").c_str());
  row("peak memory", bytes(measured.after) + ", of which the program itself " + bytes(measured.before));
  row("model's files", bytes(files.n_bytes));
  row("cache", bytes(measured.cache));
  row("workspace", bytes(measured.scratch));
  const bool is_more = used >= expected;
  row("beyond both", (is_more ? "" : "-") + bytes(is_more ? used - expected : expected - used) +
                         " over files and cache together");
}

int inspect(const Arguments& arguments) {
  std::optional<Measured> measured;
  if (arguments.n_measured > 0) measured = measure(arguments.model, arguments.n_measured);
  if (!std::filesystem::exists(arguments.model)) kvdecode::load_model(arguments.model);  // says so
  const Files files = open_files(arguments.model);
  print_files(files);
  if (arguments.tensors) print_tensors(files);
  std::fflush(stdout);
  const kvdecode::LoadedModel model = kvdecode::load_model(arguments.model);
  print_model(model);
  print_tokenizer(arguments.model);
  print_memory(model, arguments);
  if (measured) print_measured(*measured, files, arguments.n_measured);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Shows what a model is and what it costs, without loading it.", "inspect"};
  Arguments a;
  app.add_option("MODEL", a.model, "a Hugging Face folder or a GGUF file")->required();
  app.add_flag("--tensors", a.tensors, "list every tensor");
  app.add_option("--max-seq-len", a.max_seq_len, "positions to reckon the cache for; the model's if left out")
      ->check(program::count_from(1));
  app.add_option("--measure", a.n_measured, "decode N tokens (64) and show the memory that took")
      ->expected(0, 1)
      ->default_str("64")
      ->check(program::count_from(1));
  return program::run(app, argc, argv, [&] { return inspect(a); });
}

// SPDX-License-Identifier: MIT
// 12. The cache grows with the text. Can a model write for ever?
//
//   i, j  positions of a query and a key, from 0      window, n_sink  how many of the last and first ones are seen
//
//   query i sees key j  <=>  j <= i  and  (i - j < window  or  j < n_sink)
//   and meets a sink as if i were min(i, n_sink + window - 1): no distance is larger      Xiao 2023, section 3.2
//
//   window   only the last tokens are seen: what has left the window can be forgotten   Child 2019; Jiang 2023 (Mistral)
//   sinks    the first tokens stay visible as well: models lean on them, and break      Xiao 2023 (StreamingLLM)
//            when they go
//
// What a position may see belongs to the model; a cache only forgets what can never be seen again. So a ring that holds
// the window gives the same bits as a cache that holds everything.
//
// Run: build/examples/12_windows_and_streams
#include <kvdecode/kvdecode.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>

using kvdecode::Index;
using kvdecode::TokenId;

namespace {

/// One character a position: # stored, . forgotten.
template <class Cache>
std::string picture(const Cache& cache, Index n_positions) {
  std::string line(static_cast<std::size_t>(n_positions), ' ');
  for (Index i = 0; i < cache.kv_len(); ++i) line[static_cast<std::size_t>(i)] = '.';
  for (const auto& run : cache.keys(0, 0))
    for (Index i = run.position; i < run.position + run.length; ++i) line[static_cast<std::size_t>(i)] = '#';
  return line;
}

/// Byte for byte: == would take +0 for -0.
bool same_bits(std::span<const float> a, std::span<const float> b) {
  const auto x = std::as_bytes(a), y = std::as_bytes(b);
  return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

}  // namespace

int main() {
  bool all_true = true;
  const auto claim = [&](bool is_true, const char* sentence) {
    std::printf("  %-7s %s\n", is_true ? "[true]" : "[FALSE]", sentence);
    all_true = all_true && is_true;
  };

  kvdecode::ModelConfig config{.n_layers = 2,
                               .d_model = 32,
                               .n_heads = 4,
                               .n_kv_heads = 2,
                               .head_dim = 8,
                               .d_ff = 64,
                               .vocab_size = 100,
                               .max_seq_len = 64};
  const auto weights = kvdecode::random_weights(config);
  const auto token_at = [](Index i) { return static_cast<TokenId>((7 * i + 3) % 100); };
  const auto step = []<class Cache>(const auto& model, auto& workspace, Cache& cache, TokenId token) {
    const auto rows =
        model.forward(workspace, {}, kvdecode::Segment<Cache>{&cache, std::span<const TokenId>(&token, 1)});
    return std::span<const float>(rows.row(0), static_cast<std::size_t>(rows.cols));
  };

  // A model with windows: each layer's queries see 8 positions, their own included.
  auto windowed = config;
  windowed.spans.assign(2, {.window = 8});
  const kvdecode::Transformer<float> model(windowed, weights);
  kvdecode::Workspace<float> workspace, ring_workspace;
  kvdecode::ContiguousCache<> everything(model.kv_shape(), 48);
  kvdecode::SlidingWindowCache<> ring(model.kv_shape(), 48, {.slack = 0, .max_append = 1});
  std::printf("A window of 8: what is stored (# kept, . forgotten)\n\n");
  bool is_same = true;
  for (Index i = 0; i < 48; ++i) {
    const TokenId token = token_at(i);
    is_same = is_same &&
              same_bits(step(model, workspace, everything, token), step(model, ring_workspace, ring, token));
    if (i % 12 == 11) std::printf("  after %2td tokens  %s\n", i + 1, picture(ring, i + 1).c_str());
  }
  std::printf("\n  bytes: %td for everything, %td for the ring, however long the text gets\n",
              everything.bytes(), ring.bytes());

  // The same weights as a stream: two sinks and a window of six, far beyond the 64 positions the model was made for.
  // [readme]
  const kvdecode::Transformer<float> streaming(kvdecode::with_streaming(config, 2, 6), weights);
  constexpr Index kEndless = Index{1} << 60;
  kvdecode::SinkCache<> stream(streaming.kv_shape(), kEndless, {.slack = 0, .max_append = 1});
  // [readme]
  constexpr Index n_streamed = 5000;
  kvdecode::ContiguousCache<> whole_stream(streaming.kv_shape(), n_streamed);
  std::printf("\nA stream: 2 sinks and a window of 6\n\n");
  const Index bytes_at_start = stream.bytes();
  Index n_allocations = 0;
  bool same_stream = true;
  for (Index i = 0; i < n_streamed; ++i) {
    const TokenId token = token_at(i);
    kvdecode::AllocationHook hook;
    std::span<const float> logits;
    {
      const kvdecode::ScopedAllocationHook scope(hook);
      logits = step(streaming, ring_workspace, stream, token);
    }
    if (i > 0) n_allocations += hook.n_allocations;  // the first step makes room for its arithmetic
    same_stream = same_stream && same_bits(logits, step(streaming, workspace, whole_stream, token));
    if (i == 11 || i == 47) std::printf("  after %4td tokens  %s\n", i + 1, picture(stream, i + 1).c_str());
  }
  const std::string all = picture(stream, n_streamed);
  std::printf("  after %td tokens  ##......  %td forgotten  ......######\n", stream.kv_len(),
              std::count(all.begin(), all.end(), '.'));
  std::printf("\n  bytes: %td at the start, %td now; a cache of everything has %td\n\n", bytes_at_start,
              stream.bytes(), whole_stream.bytes());

  claim(is_same, "the ring of a window gives the bits of a cache that forgets nothing");
  claim(same_stream, "so does the stream, at each of 5,000 positions, of which 64 were foreseen");
  claim(stream.bytes() == bytes_at_start && n_allocations == 0,
        "its memory stays as it was: after the first step, none allocates anything");
  return all_true ? 0 : 1;
}

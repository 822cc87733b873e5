// SPDX-License-Identifier: MIT
// <kvdecode/model/cost.hpp> - what decoding costs, in closed form: multiply-adds by what they are for, bytes of weights
// and cache, for one forward call, one step, or a whole text, by either strategy. A Counting scalar run through the
// same templates counts the same numbers.
//
// Of T tokens written one by one, step t has a sequence of t tokens. The query at position i of a layer that sees
// everything meets i + 1 keys, and each costs head_dim multiply-adds for its score and head_dim for its value in each
// of n_heads heads. With a = 2 * n_layers * n_heads * head_dim, attention multiplies and adds
//
//   cached     a * sum of t           = a * T (T + 1) / 2           = (a/2) T^2 + (a/2) T
//   recompute  a * sum of t (t + 1)/2 = a * T (T + 1) (T + 2) / 6   = (a/6) T^3 + (a/2) T^2 + (a/3) T
//
// where t runs from 1 to T: degree 2 with leading coefficient a/2, and degree 3 with leading coefficient a/6. Every
// token that is run passes through every matrix of every layer, w multiply-adds in all, and one row a step through the
// head, h: w T + h T against w T (T + 1) / 2 + h T. (Both strategies send every row through every layer, and asking for
// fewer logits spares the final norm and the head only. To stop old rows before the last layer's queries would make a
// naive run of one layer O(T^2), and is another algorithm.)
//
// Attention over a latent (MLA) meets k_dim = kv_lora_rank + qk_rope_head_dim numbers a key for scores and kv_lora_rank for
// values: with a = n_layers * n_heads * (k_dim + kv_lora_rank) all of this holds. That is more than heads of their own would
// multiply, and the cache that it reads is one row for all heads.
//
// A layer that reads another's keys and values has no matrices for them and writes none; its queries meet them as any
// would. Where layers have inputs of their own, what all of them are made of counts for the first layer.
//
// For short texts a T^2 and a T^3 are small beside w T and w T^2: attention of a step overtakes its matrices at
// t = (w + h) / a. A window, with its sinks, lets a query see no more than k = window + n_sink keys; then both lose
// a degree: beyond t = k a cached step costs a k, a recomputed one a (k t - k (k - 1) / 2). Chunks do the same.
#pragma once

#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/format.hpp>
#include <kvdecode/core/kv_shape.hpp>
#include <kvdecode/core/view.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/weights.hpp>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// Figures of costs are whole numbers in doubles: exact up to 2^53, which no machine counts to, and right to fifteen
/// digits for what nobody should run. (Int64 would not hold a naive 8B model with 128K tokens.)
struct MultiplyAdds {
  double scores = 0.0;        // queries times keys
  double values = 0.0;        // probabilities times values
  double projections = 0.0;   // to queries, keys and values, and back
  double feed_forward = 0.0;  // of experts: the router and those chosen; with the inputs of layers
  double head = 0.0;          // rows of logits

  double attention() const noexcept { return scores + values; }
  double linear() const noexcept { return projections + feed_forward + head; }
  double total() const noexcept { return attention() + linear(); }

  MultiplyAdds& operator+=(const MultiplyAdds& other) noexcept {
    scores += other.scores;
    values += other.values;
    projections += other.projections;
    feed_forward += other.feed_forward;
    head += other.head;
    return *this;
  }
  friend bool operator==(const MultiplyAdds&, const MultiplyAdds&) = default;
};

/// What some work needs. Norms, biases, rotary angles and elementary functions are left out: a few thousandths.
struct Cost {
  MultiplyAdds multiply_adds;
  double weight_bytes = 0.0;  // of matrices, each once a pass, and a row of the embedding a token
  double cache_bytes_read =
      0.0;  // rows of keys and values that each query sees, once for the heads of a group
  double cache_bytes_written = 0.0;  // rows of keys and values, once a token that is run

  double bytes() const noexcept { return weight_bytes + cache_bytes_read + cache_bytes_written; }

  Cost& operator+=(const Cost& other) noexcept {
    multiply_adds += other.multiply_adds;
    weight_bytes += other.weight_bytes;
    cache_bytes_read += other.cache_bytes_read;
    cache_bytes_written += other.cache_bytes_written;
    return *this;
  }
  friend bool operator==(const Cost&, const Cost&) = default;
};

/// The two ways to decode of <kvdecode/decode/strategies.hpp>.
enum class StrategyKind {
  kRecompute,  ///< a step runs the whole sequence
  kCached,     ///< a step runs its new tokens
};

namespace detail {

/// 1 + 2 + … + n
inline double triangle(double n) noexcept { return n * (n + 1.0) / 2.0; }
/// triangle(1) + triangle(2) + … + triangle(n) = n (n + 1) (n + 2) / 6
inline double tetrahedron(double n) noexcept { return triangle(n) * (n + 2.0) / 3.0; }

/// Keys that the queries at positions [0, n) see, all together.
inline double keys_seen(const AttentionSpan& span, Index n) noexcept {
  if (span.chunk != 0) {
    const Index whole = n / span.chunk;  // chunks
    return static_cast<double>(whole) * triangle(static_cast<double>(span.chunk)) +
           triangle(static_cast<double>(n % span.chunk));
  }
  // Query i sees min(i + 1, window + n_sink): sinks are among the first i + 1 until the window has left them.
  const Index limit = span.window == 0 ? n : std::min(n, span.window + span.n_sink);
  return triangle(static_cast<double>(limit)) + static_cast<double>(n - limit) * static_cast<double>(limit);
}

/// keys_seen(span, 1) + keys_seen(span, 2) + … + keys_seen(span, n).
inline double keys_seen_by_prefixes(const AttentionSpan& span, Index n) noexcept {
  if (span.chunk != 0) {
    const Index n_whole = n / span.chunk;
    const double chunk = static_cast<double>(span.chunk), whole = static_cast<double>(n_whole),
                 rest = static_cast<double>(n % span.chunk);
    return triangle(chunk) * (chunk * triangle(whole - 1.0) + whole * rest) + whole * tetrahedron(chunk) +
           tetrahedron(rest);
  }
  const Index limit = span.window == 0 ? n : std::min(n, span.window + span.n_sink);
  const double k = static_cast<double>(limit), beyond = static_cast<double>(n - limit);
  return tetrahedron(k) + beyond * triangle(k) + k * triangle(beyond);
}

/// A matrix of a layer or an expert (W), by its place there and its sizes.
template <class W>
struct MatrixPlace {
  LinearWeights W::*place;
  Index rows;
  Index cols;
};

/// Matrices of every head of a layer, as they are stored.
struct HeadMatrices {
  std::vector<MatrixView> LayerWeights::*place;
  Index n_heads;
  Index rows;
  Index cols;
};

/// The matrices of a layer that make queries, keys and values of a row, and of what the heads saw a row again.
inline std::vector<MatrixPlace<LayerWeights>> projection_matrices(const ModelConfig& config, Index layer) {
  const Index d = config.d_model, head_dim = config.head_dim_of(layer), q_dim = config.n_heads * head_dim,
              kv_dim = config.n_kv_heads * head_dim;
  if (config.is_latent()) {
    std::vector<MatrixPlace<LayerWeights>> matrices{{&LayerWeights::w_kv_a, config.k_dim(), d},
                                                    {&LayerWeights::w_o, d, config.o_dim()}};
    const Index q_input = config.q_lora_rank > 0 ? config.q_lora_rank : d;
    matrices.push_back({&LayerWeights::w_q, q_dim, q_input});
    if (config.q_lora_rank > 0) matrices.push_back({&LayerWeights::w_q_a, config.q_lora_rank, d});
    return matrices;
  }
  std::vector<MatrixPlace<LayerWeights>> matrices{{&LayerWeights::w_q, q_dim, d},
                                                  {&LayerWeights::w_o, d, q_dim}};
  if (!config.owns_store(layer)) return matrices;
  matrices.push_back({&LayerWeights::w_k, kv_dim, d});
  matrices.push_back({&LayerWeights::w_v, kv_dim, d});
  return matrices;
}

/// The matrices of a layer that make something of its inputs.
inline std::vector<MatrixPlace<LayerWeights>> input_matrices(const ModelConfig& config) {
  if (config.d_layer_input == 0) return {};
  return {{&LayerWeights::w_input_gate, config.d_layer_input, config.d_model},
          {&LayerWeights::w_input_out, config.d_model, config.d_layer_input}};
}

/// Likewise those that lead from queries to a latent and from what was seen of it to values.
inline std::vector<HeadMatrices> head_matrices(const ModelConfig& config) {
  if (!config.is_latent()) return {};
  return {{&LayerWeights::w_k_b, config.n_heads, config.qk_nope_head_dim, config.kv_lora_rank},
          {&LayerWeights::w_v_b, config.n_heads, config.v_head_dim, config.kv_lora_rank}};
}

/// @tparam W  LayerWeights or ExpertWeights
template <class W>
std::vector<MatrixPlace<W>> feed_forward_matrices(const ModelConfig& config, Index d_ff) {
  std::vector<MatrixPlace<W>> matrices{{&W::w_up, d_ff, config.d_model}, {&W::w_down, config.d_model, d_ff}};
  if (config.gated_feed_forward) matrices.push_back({&W::w_gate, d_ff, config.d_model});
  return matrices;
}

template <class W>
double matrix_multiply_adds(const std::vector<MatrixPlace<W>>& matrices) {
  double total = 0.0;
  for (const MatrixPlace<W>& matrix : matrices)
    total += static_cast<double>(matrix.rows) * static_cast<double>(matrix.cols);
  return total;
}
inline double matrix_multiply_adds(const std::vector<HeadMatrices>& matrices) {
  double total = 0.0;
  for (const HeadMatrices& each : matrices)
    total += static_cast<double>(each.n_heads * each.rows) * static_cast<double>(each.cols);
  return total;
}

}  // namespace detail

/// Bytes that the numbers of a matrix take where they lie; 0 of an empty one.
/// @tparam Formats  storage formats that it may have
template <class Formats = CoreFormats>
double matrix_bytes(const MatrixView& matrix) {
  if (matrix.empty()) return 0.0;
  return visit_format(Formats{}, matrix.format, [&]<class F>() {
    return static_cast<double>(matrix.stored_rows()) *
           static_cast<double>(F::row_bytes(matrix.stored_cols()));
  });
}

/// What one layer costs, by the unit of work.
struct LayerCost {
  AttentionSpan span{};
  double scores = 0.0;  // multiply-adds, a query and a key that it sees
  double values = 0.0;  // likewise
  double cache_bytes_read =
      0.0;  // likewise: a row of keys and one of values of every KV head, or both in one
  double cache_bytes_written = 0.0;  // a token; none where the rows are another layer's
  double projections = 0.0;          // multiply-adds, a token
  double feed_forward = 0.0;         // likewise
  double weight_bytes = 0.0;         // a pass: all matrices but those of experts
  double expert_bytes = 0.0;         // of all experts, of which a pass reads those that its tokens choose
};

/// What a model costs. model_cost() makes it; then every answer is arithmetic, O(n_layers), whatever the lengths.
struct ModelCost {
  ModelConfig config;
  std::vector<LayerCost> layers;
  double head = 0.0;        // multiply-adds, a row of logits
  double head_bytes = 0.0;  // of its matrix, or of the embedding where that is tied
  double embedding_bytes =
      0.0;  // a token: its row, that of its position where positions are learned, and that of all
            // layers' inputs
  Index prefill_chunk = 512;  // tokens a pass, as strategies have it: longer steps read all matrices again

  /// One forward call of one sequence behind kv_len cached positions, in one pass. @pre no length is negative
  Cost forward(Index kv_len, Index n_new, Index n_logit_rows = 1) const {
    const auto keys = [&](const AttentionSpan& span) {
      return detail::keys_seen(span, kv_len + n_new) - detail::keys_seen(span, kv_len);
    };
    return cost_of(keys, static_cast<double>(n_new), {used(0.0, n_new), used(unused_share(), n_new)},
                   static_cast<double>(n_logit_rows), n_logit_rows > 0 ? 1.0 : 0.0);
  }
  /// The step that gives the logits behind seq_len tokens, of which a cache has seen all but the last.
  /// @throws Error kBadArgument (seq_len), kUnsupported (see total)
  Cost step(StrategyKind kind, Index seq_len) const {
    check(kind, seq_len, 1, std::max<Index>(1, seq_len - 1));
    if (kind == StrategyKind::kCached) return forward(seq_len - 1, 1);
    const auto keys = [&](const AttentionSpan& span) { return detail::keys_seen(span, seq_len); };
    return cost_of(keys, static_cast<double>(seq_len),
                   {passes(0.0, seq_len), passes(unused_share(), seq_len)}, 1.0, 1.0);
  }
  /// All steps that write n_new tokens behind a prompt: the first one runs the prompt, and the last token is not fed.
  /// T calls of Decoder::step with nothing before them are n_prompt = 1, n_new = T.
  /// @throws Error kBadArgument (lengths below 1), kUnsupported (cached steps of a rotary scaling by which old tokens
  /// have to be run again on the way)
  Cost total(StrategyKind kind, Index n_prompt, Index n_new) const {
    check(kind, n_prompt, n_new, n_prompt);
    const Index last = n_prompt + n_new - 1;  // tokens of the last step's sequence
    const double n_steps = static_cast<double>(n_new), share = unused_share();
    if (kind == StrategyKind::kCached) {
      const auto keys = [&](const AttentionSpan& span) { return detail::keys_seen(span, last); };
      const Passes read{passes(0.0, n_prompt) + (n_steps - 1.0) * used(0.0, 1),
                        passes(share, n_prompt) + (n_steps - 1.0) * used(share, 1)};
      return cost_of(keys, static_cast<double>(last), read, n_steps, n_steps);
    }
    const auto keys = [&](const AttentionSpan& span) {
      return detail::keys_seen_by_prefixes(span, last) - detail::keys_seen_by_prefixes(span, n_prompt - 1);
    };
    const auto between = [&](double unused) {
      return passes_of_prefixes(unused, last) - passes_of_prefixes(unused, n_prompt - 1);
    };
    const double n_run =
        detail::triangle(static_cast<double>(last)) - detail::triangle(static_cast<double>(n_prompt) - 1.0);
    return cost_of(keys, n_run, {between(0.0), between(share)}, n_steps, n_steps);
  }

  /// Bytes of weights that a pass over n_tokens reads. Of the experts of a mixture, those that are used at all: an
  /// expectation, as if each token drew its own, but exact for one token.
  double weight_bytes(Index n_tokens, Index n_logit_rows) const {
    return forward(0, n_tokens, n_logit_rows).weight_bytes;
  }

 private:
  /// How often layers are read, and which part of their experts, summed over passes.
  struct Passes {
    double layers;
    double experts;
  };

  /// The part of the experts that one token leaves unused.
  double unused_share() const noexcept {
    if (config.n_experts == 0) return 0.0;
    return 1.0 - static_cast<double>(config.n_experts_used) / static_cast<double>(config.n_experts);
  }
  /// The part that n tokens use together. With `unused` 0: 1 of one token and more.
  static double used(double unused, Index n) noexcept {
    return 1.0 - std::pow(unused, static_cast<double>(n));
  }
  /// used(1) + used(2) + … + used(n)
  static double used_by_prefixes(double unused, Index n) noexcept {
    return static_cast<double>(n) - unused * used(unused, n) / (1.0 - unused);
  }
  /// used(size) over the passes that a step of n tokens takes.
  double passes(double unused, Index n) const noexcept {
    const Index n_whole = n / prefill_chunk;
    return static_cast<double>(n_whole) * used(unused, prefill_chunk) + used(unused, n % prefill_chunk);
  }
  /// passes(1) + passes(2) + … + passes(n)
  double passes_of_prefixes(double unused, Index n) const noexcept {
    const Index n_whole = n / prefill_chunk, rest = n % prefill_chunk;
    const double whole = static_cast<double>(n_whole), chunk = static_cast<double>(prefill_chunk);
    const double n_full_passes =
        chunk * detail::triangle(whole - 1.0) + whole * static_cast<double>(rest + 1);
    return n_full_passes * used(unused, prefill_chunk) + whole * used_by_prefixes(unused, prefill_chunk - 1) +
           used_by_prefixes(unused, rest);
  }

  /// @param keys  keys that the queries see together, by the span of a layer
  template <class Keys>
  Cost cost_of(Keys&& keys, double n_tokens, Passes read, double n_logit_rows, double n_head_reads) const {
    Cost cost;
    MultiplyAdds& work = cost.multiply_adds;
    for (const LayerCost& layer : layers) {
      const double n_keys = keys(layer.span);
      work.scores += n_keys * layer.scores;
      work.values += n_keys * layer.values;
      work.projections += n_tokens * layer.projections;
      work.feed_forward += n_tokens * layer.feed_forward;
      cost.weight_bytes += read.layers * layer.weight_bytes + read.experts * layer.expert_bytes;
      cost.cache_bytes_read += n_keys * layer.cache_bytes_read;
      cost.cache_bytes_written += n_tokens * layer.cache_bytes_written;
    }
    work.head = n_logit_rows * head;
    cost.weight_bytes += n_head_reads * head_bytes + n_tokens * embedding_bytes;
    return cost;
  }

  void check(StrategyKind kind, Index n_prompt, Index n_new, Index cached_from) const {
    constexpr Index kMost = Index{1} << 48;
    if (n_prompt < 1 || n_new < 1 || n_prompt > kMost || n_new > kMost || prefill_chunk < 1) [[unlikely]]
      detail::raise(ErrorCode::kBadArgument, "cost: lengths and prefill_chunk must be in [1, 2^48], got ",
                    n_prompt, " tokens, then ", n_new, ", in chunks of ", prefill_chunk);
    const Index from = config.rotary_epoch(cached_from), to = config.rotary_epoch(n_prompt + n_new - 1);
    if (kind == StrategyKind::kCached && from != to) [[unlikely]]
      detail::raise(ErrorCode::kUnsupported, "cost: between ", cached_from, " and ", n_prompt + n_new - 1,
                    " tokens the model's rotary angles change with the length (epoch ", from, " to ", to,
                    "), and cached decoding runs old tokens again");
  }
};

namespace detail {

/// Keys and values of one layer.
template <Format KFormat, Format VFormat>
LayerCost attention_cost(const ModelConfig& config, const KvShape& shape, Index layer) {
  const LayerKvShape& kv = shape[layer];
  LayerCost cost;
  cost.span = kv.span;
  cost.scores = static_cast<double>(config.n_heads * kv.k_dim);
  cost.values = static_cast<double>(config.n_heads * kv.v_dim);
  const Index v_bytes = kv.own_value_bytes<VFormat>();
  cost.cache_bytes_read = static_cast<double>(kv.n_kv_heads * (KFormat::row_bytes(kv.k_dim) + v_bytes));
  cost.cache_bytes_written = shape.owns_store(layer) ? cost.cache_bytes_read : 0.0;
  return cost;
}

/// The expert for every token, where experts have numbers.
inline constexpr Index kSharedExpert = -1;

/// @param bytes_of  (layer, place, expert) -> bytes of that matrix, where place is a MatrixPlace or HeadMatrices
template <Format KFormat, Format VFormat, class BytesOf>
ModelCost layers_cost(const ModelConfig& config, BytesOf&& bytes_of) {
  config.validate();
  ModelCost cost;
  cost.config = config;
  cost.head = static_cast<double>(config.vocab_size) * static_cast<double>(config.d_model);
  const KvShape shape = config.kv_shape();
  const auto inputs = input_matrices(config);
  const auto dense = feed_forward_matrices<LayerWeights>(config, config.d_ff);
  const auto expert = feed_forward_matrices<ExpertWeights>(config, config.d_expert);
  const auto heads = head_matrices(config);
  const auto shared = config.d_shared_expert > 0
                          ? feed_forward_matrices<ExpertWeights>(config, config.d_shared_expert)
                          : std::vector<MatrixPlace<ExpertWeights>>{};
  const MatrixPlace<LayerWeights> router{&LayerWeights::router, config.n_experts, config.d_model};
  for (Index i = 0; i < config.n_layers; ++i) {
    LayerCost layer = attention_cost<KFormat, VFormat>(config, shape, i);
    const auto projections = projection_matrices(config, i);
    const auto add_bytes = [&](const auto& matrices) {
      for (const auto& matrix : matrices) layer.weight_bytes += bytes_of(i, matrix, kSharedExpert);
    };
    layer.projections = matrix_multiply_adds(projections) + matrix_multiply_adds(heads);
    add_bytes(projections);
    add_bytes(heads);
    add_bytes(inputs);
    if (!config.layer_has_experts(i)) {
      layer.feed_forward = matrix_multiply_adds(dense);
      add_bytes(dense);
    } else {
      const std::vector<MatrixPlace<LayerWeights>> routers{router};
      layer.feed_forward = matrix_multiply_adds(routers) + matrix_multiply_adds(shared) +
                           static_cast<double>(config.n_experts_used) * matrix_multiply_adds(expert);
      add_bytes(routers);
      add_bytes(shared);
      for (Index e = 0; e < config.n_experts; ++e)
        for (const auto& matrix : expert) layer.expert_bytes += bytes_of(i, matrix, e);
    }
    layer.feed_forward += matrix_multiply_adds(inputs);
    cost.layers.push_back(layer);
  }
  cost.layers.front().feed_forward +=
      static_cast<double>(config.n_layers * config.d_layer_input) * static_cast<double>(config.d_model);
  return cost;
}

}  // namespace detail

/// What a model costs with the weights where they lie.
/// @tparam KFormat, VFormat  of the cache  @tparam Formats  storage formats that matrices may have
/// @throws Error kBadArgument if the config cannot be run  @pre check_weights(config, weights) passes
template <Format KFormat = F32, Format VFormat = KFormat, class Formats = CoreFormats>
ModelCost model_cost(const ModelConfig& config, const Weights& weights) {
  const auto bytes_of = [&]<class Place>(Index layer, const Place& matrix, Index expert) {
    const LayerWeights& w = weights.layers[static_cast<std::size_t>(layer)];
    if constexpr (std::is_same_v<Place, detail::HeadMatrices>) {
      double total = 0.0;
      for (const MatrixView& of_head : w.*matrix.place) total += matrix_bytes<Formats>(of_head);
      return total;
    } else if constexpr (std::is_same_v<Place, detail::MatrixPlace<LayerWeights>>) {
      return matrix_bytes<Formats>((w.*matrix.place).matrix);
    } else {
      const ExpertWeights& one =
          expert == detail::kSharedExpert ? w.shared_expert : w.experts[static_cast<std::size_t>(expert)];
      return matrix_bytes<Formats>((one.*matrix.place).matrix);
    }
  };
  ModelCost cost = detail::layers_cost<KFormat, VFormat>(config, bytes_of);
  cost.head_bytes = matrix_bytes<Formats>(config.tied_head ? weights.token_embedding : weights.head.matrix);
  cost.layers.front().weight_bytes += matrix_bytes<Formats>(weights.w_layer_inputs.matrix);
  for (const MatrixView* embedding :
       {&weights.token_embedding, &weights.position_embedding, &weights.layer_embedding})
    if (!embedding->empty())
      cost.embedding_bytes += matrix_bytes<Formats>(*embedding) / static_cast<double>(embedding->rows);
  return cost;
}

/// What a model costs whose matrices are all of one format, their rows padded to whole blocks, from its config alone.
/// @throws Error kBadArgument if the config cannot be run
template <Format KFormat = F32, Format VFormat = KFormat, Format WFormat = F32>
ModelCost model_cost(const ModelConfig& config) {
  const auto bytes_of = [&]<class Place>(Index, const Place& matrix, Index) {
    const double bytes =
        static_cast<double>(matrix.rows) * static_cast<double>(WFormat::row_bytes(matrix.cols));
    if constexpr (std::is_same_v<Place, detail::HeadMatrices>)
      return static_cast<double>(matrix.n_heads) * bytes;
    else
      return bytes;
  };
  ModelCost cost = detail::layers_cost<KFormat, VFormat>(config, bytes_of);
  const double row_bytes = static_cast<double>(WFormat::row_bytes(config.d_model));
  cost.head_bytes = static_cast<double>(config.vocab_size) * row_bytes;
  cost.embedding_bytes = (config.position == PositionKind::kLearned ? 2.0 : 1.0) * row_bytes;
  if (const Index n_inputs = config.n_layers * config.d_layer_input; n_inputs > 0) {
    cost.layers.front().weight_bytes += static_cast<double>(n_inputs) * row_bytes;
    cost.embedding_bytes += static_cast<double>(WFormat::row_bytes(n_inputs));
  }
  return cost;
}

}  // namespace kvdecode

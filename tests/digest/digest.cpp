// SPDX-License-Identifier: MIT
// Prints a digest of what each kernel computes from fixed inputs, and of logits; the last line is the digest of all.
// Every build has to print the same: run_matrix.sh compares compilers, optimisation levels and instruction sets.
#include <support/model.hpp>
#include <support/random.hpp>

#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/core/build_info.hpp>
#include <kvdecode/core/cache_formats.hpp>
#include <kvdecode/core/counting.hpp>
#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/elementary.hpp>
#include <kvdecode/core/sums.hpp>
#include <kvdecode/kernels/activation.hpp>
#include <kvdecode/kernels/attention.hpp>
#include <kvdecode/kernels/int8_linear.hpp>
#include <kvdecode/kernels/linear.hpp>
#include <kvdecode/kernels/norm.hpp>
#include <kvdecode/kernels/rotary.hpp>
#include <kvdecode/model/random_weights.hpp>
#include <kvdecode/model/transformer.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace {

using kvdecode::AttentionSpan;
using kvdecode::BF16;
using kvdecode::ContiguousCache;
using kvdecode::Counting;
using kvdecode::F16;
using kvdecode::F32;
using kvdecode::F64;
using kvdecode::FormatId;
using kvdecode::Index;
using kvdecode::Native;
using kvdecode::Raw;
using kvdecode::RowsView;
using kvdecode::TokenId;
using kvdecode_test::draws;
using kvdecode_test::FloatClass;
using kvdecode_test::kFloatClasses;
using kvdecode_test::RandomModel;
using kvdecode_test::SplitMix64;

/// FNV-1a. Which NaN comes out is promised to nobody: each counts as the same one.
class Digest {
 public:
  void add(std::uint64_t word, int n_bytes) {
    for (int i = 0; i < n_bytes; ++i) value_ = (value_ ^ ((word >> (8 * i)) & 0xffu)) * 0x100000001b3u;
  }
  void add(float x) { add(x == x ? std::bit_cast<std::uint32_t>(x) : 0x7fc00000u, 4); }
  void add(double x) { add(x == x ? std::bit_cast<std::uint64_t>(x) : 0x7ff8000000000000u, 8); }
  template <class T>
  void add(Counting<T> x) {
    add(static_cast<T>(static_cast<double>(x)));
  }
  template <class T>
  void add(const std::vector<T>& values) {
    for (const T& x : values) add(x);
  }
  void add(const std::byte* data, Index n) {
    for (Index i = 0; i < n; ++i) add(std::to_integer<std::uint64_t>(data[i]), 1);
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

/// Prints a line, and adds it to the digest of all.
class Report {
 public:
  void line(std::string_view name, std::string_view scalar, const Digest& digest) {
    std::printf("%-24.*s %-10.*s %016llx\n", static_cast<int>(name.size()), name.data(),
                static_cast<int>(scalar.size()), scalar.data(),
                static_cast<unsigned long long>(digest.value()));
    all_.add(digest.value(), 8);
  }
  void end() const { std::printf("digest %016llx\n", static_cast<unsigned long long>(all_.value())); }

 private:
  Digest all_;
};

template <class S>
constexpr std::string_view kScalarName = "?";
template <>
constexpr std::string_view kScalarName<float> = "float";
template <>
constexpr std::string_view kScalarName<double> = "double";

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// ---- core ----

template <class S>
void arithmetic(Report& report) {
  Digest digest;
  SplitMix64 random(1);
  for (const FloatClass a : kFloatClasses)
    for (const FloatClass b : kFloatClasses)
      for (int i = 0; i < 100; ++i) {
        const S x = kvdecode_test::draw<S>(random, a), y = kvdecode_test::draw<S>(random, b),
                z = kvdecode_test::draw<S>(random, i % 2 == 0 ? a : b);
        digest.add(kvdecode::fma(x, y, z));
        digest.add(kvdecode::mul(x, y) + z);
        digest.add(z - kvdecode::mul(x, y));
        digest.add(kvdecode::sqrt(x));
        digest.add(x / y);
      }
  report.line("arithmetic", kScalarName<S>, digest);
}

template <class S>
void sums(Report& report) {
  Digest dots, plain;
  for (const FloatClass c : kFloatClasses)
    for (Index n = 0; n <= 576; n += n < 70 ? 1 : n == 70 ? 185 : n < 257 ? 1 : 319) {
      const std::vector<S> a = draws<S>(n, 2, c), b = draws<S>(n, 3, c);
      dots.add(kvdecode::dot(a.data(), b.data(), n));
      plain.add(kvdecode::sum(a.data(), n));
    }
  const std::vector<S> a(64, -std::numeric_limits<S>::min()), b(64, std::numeric_limits<S>::min());
  for (Index n = 0; n <= 64; ++n) dots.add(kvdecode::dot(a.data(), b.data(), n));  // lanes at -0
  report.line("dot", kScalarName<S>, dots);
  report.line("sum", kScalarName<S>, plain);
}

/// Arguments over all of the functions' ranges, and special ones.
template <class S>
std::vector<S> arguments() {
  std::vector<S> x;
  for (double v = -110.0; v < 110.0; v += 0.137) x.push_back(static_cast<S>(v));
  for (double v = -750.0; v < 750.0; v += 3.7) x.push_back(static_cast<S>(v));
  for (const FloatClass c : kFloatClasses)
    for (const S v : draws<S>(200, 4, c)) x.push_back(v);
  using Limits = std::numeric_limits<S>;
  for (const S v : {S(0), Limits::denorm_min(), Limits::min(), Limits::epsilon(), S(1), Limits::max(),
                    Limits::infinity(), Limits::quiet_NaN()}) {
    x.push_back(v);
    x.push_back(-v);
  }
  return x;
}

template <class S>
void elementary(Report& report) {
  const auto of = [&](std::string_view name, auto f) {
    Digest digest;
    for (const S x : arguments<S>()) digest.add(f(x));
    report.line(name, kScalarName<S>, digest);
  };
  of("exp", [](S x) { return kvdecode::exp(x); });
  of("exp2", [](S x) { return kvdecode::exp2(x); });
  of("log", [](S x) { return kvdecode::log(x); });
  of("log2", [](S x) { return kvdecode::log2(x); });
  of("tanh", [](S x) { return kvdecode::tanh(x); });
  of("erf", [](S x) { return kvdecode::erf(x); });
  of("sigmoid", [](S x) { return kvdecode::sigmoid(x); });
  of("softplus", [](S x) { return kvdecode::softplus(x); });
  of("gelu", [](S x) { return kvdecode::gelu(x); });
  Digest lanes;
  std::vector<S> x = arguments<S>();
  x.resize(x.size() / 16 * 16);
  std::vector<S> y(x.size());
  for (std::size_t i = 0; i < x.size(); i += 16)
    exp(kvdecode::Lanes<S>::loadu(x.data() + i)).storeu(y.data() + i);
  lanes.add(y);
  report.line("exp of lanes", kScalarName<S>, lanes);
}

void tables(Report& report) {
  Digest digest;
  SplitMix64 random(5);
  for (int i = 0; i < 2000; ++i) {
    const kvdecode::SinCos turn = kvdecode::sincos(random.uniform(-1.0, 1.0) * (i % 2 == 0 ? 10.0 : 0x1p30));
    digest.add(turn.sin);
    digest.add(turn.cos);
    const double base = random.uniform(0.5, 1e6), exponent = random.uniform(-2.0, 2.0);
    digest.add(kvdecode::pow(base, exponent));
  }
  report.line("sincos, pow", "double", digest);
}

template <class F, class S>
void format(Report& report) {
  Digest digest;
  for (const FloatClass c : kFloatClasses) {
    const std::vector<S> values = draws<S>(64, 6, c);
    const kvdecode_test::OffsetBytes row(F::row_bytes(64), 1);
    F::encode(values.data(), 64, row.data());
    for (Index i = 0; i < 64; ++i) digest.add(F::template decode<S>(row.data(), i));
    for (Index i = 0; i < 64; i += kvdecode::kLanes) {
      S lanes[kvdecode::kLanes];
      F::template widen<S>(row.data(), i).storeu(lanes);
      for (const S x : lanes) digest.add(x);
    }
  }
  report.line(F::kName, kScalarName<S>, digest);
}

// ---- kernels ----

template <class F, class S, int R, int C>
void tile(Report& report) {
  Digest digest;
  for (const Index n : {1, 15, 16, 33, 80, 257}) {
    const std::vector<S> x = draws<S>(C * n, 7), w = draws<S>(R * n, 8);
    const Index stride = F::row_bytes(n);
    const kvdecode_test::OffsetBytes rows(R * stride, 1);
    for (Index r = 0; r < R; ++r) F::encode(w.data() + r * n, n, rows.data() + r * stride);
    std::vector<S> y(R * C);
    kvdecode::kernels::dot_tile<F, S, R, C>(rows.data(), stride, x.data(), n, n, y.data(), R);
    digest.add(y);
  }
  report.line("tile", kScalarName<S>, digest);
}

template <class S>
void linear(Report& report) {
  for (const FormatId id : {FormatId::kF32, FormatId::kBF16, FormatId::kF16, FormatId::kF64}) {
    Digest digest;
    for (const bool transposed : {false, true})
      for (const Index d_in : {5, 33, 80})
        for (const Index n : {1, 2, 7}) {
          kvdecode_test::RandomNumbers numbers({.seed = 9, .format = id, .offset = 1, .row_padding = 2});
          const kvdecode::MatrixView w = numbers.matrix(37, d_in, 1.0, transposed);
          const auto owners = numbers.take_owners();
          const std::vector<S> x = draws<S>(n * d_in, 10), bias = draws<S>(37, 11);
          std::vector<S> y(at(n * 37)), scratch(at(kvdecode::kernels::linear_scratch<S>(d_in, n)));
          const kvdecode::kernels::LinearJob<S> job{
              w, d_in == 33 ? bias.data() : nullptr, {x.data(), n, d_in, d_in}, {y.data(), n, 37, 37}};
          kvdecode::kernels::linear<kvdecode::CoreFormats, S>({}, std::span(&job, 1), scratch.data(), 0);
          digest.add(y);
        }
    report.line(id == FormatId::kF32    ? "linear f32"
                : id == FormatId::kBF16 ? "linear bf16"
                : id == FormatId::kF16  ? "linear f16"
                                        : "linear f64",
                kScalarName<S>, digest);
  }
}

/// Products of rows of any bits, but for those that would make a scale infinite or no number.
template <class F, class S>
void blocks(Report& report) {
  constexpr Index d_in = 2 * F::kBlock + 21, d_out = 19;
  const kvdecode_test::OffsetBytes bytes(d_out * F::row_bytes(d_in), 1);
  std::uint64_t bits = 32;
  for (Index i = 0; i < d_out * F::row_bytes(d_in); ++i) {
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    bytes.data()[i] = static_cast<std::byte>(bits >> 56 & 0xbf);
  }
  const kvdecode::MatrixView w{F::kId, bytes.data(), d_out, d_in, F::row_bytes(d_in), false};
  Digest digest;
  for (const Index n : {1, 3}) {
    const std::vector<S> x = draws<S>(n * d_in, 33);
    std::vector<S> y(at(n * d_out)), scratch(at(kvdecode::kernels::linear_scratch<S>(d_in, n)));
    const kvdecode::kernels::LinearJob<S> job{
        w, nullptr, {x.data(), n, d_in, d_in}, {y.data(), n, d_out, d_out}};
    kvdecode::kernels::linear_rows<F, S>(job, {0, d_out}, scratch.data());
    digest.add(y);
    if constexpr (kvdecode::kernels::IsMultipliedAsIntegers<F>) {
      scratch.resize(at(kvdecode::kernels::int8_linear_scratch<S>()));
      std::vector<double> rounded(at(kvdecode::kernels::RoundedRows<S>::bytes(d_in, n) / 8));
      kvdecode::kernels::RoundedRows<S> rows(reinterpret_cast<std::byte*>(rounded.data()), d_in);
      for (Index t = 0; t < n; ++t) rows.round(t, x.data() + t * d_in);
      kvdecode::kernels::int8_linear_rows<F, S>(job, {0, d_out}, rows, scratch.data());
      digest.add(y);
    }
  }
  report.line(F::kName, kScalarName<S>, digest);
}

template <class... Formats>
void all_blocks(Report& report, kvdecode::FormatList<Formats...>) {
  (blocks<Formats, float>(report), ...);
}

template <class KFormat, class VFormat, class S, Index k_dim = 20, Index v_dim = 44>
void attention(Report& report) {
  Digest digest;
  constexpr Index n = 530, group_size = 5;
  const Index k_bytes = KFormat::row_bytes(k_dim), v_bytes = VFormat::row_bytes(v_dim);
  const std::vector<S> k = draws<S>(n * k_dim, 12), v = draws<S>(n * v_dim, 13),
                       queries = draws<S>(group_size * k_dim, 14);
  const kvdecode_test::OffsetBytes keys(n * k_bytes, 1), values(n * v_bytes, 1);
  for (Index i = 0; i < n; ++i) {
    KFormat::encode(k.data() + i * k_dim, k_dim, keys.data() + i * k_bytes);
    VFormat::encode(v.data() + i * v_dim, v_dim, values.data() + i * v_bytes);
  }
  for (const Index first : {0, 7, 300})
    for (const Index end : {301, 513, 530}) {
      std::vector<S> maximum(group_size), sum(group_size), output(group_size * v_dim);
      std::vector<S> scratch(at(kvdecode::kernels::attention_scratch(group_size, v_dim)));
      kvdecode::kernels::AttentionState<S> state{group_size, v_dim,         maximum.data(),
                                                 sum.data(), output.data(), true};
      for (Index position = first; position < end;) {
        const Index stop = std::min(end, (position / 256 + 1) * 256);
        const kvdecode::kernels::AttentionPiece piece{position,
                                                      stop - position,
                                                      keys.data() + position * k_bytes,
                                                      k_bytes,
                                                      values.data() + position * v_bytes,
                                                      v_bytes,
                                                      0};
        kvdecode::kernels::attend_tile<KFormat, VFormat>(std::span(&piece, 1), queries.data(), 0, k_dim,
                                                         S(0.4), state, scratch.data());
        position = stop;
      }
      digest.add(maximum);
      digest.add(sum);
      kvdecode::kernels::finish_attention(state, state.output);
      digest.add(output);
    }
  report.line("attention", kScalarName<S>, digest);
}

/// Rows turned, stored in few bits, and turned back.
template <class S>
void turns(Report& report) {
  Digest digest;
  for (const kvdecode::RowTransform transform :
       {kvdecode::RowTransform::kHadamard, kvdecode::RowTransform::kSignedHadamard})
    for (Index n = 1; n <= kvdecode::kMaxTurnedRow; n *= 2) {
      std::vector<S> x = draws<S>(n, 31);
      kvdecode::turn_row(transform, x.data(), n);
      digest.add(x);
      kvdecode::turn_row_back(transform, x.data(), n);
      digest.add(x);
    }
  report.line("turns", kScalarName<S>, digest);
}

template <class S>
void row_kernels(Report& report) {
  Digest norms, activations, rotary;
  for (Index n = 1; n <= 80; ++n) {
    const std::vector<S> x = draws<S>(n, 15), w = draws<S>(n, 16), b = draws<S>(n, 17);
    std::vector<S> y(x.size());
    kvdecode::kernels::rms_norm(x.data(), w.data(), S(1e-5), n, y.data());
    norms.add(y);
    kvdecode::kernels::layer_norm(x.data(), w.data(), n % 2 == 0 ? b.data() : nullptr, S(1e-5), n, y.data());
    norms.add(y);
  }
  using kvdecode::Activation;
  const std::vector<S> x = arguments<S>(), factor = draws<S>(static_cast<Index>(x.size()), 18);
  for (const Activation kind : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                                Activation::kRelu, Activation::kReluSquared}) {
    std::vector<S> y(x.size());
    kvdecode::kernels::activate(kind, x.data(), static_cast<const S*>(nullptr), static_cast<Index>(x.size()),
                                y.data());
    activations.add(y);
    kvdecode::kernels::activate(kind, x.data(), factor.data(), static_cast<Index>(x.size()), y.data());
    activations.add(y);
  }
  for (const kvdecode::RotaryPairs pairs :
       {kvdecode::RotaryPairs::kHalves, kvdecode::RotaryPairs::kInterleaved})
    for (const Index n_pairs : {1, 3, 8, 17, 32})
      for (const Index position : {0, 1, 100, 100000}) {
        const Index head_dim = 2 * n_pairs + 3;
        std::vector<double> frequencies;
        for (Index i = 0; i < n_pairs; ++i) frequencies.push_back(1.0 / static_cast<double>(1 + i * i));
        const std::vector<S> q = draws<S>(head_dim, 19);
        std::vector<S> cosines(at(n_pairs)), sines(at(n_pairs)), y(q.size());
        kvdecode::kernels::rotary_angles(position, frequencies.data(), n_pairs, cosines.data(), sines.data());
        kvdecode::kernels::rotate(pairs, q.data(), cosines.data(), sines.data(), n_pairs, head_dim, y.data());
        rotary.add(y);
      }
  report.line("norms", kScalarName<S>, norms);
  report.line("activations", kScalarName<S>, activations);
  report.line("rotary", kScalarName<S>, rotary);
}

// ---- model ----

template <class S, class Cache>
void logits(Report& report, std::string_view words, const kvdecode_test::RandomWeightsOptions& options,
            Index n) {
  const RandomModel model(words, options);
  const kvdecode::Transformer<S> transformer(model.config, model.weights);
  const std::vector<TokenId> tokens = kvdecode_test::random_tokens(n, model.config.vocab_size, options.seed);
  kvdecode::Workspace<S> workspace;
  Cache cache(transformer.kv_shape(), n);
  Digest digest;
  // A prompt, some tokens together, then one by one.
  for (Index at_token = 0; at_token < n;) {
    const Index n_new = at_token == 0 ? n / 2 : at_token < 3 * n / 4 ? std::min<Index>(5, n - at_token) : 1;
    const RowsView<const S> rows = transformer.forward(
        workspace, {},
        kvdecode::Segment<Cache>{&cache, std::span(tokens).subspan(at(at_token), at(n_new)),
                                 kvdecode::Rows::kAll});
    for (Index r = 0; r < rows.rows; ++r)
      for (Index c = 0; c < rows.cols; ++c) digest.add(rows.row(r)[c]);
    at_token += n_new;
  }
  report.line("logits", words.substr(0, words.find(' ')), digest);
}

template <class S>
void all_logits(Report& report) {
  using N = Native<S>;
  logits<S, ContiguousCache<N>>(report, "gqa", {.seed = 20}, 16);
  logits<S, ContiguousCache<N>>(report, "hd16 gelu parallel interleaved llama3 tied scale",
                                {.seed = 21, .format = FormatId::kBF16}, 16);
  logits<S, ContiguousCache<N>>(report, "mqa hd16 layer_norm relu2 interleaved llama3 tied sliding",
                                {.seed = 22, .format = FormatId::kF16, .biases = true}, 16);
  logits<S, ContiguousCache<F16>>(report,
                                  "hd16 layer_norm gelu_tanh plain shared interleaved partial llama3 sinks",
                                  {.seed = 23, .biases = true, .transposed = true}, 16);
  logits<S, ContiguousCache<kvdecode::Int8, kvdecode::HadInt4>>(report, "hd16 head_norms sinks_within",
                                                                {.seed = 32}, 16);
  logits<S, ContiguousCache<F16>>(report, "mha gelu_tanh interleaved sinks_within",
                                  {.seed = 24, .format = FormatId::kF64, .offset = 1}, 16);
  logits<S, ContiguousCache<N>>(report, "mqa hd12 layer_norm relu plain parallel linear chunk scale",
                                {.seed = 25, .format = FormatId::kBF16, .transposed = true}, 16);
  logits<S, ContiguousCache<N>>(report, "mha hd12 gelu no_positions tied mixed", {.seed = 26, .biases = true},
                                24);
  logits<S, ContiguousCache<N>>(report, "hd5 relu2 plain interleaved partial chunk scale", {.seed = 27}, 16);
  logits<S, ContiguousCache<N>>(report, "mla_q interleaved yarn sinks_within balanced_experts",
                                {.seed = 33, .format = FormatId::kBF16}, 16);
  logits<S, ContiguousCache<kvdecode::Int8>>(report, "mla interleaved best_groups",
                                             {.seed = 34, .transposed = true}, 16);
  logits<S, ContiguousCache<F16>>(report,
                                  "borrowed own_head_dims gelu_tanh both_norms standing sliding head_norms "
                                  "value_norm scaled_embedding layer_inputs",
                                  {.seed = 35, .format = FormatId::kBF16}, 16);
  if (std::is_same_v<S, float>)  // past the first tile of attention
    logits<S, ContiguousCache<N>>(report, "layer_norm gelu plain shared learned mixed_sinks",
                                  {.seed = 28, .format = FormatId::kF16}, 260);
}

void weights(Report& report) {
  const kvdecode::ModelConfig config = kvdecode_test::config_of("layer_norm learned");
  const kvdecode::Weights weights = kvdecode::random_weights(config, {.seed = 29, .biases = true});
  Digest digest;
  for (const auto& layer : weights.layers) {
    digest.add(layer.w_q.matrix.data, layer.w_q.matrix.rows * layer.w_q.matrix.stride);
    digest.add(layer.w_down.matrix.data, layer.w_down.matrix.rows * layer.w_down.matrix.stride);
    digest.add(layer.w_up.bias.data, layer.w_up.bias.size * 4);
  }
  report.line("random weights", "f32", digest);
}

template <class S>
void scalar(Report& report) {
  arithmetic<S>(report);
  sums<S>(report);
  elementary<S>(report);
  format<F64, S>(report);
  format<F32, S>(report);
  format<F16, S>(report);
  format<BF16, S>(report);
  linear<S>(report);
  row_kernels<S>(report);
  turns<S>(report);
  all_logits<S>(report);
}

}  // namespace

int main() {
  const kvdecode::BuildInfo build = kvdecode::build_info();
  std::fprintf(stderr, "%.*s, %.*s\n", static_cast<int>(build.compiler.size()), build.compiler.data(),
               static_cast<int>(build.instruction_set.size()), build.instruction_set.data());
  Report report;
  scalar<float>(report);
  scalar<double>(report);
  tables(report);
  tile<F32, float, 4, 3>(report);
  tile<BF16, float, 8, 1>(report);
  tile<F16, float, 1, 1>(report);
  tile<F64, double, 2, 3>(report);
  all_blocks(report, kvdecode::GgufFormats{});
  blocks<kvdecode::Q4_K, double>(report);
  attention<F32, F32, float>(report);
  attention<F16, BF16, float>(report);
  attention<kvdecode::Int8, kvdecode::HadInt4, float, 20, 64>(report);
  attention<kvdecode::Asym4, kvdecode::Int3, float>(report);
  attention<kvdecode::Int4, kvdecode::HadInt3, double, 44, 16>(report);
  attention<kvdecode::Turbo4, kvdecode::Turbo3, float, 64, 32>(report);
  attention<kvdecode::Turbo2, kvdecode::Turbo4, double, 8, 128>(report);
  attention<F64, F64, double>(report);
  using S = Counting<float>;
  logits<S, ContiguousCache<Raw<S>>>(report, "mqa hd12 gelu shared interleaved partial tied mixed_sinks",
                                     {.seed = 30, .format = FormatId::kBF16}, 12);
  logits<S, ContiguousCache<Raw<S>>>(report,
                                     "mha hd16 layer_norm gelu_tanh parallel linear tied mixed_sinks scale",
                                     {.seed = 31, .biases = true, .transposed = true}, 12);
  weights(report);
  report.end();
}

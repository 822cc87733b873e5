// SPDX-License-Identifier: MIT
// core/block_formats.hpp and core/formats/, against the dequantized values of the formats' own reference
// (tests/data/gguf/quant), and core/simd/bytes.hpp under them.
#include <reference/numbers.hpp>
#include <support/canonical.hpp>
#include <support/compare.hpp>
#include <support/guarded.hpp>
#include <support/names.hpp>
#include <support/random.hpp>

#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/kvdecode.hpp>  // with extern templates where kvdecode::compiled is linked

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

TYPE_TO_STRING_AS("Q8_0", kvdecode::Q8_0);
TYPE_TO_STRING_AS("Q4_0", kvdecode::Q4_0);
TYPE_TO_STRING_AS("Q4_1", kvdecode::Q4_1);
TYPE_TO_STRING_AS("Q5_0", kvdecode::Q5_0);
TYPE_TO_STRING_AS("Q5_1", kvdecode::Q5_1);
TYPE_TO_STRING_AS("Q2_K", kvdecode::Q2_K);
TYPE_TO_STRING_AS("Q3_K", kvdecode::Q3_K);
TYPE_TO_STRING_AS("Q4_K", kvdecode::Q4_K);
TYPE_TO_STRING_AS("Q5_K", kvdecode::Q5_K);
TYPE_TO_STRING_AS("Q6_K", kvdecode::Q6_K);
TYPE_TO_STRING_AS("IQ4_NL", kvdecode::IQ4_NL);
TYPE_TO_STRING_AS("IQ4_XS", kvdecode::IQ4_XS);
TYPE_TO_STRING_AS("MXFP4", kvdecode::MXFP4);
TYPE_TO_STRING_AS("IQ1_S", kvdecode::IQ1_S);
TYPE_TO_STRING_AS("IQ1_M", kvdecode::IQ1_M);
TYPE_TO_STRING_AS("IQ2_XXS", kvdecode::IQ2_XXS);
TYPE_TO_STRING_AS("IQ2_XS", kvdecode::IQ2_XS);
TYPE_TO_STRING_AS("IQ2_S", kvdecode::IQ2_S);
TYPE_TO_STRING_AS("IQ3_XXS", kvdecode::IQ3_XXS);
TYPE_TO_STRING_AS("IQ3_S", kvdecode::IQ3_S);
TYPE_TO_STRING_AS("TQ1_0", kvdecode::TQ1_0);
TYPE_TO_STRING_AS("TQ2_0", kvdecode::TQ2_0);
TYPE_TO_STRING_AS("NVFP4", kvdecode::NVFP4);
TYPE_TO_STRING_AS("Q1_0", kvdecode::Q1_0);
TYPE_TO_STRING_AS("Q2_0", kvdecode::Q2_0);

#define KVDECODE_TEST_BLOCK_FORMATS                                                                       \
  kvdecode::Q8_0, kvdecode::Q4_0, kvdecode::Q4_1, kvdecode::Q5_0, kvdecode::Q5_1, kvdecode::Q2_K,         \
      kvdecode::Q3_K, kvdecode::Q4_K, kvdecode::Q5_K, kvdecode::Q6_K, kvdecode::IQ4_NL, kvdecode::IQ4_XS, \
      kvdecode::MXFP4, kvdecode::IQ1_S, kvdecode::IQ1_M, kvdecode::IQ2_XXS, kvdecode::IQ2_XS,             \
      kvdecode::IQ2_S, kvdecode::IQ3_XXS, kvdecode::IQ3_S, kvdecode::TQ1_0, kvdecode::TQ2_0,              \
      kvdecode::NVFP4, kvdecode::Q1_0, kvdecode::Q2_0

namespace {

using kvdecode::Counting;
using kvdecode::FormatId;
using kvdecode::GgufFormats;
using kvdecode::Index;
using kvdecode::kLanes;
using kvdecode::MatrixView;
using kvdecode::Q4_0;
using kvdecode::Q8_0;
using kvdecode::kernels::LinearJob;
using kvdecode_test::check_same_bits;
using kvdecode_test::draws;
using kvdecode_test::Guarded;
using kvdecode_test::OffsetBytes;
using kvdecode_test::SplitMix64;

static_assert(!kvdecode::StoresFrom<kvdecode::Q4_K, float>);
static_assert(kvdecode::StoresFrom<Q8_0, Counting<float>>);
static_assert(kvdecode::DecodesTo<kvdecode::Q6_K, Counting<double>>);
static_assert(kvdecode::byte_near<kvdecode::F16>(48) == 96);
static_assert(kvdecode::byte_near<Q8_0>(32) == 34 && kvdecode::byte_near<Q8_0>(16) == 17);
static_assert(kvdecode::byte_near<kvdecode::Q6_K>(512) == 420 && kvdecode::byte_near<kvdecode::Q6_K>(0) == 0);

/// Rows as stored, and the floats that the reference makes of them.
struct Vectors {
  Index rows = 0, row_bytes = 0, cols = 0;
  std::vector<std::byte> raw;
  std::vector<float> expected;

  const std::byte* row(Index r) const { return raw.data() + r * row_bytes; }
};

/// The number after `key` in a text, from `from` on.
Index number_after(std::string_view text, std::string_view key, std::size_t from) {
  const std::size_t at = text.find(key, from);
  if (at == std::string_view::npos) throw std::runtime_error("test vectors: no " + std::string(key));
  return std::stoll(std::string(text.substr(at + key.size(), 20)));
}

/// tests/data/gguf/quant/NAME.safetensors: `raw` uint8 [rows, row_bytes], `expected` float32 [rows, cols].
Vectors load_vectors(const std::string& name) {
  const std::string path = std::string(KVDECODE_TEST_DATA_DIR) + "/gguf/quant/" + name + ".safetensors";
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < 8) throw std::runtime_error("test vectors: cannot read " + path);
  std::uint64_t n_header = 0;
  std::memcpy(&n_header, bytes.data(), sizeof n_header);
  const std::string_view header = std::string_view(bytes).substr(8, n_header);
  const std::string_view data = std::string_view(bytes).substr(8 + n_header);
  Vectors vectors;
  const auto read = [&](std::string_view tensor, auto& values, Index& rows, Index& cols) {
    const std::size_t record = header.find(tensor);
    const std::size_t shape = header.find("\"shape\":[", record);
    rows = number_after(header, "\"shape\":[", record);
    cols = number_after(header, ",", shape);
    const auto begin = static_cast<std::size_t>(number_after(header, "\"data_offsets\":[", record));
    values.resize(static_cast<std::size_t>(rows * cols));
    std::memcpy(values.data(), data.substr(begin).data(), values.size() * sizeof(values[0]));
  };
  Index rows = 0;
  read("\"raw\"", vectors.raw, vectors.rows, vectors.row_bytes);
  read("\"expected\"", vectors.expected, rows, vectors.cols);
  if (rows != vectors.rows) throw std::runtime_error("test vectors: other rows in " + path);
  return vectors;
}

template <class F>
const Vectors& vectors_of() {
  static const Vectors vectors = load_vectors(std::string(F::kName));
  return vectors;
}

template <class F>
constexpr Index kNumbersOfBook = 0;
template <>
constexpr Index kNumbersOfBook<kvdecode::IQ1_S> = 2048 * 8;
template <>
constexpr Index kNumbersOfBook<kvdecode::IQ2_XXS> = 256 * 8;
template <>
constexpr Index kNumbersOfBook<kvdecode::IQ2_XS> = 512 * 8;
template <>
constexpr Index kNumbersOfBook<kvdecode::IQ2_S> = 1024 * 8;
template <>
constexpr Index kNumbersOfBook<kvdecode::IQ3_XXS> = 256 * 4;
template <>
constexpr Index kNumbersOfBook<kvdecode::IQ3_S> = 512 * 4;

template <class S>
std::vector<S> as(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

TEST_CASE_TEMPLATE("block formats: every number is the reference's, to the bit", F,
                   KVDECODE_TEST_BLOCK_FORMATS) {
  const Vectors& v = vectors_of<F>();
  REQUIRE(v.rows >= 14);
  REQUIRE(v.cols == 512);
  CHECK(F::row_bytes(v.cols) == v.row_bytes);
  CHECK(F::row_bytes(F::kBlock) == v.row_bytes * F::kBlock / v.cols);
  CHECK(F::row_bytes(F::kBlock + 1) == F::row_bytes(2 * F::kBlock));
  CHECK(F::row_bytes(0) == 0);
  std::vector<float> decoded;
  std::vector<double> decoded_double;
  for (Index r = 0; r < v.rows; ++r)
    for (Index i = 0; i < v.cols; ++i) {
      decoded.push_back(F::template decode<float>(v.row(r), i));
      decoded_double.push_back(F::template decode<double>(v.row(r), i));
    }
  check_same_bits(decoded, v.expected);
  check_same_bits(decoded_double, as<double>(v.expected));
  CHECK(static_cast<float>(F::template decode<Counting<float>>(v.row(1), 77)) ==
        v.expected[static_cast<std::size_t>(v.cols + 77)]);
}

TEST_CASE_TEMPLATE("block formats: every entry of a code book is the reference's", F, kvdecode::IQ1_S,
                   kvdecode::IQ2_XXS, kvdecode::IQ2_XS, kvdecode::IQ2_S, kvdecode::IQ3_XXS, kvdecode::IQ3_S) {
  const Vectors v = load_vectors(std::string(F::kName) + "-grid");
  CHECK(v.rows * v.cols >= kNumbersOfBook<F>);
  std::vector<float> decoded, widened(v.expected.size());
  for (Index r = 0; r < v.rows; ++r)
    for (Index i = 0; i < v.cols; ++i) {
      decoded.push_back(F::template decode<float>(v.row(r), i));
      if (i % kLanes == 0) F::template widen<float>(v.row(r), i).storeu(widened.data() + r * v.cols + i);
    }
  check_same_bits(decoded, v.expected);
  check_same_bits(widened, v.expected);
}

template <class F, class S>
void check_widen(const std::byte* source, Index n, Index offset) {
  const OffsetBytes row(F::row_bytes(n), offset);
  std::memcpy(row.data(), source, static_cast<std::size_t>(row.size()));
  std::vector<S> decoded, widened(static_cast<std::size_t>(n));
  for (Index i = 0; i < n; ++i) decoded.push_back(F::template decode<S>(row.data(), i));
  for (Index i = 0; i < n; i += kLanes) F::template widen<S>(row.data(), i).storeu(widened.data() + i);
  check_same_bits(widened, decoded);
}

TEST_CASE_TEMPLATE("block formats: widen is decode, at every position of a block and every address", F,
                   KVDECODE_TEST_BLOCK_FORMATS) {
  const Vectors& v = vectors_of<F>();
  for (Index r = 0; r < v.rows; ++r)
    for (Index offset = 0; offset < 17; offset += r == 0 ? 1 : 5) {
      CAPTURE(r);
      CAPTURE(offset);
      check_widen<F, float>(v.row(r), v.cols, offset);
      check_widen<F, double>(v.row(r), v.cols, offset);
      check_widen<F, Counting<float>>(v.row(r), v.cols, offset);
    }
}

TEST_CASE_TEMPLATE("block formats: widen is decode for any bits whose scales are numbers", F,
                   KVDECODE_TEST_BLOCK_FORMATS) {
  SplitMix64 random(3);
  const Index n = 2 * F::kBlock;
  std::vector<std::byte> row(static_cast<std::size_t>(F::row_bytes(n)));
  int n_checked = 0;
  for (int round = 0; round < 300; ++round) {
    for (std::byte& b : row) b = static_cast<std::byte>(random());
    std::vector<float> numbers;
    for (Index i = 0; i < n; ++i) numbers.push_back(F::template decode<float>(row.data(), i));
    if (std::any_of(numbers.begin(), numbers.end(), [](float x) { return std::isnan(x); })) continue;
    check_widen<F, float>(row.data(), n, 1);
    ++n_checked;
  }
  CHECK(n_checked > 100);
}

/// W x with W in format F holds the bits of the same with W dequantized, and of the canonical dot.
template <class F, class S>
void check_product(Index d_in, Index n_tokens, Index offset, Index row_padding, bool transposed) {
  CAPTURE(d_in);
  CAPTURE(n_tokens);
  CAPTURE(transposed);
  const Vectors& v = vectors_of<F>();
  // Stored rows begin at one block or the other of the vectors' rows; more columns than those repeat them.
  const Index d_out = transposed ? F::kBlock * 2 : 37;
  const Index stored_rows = transposed ? d_in : d_out, stored_cols = transposed ? d_out : d_in;
  const Index stride = F::row_bytes(stored_cols) + row_padding;
  const OffsetBytes bytes((stored_rows - 1) * stride + F::row_bytes(stored_cols), offset);
  std::vector<S> dequantized(static_cast<std::size_t>(d_out * d_in));
  for (Index r = 0; r < stored_rows; ++r)
    for (Index c = 0; c < stored_cols; c += F::kBlock) {
      const Index block = (r * 7 + c / F::kBlock) % (v.rows * v.cols / F::kBlock);
      std::memcpy(bytes.data() + r * stride + F::row_bytes(c), v.raw.data() + F::row_bytes(F::kBlock) * block,
                  static_cast<std::size_t>(F::row_bytes(F::kBlock)));
      for (Index i = 0; i < std::min(F::kBlock, stored_cols - c); ++i)
        dequantized[static_cast<std::size_t>(transposed ? (c + i) * d_in + r : r * d_in + c + i)] =
            static_cast<S>(v.expected[static_cast<std::size_t>(block * F::kBlock + i)]);
    }
  const MatrixView w{F::kId, bytes.data(), d_out, d_in, stride, transposed};
  const MatrixView plain{kvdecode::Native<S>::kId,
                         reinterpret_cast<const std::byte*>(dequantized.data()),
                         d_out,
                         d_in,
                         d_in * static_cast<Index>(sizeof(S)),
                         false};
  const std::vector<S> x = draws<S>(n_tokens * d_in, static_cast<std::uint64_t>(d_in));
  const auto product = [&](const MatrixView& matrix) {
    std::vector<S> y(static_cast<std::size_t>(n_tokens * d_out));
    Guarded<S> scratch(kvdecode::kernels::linear_scratch<S>(d_in, n_tokens));
    const LinearJob<S> job{
        matrix, nullptr, {x.data(), n_tokens, d_in, d_in}, {y.data(), n_tokens, d_out, d_out}};
    kvdecode::kernels::linear<GgufFormats, S>({}, std::span(&job, 1), scratch.data(), 0);
    CHECK(scratch.is_intact());
    return y;
  };
  const std::vector<S> y = product(w);
  check_same_bits(y, product(plain));
  std::vector<S> canonical;
  for (Index t = 0; t < n_tokens; ++t)
    for (Index r = 0; r < d_out; ++r)
      canonical.push_back(
          kvdecode_test::canonical_dot(dequantized.data() + r * d_in, x.data() + t * d_in, d_in));
  check_same_bits(y, canonical);
}

TEST_CASE_TEMPLATE("block formats: a quantized product is the dequantized one, to the bit", F,
                   KVDECODE_TEST_BLOCK_FORMATS) {
  for (const Index n_blocks : {1, 2, 3, 5}) {
    for (const Index n_tokens : {1, 2, 7, 13}) {
      check_product<F, float>(n_blocks * F::kBlock, n_tokens, n_blocks, n_tokens % 4, false);
      check_product<F, double>(n_blocks * F::kBlock, n_tokens, n_blocks, n_tokens % 3, false);
    }
  }
  for (const Index n_tokens : {1, 3}) {
    check_product<F, float>(4 * F::kBlock + 16, n_tokens, 3, 1, false);  // a last block used in part
    check_product<F, float>(F::kBlock + 5, n_tokens, 1, 0, false);
    check_product<F, double>(F::kBlock - 1, n_tokens, 2, 3, false);
    check_product<F, float>(37, n_tokens, 1, 2, true);
    check_product<F, double>(37, n_tokens, 3, 0, true);
  }
}

/// The largest error of an encoded row, in units of its block's largest magnitude.
template <class F>
double worst_error(const std::vector<float>& values) {
  const auto n = static_cast<Index>(values.size());
  std::vector<std::byte> row(static_cast<std::size_t>(F::row_bytes(n)));
  F::encode(values.data(), n, row.data());
  double worst = 0.0;
  for (Index begin = 0; begin < n; begin += F::kBlock) {
    const Index end = std::min(n, begin + F::kBlock);
    double largest = 0.0, error = 0.0;
    for (Index i = begin; i < end; ++i) {
      const auto x = static_cast<double>(values[static_cast<std::size_t>(i)]);
      largest = std::max(largest, std::abs(x));
      error = std::max(error, std::abs(F::template decode<double>(row.data(), i) - x));
    }
    if (largest > 0.0) worst = std::max(worst, error / largest);
  }
  return worst;
}

TEST_CASE("block formats: an encoded number is within half a step, a scale within half a unit of its own") {
  for (const Index n : {1, 31, 32, 33, 320}) {
    CAPTURE(n);
    const std::vector<float> values = draws<float>(n, 5);
    // Half a step of 1 / 127, and what 11 bits lose of the scale.
    CHECK(worst_error<Q8_0>(values) <= 0.5 / 127 + 0x1p-11);
    // Half a step of 1 / 8, but for the far end of the side that ends at 7: a whole one.
    CHECK(worst_error<Q4_0>(values) <= 1.0 / 8 + 0x1p-11);
  }
}

TEST_CASE_TEMPLATE("block formats: encoding what was decoded changes nothing", F, Q8_0, Q4_0) {
  const std::vector<float> values = draws<float>(20 * F::kBlock, 6);
  const auto n = static_cast<Index>(values.size());
  std::vector<std::byte> once(static_cast<std::size_t>(F::row_bytes(n))), twice(once.size());
  F::encode(values.data(), n, once.data());
  std::vector<float> decoded;
  for (Index i = 0; i < n; ++i) decoded.push_back(F::template decode<float>(once.data(), i));
  F::encode(decoded.data(), n, twice.data());
  check_same_bits(twice, once);
  const std::vector<double> wide(values.begin(), values.end());
  F::encode(wide.data(), n, twice.data());
  check_same_bits(twice, once);
}

TEST_CASE_TEMPLATE("block formats: encode writes whole blocks only, whatever the numbers", F, Q8_0, Q4_0) {
  for (const float x : {0.0f, -0.0f, 1e-45f, 1e-8f, 3e38f, -3e38f}) {
    CAPTURE(x);
    for (const Index n : {1, 32, 40}) {
      std::vector<float> values(static_cast<std::size_t>(n), x);
      values.back() = -x / 2;
      const OffsetBytes row(F::row_bytes(n), 1);
      F::encode(values.data(), n, row.data());
      for (Index i = 0; i < n; ++i) {
        const float back = F::template decode<float>(row.data(), i);
        CHECK(std::isfinite(back));
        CHECK(std::abs(back) <= std::abs(x) * 1.01f + 1e-6f);
      }
    }
  }
}

TEST_CASE("block formats: each has its name, under its tag too") {
  CHECK(kvdecode::Q8_0::kName == "q8_0");
  CHECK(kvdecode::Q4_0::kName == "q4_0");
  CHECK(kvdecode::Q4_1::kName == "q4_1");
  CHECK(kvdecode::Q5_0::kName == "q5_0");
  CHECK(kvdecode::Q5_1::kName == "q5_1");
  CHECK(kvdecode::Q2_K::kName == "q2_k");
  CHECK(kvdecode::Q3_K::kName == "q3_k");
  CHECK(kvdecode::Q4_K::kName == "q4_k");
  CHECK(kvdecode::Q5_K::kName == "q5_k");
  CHECK(kvdecode::Q6_K::kName == "q6_k");
  CHECK(kvdecode::IQ4_NL::kName == "iq4_nl");
  CHECK(kvdecode::IQ4_XS::kName == "iq4_xs");
  CHECK(kvdecode::MXFP4::kName == "mxfp4");
  CHECK(kvdecode::IQ1_S::kName == "iq1_s");
  CHECK(kvdecode::IQ1_M::kName == "iq1_m");
  CHECK(kvdecode::IQ2_XXS::kName == "iq2_xxs");
  CHECK(kvdecode::IQ2_XS::kName == "iq2_xs");
  CHECK(kvdecode::IQ2_S::kName == "iq2_s");
  CHECK(kvdecode::IQ3_XXS::kName == "iq3_xxs");
  CHECK(kvdecode::IQ3_S::kName == "iq3_s");
  CHECK(kvdecode::TQ1_0::kName == "tq1_0");
  CHECK(kvdecode::TQ2_0::kName == "tq2_0");
  CHECK(kvdecode::NVFP4::kName == "nvfp4");
  CHECK(kvdecode::Q1_0::kName == "q1_0");
  CHECK(kvdecode::Q2_0::kName == "q2_0");
  CHECK(to_string(FormatId::kQ8_0) == "q8_0");
  CHECK(to_string(FormatId::kQ4_0) == "q4_0");
  CHECK(to_string(FormatId::kQ4_1) == "q4_1");
  CHECK(to_string(FormatId::kQ5_0) == "q5_0");
  CHECK(to_string(FormatId::kQ5_1) == "q5_1");
  CHECK(to_string(FormatId::kQ2_K) == "q2_k");
  CHECK(to_string(FormatId::kQ3_K) == "q3_k");
  CHECK(to_string(FormatId::kQ4_K) == "q4_k");
  CHECK(to_string(FormatId::kQ5_K) == "q5_k");
  CHECK(to_string(FormatId::kQ6_K) == "q6_k");
  CHECK(to_string(FormatId::kIQ4_NL) == "iq4_nl");
  CHECK(to_string(FormatId::kIQ4_XS) == "iq4_xs");
  CHECK(to_string(FormatId::kMXFP4) == "mxfp4");
  CHECK(to_string(FormatId::kIQ1_S) == "iq1_s");
  CHECK(to_string(FormatId::kIQ1_M) == "iq1_m");
  CHECK(to_string(FormatId::kIQ2_XXS) == "iq2_xxs");
  CHECK(to_string(FormatId::kIQ2_XS) == "iq2_xs");
  CHECK(to_string(FormatId::kIQ2_S) == "iq2_s");
  CHECK(to_string(FormatId::kIQ3_XXS) == "iq3_xxs");
  CHECK(to_string(FormatId::kIQ3_S) == "iq3_s");
  CHECK(to_string(FormatId::kTQ1_0) == "tq1_0");
  CHECK(to_string(FormatId::kTQ2_0) == "tq2_0");
  CHECK(to_string(FormatId::kNVFP4) == "nvfp4");
  CHECK(to_string(FormatId::kQ1_0) == "q1_0");
  CHECK(to_string(FormatId::kQ2_0) == "q2_0");
  const auto all = []<class... F>(kvdecode::FormatList<F...>) {
    return (has_format(GgufFormats{}, F::kId) && ...) && sizeof...(F) == 29;
  };
  CHECK(all(GgufFormats{}));
}

}  // namespace

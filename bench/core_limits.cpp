// SPDX-License-Identifier: MIT
// Where memory could bring weights faster than a core can use them, what does the core spend its time on?
//
//   y = W x for one x, W small enough for the core's second cache: w = fl(scale * code) as a float, and one fused
//   multiply-add of w and x in the canonical order of sixteen lanes
//
// Run: build/bench/core_limits [--kib 128] [--seconds 0.2]
//
// For each format loops over the same bytes, with the price of one step between each and the next:
//   the library   its kernel for one token
//   scales ready  the fewest instructions known that give these bits, the scales being floats already
//   no scales     each number is its code
//   no codes      each sixteen numbers are one float of the bytes
// in bytes of weights a second and cycles for 32 weights, beside what the memory reads and the core multiplies, measured
// in the same run. Then two sentences for each format: which of the two bounds decoding, and what a batch can gain, whose
// weights are read once and multiplied for each sequence. No loop is timed before its sums are known to be, to the bit,
// the canonical dots of the numbers that it stands for: exit status 1 if not.
//
// What to expect of a core whose registers of 512 bits go through pipes of 256 (Zen 4): each instruction takes one of the
// pipes that know it for two cycles. Products and multiply-adds have pipes 0 and 1; extensions, lookups, and what spreads
// a float (but not an integer) from memory, 1 and 2; conversions, sums and shifts 2 and 3. 32 weights take at least
//   F32, F16  2 multiply-adds: 2 cycles; F16's 2 widenings are one more
//   Q8_0      2 products, 2 multiply-adds: 4 times 2 on pipes 0 and 1, 4 cycles; 2 extensions and 2 conversions fill
//             pipes 2 and 3 meanwhile
//   Q4_0      a product, of the table of sixteen numbers, 2 multiply-adds, an extension, 2 lookups: 6 times 2 on pipes
//             0 to 2, 4 cycles; a shift beside them
//   Q4_K      64 weights: 2 multiply-adds for the tables, 4 others, 2 extensions, 4 lookups: again 4 cycles for 32
// and what unpacks the scales. At 3.7 GHz these are 31 GB/s for Q8_0 and 17 GB/s for weights of four bits if no pipe is
// ever idle, where memory gives 20 to 25.
#include "machine.hpp"
#include "random_blocks.hpp"

#include "../examples/program.hpp"

#include <kvdecode/kvdecode.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using kvdecode::FormatId;
using kvdecode::Index;
using kvdecode::kLanes;
using kvdecode::MatrixView;
using kvdecode::detail::byte_at;
using kvdecode::detail::load_element;
namespace simd = kvdecode::simd;
using Lanes = kvdecode::Lanes<float>;

// ---- Loops ----------------------------------------------------------------------------------------------------
//
// A loop is made of numbers, 64 at a time: some(group, i, scales, w) makes numbers i … i+63 of the 256 that begin at
// `group`, i being a constant; of each 32 there are two scales, a factor and a minimum. number(row, k) is one of them, as
// the definition has it.

constexpr int kSome = 64, kGroup = 256;
constexpr int kRows = simd::kVectorRegisters < 32 ? 4 : 8, kTileRows = simd::kVectorRegisters < 32 ? 1 : 4;

/// One float of the bytes in sixteen lanes.
template <class F>
struct NoCodes {
  using Format = F;
  static constexpr Index place(Index k) {
    return k / F::kBlock * F::row_bytes(F::kBlock) + kvdecode::byte_near<F>(k % F::kBlock / kLanes * kLanes);
  }
  template <int i>
  static KVDECODE_INLINE void some(const std::byte* group, const float*, Lanes (&w)[4]) {
    simd::unroll<4>([&](auto j) KVDECODE_INLINE_LAMBDA {
      constexpr Index at = place(i + j * kLanes);
      w[j] = Lanes::set1(load_element<float>(group + at, 0));
    });
  }
  static float number(const std::byte* row, Index k) {
    return load_element<float>(row + place(k / kLanes * kLanes), 0);
  }
};

/// Numbers that share nothing.
template <class F>
struct Elements {
  using Format = F;
  template <int i>
  static KVDECODE_INLINE void some(const std::byte* group, const float*, Lanes (&w)[4]) {
    simd::unroll<4>([&](auto j)
                        KVDECODE_INLINE_LAMBDA { w[j] = F::template widen<float>(group, i + j * kLanes); });
  }
  static float number(const std::byte* row, Index k) { return F::template decode<float>(row, k); }
};

template <bool has_scales>
struct Bytes {
  using Format = kvdecode::Q8_0;
  static constexpr int kCodes = 2;  // byte at which they begin
  template <int i>
  static KVDECODE_INLINE void some(const std::byte* group, const float* scales, Lanes (&w)[4]) {
    simd::unroll<2>([&](auto half) KVDECODE_INLINE_LAMBDA {
      const std::byte* const codes = group + (i / 32 + half) * Format::kBlockBytes + kCodes;
      const Lanes scale = has_scales ? simd::broadcast(scales[2 * half]) : Lanes{};
      simd::unroll<2>([&](auto j) KVDECODE_INLINE_LAMBDA {
        const Lanes code = simd::to_lanes(simd::load_bytes(codes + j * kLanes));
        w[2 * half + j] = has_scales ? mul(scale, code) : code;
      });
    });
  }
  static float number(const std::byte* row, Index k) {
    if constexpr (has_scales) return Format::decode<float>(row, k);
    return static_cast<float>(load_element<std::int8_t>(row + k / 32 * Format::kBlockBytes, kCodes + k % 32));
  }
};

/// Q4_0 and Q4_K: low nibbles are `n` numbers, high ones the n that follow.
template <class F, int codes, int n, bool has_minimum, bool has_scales>
struct Nibbles {
  using Format = F;
  using Shared = kvdecode::detail::FourBitNumbers<has_minimum>;
  static constexpr const kvdecode::detail::Levels& kLevels =
      has_minimum || !has_scales ? kvdecode::detail::kZeroToFifteen : kvdecode::detail::Q4_0Block::kLevels;
  static constexpr Index place(Index k) {
    const Index within = k % F::kBlock;
    return k / F::kBlock * F::kBlockBytes + codes + within / (2 * n) * n + within % n;
  }
  template <int i>
  static KVDECODE_INLINE void some(const std::byte* group, const float* scales, Lanes (&w)[4]) {
    simd::Bytes packed[4];
    simd::unroll<4>([&](auto j) KVDECODE_INLINE_LAMBDA {
      constexpr Index at = place(i + j * kLanes);
      packed[j] = simd::load_bytes(group + at);
    });
    simd::unroll<2>([&](auto half) KVDECODE_INLINE_LAMBDA {
      const Shared shared = has_scales ? Shared(kLevels, scales[2 * half], scales[2 * half + 1]) : Shared();
      simd::unroll<2>([&](auto in_half) KVDECODE_INLINE_LAMBDA {
        constexpr int j = 2 * half + in_half, shift = (i + j * kLanes) / n % 2 * 4;
        const simd::Bytes code = simd::bit_field(packed[j], shift, 15);
        if constexpr (has_scales)
          w[j] = shared(has_minimum ? code : code - 8, packed[j], shift);
        else
          w[j] = simd::kPicksFast ? simd::pick(kLevels.lanes(), packed[j], shift) : simd::to_lanes(code);
      });
    });
  }
  static float number(const std::byte* row, Index k) {
    if constexpr (has_scales) return F::template decode<float>(row, k);
    return static_cast<float>(byte_at(row + place(k), 0) >> (k % F::kBlock / n % 2 * 4) & 15);
  }
};

/// y = W x. @pre w.rows is a multiple of kRows, w.cols of kGroup
/// @param scales  of each row two for each 32 numbers
template <class Numbers>
__attribute__((noinline)) void multiply(const MatrixView& w, const float* scales, const float* x,
                                        float* y) noexcept {
  const Index n_scales = w.cols / 32 * 2;
  for (Index r = 0; r < w.rows; r += kRows) {
    const std::byte* group = w.data + r * w.stride;
    const float* group_scales = scales + r * n_scales;
    Lanes sums[kRows];
    simd::unroll<kRows>([&](auto i) KVDECODE_INLINE_LAMBDA { sums[i] = Lanes::zero(); });
    for (Index k = 0; k < w.cols; k += kGroup) {
      simd::unroll<kGroup / kSome>([&](auto part) KVDECODE_INLINE_LAMBDA {
        Lanes some_x[4];
        simd::unroll<4>([&](auto j) KVDECODE_INLINE_LAMBDA {
          some_x[j] = Lanes::loadu(x + k + part * kSome + j * kLanes);
        });
        simd::unroll<kRows / kTileRows>([&](auto tile) KVDECODE_INLINE_LAMBDA {
          Lanes numbers[kTileRows][4];
          simd::unroll<kTileRows>([&](auto i) KVDECODE_INLINE_LAMBDA {
            const Index row = tile * kTileRows + i;
            Numbers::template some<part * kSome>(group + row * w.stride,
                                                 group_scales + row * n_scales + part * 4, numbers[i]);
          });
          if constexpr (kTileRows > 1) simd::hold_order(numbers);
          simd::unroll<kTileRows>([&](auto i) KVDECODE_INLINE_LAMBDA {
            Lanes& sum = sums[tile * kTileRows + i];
            simd::unroll<4>([&](auto j) KVDECODE_INLINE_LAMBDA { sum = fma(numbers[i][j], some_x[j], sum); });
          });
        });
      });
      group += Numbers::Format::row_bytes(kGroup);
      group_scales += kGroup / 32 * 2;
    }
    tree_sums(sums, y + r);
  }
}

/// The factor and the minimum, to be added, of each 32 numbers of a row.
template <class F>
void unpack_scales(const std::byte* row, Index n, float* scales) {
  using namespace kvdecode::detail;
  for (Index k = 0; k < n; k += 32, scales += 2) {
    const std::byte* const block = row + k / F::kBlock * F::row_bytes(F::kBlock);
    scales[0] = scales[1] = 0.0f;
    if constexpr (F::kId == FormatId::kQ4_K) {
      const SixBitScale s = six_bit_scale(block + Q4_KBlock::kScales, static_cast<int>(k % F::kBlock / 32));
      scales[0] = scale_at(block) * static_cast<float>(s.scale);
      scales[1] = -scale_at(block + Q4_KBlock::kMinimum) * static_cast<float>(s.minimum);
    } else if constexpr (F::kBlock > 1) {
      scales[0] = scale_at(block);
    }
  }
}

// ---- Measuring ------------------------------------------------------------------------------------------------

/// Cycles a second: additions that wait for one another take one each. What processors count by themselves are others.
double cycles_per_second() {
  constexpr Index kAdditions = 1 << 18;
  const auto add = [] {
    std::uint64_t sum = 0, one = 1;
    asm volatile("" : "+r"(one));
    for (Index i = 0; i < kAdditions; i += 64)
      simd::unroll<64>([&](auto) KVDECODE_INLINE_LAMBDA {
        sum += one;
        asm volatile("" : "+r"(sum));
      });
  };
  return static_cast<double>(kAdditions) / bench::shortest_call(0.05, add);
}

struct Arguments {
  Index kib = 128;
  double seconds = 0.2;
};

class Report {
 public:
  explicit Report(const Arguments& a) : arguments_(a), limits_(bench::measure_machine(1)) {}

  void print_head() const {
    const kvdecode::BuildInfo build = kvdecode::build_info();
    std::printf("kvdecode %s, %s, %s\n", std::string(build.version).c_str(),
                std::string(build.instruction_set).c_str(), std::string(build.compiler).c_str());
    std::printf("one core reads %.1f GB/s from memory and computes %.1f Gflop/s by fma, at %.2f GHz\n",
                limits_.read_bytes_per_second / 1e9, limits_.flops_per_second / 1e9,
                cycles_per_second() / 1e9);
    std::printf("%d KiB of weights, %d rows at a time\n\n", static_cast<int>(arguments_.kib), kRows);
    std::printf("%-6s  %-12s  %6s  %9s\n", "format", "loop", "GB/s", "cycles/32");
  }

  /// Every loop of a format.
  template <class F, class... Numbers>
  void measure(const char* const (&names)[sizeof...(Numbers)]) {
    const Index cols = 2048, row_bytes = F::row_bytes(cols), n_scales = cols / 32 * 2;
    const Index rows = std::max<Index>(1, arguments_.kib * 1024 / row_bytes / kRows) * kRows;
    kvdecode::Weights owner;
    const MatrixView w = std::make_unique<bench::RandomBlocks>(F::kId)->matrix(owner, rows, cols);
    std::vector<float> x(static_cast<std::size_t>(cols)), y(static_cast<std::size_t>(rows)),
        scales(static_cast<std::size_t>(rows * n_scales));
    kvdecode::detail::SplitMix64 random(5);
    for (float& value : x) value = static_cast<float>(random.normal());
    for (Index r = 0; r < rows; ++r)
      unpack_scales<F>(w.data + r * w.stride, cols, scales.data() + r * n_scales);

    const double bytes = static_cast<double>(rows * row_bytes);
    const double library = bytes / seconds_of<Elements<F>>(w, x, y, [&] {
                             const kvdecode::kernels::LinearJob<float> job{
                                 w, nullptr, {x.data(), 1, cols, cols}, {y.data(), 1, rows, rows}};
                             kvdecode::kernels::linear_rows<F, float>(job, {0, rows}, nullptr);
                           });
    print<F>("the library", library);
    int n = 0;
    (print<F>(names[n++],
              bytes / seconds_of<Numbers>(w, x, y,
                                          [&] { multiply<Numbers>(w, scales.data(), x.data(), y.data()); })),
     ...);

    char sentence[160];
    const double read = limits_.read_bytes_per_second;
    std::snprintf(
        sentence, sizeof sentence, "%s is bound by %s: %.1f GB/s in cache against %.1f GB/s from memory",
        std::string(F::kName).c_str(), library < read ? "arithmetic" : "memory", library / 1e9, read / 1e9);
    sentences_.emplace_back(sentence);
    const double bytes_of_weight = bytes / static_cast<double>(rows * cols);
    const double alone = bytes_of_weight / std::min(library, read);
    const auto at_most = [&](int n_sequences) {
      return n_sequences * alone /
             std::max(bytes_of_weight / read, 2.0 * n_sequences / limits_.flops_per_second);
    };
    std::snprintf(sentence, sizeof sentence,
                  "%s: 4 sequences at once are at most %.1f times as fast as one, 16 at most %.1f times, by "
                  "multiply-adds alone",
                  std::string(F::kName).c_str(), at_most(4), at_most(16));
    sentences_.emplace_back(sentence);
  }

  void print_sentences() const {
    std::printf("\n");
    for (const std::string& sentence : sentences_) std::printf("%s\n", sentence.c_str());
  }

 private:
  /// Of one product, once its sums are known to be those of the numbers.
  template <class Numbers, class Body>
  double seconds_of(const MatrixView& w, const std::vector<float>& x, std::vector<float>& y,
                    Body&& multiply_all) {
    using F = typename Numbers::Format;
    std::fill(y.begin(), y.end(), 0.0f);
    multiply_all();
    std::vector<float> row(x.size());
    for (Index r = 0; r < w.rows; ++r) {
      for (Index k = 0; k < w.cols; ++k)
        row[static_cast<std::size_t>(k)] = Numbers::number(w.data + r * w.stride, k);
      const float expected = kvdecode::dot(row.data(), x.data(), w.cols);
      if (std::memcmp(&expected, &y[static_cast<std::size_t>(r)], sizeof expected) != 0)
        throw std::runtime_error(std::string(F::kName) + ": a loop's sum of row " + std::to_string(r) +
                                 " differs from the canonical dot");
    }
    return bench::shortest_call(arguments_.seconds, [&] {
      multiply_all();
      asm volatile("" : : "r"(y.data()) : "memory");
    });
  }

  template <class F>
  void print(const char* loop, double bytes_per_second) const {
    const double weights_per_second =
        bytes_per_second / static_cast<double>(F::row_bytes(F::kBlock)) * static_cast<double>(F::kBlock);
    std::printf("%-6s  %-12s  %6.1f  %9.2f\n", std::string(F::kName).c_str(), loop, bytes_per_second / 1e9,
                32.0 * cycles_per_second() / weights_per_second);
    std::fflush(stdout);
  }

  const Arguments& arguments_;
  bench::MachineLimits limits_;
  std::vector<std::string> sentences_;
};

template <class F, int codes, int n, bool has_minimum>
void measure_nibbles(Report& report) {
  report.measure<F, Nibbles<F, codes, n, has_minimum, true>, Nibbles<F, codes, n, has_minimum, false>,
                 NoCodes<F>>({"scales ready", "no scales", "no codes"});
}

int run(const Arguments& a) {
  using namespace kvdecode;
  Report report(a);
  report.print_head();
  report.measure<F32, Elements<F32>>({"only that"});
  report.measure<F16, Elements<F16>, NoCodes<F16>>({"only that", "no codes"});
  report.measure<Q8_0, Bytes<true>, Bytes<false>, NoCodes<Q8_0>>({"scales ready", "no scales", "no codes"});
  measure_nibbles<Q4_0, kvdecode::detail::Q4_0Block::kCodes, 16, false>(report);
  measure_nibbles<Q4_K, kvdecode::detail::Q4_KBlock::kCodes, 32, true>(report);
  report.print_sentences();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"What bounds decoding in each format on this machine: its memory, or a core's arithmetic.",
               "core_limits"};
  Arguments a;
  app.add_option("--kib", a.kib, "of weights, to fit into a core's second cache")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--seconds", a.seconds, "for each loop")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  return program::run(app, argc, argv, [&] { return run(a); });
}

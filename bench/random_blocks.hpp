// SPDX-License-Identifier: MIT
// Matrices of random weights in any format of GGUF files, made in no time.
#pragma once

#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/core/view.hpp>
#include <kvdecode/model/random_weights.hpp>
#include <kvdecode/model/weights.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace bench {

using kvdecode::Index;

/// Random bytes as weights: any codes, and scales that keep activations in range.
class RandomBlocks {
 public:
  explicit RandomBlocks(kvdecode::FormatId format) : format_(format) {
    kvdecode::detail::SplitMix64 random(1);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random() & 0xff);
  }
  kvdecode::MatrixView matrix(kvdecode::Weights& weights, Index rows, Index cols) const {
    const kvdecode::FormatId format =
        visit_format(kvdecode::GgufFormats{}, format_, [&]<class F>() { return cols % F::kBlock == 0; })
            ? format_
            : kvdecode::FormatId::kQ8_0;
    return visit_format(kvdecode::GgufFormats{}, format, [&]<class F>() -> kvdecode::MatrixView {
      const Index row_bytes = F::row_bytes(cols), size = rows * row_bytes;
      auto block = std::make_shared<kvdecode::Block<std::byte>>(size);
      std::byte* const data = block->data();
      if constexpr (F::kBlock == 1) {
        kvdecode::detail::SplitMix64 random(2);
        std::vector<double> numbers(4096);
        for (double& number : numbers) number = random.normal() / kvdecode::sqrt(static_cast<double>(cols));
        const Index n = std::min<Index>(rows * cols, 4096);
        F::encode(numbers.data(), n, data);
        for (Index at = F::row_bytes(n); at < size; at += F::row_bytes(n))
          std::memcpy(data + at, data, static_cast<std::size_t>(std::min(F::row_bytes(n), size - at)));
      } else {
        for (Index at = 0; at < size; at += kBytes)
          std::memcpy(data + at, bytes_, static_cast<std::size_t>(std::min(kBytes, size - at)));
        // Without two bits of its exponent, whatever bytes hold a scale in half precision, it is less than 2^-7; an
        // exponent of its own byte is near one.
        for (Index i = 0; i < size; ++i) data[i] &= std::byte{0x9f};
        if constexpr (F::kId == kvdecode::FormatId::kMXFP4)
          for (Index i = 0; i < size; i += F::kBlockBytes) data[i] = std::byte{120};
      }
      weights.owners.push_back(std::move(block));
      return {format, data, rows, cols, row_bytes, false};
    });
  }

 private:
  static constexpr Index kBytes = 65521;  // a prime: rows differ

  kvdecode::FormatId format_;
  std::byte bytes_[kBytes];
};

}  // namespace bench

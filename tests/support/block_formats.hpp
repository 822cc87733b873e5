// SPDX-License-Identifier: MIT
// <support/block_formats.hpp> - every format of blocks in turn, or every one that is multiplied as integers.
#pragma once

#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/kvdecode.hpp>  // with extern templates where kvdecode::compiled is linked

#include <type_traits>

namespace kvdecode_test {

/// Calls f.operator()<Format>(number) for every format of blocks in GgufFormats.
template <class F>
void for_each_block_format(F&& f) {
  const auto each = [&]<class... Formats>(kvdecode::FormatList<Formats...>) {
    kvdecode::Index number = 0;
    const auto one = [&]<class Format>() {
      if constexpr (Format::kBlock > 1) f.template operator()<Format>(number++);
    };
    (one.template operator()<Formats>(), ...);
  };
  each(kvdecode::GgufFormats{});
}

/// Calls f.operator()<Format>() for those of integers.
template <class F>
void for_each_integer_format(F&& f) {
  for_each_block_format([&]<class Format>(kvdecode::Index) {
    if constexpr (kvdecode::IntegerLayout<typename Format::Layout>) f.template operator()<Format>();
  });
}

}  // namespace kvdecode_test

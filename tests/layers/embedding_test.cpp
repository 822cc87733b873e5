// SPDX-License-Identifier: MIT
#include <reference/numbers.hpp>
#include <support/guarded.hpp>
#include <support/model.hpp>
#include <support/names.hpp>

#include <kvdecode/layers/embedding.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace {

using kvdecode::CoreFormats;
using kvdecode::EmbeddingLayer;
using kvdecode::FormatId;
using kvdecode::Index;
using kvdecode_test::Guarded;

TEST_CASE_TEMPLATE("embedding: the token's row, and that of its position added, in every format and storage",
                   S, float, double) {
  for (const FormatId format : {FormatId::kF64, FormatId::kF32, FormatId::kF16, FormatId::kBF16})
    for (const bool transposed : {false, true})
      for (const bool is_learned : {false, true}) {
        CAPTURE(to_string(format));
        kvdecode_test::RandomNumbers numbers({.format = format, .offset = 1, .row_padding = 3});
        EmbeddingLayer layer;
        layer.tokens = numbers.matrix(11, 21, 1.0, transposed);
        if (is_learned) layer.positions = numbers.matrix(6, 21, 1.0, transposed);
        const auto owners = numbers.take_owners();
        const auto tokens = kvdecode_reference::read(layer.tokens),
                   positions = kvdecode_reference::read(layer.positions);
        for (const kvdecode::TokenId token : {0, 5, 10})
          for (const Index position : {0, 3, 5}) {
            Guarded<S> out(21), scratch(21);
            layer.forward<CoreFormats>(token, position, scratch.data(), out.data());
            CHECK(out.is_intact());
            CHECK(scratch.is_intact());
            for (std::size_t c = 0; c < 21; ++c) {
              S expected = static_cast<S>(tokens[static_cast<std::size_t>(token)][c]);
              if (is_learned)
                expected = expected + static_cast<S>(positions[static_cast<std::size_t>(position)][c]);
              CHECK(out.data()[c] == expected);
            }
          }
      }
}

}  // namespace

// SPDX-License-Identifier: MIT
// <kvdecode/decode/record.hpp> - all that it takes to go on with a sequence later or in another decoder, as data.
#pragma once

#include <kvdecode/cache/record.hpp>
#include <kvdecode/core/types.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace kvdecode::inline KVDECODE_ABI {

/// A decoder's content. It does not own tokens and logits.
template <class S>
struct DecoderRecord {
  std::uint64_t model = 0;       // Transformer::fingerprint()
  std::string_view activations;  // name of the policy
  std::span<const TokenId> tokens;
  std::span<const S> logits;  // after the last token, [vocab_size]; none where they are not at hand
  CacheRecord cache{};        // of the first tokens: as many as the cache holds
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/core/types.hpp> - the two integer types of the library.
#pragma once

#include <kvdecode/core/config.hpp>

#include <cstddef>
#include <cstdint>

namespace kvdecode::inline KVDECODE_ABI {

/// Every count, extent and position. A position is the absolute, 0-based index of a token in its sequence.
using Index = std::ptrdiff_t;

/// A token of a vocabulary, in [0, vocab_size).
using TokenId = std::int32_t;

}  // namespace kvdecode

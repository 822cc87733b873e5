// SPDX-License-Identifier: MIT
// <kvdecode/core/cache_formats.hpp> - the formats that are for caches: few bits a number, encoded as rows come, read in
// place by attention.
//
//            bits a number,
//            of a row of 64
//   Int8         8.5    costs nothing that can be seen: the choice for keys
//   HadInt4      4.5    a Hadamard transform before Int4: the choice for values
//   Int4         4.5    for head dimensions that are no power of two
//   Asym4        5.0    a minimum beside the scale: for rows that lie on one side of zero
//   Turbo4       4.25   levels for normally distributed numbers, a length for the whole row
//   HadInt3      3.5
//   Int3         3.5
//   Turbo3       3.25   better than HadInt3, for less
//   Turbo2       2.25   where memory is all that counts
//
// Those for float and double alike are beside them (core/element_formats.hpp): F32, F16, BF16. HadInt and Turbo store
// turned rows: attention turns the queries to meet their keys, and turns back what it sums of their values.
#pragma once

#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/formats/cache_blocks.hpp>
#include <kvdecode/core/formats/cache_hadamard.hpp>
#include <kvdecode/core/formats/cache_turbo.hpp>

namespace kvdecode::inline KVDECODE_ABI {

/// The formats that keys and values may have, by name.
using CacheFormats =
    FormatList<F32, F16, BF16, F64, Int8, Int4, Int3, Asym4, HadInt4, HadInt3, Turbo4, Turbo3, Turbo2>;

}  // namespace kvdecode

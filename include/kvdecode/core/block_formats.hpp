// SPDX-License-Identifier: MIT
// <kvdecode/core/block_formats.hpp> - the formats in which numbers share scales, as GGUF files have them.
//
//            numbers  bits a
//            a block  number
//   Q8_0       32     8.5     nearly as good as F16
//   Q4_0       32     4.5     one scale; Q4_1 5.0, with a minimum
//   Q5_0       32     5.5     one scale; Q5_1 6.0, with a minimum
//   Q2_K      256     2.6     scales of scales: better than the above for their size
//   Q3_K      256     3.4
//   Q4_K      256     4.5     the usual choice
//   Q5_K      256     5.5
//   Q6_K      256     6.6
//   IQ4_NL     32     4.5     sixteen uneven levels
//   IQ4_XS    256     4.25    the same with scales of scales
//   MXFP4      32     4.25    small floats and a power of two, as some models are trained
//
// Missing: Q8_K (activations only), code-book formats (IQ1, IQ2, IQ3), ternary ones (TQ), NVFP4, Q1_0, Q2_0.
// Q8_0 and Q4_0 can also be written.
#pragma once

#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/formats/iq4_nl.hpp>
#include <kvdecode/core/formats/iq4_xs.hpp>
#include <kvdecode/core/formats/mxfp4.hpp>
#include <kvdecode/core/formats/q2_k.hpp>
#include <kvdecode/core/formats/q3_k.hpp>
#include <kvdecode/core/formats/q4_0.hpp>
#include <kvdecode/core/formats/q4_1.hpp>
#include <kvdecode/core/formats/q4_k.hpp>
#include <kvdecode/core/formats/q5_0.hpp>
#include <kvdecode/core/formats/q5_1.hpp>
#include <kvdecode/core/formats/q5_k.hpp>
#include <kvdecode/core/formats/q6_k.hpp>
#include <kvdecode/core/formats/q8_0.hpp>

namespace kvdecode::inline KVDECODE_ABI {

/// The formats of matrices in GGUF files: Transformer<float, ExactActivations, GgufFormats>.
using GgufFormats = FormatList<F32, F16, BF16, F64, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K,
                               Q6_K, IQ4_NL, IQ4_XS, MXFP4>;

}  // namespace kvdecode

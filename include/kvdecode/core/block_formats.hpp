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
//   NVFP4      64     4.5     the same with finer scales of fewer numbers
//   IQ3_S     256     3.4     four numbers at a time out of a code book; IQ3_XXS 3.1, a smaller book
//   IQ2_S     256     2.6     eight numbers at a time; IQ2_XS 2.3, IQ2_XXS 2.1, smaller books
//   IQ1_M     256     1.75    eight numbers -1, 0 or 1 at a time, moved up or down; IQ1_S 1.6, fewer scales
//   TQ2_0     256     2.1     -1, 0 or 1 and one scale, for models trained so; TQ1_0 1.7, the same numbers
//   Q2_0       64     2.25    -1, 0, 1 or 2 and one scale
//   Q1_0      128     1.1     a sign and one scale
//
// Missing: Q8_K, for activations only. Q8_0 and Q4_0 can also be written.
#pragma once

#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/formats/iq1_m.hpp>
#include <kvdecode/core/formats/iq1_s.hpp>
#include <kvdecode/core/formats/iq2_s.hpp>
#include <kvdecode/core/formats/iq2_xs.hpp>
#include <kvdecode/core/formats/iq2_xxs.hpp>
#include <kvdecode/core/formats/iq3_s.hpp>
#include <kvdecode/core/formats/iq3_xxs.hpp>
#include <kvdecode/core/formats/iq4_nl.hpp>
#include <kvdecode/core/formats/iq4_xs.hpp>
#include <kvdecode/core/formats/mxfp4.hpp>
#include <kvdecode/core/formats/nvfp4.hpp>
#include <kvdecode/core/formats/q1_0.hpp>
#include <kvdecode/core/formats/q2_0.hpp>
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
#include <kvdecode/core/formats/tq1_0.hpp>
#include <kvdecode/core/formats/tq2_0.hpp>

namespace kvdecode::inline KVDECODE_ABI {

/// The formats of matrices in GGUF files: Transformer<float, ExactActivations, GgufFormats>.
using GgufFormats = FormatList<F32, F16, BF16, F64, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K,
                               Q6_K, IQ4_NL, IQ4_XS, MXFP4, IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS,
                               IQ3_S, TQ1_0, TQ2_0, NVFP4, Q1_0, Q2_0>;

}  // namespace kvdecode

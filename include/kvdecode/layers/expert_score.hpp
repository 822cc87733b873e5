// SPDX-License-Identifier: MIT
// <kvdecode/layers/expert_score.hpp> - the switches of a router: what it makes of its logits, and what groups of experts
// are chosen by.
#pragma once

#include <kvdecode/core/config.hpp>

namespace kvdecode::inline KVDECODE_ABI {

/// What a router's logits become.
enum class ExpertScore {
  kSoftmax,  ///< a probability among all experts (Shazeer 2017; Fedus 2021)
  kSigmoid,  ///< each by itself (DeepSeek-AI 2024, DeepSeek-V3, section 2.1.2)
};

/// What a group of experts is chosen by.
enum class ExpertGroupScore {
  kMaximum,  ///< its best expert (DeepSeek-AI 2024, DeepSeek-V2, section 2.2.2)
  kTopTwo,   ///< the sum of its best two (DeepSeek-V3, section 2.1.2)
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// <kvdecode/io/loaded_model.hpp> - a model as a loader hands it over, whatever the file format.
#pragma once

#include <kvdecode/io/load_report.hpp>

#include <kvdecode/core/block_formats.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/transformer.hpp>
#include <kvdecode/model/weights.hpp>

#include <vector>

namespace kvdecode::inline KVDECODE_ABI {

/// A transformer whose matrices may have any format that a model's file may have.
template <Scalar S = float, ActivationPolicy Activations = ExactActivations>
using FileTransformer = Transformer<S, Activations, GgufFormats>;

/// What a loader may do beside what it has to.
struct LoadOptions {
  bool huge_pages =
      false;  // copies the matrices into huge pages of memory (copy_to_huge_pages) instead of mapping files
};

/// Config and weights fit one another. Unless they were copied, the weights lie in mapped files, which weights.owners keeps.
struct LoadedModel {
  ModelConfig config;
  Weights weights;
  std::vector<TokenId> bos_token_ids;  // usually one; empty: the model names none
  std::vector<TokenId> eos_token_ids;  // each ends a text
  LoadReport report;
};

}  // namespace kvdecode

// SPDX-License-Identifier: MIT
// The model of the session target and of its seeds: as little as a model can be, with one layer that sees all positions
// and one that has a window and sinks.
#pragma once

#include <kvdecode/model/random_weights.hpp>
#include <kvdecode/model/transformer.hpp>

namespace fuzz {

inline kvdecode::Transformer<float> session_model() {
  kvdecode::ModelConfig config;
  config.n_layers = 2;
  config.n_heads = config.n_kv_heads = 1;
  config.d_model = config.d_ff = config.head_dim = 2;
  config.vocab_size = 4;
  config.max_seq_len = 64;
  config.spans = {{}, {.window = 3, .n_sink = 1}};
  return kvdecode::Transformer<float>(config, kvdecode::random_weights(config));
}

}  // namespace fuzz

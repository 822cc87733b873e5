// SPDX-License-Identifier: MIT
// <kvdecode/kvdecode.hpp> - everything that needs only Eigen: core, kernels, caches, layers, models,
// decoding.
#pragma once

#include <kvdecode/cache/batch.hpp>
#include <kvdecode/cache/capacity.hpp>
#include <kvdecode/cache/concepts.hpp>
#include <kvdecode/cache/contiguous.hpp>
#include <kvdecode/cache/cross_attention.hpp>
#include <kvdecode/cache/growing.hpp>
#include <kvdecode/cache/page_pool.hpp>
#include <kvdecode/cache/paged.hpp>
#include <kvdecode/cache/picture.hpp>
#include <kvdecode/cache/prefix_store.hpp>
#include <kvdecode/cache/record.hpp>
#include <kvdecode/cache/sink.hpp>
#include <kvdecode/cache/sliding_window.hpp>
#include <kvdecode/core/build_info.hpp>
#include <kvdecode/core/cache_formats.hpp>
#include <kvdecode/core/counting.hpp>
#include <kvdecode/core/element_formats.hpp>
#include <kvdecode/core/error.hpp>
#include <kvdecode/core/executor.hpp>
#include <kvdecode/core/hash64.hpp>
#include <kvdecode/core/memory.hpp>
#include <kvdecode/core/progress.hpp>
#include <kvdecode/core/thread_team.hpp>
#include <kvdecode/core/types.hpp>
#include <kvdecode/core/view.hpp>
#include <kvdecode/decode/any_decoder.hpp>
#include <kvdecode/decode/concepts.hpp>
#include <kvdecode/decode/decoder.hpp>
#include <kvdecode/decode/generate.hpp>
#include <kvdecode/decode/perplexity.hpp>
#include <kvdecode/decode/record.hpp>
#include <kvdecode/decode/samplers.hpp>
#include <kvdecode/decode/stop_strings.hpp>
#include <kvdecode/decode/strategies.hpp>
#include <kvdecode/model/cache_bytes.hpp>
#include <kvdecode/model/config.hpp>
#include <kvdecode/model/cost.hpp>
#include <kvdecode/model/cost_table.hpp>
#include <kvdecode/model/cross_attention.hpp>
#include <kvdecode/model/fingerprint.hpp>
#include <kvdecode/model/random_weights.hpp>
#include <kvdecode/model/transformer.hpp>
#include <kvdecode/model/weights.hpp>

#if defined(KVDECODE_USE_COMPILED)
#include <kvdecode/compiled.hpp>
#endif

// SPDX-License-Identifier: MIT
// What both translation units of the consumer include: the core, and the components asked for.
#pragma once

#include <kvdecode/kvdecode.hpp>
#if defined(WITH_IO)
#include <kvdecode/io.hpp>
#endif
#if defined(WITH_TEXT)
#include <kvdecode/text.hpp>
#endif
#if defined(WITH_PIPELINE)
#include <kvdecode/pipeline.hpp>
#endif

#include <string_view>

/// What the second translation unit sees of the library.
std::string_view seen_by_second();

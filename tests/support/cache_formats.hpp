// SPDX-License-Identifier: MIT
// <support/cache_formats.hpp> - the formats for caches as a list for templated tests, with names.
#pragma once

#include <kvdecode/core/cache_formats.hpp>

#include <doctest/doctest.h>

TYPE_TO_STRING_AS("Int8", kvdecode::Int8);
TYPE_TO_STRING_AS("Int4", kvdecode::Int4);
TYPE_TO_STRING_AS("Int3", kvdecode::Int3);
TYPE_TO_STRING_AS("Asym4", kvdecode::Asym4);
TYPE_TO_STRING_AS("HadInt4", kvdecode::HadInt4);
TYPE_TO_STRING_AS("HadInt3", kvdecode::HadInt3);
TYPE_TO_STRING_AS("Turbo4", kvdecode::Turbo4);
TYPE_TO_STRING_AS("Turbo3", kvdecode::Turbo3);
TYPE_TO_STRING_AS("Turbo2", kvdecode::Turbo2);

#define KVDECODE_TEST_CACHE_FORMATS                                                                      \
  kvdecode::Int8, kvdecode::Int4, kvdecode::Int3, kvdecode::Asym4, kvdecode::HadInt4, kvdecode::HadInt3, \
      kvdecode::Turbo4, kvdecode::Turbo3, kvdecode::Turbo2

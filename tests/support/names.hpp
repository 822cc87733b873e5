// SPDX-License-Identifier: MIT
// <support/names.hpp> - names for the types that templated tests run over.
#pragma once

#include <kvdecode/core/counting.hpp>
#include <kvdecode/core/element_formats.hpp>

#include <doctest/doctest.h>

TYPE_TO_STRING_AS("float", float);
TYPE_TO_STRING_AS("double", double);
TYPE_TO_STRING_AS("Counting<float>", kvdecode::Counting<float>);
TYPE_TO_STRING_AS("Counting<double>", kvdecode::Counting<double>);
TYPE_TO_STRING_AS("F64", kvdecode::F64);
TYPE_TO_STRING_AS("F32", kvdecode::F32);
TYPE_TO_STRING_AS("F16", kvdecode::F16);
TYPE_TO_STRING_AS("BF16", kvdecode::BF16);

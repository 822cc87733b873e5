// SPDX-License-Identifier: MIT
// The definitions behind <kvdecode/compiled.hpp> for float: the products of formats that are multiplied row by row, most of
// which have a code book.
#define KVDECODE_TEMPLATE_float_code_books template
#include <kvdecode/compiled.hpp>

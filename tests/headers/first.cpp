// SPDX-License-Identifier: MIT
// Every header of the library in two translation units of one program: it links only if all functions and
// variables are inline.
#include <every_header.hpp>

int n_headers_of_second();

int main() { return n_headers_of_second() == kNHeaders ? 0 : 1; }

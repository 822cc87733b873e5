// SPDX-License-Identifier: MIT
#include <every_header.hpp>

int n_headers_of_second();
int n_headers_of_second() { return kNHeaders; }

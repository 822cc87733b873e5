// error: -freciprocal-math replaces divisions
// SPDX-License-Identifier: MIT
#define __RECIPROCAL_MATH__ 1  // what the compiler defines under the option
#include <kvdecode/core/config.hpp>

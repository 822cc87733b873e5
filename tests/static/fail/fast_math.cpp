// error: -ffast-math lets the compiler change results
// SPDX-License-Identifier: MIT
#define __FAST_MATH__ 1  // what the compiler defines under the option
#include <kvdecode/core/config.hpp>

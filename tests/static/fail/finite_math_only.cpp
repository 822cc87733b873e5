// error: -ffinite-math-only breaks infinities
// SPDX-License-Identifier: MIT
#undef __FINITE_MATH_ONLY__
#define __FINITE_MATH_ONLY__ 1  // what the compiler defines under the option
#include <kvdecode/core/config.hpp>

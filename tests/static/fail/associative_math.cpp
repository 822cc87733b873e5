// error: -fassociative-math reorders sums
// SPDX-License-Identifier: MIT
#define __ASSOCIATIVE_MATH__ 1  // what the compiler defines under the option
#include <kvdecode/core/config.hpp>

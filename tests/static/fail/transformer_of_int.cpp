// error: Scalar
// SPDX-License-Identifier: MIT
#include <kvdecode/model/transformer.hpp>

using T = kvdecode::Transformer<int>;

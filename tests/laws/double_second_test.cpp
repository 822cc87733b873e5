// SPDX-License-Identifier: MIT
// Double, and the second half of the caches: those at odd places of the list.
#include <laws/product.hpp>

namespace {

using namespace kvdecode_laws;

TEST_CASE("laws: hold for double, second half of the caches, on rows in which every two values meet") {
  CHECK(try_everyday_rows<double, 1, 2>() > 0);
}

#if defined(KVDECODE_EXHAUSTIVE)
TEST_CASE("laws: hold for double, second half of the caches, on the full product") {
  CHECK(try_full_product<double, 1, 2>() > 0);
}
#endif

}  // namespace

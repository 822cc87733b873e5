// SPDX-License-Identifier: MIT
// Exits 0 if both translation units see the same library, and if the components that were asked for link.
#include "units.hpp"

int main() {
  if (kvdecode::build_info().instruction_set != seen_by_second()) return 1;
#if defined(WITH_PIPELINE)
  try {
    kvdecode::load_text_model("there/is/no/such/model");
    return 1;
  } catch (const kvdecode::Error&) {
  }
#endif
  return 0;
}

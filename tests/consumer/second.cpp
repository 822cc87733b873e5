// SPDX-License-Identifier: MIT
#include "units.hpp"

std::string_view seen_by_second() { return kvdecode::build_info().instruction_set; }

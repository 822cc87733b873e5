// error: Raw<T> stores the bytes of T: T must be trivially copyable
// SPDX-License-Identifier: MIT
#include <kvdecode/core/element_formats.hpp>

#include <string>

kvdecode::Index f() { return kvdecode::Raw<std::string>::row_bytes(1); }

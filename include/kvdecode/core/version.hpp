// SPDX-License-Identifier: MIT
// <kvdecode/core/version.hpp> - the library's version, read from here by CMake as well.
#pragma once

#define KVDECODE_VERSION_MAJOR 0
#define KVDECODE_VERSION_MINOR 1
#define KVDECODE_VERSION_PATCH 0

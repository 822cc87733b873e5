# SPDX-License-Identifier: MIT
# PCRE2 for 8-bit code units. Defines PCRE2::8BIT, the name that PCRE2's own CMake package uses, and
# PCRE2_VERSION, PCRE2_INCLUDE_DIR, PCRE2_8_LIBRARY. Distributions ship a .pc file only.
find_path(PCRE2_INCLUDE_DIR pcre2.h)
find_library(PCRE2_8_LIBRARY NAMES pcre2-8 pcre2-8-static)
mark_as_advanced(PCRE2_INCLUDE_DIR PCRE2_8_LIBRARY)

if(PCRE2_INCLUDE_DIR)
  file(STRINGS "${PCRE2_INCLUDE_DIR}/pcre2.h" PCRE2_VERSION REGEX "^#define PCRE2_(MAJOR|MINOR) +[0-9]+")
  list(TRANSFORM PCRE2_VERSION REPLACE "^.* " "")
  list(JOIN PCRE2_VERSION "." PCRE2_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PCRE2 REQUIRED_VARS PCRE2_8_LIBRARY PCRE2_INCLUDE_DIR VERSION_VAR PCRE2_VERSION)

if(PCRE2_FOUND AND NOT TARGET PCRE2::8BIT)
  add_library(PCRE2::8BIT UNKNOWN IMPORTED)
  set_target_properties(PCRE2::8BIT PROPERTIES
    IMPORTED_LOCATION "${PCRE2_8_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${PCRE2_INCLUDE_DIR}")
endif()

# SPDX-License-Identifier: MIT
# utf8proc. Defines utf8proc::utf8proc and utf8proc_VERSION, utf8proc_INCLUDE_DIR, utf8proc_LIBRARY.
# Distributions ship a .pc file only.
find_path(utf8proc_INCLUDE_DIR utf8proc.h)
find_library(utf8proc_LIBRARY NAMES utf8proc)
mark_as_advanced(utf8proc_INCLUDE_DIR utf8proc_LIBRARY)

if(utf8proc_INCLUDE_DIR)
  file(STRINGS "${utf8proc_INCLUDE_DIR}/utf8proc.h" utf8proc_VERSION
       REGEX "^#define UTF8PROC_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
  list(TRANSFORM utf8proc_VERSION REPLACE "^.* " "")
  list(JOIN utf8proc_VERSION "." utf8proc_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(utf8proc REQUIRED_VARS utf8proc_LIBRARY utf8proc_INCLUDE_DIR
                                  VERSION_VAR utf8proc_VERSION)

if(utf8proc_FOUND AND NOT TARGET utf8proc::utf8proc)
  add_library(utf8proc::utf8proc UNKNOWN IMPORTED)
  set_target_properties(utf8proc::utf8proc PROPERTIES
    IMPORTED_LOCATION "${utf8proc_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${utf8proc_INCLUDE_DIR}")
endif()

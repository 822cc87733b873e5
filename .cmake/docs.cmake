# SPDX-License-Identifier: MIT
# `cmake --build build --target docs` -> <build>/docs/index.html: the public interface, README.md as its first page. The
# target is there where Doxygen is (Debian: doxygen), and fails on a warning. Comments are written for readers of the
# headers; doxygen_filter.awk makes of them what Doxygen takes.
find_package(Doxygen 1.9.3 QUIET COMPONENTS doxygen)
if(NOT Doxygen_FOUND)
  return()
endif()

set(DOXYGEN_PROJECT_NUMBER ${PROJECT_VERSION})
set(DOXYGEN_HTML_OUTPUT docs)
set(DOXYGEN_GENERATE_LATEX NO)
set(DOXYGEN_HAVE_DOT NO)
set(DOXYGEN_QUIET YES)
set(DOXYGEN_STRIP_FROM_PATH "${include_dir}" "${PROJECT_SOURCE_DIR}")
set(DOXYGEN_STRIP_FROM_INC_PATH "${include_dir}")
set(DOXYGEN_GENERATE_TREEVIEW YES)

# Relative to the source folder, in which doxygen_add_docs() runs it.
set(DOXYGEN_FILE_PATTERNS *.hpp *.md)
set(DOXYGEN_FILTER_PATTERNS "*.hpp=awk -f .cmake/doxygen_filter.awk")
set(DOXYGEN_EXCLUDE include/kvdecode/text/detail)
set(DOXYGEN_EXCLUDE_SYMBOLS detail)
set(DOXYGEN_MACRO_EXPANSION YES)
set(DOXYGEN_EXPAND_ONLY_PREDEF YES)
set(DOXYGEN_PREDEFINED KVDECODE_INLINE=inline KVDECODE_INLINE_LAMBDA= "KVDECODE_EXPECTS(condition)=")
set(DOXYGEN_BUILTIN_STL_SUPPORT YES)

# A comment stands where a name does not say enough: what has none is no fault, what is wrong is.
set(DOXYGEN_JAVADOC_AUTOBRIEF YES)
set(DOXYGEN_EXTRACT_ALL YES)
set(DOXYGEN_WARN_IF_INCOMPLETE_DOC NO)
set(DOXYGEN_WARN_AS_ERROR FAIL_ON_WARNINGS)

# The pages that the README links to, and the programs that those link to.
set(DOXYGEN_USE_MDFILE_AS_MAINPAGE "${PROJECT_SOURCE_DIR}/README.md")
file(GLOB DOXYGEN_HTML_EXTRA_FILES CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/[0-9]*.cpp")
doxygen_add_docs(docs include/kvdecode README.md examples/README.md examples/README.ko.md
                 COMMENT "Writing the reference, docs/index.html")

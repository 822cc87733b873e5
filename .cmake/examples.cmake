# SPDX-License-Identifier: MIT
# examples/NAME.cpp -> target NAME, program <build>/examples/NAME.
find_package(CLI11 CONFIG REQUIRED)

file(GLOB example_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*.cpp")
set(example_programs)
foreach(source IN LISTS example_sources)
  cmake_path(GET source STEM name)
  add_executable(${name} "${source}")
  target_link_libraries(${name} PRIVATE kvdecode::pipeline kvdecode::native CLI11::CLI11)
  if(TARGET kvdecode::compiled)
    target_link_libraries(${name} PRIVATE kvdecode::compiled)
  endif()
  target_compile_definitions(${name} PRIVATE KVDECODE_EXAMPLE_DATA_DIR="${PROJECT_SOURCE_DIR}/examples/data")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "$<1:${PROJECT_BINARY_DIR}/examples>")
  list(APPEND example_programs ${name})
endforeach()

# The numbered programs are the tutorial: `cmake --build build --target tutorial` builds them alone.
set(tutorial_programs ${example_programs})
list(FILTER tutorial_programs INCLUDE REGEX "^[0-9][0-9]_")
add_custom_target(tutorial DEPENDS ${tutorial_programs})

# The cache of one's own is tried by the laws, which lie with the tests and need no test framework.
if(TARGET 10_your_own_cache)
  target_include_directories(10_your_own_cache PRIVATE "${PROJECT_SOURCE_DIR}/tests")
endif()
